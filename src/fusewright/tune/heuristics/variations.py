"""Changes that made many problems faster, independent of the params that they are applied to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fusewright.core.errors import ParamsError
from fusewright.schedulers import ReductionParams
from fusewright.tune.changes import Change, with_changes
from fusewright.tune.heuristic import AutotunerHeuristic
from fusewright.tune.problem import Problem

ROW_SUMS, COLUMN_SUMS = "sums of rows", "sums of columns"
#: By scheduler, or by what is summed: those that gained most beyond the ones before them on an H200, over the
#: problems that bench/tuning_problems.py lists and those that it drew four times, beside the formulas of
#: today. (Fitted to all draws but one, the best of them and of the formula is 0.3 to 2% nearer to the best of
#: that one's problems than with those fitted to the listed ones and half a draw.)
VARIATIONS: Mapping[str, tuple[Change, ...]] = {
    "inner_persistent": (
        Change({"persistent_in_shared_memory": True}),
        Change({"pad_inner_reduction_to_warp": False, "project_persistent_buffers": True}),
        Change({"pad_inner_reduction_to_warp": False, "keeps_inputs": True}),
        Change(
            {"pad_inner_reduction_to_warp": False, "streams_inputs": True},
            {"batches_per_block_inner_reduction": 2},
        ),
        Change({"pad_inner_reduction_to_warp": False}, {"batches_per_block_inner_reduction": 0.5}),
        Change({"pad_inner_reduction_to_warp": False, "streams_inputs": True}),
    ),
    "outer_persistent": (
        Change({"batches_per_block_inner_reduction": 16}, {"unroll_factor_iter_dom": 0.5}),
        Change({"batches_per_block_inner_reduction": 16}, {"lparams.bdimx": 0.5}),
        Change(
            {"project_persistent_buffers": False, "streams_inputs": True}, {"unroll_factor_iter_dom": 0.5}
        ),
        Change({"persistent_in_shared_memory": True}),
    ),
    "inner_outer_persistent": (
        Change({"project_persistent_buffers": False}),
        Change({"project_persistent_buffers": False, "columns_in_shared_memory": True}),
    ),
    "inner_outer": (
        Change({}, {"rows_per_block": 2}),
        Change({}, {"lparams.bdimy": 0.5, "unroll_factor": 2}),
    ),
    ROW_SUMS: (
        Change({"keeps_inputs": True, "unroll_factor_top_of_vectorization": 2}),
        Change({"shift_rows": True}),
        Change({"streams_inputs": True}),
        Change({}, {"unroll_factor_top_of_vectorization": 2}),
    ),
    COLUMN_SUMS: (
        Change({"keeps_inputs": True, "lparams.bdimx": 16}),
        Change({"keeps_inputs": True}, {"unroll_factor_inner_reduction": 0.5}),
        Change({}, {"lparams.gdimy": 0.5}),
        Change({}, {"lparams.bdimy": 2}),
        Change({}, {"unroll_factor_iter_dom": 0.5, "lparams.gdimy": 0.5}),
        Change({}, {"unroll_factor_iter_dom": 0.5}),
        Change({}, {"unroll_factor_iter_dom": 0.5, "lparams.gdimy": 2}),
        Change({"unroll_factor_inner_reduction": 8}),
    ),
    "transpose": (
        Change({"lparams.bdimx": 128}),
        Change({}, {"tile_size1": 0.5}),
        Change({}, {"lparams.bdimx": 0.5, "vectorize_factor2": 0.5}),
        Change({"lparams.bdimx": 128, "tile_size1": 64}),
        Change({}, {"tile_size2": 2}),
    ),
    "pointwise": (
        Change({"unroll_factor_inner": 2}),
        Change({"keeps_inputs": True, "lparams.bdimx": 64}, {"unroll_factor_inner": 4}),
        Change(
            {"keeps_inputs": True, "lparams.bdimx": 32, "unroll_factor_outer": 16, "vectorization_factor": 4}
        ),
        Change({"lparams.bdimx": 64}, {"unroll_factor_inner": 2}),
        Change({"lparams.bdimx": 64, "unroll_factor_inner": 4}),
        Change({"keeps_inputs": True, "lparams.bdimx": 256}),
    ),
}


class Variations(AutotunerHeuristic):
    """Proposes no seed, since the neighbours of the formula's params are tried next anyway."""

    name = "variations"

    def is_eligible(self, problem: Problem) -> bool | str:
        return _kind(problem.scheduler, problem.formula) in VARIATIONS or "none are known for this scheduler"

    def get_neighbors(self, problem: Problem, params: Any) -> Iterator[Any]:
        for change in VARIATIONS[_kind(problem.scheduler, params)]:
            try:
                yield with_changes(params, change.fields(params), problem.length)
            except ParamsError:  # a number that cannot be halved
                continue


def _kind(scheduler: str, params: Any) -> str:
    if scheduler == "reduction" and isinstance(params, ReductionParams):
        return ROW_SUMS if params.fastest_dim else COLUMN_SUMS
    return scheduler
