"""Columns that a block holds while it reduces them: narrow tiles, of which an SM has room for more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fusewright.schedulers import ReductionParams
from fusewright.tune.heuristic import AutotunerHeuristic
from fusewright.tune.problem import Problem

# Rows of a column that a thread holds.
MOST_HELD = 16


class HeldColumns(AutotunerHeuristic):
    """Half as many columns a thread as the formula has."""

    name = "held_columns"
    scheduler = "outer_persistent"

    def is_eligible(self, problem: Problem) -> bool | str:
        formula = problem.formula
        if not isinstance(formula, ReductionParams) or formula.unroll_factor_iter_dom == 1:
            return "threads have one column each"
        return True

    def get_seed_params(self, problem: Problem) -> Any | None:
        formula: ReductionParams = problem.formula
        return replace(formula, unroll_factor_iter_dom=formula.unroll_factor_iter_dom // 2)

    def get_neighbors(self, problem: Problem, params: Any) -> Iterator[Any]:
        """Held in shared memory; or more rows a thread."""
        if not params.persistent_in_shared_memory:
            yield replace(params, persistent_in_shared_memory=True)
        if params.batches_per_block_inner_reduction < MOST_HELD:
            yield replace(params, batches_per_block_inner_reduction=MOST_HELD)
