"""The best params of an equal kernel at other sizes.

The best params of the nearest sizes are a seed. Those of all near sizes are tried as well: a change by which
several sizes gain serves sizes that were not tuned (tune/near.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fusewright.tune.changes import with_changes
from fusewright.tune.entry import Entry
from fusewright.tune.heuristic import AutotunerHeuristic
from fusewright.tune.near import MOST_NEAR, NEAR, nearest_of
from fusewright.tune.problem import Problem

# How many times as large the sizes of the other problem may be. A seed is only tried: a policy asks for more.
WITHIN = 8.0


class NearSizes(AutotunerHeuristic):
    """The params of the entry, of an equal kernel on an equal GPU, whose sizes are nearest."""

    name = "near_sizes"

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = tuple(entries)

    def is_eligible(self, problem: Problem) -> bool | str:
        if problem.formula is None:
            return "nothing is known of the formula's params"
        return bool(self._others(problem, WITHIN)) or "no other sizes of this kernel were tuned"

    def get_seed_params(self, problem: Problem) -> Any | None:
        nearest = next(iter(self._others(problem, WITHIN)), None)
        if nearest is None or not nearest.change:
            return None
        return with_changes(problem.formula, nearest.change, problem.length)

    def get_neighbors(self, problem: Problem, params: Any) -> Iterator[Any]:
        if params == problem.formula:
            for entry in self._others(problem, NEAR)[:MOST_NEAR]:
                if entry.change:
                    yield with_changes(params, entry.change, problem.length)

    def _others(self, problem: Problem, within: float) -> list[Entry]:
        """Other sizes of a kernel, the nearest first."""
        facts = problem.facts
        if facts is None:
            return []
        kernel = problem.hardware.name, problem.scheduler, facts.structure
        entries = [
            entry
            for entry in self._entries
            if (entry.hardware, entry.scheduler, entry.facts.structure) == kernel
            and entry.facts.segment != facts.segment
        ]
        return nearest_of(entries, facts, within)
