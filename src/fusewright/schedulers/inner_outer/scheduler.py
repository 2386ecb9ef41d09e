"""The inner-outer scheduler: reductions of rows and of columns of one domain, which is read once.

[I, R], where I is the rows and R the contiguous dimension, becomes

    [R blocks x, I blocks y, R threads z, I threads y | I steps, R threads x, I unroll, R vector]

A warp reads rows of its columns. Shuffles combine its threads' partial results of a row, and shared memory
holds the sum until the block has read all of its rows. A thread's partial column results stay in registers.
After the loop, grid reductions combine the partial results of blocks: of a row, across threads z and the
blocks along it; of a column, across threads y and the blocks down it. The block that started last computes
everything that depends on a result.

Each matrix of a batch is reduced by itself. The batch is one more loop in front of these, over blocks:

    [batch x, R blocks z, I blocks y, ..]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fusewright.core.enums import MemoryType, ParallelType, SchedulerType
from fusewright.core.errors import ParamsError
from fusewright.ir.fusion import Fusion
from fusewright.ir.value import TensorView
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.base import (
    BuiltInScheduler,
    Planner,
    Reject,
    accepted,
    planner_of,
)
from fusewright.schedulers.inner_outer.heuristic import InnerOuterPlanner
from fusewright.schedulers.inner_outer.space import InnerOuterSpace, Side, inner_outer_space
from fusewright.schedulers.io import (
    Ports,
    cache_inputs_and_outputs,
    inline_rest,
    input_hint,
    is_read_by_index,
    vectorize_ports,
)
from fusewright.schedulers.params import InnerOuterParams
from fusewright.schedulers.reduction.space import all_outputs

# What the loops inside a block are bound to; and those of a reduction's last step: what the steps before it
# have left of the reference's loops, or, along rows, [R threads z, I threads y, I threads x, I unroll].
_IN_A_BLOCK = (
    ParallelType.block_z,
    ParallelType.block_y,
    ParallelType.serial,
    ParallelType.block_x,
    ParallelType.unroll,
    ParallelType.serial,
)
_LAST_IN_A_BLOCK = (ParallelType.block_z, ParallelType.block_y, ParallelType.block_x, ParallelType.unroll)


class _Positions(NamedTuple):
    """The positions of the reference's loops, behind that of the batch."""

    blocks_x: int
    blocks_y: int
    threads_z: int
    threads_y: int
    steps: int
    threads_x: int
    unroll: int
    vector: int

    @classmethod
    def of(cls, space: InnerOuterSpace) -> _Positions:
        first = 1 if space.batch else 0
        return cls(*range(first, first + len(cls._fields)))


def _of_blocks(space: InnerOuterSpace) -> tuple[ParallelType, ...]:
    """What the loops over blocks are bound to. There may be more matrices than y or z of a grid allow."""
    if space.batch:
        return ParallelType.grid_x, ParallelType.grid_z, ParallelType.grid_y
    return ParallelType.grid_x, ParallelType.grid_y


class InnerOuterScheduler(BuiltInScheduler):
    """Accepts reductions of the rows, the columns, or all of one domain, and elementwise work around them."""

    type = SchedulerType.inner_outer
    params_type = InnerOuterParams
    # What reads a row again after its reduction belongs with that reduction, not with those of columns.
    merges_last = True

    def prepare(self, fusion: Fusion) -> Planner | Reject:
        return planner_of(InnerOuterPlanner, fusion, inner_outer_space(fusion))

    def apply(self, schedule: Schedule, params: InnerOuterParams) -> None:
        original = accepted(self, inner_outer_space(schedule.fusion))
        _assume_sizes(schedule, original, params)
        ports = cache_inputs_and_outputs(schedule, original.read_once, input_hint(params))
        space = accepted(self, inner_outer_space(schedule.fusion))
        _cut(schedule, space, params)
        schedule.transform_like(space.reference)
        at = _Positions.of(space)
        points = space.on(Side.points)
        early: list[TensorView] = []  # partial results of rows, which a warp combines a step at a time
        lead = None
        for tensor in space.reductions[Side.rows]:
            partial, inside = _reduce_rows(schedule, space, tensor, params)
            early.append(partial)
            points += inside
            lead = lead or partial
        for side, moved in (
            (Side.columns, (at.steps, at.unroll)),
            (Side.one, (at.steps, at.unroll, at.vector)),
        ):
            for tensor in space.reductions[side]:
                partial = schedule.rfactor(tensor, moved)
                points += partial.siblings
                lead = lead or partial
                _bind_last(schedule, space, tensor, space.on(side))
        assert lead is not None
        for position, kind in enumerate((*_of_blocks(space), *_IN_A_BLOCK)):
            schedule.parallelize(lead, position, kind)
        schedule.parallelize_like(lead, selected=[t for t in points if t is not lead])
        loads, stores = (
            tuple(tensor for tensor in ports_ if space.sides[tensor] is Side.points)
            for ports_ in (ports.loads, ports.stores)
        )
        vectorize_ports(schedule, Ports(loads, stores), params.vectorization_factor)
        if loads:
            schedule.inline_at(lead, at.steps + 1, best_effort=True, selected=loads)
            for load in loads if params.prefetch_rows else ():
                if not is_read_by_index(load):
                    schedule.prefetch(load)
        if early:
            schedule.inline_at(lead, at.unroll, best_effort=True, selected=all_outputs(early))
        inline_rest(schedule, {*loads, *all_outputs(early)})


