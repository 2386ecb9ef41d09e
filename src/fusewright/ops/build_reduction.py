"""Builders of reductions and of the statistics made from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fusewright.core.dtype import Category, DataType, PyScalar
from fusewright.core.errors import DtypeError, RankError, ShapeError
from fusewright.core.op import ReductionOp
from fusewright.ir import Fusion, IterKind, Reduction, Scalar, TensorView
from fusewright.ops.build_elementwise import (
    apply,
    apply_to_tensor,
    constant,
    convert_tensor,
    copy_tensor,
    insert_axes,
    scalar_of_extent,
)
from fusewright.ops.build_factory import filled
from fusewright.ops.build_shape import remove_axes, wrap_dims
from fusewright.ops.reductions import MAX, MIN, PROD, SUM, WELFORD, reduction_dtypes
from fusewright.ops.registry import Dims, op
from fusewright.sym import Expr, as_int, product

# ---- axes --------------------------------------------------------------------------------------------------


def reduced_dims(tensor: TensorView, dims: Dims | None) -> list[int]:
    """The dimensions to reduce, from the front, ascending; None is all of them."""
    if dims is None:
        return list(range(tensor.ndim))
    return sorted(wrap_dims([dims] if isinstance(dims, int) else dims, tensor.ndim, "reduction"))


class Reduced(NamedTuple):
    """What is left to reduce of a tensor once the broadcast axes among the reduced ones are taken apart.

    Attributes:
        source: the tensor without those that are expanded, or without all where no other axis is reduced.
        dims: its axes that a node reduces. points: its reduced axes of one element, which the node keeps: so
            the results have the loops of what is computed from them and the tensor.
        copies: how many copies of each element the broadcast axes show.
    """

    source: TensorView
    dims: list[int]
    points: list[int]
    copies: Expr


def without_broadcasts(fusion: Fusion, tensor: TensorView, dims: Sequence[int]) -> Reduced:
    """`tensor` with the broadcast axes among `dims` apart."""
    broadcasts = [dim for dim in dims if tensor.shape[dim].is_broadcast]
    copies = product(tensor.shape[dim].visible_extent for dim in broadcasts)
    only = len(broadcasts) == len(dims)
    gone = [dim for dim in broadcasts if only or tensor.shape[dim].expanded is not None]
    kept = [dim for dim in range(tensor.ndim) if dim not in gone]
    left = [kept.index(dim) for dim in dims if dim not in broadcasts]
    points = [kept.index(dim) for dim in broadcasts if dim not in gone]
    return Reduced(remove_axes(fusion, tensor, gone), left, points, copies)


def reduce_apart(
    fusion: Fusion, row: ReductionOp, reduced: Reduced, operands: Sequence[TensorView] = ()
) -> list[TensorView]:
    """The states of a reduction of `reduced`, or of `operands` in place of its source, without its axes."""
    states = reduce_states(fusion, row, operands or [reduced.source], reduced.dims)
    rest = [dim for dim in range(reduced.source.ndim) if dim not in reduced.dims]
    points = [rest.index(dim) for dim in reduced.points]
    return [remove_axes(fusion, state, points) for state in states]


def reduce_states(
    fusion: Fusion, row: ReductionOp, operands: Sequence[TensorView], dims: Sequence[int]
) -> list[TensorView]:
    """The node over `operands` of one shape: one output per state, whose axes `dims` are reduced."""
    tensor, outputs = operands[0], []
    for dtype in row.state_dtypes(tensor.dtype):
        axes = [
            fusion.copy_axis(axis, IterKind.REDUCTION if i in dims else None)
            for i, axis in enumerate(tensor.shape)
        ]
        outputs.append(fusion.new_tensor(axes, dtype))
    fusion.add_node(Reduction(row, operands, outputs))
    return outputs


def with_kept_dims(fusion: Fusion, tensor: TensorView, dims: Sequence[int], keepdim: bool) -> TensorView:
    """`tensor` with size-1 axes at `dims` again, if `keepdim`."""
    if not keepdim:
        return tensor
    return insert_axes(fusion, tensor, [i in dims for i in range(tensor.ndim + len(dims))])


def count_of(fusion: Fusion, tensor: TensorView, dims: Sequence[int]) -> Scalar:
    """How many elements `dims` hold."""
    return scalar_of_extent(fusion, product(tensor.shape[dim].visible_extent for dim in dims))


# ---- sum, prod, max, min -----------------------------------------------------------------------------------


def _times(fusion: Fusion, tensor: TensorView, count: Scalar) -> TensorView:
    """The sum of `count` equal values: by parts, for 0 times an infinite part is NaN, not 0."""
    if not tensor.dtype.is_complex:
        return apply_to_tensor(fusion, "mul", tensor, count)
    parts = (apply_to_tensor(fusion, part, tensor) for part in ("real", "imag"))
    return apply_to_tensor(
        fusion, "complex", *(apply_to_tensor(fusion, "mul", part, count) for part in parts)
    )


def _to_the(fusion: Fusion, tensor: TensorView, count: Scalar) -> TensorView:
    """The product of `count` equal values. In Double, which tells odd counts from even ones.

    One real value is itself, which a power is only nearly.
    """
    if tensor.dtype is DataType.Float:
        power = apply_to_tensor(fusion, "pow", convert_tensor(fusion, tensor, DataType.Double), count)
        power = convert_tensor(fusion, power, DataType.Float)
    else:
        power = apply_to_tensor(fusion, "pow", tensor, count)
    if tensor.dtype.is_complex:
        return power
    return apply_to_tensor(fusion, "where", apply(fusion, "eq", count, 1), tensor, power)


# Combining n equal values; where there is none, the value itself.
_REPEATED = {SUM: _times, PROD: _to_the}


def of_copies(fusion: Fusion, copies: Expr, value: TensorView, identity: PyScalar) -> TensorView:
    """The reduction of so many copies of each element of `value`, or the identity if there are none."""
    if as_int(copies):
        return value
    empty = apply(fusion, "eq", scalar_of_extent(fusion, copies), 0)
    return apply_to_tensor(fusion, "where", empty, constant(fusion, identity, value.dtype), value)


def _reduced(
    fusion: Fusion, row: ReductionOp, arg: TensorView, dims: Dims | None, keepdim: bool, dtype: DataType
) -> TensorView:
    positions = reduced_dims(arg, dims)
    computed, result = reduction_dtypes(row, arg.dtype, dtype)
    # A dtype that the user asks for is what the input is rounded to, even where it is then widened.
    source = arg if dtype is DataType.Null else convert_tensor(fusion, arg, dtype)
    if not positions:
        out = convert_tensor(fusion, source, result)
        return copy_tensor(fusion, arg) if out is arg else out
    source = convert_tensor(fusion, source, computed)
    reduced = without_broadcasts(fusion, source, positions)
    copies = reduced.copies
    out = reduce_apart(fusion, row, reduced)[0] if reduced.dims else reduced.source
    if row in _REPEATED and copies is not product(()):
        out = _REPEATED[row](fusion, out, scalar_of_extent(fusion, copies))
    (identity,) = row.identity(computed)
    out = of_copies(fusion, copies, out, identity)
    return with_kept_dims(fusion, convert_tensor(fusion, out, result), positions, keepdim)


def one_dim_as_list(values: list[Any]) -> None:
    """`dims=1` recorded as `dims=[1]`, which it means."""
    if type(values[1]) is int:
        values[1] = [values[1]]


def _dtype_in_place_of_dims(values: list[Any]) -> None:
    """The overload (arg, dtype)."""
    if isinstance(values[1], DataType):
        values[1], values[3] = None, values[1]
    one_dim_as_list(values)


_ONE_OR_MORE_DIMS: dict[str, Any] = {"aliases": {"dim": "dims"}, "arrange": one_dim_as_list}
_OVERLOADS: dict[str, Any] = {
    "aliases": {"dim": "dims"},
    "arrange": _dtype_in_place_of_dims,
    "overloads": {("arg", "dtype"): TensorView},
}


@op(name="sum", **_OVERLOADS)
def sum_(
    fusion: Fusion,
    arg: TensorView,
    dims: Dims | None = None,
    keepdim: bool = False,
    dtype: DataType = DataType.Null,
) -> TensorView:
    """The sum over `dims` (None: all). Bools and integers give Int; `dtype` is cast to first.

    Reduced floats are summed in Float and rounded once.
    """
    return _reduced(fusion, SUM, arg, dims, keepdim, dtype)


@op(name="prod", **_OVERLOADS)
def prod(
    fusion: Fusion,
    arg: TensorView,
    dims: Dims | None = None,
    keepdim: bool = False,
    dtype: DataType = DataType.Null,
) -> TensorView:
    """The product over `dims` (None: all), typed as `sum`."""
    return _reduced(fusion, PROD, arg, dims, keepdim, dtype)


@op(name="max", **_OVERLOADS)
def max_(
    fusion: Fusion,
    arg: TensorView,
    dims: Dims | None = None,
    keepdim: bool = False,
    dtype: DataType = DataType.Null,
) -> TensorView:
    """The greatest value over `dims` (None: all), in the input's type; NaN if there is one. No `dtype`."""
    return _reduced(fusion, MAX, arg, dims, keepdim, dtype)


