"""Long dimensions cut into chunks, whose results are combined: a scan or a reduction in several kernels.

Whoever computes one says that it pays, and how long a chunk is to be.
"""

from __future__ import annotations

from fusewright.core.op import ReductionOp
from fusewright.ir.fusion import Fusion
from fusewright.ir.index_map import IndexMap, positions
from fusewright.ir.node import Node, Pointwise, Reduction, Scan
from fusewright.ir.value import Scalar, TensorView
from fusewright.ops.build_indexed import indexed, own_positions, sized_axis
from fusewright.ops.build_reduction import reduce_states
from fusewright.ops.build_scan import COMBINING
from fusewright.ops.build_shape import broadcast
from fusewright.ops.elementwise import ELEMENTWISE
from fusewright.sym import ONE, Expr, ceildiv, const, floordiv, le, lt, mod


def can_be_chunked(node: Node) -> bool:
    """Whether a node is a scan along a dimension whose elements are all there, or a reduction of one such
    dimension to a state that is as its elements are.
    """
    if isinstance(node, Scan):
        return not node.tensor_inputs[0].shape[node.dim].is_broadcast
    if not isinstance(node, Reduction) or len(node.inputs) > 1 or len(node.outputs) > 1:
        return False
    x, dims = node.tensor_inputs[0], node.reduced_dims
    return node.output.dtype is x.dtype and len(dims) == 1 and not x.shape[dims[0]].is_broadcast


def chunked_reduction(fusion: Fusion, node: Reduction, length: int) -> dict[TensorView, TensorView]:
    """A reduction in two steps: of chunks, and of their results.

    Adds its nodes, beside those there are; returns what the reduction's output became.
    """
    x, row = node.tensor_inputs[0], node.op
    (dim,) = node.reduced_dims
    chunks = chunked(fusion, x, dim, length, _identity(fusion, row, x))
    (partial,) = reduce_states(fusion, row, [chunks], [dim + 1])
    return {node.output: reduce_states(fusion, row, [partial], [dim])[0]}


def chunked_scan(fusion: Fusion, node: Scan, length: int) -> dict[TensorView, TensorView]:
    """A scan in three steps that kernels compute, the second one of few elements::

        y = scan(x)     becomes     totals = reduce(chunks of x)
                                    until = scan(totals)
                                    y = combine(until the chunk before, scan(chunks of x)), joined

    Each element is the same combination of the same partial results in every call. Adds its nodes, beside
    those there are; returns what the scan's output became.
    """
    x, row, dim = node.tensor_inputs[0], node.op, node.dim
    identity = _identity(fusion, row, x)
    start = next((v for v in node.inputs if isinstance(v, Scalar)), None)
    (totals,) = reduce_states(fusion, row, [chunked(fusion, x, dim, length, identity)], [dim + 1])
    until = _scanned(fusion, row, totals, dim, start)
    before = _shifted(fusion, until, dim, start if start is not None else identity)
    # Apart from the chunks that are reduced: another kernel reads them again.
    within = _scanned(fusion, row, chunked(fusion, x, dim, length, identity), dim + 1, None)
    wide = broadcast(fusion, before, [i == dim + 1 for i in range(within.ndim)])
    out = fusion.new_tensor([fusion.copy_axis(axis) for axis in within.shape], x.dtype)
    fusion.add_node(Pointwise(ELEMENTWISE[COMBINING[row]], (wide, within), out))
    return {node.output: joined(fusion, out, dim, node.output.shape[dim].extent)}


def chunked(fusion: Fusion, x: TensorView, dim: int, length: int, fill: Scalar) -> TensorView:
    """[.., N, ..] as [.., ceil(N / length), length, ..]; the last chunk is filled up with `fill`."""
    extent = x.shape[dim].extent
    cut = [sized_axis(fusion, ceildiv(extent, length)), sized_axis(fusion, const(length))]
    own = [fusion.copy_axis(axis) for axis in x.shape]
    axes = [*own[:dim], *cut, *own[dim + 1 :]]
    places = positions([axis.extent for axis in axes])
    place = places[dim] * length + places[dim + 1]
    forth = IndexMap((*places[:dim], place, *places[dim + 2 :]), lt(place, extent))
    # There is no inverse: what fills up the last chunk comes from nowhere.
    return indexed(fusion, "Chunks", x, axes, forth, fill=fill)


def joined(fusion: Fusion, x: TensorView, dim: int, extent: Expr) -> TensorView:
    """[.., C, L, ..] as [.., extent, ..], which leaves out what fills up the last chunk."""
    own = [fusion.copy_axis(axis) for axis in x.shape]
    axes = [*own[:dim], sized_axis(fusion, extent), *own[dim + 2 :]]
    length = x.shape[dim + 1].extent
    places = positions([axis.extent for axis in axes])
    inverse = None
    if all(axis.expanded is None for axis in x.shape):
        theirs = own_positions(x)
        place = theirs[dim] * length + theirs[dim + 1]
        inverse = IndexMap((*theirs[:dim], place, *theirs[dim + 2 :]), lt(place, extent))
    return indexed(fusion, "Joined", x, axes, IndexMap(tuple(_cut(places, dim, length))), inverse=inverse)


def _cut(places: list[Expr], dim: int, length: Expr | int) -> list[Expr]:
    return [*places[:dim], floordiv(places[dim], length), mod(places[dim], length), *places[dim + 1 :]]


def _shifted(fusion: Fusion, x: TensorView, dim: int, fill: Scalar) -> TensorView:
    """At each position along `dim` what stands before it, and `fill` at the first one."""
    axes = [fusion.copy_axis(axis) for axis in x.shape]
    places = positions([axis.extent for axis in axes])
    before = places[dim] - 1
    forth = IndexMap((*places[:dim], before, *places[dim + 1 :]), le(ONE, places[dim]))
    return indexed(fusion, "Shifted", x, axes, forth, fill=fill)


def _identity(fusion: Fusion, row: ReductionOp, x: TensorView) -> Scalar:
    return fusion.new_scalar(x.dtype, row.identity(x.dtype)[0])


def _scanned(fusion: Fusion, row: ReductionOp, x: TensorView, dim: int, start: Scalar | None) -> TensorView:
    out = fusion.new_tensor([fusion.copy_axis(axis) for axis in x.shape], x.dtype)
    fusion.add_node(Scan(row, x, out, dim, start))
    return out
