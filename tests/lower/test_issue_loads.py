"""Loads are issued before a thread waits for an index that others need."""

from __future__ import annotations

import pytest
import torch

from fusewright import DataType, FusionDefinition
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


def test_other_loads_are_issued_before_the_wait_for_an_index():
    for loads in ((ROW_LOAD, INDEX_LOAD), (INDEX_LOAD, ROW_LOAD)):
        found = issued(*loads, *gather())
        assert found[2] == "issue loads" and found.count("issue loads") == 1
    body = (ROW_LOAD, INDEX_LOAD, *gather())
    assert issued(loop(4, *body)).index("issue loads") == 3
    for other in (loop(4, *body, unroll=True), k.If(lt(T, N), body)):
        assert "issue loads" not in issued(other)


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


def test_nothing_is_issued_where_an_index_is_all_that_is_loaded():
    store = copy(Y.buffer, ROW, T, 0)
    for body in ((INDEX_LOAD, *gather()), (ROW_LOAD, store), (*gather(), ROW_LOAD)):
        assert "issue loads" not in issued(*body)
    named, _ = gather()
    assert "issue loads" not in issued(ROW_LOAD, INDEX_LOAD, named, copy(Y.buffer, ROW, PLACE, 0))


def test_tokens_are_loaded_before_their_rows_are_waited_for(target: str):
    with FusionDefinition() as fd:
        index = fd.define_tensor([512], dtype=DataType.Int)
        table, x = (fd.define_tensor([n, 256], dtype=DataType.Float) for n in (64, 512))
        fd.add_output(fd.ops.add(fd.ops.embedding_fwd(index, table, None, None, None, False, False), x))
    inputs = [torch.randint(64, (512,)), torch.randn(64, 256), torch.randn(512, 256)]
    inputs = [each.to(target) for each in inputs]
    torch.testing.assert_close(fd.execute(inputs)[0], inputs[1][inputs[0]] + inputs[2])
    [kernel] = fd.kernels_for(inputs)
    before, after = kernel.cuda_text.split("fw::issue_loads();\n")
    assert "fw::load<4>(T2_copy" in before and "fw::load_or<4>(" in after
