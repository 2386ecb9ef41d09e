"""Elementwise kernels whose inputs are broadcast: several rows a thread share what they read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fusewright.schedulers import PointwiseParams
from fusewright.tune.heuristic import AutotunerHeuristic
from fusewright.tune.problem import Problem

# Rows that a thread has in flight: each loads the broadcast operand's element once for all of them.
ROWS = 4


class Broadcasts(AutotunerHeuristic):
    """A thread computes several rows of its columns."""

    name = "broadcasts"
    scheduler = "pointwise"

    def is_eligible(self, problem: Problem) -> bool | str:
        if problem.facts is None or not problem.facts.broadcasts:
            return "no input is broadcast"
        return isinstance(problem.formula, PointwiseParams)

    def get_seed_params(self, problem: Problem) -> Any | None:
        formula: PointwiseParams = problem.formula
        return replace(
            formula,
            break_point=max(1, formula.break_point),
            unroll_factor_outer=ROWS,
            unroll_factor_inner=1,
            vectorized_dim=-1,
        )

    def get_neighbors(self, problem: Problem, params: Any) -> Iterator[Any]:
        """As many elements in flight, along the rows in place of along the columns."""
        if params.break_point and params.unroll_factor_inner > 1:
            yield replace(
                params,
                unroll_factor_inner=params.unroll_factor_inner // 2,
                unroll_factor_outer=params.unroll_factor_outer * 2,
            )
