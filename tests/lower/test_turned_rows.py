"""Rows that turn at their ends, as a reflecting or a replicating pad makes them, read in vectors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition, PointwiseParams
from fusewright.lower.straight_runs import straightened
from fusewright.sym import Expr, Max, Min, evaluate, maximum, minimum, symbol
from tests.integration.tolerance import assert_close

BF16, F32 = torch.bfloat16, torch.float32


# ---- expressions -------------------------------------------------------------------------------------------

WIDTH, LAST = 4, 31
FIRST, LANE = symbol("i", lo=0, hi=28, multiple_of=4), symbol("lane", lo=0, hi=WIDTH - 1)
AT = FIRST + LANE


@pytest.mark.parametrize(
    "index",
    [
        maximum(AT - 1, 1 - AT),
        LAST - maximum(LAST - 2 - AT, AT - LAST + 2),
        minimum(maximum(AT - 2, 0), 28),
        maximum(AT - 6, 0),
    ],
    ids=["reflected", "at the end", "replicated", "far"],
)
def test_most_vectors_are_whole(index: Expr) -> None:
    found = straightened([index], LANE, WIDTH)
    (straight,) = found.expressions
    assert not isinstance(straight, (Max, Min)) and LANE not in found.whole.free_symbols
    whole = [i for i in range(0, 32, WIDTH) if evaluate(found.whole, {FIRST: i})]
    assert len(whole) >= 5
    for i in whole:
        for lane in range(WIDTH):
            at = {FIRST: i, LANE: lane}
            assert evaluate(straight, at) == evaluate(index, at)


# ---- kernels -----------------------------------------------------------------------------------------------

Index = Callable[[Any, Any, int], Any]


def reflected(fd: Any, i: Any, size: int) -> Any:
    return size - 1 - fd.ops.abs(size - 1 - fd.ops.abs(i))


def replicated(fd: Any, i: Any, size: int) -> Any:
    return fd.ops.minimum(fd.ops.maximum(i, 0), size - 1)


def neighbours(given: torch.Tensor, index: Index, reach: int) -> FusionDefinition:
    """The neighbours of an element that lie so far before and behind it, and itself."""
    size = given.shape[1]
    with FusionDefinition() as fd:
        x = fd.from_pytorch(given, static_sizes=True)
        total = x
        for shift in (-reach, reach):
            i = index(fd, fd.ops.iota(size, shift, 1, DataType.Int), size)
            total = total + fd.ops.index_select(x, i, 1) * (2.0 + shift)
        fd.add_output(fd.ops.cast(total, x.dtype))
    return fd


def expected(given: torch.Tensor, index: Index, reach: int) -> torch.Tensor:
    wide, size = given.double(), given.shape[1]
    places = torch.arange(size)
    table = {
        reflected: lambda i: size - 1 - (size - 1 - i.abs()).abs(),
        replicated: lambda i: i.clamp(0, size - 1),
    }
    return wide + sum(wide[:, table[index](places + shift)] * (2.0 + shift) for shift in (-reach, reach))


def some(rows: int, columns: int, dtype: torch.dtype, beyond: int) -> torch.Tensor:
    made = torch.randint(-2, 3, (rows * columns + beyond,)).to(dtype)
    return made[beyond:].view(rows, columns)


@pytest.mark.parametrize("index", [reflected, replicated], ids=["reflected", "replicated"])
@pytest.mark.parametrize("beyond", [0, 1, 3])
@pytest.mark.parametrize(
    ("dtype", "columns", "reach"),
    [(BF16, 32, 1), (BF16, 8, 2), (BF16, 520, 5), (F32, 16, 1), (F32, 512, 2), (BF16, 33, 1)],
    ids=str,
)
@pytest.mark.sampled(0.5)
def test_ends_of_rows(index: Index, dtype: torch.dtype, columns: int, reach: int, beyond: int) -> None:
    """The first vector of all has nothing before it in memory, the last one nothing behind it."""
    given = some(5, columns, dtype, beyond)
    (made,) = neighbours(given, index, reach).execute([given])
    assert_close(made, expected(given, index, reach))


def test_long_rows_are_read_in_vectors() -> None:
    given = some(2, 1024, BF16, 0)
    fd = neighbours(given, reflected, 1)
    params = fd.kernels_for([given])[0].params
    assert isinstance(params, PointwiseParams) and params.unaligned_inputs == (0,)
    (made,) = fd.execute([given])
    assert_close(made, expected(given, reflected, 1))


def test_of_wide_elements_fewer_are_a_long_row() -> None:
    params = neighbours(some(2, 256, F32, 0), reflected, 1).kernels_for([some(2, 256, F32, 0)])[0].params
    assert isinstance(params, PointwiseParams) and params.unaligned_inputs == (0,)


def window(given: torch.Tensor) -> FusionDefinition:
    """The sum of an element and its eight neighbours in rows and columns that turn at their ends."""
    with FusionDefinition() as fd:
        x = fd.from_pytorch(given, static_sizes=True)
        total = x
        for shifts in ((a, b) for a in (-1, 0, 1) for b in (-1, 0, 1) if a or b):
            read = x
            for dim, shift in enumerate(shifts):
                size = given.shape[dim]
                i = reflected(fd, fd.ops.iota(size, shift, 1, DataType.Int), size)
                read = fd.ops.index_select(read, i, dim)
            total = total + read
        fd.add_output(total)
    return fd


def test_vectors_of_rows_that_turn_are_loaded_once() -> None:
    """Three of each of three rows, whatever of them is at an end."""
    given = some(12, 256, F32, 0)
    fd = window(given)
    (made,) = fd.execute([given])
    wide = torch.nn.functional.pad(given[None, None], (1, 1, 1, 1), mode="reflect")
    assert_close(made, torch.nn.functional.avg_pool2d(wide.double(), 3, 1)[0, 0] * 9)
    assert len(re.findall(r"fw::load", fd.kernels_for([given])[0].cuda_text)) == 9


def test_a_thread_has_one_vector_of_many_rows_that_turn() -> None:
    """Nine of its own and beside it are in flight together."""
    params = window(some(2**14, 1024, F32, 0)).kernels_for([some(2**14, 1024, F32, 0)])[0].params
    assert isinstance(params, PointwiseParams) and params.unaligned_inputs == (0,)
    assert params.unroll_factor_inner == 1


def test_short_rows_are_read_by_element() -> None:
    given = some(2, 256, BF16, 0)
    params = neighbours(given, reflected, 1).kernels_for([given])[0].params
    assert isinstance(params, PointwiseParams) and params.unaligned_inputs == ()
    assert params.vectorization_factor > 1
