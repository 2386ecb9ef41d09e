"""Builders of block quantization: small floats with one scale for each block of a row.

They are composed of ordinary operations (a reshape, the greatest magnitude of each block, a division and
casts), so that they fuse with the operations before and after, on any GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from fusewright.core.dtype import DataType
from fusewright.core.errors import (
    DefinitionError,
    DtypeError,
    RankError,
    ShapeError,
    UnsupportedHardwareError,
)
from fusewright.ir import Fusion, TensorView, Val
from fusewright.ops.build_elementwise import apply_to_tensor, convert_tensor
from fusewright.ops.build_reduction import max_
from fusewright.ops.build_reshape import reshaped
from fusewright.ops.build_shape import squeeze
from fusewright.ops.registry import op
from fusewright.sym import const, eq, floordiv, mod


@dataclass(frozen=True)
class _Format:
    """Elements of one type in blocks of `block`, each with a scale of type `scales`."""

    block: int
    scales: DataType


_FORMATS: Mapping[DataType, _Format] = {
    DataType.Float4_e2m1fn: _Format(16, DataType.Float8_e4m3fn),
    DataType.Float8_e4m3fn: _Format(32, DataType.Float8_e8m0fnu),
}
BLACKWELL = "an NVIDIA Blackwell GPU (sm_100)"
_INPUTS = (DataType.Float, DataType.BFloat16, DataType.Half)
# The least scale of four-bit floats, the least normal e4m3: a block of zeros has it, and is not divided by 0.
LEAST_E4M3 = 2.0**-6
# The least power of two, so that neither it nor its reciprocal is a subnormal number.
LEAST_E8M0 = 2.0**-126
# A cast to e8m0 rounds to the nearest power of two, from 1.5 on up. A magnitude times this, over the greatest
# element, is rounded up by it; the little less than 1.5 keeps powers of two themselves.
ROUNDED_UP = 1.5 * (1 - 2.0**-20)


@op()
def nv_block_quantize(
    fusion: Fusion,
    input: TensorView,
    global_scale: TensorView | None = None,
    swizzle_block_scales: bool = False,
    block_size: int = 16,
    dtype: DataType = DataType.Float4_e2m1fn,
) -> tuple[TensorView, TensorView]:
    """`input` in blocks along the last dimension, each divided by its scale and rounded; and the scales.

    Float4_e2m1fn: blocks of 16. A scale is the greatest magnitude over 6, times `global_scale`, rounded to
    Float8_e4m3fn; elements are divided by the scale over `global_scale`. Float8_e4m3fn: blocks of 32, and
    scales are powers of two, Float8_e8m0fnu, the least by which no element is beyond 448.
    """
    form = _checked(input, global_scale, swizzle_block_scales, block_size, dtype)
    size, block = input.extents[-1], const(form.block)
    fusion.require(
        eq(mod(size, block), const(0)),
        f"nv_block_quantize: the last dimension of {input.name} must be a multiple of {form.block}: {size}",
    )
    outer = input.extents[:-1]
    wide = convert_tensor(fusion, input, DataType.Float)
    blocks = reshaped(fusion, "Reshape", wide, [*outer, floordiv(size, block), block])
    greatest = max_(fusion, apply_to_tensor(fusion, "abs", blocks), [-1], keepdim=True)
    if form.scales is DataType.Float8_e8m0fnu:
        scales = _power_of_two(fusion, greatest, dtype)
        # The reciprocal of a power of two is exact, and so is the product.
        factor = apply_to_tensor(fusion, "reciprocal", convert_tensor(fusion, scales, DataType.Float))
        quotient = apply_to_tensor(fusion, "mul", blocks, factor)
    else:
        scales, divisor = _scale(fusion, greatest, dtype, global_scale)
        quotient = apply_to_tensor(fusion, "truediv", blocks, divisor)
    rounded = convert_tensor(fusion, quotient, dtype)
    return reshaped(fusion, "Reshape", rounded, list(input.extents)), squeeze(fusion, scales, [-1])


@op()
def nv_grouped_block_quantize(
    fusion: Fusion,
    input: TensorView,
    input_offsets: TensorView,
    output_offsets: TensorView,
    global_scale: TensorView | None = None,
    block_size: int = 16,
    dtype: DataType = DataType.Float4_e2m1fn,
) -> NoReturn:
    """`nv_block_quantize` of groups of rows, with scales in the layout of Blackwell's matrix instructions."""
    raise UnsupportedHardwareError(
        what="nv_grouped_block_quantize, whose scales are in the layout of matrix instructions,",
        needed=BLACKWELL,
        hint="nv_block_quantize, which takes all rows alike, gives the same elements and plain scales",
    )


