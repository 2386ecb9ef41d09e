"""Grid reductions that do not need each other are made together, where nothing between them stands in the
way.
"""

from __future__ import annotations

import dataclasses

import pytest

from fusewright.kernel import ir as k
from fusewright.kernel.verify import verify
from fusewright.lower.passes.joined_grid_reductions import join_grid_reductions
from fusewright.ops.reductions import SUM
from fusewright.sym import eq, symbol
from tests.kernel import builders as b
from tests.lower.statements import R, T, X, Y, copy, kernel

A, B, C, D = (b.local(name, R.dtype, 1) for name in "ABCD")
EXCHANGES = [b.grid_exchange(1, name=f"exchange{i}") for i in range(3)]


def reduction(number: int, dst: k.Buffer, src: k.Buffer, everywhere: bool = False) -> k.GridReduce:
    is_last = None if everywhere else symbol(f"is_last{number}", hi=1)
    along = (b.at(dst),), (b.at(src),), (b.GX,), (), k.TRUE, ()
    return k.GridReduce(SUM, *along, EXCHANGES[number], is_last)


FIRST, SECOND = reduction(0, A, R), reduction(1, B, C)
assert FIRST.is_last is not None
STORE = k.If(eq(FIRST.is_last, 1), (copy(Y.buffer, A, T),))
SET = tuple(copy(buffer, X.buffer, 0, T) for buffer in (R, A, B, C, D))


def joined(*body: k.Stmt) -> tuple[k.Stmt, ...]:
    given = kernel(*SET, *body, copy(Y.buffer, R, T), allocs=(R, A, B, C, D))
    scratch = [k.WorkspaceParam(exchange, zeroed=True) for exchange in EXCHANGES]
    given = dataclasses.replace(given, params=(*given.params, *scratch))
    made = join_grid_reductions(given)
    verify(made)
    assert join_grid_reductions(made) is made
    return made.body[10:-1]


def test_what_uses_the_first_result_comes_after_both_and_what_makes_the_second_before() -> None:
    zero = k.Init(SUM, (b.at(B),))
    [first, together, last] = joined(FIRST, STORE, zero, SECOND)
    assert (first, last) == (zero, STORE)
    assert isinstance(together, k.GridReduces) and together.body == (FIRST, SECOND)
    third = reduction(2, D, R)
    [together] = joined(FIRST, SECOND, third)
    assert k.children(together) == (FIRST, SECOND, third)


@pytest.mark.parametrize(
    "between",
    [
        k.Barrier(),
        reduction(2, D, R, everywhere=True),  # uses its workspace and its barriers in turn with others
        copy(C, A),  # the second one needs the first
        copy(C, X.buffer, 0, T + 1),  # of memory that what comes between may have changed
        k.If(eq(FIRST.is_last, 1), (copy(B, R),)),
    ],
    ids=["barrier", "all-reduce", "result", "load", "last block"],
)
def test_what_keeps_them_apart(between: k.Stmt) -> None:
    assert joined(FIRST, between, SECOND) == (FIRST, between, SECOND)
