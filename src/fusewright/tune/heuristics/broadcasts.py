"""Elementwise kernels whose inputs are broadcast."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fusewright.schedulers import PointwiseParams
from fusewright.tune.heuristic import AutotunerHeuristic
from fusewright.tune.problem import Problem


class Broadcasts(AutotunerHeuristic):
    """One row of all elements, in narrower vectors: broadcast inputs are read from the caches."""

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
            break_point=0,
            assumed_sizes=(),
            flip_grid_binding=False,
            split_grid_y_dim=False,
            unroll_factor_outer=1,
            unroll_factor_inner=2,
            vectorization_factor=max(1, formula.vectorization_factor // 2),
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
