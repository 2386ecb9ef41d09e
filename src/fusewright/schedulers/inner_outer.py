"""The inner-outer scheduler: reductions of rows and of columns of one domain, which is read once.

[I, R], rows and what is contiguous, becomes

    [R blocks x, I blocks y, I threads y | I steps, R threads x, I unroll, R vector]

A warp reads rows of its columns. What it sums of a row, shuffles combine and shared memory holds, for the rows
of a block, until all are read. What a thread sums of its columns stays in registers. Behind the loop two grid
reductions combine what blocks have found: of a row, across the blocks along it; of a column, across the threads
and the blocks down it. What is computed with the results follows in the last block to arrive at each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from fusewright.core.enums import MemoryType, ParallelType, SchedulerType
from fusewright.core.hardware import WARP_SIZE, HardwareInfo
from fusewright.ir.fusion import Fusion
from fusewright.ir.value import TensorView
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.base import Facts, Planner, Proposal, Reject, accepted, check_start
from fusewright.schedulers.cost import CostModel, busy_share
from fusewright.schedulers.inner_outer_space import InnerOuterSpace, Side, inner_outer_space
from fusewright.schedulers.io import (
    Ports,
    VectorLimits,
    cache_inputs_and_outputs,
    inline_rest,
    vectorize_ports,
)
from fusewright.schedulers.params import InnerOuterParams, LaunchParams
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_least, power_of_two_at_most

# Threads of a block: eight warps, of which an SM holds enough blocks to be full.
BLOCK = 256
# Bytes that a thread has in flight, in as many rows.
BYTES_IN_FLIGHT = 64
MAX_ROWS_IN_FLIGHT = 8
# Blocks for each SM: all of them resident, with half of its threads or more.
BLOCKS_A_SM = 4
# Shared memory that may hold results of rows: few of an SM's bytes for each of its blocks.
HELD_BYTES = 16 * 1024
# Registers of a thread that hold what its columns have come to, at most.
COLUMN_BYTES = 256
# Of a copy's speed, what reading alone reaches.
SPEED = 0.9

# Loop positions of the reference, and what they are bound to.
_BLOCKS_X, _BLOCKS_Y, _THREADS_Y, _STEPS, _THREADS_X, _UNROLL, _VECTOR = range(7)
_BINDINGS = (
    ParallelType.grid_x,
    ParallelType.grid_y,
    ParallelType.block_y,
    ParallelType.serial,
    ParallelType.block_x,
    ParallelType.unroll,
    ParallelType.serial,
)


class InnerOuterScheduler:
    """Accepts reductions that reduce the rows, the columns, or all of one domain, and work on their results."""

    type = SchedulerType.inner_outer
    params_type = InnerOuterParams

    def prepare(self, fusion: Fusion) -> Planner | Reject:
        space = inner_outer_space(fusion)
        return Reject(space) if isinstance(space, str) else _Planner(fusion, space)

    def apply(self, schedule: Schedule, params: InnerOuterParams) -> None:
        check_start(self, schedule, params)
        accepted(self, inner_outer_space(schedule.fusion))
        params.validate()
        ports = cache_inputs_and_outputs(schedule)
        space = accepted(self, inner_outer_space(schedule.fusion))
        _cut(schedule, space, params)
        schedule.transform_like(space.reference)
        points = space.on(Side.points)
        early: list[TensorView] = []  # partial results of rows, which a warp combines a step at a time
        lead = None
        for tensor in space.reductions[Side.rows]:
            partial, inside = _reduce_rows(schedule, space, tensor, params)
            early.append(partial)
            points += inside
            lead = lead or partial
        for side, moved in ((Side.columns, (_STEPS, _UNROLL)), (Side.one, (_STEPS, _UNROLL, _VECTOR))):
            for tensor in space.reductions[side]:
                partial = schedule.rfactor(tensor, moved)
                points += _siblings(partial)
                lead = lead or partial
                _bind(schedule, tensor, space.on(side), _FINAL_BINDINGS[side])
        assert lead is not None
        for position, kind in enumerate(_BINDINGS):
            schedule.parallelize(lead, position, kind)
        schedule.parallelize_like(lead, selected=[t for t in points if t is not lead])
        loads, stores = (
            tuple(tensor for tensor in ports_ if space.sides[tensor] is Side.points)
            for ports_ in (ports.loads, ports.stores)
        )
        vectorize_ports(schedule, Ports(loads, stores), params.vectorization_factor)
        if loads:
            schedule.inline_at(lead, _STEPS + 1, best_effort=True, selected=loads)
        if early:
            schedule.inline_at(lead, _UNROLL, best_effort=True, selected=_all_outputs(early))
        inline_rest(schedule, {*loads, *_all_outputs(early)})


_FINAL_BINDINGS = {
    # [R blocks, I blocks, I threads, threads, unroll] -> what is left of the reference's loops
    Side.columns: (
        ParallelType.grid_x,
        ParallelType.grid_y,
        ParallelType.block_y,
        ParallelType.block_x,
        ParallelType.unroll,
    ),
    Side.one: (ParallelType.grid_x, ParallelType.grid_y, ParallelType.block_y, ParallelType.block_x),
    Side.rows: (
        ParallelType.grid_x,
        ParallelType.grid_y,
        ParallelType.block_y,
        ParallelType.block_x,
        ParallelType.unroll,
    ),
}


def _cut(schedule: Schedule, space: InnerOuterSpace, params: InnerOuterParams) -> None:
    """[..] -> [R blocks, I blocks, I threads, I steps, R threads, I unroll, R vector] on the reference."""
    tensor = space.reference
    order = [*space.rows, *space.columns]
    positions = {tensor.loop.index(axis): i for i, axis in enumerate(order)}
    if any(old != new for old, new in positions.items()):
        schedule.reorder(tensor, positions)
    for _ in range(len(space.columns) - 1):
        schedule.merge(tensor, len(space.rows))
    for _ in range(len(space.rows) - 1):
        schedule.merge(tensor, 0)
    schedule.split(tensor, 1, params.vectorization_factor)
    schedule.split(tensor, 1, params.lparams.bdimx)
    schedule.split(tensor, 0, params.rows_per_block)
    schedule.split(tensor, 1, params.lparams.bdimy)
    schedule.split(tensor, 1, params.unroll_factor)
    # now [I blocks, I steps, I unroll, I threads, R blocks, R threads, R vector]
    schedule.reorder(
        tensor, {0: _BLOCKS_Y, 1: _STEPS, 2: _UNROLL, 3: _THREADS_Y, 4: _BLOCKS_X, 5: _THREADS_X, 6: _VECTOR}
    )


def _reduce_rows(
    schedule: Schedule, space: InnerOuterSpace, tensor: TensorView, params: InnerOuterParams
) -> tuple[TensorView, list[TensorView]]:
    """A reduction of rows in three steps: in a thread, in a warp, and across the blocks along a row.

    Returns the partial result of a thread, and all tensors of the first two steps.
    """
    partial = schedule.rfactor(tensor, [_VECTOR])
    of_warp = schedule.rfactor(tensor, [_THREADS_X])
    inside = [*_siblings(partial), *_siblings(of_warp)]
    for each in _siblings(of_warp):
        held = schedule.cache_after(each)
        schedule.transform_like(of_warp, [held])
        schedule.set_memory_type(held, MemoryType.shared)
        schedule.store_along(held, [_STEPS, _STEPS + 1, _THREADS_Y])  # steps, unroll, threads
        inside.append(held)
    # [R blocks, I blocks, I threads, I steps, I unroll] -> [R blocks, I blocks, rows of a block]
    schedule.reorder(tensor, {_THREADS_Y: _STEPS + 1})
    schedule.merge(tensor, _THREADS_Y)
    schedule.merge(tensor, _THREADS_Y)
    schedule.split(tensor, _THREADS_Y, params.rows_per_thread)
    schedule.split(tensor, _THREADS_Y, params.lparams.bdimx)
    results = space.on(Side.rows)
    schedule.transform_like(tensor, [t for t in results if t is not tensor])
    _bind(schedule, tensor, results, _FINAL_BINDINGS[Side.rows])
    return partial, inside


def _bind(
    schedule: Schedule, tensor: TensorView, results: Sequence[TensorView], kinds: Sequence[ParallelType]
) -> None:
    """Binds the loops of a reduction's last step, and those of what is computed with it alike."""
    for position, kind in enumerate(kinds):
        schedule.parallelize(tensor, position, kind)
    others = [each for each in results if each is not tensor]
    if others:
        schedule.parallelize_like(tensor, selected=others)