@op(name="min", **_OVERLOADS)
def min_(
    fusion: Fusion,
    arg: TensorView,
    dims: Dims | None = None,
    keepdim: bool = False,
    dtype: DataType = DataType.Null,
) -> TensorView:
    """The least value over `dims` (None: all), in the input's type; NaN if there is one. No `dtype`."""
    return _reduced(fusion, MIN, arg, dims, keepdim, dtype)


# ---- any and all -------------------------------------------------------------------------------------------


@op(name="any", **_ONE_OR_MORE_DIMS)
def any_(fusion: Fusion, arg: TensorView, dims: Dims | None = None, keepdim: bool = False) -> TensorView:
    """Whether an element over `dims` (None: all) is not zero: Bool, False where there is no element."""
    truth = convert_tensor(fusion, arg, DataType.Bool)
    return _reduced(fusion, MAX, truth, dims, keepdim, DataType.Null)


@op(name="all", **_ONE_OR_MORE_DIMS)
def all_(fusion: Fusion, arg: TensorView, dims: Dims | None = None, keepdim: bool = False) -> TensorView:
    """Whether no element over `dims` (None: all) is zero: Bool, True where there is no element."""
    truth = convert_tensor(fusion, arg, DataType.Bool)
    return _reduced(fusion, MIN, truth, dims, keepdim, DataType.Null)


