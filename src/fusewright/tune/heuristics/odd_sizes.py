"""Elementwise kernels of sizes that vectors do not divide."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fusewright.schedulers import PointwiseParams
from fusewright.tune.facts import WIDEST_ACCESS
from fusewright.tune.heuristic import AutotunerHeuristic
from fusewright.tune.problem import Problem

# Accesses that a thread has in flight: those of half the widest vectors.
IN_FLIGHT = 2


class OddSizes(AutotunerHeuristic):
    """Vectors that begin at aligned addresses, wherever rows begin."""

    name = "odd_sizes"
    scheduler = "pointwise"

    def is_eligible(self, problem: Problem) -> bool | str:
        formula = problem.formula
        if problem.facts is None or not isinstance(formula, PointwiseParams):
            return "nothing is known of the problem"
        if formula.vectorization_factor > 1 or problem.facts.element_bytes >= WIDEST_ACCESS:
            return "accesses are vectors"
        return True

    def get_seed_params(self, problem: Problem) -> Any | None:
        assert problem.facts is not None
        width = max(2, WIDEST_ACCESS // problem.facts.element_bytes // 2)
        return replace(
            problem.formula,
            shift_rows=True,
            vectorization_factor=width,
            unroll_factor_inner=IN_FLIGHT,
            unroll_factor_outer=1,
        )
