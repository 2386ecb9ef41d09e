"""Builders of scans: reductions of the elements up to each one."""

from __future__ import annotations

from collections.abc import Mapping

from fusewright.core.dtype import DataType
from fusewright.core.errors import DtypeError
from fusewright.core.op import ReductionOp
from fusewright.ir import Fusion, Scalar, Scan, TensorView
from fusewright.ops.build_elementwise import (
    apply_to_tensor,
    as_element,
    as_value,
    convert,
    convert_tensor,
    copied_axes,
    copy_tensor,
)
from fusewright.ops.build_shape import wrap_index
from fusewright.ops.reductions import LOGSUMEXP, MAX, MIN, PROD, SUM, reduction_dtypes
from fusewright.ops.registry import ScalarLike, op

# The elementwise operation that combines two elements as the reduction does.
COMBINING: Mapping[ReductionOp, str] = {SUM: "add", PROD: "mul", MAX: "maximum", MIN: "minimum"}


def _start(fusion: Fusion, row: ReductionOp, init: ScalarLike, element: DataType, dtype: DataType) -> Scalar:
    """The value to start from, an element of the result, as a scalar of the type that is computed in.

    Raises:
        DtypeError: an element's type, `element`, does not hold it.
    """
    value = as_value(fusion, init)
    if value.dtype.category > dtype.category:
        raise DtypeError(what=f"init of cum{row.name}", expected=dtype, given=value.dtype)
    if element.is_integral:  # several are computed in a wider type, where it would count as it is
        value = as_element(fusion, value, element)
    start = convert(fusion, value, dtype)
    assert isinstance(start, Scalar)
    return start


def _scanned(
    fusion: Fusion, row: ReductionOp, arg: TensorView, dim: int, init: ScalarLike | None
) -> TensorView:
    """The scan along `dim`, computed as the reduction is, in the type of `arg`."""
    position = wrap_index(dim, arg.ndim)
    kept = arg.dtype if row in (SUM, PROD) else DataType.Null
    computed, result = reduction_dtypes(row, arg.dtype, kept)
    source = convert_tensor(fusion, arg, computed)
    start = None if init is None else _start(fusion, row, init, result, computed)
    axis = source.shape[position]
    if axis.is_broadcast and axis.expanded is None:
        if start is None:
            return copy_tensor(fusion, arg)
        return convert_tensor(fusion, apply_to_tensor(fusion, COMBINING[row], source, start), result)
    axes = copied_axes(fusion, source)
    axes[position] = fusion.new_axis(axis.visible_extent)
    out = fusion.new_tensor(axes, computed)
    fusion.add_node(Scan(row, source, out, position, start))
    return convert_tensor(fusion, out, result)


@op()
def cumsum(fusion: Fusion, arg: TensorView, dim: int, init: ScalarLike | None = None) -> TensorView:
    """The sums of the elements up to each one along `dim`, and of `init`, in the input's type.

    Reduced floats are summed in Float and rounded once; bools are whether there is a True.
    """
    return _scanned(fusion, SUM, arg, dim, init)


@op()
def cumprod(fusion: Fusion, arg: TensorView, dim: int, init: ScalarLike | None = None) -> TensorView:
    """The products of the elements up to each one along `dim`, and of `init`, typed as `cumsum`."""
    return _scanned(fusion, PROD, arg, dim, init)


@op()
def cummax(fusion: Fusion, arg: TensorView, dim: int, init: ScalarLike | None = None) -> TensorView:
    """The greatest of the elements up to each one along `dim`, and of `init`; from a NaN on, NaN."""
    return _scanned(fusion, MAX, arg, dim, init)


@op()
def cummin(fusion: Fusion, arg: TensorView, dim: int, init: ScalarLike | None = None) -> TensorView:
    """The least of the elements up to each one along `dim`, and of `init`; from a NaN on, NaN."""
    return _scanned(fusion, MIN, arg, dim, init)


@op()
def logcumsumexp(fusion: Fusion, arg: TensorView, dim: int) -> TensorView:
    """The logarithms of the sums of e^x of the elements up to each one along `dim`, in the input's type.

    Reduced floats are computed in Float and rounded once.
    """
    return _scanned(fusion, LOGSUMEXP, arg, dim, None)
