"""Replaces an indexed read of a computed tensor by indexed reads of the tensor's operands."""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.ir.axis import IterDomain, IterKind
from fusewright.ir.fusion import Fusion
from fusewright.ir.index_map import (
    IndexMap,
    index_value,
    is_size,
    position,
    position_of,
    value_extent,
    value_of,
)
from fusewright.ir.node import Choose, Copy, Indexed, Iota, Node
from fusewright.ir.value import Scalar, TensorView, Val
from fusewright.ir.view import Expand, Relabel
from fusewright.ops.build_elementwise import copy_tensor
from fusewright.rewrite.candidate.lift_positions import lift_over_positions
from fusewright.rewrite.graph.parts import part_read, read_part
from fusewright.rewrite.replacement import is_in_memory_of_its_own, read_instead, shape_of
from fusewright.sym import ONE, TRUE, ZERO, And, Expr, Symbol, land, le, lt, prove


def lift_indexed(
    fusion: Fusion, node: Indexed, above: Node, lifted: dict[object, TensorView], reduced: set[Val]
) -> list[Node] | None:
    """Indexed(above(x, y)) -> above(Indexed(x), Indexed(y)).

    Args:
        lifted: the results of earlier steps, by the tensor and the way in which it is read.
        reduced: the values that depend on reductions.

    Returns:
        The new nodes that may be lifted further; None if `above` is not elementwise.
    """
    if isinstance(above, Iota):
        return [] if lift_over_positions(fusion, node, above) else None
    part = part_read(node) if isinstance(above, Choose) else None
    if part is not None:
        read_part(fusion, node, part)
        return [node]
    lift = _Lift(fusion, node, lifted, reduced)
    if above.traits.relabel or isinstance(above, Expand):
        return lift.over_relabel(above)
    if isinstance(above, Indexed):
        return lift.over_indexed(above)
    if isinstance(above, Copy):
        return lift.over_copy(above)
    return lift.over_elements(above)


def reads_in_order(node: Indexed, reduced: set[Val]) -> bool:
    """Whether an indexed read of values that depend on reductions needs the reductions' results in order.

    For example, `log_softmax(x)[i, t[i]]` is `x[i, t[i]]` minus the value of row i.
    """
    above = node.source.definition
    if node.source in reduced and above is not None and not above.traits.pointwise:
        dims = _relabel_dims(node.source, node.map, node.output)
        return dims is not None and all(
            axis.is_broadcast or dim is not None for axis, dim in zip(node.output.shape, dims)
        )
    return is_in_order(node.source, node, reduced)


def is_in_order(tensor: TensorView, view: Indexed, reduced: set[Val]) -> bool:
    """Like `reads_in_order`, for `tensor` if it is read in the way in which `view` reads its source."""
    return _in_order(tensor, view.map, view.output, reduced)


def _in_order(value: TensorView, read: IndexMap, out: TensorView, reduced: set[Val]) -> bool:
    above = value.definition
    if value not in reduced:
        return True
    assert above is not None
    if above.traits.relabel or isinstance(above, Expand):
        source = above.source
        indices: list[Expr] = [ZERO] * source.ndim
        for index, dim in zip(read.indices, above.axis_map(0)):
            if dim is not None and not source.shape[dim].is_broadcast:
                indices[dim] = index
        return _in_order(source, IndexMap(tuple(indices), read.pred), out, reduced)
    if isinstance(above, Indexed) and not above.indices:
        return _in_order(above.source, above.map.at(read.indices).where(read.pred), out, reduced)
    if above.traits.pointwise and above.traits.carries_relabels and not isinstance(above, Iota):
        operands = [v for v in above.inputs if isinstance(v, TensorView) and not v.is_cpu]
        return all(_in_order(v, _restricted(read, v), out, reduced) for v in operands)
    # The result of a reduction must be read by a relabeling.
    return not above.traits.indexed and _relabel_dims(value, read, out) is not None


def _restricted(read: IndexMap, value: TensorView) -> IndexMap:
    indices = tuple(ZERO if axis.is_broadcast else e for axis, e in zip(value.shape, read.indices))
    return IndexMap(indices, _about(read.pred, indices))


def _relabel_dims(value: TensorView, read: IndexMap, out: TensorView) -> list[int | None] | None:
    """For each dimension of `out` the dimension of `value`, if the read is a relabeling; else None."""
    dims: list[int | None] = [None] * out.ndim
    for dim, (axis, index) in enumerate(zip(value.shape, read.indices)):
        if axis.is_broadcast:
            continue
        place = position_of(index) if isinstance(index, Symbol) else None
        if place is None or dims[place] is not None or out.shape[place].extent is not axis.extent:
            return None
        dims[place] = dim
    return None if _about(read.pred, read.indices) is not TRUE else dims