@op()
def preprocess_grouped_matmul_input_sf(
    fusion: Fusion, input: TensorView, input_offsets: TensorView, output_offsets: TensorView
) -> NoReturn:
    """Block scales of groups of rows in the layout of Blackwell's matrix instructions."""
    raise UnsupportedHardwareError(
        what="preprocess_grouped_matmul_input_sf, which makes scales ready for matrix instructions,",
        needed=BLACKWELL,
        hint="grouped_mm and scaled_mm take scales as nv_block_quantize returns them",
    )


def _checked(
    tensor: TensorView, global_scale: TensorView | None, swizzled: bool, block_size: int, dtype: DataType
) -> _Format:
    what = "nv_block_quantize"
    if tensor.dtype not in _INPUTS:
        raise DtypeError(
            what=f"the input of {what}", expected=" or ".join(map(str, _INPUTS)), given=tensor.dtype
        )
    if not tensor.ndim:
        raise RankError(what=f"the input of {what}", expected="at least 1", given=0)
    form = _FORMATS.get(dtype)
    if form is None:
        raise DtypeError(what=f"the result of {what}", expected=" or ".join(map(str, _FORMATS)), given=dtype)
    if block_size != form.block:
        raise ShapeError(f"{what}: the block size of {dtype}", expected=form.block, given=block_size)
    if swizzled:
        raise UnsupportedHardwareError(
            what=f"{what} with swizzled block scales, the layout of matrix instructions,",
            needed=BLACKWELL,
            hint="leave swizzle_block_scales at False",
        )
    if global_scale is not None:
        if form.scales is DataType.Float8_e8m0fnu:
            raise DefinitionError(f"{what}: {dtype} has no global scale")
        if global_scale.ndim:
            raise RankError(what=f"the global scale of {what}", expected=0, given=global_scale.ndim)
        if global_scale.dtype is not DataType.Float:
            raise DtypeError(
                what=f"the global scale of {what}", expected=DataType.Float, given=global_scale.dtype
            )
    return form


def _number(fusion: Fusion, value: float) -> Val:
    return fusion.new_scalar(DataType.Float, value)


def _scale(
    fusion: Fusion, greatest: TensorView, dtype: DataType, global_scale: TensorView | None
) -> tuple[TensorView, TensorView]:
    """The e4m3 scale of each block, and what its elements are divided by."""
    scale = apply_to_tensor(fusion, "truediv", greatest, _number(fusion, dtype.largest))
    if global_scale is not None:
        scale = apply_to_tensor(fusion, "mul", scale, global_scale)
    scale = apply_to_tensor(fusion, "maximum", scale, _number(fusion, LEAST_E4M3))
    scales = convert_tensor(fusion, scale, DataType.Float8_e4m3fn)
    divisor = convert_tensor(fusion, scales, DataType.Float)
    if global_scale is not None:
        divisor = apply_to_tensor(fusion, "truediv", divisor, global_scale)
    return scales, divisor


def _power_of_two(fusion: Fusion, greatest: TensorView, dtype: DataType) -> TensorView:
    """The least power of two that is no less than the greatest magnitude over the type's greatest value."""
    scale = apply_to_tensor(fusion, "mul", greatest, _number(fusion, ROUNDED_UP / dtype.largest))
    scale = apply_to_tensor(fusion, "maximum", scale, _number(fusion, LEAST_E8M0))
    return convert_tensor(fusion, scale, DataType.Float8_e8m0fnu)
