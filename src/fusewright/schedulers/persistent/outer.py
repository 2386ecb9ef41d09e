"""The outer persistent scheduler: normalizations along dimensions that are not contiguous.

It makes one pass over memory. A block holds a tile of columns while reductions down them complete, and uses
it again,

    [I, R] -> [I blocks, R threads y, I threads x | batches, I vector]

I is the kept dimensions, the contiguous one innermost. The tile is held in registers or in shared memory;
columns that are too long for both are left to other schedulers.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
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
    Reject,
    Rewrite,
    accepted,
    planner_of,
)
from fusewright.schedulers.io import cache_inputs_and_outputs, input_hint
from fusewright.schedulers.params import ReductionParams
from fusewright.schedulers.persistent.held_length import (
    HeldLength,
)
from fusewright.schedulers.persistent.held_rows import (
    grows_too_much,
    held_tensors,
    hold_in_shared,
    recompute,
    softmax_in_one_pass,
)
from fusewright.schedulers.persistent.loads_ahead import check_loads_ahead
from fusewright.schedulers.persistent.outer_heuristic import OuterPersistentPlanner
from fusewright.schedulers.persistent.two_sweeps import sweep
from fusewright.schedulers.reduction.few_elements import elementwise_reductions
from fusewright.schedulers.reduction.loops import distribute, inline, merge_to_rows_and_reduction
from fusewright.schedulers.reduction.space import ReductionSpace, reduction_space
from fusewright.schedulers.reduction.variances import variance_in_two_passes


class OuterPersistentScheduler(BuiltInScheduler):
    """Accepts reductions across memory whose results are used with the reduced dimension again."""

    type = SchedulerType.outer_persistent
    params_type = ReductionParams
    fixed_params: ClassVar[Mapping[str, Any]] = {"persistent_kernel": True, "fastest_dim": False}

    def prepare(self, fusion: Fusion) -> Planner | Reject:
        return planner_of(OuterPersistentPlanner, fusion, _space(fusion))

    def apply(self, schedule: Schedule, params: ReductionParams) -> None:
        original = accepted(self, _space(schedule.fusion))
        if not params.holds_batches:
            sweep(schedule, params)
            return
        length = _length_of(params)
        length.check(original)
        check_loads_ahead(original, params)
        ports = cache_inputs_and_outputs(schedule, original.read_once, input_hint(params))
        space = accepted(self, reduction_space(schedule.fusion))
        reference = merge_to_rows_and_reduction(schedule, space)
        length.assume(schedule, space)
        batches = _cut(schedule, reference, params, length)
        width = params.unroll_factor_iter_dom if params.vectorize_iter_dom else 1
        runs = params.unroll_factor_inner_reduction > 1
        moved = [batches, batches + 1] if runs else [batches]
        partials = distribute(schedule, space, reference, ports, moved, width)
        # Once loops are bound, what is computed anew takes those of what it stands for.
        project = params.project_persistent_buffers
        recompute(schedule, space, everything=project)
        if params.persistent_in_shared_memory:
            hold_in_shared(schedule, held_tensors(schedule.fusion, space), first=batches)
        ahead = original.read_late if params.loads_ahead else ()
        inline(schedule, space, partials, width, batches, serial=moved if runs else (), ahead=ahead)

    def propose_redefinition(self, part: Part, facts: Facts, hardware: HardwareInfo) -> Rewrite | None:
        """Two sums in place of Welford's steps; one exchange in place of two where blocks share columns; no
        reduction where it is of a few elements.
        """
        planner = part.planner
        shared = isinstance(planner, OuterPersistentPlanner) and planner.shares_columns(facts, hardware)
        return (
            variance_in_two_passes(part) or softmax_in_one_pass(part, shared) or elementwise_reductions(part)
        )


def _space(fusion: Fusion) -> ReductionSpace | str:
    """The space of a fusion that the scheduler takes, or why it does not."""
    space = reduction_space(fusion)
    if isinstance(space, str):
        return space
    if space.is_inner or not space.iteration:
        main = space.main.tensor if space.main is not None else space.reference
        return f"the contiguous dimension of {main.name} is reduced"
    if not space.after:
        return "nothing uses the result of the reduction"
    if grows_too_much(fusion):
        return "what follows from the inputs would be computed anew for each of too many reductions"
    return space


def _length_of(params: ReductionParams) -> HeldLength:
    """Returns how the threads down the columns cover them: blocks are whole warps."""
    return HeldLength(
        what="columns",
        path="lparams.bdimy",
        threads=params.lparams.bdimy,
        elements=params.elements_a_thread,
        step=params.threads_step,
        sizes=params.assumed_reduction_sizes,
        turn=params.blocks_per_cluster,
    )


def _cut(schedule: Schedule, tensor: TensorView, params: ReductionParams, length: HeldLength) -> int:
    """[I, R] -> [I BIDx, (I TIDz,) (R cluster,) R TIDy, I TIDx | R batches (, R in flight) | I vector].

    Returns the position of the batches.
    """
    threads = length.threads_needed(prod(length.sizes)) if length.sizes else length.threads
    cluster = params.blocks_per_cluster
    if threads > 0:
        # All threads have a row of all batches but the last, which alone has a guard.
        schedule.split(tensor, 1, threads * cluster)
    else:
        # batches is constant, so that registers hold them; the threads follow from the size of the column
        schedule.split(tensor, 1, params.batches_per_block_inner_reduction, inner_split=False)
    schedule.split(tensor, 0, params.unroll_factor_iter_dom)
    schedule.split(tensor, 0, params.lparams.bdimx)
    # now [I blocks, I threads, I vector, R batches, R threads]
    schedule.reorder(tensor, {1: 2, 2: 4, 3: 3, 4: 1})
    first = 1
    if params.lparams.bdimz > 1:
        schedule.split(tensor, 0, params.lparams.bdimz)
        schedule.parallelize(tensor, first, ParallelType.block_z)
        first += 1
    schedule.parallelize(tensor, 0, ParallelType.grid_x)
    if cluster > 1:
        schedule.split(tensor, first, cluster, inner_split=False)
        schedule.parallelize(tensor, first, ParallelType.cluster_x)
        first += 1
    schedule.parallelize(tensor, first, ParallelType.block_y, length.step)
    schedule.parallelize(tensor, first + 1, ParallelType.block_x)
    if params.unroll_factor_iter_dom > 1:
        schedule.parallelize(tensor, first + 3, ParallelType.unroll)
    if params.unroll_factor_inner_reduction > 1:
        schedule.split(tensor, first + 2, params.unroll_factor_inner_reduction)
        schedule.parallelize(tensor, first + 3, ParallelType.unroll)
    return first + 2