def as_relabel(fusion: Fusion, node: Indexed) -> Node:
    """Replaces a read of a whole result in order by the equal relabeling."""
    dims = _relabel_dims(node.source, node.map, node.output)
    assert dims is not None
    fusion.remove_node(node)
    return fusion.add_node(Relabel(node.source, node.output, dims))


class _Lift:
    """One step over one node.

    Attributes:
        made: the new nodes that may be lifted further.
    """

    def __init__(
        self, fusion: Fusion, node: Indexed, lifted: dict[object, TensorView], reduced: set[Val]
    ) -> None:
        self.fusion = fusion
        self.node = node
        self.map = node.map
        self.lifted = lifted
        self.reduced = reduced
        self.made: list[Node] = []

    def over_relabel(self, above: Node) -> list[Node]:
        node, source = self.node, above.source
        indices: list[Expr] = [ZERO] * source.ndim
        for index, dim in zip(self.map.indices, above.axis_map(0)):
            if dim is not None and not source.shape[dim].is_broadcast:
                indices[dim] = index
        inverse = node.inverse
        if inverse is not None:
            shown = any(axis.expanded is not None for axis in (*source.shape, *node.source.shape))
            own = _positions(source)
            places = [ZERO if dim is None else own[dim] for dim in above.axis_map(0)]
            inverse = None if shown else inverse.at(places)
        self.fusion.remove_node(node)
        index_map = IndexMap(tuple(indices), self.map.pred)
        self._add_read(source, node.output, index_map, node.index_tensors, node.fill, inverse)
        return self.made

    def over_copy(self, above: Copy) -> list[Node]:
        node, source = self.node, above.source
        self.fusion.remove_node(node)
        self._add_read(source, node.output, self.map, node.index_tensors, node.fill, node.inverse)
        return self.made

    def over_indexed(self, above: Indexed) -> list[Node]:
        node = self.node
        self.fusion.remove_node(node)
        first = node.indices
        inner = above.map.at(self.map.indices, shift=first)
        indices = [*node.index_tensors, *(self.viewed(tensor) for tensor in above.index_tensors)]
        merged = inner.where(self.map.pred)
        inverse = None
        if node.inverse is not None and above.inverse is not None:
            inverse = node.inverse.at(above.inverse.indices).where(above.inverse.pred)
        if merged == IndexMap(tuple(_positions(above.source))) and self._is_source(above.source):
            return [use for use in above.source.uses if use.traits.own_load]
        if self.map.pred is TRUE or above.map.pred is TRUE or _is_same(node.fill, above.fill):
            fill = above.fill if self.map.pred is TRUE else node.fill
            self._add_read(above.source, node.output, merged, indices, fill, inverse)
            return self.made
        between = self.fusion.new_like(node.output)
        self._add_read(above.source, between, merged, indices, above.fill)
        self._choose(between)
        return self.made

    def over_elements(self, above: Node) -> list[Node]:
        """Moves the read over an elementwise node."""
        node = self.node
        self.fusion.remove_node(node)
        out = node.output if self.map.pred is TRUE else self.fusion.new_like(node.output)
        values: dict[Val, Val] = {above.outputs[0]: out}
        operands = [v for v in dict.fromkeys(above.inputs) if isinstance(v, TensorView) and not v.is_cpu]
        for value in operands:
            values[value] = self.viewed(value)
        copy = above.copy(values)
        if isinstance(copy, Choose):
            copy = self._choice(above, copy)
        self.fusion.add_node(copy)
        if out is not node.output:
            self._choose(out)
        return self.made

    def _choice(self, above: Node, copy: Choose) -> Choose:
        """The copy of a choice, with its predicate at the positions that the node reads."""
        assert isinstance(above, Choose)
        first = len(above.index_tensors)
        # The index values of the read come after those of the choice.
        places = IndexMap(self.map.indices).at(_positions(self.node.output), shift=first).indices
        pred = IndexMap((), above.pred).at(places).pred
        used = {value_of(s) for s in pred.free_symbols} - {None}
        more = self.node.index_tensors if any(n is not None and n >= first for n in used) else []
        choice = Choose(copy.inputs[0], copy.inputs[1], copy.output, pred, [*copy.index_tensors, *more])
        choice.reduced = copy.reduced
        return choice

    # ---- parts

    def _is_source(self, source: TensorView) -> bool:
        """Replaces the output by `source`, which has the same elements; returns whether that was possible.

        A tensor that is loaded stays, since each use may have a separate load.
        """
        out, computed = self.node.output, source.definition
        has_shape = shape_of(source) == shape_of(out)
        is_loaded = computed is None or computed.traits.own_load
        if not has_shape or is_loaded or is_in_memory_of_its_own(out, self.fusion.output_tensors()):
            return False
        return read_instead(self.fusion, out, source)

    def viewed(self, value: TensorView) -> TensorView:
        """An operand of the node above, read in the way in which the node reads its source."""
        node = self.node
        indices = tuple(ZERO if axis.is_broadcast else e for axis, e in zip(value.shape, self.map.indices))
        # A value that depends on a reduction keeps its condition. Without the condition, the broadcast of the
        # result would get dimensions that the reduction lacks, and the two would no longer be one kernel.
        is_free = self.node.source not in self.reduced and _are_inside(indices, value)
        pred = TRUE if is_free else _about(self.map.pred, indices)
        shape = tuple((axis.extent, axis.expanded, axis.is_broadcast) for axis in node.output.shape)
        key = value, indices, pred, tuple(node.index_tensors), shape
        known = self.lifted.get(key)
        if known is not None and known.definition is not None:
            return known
        own = IndexMap(indices, pred)
        axes = [self._axis(axis, dim, own) for dim, axis in enumerate(node.output.shape)]
        twin = self.lifted[key] = self.fusion.new_tensor(axes, value.dtype)
        fill = None if pred is TRUE else self.fusion.new_scalar(value.dtype, value.dtype.zero)
        tensors = node.index_tensors if own.index_numbers else ()
        self._add_read(value, twin, own, tensors, fill)
        return twin

    def _axis(self, axis: IterDomain, dim: int, own: IndexMap) -> IterDomain:
        """A dimension of an operand; a broadcast dimension if the operand is constant along it."""
        varies = own.depends_on(dim) or any(
            not self.node.index_tensors[n].shape[dim].is_broadcast for n in own.index_numbers
        )
        if varies or axis.is_broadcast:
            return self.fusion.copy_axis(axis)
        return self.fusion.new_axis(ONE, IterKind.BROADCAST)

    def _choose(self, element: TensorView) -> None:
        """Makes the output `element` where the node's predicate holds, else the node's fill."""
        node = self.node
        fill = node.fill or self.fusion.new_scalar(node.output.dtype, node.output.dtype.zero)
        used = self.map.pred.free_symbols
        indices = node.index_tensors if any(value_of(s) is not None for s in used) else ()
        self.fusion.add_node(Choose(element, fill, node.output, self.map.pred, indices))

    def _add_read(
        self,
        source: TensorView,
        out: TensorView,
        index_map: IndexMap,
        indices: Sequence[TensorView],
        fill: Scalar | None,
        inverse: IndexMap | None = None,
    ) -> None:
        index_map, indices = _with_used(index_map, indices)
        # A node cannot read one tensor by index and as the index, so the index is copied.
        apart = [copy_tensor(self.fusion, tensor) if tensor is source else tensor for tensor in indices]
        read = Indexed(self.node.kind, source, out, index_map, apart, fill, inverse)
        self.made.append(self.fusion.add_node(read))


