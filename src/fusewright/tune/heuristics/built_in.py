"""The scheduler's own choice."""

from __future__ import annotations

from typing import Any

from fusewright.tune.heuristic import AutotunerHeuristic
from fusewright.tune.journal import FORMULA
from fusewright.tune.problem import Problem


class BuiltIn(AutotunerHeuristic):
    """The params of a call without tuning: always eligible, and the first seed."""

    name = FORMULA

    def get_seed_params(self, problem: Problem) -> Any | None:
        return problem.formula
