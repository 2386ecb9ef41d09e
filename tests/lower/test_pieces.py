"""Pieces of a join that share registers: which do, and that each element is its piece's."""

from __future__ import annotations

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.kernel import ir as k
from fusewright.lower.passes.pieces import MOST_HELD, _is_uniform, join_pieces
from fusewright.sim import SimOptions, simulate
from fusewright.sym import Expr, const, floordiv, land, lnot, lt, symbol
from tests.kernel import builders as b
from tests.lower.statements import N, X, Y, lines, loop

LANES = MOST_HELD // 4 // 2 + 1  # of float: two pieces take more registers than may be theirs each
J, LANE = symbol("j", hi=LANES - 1), symbol("lane", hi=LANES - 1)
STORED = symbol("stored", hi=7)
THREADS = 64
T = k.index_symbol(b.BX, const(THREADS))
FIRST = lt(floordiv(T, 32), 1)
A, B = b.local("A", DataType.Float, LANES), b.local("B", DataType.Float, LANES)
C = b.local("C", DataType.Float, LANES)
ZERO = k.Imm(0.0, DataType.Float)


def load(dst: k.Buffer, start: int, pred: Expr) -> k.Stmt:
    read = k.Copy(b.at(dst, J), b.at(X.buffer, J + start), pred=pred, fill=ZERO, fill_is_value=True)
    return loop(LANES, read, index=J, unroll=True)


def choose(cond: Expr, *more: k.Stmt) -> k.Stmt:
    chosen = k.Copy(b.at(C, LANE), b.at(A, LANE), pred=cond, fill=b.at(B, LANE), fill_is_value=True)
    return loop(LANES, chosen, *more, index=LANE, unroll=True)


def stored() -> k.Stmt:
    return loop(8, k.Copy(b.at(Y.buffer, T * 8 + STORED), b.at(C, STORED)), index=STORED, unroll=True)


def joined(*body: k.Stmt) -> tuple[k.Kernel, k.Kernel]:
    parameters = [X, Y, k.ScalarParam("n", DataType.Index, N)]
    before = b.kernel("k", parameters, [*map(k.Alloc, (A, B, C)), *body], [1], [THREADS])
    return before, join_pieces(before)


def results(made: k.Kernel) -> list[float]:
    x, y = torch.arange(1024.0), torch.zeros(1024)
    simulate(made, [x, y, 32], options=SimOptions(outputs=False))
    return y[: THREADS * 8].tolist()


def test_what_is_chosen_first_is_loaded_last_to_the_registers_of_all() -> None:
    before, after = joined(load(A, 0, FIRST), load(B, 512, lnot(FIRST)), choose(FIRST), stored())
    written = [s.src.index for s in k.walk(after.body) if isinstance(s, k.Copy) and s.dst.buffer is A]
    assert written == [J + 512, J]
    assert not any(s.dst.buffer is B for s in k.walk(after.body) if isinstance(s, k.Copy))
    assert not any(isinstance(s, k.Alloc) and s.buffer is B for s in after.body)
    assert results(after) == results(before)


def test_a_buffer_that_only_a_collective_uses_stays() -> None:
    exchanged = b.shared("S", DataType.Float, 64)
    body = (load(A, 0, FIRST), load(B, 512, lnot(FIRST)), choose(FIRST), stored(), k.Alloc(exchanged))
    _, after = joined(*body)
    assert [s.buffer for s in after.body if isinstance(s, k.Alloc)] == [A, C, exchanged]


@pytest.mark.parametrize(
    "body",
    [
        (load(A, 0, lt(T, 5)), load(B, 512, lnot(lt(T, 5))), choose(lt(T, 5))),
        (load(A, 0, land(FIRST, lt(N, 9))), load(B, 512, lnot(FIRST)), choose(FIRST)),
        (load(A, 0, FIRST), load(B, 512, FIRST), choose(FIRST)),
        (load(A, 0, k.TRUE), load(B, 512, lnot(FIRST)), choose(FIRST)),
        (load(A, 0, FIRST), load(B, 512, lnot(FIRST)), choose(lt(LANE, 4))),
        (load(A, 0, FIRST), load(B, 512, lnot(FIRST)), choose(FIRST, k.Copy(b.at(Y.buffer, T), b.at(B)))),
        (load(A, 0, FIRST), k.Barrier(), load(B, 512, lnot(FIRST)), choose(FIRST)),
    ],
    ids=[
        "warps with both",
        "loaded elsewhere",
        "never loaded",
        "loaded everywhere",
        "lanes of both",
        "read elsewhere",
        "a barrier",
    ],
)
def test_pieces_stay_apart(body: tuple[k.Stmt, ...]) -> None:
    before, after = joined(*body, stored())
    assert lines(after) == lines(before)


@pytest.mark.parametrize("pieces", [3, 17])
def test_many_pieces_of_rows_are_one_in_registers(pieces: int) -> None:
    with FusionDefinition() as fd:
        given = [fd.define_tensor([64, 1024], contiguity=[True, True]) for _ in range(pieces)]
        fd.add_output(fd.ops.cat(given, dim=0))
    tensors = [torch.randn(64, 1024) for _ in range(pieces)]
    assert torch.equal(fd.execute(tensors)[0], torch.cat(tensors))
    (made,) = fd.kernels_for(tensors)
    read = {
        s.dst.buffer
        for s in k.walk(made.kernel.kernel.body)
        if isinstance(s, k.Copy) and isinstance(s.src, k.Ref) and s.src.buffer.space is k.Space.GLOBAL
    }
    assert len(read) == (1 if pieces == 17 else pieces)


@pytest.mark.parametrize("rows, width, vector", [(36, 1022, 4), (35, 1022, 2), (35, 1023, 1)])
def test_long_pieces_share_registers_wherever_they_end(rows: int, width: int, vector: int) -> None:
    """Vectors go through rows of any size, as each piece is one run of memory; by element if that is odd."""
    with FusionDefinition() as fd:
        given = [fd.define_tensor([rows, width], contiguity=[True, True]) for _ in range(17)]
        fd.add_output(fd.ops.cat(given, dim=0))
    tensors = [torch.randn(rows, width) for _ in range(17)]
    assert torch.equal(fd.execute(tensors)[0], torch.cat(tensors))
    (made,) = fd.kernels_for(tensors)
    loads = [
        s
        for s in k.walk(made.kernel.kernel.body)
        if isinstance(s, k.Copy) and isinstance(s.src, k.Ref) and s.src.buffer.space is k.Space.GLOBAL
    ]
    assert len({s.dst.buffer for s in loads}) == 1
    assert {s.width for s in loads} == {vector}


def test_a_comparison_of_threads_is_one_for_each_warp() -> None:
    for pred, is_one in [
        (lt(T, 32), True),
        (lt(T * 4, const(128) * N), True),
        (lt(const(128) * N, T * 4), False),
        (lt(const(31), T), True),
        (lt(T, 33), False),
        (lt(T, N), False),
    ]:
        assert _is_uniform(pred) is is_one, pred
