"""What a journal says of one problem: the best params, and how they differ from the formula's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log2
from typing import Any

from fusewright.core.serialization import to_dict
from fusewright.tune.changes import changes_of
from fusewright.tune.facts import ProblemFacts
from fusewright.tune.table import Measurements

# Of a time, what another has to be below to count as less: what measuring again may change is not.
WORTH = 0.99


@dataclass(frozen=True)
class Entry:
    """The best params of one problem.

    Attributes:
        params: as a dict: what serves this problem, whatever the formula becomes.
        change: the fields in which they differ from the formula's, by path; {} where nothing was better. It
            serves problems near by.
        speedup: over the formula's.
    """

    name: str
    scheduler: str
    hardware: str
    facts: ProblemFacts
    params: dict[str, Any]
    change: dict[str, Any]
    speedup: float


def chosen_entries(measured: Sequence[Measurements]) -> list[Entry]:
    """An entry for each problem of which the formula's time and the facts are known.

    A kernel serves all sizes, if its params are the same: so of the params that are about as fast as a
    problem's best, those are taken that serve the most problems of an equal kernel.
    """
    problems = [each for each in measured if each.problem.facts is not None and each.formula in each.seconds]
    left = {i: _good(each) for i, each in enumerate(problems)}
    chosen: dict[int, Any] = {}
    while left:
        served: dict[tuple[Any, ...], list[int]] = {}
        for i, good in left.items():
            for params in good:
                served.setdefault((*_kernel(problems[i]), params), []).append(i)
        # Of those that serve as many the first, which is the fastest one of a problem.
        most = max(served, key=lambda each: len(served[each]))
        for i in served[most]:
            del left[i]
            chosen[i] = most[-1]
    return [_entry(each, chosen[i]) for i, each in enumerate(problems)]


def _kernel(measured: Measurements) -> tuple[str, ...]:
    facts = measured.problem.facts
    assert facts is not None
    return measured.problem.hardware.name, measured.problem.scheduler, facts.structure


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


def _entry(measured: Measurements, params: Any) -> Entry:
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
    )


def nearest_of(entries: Sequence[Entry], facts: ProblemFacts, within: float) -> Entry | None:
    """Of entries of a kernel the one whose sizes are nearest.

    within: how many times as large a number of its facts may be.
    """
    apart = [(_apart(entry.facts, facts), i) for i, entry in enumerate(entries)]
    nearest = min(apart, default=None)
    return entries[nearest[1]] if nearest is not None and nearest[0] <= log2(within) else None


def _apart(one: ProblemFacts, other: ProblemFacts) -> float:
    """Of two calls of a kernel: how many powers of two their sizes are apart, at most."""
    pairs = [(one.bytes, other.bytes), (one.points, other.points)]
    if one.reduction is not None and other.reduction is not None:
        pairs.append((one.reduction.rows, other.reduction.rows))
        pairs.append((one.reduction.length, other.reduction.length))
    if one.transpose is not None and other.transpose is not None:
        pairs.append((one.transpose.size1, other.transpose.size1))
        pairs.append((one.transpose.size2, other.transpose.size2))
    return max(abs(log2(max(1, a) / max(1, b))) for a, b in pairs)
