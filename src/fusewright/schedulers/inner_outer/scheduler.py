"""The inner-outer scheduler: reductions of rows and of columns of one domain, which is read once.

[I, R], where I is the rows and R the contiguous dimension, becomes

    [R blocks x, I blocks y, R threads z, I threads y | I steps, R threads x, I unroll, R vector]

A warp reads rows of its columns. Shuffles combine its threads' partial results of a row, and shared memory
holds the sum until the block has read all of its rows. A thread's partial column results stay in registers.
After the loop, grid reductions combine the partial results of blocks: of a row, across threads z and the
blocks along it; of a column, across threads y and the blocks down it. The block that started last computes
everything that depends on a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fusewright.core.enums import MemoryType, ParallelType, SchedulerType
from fusewright.core.errors import ParamsError
from fusewright.core.hardware import WARP_SIZE, HardwareInfo
from fusewright.core.once import cached_property
from fusewright.ir.fusion import Fusion
from fusewright.ir.value import TensorView
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.base import (
    BuiltInScheduler,
    Facts,
    Planner,
    Proposal,
    Reject,
    accepted,
    planner_of,
)
from fusewright.schedulers.cost import CostModel, busy_share
from fusewright.schedulers.inner_outer.space import InnerOuterSpace, Side, inner_outer_space
from fusewright.schedulers.io import Ports, cache_inputs_and_outputs, inline_rest, input_hint, vectorize_ports
from fusewright.schedulers.params import InnerOuterParams, LaunchParams
from fusewright.schedulers.sectors import Sectors
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_least, power_of_two_at_most
from fusewright.schedulers.vector_limits import VectorLimits
from fusewright.sym import as_int

# ---- blocks ----

# Threads of a block: eight warps, of which an SM holds enough blocks to be full.
BLOCK = 256
# Blocks for each SM: all of them resident, with half of its threads or more.
BLOCKS_AN_SM = 4
# The same if threads share rows with others of their block, and have more bytes of results of columns than
# this: such threads take more than 64 registers, so that fewer blocks are resident.
#   H200, seven shapes of bf16 from 738x10456 to 6648x4160, which would have 440 to 528 blocks, of which 396
#   are resident: 0.79 to 0.92 of the time in half as many.
FEWER_BLOCKS_AN_SM = 3  # blocks
FEW_COLUMN_BYTES = 16  # of results of a thread
# Threads of the one block of an SM, which leaves a quarter of the partial results, where each thread reads so
# many vectors or more, and has no more bytes than this for a row and for a column.
#   H200, bf16: 32768x1024 takes 0.85 of the time, 16384x4096 0.94; but 2554x11072, of 26 vectors, 1.04.
WHOLE_SM_BLOCK = 1024  # threads
WHOLE_SM_VECTORS = 30  # of a thread
WHOLE_SM_STATE_BYTES = 4  # of a row, and of a column
# Bytes of shared memory for such a block's results of rows, and for what its threads exchange.
WHOLE_SM_SHARED_BYTES = 128 * 1024
# Threads of each of half as many blocks, where a row has one warp of a block, and an SM's threads have so
# many vectors each.
#   H200, bf16: 60000x512 takes 0.78 of the time, 39054x576 0.83, 20000x1024 0.92, 9287x2072 and 6000x3072
#   0.98, 5913x3968 1.02.
HALF_SM_BLOCK = 512  # threads
HALF_SM_VECTORS = 16  # of an SM's thread

# ---- threads ----

# Bytes that a thread has in flight, and rows of them at most.
BYTES_IN_FLIGHT = 64  # of a thread
MAX_ROWS_IN_FLIGHT = 8  # of a thread
# Bytes of a thread's registers that hold what its columns have come to, at most.
COLUMN_BYTES = 256
# Bytes of shared memory that may hold results of rows: few of an SM's for each of its blocks.
HELD_BYTES = 16 * 1024
# Partial results of a row that one thread combines at most, while all others wait.
MAX_PARTIALS = 32
# Share of a copy's speed that reading alone reaches.
SPEED = 0.9

# Loop positions of the reference, and what they are bound to.
_BLOCKS_X, _BLOCKS_Y, _THREADS_Z, _THREADS_Y, _STEPS, _THREADS_X, _UNROLL, _VECTOR = range(8)
_BINDINGS = (
    ParallelType.grid_x,
    ParallelType.grid_y,
    ParallelType.block_z,
    ParallelType.block_y,
    ParallelType.serial,
    ParallelType.block_x,
    ParallelType.unroll,
    ParallelType.serial,
)
# The same of a reduction's last step: what the steps before it have left of the reference's loops, or, along
# rows, [R blocks, I blocks, R threads, I threads y, I threads x, I unroll].
_LAST_BINDINGS = (*_BINDINGS[:_STEPS], ParallelType.block_x, ParallelType.unroll)


class InnerOuterScheduler(BuiltInScheduler):
    """Accepts reductions of the rows, the columns, or all of one domain, and elementwise work around them."""

    type = SchedulerType.inner_outer
    params_type = InnerOuterParams
    # What reads a row again after its reduction belongs with that reduction, not with those of columns.
    merges_last = True

    def prepare(self, fusion: Fusion) -> Planner | Reject:
        return planner_of(_Planner, fusion, inner_outer_space(fusion))

    def apply(self, schedule: Schedule, params: InnerOuterParams) -> None:
        original = accepted(self, inner_outer_space(schedule.fusion))
        _assume_sizes(schedule, original, params)
        ports = cache_inputs_and_outputs(schedule, original.read_once, input_hint(params))
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
                points += partial.siblings
                lead = lead or partial
                _bind_last(schedule, tensor, space.on(side))
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
            for load in loads if params.prefetch_rows else ():
                schedule.prefetch(load)
        if early:
            schedule.inline_at(lead, _UNROLL, best_effort=True, selected=_all_outputs(early))
        inline_rest(schedule, {*loads, *_all_outputs(early)})


def _assume_sizes(schedule: Schedule, space: InnerOuterSpace, params: InnerOuterParams) -> None:
    """The sizes that the params assume. ParamsError where the kernel cannot assume as many."""
    axes = (*space.rows, *space.columns)
    if len(params.assumed_sizes) not in (0, len(axes)):
        expected = f"() or ({', '.join(str(axis.extent) for axis in axes)})"
        raise ParamsError(path="assumed_sizes", expected=expected, given=params.assumed_sizes)
    for axis, size in zip(axes, params.assumed_sizes):
        schedule.assume(space.reference, space.reference.logical.index(axis), size, size)


def _cut(schedule: Schedule, space: InnerOuterSpace, params: InnerOuterParams) -> None:
    """[..] -> [R blocks, I blocks, R threads z, I threads y, I steps, R threads x, I unroll, R vector]."""
    tensor = space.reference
    schedule.order_loops(tensor, [*space.rows, *space.columns])
    for _ in range(len(space.columns) - 1):
        schedule.merge(tensor, len(space.rows))
    for _ in range(len(space.rows) - 1):
        schedule.merge(tensor, 0)
    schedule.split(tensor, 1, params.vectorization_factor)
    schedule.split(tensor, 1, params.lparams.bdimx)
    schedule.split(tensor, 1, params.lparams.bdimz)
    schedule.split(tensor, 0, params.rows_per_block)
    schedule.split(tensor, 1, params.lparams.bdimy)
    schedule.split(tensor, 1, params.unroll_factor)
    # now [I blocks, I steps, I unroll, I threads y, R blocks, R threads z, R threads x, R vector]
    places = (_BLOCKS_Y, _STEPS, _UNROLL, _THREADS_Y, _BLOCKS_X, _THREADS_Z, _THREADS_X, _VECTOR)
    schedule.reorder(tensor, dict(enumerate(places)))


def _reduce_rows(
    schedule: Schedule, space: InnerOuterSpace, tensor: TensorView, params: InnerOuterParams
) -> tuple[TensorView, list[TensorView]]:
    """A reduction of rows in three steps: in a thread, in a warp, and across the blocks along a row.

    Returns the partial result of a thread, and all tensors of the first two steps.
    """
    partial = schedule.rfactor(tensor, [_VECTOR])
    of_warp = schedule.rfactor(tensor, [_THREADS_X])
    inside = [*partial.siblings, *of_warp.siblings]
    for each in of_warp.siblings:
        held = schedule.cache_after(each)
        schedule.transform_like(each, [held])
        schedule.set_memory_type(held, MemoryType.shared)
        schedule.store_along(held, [_STEPS, _STEPS + 1, _THREADS_Y, _THREADS_Z])  # row by row
        inside.append(held)
    # [R blocks, I blocks, R threads z, I threads y, I steps, I unroll] -> [.., rows of a block]
    schedule.reorder(tensor, {_THREADS_Y: _STEPS + 1})
    schedule.merge(tensor, _THREADS_Y)
    schedule.merge(tensor, _THREADS_Y)
    schedule.split(tensor, _THREADS_Y, params.rows_per_thread)
    schedule.split(tensor, _THREADS_Y, params.lparams.bdimx)
    results = space.on(Side.rows)
    schedule.transform_like(tensor, [t for t in results if t is not tensor])
    _bind_last(schedule, tensor, results)
    return partial, inside


def _bind_last(schedule: Schedule, tensor: TensorView, results: Sequence[TensorView]) -> None:
    """Binds the loops of a reduction's last step, and those of what is computed with it alike."""
    for position in range(len(tensor.loop)):
        schedule.parallelize(tensor, position, _LAST_BINDINGS[position])
    others = [each for each in results if each is not tensor]
    if others:
        schedule.parallelize_like(tensor, selected=others)


