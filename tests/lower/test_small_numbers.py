"""Conversions of small numbers by additions: which are, and that they give what conversions do."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.core.op import ElementwiseOp
from fusewright.ops.rounding import (
    FLOAT_OF_SMALL,
    INTEGER_BELOW,
    INTEGER_OF_LIMITED,
    INTEGER_OF_WHOLE,
    LARGEST_SMALL,
    NEAREST_WHOLE,
)

SMALL = ("float_of_small", "nearest_whole", "integer_of_whole", "integer_of_limited", "integer_below")


def text_of(
    given: torch.Tensor, build: Callable[[FusionDefinition, object], object], expected: torch.Tensor
) -> str:
    with FusionDefinition() as fd:
        fd.add_output(build(fd, fd.from_pytorch(given, static_sizes=True)))
    (made,) = fd.execute([given])
    assert torch.equal(made, expected)  # type: ignore[arg-type]
    return fd.kernels_for([given])[0].cuda_text


def used(text: str) -> set[str]:
    return {name for name in SMALL if f"fw::{name}(" in text}


ALL_BYTES = torch.arange(-128, 128, dtype=torch.int8)


def test_bytes_are_scaled_and_rounded_by_additions() -> None:
    def build(fd: FusionDefinition, x: object) -> object:
        scaled = fd.ops.cast(x, DataType.Float) * 1.5
        return fd.ops.cast(fd.ops.clamp(fd.ops.round(scaled), min=-128.0, max=127.0), DataType.Int8)

    expected = (ALL_BYTES.float() * 1.5).round().clamp(-128, 127).to(torch.int8)
    assert used(text_of(ALL_BYTES, build, expected)) == {"float_of_small", "integer_of_whole"}


NUMBERS = torch.tensor([0.5, 1.5, -0.5, -2.5, 126.5, 127.5, -128.5, 3e9, -3e9, math.inf, -math.inf, math.nan])


def quantised(low: float, high: float) -> Callable[[FusionDefinition, object], object]:
    def build(fd: FusionDefinition, x: object) -> object:
        return fd.ops.cast(fd.ops.clamp(fd.ops.round(x), min=low, max=high), DataType.Int8)

    return build


def test_what_is_rounded_and_limited_is_rounded_as_it_is_converted() -> None:
    """Half to even, and NaN becomes 0, as a conversion makes of it."""
    expected = NUMBERS.round().clamp(-128, 127).nan_to_num(0.0).to(torch.int8)
    text = text_of(NUMBERS, quantised(-128, 127), expected)
    assert used(text) == {"integer_of_limited"} and "rint(" not in text


def test_limits_with_fractions_and_large_ones_are_not_rounded_late() -> None:
    expected = NUMBERS.round().clamp(-3.5, 7.5).nan_to_num(0.0).to(torch.int8)
    assert "rint(" in text_of(NUMBERS, quantised(-3.5, 7.5), expected)
    large = NUMBERS.clamp(-1e6, 1e6)

    def build(fd: FusionDefinition, x: object) -> object:
        return fd.ops.cast(fd.ops.clamp(fd.ops.round(x), min=-1e7, max=1e7), DataType.Int32)

    assert not used(text_of(large, build, large.round().nan_to_num(0.0).to(torch.int32)))


def test_a_rounded_number_that_is_read_elsewhere_is_rounded_there() -> None:
    def build(fd: FusionDefinition, x: object) -> object:
        rounded = fd.ops.round(x)
        limited = fd.ops.clamp(rounded, min=-8.0, max=7.0)
        return fd.ops.cast(limited, DataType.Int8) + fd.ops.cast(rounded > 0.5, DataType.Int8)

    given = NUMBERS[:7]
    rounded = given.round()
    expected = rounded.clamp(-8, 7).to(torch.int8) + (rounded > 0.5).to(torch.int8)
    text = text_of(given, build, expected)
    assert used(text) == {"integer_of_limited"} and "rint(" in text


def test_what_is_rounded_to_a_float_keeps_the_sign_of_zero() -> None:
    def build(fd: FusionDefinition, x: object) -> object:
        return fd.ops.reciprocal(fd.ops.round(fd.ops.cast(x, DataType.Float) * 0.25))

    expected = (ALL_BYTES.float() * 0.25).round().reciprocal()
    assert expected.isneginf().any()
    assert used(text_of(ALL_BYTES, build, expected)) == {"float_of_small"}


def test_fractions_are_cut_off_where_nothing_is_below_zero() -> None:
    def build(low: float) -> Callable[[FusionDefinition, object], object]:
        return lambda fd, x: fd.ops.cast(fd.ops.cast(x, DataType.Float) * 0.3 + low, DataType.Int32)

    kept = (ALL_BYTES.float() * 0.3 + 40).int()
    assert used(text_of(ALL_BYTES, build(40.0), kept)) == {"float_of_small", "integer_below"}
    kept = (ALL_BYTES.float() * 0.3 + 20).int()
    assert used(text_of(ALL_BYTES, build(20.0), kept)) == {"float_of_small"}


def test_what_may_be_large_or_no_number_is_converted() -> None:
    def build(fd: FusionDefinition, x: object) -> object:
        return fd.ops.cast(fd.ops.round(x), DataType.Int32)

    given = torch.tensor([0.5, -1.5, 3e7, -2e9])
    assert not used(text_of(given, build, given.round().int()))
    wide = torch.tensor([2**30, -5, 2**22], dtype=torch.int32)
    assert not used(text_of(wide, lambda fd, x: fd.ops.cast(x, DataType.Float), wide.float()))


@pytest.mark.parametrize(
    ("op", "values"),
    [
        (FLOAT_OF_SMALL, torch.tensor([-LARGEST_SMALL, -1, 0, 1, LARGEST_SMALL - 1])),
        (NEAREST_WHOLE, torch.tensor([-2.5, -1.5, -0.5, 0.0, 0.5, 1.5, 2.25, LARGEST_SMALL - 0.5])),
        (INTEGER_OF_WHOLE, torch.tensor([-LARGEST_SMALL, -1.0, 0.0, 0.5, 1.5, 7.0, LARGEST_SMALL - 1])),
        (INTEGER_OF_LIMITED, torch.tensor([-LARGEST_SMALL, -1.5, 0.0, 0.5, 7.0, LARGEST_SMALL - 1])),
        (INTEGER_BELOW, torch.tensor([0.0, 0.99, 1.0, 54.75, LARGEST_SMALL - 0.5])),
    ],
    ids=lambda each: each.name if isinstance(each, ElementwiseOp) else "",
)
def test_additions_leave_no_fractions(op: ElementwiseOp, values: torch.Tensor) -> None:
    """The arithmetic of the device text, in torch's float."""
    dtype = DataType.Float if values.is_floating_point() else DataType.Int32
    expected = op.spelling(dtype).torch(values.to(dtype.torch))
    shift = torch.tensor(12582912.0)
    if op is FLOAT_OF_SMALL:
        made = (values.int() + 0x4B400000).view(torch.float32) - shift
    elif op is NEAREST_WHOLE:
        made = (values + shift) - shift
    elif op in (INTEGER_OF_WHOLE, INTEGER_OF_LIMITED):
        made = (values + shift).view(torch.int32) - 0x4B400000
    else:  # rounds down, which torch's float does not
        summed = (values.double() + 8388608.0).floor().float()
        made = summed.view(torch.int32) - 0x4B000000
    assert torch.equal(made, expected)
