"""Long dimensions cut into chunks, whose results are combined: a reduction in two kernels.

Whoever computes one says that it pays, and how long a chunk is to be.
"""

from __future__ import annotations

from fusewright.core.op import ReductionOp
from fusewright.ir.fusion import Fusion
from fusewright.ir.index_map import IndexMap, positions
from fusewright.ir.node import Node, Reduction
from fusewright.ir.value import Scalar, TensorView
from fusewright.ops.build_indexed import indexed, sized_axis
from fusewright.ops.build_reduction import reduce_states
from fusewright.sym import ceildiv, const, lt


def can_be_chunked(node: Node) -> bool:
    """Whether a node reduces one dimension, whose elements are all there, to a state that is as they are."""
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


def _identity(fusion: Fusion, row: ReductionOp, x: TensorView) -> Scalar:
    return fusion.new_scalar(x.dtype, row.identity(x.dtype)[0])
