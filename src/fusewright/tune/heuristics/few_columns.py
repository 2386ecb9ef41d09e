"""Sums of columns, especially of few columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fusewright.schedulers import ReductionParams
from fusewright.tune.heuristic import AutotunerHeuristic
from fusewright.tune.problem import Problem

# Columns that are few: the threads of a warp with vectors of eight have as many, and idle where it is no
# multiple of that.
FEW = 256
# Rows that a thread has in flight, where it has few: one more, or two, bring little.
IN_FLIGHT = 8


class FewColumns(AutotunerHeuristic):
    """Fewer columns per thread and fewer blocks per column, each with more threads down the column.

    With few columns, threads of wide vectors are idle, and each block's partial results cause traffic and
    waiting.
    """

    name = "few_columns"
    scheduler = "reduction"

    def is_eligible(self, problem: Problem) -> bool | str:
        reduction = None if problem.facts is None else problem.facts.reduction
        if reduction is None or reduction.is_inner:
            return "no columns are summed"
        return isinstance(problem.formula, ReductionParams)

    def get_seed_params(self, problem: Problem) -> Any | None:
        assert problem.facts is not None and problem.facts.reduction is not None
        formula: ReductionParams = problem.formula
        launch, columns = formula.lparams, problem.facts.reduction.rows
        shared = max(1, _power_of_two(launch.gdimy) // 2) if launch.gdimy > 1 else launch.gdimy
        if columns > FEW:
            taller = replace(launch, bdimy=2 * launch.bdimy, gdimy=shared)
            return replace(formula, lparams=taller)
        narrow = max(1, formula.unroll_factor_iter_dom // 2)
        return replace(
            formula,
            unroll_factor_iter_dom=narrow,
            streams_inputs=True,
            lparams=replace(launch, bdimy=min(16, 2 * launch.bdimy), gdimy=shared),
        )

    def get_neighbors(self, problem: Problem, params: Any) -> Iterator[Any]:
        """Many rows in flight; twice the rows in flight in half the blocks; half the columns per block with
        twice the rows.
        """
        launch, unroll = params.lparams, params.unroll_factor_inner_reduction
        if unroll < IN_FLIGHT:
            yield replace(params, unroll_factor_inner_reduction=IN_FLIGHT)
        half = max(1, _power_of_two(launch.gdimy) // 2) if launch.gdimy > 1 else launch.gdimy
        yield replace(params, unroll_factor_inner_reduction=2 * unroll, lparams=replace(launch, gdimy=half))
        if launch.bdimx > 1:
            narrow = replace(launch, bdimx=launch.bdimx // 2)
            yield replace(params, unroll_factor_inner_reduction=2 * unroll, lparams=narrow)
        if launch.gdimy == 1:
            taller = replace(launch, bdimy=2 * launch.bdimy)
            yield replace(params, unroll_factor_inner_reduction=2 * unroll, lparams=taller)


def _power_of_two(value: int) -> int:
    """The least that is not below."""
    return 1 << max(0, value - 1).bit_length()
