"""Integers in 32 bits: that results are those of 64, and what is left out of kernels."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.core.dtype import Category
from fusewright.kernel import ir as k
from fusewright.lower.value_ranges import _OF_ANY, _RULES, INTEGERS, Ranges, converted_range, within
from fusewright.ops.elementwise import ELEMENTWISE
from fusewright.sym import const
from tests.kernel import builders as b

Build = Callable[[FusionDefinition, object], object]
SIZE = 24


def positions(fd: FusionDefinition, start: int = 0, step: int = 1) -> object:
    return fd.ops.iota(length=SIZE, start=start, step=step, dtype=DataType.Int)


def run(build: Build) -> tuple[torch.Tensor, str]:
    """What is built of 24 positions, and the kernel."""
    given = torch.zeros(SIZE, dtype=torch.int64)
    with FusionDefinition() as fd:
        x = fd.from_pytorch(given, static_sizes=True)
        fd.add_output(fd.ops.add(build(fd, positions(fd)), x))
    (made,) = fd.execute([given])
    assert isinstance(made, torch.Tensor)
    return made, fd.kernels_for([given])[0].cuda_text


P = torch.arange(SIZE)
CASES: dict[str, tuple[Build, torch.Tensor]] = {
    "beyond 32 bits and back": (lambda fd, p: fd.ops.div(p * 2**40, 2**39), P * 2),
    "sums that leave 32 bits": (lambda fd, p: p * 2**30 + 2**30 - 5, P * 2**30 + 2**30 - 5),
    "products that wrap": (lambda fd, p: p * (2**62 + 1) * 4, P * (2**62 + 1) * 4),
    "below zero": (lambda fd, p: fd.ops.abs(p - 12) % 5, (P - 12).abs() % 5),
    "remainders of what is below zero": (lambda fd, p: fd.ops.remainder(p - 12, 5), (P - 12).remainder(5)),
    "C's of that": (lambda fd, p: fd.ops.fmod(p - 12, 5), (P - 12).fmod(5)),
    "eight bits": (
        lambda fd, p: fd.ops.cast(fd.ops.cast(p * 20, DataType.UInt8), DataType.Int),
        (P * 20).to(torch.uint8).long(),
    ),
    "eight signed bits": (
        lambda fd, p: fd.ops.cast(fd.ops.cast(p * 20 - 200, DataType.Int8), DataType.Int),
        (P * 20 - 200).to(torch.int8).long(),
    ),
    "32 bits": (
        lambda fd, p: fd.ops.cast(fd.ops.cast(p * 2**29, DataType.Int32), DataType.Int),
        (P * 2**29).int().long(),
    ),
    "by way of a float": (
        lambda fd, p: fd.ops.cast(fd.ops.cast(p, DataType.Float) * 0.75 - 3.0, DataType.Int),
        (P.float() * 0.75 - 3).long(),
    ),
    "clamped": (lambda fd, p: fd.ops.clamp(p - 3, min=0, max=9), (P - 3).clamp(0, 9)),
    "chosen": (
        lambda fd, p: fd.ops.where(fd.ops.lt(p, 100), p, p * 2**40),
        P,
    ),
    "of one value": (lambda fd, p: fd.ops.minimum(p - 30, -7) * 0 + 3, P * 0 + 3),
    "shifted": (lambda fd, p: fd.ops.bitwise_right_shift(p * 9, p % 4), (P * 9) >> (P % 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_64_bits(name: str) -> None:
    build, expected = CASES[name]
    made, _ = run(build)
    assert torch.equal(made, expected)


def test_positions_that_are_reflected_are_read_without_comparing() -> None:
    """As torch's reflecting pad reads them."""
    given = torch.randn(5, SIZE, dtype=torch.float32)
    with FusionDefinition() as fd:
        x = fd.from_pytorch(given, static_sizes=True)
        at = fd.ops.iota(length=SIZE + 6, start=-3, step=1, dtype=DataType.Int)
        at = SIZE - 1 - fd.ops.abs(SIZE - 1 - fd.ops.abs(at))
        fd.add_output(fd.ops.neg(fd.ops.index_select(x, at, 1)))
    (made,) = fd.execute([given])
    expected = -torch.nn.functional.pad(given[None], (3, 3), mode="reflect")[0]
    assert torch.equal(made, expected)  # type: ignore[arg-type]
    text = fd.kernels_for([given])[0].cuda_text
    assert "long long" not in text and "index_below" not in text and "read_if" not in text


def test_an_index_that_may_be_out_of_range_is_compared() -> None:
    given = torch.randn(5, SIZE, dtype=torch.float32)
    with FusionDefinition() as fd:
        x = fd.from_pytorch(given, static_sizes=True)
        at = fd.ops.iota(length=SIZE, start=-1, step=1, dtype=DataType.Int)
        fd.add_output(fd.ops.neg(fd.ops.index_select(x, at, 1)))
    assert "index_below" in fd.kernels_for([given])[0].cuda_text


