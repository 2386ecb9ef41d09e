"""Builders of softmax and what is computed like it.

They are composed of several steps. As torch does, they compute them all in the type that the input is
computed in (Float for a reduced float), and the result is of the input's type.
"""

from __future__ import annotations

from fusewright.core.dtype import Category, DataType
from fusewright.ir import Fusion, TensorView
from fusewright.ops.build_elementwise import apply_to_tensor, as_computed, convert_tensor
from fusewright.ops.build_reduction import max_, one_dim_as_list, reduced_dims, sum_, with_kept_dims
from fusewright.ops.build_shape import wrap_index
from fusewright.ops.registry import Dims, op


def _shifted(
    fusion: Fusion, name: str, arg: TensorView, dim: int, dtype: DataType
) -> tuple[TensorView, int, DataType]:
    """`arg` less its maximum along `dim`, that dimension counted from the front, and the result's type."""
    source = arg if dtype is DataType.Null else convert_tensor(fusion, arg, dtype)
    along = wrap_index(dim, arg.ndim)
    x = as_computed(fusion, source, name)
    return apply_to_tensor(fusion, "sub", x, max_(fusion, x, along, keepdim=True)), along, source.dtype


@op()
def softmax(fusion: Fusion, arg: TensorView, dim: int, dtype: DataType = DataType.Null) -> TensorView:
    """exp(arg) over its sum along `dim`, in the input's type, or `dtype`, which is cast to first."""
    x, along, result = _shifted(fusion, "softmax", arg, dim, dtype)
    powers = apply_to_tensor(fusion, "exp", x)
    total = sum_(fusion, powers, along, keepdim=True)
    return convert_tensor(fusion, apply_to_tensor(fusion, "truediv", powers, total), result)


@op()
def log_softmax(fusion: Fusion, arg: TensorView, dim: int, dtype: DataType = DataType.Null) -> TensorView:
    """The logarithm of `softmax`, of the same type."""
    x, along, result = _shifted(fusion, "log_softmax", arg, dim, dtype)
    total = sum_(fusion, apply_to_tensor(fusion, "exp", x), along, keepdim=True)
    out = apply_to_tensor(fusion, "sub", x, apply_to_tensor(fusion, "log", total))
    return convert_tensor(fusion, out, result)


@op(aliases={"dim": "dims"}, arrange=one_dim_as_list)
def logsumexp(fusion: Fusion, arg: TensorView, dims: Dims, keepdim: bool = False) -> TensorView:
    """log(sum(exp(arg))) over `dims`, in the input's type; bools and integers give Float."""
    source = arg
    if arg.dtype.category < Category.FLOAT:
        source = convert_tensor(fusion, arg, DataType.Float)
    x = as_computed(fusion, source, "logsumexp")
    positions = reduced_dims(arg, dims)
    top = max_(fusion, x, positions)
    # An infinite maximum is the result by itself; less itself it would be NaN.
    is_infinite = apply_to_tensor(fusion, "isinf", top)
    top = apply_to_tensor(fusion, "where", is_infinite, fusion.new_scalar(top.dtype, 0.0), top)
    less = apply_to_tensor(fusion, "sub", x, with_kept_dims(fusion, top, positions, True))
    total = sum_(fusion, apply_to_tensor(fusion, "exp", less), positions)
    out = apply_to_tensor(fusion, "add", apply_to_tensor(fusion, "log", total), top)
    return with_kept_dims(fusion, convert_tensor(fusion, out, source.dtype), positions, keepdim)