def _siblings(tensor: TensorView) -> list[TensorView]:
    """All outputs of the node that computes `tensor`."""
    assert tensor.definition is not None
    return [out for out in tensor.definition.outputs if isinstance(out, TensorView)]


def _all_outputs(tensors: Sequence[TensorView]) -> list[TensorView]:
    return [out for tensor in tensors for out in _siblings(tensor)]


@dataclass(frozen=True, eq=False)
class _Planner:
    """Derives params from the sizes of a call."""

    fusion: Fusion
    space: InnerOuterSpace

    @cached_property
    def _cost(self) -> CostModel:
        return CostModel(self.fusion)

    @cached_property
    def _vectors(self) -> VectorLimits | None:
        return self.space.vector_limits(self.fusion)

    @cached_property
    def _element_bytes(self) -> int:
        """Of all loads of every point."""
        return sum(a.tensor.dtype.size for a in self.space.loads if self.space.is_full(a))

    def _state_bytes(self, side: Side) -> int:
        """Of the results of one row or column, before they are complete."""
        reductions = self.space.reductions[side]
        return sum(out.dtype.size for tensor in reductions for out in _siblings(tensor))

    def __call__(self, facts: Facts, hardware: HardwareInfo) -> Proposal:
        rows, columns = self.space.row_count(facts), self.space.column_count(facts)
        width = self._vectors.width(facts) if self._vectors is not None else 1
        width = min(width, power_of_two_at_most(COLUMN_BYTES // max(1, self._state_bytes(Side.columns))))
        params = self._params(rows, columns, width, hardware)
        blocks = ceil_div(columns, params.lparams.bdimx * width) * ceil_div(rows, params.rows_per_block)
        speed = SPEED * busy_share(blocks, hardware)
        return Proposal(params, self._cost.estimate(facts, hardware, speed=speed))

    def _params(self, rows: int, columns: int, width: int, hardware: HardwareInfo) -> InnerOuterParams:
        vectors = max(1, ceil_div(columns, width))
        threads_x = min(WARP_SIZE, power_of_two_at_least(vectors))
        threads_y = min(BLOCK // threads_x, power_of_two_at_least(max(1, rows)))
        in_flight = BYTES_IN_FLIGHT // max(1, width * self._element_bytes)
        unroll = max(1, min(MAX_ROWS_IN_FLIGHT, in_flight, rows // threads_y))
        unroll = power_of_two_at_most(unroll)
        step = threads_y * unroll
        wanted = max(1, BLOCKS_A_SM * hardware.sm_count // ceil_div(vectors, threads_x))
        # A power of two, as each number is a kernel of its own.
        per_block = step * power_of_two_at_most(max(1, rows // (wanted * step)))
        held = power_of_two_at_most(HELD_BYTES // max(1, self._state_bytes(Side.rows)))
        per_block = max(step, min(per_block, held))
        return InnerOuterParams(
            vectorization_factor=width,
            unroll_factor=unroll,
            rows_per_block=per_block,
            lparams=LaunchParams(bdimx=threads_x, bdimy=threads_y),
            reason=f"{rows} rows of {columns}: {threads_x} threads of {width} columns, {threads_y} down the "
            f"columns with {unroll} rows in flight, {per_block} rows a block",
        )
