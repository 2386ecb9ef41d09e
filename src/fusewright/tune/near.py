"""Params for sizes near tuned ones: a change of the formula's params by which several sizes of a kernel
gained.

The best params of one size are the luckiest of many and mostly serve only that size. So the gain of a change
is the average over all near sizes, plus one size without gain. None of the sizes may have become slower.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import exp, log, log2
from typing import Any, Protocol, TypeVar

from fusewright.core.errors import ParamsError
from fusewright.core.once import cached_property
from fusewright.tune.changes import changes_of, differences, with_changes
from fusewright.tune.facts import ProblemFacts
from fusewright.tune.rules import NOT_CHOSEN
from fusewright.tune.table import Measurements

# How many times as large a number of another problem's facts may be, for it to be near.
NEAR = 1.5
# Of those near by, the nearest are asked, each about its fastest params.
MOST_NEAR, MOST_ASKED = 8, 8
# Logarithms of times: times that were taken again differ by so much.
GAINS, LOSES = 0.01, 0.01
# Problems that have to gain by a change, and what it has to be worth to them all.
LEAST_GAINING, LEAST_WORTH = 2, 0.01
# What one change may be worth less than another if more sizes share it.
AS_GOOD = 0.005
# Fields of the formula's params that follow from sizes.
OF_SIZES = ("lparams.", *NOT_CHOSEN)


@dataclass(frozen=True)
class NearChange:
    """A change of the formula's params, for sizes near a problem's.

    Attributes:
        fields: by path.
        gains: for each near problem, the speedup over the formula's params.
    """

    fields: dict[str, Any]
    gains: tuple[float, ...]


class MeasuredSizes:
    """Measurements of one kernel at several sizes, each with the formula's time and the facts."""

    def __init__(self, measured: Sequence[Measurements]) -> None:
        self._measured = list(measured)
        self._gains: dict[tuple[int, str], float | None] = {}

    def near(self, problem: int, without: int | None = None) -> list[int]:
        """The numbers of the nearest other problems for which the formula chooses alike, and of the problem
        itself.
        """
        own = self._measured[problem]
        apart = [
            (_apart(self._facts(i), self._facts(problem)), i)
            for i, other in enumerate(self._measured)
            if i != without and is_alike(own.formula, other.formula, other.problem.length)
        ]
        return [i for distance, i in sorted(apart)[:MOST_NEAR] if distance <= log2(NEAR)]

    def nearest(self, problem: int) -> int | None:
        """The other problem whose sizes are nearest."""
        apart = [
            (_apart(self._facts(i), self._facts(problem)), i)
            for i in range(len(self._measured))
            if i != problem
        ]
        distance, nearest = min(apart, default=(log2(NEAR) + 1, None))
        return nearest if distance <= log2(NEAR) else None

    def changes(self, problem: int, without: int | None = None) -> list[tuple[float, NearChange]]:
        """The possible changes near a problem, with their gains, the best first.

        Args:
            without: a problem whose measurements are ignored.
        """
        near = self.near(problem, without)
        if len(near) < LEAST_GAINING:
            return []
        found = []
        for change in {_text(change): change for i in near for change in self._faster(i)}.values():
            gains = [gain for i in near if (gain := self.gain(i, change)) is not None]
            gaining = sum(gain > GAINS for gain in gains)
            worth = sum(gains) / (len(near) + 1)
            if gaining >= LEAST_GAINING and min(gains) >= -LOSES and worth >= LEAST_WORTH:
                found.append((worth, NearChange(change, tuple(round(exp(gain), 4) for gain in gains))))
        return sorted(found, key=lambda each: (-each[0], len(each[1].fields)))

    def gain(self, problem: int, change: dict[str, Any]) -> float | None:
        """Of the logarithm of the time; None: it was not measured, or cannot be made."""
        key = problem, _text(change)
        if key not in self._gains:
            own = self._measured[problem]
            try:
                seconds = own.seconds.get(with_changes(own.formula, change, own.problem.length))
            except ParamsError:
                seconds = None
            self._gains[key] = None if seconds is None else log(own.seconds[own.formula] / seconds)
        return self._gains[key]

    def _faster(self, problem: int) -> Iterator[dict[str, Any]]:
        own = self._measured[problem]
        limit = own.seconds[own.formula] * exp(-GAINS)
        faster = [params for params, seconds in own.seconds.items() if seconds < limit]
        for params in sorted(faster, key=own.seconds.__getitem__)[:MOST_ASKED]:
            yield changes_of(own.formula, params, own.problem.length)

    def _facts(self, problem: int) -> ProblemFacts:
        facts = self._measured[problem].problem.facts
        assert facts is not None
        return facts

    @cached_property
    def chosen(self) -> list[NearChange | None]:
        """For the sizes near each problem; as few changes as are about as good."""
        good: dict[int, list[NearChange]] = {}
        for i in range(len(self._measured)):
            known = self.changes(i)
            good[i] = [change for worth, change in known if worth >= known[0][0] - AS_GOOD]
        texts = {i: [_text(change.fields) for change in own] for i, own in good.items()}
        served = fewest(texts)
        return [
            good[i][texts[i].index(served[i])] if i in served else None for i in range(len(self._measured))
        ]

    def held_out(self, problem: int) -> float | None:
        """The logarithm of the time that a problem takes with what the others say, in multiples of the
        formula's. None: they say nothing, or it was not measured.
        """
        nearest = self.nearest(problem)
        if nearest is None or not self._is_served_by(problem, nearest):
            return None
        known = self.changes(nearest, without=problem)
        gain = self.gain(problem, known[0][1].fields) if known else None
        return None if gain is None else -gain

    def _is_served_by(self, problem: int, other: int) -> bool:
        own = self._measured[problem]
        return is_alike(self._measured[other].formula, own.formula, own.problem.length)


