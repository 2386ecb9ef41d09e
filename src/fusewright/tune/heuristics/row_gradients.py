"""Rows and columns of one tensor, reduced in one kernel, as by the gradients of normalizations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fusewright.schedulers import InnerOuterPersistentParams
from fusewright.tune.heuristic import AutotunerHeuristic
from fusewright.tune.problem import Problem


class RowGradients(AutotunerHeuristic):
    """What follows from inputs is held, too, in twice as many vectors of half the width.

    It is computed once then, and narrow vectors let the compiler interleave loads with arithmetic.
    """

    name = "row_gradients"
    scheduler = "inner_outer_persistent"

    def is_eligible(self, problem: Problem) -> bool | str:
        formula = problem.formula
        if not isinstance(formula, InnerOuterPersistentParams) or formula.circular_stages:
            return "rows are copied ahead"
        if not formula.project_persistent_buffers:
            return "what follows from inputs is held already"
        return formula.vectorization_factor > 1 or "vectors are of one element"

    def get_seed_params(self, problem: Problem) -> Any | None:
        formula: InnerOuterPersistentParams = problem.formula
        return replace(
            formula,
            vectorization_factor=formula.vectorization_factor // 2,
            batches_per_block_inner_reduction=2 * formula.batches_per_block_inner_reduction,
            project_persistent_buffers=False,
        )

    def get_neighbors(self, problem: Problem, params: InnerOuterPersistentParams) -> Iterator[Any]:
        """Inputs of columns in shared memory, with as many lanes a row and with half as many."""
        launch = params.lparams
        held = replace(params, columns_in_shared_memory=True, project_persistent_buffers=False)
        yield held
        yield replace(held, lparams=replace(launch, bdimx=max(1, launch.bdimx // 2)))
