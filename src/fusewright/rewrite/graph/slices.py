"""Moves slices up through row-by-row computation, so that only the kept rows are computed.

    softmax(x, dim 1)[:n]    becomes    softmax(x[:n], dim 1)
    layer_norm(x)[:, -1]     becomes    squeeze(layer_norm(x[:, -1:]))
    cumsum(x, dim 1)[:, :n]  becomes    cumsum(x[:, :n], dim 1)

Slices of elementwise operations are lifted to the loads of a kernel anyway (`lift`). Above a reduction they
are not, since other readers may need all results. If there are none, the slice moves up through the reduction
along the dimensions that are not reduced, and through a scan along the scanned dimension if it keeps the
first elements.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.ir.axis import IterDomain, IterKind
from fusewright.ir.fusion import Fusion
from fusewright.ir.index_map import IndexMap, position, position_of
from fusewright.ir.node import Choose, Copy, Indexed, Node, Reduction, Scan
from fusewright.ir.value import TensorView, Val
from fusewright.ir.view import Relabel
from fusewright.rewrite.replacement import is_in_memory_of_its_own, read_instead, remove_dead
from fusewright.sym import ONE, TRUE, ZERO, Expr, Symbol

#: Maps the sliced dimensions of a tensor to the dimensions of the slice.
_Cut = dict[int, int]


def move_slices_up(fusion: Fusion) -> Fusion:
    """Moves slices of values that depend on reductions to the reductions' operands; returns `fusion`."""
    order: dict[Node, int] | None = None
    for node in reversed(fusion.ordered_nodes()):
        if not isinstance(node, Indexed) or node not in fusion.nodes:
            continue
        kept = _selected_from(node)
        cut = _cut(node) if kept is None else {dim: dim for dim in range(node.source.ndim) if dim not in kept}
        if not cut:
            continue
        order = order or {n: i for i, n in enumerate(fusion.ordered_nodes())}
        move = _Move(fusion, node, cut, order)
        if move.saves_reductions:
            if kept is not None:
                move.node = _as_slice(fusion, node, kept)
            move.run()
    return fusion


def _selected_from(node: Indexed) -> list[int] | None:
    """The remaining dimensions, in order, of a node that selects one position along each other; else None."""
    shape, out = node.source.shape, node.output.shape
    if node.indices or node.filled or node.map.pred is not TRUE or len(shape) <= len(out):
        return None
    kept: list[int] = []
    for dim, (index, axis) in enumerate(zip(node.map.indices, shape)):
        if len(kept) < len(out) and index is _own_place(len(kept), axis) and not axis.is_broadcast:
            kept.append(dim)
        elif axis.is_broadcast or any(position_of(s) is not None for s in index.free_symbols):
            return None
    return kept if len(kept) == len(out) else None


def _as_slice(fusion: Fusion, node: Indexed, kept: Sequence[int]) -> Indexed:
    """Replaces a selection by a slice of one position along the removed dimensions and a view without them.

    Returns:
        The slice.
    """
    source, axes, indices = node.source, [], []
    for dim, (index, axis) in enumerate(zip(node.map.indices, source.shape)):
        is_left = dim in kept
        axes.append(fusion.copy_axis(axis) if is_left else fusion.new_axis(ONE, IterKind.BROADCAST))
        indices.append(_own_place(dim, axis) if is_left else index)
    between = fusion.new_tensor(axes, source.dtype)
    sliced = Indexed("Slice", source, between, IndexMap(tuple(indices)))
    fusion.remove_node(node)
    fusion.add_node(sliced)
    fusion.add_node(Relabel(between, node.output, kept))
    return sliced


def _cut(node: Indexed) -> _Cut | None:
    """The dimensions that a node slices; None if it does anything else."""
    shape, out = node.source.shape, node.output.shape
    if node.indices or node.filled or node.map.pred is not TRUE or len(shape) != len(out):
        return None
    cut: _Cut = {}
    for dim, (index, axis) in enumerate(zip(node.map.indices, shape)):
        if any(position_of(s) not in (None, dim) for s in index.free_symbols):
            return None
        if axis.is_broadcast:
            if axis.expanded is not None or not out[dim].is_broadcast:
                return None
        elif index is not position(dim, axis.extent):
            cut[dim] = dim
    return cut


