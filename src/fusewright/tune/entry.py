"""What a journal says of one problem: the best params, as changes of the formula's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fusewright.tune.facts import ProblemFacts
from fusewright.tune.table import Measurements, differences

# Of the formula's time, what the best has to be below: less is what measuring again may change.
WORTH = 0.99


@dataclass(frozen=True)
class Entry:
    """The best params of one problem.

    Attributes:
        change: the fields in which they differ from the formula's, by path; {} where nothing was better.
        speedup: over the formula's.
    """

    name: str
    scheduler: str
    hardware: str
    facts: ProblemFacts
    change: dict[str, Any]
    speedup: float


def entry_of(measured: Measurements) -> Entry | None:
    """The best params of measurements. None: the formula's time, or the problem's facts, are not known."""
    problem, formula = measured.problem, measured.seconds.get(measured.formula)
    if problem.facts is None or formula is None:
        return None
    best = min(measured.seconds, key=measured.seconds.__getitem__)
    speedup = formula / measured.seconds[best]
    change = differences(measured.formula, best) if speedup * WORTH >= 1 else {}
    return Entry(
        problem.name,
        problem.scheduler,
        problem.hardware.name,
        problem.facts,
        change,
        round(speedup if change else 1.0, 4),
    )
