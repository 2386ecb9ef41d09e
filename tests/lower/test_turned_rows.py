"""Rows that turn at their ends, as a reflecting or a replicating pad makes them, read in vectors."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition, PointwiseParams
from fusewright.lower.straight_runs import straightened
from fusewright.sym import TRUE, Expr, Max, Min, evaluate, maximum, minimum, symbol
from tests.integration.tolerance import assert_close

BF16, F32 = torch.bfloat16, torch.float32


# ---- expressions -------------------------------------------------------------------------------------------

WIDTH, LAST = 4, 31
FIRST, LANE = symbol("i", lo=0, hi=28, multiple_of=4), symbol("lane", lo=0, hi=WIDTH - 1)
AT = FIRST + LANE


@pytest.mark.parametrize(
    ("index", "strays"),
    [
        (maximum(AT - 1, 1 - AT), {0}),
        (LAST - maximum(LAST - 2 - AT, AT - LAST + 2), {2, 3}),
        (minimum(maximum(AT - 2, 0), 28), {0, 1, 3}),
        (maximum(AT - 6, 0), {0, 1, 2, 3}),
    ],
    ids=["reflected", "at the end", "replicated", "far"],
)
def test_lanes_lie_beside_the_first_but_for_few(index: Expr, strays: set[int]) -> None:
    found = straightened([index], LANE, WIDTH)
    (straight,), beside = found.expressions, found.beside
    assert not isinstance(straight, (Max, Min)) and beside is not None
    away = set()
    for i in range(0, 32, WIDTH):
        whole = evaluate(found.whole, {FIRST: i})
        for lane in range(WIDTH):
            at = {FIRST: i, LANE: lane}
            same = evaluate(straight, at) == evaluate(index, at)
            assert same or not evaluate(beside, at)
            assert same or not whole
            away |= set() if evaluate(beside, at) else {lane}
    assert away <= strays


def test_what_does_not_turn_is_beside_everywhere() -> None:
    assert straightened([AT * 3 + 1], LANE, WIDTH).beside is TRUE


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
    [(BF16, 32, 1), (BF16, 8, 2), (BF16, 40, 5), (F32, 16, 1), (F32, 12, 2), (BF16, 33, 1)],
    ids=str,
)
def test_ends_of_rows(index: Index, dtype: torch.dtype, columns: int, reach: int, beyond: int) -> None:
    """The first vector of all has nothing before it in memory, the last one nothing behind it."""
    given = some(5, columns, dtype, beyond)
    (made,) = neighbours(given, index, reach).execute([given])
    assert_close(made, expected(given, index, reach))


@pytest.mark.parametrize("unroll", [1, 2])
def test_elements_at_the_ends_are_loaded_besides(unroll: int) -> None:
    given = some(6, 64, BF16, 0)
    fd = neighbours(given, reflected, 1)
    params = fd.kernels_for([given])[0].params
    assert isinstance(params, PointwiseParams) and params.unaligned_inputs == (0,)
    params = replace(params, unroll_factor_inner=unroll)
    (made,) = fd.execute([given], schedules={0: params})
    assert_close(made, expected(given, reflected, 1))
    text = fd.kernels_for([given], schedules={0: params})[0].cuda_text
    vectors = re.findall(r"fw::load\w*<8>\(", text)
    assert len(vectors) == 4 * unroll  # its own, and three in which both neighbours lie
    assert len(set(re.findall(r"_stray\d+\[", text))) == 2
