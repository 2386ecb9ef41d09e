"""Builders of softmax and similar operations.

They are composed of several steps. As in torch, all steps are computed in the compute type of the input
(Float for a reduced float), and the result has the input's type.
"""

from __future__ import annotations

import torch

from fusewright.core.dtype import Category, DataType
from fusewright.core.errors import RankError
from fusewright.ir import Fusion, TensorView
from fusewright.ops.build_elementwise import (
    Elementwise,
    as_computed,
    convert_tensor,
    copy_tensor,
    scalar_of_extent,
)
from fusewright.ops.build_reduction import (
    max_,
    of_copies,
    one_dim_as_list,
    reduce_apart,
    reduced_dims,
    sum_,
    with_kept_dims,
    without_broadcasts,
)
from fusewright.ops.build_shape import wrap_index
from fusewright.ops.reductions import MAX_SUM_EXP, reduction_dtypes
from fusewright.ops.registry import Dims, op
from fusewright.sym import product


def _shifted(
    fusion: Fusion, name: str, arg: TensorView, dim: int, dtype: DataType
) -> tuple[TensorView, int, DataType]:
    """`arg` less its maximum along `dim`, that dimension counted from the front, and the result's type."""
    source = arg if dtype is DataType.Null else convert_tensor(fusion, arg, dtype)
    along = wrap_index(dim, arg.ndim)
    x = as_computed(fusion, source, name)
    return Elementwise(fusion).sub(x, max_(fusion, x, along, keepdim=True)), along, source.dtype


@op()
def softmax(fusion: Fusion, arg: TensorView, dim: int, dtype: DataType = DataType.Null) -> TensorView:
    """exp(arg) over its sum along `dim`, in the input's type, or `dtype`, which is cast to first."""
    x, along, result = _shifted(fusion, "softmax", arg, dim, dtype)
    steps = Elementwise(fusion)
    powers = steps.exp(x)
    total = sum_(fusion, powers, along, keepdim=True)
    return convert_tensor(fusion, steps.truediv(powers, total), result)


@op()
def log_softmax(fusion: Fusion, arg: TensorView, dim: int, dtype: DataType = DataType.Null) -> TensorView:
    """The logarithm of `softmax`, of the same type."""
    x, along, result = _shifted(fusion, "log_softmax", arg, dim, dtype)
    steps = Elementwise(fusion)
    total = sum_(fusion, steps.exp(x), along, keepdim=True)
    return convert_tensor(fusion, steps.sub(x, steps.log(total)), result)


@op(aliases={"dim": "dims"}, arrange=one_dim_as_list)
def logsumexp(fusion: Fusion, arg: TensorView, dims: Dims, keepdim: bool = False) -> TensorView:
    """log(sum(exp(arg))) over `dims`, in the input's type; bools and integers give Float."""
    steps = Elementwise(fusion)
    source = arg
    if arg.dtype.category < Category.FLOAT:
        source = convert_tensor(fusion, arg, DataType.Float)
    x = as_computed(fusion, source, "logsumexp")
    positions = reduced_dims(arg, dims)
    top = max_(fusion, x, positions)
    # An infinite maximum is the result by itself; less itself it would be NaN.
    is_infinite = steps.isinf(top)
    top = steps.where(is_infinite, fusion.new_scalar(top.dtype, 0.0), top)
    less = steps.sub(x, with_kept_dims(fusion, top, positions, True))
    total = sum_(fusion, steps.exp(less), positions)
    out = steps.add(steps.log(total), top)
    return with_kept_dims(fusion, convert_tensor(fusion, out, source.dtype), positions, keepdim)


@op(arrange=one_dim_as_list)
def max_sum_exp(fusion: Fusion, arg: TensorView, dims: Dims) -> tuple[TensorView, TensorView]:
    """(top, total) over `dims`: the maximum, and the sum of exp(arg - top).

    It takes one pass; a softmax is exp(arg - top) / total. The sum is 0 if the maximum is -inf, and inf if it
    is inf. Reduced floats give Float.
    """
    steps = Elementwise(fusion)
    if not arg.ndim:
        raise RankError(what="the input of max_sum_exp", expected="at least 1", given=0)
    computed, _ = reduction_dtypes(MAX_SUM_EXP, arg.dtype)
    reduced = without_broadcasts(fusion, convert_tensor(fusion, arg, computed), reduced_dims(arg, dims))
    source, copies = reduced.source, reduced.copies
    if reduced.dims:
        top, total = reduce_apart(fusion, MAX_SUM_EXP, reduced)
    else:
        largest = torch.finfo(computed.torch).max
        shift = steps.maximum(source, fusion.new_scalar(computed, -largest))
        shift = steps.minimum(shift, fusion.new_scalar(computed, largest))
        top = copy_tensor(fusion, source)
        total = steps.exp(steps.sub(source, shift))
    if copies is not product(()):
        total = steps.mul(total, scalar_of_extent(fusion, copies))
    least, none = MAX_SUM_EXP.identity(computed)
    return of_copies(fusion, copies, top, least), of_copies(fusion, copies, total, none)
