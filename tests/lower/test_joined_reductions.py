"""Independent reductions of a block become one, where nothing between them stands in the way."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from fusewright.kernel import ir as k
from fusewright.kernel.verify import verify
from fusewright.lower.passes.joined_reductions import join_reductions
from fusewright.lower.passes.shared import place_shared
from fusewright.ops.reductions import MAX, SUM
from fusewright.sim import SimOptions, simulate
from fusewright.sym import as_expr, lt
from tests.kernel import builders as b
from tests.lower.statements import R, S, T, U, X, Y, copy, kernel, loop

# The threads' first registers, summed into another.
FIRST = k.BlockReduce(SUM, (b.at(R),), (b.at(R, 1),), (b.BX,), k.TRUE, (S,))
A, B = b.local("A", R.dtype, 1), b.local("B", R.dtype, 1)
SECOND = dataclasses.replace(FIRST, dst=(b.at(A),), src=(b.at(B),))
SET = tuple(copy(buffer, X.buffer, 0, T) for buffer in (A, B))


def joined(*body: k.Stmt) -> k.Kernel:
    made = join_reductions(kernel(*SET, *body, copy(Y.buffer, R, T), allocs=(R, A, B, S, U)))
    verify(made)
    assert join_reductions(made) is made
    return made


def widths(*body: k.Stmt) -> list[int]:
    """How many values each reduction takes."""
    return [s.width for s in k.walk(joined(*body).body) if isinstance(s, k.BlockReduce)]


def test_neighbours_are_one_and_what_is_private_may_stand_between() -> None:
    assert widths(FIRST) == [1]
    assert widths(FIRST, SECOND) == [2]
    assert widths(FIRST, copy(B, X.buffer, 0, T + 1), loop(2, copy(B, X.buffer, 0, T)), SECOND) == [2]


@pytest.mark.parametrize(
    "between",
    [k.Barrier(), copy(U, X.buffer, T, T), loop(2, copy(Y.buffer, R, T, 0)), copy(B, R)],
    ids=["barrier", "shared store", "loop over a result", "source that follows"],
)
def test_what_keeps_them_apart(between: k.Stmt) -> None:
    assert widths(FIRST, between, SECOND) == [1, 1]


def test_what_needs_the_first_result_waits_for_both() -> None:
    store, source = copy(Y.buffer, R, T, 0), copy(R, X.buffer, 1, T)
    waits = k.If(lt(T, as_expr(7)), (store,))
    body = joined(FIRST, waits, source, copy(B, X.buffer, 0, T + 1), SECOND).body
    [place] = [n for n, stmt in enumerate(body) if isinstance(stmt, k.BlockReduce)]
    assert body.index(waits) < body.index(source) and place < body.index(waits)
    # A loop that writes what is to be stored first keeps them apart.
    assert widths(FIRST, store, loop(2, copy(R, X.buffer, 0, T)), SECOND) == [1, 1]


def test_reductions_of_a_cluster_are_one() -> None:
    given = b.cluster_rows()
    [first] = [stmt for stmt in given.body if isinstance(stmt, k.ClusterReduce)]
    total, value = first.dst[0].buffer, first.src[0]
    other = dataclasses.replace(total, name="other")
    second = dataclasses.replace(first, dst=(b.at(other),))
    place = given.body.index(first)
    more = (k.Alloc(other), k.Init(SUM, (b.at(other),)), first, second)
    twice = k.Compute(b.SUB, value, (value, b.at(other)), total.dtype)
    body = (*given.body[:place], *more, twice, *given.body[place + 1 :])
    made = join_reductions(k.with_body(given, body))
    verify(made)
    [joined] = [stmt for stmt in k.walk(made.body) if isinstance(stmt, k.ClusterReduce)]
    assert joined.width == 2
    made = place_shared(made)
    x = torch.arange(512.0).reshape(2, 256)
    inputs: list[Any] = [x.flatten(), torch.zeros(512), 2]
    simulate(made, inputs, options=SimOptions(outputs=False))
    assert torch.equal(inputs[1], (x - 2 * x.sum(1, keepdim=True)).flatten())


def test_only_alike_ones_are_joined() -> None:
    for other in (
        dataclasses.replace(SECOND, op=MAX),
        dataclasses.replace(SECOND, axes=(b.BY,)),
        dataclasses.replace(SECOND, pred=lt(T, as_expr(7))),
        dataclasses.replace(SECOND, src=(b.at(R),)),
    ):
        assert widths(FIRST, other) == [1, 1]


def test_results_are_those_of_each() -> None:
    """A register that already holds something is added to."""
    made = place_shared(
        joined(copy(R, X.buffer, 1, T), k.Init(SUM, (b.at(R),)), FIRST, SECOND, copy(Y.buffer, A, 32 + T))
    )
    inputs: list[Any] = [torch.arange(1024.0), torch.zeros(1024), 32]
    simulate(made, inputs, options=SimOptions(outputs=False))
    y = inputs[1]
    assert y[:32].tolist() == [496.0] * 32
    assert y[32:64].tolist() == [496.0 + i for i in range(32)]
