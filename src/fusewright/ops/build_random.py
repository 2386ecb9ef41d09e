"""Builders of random numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusewright.core.dtype import DataType
from fusewright.core.errors import DefinitionError, DtypeError
from fusewright.core.op import ElementwiseOp
from fusewright.ir import Fusion, Random, RandomState, Scalar, TensorView
from fusewright.ops.build_elementwise import apply, apply_to_tensor, as_computed, convert, convert_tensor
from fusewright.ops.build_factory import factory_axes, real_scalar, scalar_of, shape_extents
from fusewright.ops.random import NORMAL, UNIFORM
from fusewright.ops.registry import ScalarLike, Shape, op
from fusewright.sym import Expr


def _drawn(
    fusion: Fusion,
    rows: Mapping[DataType, ElementwiseOp],
    extents: Sequence[Expr],
    dtype: DataType,
    seed: ScalarLike | None,
    offset: ScalarLike | None,
) -> TensorView:
    """Numbers of a distribution in the type that `dtype` is computed in."""
    # A power of two has no zero and no sign.
    if not dtype.is_floating or dtype is DataType.Float8_e8m0fnu:
        raise DtypeError(
            "Random distributions only create floating point types",
            expected="a floating type with a sign",
            given=dtype,
        )
    if (seed is None) != (offset is None):
        raise DefinitionError(
            "rng_seed and rng_offset go together",
            expected="both, or none for the state of torch's generator",
            given="rng_offset alone" if seed is None else "rng_seed alone",
        )
    if seed is None or offset is None:
        state = fusion.new_scalar(DataType.Int), fusion.new_scalar(DataType.Int)
        fusion.add_node(RandomState(*state))
    else:
        state = _integer(fusion, "rng_seed", seed), _integer(fusion, "rng_offset", offset)
    out = fusion.new_tensor(factory_axes(fusion, extents), dtype.compute)
    fusion.add_node(Random(rows[dtype.compute], *state, out))
    return out


def _integer(fusion: Fusion, name: str, value: ScalarLike) -> Scalar:
    scalar = scalar_of(fusion, value)
    if not scalar.dtype.is_integral:
        raise DtypeError(what=name, expected="an integer", given=scalar.dtype)
    converted = convert(fusion, scalar, DataType.Int)
    assert isinstance(converted, Scalar)
    return converted


def _uniform(
    fusion: Fusion,
    low: Scalar,
    high: Scalar,
    extents: Sequence[Expr],
    dtype: DataType,
    seed: ScalarLike | None,
    offset: ScalarLike | None,
) -> TensorView:
    numbers = _drawn(fusion, UNIFORM, extents, dtype, seed, offset)
    if (low.value, high.value) == (0, 1):
        if dtype is dtype.compute:
            return numbers
    else:
        width = apply(fusion, "sub", high, low)
        numbers = apply_to_tensor(fusion, "add", apply_to_tensor(fusion, "mul", numbers, width), low)
    rounded = convert_tensor(fusion, numbers, dtype)
    # The end of the range does not belong to it, but numbers may be rounded to it.
    beyond = apply(fusion, "ge", rounded, high)
    return convert_tensor(fusion, apply_to_tensor(fusion, "where", beyond, low, rounded), dtype)


@op()
def uniform(
    fusion: Fusion,
    minval: ScalarLike,
    maxval: ScalarLike,
    shape: Shape,
    *,
    rng_seed: ScalarLike | None = None,
    rng_offset: ScalarLike | None = None,
    dtype: DataType = DataType.Float,
) -> TensorView:
    """Numbers of `dtype`, evenly distributed from `minval` to `maxval`, which itself is left out.

    With `rng_seed` and `rng_offset` (integers) they are the same each time; without, they follow torch's
    generator of the device, which goes on by an offset of 4.
    """
    low, high = real_scalar(fusion, "minval", minval), real_scalar(fusion, "maxval", maxval)
    return _uniform(fusion, low, high, shape_extents(shape), dtype, rng_seed, rng_offset)


@op()
def normal(
    fusion: Fusion,
    mean: ScalarLike,
    std: ScalarLike,
    shape: Shape,
    *,
    rng_seed: ScalarLike | None = None,
    rng_offset: ScalarLike | None = None,
    dtype: DataType = DataType.Float,
) -> TensorView:
    """Numbers of `dtype`, normally distributed with this mean and standard deviation; see `uniform`."""
    centre, scale = real_scalar(fusion, "mean", mean), real_scalar(fusion, "std", std)
    numbers = _drawn(fusion, NORMAL, shape_extents(shape), dtype, rng_seed, rng_offset)
    if (centre.value, scale.value) != (0, 1):
        numbers = apply_to_tensor(fusion, "add", apply_to_tensor(fusion, "mul", numbers, scale), centre)
    return convert_tensor(fusion, numbers, dtype)


@op()
def rand_like(
    fusion: Fusion,
    arg: TensorView,
    *,
    rng_seed: ScalarLike | None = None,
    rng_offset: ScalarLike | None = None,
) -> TensorView:
    """Numbers evenly distributed in [0, 1), of the sizes and the (floating) type of `arg`; see `uniform`."""
    low, high = fusion.new_scalar(DataType.Double, 0.0), fusion.new_scalar(DataType.Double, 1.0)
    return _uniform(fusion, low, high, arg.extents, arg.dtype, rng_seed, rng_offset)


@op()
def randn_like(
    fusion: Fusion,
    arg: TensorView,
    *,
    rng_seed: ScalarLike | None = None,
    rng_offset: ScalarLike | None = None,
) -> TensorView:
    """Standard normal numbers of the sizes and the (floating) type of `arg`; see `uniform`."""
    numbers = _drawn(fusion, NORMAL, arg.extents, arg.dtype, rng_seed, rng_offset)
    return convert_tensor(fusion, numbers, arg.dtype)


@op()
def dropout(
    fusion: Fusion,
    arg: TensorView,
    p: ScalarLike = 0.5,
    *,
    rng_seed: ScalarLike | None = None,
    rng_offset: ScalarLike | None = None,
) -> tuple[TensorView, TensorView]:
    """(out, mask): each element is kept, times 1 / (1 - p), with probability 1 - p, and is 0 otherwise.

    The mask is True for kept elements. Reduced floats are computed in Float; out has the input's type. The
    draws are those of `uniform`, with its seed and offset.
    """
    x, probability = as_computed(fusion, arg, "dropout"), real_scalar(fusion, "p", p)
    if probability.value is not None and not 0 <= probability.value.real <= 1:
        raise DefinitionError(f"dropout probability has to be between 0 and 1, but got {probability.value}")
    numbers = _drawn(fusion, UNIFORM, arg.extents, x.dtype, rng_seed, rng_offset)
    keeping = apply(fusion, "sub", 1.0, probability)
    mask = apply_to_tensor(fusion, "lt", numbers, keeping)
    # Where nothing is kept there is nothing to scale.
    inverse = apply(fusion, "truediv", 1.0, keeping)
    scale = apply(fusion, "where", apply(fusion, "eq", keeping, 0.0), 0.0, inverse)
    kept = apply_to_tensor(fusion, "mul", x, convert_tensor(fusion, mask, x.dtype))
    return convert_tensor(fusion, apply_to_tensor(fusion, "mul", kept, scale), arg.dtype), mask