# ---- mean and variance -------------------------------------------------------------------------------------


@op(**_OVERLOADS)
def mean(
    fusion: Fusion,
    arg: TensorView,
    dims: Dims | None = None,
    keepdim: bool = False,
    dtype: DataType = DataType.Null,
) -> TensorView:
    """The mean over `dims` (None: all). Bools and integers give Float; `dtype` is cast to first."""
    result = arg.dtype if dtype is DataType.Null else dtype
    if result.category < Category.FLOAT:
        result = DataType.Float
    positions = reduced_dims(arg, dims)
    source = convert_tensor(fusion, convert_tensor(fusion, arg, result), result.compute)
    total = _reduced(fusion, SUM, source, positions, keepdim, DataType.Null)
    quotient = apply_to_tensor(fusion, "truediv", total, count_of(fusion, arg, positions))
    return convert_tensor(fusion, quotient, result)


def moments(
    fusion: Fusion, arg: TensorView, dims: Sequence[int]
) -> tuple[TensorView, TensorView, TensorView]:
    """Mean, sum of squared deviations and count over `dims`, which vanish."""
    computed, _ = reduction_dtypes(WELFORD, arg.dtype)
    reduced = without_broadcasts(fusion, convert_tensor(fusion, arg, computed), dims)
    source, copies = reduced.source, reduced.copies
    if reduced.dims:
        avg, m2, n = reduce_apart(fusion, WELFORD, reduced)
        if copies is not product(()):
            times = scalar_of_extent(fusion, copies)
            m2 = apply_to_tensor(fusion, "mul", m2, times)
            n = apply_to_tensor(fusion, "mul", convert_tensor(fusion, n, DataType.Int), times)
    else:
        # Every element is its own mean; x - x is 0, or NaN where the deviation of an infinity is NaN.
        avg, m2 = copy_tensor(fusion, source), apply_to_tensor(fusion, "sub", source, source)
        n = filled(fusion, source.extents, scalar_of_extent(fusion, copies), DataType.Int)
    return of_copies(fusion, copies, avg, 0.0), of_copies(fusion, copies, m2, 0.0), n


