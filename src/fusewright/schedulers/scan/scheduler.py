"""The scan scheduler: scans along one dimension, and elementwise operations before and after them.

Inner (the scanned dimension is contiguous): threads go through a row in steps, and a carry runs along,

    [I, S] -> [I blocks, I threads y, S serial, unroll, S threads x, vector]

Outer: threads x lie along the contiguous dimension, threads y down the scanned one,

    [I, S] -> [I blocks, I threads x, S serial, S threads y, unroll, I vector]

A kernel takes rows of any length. If there are too few rows for the GPU, blocks y share a row: they take each
step together and exchange their totals before the next one,

    [I, S] -> [I blocks, I threads y, S serial, S blocks y, unroll, S threads x, vector]
"""

from __future__ import annotations

from fusewright.core.enums import ParallelType, SchedulerType
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Copy
from fusewright.ir.value import TensorView
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.base import BuiltInScheduler, Planner, Reject, accepted, planner_of
from fusewright.schedulers.io import cache_inputs_and_outputs, check_inputs, inline_rest, vectorize_ports
from fusewright.schedulers.params import ScanParams
from fusewright.schedulers.scan.heuristic import ScanPlanner
from fusewright.schedulers.scan.space import ScanSpace, scan_space


class ScanScheduler(BuiltInScheduler):
    """Accepts fusions of elementwise operations and scans along one dimension of all of their tensors."""

    type = SchedulerType.scan
    params_type = ScanParams

    def prepare(self, fusion: Fusion) -> Planner | Reject:
        return planner_of(ScanPlanner, fusion, scan_space(fusion))

    def apply(self, schedule: Schedule, params: ScanParams) -> None:
        original = accepted(self, scan_space(schedule.fusion))
        if not original.iteration:
            _check_single_row(params)
        check_inputs(schedule.fusion, params.unaligned_inputs, "unaligned_inputs")
        ports = cache_inputs_and_outputs(schedule)
        space = accepted(self, scan_space(schedule.fusion))
        reference = _merge_to_rows(schedule, space)
        cut = _cut_inner if params.fastest_dim else _cut_outer
        if params.shift_rows and space.aligned is not None:
            schedule.shifted_split(reference, -1, params.vectorization_factor, space.aligned.tensor)
        elif params.fastest_dim:
            schedule.split(reference, -1, params.vectorization_factor)
        unrolled = cut(schedule, reference, params, bool(space.iteration))
        schedule.transform_like(reference)
        schedule.parallelize_like(reference)
        vectorize_ports(schedule, ports, params.vectorization_factor, unaligned=params.unaligned_inputs)
        if ports.loads:
            schedule.inline_at(reference, unrolled, best_effort=True, selected=ports.loads)
        if params.prefetches_steps:
            for load in ports.loads:
                if load.inline_at == unrolled and isinstance(load.definition, Copy):
                    schedule.prefetch(load)
        inline_rest(schedule, ports.loads)


def _check_single_row(params: ScanParams) -> None:
    """Raises ParamsError for params that need rows where there is one dimension."""
    where = "where there is no other dimension than the scanned one"
    params.expect("fastest_dim", True, where)
    params.require(params.lparams.bdimy == 1, "lparams.bdimy", f"1 {where}")


def _merge_to_rows(schedule: Schedule, space: ScanSpace) -> TensorView:
    """[..] -> [I, S] on the reference, the rows merged in memory order; S alone if they have one point."""
    reference = space.reference
    schedule.order_loops(reference, [*space.iteration, space.scanned, *space.points])
    # Not all tensors have the dimensions of one point; those that do loop like the others.
    for _ in space.points:
        schedule.merge(reference, 0)
    for _ in range(len(space.iteration) - 1):
        schedule.merge(reference, 0)
    return reference


def _cut_inner(schedule: Schedule, tensor: TensorView, params: ScanParams, has_rows: bool) -> int:
    """[I, S, vector] -> [BIDx, TIDy, serial, (BIDy,) unroll, TIDx, vector]; returns the position of the
    unrolled axis.
    """
    schedule.split(tensor, -2, params.lparams.bdimx)
    schedule.split(tensor, -3, params.unroll_factor)
    schedule.parallelize(tensor, -2, ParallelType.block_x)
    schedule.parallelize(tensor, -3, ParallelType.unroll)
    if params.lparams.gdimy > 1:
        schedule.split(tensor, -4, params.lparams.gdimy)
        schedule.parallelize(tensor, -4, ParallelType.grid_y)
    if has_rows:
        schedule.split(tensor, 0, params.lparams.bdimy)
        schedule.parallelize(tensor, 0, ParallelType.grid_x)
        schedule.parallelize(tensor, 1, ParallelType.block_y)
    return len(tensor.loop) - 3


def _cut_outer(schedule: Schedule, tensor: TensorView, params: ScanParams, has_rows: bool) -> int:
    """[I, S] -> [BIDx, TIDx, serial, (BIDy,) (TIDy,) unroll, vector]; returns the unrolled axis' position."""
    schedule.split(tensor, 1, params.unroll_factor)
    schedule.parallelize(tensor, 2, ParallelType.unroll)
    if params.lparams.bdimy > 1:
        schedule.split(tensor, 1, params.lparams.bdimy)
        schedule.parallelize(tensor, 2, ParallelType.block_y)
    if params.lparams.gdimy > 1:
        schedule.split(tensor, 1, params.lparams.gdimy)
        schedule.parallelize(tensor, 2, ParallelType.grid_y)
    schedule.split(tensor, 0, params.vectorization_factor)
    schedule.split(tensor, 0, params.lparams.bdimx)
    schedule.reorder(tensor, {2: len(tensor.loop) - 1})
    schedule.parallelize(tensor, 0, ParallelType.grid_x)
    schedule.parallelize(tensor, 1, ParallelType.block_x)
    if params.vectorization_factor > 1:
        schedule.parallelize(tensor, -1, ParallelType.unroll)
    return len(tensor.loop) - 2