def test_few_bits_are_taken_of_registers_of_32() -> None:
    """Remainders of positions by what divides a vector's place are numbers of its elements."""
    given = torch.randint(256, (6, 8), dtype=torch.uint8)
    with FusionDefinition() as fd:
        x = fd.from_pytorch(given, static_sizes=True)
        bit = fd.ops.cast(fd.ops.iota(length=8, start=0, step=1, dtype=DataType.Int), DataType.UInt8)
        wide = fd.ops.broadcast_in_dim(x, [6, 8, 8], [0, 1])
        fd.add_output(fd.ops.bitwise_and(fd.ops.bitwise_right_shift(wide, bit), 1))
    (made,) = fd.execute([given])
    assert torch.equal(made, (given[..., None] >> torch.arange(8)) & 1)  # type: ignore[arg-type]


# ---- ranges ------------------------------------------------------------------------------------------------

DTYPES = (DataType.Int, DataType.Int32, DataType.Float)
ENDS = {
    DataType.Int: [-(2**63), -(2**40), -9, -1, 0, 1, 2, 7, 31, 2**33, 2**63 - 1],
    DataType.Int32: [-(2**31), -9, -1, 0, 1, 2, 7, 31, 2**31 - 1],
    DataType.Float: torch.tensor([-3e38, -1e4, -2.5, -0.1, 0, 1e-40, 0.3, 1, 7.75, 1e9, 3e38]).tolist(),
}


@pytest.mark.parametrize("name", sorted(_RULES))
def test_results_lie_in_their_range(name: str) -> None:
    """Random values of random ranges, by the operation's torch function."""
    op, generator = ELEMENTWISE[name], random.Random(name)
    for _ in range(300):
        dtype = generator.choice(DTYPES)
        if dtype.category not in op.supports or (dtype.category is Category.FLOAT and name not in _OF_ANY):
            continue
        types = op.operand_dtypes(dtype)
        known: dict[k.Buffer, tuple[float, float]] = {}
        args, values = [], []
        for i, each in enumerate(types):
            low, high = sorted(generator.choices(ENDS.get(each, [0, 1]), k=2))
            buffer = b.local(f"a{i}", each, 1)
            known[buffer] = (low, high)
            args.append(k.Ref(buffer, const(0)))
            middle = [generator.randint(int(low), int(high)) for _ in range(3)] if each in INTEGERS else []
            drawn = [v for v in (low, high, *middle) if low <= v <= high]
            values.append(torch.tensor(generator.choices(drawn, k=20), dtype=each.torch))
        result = b.local("r", op.result_of(dtype), 1)
        compute = k.Compute(op, k.Ref(result, const(0)), tuple(args), dtype)
        found = Ranges((), INTEGERS[DataType.Int32], known).computed(compute)
        if found is None:
            continue
        divides = op.spelling(dtype).divides
        made = op.spelling(dtype).torch(*values)
        good = made == made if not divides else values[-1] != 0
        for value in made[good].tolist():
            assert within((value, value), found), (name, dtype, known, value, found)


@pytest.mark.parametrize("source", DTYPES, ids=str)
@pytest.mark.parametrize("kind", [*INTEGERS, DataType.Float, DataType.BFloat16], ids=str)
def test_converted_values_lie_in_their_range(source: DataType, kind: DataType) -> None:
    for low in ENDS[source]:
        for high in ENDS[source]:
            found = converted_range((low, high), kind) if low <= high else None
            for value in (low, high):
                fits = kind not in INTEGERS or within((int(value), int(value)), INTEGERS[DataType.Int])
                made = torch.tensor(value, dtype=source.torch).to(kind.torch) if fits else None
                if found is not None and made is not None and (source in INTEGERS or kind not in INTEGERS):
                    assert within((made.item(), made.item()), found), (low, high, value)


def test_positions_of_any_size_are_of_the_type_of_indices() -> None:
    """Differences of positions fit in 32 bits, whatever the sizes are; sums of them may not."""
    given = torch.randn(7, 9)
    with FusionDefinition() as fd:
        x = fd.from_pytorch(given)
        rows, columns = (
            fd.ops.broadcast_in_dim(
                fd.ops.iota(fd.ops.size(x, dim), 0, 1, DataType.Int),
                [fd.ops.size(x, 0), fd.ops.size(x, 1)],
                [dim],
            )
            for dim in (0, 1)
        )
        fd.add_output(x + fd.ops.cast(fd.ops.sub(columns, rows), DataType.Float))
    (made,) = fd.execute([given])
    place = torch.arange(9.0) - torch.arange(7.0)[:, None]
    torch.testing.assert_close(made, given + place)
    assert "long long" not in fd.kernels_for([given])[0].cuda_text
