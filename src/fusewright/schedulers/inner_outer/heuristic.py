"""Chooses params of the inner-outer scheduler: the threads and rows of a block, and the number of blocks.

For a batch of matrices, `batches` chooses them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fusewright.core.hardware import WARP_SIZE, HardwareInfo
from fusewright.core.once import cached_property
from fusewright.ir.fusion import Fusion
from fusewright.schedulers.base import Facts, Proposal, Reject
from fusewright.schedulers.cost import CostModel, busy_share, copy_seconds
from fusewright.schedulers.inner_outer.batches import (
    BYTES_IN_FLIGHT,
    MAX_PARTIALS,
    MAX_ROWS_IN_FLIGHT,
    Matrices,
    best_tile,
)
from fusewright.schedulers.inner_outer.space import InnerOuterSpace, Side
from fusewright.schedulers.params import InnerOuterParams, LaunchParams
from fusewright.schedulers.params.inner_outer import MAX_ROWS_PER_BLOCK
from fusewright.schedulers.sectors import Sectors
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_least, power_of_two_at_most
from fusewright.schedulers.slots import slots_of
from fusewright.schedulers.vector_limits import VectorLimits
from fusewright.sym import Expr, as_int

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

# Bytes of a thread's registers that hold what its columns have come to, at most.
COLUMN_BYTES = 256
# Bytes of shared memory that may hold results of rows: few of an SM's for each of its blocks.
HELD_BYTES = 16 * 1024
# Share of a copy's speed that reading alone reaches.
SPEED = 0.9


@dataclass(frozen=True, eq=False)
class InnerOuterPlanner:
    """Derives params from the sizes of a call."""

    fusion: Fusion
    space: InnerOuterSpace

    @cached_property
    def _cost(self) -> CostModel:
        space = self.space
        return CostModel(self.fusion, Sectors.along(self.fusion, (*space.loads, *space.stores), space.axes))

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
        if self.space.batch:
            return self._of_batch(rows, columns, width, facts, hardware)
        params = self._params(rows, columns, width, hardware)
        along = ceil_div(columns, params.columns_per_block)
        if along > MAX_PARTIALS * params.lparams.bdimz:
            return Reject(
                f"rows of {columns} are spread over {along} blocks, whose results one has to combine"
            )
        params = self._for_call(params, facts, hardware)
        if params.assumed_sizes:
            # In registers that guards and addresses leave.
            params = replace(params, prefetch_rows=params.rows_per_block > params.rows_in_flight)
        blocks = along * ceil_div(rows, params.rows_per_block)
        speed = SPEED * busy_share(blocks, hardware)
        return Proposal(params, self._cost.estimate(facts, hardware, speed=speed))

    def _for_call(self, params: InnerOuterParams, facts: Facts, hardware: HardwareInfo) -> InnerOuterParams:
        """Returns the params with hints for the caches, and with sizes as constants if they are stable."""
        stores = any(self.space.is_full(access) for access in self.space.stores)
        if not stores and self._cost.streams(facts, hardware):
            params = replace(params, streams_inputs=True)
        if self._are_stable(facts):
            sizes = tuple(facts.value(axis.extent) for axis in self.space.sized_axes)
            reason = f"{params.reason}; for these sizes only"
            params = replace(params, assumed_sizes=sizes, reason=reason)
        return params

    @cached_property
    def _unknown(self) -> frozenset[Expr]:
        """The sizes of rows and columns that only a call determines."""
        extents = [axis.extent for axis in self.space.sized_axes]
        return frozenset(size for size in extents if as_int(size) is None)

    def _are_stable(self, facts: Facts) -> bool:
        """Whether to take the sizes as constants: else half of the instructions are guards and addresses."""
        extents = [axis.extent for axis in self.space.sized_axes]
        return (
            bool(self._unknown) and facts.stable.issuperset(self._unknown) and all(map(facts.value, extents))
        )

    def _of_batch(
        self, rows: int, columns: int, width: int, facts: Facts, hardware: HardwareInfo
    ) -> Proposal | Reject:
        """Returns the proposal for matrices each of which is reduced by itself.

        Their sizes are constants: with others, blocks would not know that they share nothing, and write what
        each has to memory, which for small matrices is more than they read.
        """
        if self._unknown and not self._are_stable(facts):
            return Reject("its matrices, of which there is a batch, are of other sizes in other calls")
        reductions = {tensor.definition for tensor in self.space.reductions[Side.rows]}
        matrices = Matrices(
            self.space.batch_count(facts),
            rows,
            columns,
            width,
            max(1, self._element_bytes),
            self._state_bytes(Side.rows),
            self._state_bytes(Side.columns),
            sum(slots_of(node) for node in reductions if node is not None),
            self._cost.computing_seconds(facts, hardware),
        )
        tile = best_tile(matrices, hardware)
        if tile is None or not matrices.points:
            return Reject(f"no block has rows of {matrices.count} matrices of {rows} x {columns}")
        params = InnerOuterParams(
            vectorization_factor=width,
            unroll_factor=tile.unroll,
            rows_per_block=tile.rows,
            lparams=LaunchParams(bdimx=tile.x, bdimy=tile.y, bdimz=tile.z),
            prefetch_rows=tile.loads_ahead(hardware),
            reason=f"matrices of {rows} rows of {columns}: {tile.x} x {tile.z} threads of {width} columns, "
            f"{tile.y} down the columns with {tile.unroll} rows in flight, {tile.rows} rows a block",
        )
        moving = copy_seconds(matrices.points * matrices.element_bytes, hardware)
        estimate = self._cost.estimate(
            facts,
            hardware,
            speed=SPEED * moving / tile.reading_seconds(hardware),
            steps=tile.exchanging_seconds(hardware),
            accessing=tile.shuffling_seconds(hardware) + tile.waiting_seconds(hardware),
        )
        return Proposal(self._for_call(params, facts, hardware), estimate)

    def _block(
        self, rows: int, vectors: int, threads_x: int, width: int, hardware: HardwareInfo
    ) -> tuple[int, int, int]:
        """Returns the threads of a block, for rows of so many vectors; the number of parts of a row that lie
        side by side in it; and the number of blocks that there are to be.
        """
        of_thread = rows * vectors // (WHOLE_SM_BLOCK * hardware.sm_count)
        may_be_larger = self._may_be_larger(vectors, hardware)
        block = WHOLE_SM_BLOCK if may_be_larger and of_thread >= WHOLE_SM_VECTORS else BLOCK
        blocks = BLOCKS_AN_SM * BLOCK // block * hardware.sm_count
        threads_z = _threads_along_a_row(ceil_div(vectors, threads_x), block // threads_x, blocks)
        if block == WHOLE_SM_BLOCK:
            return block, threads_z, blocks
        many_column_bytes = width * self._state_bytes(Side.columns) > FEW_COLUMN_BYTES
        if threads_z == 1 and may_be_larger and of_thread >= HALF_SM_VECTORS:
            block, blocks = HALF_SM_BLOCK, BLOCKS_AN_SM * BLOCK // HALF_SM_BLOCK * hardware.sm_count
        elif threads_z > 1 and many_column_bytes:
            blocks = FEWER_BLOCKS_AN_SM * hardware.sm_count
        return block, threads_z, blocks

    def _may_be_larger(self, vectors: int, hardware: HardwareInfo) -> bool:
        """Whether blocks may have more threads, each with one float at most for a row and a column."""
        has_shared_memory = hardware.shared_memory_per_block_optin >= WHOLE_SM_SHARED_BYTES
        are_few_bytes = all(
            self._state_bytes(side) <= WHOLE_SM_STATE_BYTES for side in (Side.rows, Side.columns, Side.one)
        )
        fill_blocks = WARP_SIZE <= vectors <= WHOLE_SM_BLOCK * hardware.sm_count
        return fill_blocks and has_shared_memory and are_few_bytes

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
        per_block = max(step, min(per_block, held, MAX_ROWS_PER_BLOCK // step * step))
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
