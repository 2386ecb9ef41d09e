"""Loads are issued before a thread waits for many indices, or for what it stores to a tile."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from bench.operation import traced
from fusewright import DataType
from fusewright.kernel import ir as k
from fusewright.lower.passes.issue_loads import MAX_INDICES, MAX_REGISTERS, issue_loads
from fusewright.sym import Expr, const, lt, symbol
from tests.kernel import builders as b
from tests.lower.statements import N, T, X, Y, copy, kernel, lines, loop

J = symbol("j", lo=0, hi=2 * MAX_INDICES - 1)
PLACE = symbol("place", lo=-1, hi=N - 1)
ROW, GATHERED = b.local("ROW", DataType.Float), b.local("GATHERED", DataType.Float)
INDICES = b.tensor("INDICES", DataType.Int, const(1024))
INDEX = b.local("INDEX", DataType.Int, 2 * MAX_INDICES)
ROW_LOAD, INDEX_LOAD = copy(ROW, X.buffer, 0, T), copy(INDEX, INDICES.buffer, 0, T)


def gather(place: Expr | int = 0) -> tuple[k.Stmt, k.Stmt]:
    named = k.LetValue(PLACE, b.at(INDEX, place), N)
    fill = k.Imm(0.0, DataType.Float)
    return named, k.Copy(b.at(GATHERED), b.at(X.buffer, PLACE), pred=lt(-1, PLACE), fill=fill)


def issued(*body: k.Stmt) -> list[str]:
    return lines(issue_loads(kernel(*body, allocs=(ROW, GATHERED, INDEX))))


@pytest.mark.parametrize("count", [MAX_INDICES, 2 * MAX_INDICES])
def test_many_indices_are_loaded_together(count: int):
    load = copy(INDEX, INDICES.buffer, J, J)
    found = issued(loop(count, load, index=J, unroll=True), loop(count, *gather(J), index=J, unroll=True))
    assert ("issue loads" in found) == (count > MAX_INDICES)


@pytest.mark.parametrize("count", [MAX_REGISTERS, MAX_REGISTERS + 1])
def test_all_of_a_tile_is_loaded_before_any_of_it_is_stored(count: int):
    tile, held = b.shared("TILE", DataType.BFloat16, 1024), b.local("HELD", DataType.BFloat16, count)
    source = b.tensor("X", DataType.BFloat16, const(1024))
    place = symbol("e", lo=0, hi=count - 1)
    body = (
        loop(count, copy(held, source.buffer, place, place * 32 + T), index=place, unroll=True),
        loop(count, copy(tile, held, place * 32 + T, place), index=place, unroll=True),
    )
    waited = k.Compute(b.EXP, b.at(ROW), (b.at(held),), DataType.Float)
    early = lines(issue_loads(kernel(body[0], waited, body[1], allocs=(tile, held, ROW))))
    assert "issue loads" not in early
    found = lines(issue_loads(kernel(*body, allocs=(tile, held))))
    assert ("issue loads" in found) == (count > MAX_REGISTERS)
    assert count == MAX_REGISTERS or found.index("issue loads") < next(
        i for i, line in enumerate(found) if line.startswith("TILE[")
    )


def test_few_indices_are_left_to_the_assembler():
    store = copy(Y.buffer, ROW, T, 0)
    for body in ((INDEX_LOAD, *gather()), (ROW_LOAD, INDEX_LOAD, *gather()), (ROW_LOAD, store)):
        assert "issue loads" not in issued(*body)


@pytest.mark.parametrize("unroll", [False, True])
def test_loads_of_a_loop_are_issued_in_each_iteration_unless_these_overlap(unroll: bool):
    indices = loop(2 * MAX_INDICES, copy(INDEX, INDICES.buffer, J, J), index=J, unroll=True)
    rows = loop(2 * MAX_INDICES, *gather(J), index=J, unroll=True)
    assert ("issue loads" in issued(loop(4, indices, rows, unroll=unroll))) != unroll
    assert "issue loads" not in issued(k.If(lt(T, N), (indices, rows)))


def test_indices_of_a_bag_are_loaded_before_its_rows(target: torch.device):
    index = torch.randint(32, (1024, 2 * MAX_INDICES), device=target)
    table = torch.randn(32, 512, device=target).bfloat16()
    fd = traced(lambda index, table: F.embedding(index, table).float().sum(1), (index, table))
    [sums] = fd.execute([index, table])
    torch.testing.assert_close(sums, F.embedding(index, table).float().sum(1))
    [kernel] = fd.kernels_for([index, table])
    before, after = kernel.cuda_text.split("fw::issue_loads();\n")
    assert "index_below" in after and "index_below" not in before
