"""Builder of embeddings: rows of a table by index, optionally with a limited norm."""

from __future__ import annotations

import math

from fusewright.core.dtype import DataType
from fusewright.core.errors import RankError
from fusewright.ir import Fusion, Scalar, TensorView, positions
from fusewright.ops.build_elementwise import (
    Elementwise,
    apply,
    as_computed,
    constant,
    convert_tensor,
    insert_axes,
)
from fusewright.ops.build_factory import filled, real_scalar
from fusewright.ops.build_indexing import found_by_index
from fusewright.ops.build_inputs import add_aliased_output
from fusewright.ops.build_reduction import max_, sum_
from fusewright.ops.build_reshape import reshaped
from fusewright.ops.build_scatter import scatter
from fusewright.ops.registry import ScalarLike, op
from fusewright.sym import ZERO, product

# What torch adds to a norm that it divides by.
NORM_EPS = 1e-7


@op()
def embedding_fwd(
    fusion: Fusion,
    input: TensorView,
    weight: TensorView,
    padding_idx: ScalarLike | None = None,
    max_norm: ScalarLike | None = None,
    norm_type: ScalarLike | None = None,
    scale_grad_by_freq: ScalarLike | None = None,
    sparse: ScalarLike | None = None,
) -> TensorView:
    """weight[input]: for each index in `input` a row of `weight`, along a new last dimension.

    padding_idx, scale_grad_by_freq and sparse concern only gradients. An index out of range returns 0. With
    `max_norm`, a row with a larger norm (of order `norm_type`, 2 if None) is scaled down to it. If `weight`
    is an input, each execution also changes these rows in it, as torch does.
    """
    if weight.ndim != 2:
        raise RankError(what="embedding_fwd: the weight", expected=2, given=weight.ndim)
    if max_norm is not None:
        limit, order = real_scalar(fusion, "max_norm", max_norm), 2.0 if norm_type is None else norm_type
        limited = _limited(fusion, input, weight, limit, real_scalar(fusion, "norm_type", order))
        if fusion.is_input(weight):
            add_aliased_output(fusion, limited, weight)
        weight = limited
    rank = input.ndim + 1
    wide = insert_axes(fusion, input, [i == rank - 1 for i in range(rank)])
    axes = [fusion.copy_axis(axis) for axis in (*input.shape, weight.shape[1])]
    places = [ZERO, positions([axis.extent for axis in axes])[-1]]
    return found_by_index(fusion, "Embedding", weight, axes, places, 0, wide)


def _limited(
    fusion: Fusion, index: TensorView, weight: TensorView, limit: Scalar, order: Scalar
) -> TensorView:
    """`weight` with the rows that `index` names scaled to a norm of `limit` where theirs is larger."""
    steps = Elementwise(fusion)
    rows = as_computed(fusion, weight, "embedding_fwd")
    norm = _norm(fusion, rows, order)
    longer = steps.gt(norm, limit)
    taken = steps.logical_and(longer, _named(fusion, index, weight))
    factor = steps.truediv(limit, steps.add(norm, NORM_EPS))
    factor = steps.where(taken, factor, 1.0)
    scaled = steps.mul(rows, insert_axes(fusion, factor, [False, True]))
    return convert_tensor(fusion, scaled, weight.dtype)


def _norm(fusion: Fusion, rows: TensorView, order: Scalar) -> TensorView:
    steps = Elementwise(fusion)
    size = steps.abs(rows)
    if order.value == math.inf:
        return max_(fusion, size, 1)
    if order.value == 1:
        return sum_(fusion, size, 1)
    if order.value == 2:
        return steps.sqrt(sum_(fusion, steps.mul(rows, rows), 1))
    total = sum_(fusion, steps.pow(size, order), 1)
    return steps.pow(total, apply(fusion, "truediv", 1.0, order))


def _named(fusion: Fusion, index: TensorView, weight: TensorView) -> TensorView:
    """Which rows of `weight` the index names."""
    line = reshaped(fusion, "Reshape", index, [product(index.extents)])
    none = filled(fusion, weight.extents[:1], constant(fusion, False), DataType.Bool)
    return scatter(fusion, none, line, True, 0)