def _assume_sizes(schedule: Schedule, space: InnerOuterSpace, params: InnerOuterParams) -> None:
    """The sizes that the params assume. ParamsError where the kernel cannot assume as many."""
    axes = space.sized_axes
    if len(params.assumed_sizes) not in (0, len(axes)):
        expected = f"() or ({', '.join(str(axis.extent) for axis in axes)})"
        raise ParamsError(path="assumed_sizes", expected=expected, given=params.assumed_sizes)
    for axis, size in zip(axes, params.assumed_sizes):
        schedule.assume(space.reference, space.reference.logical.index(axis), size, size)


def _cut(schedule: Schedule, space: InnerOuterSpace, params: InnerOuterParams) -> None:
    """[..] -> [R blocks, I blocks, R threads z, I threads y, I steps, R threads x, I unroll, R vector]; the
    batch comes first if there is one.
    """
    tensor = space.reference
    schedule.order_loops(tensor, [*space.axes])
    rows = 1 if space.batch else 0  # the positions of the dimensions, each merged into one
    columns = rows + 1
    for position, axes in ((0, space.batch), (rows, space.rows), (columns, space.columns)):
        for _ in axes[1:]:
            schedule.merge(tensor, position)
    schedule.split(tensor, columns, params.vectorization_factor)
    schedule.split(tensor, columns, params.lparams.bdimx)
    schedule.split(tensor, columns, params.lparams.bdimz)
    schedule.split(tensor, rows, params.rows_per_block)
    schedule.split(tensor, rows + 1, params.lparams.bdimy)
    schedule.split(tensor, rows + 1, params.unroll_factor)
    # now [I blocks, I steps, I unroll, I threads y, R blocks, R threads z, R threads x, R vector]
    at = _Positions.of(space)
    places = (
        *(at.blocks_y, at.steps, at.unroll, at.threads_y),
        *(at.blocks_x, at.threads_z, at.threads_x, at.vector),
    )
    schedule.reorder(tensor, {rows + i: place for i, place in enumerate(places)})


def _reduce_rows(
    schedule: Schedule, space: InnerOuterSpace, tensor: TensorView, params: InnerOuterParams
) -> tuple[TensorView, list[TensorView]]:
    """A reduction of rows in three steps: in a thread, in a warp, and across the blocks along a row.

    Returns the partial result of a thread, and all tensors of the first two steps.
    """
    at = _Positions.of(space)
    partial = schedule.rfactor(tensor, [at.vector])
    of_warp = schedule.rfactor(tensor, [at.threads_x])
    inside = [*partial.siblings, *of_warp.siblings]
    for each in of_warp.siblings:
        held = schedule.cache_after(each)
        schedule.transform_like(each, [held])
        schedule.set_memory_type(held, MemoryType.shared)
        schedule.store_along(held, [at.steps, at.steps + 1, at.threads_y, at.threads_z])  # row by row
        inside.append(held)
    # [R blocks, I blocks, R threads z, I threads y, I steps, I unroll] -> [.., rows of a block]
    rows = at.threads_y
    schedule.reorder(tensor, {rows: rows + 2})
    schedule.merge(tensor, rows)
    schedule.merge(tensor, rows)
    schedule.split(tensor, rows, params.rows_per_thread)
    schedule.split(tensor, rows, params.lparams.bdimx)
    results = space.on(Side.rows)
    schedule.transform_like(tensor, [t for t in results if t is not tensor])
    _bind_last(schedule, space, tensor, results)
    return partial, inside


def _bind_last(
    schedule: Schedule, space: InnerOuterSpace, tensor: TensorView, results: Sequence[TensorView]
) -> None:
    """Binds the loops of a reduction's last step, and those of what is computed with it alike."""
    for position, kind in zip(range(len(tensor.loop)), (*_of_blocks(space), *_LAST_IN_A_BLOCK)):
        schedule.parallelize(tensor, position, kind)
    others = [each for each in results if each is not tensor]
    if others:
        schedule.parallelize_like(tensor, selected=others)
