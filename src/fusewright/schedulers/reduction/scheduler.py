"""The reduction scheduler: reductions, and elementwise operations before and after them.

Inner (the contiguous dimension is reduced): a block reduces one or several rows,

    [I, R] -> [I blocks, I threads y, (R blocks y,) R threads x | serial, unroll, vector]

Outer: threads x lie along the contiguous dimension, threads y down the columns,

    [I, R] -> [I blocks, I threads x, (R blocks y,) R threads y | serial, unroll, I vector]

Tiles of columns are cut by `crossed_tiles`, rows of memory that are read as one by `joined_rows`,
or by `whole_rows` if each thread has whole ones.

The serial part is factored into partial results of each thread, which one collective then combines. Blocks
that share a reduction take turns along it, so that all of them read one stretch of memory at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from fusewright.core.enums import ParallelType, SchedulerType
from fusewright.core.hardware import HardwareInfo
from fusewright.ir.fusion import Fusion
from fusewright.ir.value import TensorView
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.base import (
    BuiltInScheduler,
    Facts,
    Part,
    Planner,
    Proposal,
    Reject,
    Rewrite,
    accepted,
    planner_of,
)
from fusewright.schedulers.io import cache_inputs_and_outputs, check_inputs, input_hint
from fusewright.schedulers.params import ReductionParams
from fusewright.schedulers.reduction.crossed_loads import (
    crossed_accesses,
    loads_down_columns,
    tiled_accesses,
    vectorize_down,
)
from fusewright.schedulers.reduction.crossed_tiles import reduce_tiles
from fusewright.schedulers.reduction.few_elements import elementwise_reductions
from fusewright.schedulers.reduction.heuristic import IndependentReductionPlanner
from fusewright.schedulers.reduction.joined_rows import join_rows
from fusewright.schedulers.reduction.loops import (
    bind_rows,
    check_rows,
    cut,
    dimensions_of_vectors,
    distribute,
    inline,
    merge_to_rows_and_reduction,
)
from fusewright.schedulers.reduction.short_runs import columns_first, crossed_first
from fusewright.schedulers.reduction.space import ReductionSpace, reduction_space
from fusewright.schedulers.reduction.split_rows import (
    is_split,
)
from fusewright.schedulers.reduction.variances import variance_of_short_rows
from fusewright.schedulers.reduction.whole_rows import reduce_whole_rows

# A kernel whose estimate is so many times the time of its bytes accesses what lies in other orders.
#   H200, sums of pairs along rows of a bf16 tensor whose memory has columns: 488 us where its bytes take 52.
SCATTERED = 2.0
_NOTHING_CROSSED = "where no input is contiguous along the columns"
_CROSSED_BY_INDEX = "where an index tensor selects what is contiguous along the columns"


class ReductionScheduler(BuiltInScheduler):
    """Accepts independent reductions whose results are not broadcast back."""

    type = SchedulerType.reduction
    params_type = ReductionParams
    fixed_params: ClassVar[Mapping[str, Any]] = {"persistent_kernel": False}

    def prepare(self, fusion: Fusion) -> Planner | Reject:
        return planner_of(IndependentReductionPlanner, fusion, _space(fusion))

    def apply(self, schedule: Schedule, params: ReductionParams) -> None:
        original = accepted(self, _space(schedule.fusion))
        check_rows(original, params)
        _check_split(original, params)
        if params.tiles_in_shared_memory:
            if not tiled_accesses(original):
                why = _CROSSED_BY_INDEX if crossed_accesses(original) else _NOTHING_CROSSED
                params.expect("tiles_in_shared_memory", False, why)
            reduce_tiles(schedule, params, original.read_once)
            return
        if params.vector_down_columns > 1 and not loads_down_columns(original):
            params.expect("vector_down_columns", 1, _NOTHING_CROSSED)
        check_inputs(schedule.fusion, params.unaligned_inputs, "unaligned_inputs")
        if params.joins_rows:
            cut_rows = reduce_whole_rows if params.has_whole_rows else join_rows
            cut_rows(schedule, params, original.read_once)
            return
        ports = cache_inputs_and_outputs(schedule, original.read_once, input_hint(params))
        space = accepted(self, reduction_space(schedule.fusion))
        inside = len(space.reduced_axes_inside) if params.schedule_3d else 0
        reference = merge_to_rows_and_reduction(schedule, space, inside)
        if params.schedule_3d:
            moved, width = _cut_split(schedule, reference, params), params.vector_widths[0]
        else:
            moved, width = cut(schedule, space, reference, params)
        through = dimensions_of_vectors(schedule, space, params)
        partials = distribute(
            schedule, space, reference, ports, moved, width, params.unaligned_inputs, through=through
        )
        if params.vector_down_columns > 1:
            vectorize_down(schedule, space, ports.loads)
        step = moved[1 if params.schedule_3d else 0]
        serial = () if params.schedule_3d or params.fastest_dim else moved
        inline(schedule, space, partials, width, load_position=step + 1, serial=serial)

    def propose_redefinition(self, part: Part, facts: Facts, hardware: HardwareInfo) -> Rewrite | None:
        """Two steps where memory has rows in short runs or inputs in several orders; variances of short rows
        by two sums; no reduction of a few elements.
        """
        planner = part.planner
        if not isinstance(planner, IndependentReductionPlanner):
            return None
        rewrite = columns_first(part, planner.space, facts) or crossed_first(part, planner.space, facts)
        rewrite = rewrite or variance_of_short_rows(part, planner.space, facts)
        if rewrite is not None:
            return rewrite
        alone = planner.reads_few(facts) or _is_scattered(planner(facts, hardware))
        return elementwise_reductions(part, alone)


def _is_scattered(proposal: Proposal) -> bool:
    """Whether a kernel accesses memory sectors many times, by its estimate."""
    cost = None if proposal.estimate is None else proposal.estimate()
    return cost is not None and cost.seconds > SCATTERED * cost.least_seconds


def _space(fusion: Fusion) -> ReductionSpace | str:
    """The space of a fusion that the scheduler takes, or why it does not."""
    space = reduction_space(fusion)
    if isinstance(space, str):
        return space
    for tensor in space.reductions:
        if tensor in space.after:
            return f"the reduction {tensor.name} depends on another reduction"
    for tensor, mapped in space.maps.items():
        if tensor not in space.after:
            continue
        for axis in space.reduction:
            if axis in mapped and not mapped[axis].is_broadcast and not mapped[axis].is_reduction:
                return f"{tensor.name} uses a reduced dimension again after the reduction"
    return space


def _check_split(space: ReductionSpace, params: ReductionParams) -> None:
    """Raises ParamsError for schedule_3d where no dimension lies between two that are reduced."""
    if params.schedule_3d and not is_split(space):
        params.expect("schedule_3d", False, "where all reduced dimensions are neighbours in memory")


def _cut_split(schedule: Schedule, tensor: TensorView, params: ReductionParams) -> list[int]:
    """[I, R outer, R inner] -> [BIDx, TIDy, (BIDy,) TIDx | serial, inner, unroll, vector].

    Threads x, the loop `inner` and vectors are of R inner; blocks y, the first loop and what is unrolled
    of R outer. Returns the positions after the bar.
    """
    schedule.split(tensor, 2, params.unroll_factor_inner_reduction)
    schedule.split(tensor, 2, params.lparams.bdimx)
    schedule.split(tensor, 1, params.unroll_factor_top_of_vectorization)
    # now [I, serial, unroll, serial inner, threads, vector]
    schedule.reorder(tensor, {4: 1, 1: 2, 3: 3, 2: 4})
    schedule.parallelize(tensor, 1, ParallelType.block_x)
    schedule.parallelize(tensor, 4, ParallelType.unroll)
    first = 2
    if params.cross_grid_inner_reduction:
        schedule.split(tensor, 2, params.lparams.gdimy)
        schedule.reorder(tensor, {3: 1})
        schedule.parallelize(tensor, 1, ParallelType.grid_y)
        first += 1
    bind_rows(schedule, tensor, params)
    first += params.multiple_reds_per_blk
    return list(range(first, first + 4))