def _with_used(index_map: IndexMap, tensors: Sequence[TensorView]) -> tuple[IndexMap, Sequence[TensorView]]:
    """The map with only the index tensors that it uses. Others may have dimensions that the result lacks."""
    used = sorted(index_map.index_numbers)
    if len(used) == len(tensors):
        return index_map, tensors

    def renumbered(s: Symbol) -> Expr | None:
        number = value_of(s)
        return None if number is None else index_value(used.index(number), value_extent(s))

    return index_map.rewritten(renumbered), [tensors[number] for number in used]


def _are_inside(indices: Sequence[Expr], value: TensorView) -> bool:
    """Whether these indices are inside a tensor at all positions, so that the read needs no condition.

    A tensor from which several pieces of a join are computed is then read once, not once for each piece.
    `implied` restores the conditions that all uses have in common.
    """
    return all(
        prove(le(ZERO, index)) and prove(lt(index, axis.extent))
        for index, axis in zip(indices, value.shape)
        if not axis.is_broadcast
    )


def _positions(tensor: TensorView) -> list[Expr]:
    return [ZERO if a.is_broadcast else position(i, a.extent) for i, a in enumerate(tensor.shape)]


def _about(pred: Expr, indices: Sequence[Expr]) -> Expr:
    """The conditions of a conjunction that share a symbol with these indices, or are only about sizes."""
    symbols = {s for e in indices for s in e.free_symbols}
    conditions = pred.args if isinstance(pred, And) else (pred,)
    return land(*(c for c in conditions if is_size(c) or not _places(c).isdisjoint(symbols)))


def _places(e: Expr) -> set[Symbol]:
    """The positions and index values in an expression."""
    return {s for s in e.free_symbols if position_of(s) is not None or value_of(s) is not None}


def _is_same(a: Scalar | None, b: Scalar | None) -> bool:
    """Whether two fills are the same number; None is zero."""
    if a is b:
        return True
    values = [0 if fill is None else fill.value for fill in (a, b)]
    return None not in values and str(complex(values[0])) == str(complex(values[1]))  # type: ignore[arg-type]
