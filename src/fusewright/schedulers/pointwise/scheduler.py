"""The pointwise scheduler: every output element is computed independently.

One output is the reference. Its dimensions, in memory order, are merged to one axis (or to rows and columns)
and split as

    [N] -> [blocks, unroll, threads, vector]

and every other tensor is transformed in the same way. Loads are inlined left of the unrolled axis, so that
all of a thread's loads are in flight before the first use. All other tensors are inlined at their uses.
"""

from __future__ import annotations

from fusewright.core.enums import ParallelType, SchedulerType
from fusewright.core.errors import ParamsError
from fusewright.core.hardware import MAX_GRID
from fusewright.ir.fusion import Fusion
from fusewright.ir.value import TensorView
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.base import BuiltInScheduler, Planner, Reject, accepted, planner_of
from fusewright.schedulers.io import (
    cache_inputs_and_outputs,
    check_inputs,
    inline_rest,
    input_hint,
    vectorize_ports,
)
from fusewright.schedulers.params import PointwiseParams
from fusewright.schedulers.pointwise.blocks import THREADS
from fusewright.schedulers.pointwise.divided_sizes import divided_sizes, size_dimensions
from fusewright.schedulers.pointwise.heuristic import PointwisePlanner
from fusewright.schedulers.pointwise.space import (
    PointwiseSpace,
    iteration_order,
    pointwise_space,
    reference_tensor,
)


class PointwiseScheduler(BuiltInScheduler):
    """Accepts fusions without reductions in which all tensors have the dimensions of one output."""

    type = SchedulerType.pointwise
    params_type = PointwiseParams

    def prepare(self, fusion: Fusion) -> Planner | Reject:
        return planner_of(PointwisePlanner, fusion, pointwise_space(fusion))

    def apply(self, schedule: Schedule, params: PointwiseParams) -> None:
        space = accepted(self, pointwise_space(schedule.fusion))
        _check_break_point(space, params)
        check_inputs(schedule.fusion, params.unaligned_inputs, "unaligned_inputs")
        _check_picked(space, schedule.fusion, params)
        _assume_sizes(schedule, space, params)
        merged = _merge_for_vectors(schedule, space, params)
        full = space.read_in_full(schedule.fusion) if params.keeps_inputs else ()
        ports = cache_inputs_and_outputs(schedule, full, input_hint(params))
        reference = reference_tensor(schedule.fusion)
        assert reference is not None
        unrolled = _transform(schedule, reference, params)
        schedule.transform_like(reference)
        schedule.parallelize_like(reference)
        width, unaligned = params.vectorization_factor, params.unaligned_inputs
        vectorize_ports(schedule, ports, width, merged, unaligned, params.keeps_aligned, params.picked_inputs)
        if ports.loads:
            schedule.inline_at(reference, unrolled, best_effort=True, selected=ports.loads)
        inline_rest(schedule, ports.loads)


def _check_break_point(space: PointwiseSpace, params: PointwiseParams) -> None:
    last = max(0, len(space.axes) - 1)
    params.require(params.break_point <= last, "break_point", f"0 to {last} for {space.reference.name}")


def _check_picked(space: PointwiseSpace, fusion: Fusion, params: PointwiseParams) -> None:
    """Raises ParamsError for positions of inputs that no load reads backward or in steps."""
    check_inputs(fusion, params.picked_inputs, "picked_inputs")
    stepped = {access.tensor for access in space.accesses(fusion) if access.stepped}
    for i, position in enumerate(params.picked_inputs):
        if fusion.inputs[position] not in stepped:
            expected = "the position of an input that is read backward or every n-th element"
            raise ParamsError(path=f"picked_inputs[{i}]", expected=expected, given=position)


