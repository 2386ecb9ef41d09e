"""Builders of tensors that are made only from scalars."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fusewright.core.dtype import Category, DataType
from fusewright.core.errors import DtypeError, ShapeError
from fusewright.ir import Full, Fusion, Iota, IterDomain, IterKind, Scalar, TensorView
from fusewright.ops.build_elementwise import as_value, check_fits, convert, convert_tensor
from fusewright.ops.build_shape import check_extent, extent_of, known_size
from fusewright.ops.registry import ScalarLike, Shape, op
from fusewright.sym import Expr, as_int


def factory_axes(fusion: Fusion, extents: Sequence[Expr]) -> list[IterDomain]:
    """The axes of a tensor that is made of no other, of these sizes."""
    return [
        fusion.new_axis(extent, IterKind.BROADCAST if as_int(extent) == 1 else IterKind.ITERATION)
        for extent in extents
    ]


def filled(fusion: Fusion, extents: Sequence[Expr], value: Scalar, dtype: DataType) -> TensorView:
    """A tensor of these sizes, every element `value` in `dtype`."""
    _check_has_values("full", dtype)
    # A reduced float is filled as the Float that it is computed with, then rounded like any other.
    if value.value is not None:
        check_fits(value.value, dtype)
    fill = convert(fusion, value, dtype.compute)
    assert isinstance(fill, Scalar)
    out = fusion.new_tensor(factory_axes(fusion, extents), dtype.compute)
    fusion.add_node(Full(fill, out))
    return convert_tensor(fusion, out, dtype)


def shape_extents(shape: Shape) -> list[Expr]:
    """The sizes that a user gave. ShapeError for a constant that is not a size."""
    for i, size in enumerate(shape):
        number = known_size(size)
        if isinstance(number, int):
            check_extent(number, i)
    return [extent_of(size) for size in shape]


def _check_has_values(name: str, dtype: DataType) -> None:
    if dtype is DataType.Null:
        raise DtypeError(
            f"{name}: there are no values of type Null", expected="a type with values", given=dtype
        )


def scalar_of(fusion: Fusion, value: ScalarLike) -> Scalar:
    """A scalar, or a number as a constant."""
    scalar = as_value(fusion, value)
    assert isinstance(scalar, Scalar)
    return scalar


def real_scalar(fusion: Fusion, name: str, value: ScalarLike) -> Scalar:
    """A scalar, or a number as a constant. DtypeError for a complex one, which calls it `name`."""
    scalar = scalar_of(fusion, value)
    if scalar.dtype.is_complex:
        raise DtypeError(what=name, expected="a real number", given=scalar.dtype)
    return scalar


@op()
def full(fusion: Fusion, shape: Shape, fill_value: ScalarLike, dtype: DataType) -> TensorView:
    """A tensor of `shape` with every element `fill_value`, converted to `dtype`."""
    return filled(fusion, shape_extents(shape), scalar_of(fusion, fill_value), dtype)


@op()
def zeros(fusion: Fusion, shape: Shape, dtype: DataType = DataType.Float) -> TensorView:
    """A tensor of zeros."""
    return full(fusion, shape, 0, dtype)


@op()
def ones(fusion: Fusion, shape: Shape, dtype: DataType = DataType.Float) -> TensorView:
    """A tensor of ones."""
    return full(fusion, shape, 1, dtype)


@op()
def full_like(
    fusion: Fusion, arg: TensorView, fill_value: ScalarLike, dtype: DataType = DataType.Null
) -> TensorView:
    """A tensor of the sizes of `arg`, and of its type unless `dtype` is given, with one value everywhere."""
    result = arg.dtype if dtype is DataType.Null else dtype
    return filled(fusion, arg.extents, scalar_of(fusion, fill_value), result)


@op()
def zeros_like(fusion: Fusion, arg: TensorView, dtype: DataType = DataType.Null) -> TensorView:
    """`full_like` with 0."""
    return full_like(fusion, arg, 0, dtype)


@op()
def ones_like(fusion: Fusion, arg: TensorView, dtype: DataType = DataType.Null) -> TensorView:
    """`full_like` with 1."""
    return full_like(fusion, arg, 1, dtype)


@op()
def iota(
    fusion: Fusion,
    length: ScalarLike,
    start: ScalarLike | None = None,
    step: ScalarLike | None = None,
    dtype: DataType = DataType.Int,
) -> TensorView:
    """start, start + step, ...: `length` elements of `dtype`; by default from 0 in steps of 1."""
    _check_has_values("iota", dtype)
    count = scalar_of(fusion, length)
    first = scalar_of(fusion, _typed(0, dtype) if start is None else start)
    stride = scalar_of(fusion, _typed(1, dtype) if step is None else step)
    if any(isinstance(s.value, float) and not math.isfinite(s.value) for s in (count, first, stride)):
        raise ShapeError("iota: length, start, step must be finite numbers.")
    if not count.dtype.is_integral:
        raise DtypeError("iota: length must be integer", expected="an integer", given=count.dtype)
    for name, scalar in (("start", first), ("step", stride)):
        if scalar.dtype.category is not dtype.category:
            raise DtypeError(
                f"iota: {name} dtype does not match specified dtype argument",
                expected=dtype,
                given=scalar.dtype,
            )
    if dtype.category not in (Category.INT, Category.FLOAT):
        raise DtypeError(what="iota", expected="an integer or floating type", given=dtype)
    if stride.value == 0:
        raise ShapeError("iota: step value must not equal zero.")
    if isinstance(count.value, int):
        check_extent(count.value, 0)
    extent = extent_of(count)
    # There is no arithmetic of UInt64.
    computed = DataType.Int if dtype is DataType.UInt64 else dtype.compute
    out = fusion.new_tensor(factory_axes(fusion, [extent]), computed)
    operands = [convert(fusion, s, computed) for s in (first, stride)]
    start_value, step_value = (s for s in operands if isinstance(s, Scalar))
    fusion.add_node(Iota(start_value, step_value, out))
    return convert_tensor(fusion, out, dtype)


def _typed(value: int, dtype: DataType) -> int | float:
    """A number of the category of `dtype`."""
    return float(value) if dtype.is_floating else value
