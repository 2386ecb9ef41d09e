"""Moves invertible reshapes and slices of values that are not recomputed down to the stores.

    sum(x) -> reshape -> mul by w -> output             becomes    sum(x) -> mul by w' -> store, reshaped
    x -> mul by reshape(sum(reshape(x))) -> output      becomes    reshape(x) -> mul by sum -> store, reshaped

A value that depends on a reduction, or that is also stored unchanged, has its place in the kernel's iteration
space. If a change of its shape is invertible, computation with the result stays in that space: other operands
are read through the inverse, and the shape changes when the output is stored. The same holds for values that
are combined with results of a reduction of the reshaped value, such as a group norm that is written as a
scale and a shift of each channel.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.ir.axis import IterDomain, IterKind
from fusewright.ir.fusion import Fusion
from fusewright.ir.index_map import IndexMap
from fusewright.ir.node import Choose, Copy, Indexed, Node, Piece, Stored
from fusewright.ir.value import TensorView, Val
from fusewright.rewrite.candidate.lift import depends_on_more, lift_views
from fusewright.rewrite.replacement import shape_of
from fusewright.sym import ONE, TRUE, ZERO, Expr


def sink_views(fusion: Fusion) -> Fusion:
    """Turns indexed reads of computed tensors into stores where possible; returns `fusion`."""
    changed = False
    tried: set[Node] = set()
    while True:
        node = next((n for n in fusion.ordered_nodes() if _can_sink(fusion, n) and n not in tried), None)
        if node is None:
            break
        assert isinstance(node, Indexed) and node.inverse is not None
        tried.add(node)
        changed |= _Sink(fusion, node, node.output, node.source, node.map, node.inverse).run()
    for node in [n for n in fusion.ordered_nodes() if _is_beside_source(n)] if tried else ():
        assert isinstance(node, Indexed) and node.inverse is not None
        if node in fusion.nodes:
            changed |= _Sink(fusion, node, node.source, node.output, node.inverse, node.map).run()
    # Reads that did not sink are lifted if possible, as are the new reads of operands.
    return lift_views(fusion, everything=True) if changed or tried else fusion


def _can_sink(fusion: Fusion, node: Node) -> bool:
    return (
        isinstance(node, Indexed)
        and node.inverse is not None
        and not node.indices
        and node.source.definition is not None
        and not node.source.is_cpu
    )


def _is_beside_source(node: Node) -> bool:
    """Whether a node is a reshape of a whole tensor that elementwise nodes also read unchanged."""
    if not isinstance(node, Indexed) or node.inverse is None or node.indices or node.source.is_cpu:
        return False
    is_all = node.inverse.pred is TRUE and node.map.pred is TRUE and not node.filled
    return is_all and any(use is not node and use.traits.pointwise for use in node.source.uses)


class _Sink:
    """Moves the computation with one tensor of an indexed read to the space of the other.

    Attributes:
        node: the indexed read.
        result: the tensor whose readers move. It is the node's output, or its source if the output is
            reduced.
        source: the other tensor, with the same elements, to whose space they move.
        map, inverse: the maps from positions in the result to positions in the source, and back.
        space: the dimensions of the source.
        more: the tensors that are not computed elementwise from inputs only.
        twins: maps tensors that are computed with the result to their counterparts in the source's space.
        reads: the new reads of other operands.
        same_reads: operands that are read from the source's space in the same way, and may become unused.
        pieces: the stores of pieces of what is computed with the result.
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
        self.pieces: list[Piece] = []

    @property
    def _reads_result(self) -> bool:
        """Whether the result is the node's output."""
        return self.result is self.node.output

    def run(self) -> bool:
        """Moves the computation; returns False and changes nothing if that is impossible or has no use."""
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
            if isinstance(node, Piece):
                self.pieces.append(node)
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
        return region if (stored or self.pieces) and not unused and has_place else None

    def _is_wider(self, tensor: TensorView) -> bool:
        """Whether a tensor is larger than the result along a dimension, so the source lacks places for it."""
        pairs = zip(self.result.shape, tensor.shape)
        return any(ours.is_broadcast and not theirs.is_broadcast for ours, theirs in pairs)

    def _has_own_place(self, region: Sequence[Node]) -> bool:
        """Whether the source is needed in its own shape: it is not recomputed, or has other readers.

        Indexed reads of the result's shape do not count: for the parts that a stencil adds up, for example,
        their common space serves all of them.
        """
        source, shape = self.source, shape_of(self.result)
        others = [use for use in source.uses if use is not self.node and use not in region]
        is_needed = any(not isinstance(use, Indexed) or shape_of(use.output) != shape for use in others)
        return source in self.more or source in self.outputs or is_needed

    def _is_same_read(self, value: TensorView) -> bool:
        """Whether a value is a tensor or broadcast in the source's space that is read like the source."""
        node = value.definition
        if not isinstance(node, Indexed) or node.indices or node.source.ndim != len(self.space):
            return False
        dims = zip(node.source.shape, self.space, node.map.indices, self.map.indices)

        def is_same(theirs: IterDomain, ours: IterDomain, place: Expr, own_place: Expr) -> bool:
            if theirs.is_broadcast:
                return True
            return theirs.extent is ours.extent and not ours.is_broadcast and place is own_place

        return node.map.pred is self.map.pred and all(is_same(*dim) for dim in dims)

    def _compute(self, node: Node) -> None:
        """Adds a copy of the node in the source's space."""
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
        """An operand's counterpart in the source's space.

        It is computed with the result, or read in the same way as the result, or read through the inverse.
        """
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
        """The position in the result as expressions of the position in the source."""
        return self.inverse.indices

    def _store(self) -> None:
        """Stores outputs and pieces from the source's space, and removes the computation in the result's."""
        for tensor, twin in self.twins.items():
            if tensor not in self.outputs:
                continue
            self._replace_store(Stored(twin, tensor, self.inverse))
        for piece in self.pieces:
            places = piece.map.at(self._places()).where(self.inverse.pred)
            self._replace_store(Piece(self.twins[piece.source], piece.output, places))
        computed = [tensor for tensor in self.twins if tensor is not self.result or self._reads_result]
        for tensor in (*reversed(computed), *self.same_reads):
            node = tensor.definition
            if node is not None and tensor not in self.outputs and not tensor.uses:
                self.fusion.remove_node(node)

    def _replace_store(self, store: Stored) -> None:
        """Adds a node that stores a tensor instead of the one that computes it."""
        tensor = store.output
        assert tensor.definition is not None
        self.fusion.remove_node(tensor.definition)
        root = [self.fusion.copy_axis(axis) for axis in store.source.shape]
        tensor.redefine(tensor.logical, root)
        tensor.loop = root
        self.fusion.add_node(store)