def is_alike(formula: Any, other: Any, length: int | None) -> bool:
    """Whether the formula made the same choice for another call of a kernel, except for values that follow
    from sizes.
    """
    here = formula if length is None else formula.for_length(length)
    return all(path.startswith(OF_SIZES) for path in differences(here, other))


def fewest(good: dict[int, list[Any]]) -> dict[int, Any]:
    """For each number one of its acceptable values, so that few distinct values are chosen; earlier ones are
    preferred.
    """
    left = {i: own for i, own in good.items() if own}
    chosen: dict[int, Any] = {}
    while left:
        served: dict[Any, list[int]] = {}
        for i, own in left.items():
            for each in own:
                served.setdefault(each, []).append(i)
        most = max(served, key=lambda each: len(served[each]))
        for i in served[most]:
            del left[i]
            chosen[i] = most
    return chosen


class HasFacts(Protocol):
    @property
    def facts(self) -> ProblemFacts: ...


H = TypeVar("H", bound=HasFacts)


def nearest_of(entries: Iterable[H], facts: ProblemFacts, within: float) -> list[H]:
    """Of sizes of a kernel those that are near, the nearest first.

    within: how many times as large a number of its facts may be.
    """
    apart = sorted((_apart(entry.facts, facts), i, entry) for i, entry in enumerate(entries))
    return [entry for distance, _, entry in apart if distance <= log2(within)]


def kernels(measured: Iterable[Measurements]) -> dict[tuple[str, str, str], list[int]]:
    """The numbers of the measurements, by GPU, scheduler and structure; those without facts are omitted."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for i, each in enumerate(measured):
        facts = each.problem.facts
        if facts is not None and each.formula in each.seconds:
            key = each.problem.hardware.name, each.problem.scheduler, facts.structure
            found.setdefault(key, []).append(i)
    return found


def _text(change: dict[str, Any]) -> str:
    return json.dumps(change, sort_keys=True)


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
