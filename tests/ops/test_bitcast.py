"""The bits of elements as another type of their size: each pair of types, in memory and in registers."""

from __future__ import annotations

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.core.errors import DtypeError
from fusewright.host import FusionExecutor
from fusewright.ops.bits import BITCASTS
from fusewright.ops.evaluate import evaluate_fusion
from tests.ops.definition import Definition

D = DataType
#: Of each size, bits of every class of numbers, infinities and NaN among them.
EVERY = {1: torch.arange(256).to(torch.uint8), 2: torch.arange(0, 2**16, 3).to(torch.int16)}
WORDS = [0, 1, -1, 0x3F800000, -0x40000000, 0x7F800000, 0x7FC12345, 0x7F812345, -0x00400001, 0x00000FFF]
EVERY[4] = torch.tensor(WORDS, dtype=torch.int32)
EVERY[8] = torch.tensor([w << 32 | (w & 0xFFFF) for w in WORDS], dtype=torch.int64)
SIGNED = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
SOURCES = sorted({source for source, _ in BITCASTS}, key=int)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(SIGNED[tensor.element_size()])


@pytest.mark.parametrize("source", SOURCES, ids=lambda each: each.name)
def test_bits_are_kept(source: DataType) -> None:
    """To every type of the size, and back to the first."""
    given = EVERY[source.size].view(source.torch)
    goals = [goal for a, goal in BITCASTS if a is source]
    d = Definition()
    x = d.input(given)
    for goal in goals:
        once = d.bitcast(x, goal)
        assert once.dtype is goal
        d.add_output(once)
        d.add_output(d.bitcast(once, source))
    d.fusion.unify_extents()
    expected = [given.view(each.torch) for goal in goals for each in (goal, source)]
    for made in (evaluate_fusion(d.fusion, [given]), FusionExecutor(d.fusion).execute([given])):
        for got, want in zip(made, expected, strict=True):
            assert got.dtype is want.dtype
            assert torch.equal(bits(got), bits(want))


@pytest.mark.parametrize("narrow", [D.Half, D.BFloat16, D.Float8_e4m3fn, D.Float8_e5m2], ids=lambda d: d.name)
def test_the_bits_are_those_of_the_stored_type(narrow: DataType) -> None:
    """What is rounded in registers has the bits that it would have in memory, as have constants."""
    x, goal = torch.randn(1000), {1: D.Int8, 2: D.Int16}[narrow.size]
    with FusionDefinition() as fd:
        rounded = fd.ops.cast(fd.define_tensor([-1], contiguity=True), narrow)
        number = fd.ops.bitcast(rounded, goal)
        fd.add_output(fd.ops.cast(number, D.Int32) & 0x55)
        fd.add_output(fd.ops.bitcast(fd.ops.cast(fd.ops.bitwise_xor(number, 3), goal), narrow))
        fd.add_output(fd.ops.bitcast(fd.ops.full([7], 1.5, narrow), goal))
    masked, changed, filled = fd.execute([x])
    expected = x.to(narrow.torch).view(goal.torch)
    assert torch.equal(masked, expected.int() & 0x55)
    assert torch.equal(changed.view(goal.torch), expected ^ 3)
    assert torch.equal(filled, torch.full([7], 1.5).to(narrow.torch).view(goal.torch))


def test_text_has_no_conversion() -> None:
    with FusionDefinition() as fd:
        number = fd.ops.bitcast(fd.define_tensor([-1], contiguity=True, dtype=D.BFloat16), D.Int16)
        fd.add_output(fd.ops.bitcast(fd.ops.cast(number + 1, D.Int16), D.Half))
    given = torch.randn(100).bfloat16()
    [made] = fd.execute([given])
    assert torch.equal(made.view(torch.int16), given.view(torch.int16) + 1)
    text = fd.last_cuda_code()
    assert "fw::bits_as<short>(" in text and "fw::bits_as<fw::half>(" in text and "(float)" not in text


def test_the_same_type_is_a_copy() -> None:
    d = Definition()
    given = torch.randn(4)
    [made] = d.run(d.bitcast(d.input(given), D.Float))
    assert torch.equal(made, given)


@pytest.mark.parametrize(
    ("source", "goal", "message"),
    [
        (D.Float, D.Int, "Float has 4 bytes an element and DataType.Int has 8"),
        (D.Half, D.Int8, "Half has 2 bytes an element and DataType.Int8 has 1"),
        (D.Bool, D.UInt8, "bitcast: arg"),
        (D.ComplexFloat, D.Int, "bitcast: arg"),
        (D.UInt8, D.Bool, "bitcast: dtype"),
        (D.Int, D.Index, "bitcast: dtype"),
    ],
)
def test_refused(source: DataType, goal: DataType, message: str) -> None:
    d = Definition()
    with pytest.raises(DtypeError, match=message):
        d.bitcast(d.define_tensor([-1], dtype=source), goal)
