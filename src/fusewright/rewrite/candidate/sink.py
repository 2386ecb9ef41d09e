"""Moves reshapes and slices of values that are not recomputed down to the stores.

    sum(x) -> reshape -> mul by w -> output             becomes    sum(x) -> mul by w' -> store, reshaped
    x -> mul by reshape(sum(reshape(x))) -> output      becomes    reshape(x) -> mul by sum -> store, reshaped

A value that follows from a reduction, or that is also stored unchanged, has its place in the kernel's
iteration space. A change of shape that keeps its elements distinct can be inverted. Computation with the
result then stays in that space, on operands that are read through the inverse, and the change of shape
happens where the output is stored. The same holds for values combined with results that have one element for
many of the reduced elements, such as a norm of groups of channels that is written as a scale and a shift of
each channel.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.ir.axis import IterDomain, IterKind
from fusewright.ir.fusion import Fusion
from fusewright.ir.index_map import IndexMap
from fusewright.ir.node import Choose, Copy, Indexed, Node, Stored
from fusewright.ir.value import TensorView, Val
from fusewright.rewrite.candidate.lift import depends_on_more, lift_views
from fusewright.rewrite.replacement import shape_of
from fusewright.sym import ONE, TRUE, ZERO, Expr


def sink_views(fusion: Fusion) -> Fusion:
    """`fusion` itself, rewritten until no indexed read of a computed tensor can become a store."""
    changed = False
    tried: set[Node] = set()
    while True:
        node = next((n for n in fusion.ordered_nodes() if _can_sink(fusion, n) and n not in tried), None)
        if node is None:
            break
        assert isinstance(node, Indexed) and node.inverse is not None
        tried.add(node)
        changed |= _Sink(fusion, node, node.output, node.source, node.map, node.inverse).run()
    for node in [n for n in fusion.ordered_nodes() if _is_met_again(n)] if tried else ():
        assert isinstance(node, Indexed) and node.inverse is not None
        if node in fusion.nodes:
            changed |= _Sink(fusion, node, node.source, node.output, node.inverse, node.map).run()
    # What did not sink is lifted if it can be, and so are the operands of what did.
    return lift_views(fusion, everything=True) if changed or tried else fusion


def _can_sink(fusion: Fusion, node: Node) -> bool:
    return (
        isinstance(node, Indexed)
        and node.inverse is not None
        and not node.indices
        and node.source.definition is not None
        and not node.source.is_cpu
    )


def _is_met_again(node: Node) -> bool:
    """Whether elementwise work reads what a node reads in another shape, all of it, to be reduced."""
    if not isinstance(node, Indexed) or node.inverse is None or node.indices or node.source.is_cpu:
        return False
    is_all = node.inverse.pred is TRUE and node.map.pred is TRUE and not node.filled
    return is_all and any(use is not node and use.traits.pointwise for use in node.source.uses)


class _Sink:
    """One indexed read, and the computation with its result or, next to a reduction, with its source.

    Attributes:
        result: the tensor whose readers compute in the space of `source`, which has its elements, instead of
            their own.
        map, inverse: from positions in the result to positions in the source, and back.
        more: further tensors, such as those that depend on reductions.
        twins: maps computation with the result to the same computation in the source's space.
    """

    def __init__(
        self,
        fusion: Fusion,
        node: Indexed,
        result: TensorView,
        source: TensorView,
        map: IndexMap,
        inverse: IndexMap,
    ) -> None:
        self.fusion = fusion
        self.node = node
        self.result, self.source = result, source
        self.map, self.inverse = map, inverse
        self.space = source.shape
        self.outputs = set(fusion.output_tensors())
        self.more = depends_on_more(fusion)
        self.twins: dict[TensorView, TensorView] = {result: source}
        self.reads: dict[TensorView, TensorView] = {}
        self.same_reads: dict[TensorView, None] = {}

    @property
    def _reads_result(self) -> bool:
        """Whether the result is what the node gives."""
        return self.result is self.node.output

    def run(self) -> bool:
        """Rewrites; returns False and changes nothing if computation with the result needs its own space."""
        region = self._region()
        if region is None:
            return False
        for node in region:
            self._compute(node)
        self._store()
        return True

    def _region(self) -> list[Node] | None:
        """The nodes that compute with the result, producers first, or None if one of them cannot move."""
        if self.result in self.outputs and not self._reads_result:
            return None
        followed: set[Val] = {self.result}
        region: list[Node] = []
        meets_results = self._reads_result
        for node in self.fusion.ordered_nodes():
            if node is self.node or followed.isdisjoint(node.inputs):
                continue
            if not node.traits.pointwise or not node.traits.carries_relabels or node.traits.relabel:
                return None
            if isinstance(node, Choose) and (node.index_tensors or self.inverse.pred is not TRUE):
                return None
            if isinstance(node, Copy) and node.segment:
                return None
            if node.traits.view or len(node.outputs) > 1 or self._is_wider(node.output):
                return None
            for value in node.inputs:
                if value in followed or not isinstance(value, TensorView) or value.is_cpu:
                    continue
                if value in self.more and not self._is_same_read(value):
                    return None
                meets_results |= value in self.more
            followed.update(node.outputs)
            region.append(node)
        stored = [v for v in followed if v in self.outputs]
        unused = [v for v in followed if v not in self.outputs and not v.uses]
        has_place = meets_results and self._has_own_place(region)
        return region if stored and not unused and has_place else None

    def _is_wider(self, tensor: TensorView) -> bool:
        """Whether it has several elements where the result has one: the source has no place for them."""
        pairs = zip(self.result.shape, tensor.shape)
        return any(ours.is_broadcast and not theirs.is_broadcast for ours, theirs in pairs)

    def _has_own_place(self, region: Sequence[Node]) -> bool:
        """Whether the source is needed as it is: it is not computed again, or not only for the region.

        Other reads by index need no more than elements of it. Where these are of one shape, as the parts
        that a stencil adds up, their space serves all of them.
        """
        source, shape = self.source, shape_of(self.result)
        others = [use for use in source.uses if use is not self.node and use not in region]
        is_needed = any(not isinstance(use, Indexed) or shape_of(use.output) != shape for use in others)
        return source in self.more or source in self.outputs or is_needed

    def _is_same_read(self, value: TensorView) -> bool:
        """Whether a tensor is another of the source's space, or a broadcast in it, read in the same way."""
        node = value.definition
        if not isinstance(node, Indexed) or node.indices or node.source.ndim != len(self.space):
            return False
        dims = zip(node.source.shape, self.space, node.map.indices, self.map.indices)
        return node.map.pred is self.map.pred and all(
            theirs.is_broadcast
            or (theirs.extent is ours.extent and not ours.is_broadcast and place is own_place)
            for theirs, ours, place, own_place in dims
        )

    def _compute(self, node: Node) -> None:
        """The node in the source's space, beside itself."""
        values: dict[Val, Val] = {}
        for value in dict.fromkeys(node.inputs):
            if isinstance(value, TensorView) and not value.is_cpu:
                values[value] = self._twin(value)
        out = node.output
        twin = self.fusion.new_tensor([self.fusion.copy_axis(axis) for axis in self.space], out.dtype)
        values[out] = self.twins[out] = twin
        copy = node.copy(values)
        if isinstance(copy, Choose):
            copy.pred = IndexMap((), copy.pred).at(self._places()).pred
        self.fusion.add_node(copy)

    def _twin(self, value: TensorView) -> TensorView:
        """An operand in the source's space: computed with the result, read alike, or read by the inverse."""
        known = self.twins.get(value)
        if known is not None:
            return known
        if value in self.more:
            assert isinstance(value.definition, Indexed)
            self.same_reads[value] = None
            return value.definition.source
        if value not in self.reads:
            self.reads[value] = self._read(value)
        return self.reads[value]

    def _read(self, value: TensorView) -> TensorView:
        places = self._places()
        indices = tuple(ZERO if axis.is_broadcast else place for axis, place in zip(value.shape, places))
        own = IndexMap(indices, self.inverse.pred)
        axes: list[IterDomain] = []
        for dim, axis in enumerate(self.space):
            varies = own.depends_on(dim) and not axis.is_broadcast
            axes.append(
                self.fusion.copy_axis(axis) if varies else self.fusion.new_axis(ONE, IterKind.BROADCAST)
            )
        twin = self.fusion.new_tensor(axes, value.dtype)
        fill = None
        if own.pred is not TRUE:
            fill = self.fusion.new_scalar(value.dtype, value.dtype.zero)
        self.fusion.add_node(Indexed(self.node.kind, value, twin, own, fill=fill, inverse=None))
        return twin

    def _places(self) -> Sequence[Expr]:
        """The position in the result along each of its dimensions, from that in the source."""
        return self.inverse.indices

    def _store(self) -> None:
        """Stores the outputs, and removes what is computed in the result's own space."""
        for tensor, twin in self.twins.items():
            if tensor not in self.outputs:
                continue
            node = tensor.definition
            assert node is not None
            self.fusion.remove_node(node)
            root = [self.fusion.copy_axis(axis) for axis in twin.shape]
            tensor.redefine(tensor.logical, root)
            tensor.loop = root
            self.fusion.add_node(Stored(twin, tensor, self.inverse))
        computed = [tensor for tensor in self.twins if tensor is not self.result or self._reads_result]
        for tensor in (*reversed(computed), *self.same_reads):
            node = tensor.definition
            if node is not None and tensor not in self.outputs and not tensor.uses:
                self.fusion.remove_node(node)
