"""The journal's result for one problem: the best params, and how they differ from the formula's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fusewright.core.serialization import to_dict
from fusewright.tune.changes import changes_of, differences
from fusewright.tune.facts import ProblemFacts
from fusewright.tune.near import MeasuredSizes, NearChange, fewest, kernels
from fusewright.tune.table import Measurements

# The fraction of a time below which another time counts as less; smaller differences may be noise.
WORTH = 0.99


@dataclass(frozen=True)
class Entry:
    """The best params of one problem.

    Attributes:
        params: as a dict; they serve this problem even if the formula changes.
        change: the fields that differ from the formula's, by path; {} if nothing was better.
        speedup: relative to the formula's params.
        formula: the formula's values of these fields, by path.
        near: the change for near sizes; None: the formula's params.
    """

    name: str
    scheduler: str
    hardware: str
    facts: ProblemFacts
    params: dict[str, Any]
    change: dict[str, Any]
    speedup: float
    formula: dict[str, Any]
    near: NearChange | None = None


def chosen_entries(measured: Sequence[Measurements]) -> list[Entry]:
    """An entry for each problem of which the formula's time and the facts are known.

    A kernel serves all sizes, if its params are the same: so of the params that are about as fast as a
    problem's best, those are taken that serve the most problems of an equal kernel.
    """
    problems = [each for each in measured if each.problem.facts is not None and each.formula in each.seconds]
    entries: dict[int, Entry] = {}
    for numbers in kernels(problems).values():
        own = [problems[i] for i in numbers]
        params = fewest({i: _good(problems[i]) for i in numbers})
        for i, near in zip(numbers, MeasuredSizes(own).chosen):
            entries[i] = _entry(problems[i], params[i], near)
    return [entries[i] for i in sorted(entries)]


def _good(measured: Measurements) -> list[Any]:
    """The params that are about as fast as the best, fastest first; the formula's, if they are."""
    best, formula = measured.best, measured.seconds[measured.formula]
    if formula * WORTH < best:
        return [measured.formula]
    near = [
        (seconds, i, params)
        for i, (params, seconds) in enumerate(measured.seconds.items())
        if seconds * WORTH <= best and seconds <= formula * WORTH
    ]
    return [params for _, _, params in sorted(near, key=lambda each: each[:2])]


def _entry(measured: Measurements, params: Any, near: NearChange | None) -> Entry:
    problem = measured.problem
    assert problem.facts is not None
    speedup = measured.seconds[measured.formula] / measured.seconds[params]
    return Entry(
        problem.name,
        problem.scheduler,
        problem.hardware.name,
        problem.facts,
        to_dict(replace(params, reason="")),
        changes_of(measured.formula, params, problem.length),
        round(speedup, 4),
        differences(params, measured.formula),
        near,
    )
