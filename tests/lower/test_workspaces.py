"""Reductions of a block that follow each other use two workspaces in turn, and need one barrier each."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fusewright.core.errors import RaceError
from fusewright.kernel import ir as k
from fusewright.kernel.verify import verify
from fusewright.lower.passes.shared import place_shared
from fusewright.lower.passes.workspaces import order_reductions
from fusewright.ops.reductions import SUM
from fusewright.sim import SimOptions, simulate
from fusewright.sym import const
from tests.kernel import builders as b
from tests.lower.statements import R, S, T, X, Y, copy, kernel, loop

REDUCE = k.BlockReduce(SUM, (b.at(R),), (b.at(R, 1),), (b.BX,), k.TRUE, (S,))
ACROSS = dataclasses.replace(REDUCE, axes=(b.BX, b.BY))


def ordered(*body: k.Stmt) -> list[tuple[str, bool]]:
    """The workspace of each reduction, and whether it begins without a barrier."""
    made = order_reductions(kernel(*body, copy(Y.buffer, R, T), allocs=(R, S)))
    verify(made)
    assert order_reductions(made) is made
    return [(s.workspace[0].name, s.ordered) for s in k.walk(made.body) if isinstance(s, k.BlockReduce)]


def test_workspaces_take_turns():
    first, second = (S.name, True), (f"{S.name}_again", True)
    assert ordered(REDUCE) == [first]
    assert ordered(REDUCE, REDUCE, REDUCE) == [first, second, first]
    assert ordered(loop(4, REDUCE, REDUCE)) == [first, second]
    assert ordered(loop(4, REDUCE, k.Barrier())) == [first]
    assert ordered(REDUCE, k.Barrier(), REDUCE) == [first, first]


def test_a_reduction_that_meets_itself_or_other_threads_keeps_its_barrier():
    unordered = (S.name, False)
    assert ordered(loop(4, REDUCE)) == [unordered]
    # A reduction along other axes may need no barrier of its own.
    assert ordered(REDUCE, ACROSS, REDUCE)[-1] == unordered
    large = dataclasses.replace(S, size=const(1 << 16))
    of_large = dataclasses.replace(REDUCE, workspace=(large,))
    made = order_reductions(kernel(of_large, of_large, allocs=(R, large)))
    assert [s.ordered for s in made.body if isinstance(s, k.BlockReduce)] == [True, False]


@pytest.mark.parametrize("iterations", [1, 3])
def test_the_simulator_finds_a_missing_barrier(iterations: int) -> None:
    load = copy(R, X.buffer, 1, T)
    wrong = dataclasses.replace(REDUCE, ordered=True)
    init, store = k.Init(SUM, (b.at(R),)), copy(Y.buffer, R, T, 0)
    made = place_shared(kernel(load, init, loop(iterations, wrong), store, allocs=(R, S)))
    inputs = [torch.ones(1024), torch.zeros(1024), 32]
    if iterations == 1:
        simulate(made, inputs, options=SimOptions(outputs=False))
    else:
        with pytest.raises(RaceError, match="the reduction before"):
            simulate(made, inputs, options=SimOptions(outputs=False))
