"""Indices by divisions, along the lanes of a vector that no divisor parts."""

from __future__ import annotations

import pytest

from fusewright.lower.straight_runs import straightened
from fusewright.sym import ZERO, evaluate, floordiv, lt, maximum, mod, symbol

WIDTH = 4
FIRST, LANE, N = symbol("i", lo=0), symbol("lane", lo=0, hi=WIDTH - 1), symbol("n", lo=1)
AT = FIRST + LANE


@pytest.mark.parametrize(
    "index",
    [
        floordiv(AT, N) * 9 + mod(AT, N) - 1,  # a row of another length
        mod(mod(AT, N) + 5, 7),  # rolled
        floordiv(AT, N * 2) * 3 + mod(AT, N),  # repeated
        mod(AT - 3, N),  # from a position on that may be before the first
        maximum(AT - 3, 3 - AT),
        maximum(AT - 3, ZERO),
    ],
    ids=["row", "rolled", "repeated", "shifted", "reflected", "replicated"],
)
def test_whole_vectors_go_up_by_one(index):
    pred = lt(mod(AT, N), 4)
    found = straightened([index, pred], LANE, WIDTH)
    straight, condition = found.expressions
    assert LANE not in found.whole.free_symbols
    assert LANE not in (straight - LANE).free_symbols
    wholes = 0
    for n in (1, 3, 4, 5, 11):
        for i in range(40):
            if not evaluate(found.whole, {FIRST: i, N: n}):
                continue
            wholes += 1
            for lane in range(WIDTH):
                at = {FIRST: i, N: n, LANE: lane}
                assert evaluate(straight, at) == evaluate(index, at)
                assert evaluate(condition, at) == evaluate(pred, at)
    assert wholes > 10


def test_what_goes_up_by_more_stays_as_it_is():
    index = mod(LANE * 2 + FIRST, N)
    found = straightened([index], LANE, WIDTH)
    assert found.expressions == (index,)
    assert evaluate(found.whole, {}) == 1
