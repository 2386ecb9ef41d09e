"""Moves a broadcast, squeeze or permute of a computed tensor to the tensor's operands."""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.ir.axis import IterDomain, IterKind
from fusewright.ir.fusion import Fusion
from fusewright.ir.index_map import IndexMap, position
from fusewright.ir.node import Choose, Indexed, Node
from fusewright.ir.value import TensorView, Val
from fusewright.ir.view import Relabel
from fusewright.sym import ZERO, Expr, const


def lift_relabel(fusion: Fusion, node: Node, above: Node, lifted: dict[object, TensorView]) -> list[Node]:
    """relabel(above(x, y)) -> above'(relabel(x), relabel(y)).

    Args:
        lifted: the results of earlier steps, by the tensor and its relabeling, so that shared tensors stay
            shared.

    Returns:
        The new nodes that may be lifted further.
    """
    out, dims = node.output, tuple(node.axis_map(0))
    fusion.remove_node(node)
    if above.traits.relabel:
        inner = above.axis_map(0)
        source = above.source
        return [fusion.add_node(Relabel(source, out, [None if d is None else inner[d] for d in dims]))]
    made: list[Node] = []

    def relabeled(value: TensorView) -> TensorView:
        known = lifted.get((value, dims))
        if known is None or known.definition is None:
            known = lifted[value, dims] = fusion.new_tensor(_axes(fusion, value.shape, dims), value.dtype)
            made.append(fusion.add_node(Relabel(value, known, dims)))
        return known

    if isinstance(above, Indexed):
        indices = [relabeled(tensor) for tensor in above.index_tensors]
        return [*made, fusion.add_node(_relabeled_index(above, out, dims, indices))]
    values: dict[Val, Val] = {above.outputs[0]: out}
    for value in dict.fromkeys(above.inputs):
        if isinstance(value, TensorView) and not value.is_cpu:
            values[value] = relabeled(value)
    copy = above.copy(values)
    if isinstance(copy, Choose):
        copy.pred = IndexMap((), copy.pred).at(_places(out, dims, above.output.ndim)).pred
    fusion.add_node(copy)
    return made


def _axes(fusion: Fusion, shape: Sequence[IterDomain], dims: Sequence[int | None]) -> list[IterDomain]:
    return [
        fusion.new_axis(const(1), IterKind.BROADCAST) if d is None else fusion.copy_axis(shape[d])
        for d in dims
    ]


def _places(out: TensorView, dims: Sequence[int | None], rank: int) -> list[Expr]:
    """The positions along `rank` dimensions as expressions of the positions in `out`.

    Args:
        dims: for each dimension of `out` the original dimension, or None.
    """
    places: list[Expr] = [ZERO] * rank
    for new, (old, axis) in enumerate(zip(dims, out.shape)):
        if old is not None and not axis.is_broadcast:
            places[old] = position(new, axis.extent)
    return places


def _relabeled_index(
    above: Indexed, out: TensorView, dims: Sequence[int | None], indices: Sequence[TensorView]
) -> Indexed:
    inverse = above.inverse
    if inverse is not None:
        inverse = IndexMap(tuple(ZERO if d is None else inverse.indices[d] for d in dims), inverse.pred)
    index_map = above.map.at(_places(out, dims, above.output.ndim))
    return Indexed(above.kind, above.source, out, index_map, indices, above.fill, inverse)
