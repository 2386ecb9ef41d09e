"""Conversions of small numbers by additions: which are, and that they give what conversions do."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from itertools import pairwise

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.core.op import ElementwiseOp
from fusewright.kernel import ir as k
from fusewright.lower.passes import small_numbers
from fusewright.ops.elementwise import CAST
from fusewright.ops.rounding import (
    FLOAT_OF_SMALL,
    INTEGER_BELOW,
    LARGEST_SMALL,
    NEAREST_INTEGER,
    NEAREST_INTEGER_OR_0,
    NEAREST_WHOLE,
)
from tests.kernel import builders as b
from tests.lower.statements import T, X, kernel

SMALL = ("float_of_small", "nearest_whole", "nearest_integer", "nearest_integer_or_0", "integer_below")


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
    assert used(text_of(ALL_BYTES, build, expected)) == {"float_of_small", "nearest_integer"}


FROM_TORCH = {each.torch: each for each in (DataType.Int, DataType.UInt64, DataType.UInt8, DataType.Int32)}
NUMBERS = torch.tensor([0.5, 1.5, -0.5, -2.5, 126.5, 127.5, -128.5, 3e9, -3e9, math.inf, -math.inf, math.nan])


def quantised(low: float, high: float) -> Callable[[FusionDefinition, object], object]:
    def build(fd: FusionDefinition, x: object) -> object:
        return fd.ops.cast(fd.ops.clamp(fd.ops.round(x), min=low, max=high), DataType.Int8)

    return build


def test_what_is_rounded_and_limited_is_rounded_as_it_is_converted() -> None:
    """Half to even, and NaN becomes 0, as a conversion makes of it."""
    expected = NUMBERS.round().clamp(-128, 127).nan_to_num(0.0).to(torch.int8)
    text = text_of(NUMBERS, quantised(-128, 127), expected)
    assert used(text) == {"nearest_integer_or_0"} and "rint(" not in text


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint64, torch.uint8, torch.int32])
def test_64_bits_are_converted_as_the_gpu_does(dtype: torch.dtype) -> None:
    """Which makes the least integer of NaN, and 0 of what is below 0 in an unsigned type."""
    few_bits = dtype.itemsize <= 4
    given = torch.tensor([-2.0, 1.5, 300.0] if dtype is torch.uint64 else [1.5, math.nan, 300.0])
    limited = given.round().clamp(-128, 127)
    expected = (
        limited.clamp(0) if dtype is torch.uint64 else limited.nan_to_num(0.0 if few_bits else -math.inf)
    )
    expected = torch.tensor(
        [-(2**63) if v == -math.inf else int(v) for v in expected.tolist()], dtype=torch.int64
    )

    def build(fd: FusionDefinition, x: object) -> object:
        rounded = fd.ops.clamp(fd.ops.round(x), min=-128.0, max=127.0)
        return fd.ops.cast(rounded, FROM_TORCH[dtype])

    text = text_of(given, build, expected.to(dtype))
    assert used(text) == ({"nearest_integer_or_0"} if few_bits else set())


def test_what_may_be_below_0_is_no_unsigned_integer_of_64_bits() -> None:
    def build(fd: FusionDefinition, x: object) -> object:
        return fd.ops.cast(fd.ops.round(fd.ops.cast(x, DataType.Float) * 1.5), DataType.UInt64)

    scaled = (ALL_BYTES.float() * 1.5).round()
    assert "nearest_integer" not in used(text_of(ALL_BYTES, build, scaled.clamp(0).long().to(torch.uint64)))


def test_what_is_limited_and_read_elsewhere_is_rounded_before() -> None:
    def build(fd: FusionDefinition, x: object) -> object:
        limited = fd.ops.clamp(fd.ops.round(x), min=-8.0, max=7.0)
        return fd.ops.cast(limited, DataType.Int8) + fd.ops.cast(limited * 10.0, DataType.Int8)

    limited = NUMBERS[:7].round().clamp(-8, 7)
    text = text_of(NUMBERS[:7], build, limited.to(torch.int8) + (limited * 10).to(torch.int8))
    assert "rint(" in text


def test_registers_of_a_long_chain_are_looked_at_a_few_times_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known of one register may depend on all others."""
    looked_at = 0
    sets_whole = small_numbers._sets_whole

    def counted(stmt: k.Stmt, whole: Collection[k.Buffer]) -> bool:
        nonlocal looked_at
        looked_at += 1
        return sets_whole(stmt, whole)

    monkeypatch.setattr(small_numbers, "_sets_whole", counted)
    registers = [b.local(f"V{n}", DataType.Float) for n in range(400)]
    one = k.Imm(1.0, DataType.Float)
    steps = [k.Compute(b.ADD, b.at(y), (b.at(x), one), DataType.Float) for x, y in pairwise(registers)]
    cast = k.Compute(CAST, b.at(b.local("N", DataType.Int32)), (b.at(registers[-1]),), DataType.Float)
    chain = (k.Copy(b.at(registers[0]), b.at(X.buffer, T)), *steps, cast)
    small_numbers.convert_small_numbers(kernel(*chain, allocs=()))
    assert len(registers) <= looked_at <= 4 * len(registers)


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
    assert used(text) == {"nearest_integer_or_0"} and "rint(" in text


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
        (NEAREST_INTEGER, torch.tensor([-LARGEST_SMALL, -1.0, 0.0, 0.5, 1.5, 7.0, LARGEST_SMALL - 1])),
        (NEAREST_INTEGER_OR_0, torch.tensor([-LARGEST_SMALL, -1.5, 0.0, 0.5, 7.0, LARGEST_SMALL - 1])),
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
    elif op in (NEAREST_INTEGER, NEAREST_INTEGER_OR_0):
        made = (values + shift).view(torch.int32) - 0x4B400000
    else:  # rounds down, which torch's float does not
        summed = (values.double() + 8388608.0).floor().float()
        made = summed.view(torch.int32) - 0x4B000000
    assert torch.equal(made, expected)
