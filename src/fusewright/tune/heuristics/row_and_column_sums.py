"""Sums of rows and of columns of one tensor, in one kernel that holds nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fusewright.schedulers import InnerOuterParams
from fusewright.tune.heuristic import AutotunerHeuristic
from fusewright.tune.problem import Problem


class RowAndColumnSums(AutotunerHeuristic):
    """Twice the rows a block: each block's sums of columns are combined in global memory."""

    name = "row_and_column_sums"
    scheduler = "inner_outer"

    def is_eligible(self, problem: Problem) -> bool | str:
        return isinstance(problem.formula, InnerOuterParams)

    def get_seed_params(self, problem: Problem) -> Any | None:
        formula: InnerOuterParams = problem.formula
        return replace(formula, rows_per_block=2 * formula.rows_per_block)

    def get_neighbors(self, problem: Problem, params: InnerOuterParams) -> Iterator[Any]:
        """Half the columns a block; or half the threads down them."""
        launch = params.lparams
        if launch.bdimx > 1:
            yield replace(params, lparams=replace(launch, bdimx=launch.bdimx // 2))
        if launch.bdimy > 1:
            yield replace(params, lparams=replace(launch, bdimy=launch.bdimy // 2))
