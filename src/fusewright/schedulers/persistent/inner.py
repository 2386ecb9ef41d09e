"""The inner persistent scheduler: normalizations along the contiguous dimension, in one pass over memory.

A block holds its row (or rows) while reductions over it complete, and then uses it again:

    [I, R] -> [I blocks, I threads y, R blocks of a cluster, R threads x | batches, vector]

The held tensors are those that are read before and after a reduction (analyze.persistent). They are held in
registers or in shared memory. A row that is too long for both is loaded again for each use. The blocks of a
cluster share long rows, or few rows (`clustered_rows`). Other long rows of one input are copied ahead,
through a ring of chunks in shared memory (`streamed_rows`).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, ClassVar

from fusewright.core.enums import ParallelType, SchedulerType
from fusewright.core.hardware import KIB, HardwareInfo
from fusewright.ir.fusion import Fusion
from fusewright.ir.value import TensorView
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.base import (
    BuiltInScheduler,
    Facts,
    Part,
    Planner,
    Reject,
    Rewrite,
    accepted,
    planner_of,
)
from fusewright.schedulers.io import cache_inputs_and_outputs, check_inputs, input_hint
from fusewright.schedulers.params import ReductionParams
from fusewright.schedulers.persistent.held_length import HeldLength
from fusewright.schedulers.persistent.held_rows import (
    held_tensors,
    hold_in_shared,
    recompute,
    row_grows_too_much,
    softmax_in_one_pass,
)
from fusewright.schedulers.persistent.held_scans import check_scanned, cut_in_order
from fusewright.schedulers.persistent.inner_heuristic import InnerPersistentPlanner
from fusewright.schedulers.persistent.loads_ahead import check_loads_ahead
from fusewright.schedulers.persistent.staged_rows import (
    bind_staged_rows,
    check_staged,
    cut_along,
    inline_staged_loads,
    lay_side_by_side,
    stage,
)
from fusewright.schedulers.persistent.streamed_rows import stream_rows
from fusewright.schedulers.persistent.two_sweeps import sweep
from fusewright.schedulers.reduction.few_elements import elementwise_reductions
from fusewright.schedulers.reduction.loops import (
    all_reduce,
    bind_rows,
    check_rows,
    dimensions_of_vectors,
    distribute,
    inline,
    inline_row_results,
    merge_to_rows_and_reduction,
    share_across_rows,
    split_into_vectors,
)
from fusewright.schedulers.reduction.short_runs import columns_first
from fusewright.schedulers.reduction.space import ReductionSpace, reduction_space
from fusewright.schedulers.reduction.variances import variance_in_two_passes

# Bytes of a row from which on one pass computes its maximum and its sum of exponentials.
#   H200, bf16 rows, of a copy's speed: up to 0.06 slower for 128 to 16384 elements, up to 0.13 faster for
#   24576 and more.
MIN_ONE_PASS_BYTES = 40 * KIB


class InnerPersistentScheduler(BuiltInScheduler):
    """Accepts reductions along memory whose results are used with the reduced dimension again."""

    type = SchedulerType.inner_persistent
    params_type = ReductionParams
    fixed_params: ClassVar[Mapping[str, Any]] = {"persistent_kernel": True, "fastest_dim": True}

    def prepare(self, fusion: Fusion) -> Planner | Reject:
        return planner_of(InnerPersistentPlanner, fusion, _space(fusion))

    def apply(self, schedule: Schedule, params: ReductionParams) -> None:
        original = accepted(self, _space(schedule.fusion))
        check_rows(original, params)
        check_inputs(schedule.fusion, params.unaligned_inputs, "unaligned_inputs")
        check_staged(original, params)
        check_scanned(original, params)
        check_loads_ahead(original, params)
        if params.circular_stages:
            stream_rows(schedule, params, original.read_once)
            return
        if not params.holds_batches:
            sweep(schedule, params)
            return
        length = _length_of(params)
        length.check(original)
        ports = cache_inputs_and_outputs(schedule, original.read_once, input_hint(params))
        space = accepted(self, reduction_space(schedule.fusion, with_scans=True))
        along: list[TensorView] = []
        if params.staged_vector:
            along = stage(schedule, ports, space)
            space = accepted(self, reduction_space(schedule.fusion))
        reference = merge_to_rows_and_reduction(schedule, space)
        length.assume(schedule, space)
        if params.whole_blocks:
            rows = reference.logical.index(space.iteration[-1])
            schedule.assume_multiple(reference, rows, params.lparams.bdimy * params.rows_in_flight)
        if along:
            lay_side_by_side(schedule, reference, along, space, params)
        cut = cut_in_order if space.scans else _cut
        moved = cut(schedule, reference, params, length, space)
        position = moved[0]
        if params.rows_in_flight > 1:
            position -= 1
        width = params.unroll_factor_inner_reduction if params.vectorize_inner_reduction else 1
        through = dimensions_of_vectors(schedule, space, params)
        partials = distribute(
            schedule, space, reference, ports, moved, width, params.unaligned_inputs, along, through
        )
        if along:
            cut_along(schedule, along, space, params)
        if params.cross_grid_inner_reduction:
            all_reduce(schedule, space)
        # Once loops are bound, what is computed anew takes those of what it stands for.
        project = params.project_persistent_buffers
        recompute(schedule, space, everything=project)
        if params.persistent_in_shared_memory:
            held = held_tensors(schedule.fusion, space)
            hold_in_shared(schedule, held, first=position if params.persistent_blocks else 0)
        several = params.rows_in_flight > 1
        if several and not along:
            placed = share_across_rows(schedule, partials, position)
        else:
            placed = [] if several else inline_row_results(schedule, partials[0], position)
        placed += inline_staged_loads(schedule, along)
        ahead = original.read_late if params.loads_ahead else ()
        inline(schedule, space, partials, width, position, placed=placed, side_by_side=several, ahead=ahead)

    def propose_redefinition(self, part: Part, facts: Facts, hardware: HardwareInfo) -> Rewrite | None:
        """Two sums in place of Welford's steps: cheaper for a row that is held, dearer for one read again.

        Columns first where memory has rows in runs so short that sectors are read in part.

        One reduction of a long row in place of two: for short ones it is dearer. Of a few elements, none.
        """
        planner = part.planner
        rewrite = None
        if isinstance(planner, InnerPersistentPlanner) and not planner.space.scans:
            rewrite = columns_first(part, planner.space, facts)
        rewrite = rewrite or variance_in_two_passes(part)
        if (
            rewrite is None
            and isinstance(planner, InnerPersistentPlanner)
            and planner.row_bytes(facts) >= MIN_ONE_PASS_BYTES
        ):
            rewrite = softmax_in_one_pass(part)
        return rewrite or elementwise_reductions(part)


def _space(fusion: Fusion) -> ReductionSpace | str:
    """The space of a fusion that the scheduler takes, or why it does not."""
    space = reduction_space(fusion, with_scans=True)
    if isinstance(space, str):
        return space
    if not space.is_inner:
        main = space.main.tensor if space.main is not None else space.reference
        return f"the contiguous dimension of {main.name} is not reduced"
    if not (space.after or space.scans):
        return "nothing uses the result of the reduction"
    if row_grows_too_much(fusion):
        return "a row that is not held would be computed anew for each of too many reductions"
    return space


def _length_of(params: ReductionParams) -> HeldLength:
    """Returns how the threads of a row cover it, if it is held."""
    return HeldLength(
        what="rows",
        path="lparams.bdimx",
        threads=params.lparams.bdimx,
        elements=params.elements_a_thread,
        step=params.threads_step,
        sizes=params.assumed_reduction_sizes,
        before=params.places_before,
    )


def _cut(
    schedule: Schedule,
    tensor: TensorView,
    params: ReductionParams,
    length: HeldLength,
    space: ReductionSpace,
) -> list[int]:
    """[I, R] -> [BIDx, TIDy, cluster or BIDy, TIDx | batches, vector], without the axis of one block.

    Returns the positions after the bar.
    """
    split_into_vectors(schedule, space, tensor, params)
    batches, cluster = params.batches_per_block_inner_reduction, params.blocks_per_cluster
    blocks = max(cluster, params.lparams.gdimy)
    if length.sizes:
        # All threads have an element of all batches but the last, which alone has a guard.
        schedule.split(tensor, -2, length.threads_needed(prod(length.sizes)) * blocks)
    else:
        # batches is constant, so that registers hold them; the threads follow from the size of the row
        schedule.split(tensor, -2, batches, inner_split=False)
    schedule.reorder(tensor, {-2: -3})
    if blocks > 1:
        schedule.split(tensor, -3, blocks, inner_split=False)
        schedule.parallelize(tensor, -4, ParallelType.cluster_x if cluster > 1 else ParallelType.grid_y)
    schedule.parallelize(tensor, -3, ParallelType.block_x, length.step)
    if space.iteration:
        if params.staged_vector:
            bind_staged_rows(schedule, tensor, serial=2)
        else:
            bind_rows(schedule, tensor, params, serial=2)
    end = len(tensor.loop)
    return [end - 2, end - 1]
