"""Sums of rows: more loads in flight."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fusewright.schedulers import ReductionParams
from fusewright.tune.heuristic import AutotunerHeuristic
from fusewright.tune.problem import Problem

# Vectors of a row that a thread has in flight.
MOST_IN_FLIGHT = 8


class RowSums(AutotunerHeuristic):
    """Twice the vectors in flight, where a thread has few; else twice the threads."""

    name = "row_sums"
    scheduler = "reduction"

    def is_eligible(self, problem: Problem) -> bool | str:
        reduction = None if problem.facts is None else problem.facts.reduction
        if reduction is None or not reduction.is_inner:
            return "no rows are summed"
        return isinstance(problem.formula, ReductionParams)

    def get_seed_params(self, problem: Problem) -> Any | None:
        formula: ReductionParams = problem.formula
        return replace(
            formula,
            unroll_factor_top_of_vectorization=min(
                MOST_IN_FLIGHT, 2 * formula.unroll_factor_top_of_vectorization
            ),
            pad_inner_reduction_to_warp=False,
        )

    def get_neighbors(self, problem: Problem, params: Any) -> Iterator[Any]:
        """Four times as many, with as many threads and with twice as many; twice the threads alone."""
        launch, unroll = params.lparams, params.unroll_factor_top_of_vectorization
        wider = replace(launch, bdimx=2 * launch.bdimx)
        yield replace(params, lparams=wider, pad_inner_reduction_to_warp=False)
        if unroll < MOST_IN_FLIGHT:
            yield replace(params, unroll_factor_top_of_vectorization=min(MOST_IN_FLIGHT, 4 * unroll))