def _all_outputs(tensors: Sequence[TensorView]) -> list[TensorView]:
    return [out for tensor in tensors for out in tensor.siblings]


@dataclass(frozen=True, eq=False)
class _Planner:
    """Derives params from the sizes of a call."""

    fusion: Fusion
    space: InnerOuterSpace

    @cached_property
    def _cost(self) -> CostModel:
        space = self.space
        axes = (*space.rows, *space.columns)
        return CostModel(self.fusion, Sectors.along(self.fusion, (*space.loads, *space.stores), axes))

    @cached_property
    def _vectors(self) -> VectorLimits | None:
        return self.space.vector_limits(self.fusion)

    @cached_property
    def _element_bytes(self) -> int:
        """The bytes of an element of all loads of every point."""
        return sum(a.tensor.dtype.size for a in self.space.loads if self.space.is_full(a))

    def _state_bytes(self, side: Side) -> int:
        """Returns the bytes of the results of one row or column, before they are complete."""
        reductions = self.space.reductions[side]
        return sum(out.dtype.size for tensor in reductions for out in tensor.siblings)

    def __call__(self, facts: Facts, hardware: HardwareInfo) -> Proposal | Reject:
        rows, columns = self.space.row_count(facts), self.space.column_count(facts)
        width = self._vectors.width(facts) if self._vectors is not None else 1
        width = min(width, power_of_two_at_most(COLUMN_BYTES // max(1, self._state_bytes(Side.columns))))
        params = self._params(rows, columns, width, hardware)
        along = ceil_div(columns, params.columns_per_block)
        if along > MAX_PARTIALS * params.lparams.bdimz:
            return Reject(
                f"rows of {columns} are spread over {along} blocks, whose results one has to combine"
            )
        stores = any(self.space.is_full(access) for access in self.space.stores)
        if not stores and self._cost.streams(facts, hardware):
            params = replace(params, streams_inputs=True)
        if self._are_stable(facts):
            axes = (*self.space.rows, *self.space.columns)
            sizes = tuple(facts.value(axis.extent) for axis in axes)
            reason = f"{params.reason}; for these sizes only"
            # Registers that guards and addresses leave.
            ahead = params.rows_per_block > params.rows_in_flight
            params = replace(params, assumed_sizes=sizes, prefetch_rows=ahead, reason=reason)
        blocks = along * ceil_div(rows, params.rows_per_block)
        speed = SPEED * busy_share(blocks, hardware)
        return Proposal(params, self._cost.estimate(facts, hardware, speed=speed))

    def _are_stable(self, facts: Facts) -> bool:
        """Whether to take the sizes as constants: else half of the instructions are guards and addresses."""
        extents = [axis.extent for axis in (*self.space.rows, *self.space.columns)]
        unknown = {size for size in extents if as_int(size) is None}
        return bool(unknown) and facts.stable.issuperset(unknown) and all(map(facts.value, extents))

    def _block(
        self, rows: int, vectors: int, threads_x: int, width: int, hardware: HardwareInfo
    ) -> tuple[int, int, int]:
        """Returns the threads of a block, for rows of so many vectors; the number of parts of a row that lie
        side by side in it; and the number of blocks that there are to be.
        """
        of_thread = rows * vectors // (WHOLE_SM_BLOCK * hardware.sm_count)
        fits = WARP_SIZE <= vectors <= WHOLE_SM_BLOCK * hardware.sm_count
        fits = fits and hardware.shared_memory_per_block_optin >= WHOLE_SM_SHARED_BYTES
        fits = fits and all(
            self._state_bytes(side) <= WHOLE_SM_STATE_BYTES for side in (Side.rows, Side.columns, Side.one)
        )
        block = WHOLE_SM_BLOCK if fits and of_thread >= WHOLE_SM_VECTORS else BLOCK
        blocks = BLOCKS_AN_SM * BLOCK // block * hardware.sm_count
        threads_z = _threads_along_a_row(ceil_div(vectors, threads_x), block // threads_x, blocks)
        if block == BLOCK and threads_z == 1 and fits and of_thread >= HALF_SM_VECTORS:
            block, blocks = HALF_SM_BLOCK, BLOCKS_AN_SM * BLOCK // HALF_SM_BLOCK * hardware.sm_count
        elif block == BLOCK and threads_z > 1 and width * self._state_bytes(Side.columns) > FEW_COLUMN_BYTES:
            blocks = FEWER_BLOCKS_AN_SM * hardware.sm_count
        return block, threads_z, blocks

    def _params(self, rows: int, columns: int, width: int, hardware: HardwareInfo) -> InnerOuterParams:
        vectors = max(1, ceil_div(columns, width))
        threads_x = min(WARP_SIZE, power_of_two_at_least(vectors))
        block, threads_z, blocks = self._block(rows, vectors, threads_x, width, hardware)
        warps = block // threads_x
        threads_y = min(warps // threads_z, power_of_two_at_least(max(1, rows)))
        in_flight = BYTES_IN_FLIGHT // max(1, width * self._element_bytes)
        unroll = power_of_two_at_most(max(1, min(MAX_ROWS_IN_FLIGHT, in_flight, rows // threads_y)))
        step = threads_y * unroll
        wanted = max(1, blocks // ceil_div(vectors, threads_x * threads_z))
        # All blocks are resident: a second turn of a few takes as long as the first (an H200: 6000 x 3072
        # bfloat16 in 0.82 of the time). A power of two, as each number is a kernel of its own, unless that
        # left SMs idle.
        steps = ceil_div(rows, wanted * step)
        per_block = step * (steps if block == WHOLE_SM_BLOCK else power_of_two_at_least(steps))
        places = threads_z if block == WHOLE_SM_BLOCK else 1
        room = HELD_BYTES * block // (BLOCK * places)
        held = power_of_two_at_most(room // max(1, self._state_bytes(Side.rows)))
        per_block = max(step, min(per_block, held))
        in_all = ceil_div(vectors, threads_x * threads_z) * ceil_div(rows, per_block)
        if width > 1 and 2 * in_all <= hardware.sm_count:
            width //= 2  # twice the blocks. H200: 512x768 bf16 takes 0.90 of the time.
        return InnerOuterParams(
            vectorization_factor=width,
            unroll_factor=unroll,
            rows_per_block=per_block,
            lparams=LaunchParams(bdimx=threads_x, bdimy=threads_y, bdimz=threads_z),
            reason=f"{rows} rows of {columns}: {threads_x} x {threads_z} threads of {width} columns, "
            f"{threads_y} down the columns with {unroll} rows in flight, {per_block} rows a block",
        )


def _threads_along_a_row(parts: int, warps: int, blocks: int) -> int:
    """Returns how many of a block's warps lie side by side along a row, which takes `parts` of them.

    The choice leaves a thread the fewest partial results to combine, of a row and of a column together, if
    there are so many blocks.
    """

    def left(along: int) -> float:
        blocks_along = parts / along
        blocks_down = blocks / blocks_along
        return blocks_along / along + blocks_down * along / warps

    choices = [1 << n for n in range(warps.bit_length()) if 1 << n <= min(warps, parts)]
    return min(choices, key=left)