def _assume_sizes(schedule: Schedule, space: PointwiseSpace, params: PointwiseParams) -> None:
    """The sizes that the params assume.

    Raises:
        ParamsError: the kernel divides by other sizes than so many.
    """
    if not params.assumed_sizes:
        return
    sizes = divided_sizes(schedule.fusion, space, params.break_point)
    listed = f"() or ({', '.join(map(str, sizes))})" if sizes else "(), as the kernel divides by no size"
    params.require(len(sizes) == len(params.assumed_sizes), "assumed_sizes", listed)
    dimensions = size_dimensions(schedule.fusion)
    for symbol, size in zip(sizes, params.assumed_sizes):
        schedule.assume(*dimensions[symbol], size, size)


def _merge_for_vectors(schedule: Schedule, space: PointwiseSpace, params: PointwiseParams) -> int:
    """How many dimensions vectors go through as one; the width divides the size of the outermost.

    Raises:
        ParamsError: the reference has no such dimension. ScheduleError: its size cannot be such a multiple.
    """
    dim = params.vectorized_dim
    if params.shift_rows:
        reason = f"False, as {space.reference.name} is stored by index"
        params.require(not space.reference.is_placed, "shift_rows", reason)
        return max(1, sum(not axis.is_broadcast for axis in space.axes[params.break_point :]))
    if dim == -1:
        return 1
    lanes = [axis for axis in space.axes[dim:] if not axis.is_broadcast]
    is_outside = len(lanes) > 1 and lanes[0] is space.axes[dim] and not space.reference.is_placed
    expected = f"-1, or a dimension of {space.reference.name} outside of the innermost"
    params.require(is_outside, "vectorized_dim", expected)
    position = space.reference.logical.index(space.axes[dim])
    schedule.assume_multiple(space.reference, position, params.vectorization_factor)
    return len(lanes)


def _transform(schedule: Schedule, reference: TensorView, params: PointwiseParams) -> int:
    """Cuts and binds the reference's loops; returns the position of the first unrolled one."""
    order = {reference.loop.index(axis): i for i, axis in enumerate(iteration_order(reference))}
    if any(old != new for old, new in order.items()):
        schedule.reorder(reference, order)
    rank = len(reference.loop)
    left = params.break_point
    for _ in range(rank - left - 1):
        schedule.merge(reference, left)
    for _ in range(left - 1):
        schedule.merge(reference, 0)
    threads = params.lparams.bdimx if params.lparams.bdimx > 0 else THREADS
    if rank == 0:
        return 0
    # columns: [.., C] -> [.., blocks, unroll, threads, vector]
    if params.shift_rows:
        schedule.shifted_split(reference, -1, params.vectorization_factor, reference)
    else:
        schedule.split(reference, -1, params.vectorization_factor)
    schedule.split(reference, -2, threads)
    schedule.split(reference, -3, params.unroll_factor_inner)
    if not left:
        schedule.parallelize(reference, 0, ParallelType.grid_x)
        schedule.parallelize(reference, 1, ParallelType.unroll)
        schedule.parallelize(reference, 2, ParallelType.block_x)
        return 1
    # rows: [R, blocks, ..] -> [row blocks, column blocks, row unroll, unroll, (row threads,) threads, vector]
    row_threads = max(1, params.lparams.bdimy)
    if row_threads > 1:
        schedule.split(reference, 0, row_threads)
        schedule.reorder(reference, {1: 3})
        schedule.parallelize(reference, 3, ParallelType.block_y)
    schedule.split(reference, 0, params.unroll_factor_outer)
    schedule.reorder(reference, {1: 2})
    rows, columns = ParallelType.grid_y, ParallelType.grid_x
    if params.flip_grid_binding:
        rows, columns = columns, rows
    first = 0
    if params.split_grid_y_dim and not params.flip_grid_binding:
        schedule.split(reference, 0, MAX_GRID[1])
        schedule.parallelize(reference, 0, ParallelType.grid_z)
        first = 1
    schedule.parallelize(reference, first, rows)
    schedule.parallelize(reference, first + 1, columns)
    schedule.parallelize(reference, first + 2, ParallelType.unroll)
    schedule.parallelize(reference, first + 3, ParallelType.unroll)
    schedule.parallelize(reference, first + 4 + (row_threads > 1), ParallelType.block_x)
    return first + 2
