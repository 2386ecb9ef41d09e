"""When a call is timed no further, by a clock that takes what calls return for their time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from math import inf

import pytest

from fusewright.tune.measure import FEW, HOPELESS, Clock

COPY = 2.0


class _ClockOfReturns(Clock):
    def __init__(self) -> None:
        pass

    def spans(self, calls: Sequence[Callable[[], object]], repeats: int, ahead: int = 0) -> list[list[float]]:
        return [[call() for _ in range(repeats)] for call in calls]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("times", "limit", "expected", "runs"),
    (
        (repeat(3.0), inf, 1.5, 1 + 2 + FEW + 9),
        (repeat(3.0), 1.4, 1.5, 1 + 2 + FEW),
        (chain([90.0], repeat(3.0)), 1.6, 1.5, 1 + 2 + FEW + 9),
        (repeat(2.1 * HOPELESS * COPY), inf, 2.1 * HOPELESS, 1),
        (repeat(1.05 * HOPELESS * COPY), 1.6, 1.05 * HOPELESS, 1),
    ),
    ids=("to the end", "clearly slower", "disturbed", "hopeless", "just hopeless"),
)
def test_a_call_is_timed_as_long_as_it_may_be_among_the_best(
    times: Iterable[float], limit: float, expected: float, runs: int
) -> None:
    following, made = iter(times), []

    def call() -> float:
        made.append(next(following))
        return made[-1]

    ratio = _ClockOfReturns().beside(call, lambda: COPY, limit, repeats=9, warm_up=2)
    assert (ratio, len(made)) == (pytest.approx(expected), runs)
