"""Rows that are reduced and scanned: a block holds its rows in registers, like rows that are only reduced.

    [I, R] -> [I blocks, I threads y, R batches, R threads x, vector]

Batches are outside of the threads, so that the loops go through a row in the order of its elements. Threads
scan all batches together (`lower.scans`). A longer row is swept once for each reduction that depends on
another, and once more (`two_sweeps`), and its scans are carried from step to step:

    [I, R] -> [I blocks, I threads y, R steps, unroll, R threads x, vector]
"""

from __future__ import annotations

from math import prod

from fusewright.core.enums import ParallelType
from fusewright.ir.value import TensorView
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.params import ReductionParams
from fusewright.schedulers.persistent.held_length import HeldLength
from fusewright.schedulers.reduction.loops import bind_rows, split_into_vectors
from fusewright.schedulers.reduction.space import ReductionSpace


def check_scanned(space: ReductionSpace, params: ReductionParams) -> None:
    """Raises ParamsError for params that rows which are scanned do not take."""
    if not space.scans:
        return
    where = "where rows are scanned"
    if not params.holds_batches:
        params.expect("sweeps_backward", False, where)
        params.expect("persistent_blocks", 0, where)
    params.expect("persistent_in_shared_memory", False, where)
    params.expect("blocks_per_cluster", 1, where)
    params.expect("unroll_factor_iter_dom", 1, where)
    params.expect("staged_vector", 0, where)
    params.require(params.lparams.gdimy <= 1, "lparams.gdimy", f"1 {where}")


def cut_in_order(
    schedule: Schedule,
    tensor: TensorView,
    params: ReductionParams,
    length: HeldLength,
    space: ReductionSpace,
) -> list[int]:
    """[I, R] -> [BIDx, TIDy, batches, TIDx, vector]; returns the positions of the loops of a thread."""
    split_into_vectors(schedule, space, tensor, params)
    if length.sizes:
        # All threads have an element of all batches but the last, which alone has a guard.
        schedule.split(tensor, -2, length.threads_needed(prod(length.sizes)))
    else:
        # batches is constant, so that registers hold them; the threads follow from the size of the row
        schedule.split(tensor, -2, params.batches_per_block_inner_reduction, inner_split=False)
    schedule.parallelize(tensor, -2, ParallelType.block_x, length.step)
    schedule.parallelize(tensor, -3, ParallelType.unroll)
    if space.iteration:
        bind_rows(schedule, tensor, params)
    end = len(tensor.loop)
    return [end - 3, end - 1]


def cut_steps_in_order(
    schedule: Schedule, space: ReductionSpace, tensor: TensorView, params: ReductionParams
) -> tuple[list[int], int]:
    """[I, R] -> [BIDx, TIDy, steps, unroll, TIDx, vector]; returns the positions of the loops of a thread,
    and the elements of a vector.
    """
    split_into_vectors(schedule, space, tensor, params)
    schedule.split(tensor, -2, params.lparams.bdimx)
    schedule.split(tensor, -3, params.unroll_factor_top_of_vectorization)
    schedule.parallelize(tensor, -2, ParallelType.block_x, params.padded_threads)
    schedule.parallelize(tensor, -3, ParallelType.unroll)
    if space.iteration:
        bind_rows(schedule, tensor, params)
    end = len(tensor.loop)
    return [end - 4, end - 3, end - 1], params.vector_widths[0]
