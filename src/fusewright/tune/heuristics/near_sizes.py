"""What was best for an equal kernel of other sizes: what was learned is remembered across shapes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fusewright.tune.changes import with_changes
from fusewright.tune.entry import Entry
from fusewright.tune.heuristic import AutotunerHeuristic
from fusewright.tune.near import nearest_of
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
        return self._nearest(problem) is not None or "no other sizes of this kernel were tuned"

    def get_seed_params(self, problem: Problem) -> Any | None:
        nearest = self._nearest(problem)
        if nearest is None or not nearest.change:
            return None
        return with_changes(problem.formula, nearest.change, problem.length)

    def _nearest(self, problem: Problem) -> Entry | None:
        facts = problem.facts
        if facts is None:
            return None
        kernel = problem.hardware.name, problem.scheduler, facts.structure
        entries = [
            entry
            for entry in self._entries
            if (entry.hardware, entry.scheduler, entry.facts.structure) == kernel
            and entry.facts.segment != facts.segment
        ]
        return nearest_of(entries, facts, WITHIN)