class _Move:
    """A slice and the nodes in front of which it moves.

    Attributes:
        node: the slice.
        cuts: the sliced dimensions of the tensors that these nodes compute and read.
        region: the nodes, which only the slice needs, the last one first.
    """

    def __init__(self, fusion: Fusion, node: Indexed, cut: _Cut, order: dict[Node, int]) -> None:
        self.fusion = fusion
        self.node = node
        self.order = order
        self.outputs = set(fusion.output_tensors())
        self.cuts: dict[TensorView, _Cut] = {node.source: cut}
        self.region: list[Node] = []
        self._made: dict[Val, Val] = {}
        self._find()

    @property
    def saves_reductions(self) -> bool:
        """Whether reductions or scans have fewer rows afterwards."""
        return any(isinstance(node, (Reduction, Scan)) for node in self.region)

    def run(self) -> None:
        for node in reversed(self.region):
            self._compute(node)
        source, out = self.node.source, self.node.output
        made = self._made[source]
        assert isinstance(made, TensorView)
        self.fusion.remove_node(self.node)
        if is_in_memory_of_its_own(out, self.outputs) or not read_instead(self.fusion, out, made):
            self.fusion.add_node(Copy(made, out))
        for node in self.region[:1]:
            remove_dead(self.fusion, node, self.outputs)

    def _find(self) -> None:
        """Collects the region, consumers first."""
        inside: set[Node] = {self.node}
        waiting = {self.node.source.definition}
        while waiting:
            node = max(waiting, key=lambda n: self.order.get(n, -1) if n is not None else -2)
            waiting.discard(node)
            if node is None or node not in self.order or not self._can_move(node, inside):
                continue
            cuts = self._operand_cuts(node)
            if cuts is None:
                continue
            self.cuts.update(cuts)
            inside.add(node)
            self.region.append(node)
            waiting.update(value.definition for value in cuts)

    def _can_move(self, node: Node, inside: set[Node]) -> bool:
        is_known = isinstance(node, (Reduction, Scan)) or (
            node.traits.pointwise and node.traits.carries_relabels and not isinstance(node, Choose)
        )
        outs = node.tensor_outputs
        return (
            is_known
            and bool(node.tensor_inputs)
            and len(outs) == len(node.outputs)
            and not any(is_in_memory_of_its_own(out, self.outputs) for out in outs)
            and all(inside.issuperset(out.uses) for out in outs)
        )

    def _operand_cuts(self, node: Node) -> dict[TensorView, _Cut] | None:
        """The sliced dimensions of each operand, given the outputs'; None if the slice cannot move."""
        outs = node.tensor_outputs
        cut = next(self.cuts[out] for out in outs if out in self.cuts)
        if any(self.cuts.get(out, cut) != cut or _is_expanded(out) for out in outs):
            return None
        self.cuts.update(dict.fromkeys(outs, cut))
        if isinstance(node, Scan) and node.dim in cut and not self._keeps_the_first(cut[node.dim]):
            return None
        kept = [i for i, axis in enumerate(node.output.maybe_root) if not axis.is_reduction]
        found: dict[TensorView, _Cut] = {}
        for i, value in enumerate(node.inputs):
            if not isinstance(value, TensorView) or value.is_cpu:
                continue
            dims, shape = node.axis_map(i), value.shape
            own = {
                source: cut[dim]
                for dim, place in enumerate(kept)
                if dim in cut and (source := dims[place]) is not None and not shape[source].is_broadcast
            }
            if _is_expanded(value):
                return None
            if found.get(value, own) != own or self.cuts.get(value, own) != own:
                return None
            if own:
                found[value] = own
        return found

    def _keeps_the_first(self, place: int) -> bool:
        """Whether the slice keeps the first elements along a dimension.

        A scan of these needs no other elements.
        """
        index = self.node.map.indices[place]
        return isinstance(index, Symbol) and position_of(index) == place

    # ---- rewriting

    def _compute(self, node: Node) -> None:
        """Adds a copy of the node with sliced operands."""
        values: dict[Val, Val] = {}
        for value in dict.fromkeys(node.inputs):
            if isinstance(value, TensorView) and self.cuts.get(value):
                values[value] = self._sliced(value)
        for out in node.outputs:
            assert isinstance(out, TensorView)
            axes, dim = [], 0
            for axis in out.logical:
                axes.append(self.fusion.copy_axis(axis) if axis.is_reduction else self._axis(out, axis, dim))
                dim += not axis.is_reduction
            values[out] = self._made[out] = self.fusion.new_tensor(axes, out.dtype)
        self.fusion.add_node(node.copy(values))

    def _axis(self, tensor: TensorView, axis: IterDomain, dim: int) -> IterDomain:
        place = self.cuts[tensor].get(dim)
        if place is None or axis.is_broadcast:
            return self.fusion.copy_axis(axis)
        return self.fusion.copy_axis(self.node.output.shape[place])

    def _sliced(self, tensor: TensorView) -> Val:
        known = self._made.get(tensor)
        if known is None:
            axes = [self._axis(tensor, axis, dim) for dim, axis in enumerate(tensor.shape)]
            known = self._made[tensor] = self.fusion.new_tensor(axes, tensor.dtype)
            self.fusion.add_node(Indexed(self.node.kind, tensor, known, self._map(tensor, axes)))
        return known

    def _map(self, tensor: TensorView, axes: Sequence[IterDomain]) -> IndexMap:
        """The slice's indices along the tensor's own dimensions."""
        own = IndexMap(tuple([_own_place(dim, axis) for dim, axis in enumerate(tensor.shape)]))
        indices = list(own.indices)
        for dim, place in self.cuts[tensor].items():
            theirs = IndexMap((self.node.map.indices[place],))
            places = [_own_place(dim, axes[dim])] * (place + 1)
            indices[dim] = theirs.at(places).indices[0]
        return IndexMap(tuple(indices))


def _is_expanded(tensor: TensorView) -> bool:
    """Whether a tensor has expanded dimensions, whose number of copies a slice would change."""
    return any(axis.expanded is not None for axis in tensor.logical)


def _own_place(dim: int, axis: IterDomain) -> Expr:
    return ZERO if axis.is_broadcast else position(dim, axis.extent)
