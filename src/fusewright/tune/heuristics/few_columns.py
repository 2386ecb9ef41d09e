"""Sums of columns where these are few: blocks lie along the rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fusewright.schedulers import ReductionParams
from fusewright.tune.heuristic import AutotunerHeuristic
from fusewright.tune.problem import Problem

# Columns a multiprocessor's worth of threads: fewer leave SMs idle unless several blocks share a column.
COLUMNS_AN_SM = 256
# Blocks for each SM: the next one loads while one combines its results.
BLOCKS_AN_SM = 2
THREADS = 256


class FewColumns(AutotunerHeuristic):
    """A block of columns is summed by as many blocks as keep all SMs busy."""

    name = "few_columns"
    scheduler = "reduction"

    def is_eligible(self, problem: Problem) -> bool | str:
        reduction = None if problem.facts is None else problem.facts.reduction
        if reduction is None or reduction.is_inner:
            return "no columns are summed"
        if reduction.rows >= COLUMNS_AN_SM * problem.hardware.sm_count:
            return f"{reduction.rows} columns keep all SMs busy"
        return isinstance(problem.formula, ReductionParams)

    def get_seed_params(self, problem: Problem) -> Any | None:
        assert problem.facts is not None and problem.facts.reduction is not None
        formula: ReductionParams = problem.formula
        columns = problem.facts.reduction.rows
        width = formula.unroll_factor_iter_dom
        across = max(8, min(32, columns // width))
        across = 1 << (across.bit_length() - 1)
        blocks = max(1, columns // (across * width))
        shared = max(1, BLOCKS_AN_SM * problem.hardware.sm_count // blocks)
        launch = replace(formula.lparams, bdimx=across, bdimy=THREADS // across, gdimy=shared)
        return replace(formula, lparams=launch)