@op(arrange=one_dim_as_list)
def welford(fusion: Fusion, arg: TensorView, dims: Dims) -> tuple[TensorView, TensorView, TensorView]:
    """(avg, m2, n) over `dims`: the mean, the sum of squared deviations from it, and the count.

    The count is Index; Int where `dims` show copies, which no index counts.

    One pass. Reduced floats give Float.
    """
    if not arg.ndim:
        raise RankError(what="the input of welford", expected="at least 1", given=0)
    return moments(fusion, arg, reduced_dims(arg, dims))


def variance_and_mean(
    fusion: Fusion, arg: TensorView, dims: Sequence[int], correction: int, with_mean: bool
) -> tuple[TensorView, TensorView]:
    """Variance over `dims`, which vanish, and the mean.

    Of no values the mean is NaN, or 0 without `with_mean`, where nobody reads it.
    """
    if correction < 0:
        raise ShapeError("the correction must not be negative", expected="at least 0", given=correction)
    if arg.dtype.is_complex:
        parts = [apply_to_tensor(fusion, part, arg) for part in ("real", "imag")]
        (real_var, real_mean), (imag_var, imag_mean) = (
            variance_and_mean(fusion, p, dims, correction, with_mean) for p in parts
        )
        return (
            apply_to_tensor(fusion, "add", real_var, imag_var),
            apply_to_tensor(fusion, "complex", real_mean, imag_mean),
        )
    avg, m2, _ = moments(fusion, arg, dims)
    # max(n - correction, 0): a correction that is too large gives infinity, not a negative variance.
    count = count_of(fusion, arg, dims)
    divisor = apply(fusion, "maximum", apply(fusion, "sub", count, correction), 0)
    if with_mean and not count.value:
        nothing = constant(fusion, float("nan"), avg.dtype)
        avg = apply_to_tensor(fusion, "where", apply(fusion, "eq", count, 0), nothing, avg)
    return apply_to_tensor(fusion, "truediv", m2, divisor), avg


@op(**_ONE_OR_MORE_DIMS)
def var(
    fusion: Fusion, arg: TensorView, dims: Dims | None = None, correction: int = 1, keepdim: bool = False
) -> TensorView:
    """The variance over `dims` (None: all): m2 / max(n - correction, 0). Reduced floats give Float."""
    positions = reduced_dims(arg, dims)
    variance, _ = variance_and_mean(fusion, arg, positions, correction, False)
    return with_kept_dims(fusion, variance, positions, keepdim)


@op(**_ONE_OR_MORE_DIMS)
def std(
    fusion: Fusion, arg: TensorView, dims: Dims | None = None, correction: int = 1, keepdim: bool = False
) -> TensorView:
    """The standard deviation over `dims` (None: all): the square root of `var`, of the same type."""
    return apply_to_tensor(fusion, "sqrt", var(fusion, arg, dims, correction, keepdim))


@op(**_ONE_OR_MORE_DIMS)
def var_mean(
    fusion: Fusion, arg: TensorView, dims: Dims | None = None, correction: int = 1, keepdim: bool = False
) -> tuple[TensorView, TensorView]:
    """(variance, mean) over `dims` (None: all). No reduced floats; complex gives a real variance."""
    if arg.dtype.is_reduced_float:
        raise DtypeError(
            what="the input of var_mean",
            expected="Float, Double or complex",
            given=arg.dtype,
            hint="cast it to Float first",
        )
    positions = reduced_dims(arg, dims)
    found = variance_and_mean(fusion, arg, positions, correction, True)
    variance, avg = (with_kept_dims(fusion, t, positions, keepdim) for t in found)
    return variance, avg
