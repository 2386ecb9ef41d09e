"""How many blocks share each matrix of a batch, and how many threads a block has.

A block has whole rows where its threads reach along one. It has all rows of its matrix where there are enough
matrices: blocks then exchange nothing. Else some blocks share a matrix, and the last of them combines what
its columns come to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from fusewright.core.hardware import MAX_VECTOR_BYTES, REGISTER_BYTES, WARP_SIZE, HardwareInfo
from fusewright.schedulers.cost import (
    GRID_REDUCTION_SECONDS,
    copy_seconds,
    slot_seconds,
    starting_seconds,
)
from fusewright.schedulers.params.inner_outer import MAX_ROWS_PER_BLOCK
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_least, power_of_two_at_most

# Threads of a block to choose from.
BLOCKS = (256, 512, 1024, 128, 64, 32)  # of equals the first
# Blocks that share a matrix, besides as many as are resident at once: few numbers, as each is a kernel of its
# own where the number of matrices varies.
FEW_BLOCKS = (1, 2, 3, 4)
# Bytes that a thread has in flight, and rows of them at most.
BYTES_IN_FLIGHT = 64  # of a thread
MAX_ROWS_IN_FLIGHT = 8  # of a thread
# Partial results of a row that one thread combines at most, while all others wait.
MAX_PARTIALS = 32
# Registers of a thread for addresses, guards and work in flight.
REGISTERS_TO_WORK = 32
# Warps of an SM that would double the time of its arithmetic if there were no more of them. H200: variances
# of 128 matrices of 512 x 512 of half take 1.9 of the nominal time with 16 warps an SM, 1.46 with 32.
LATENCY_WARPS = 15
# Seconds of a step of a block, from its loads until warps have combined what they have of its rows; and those
# in which it combines, after the last step, what its threads have: assumptions with which sums of 11 shapes
# on an H200 take 0.72 to 1.11 of their estimates.
STEP_SECONDS = 1.25e-6
END_SECONDS = 1e-6
# Share of the SMs that is enough to keep memory busy, with blocks as large as these: an assumption.
ENOUGH_SMS = 0.75
# Bytes that blocks write and read for each byte of a partial result: each word has its round beside it.
EXCHANGED_BYTES = 4


@dataclass(frozen=True)
class Matrices:
    """Matrices of one size, each of which is reduced by itself.

    Attributes:
        width: contiguous columns of a thread.
        element_bytes: the bytes that are loaded for each point.
        row_bytes, column_bytes: the bytes of the results of a row and of a column, before they are complete.
        row_slots: slots to combine two partial results of a row.
        computing: the seconds of the arithmetic at all points.
    """

    count: int
    rows: int
    columns: int
    width: int
    element_bytes: int
    row_bytes: int
    column_bytes: int
    row_slots: int
    computing: float

    @property
    def points(self) -> int:
        return self.count * self.rows * self.columns


@dataclass(frozen=True)
class MatrixTile:
    """The part of a matrix that a block has.

    Attributes:
        x, z: threads along a row, those of a warp and others.
        y: threads down the columns.
        unroll: rows in flight of a thread.
        rows: the rows of a block, a multiple of those in flight.
    """

    matrices: Matrices
    x: int
    y: int
    z: int
    unroll: int
    rows: int

    @property
    def threads(self) -> int:
        return self.x * self.y * self.z

    @property
    def along(self) -> int:
        """The blocks that share a row."""
        return ceil_div(self.matrices.columns, self.x * self.z * self.matrices.width)

    @property
    def down(self) -> int:
        """The blocks that share a column."""
        return ceil_div(self.matrices.rows, self.rows)

    @property
    def blocks(self) -> int:
        """The blocks that share a matrix."""
        return self.along * self.down

    @property
    def shared_bytes(self) -> int:
        """The shared memory of a block, for the results of its rows and for what threads exchange."""
        given = self.matrices
        rows_of_thread = ceil_div(self.rows, self.x * self.y)
        exchanged = self.threads * (given.width * given.column_bytes + rows_of_thread * given.row_bytes)
        return self.rows * self.z * given.row_bytes + exchanged

    @property
    def registers(self) -> int:
        """The registers of a thread, for what its columns have come to, for what arrives, and to work."""
        given = self.matrices
        of_columns = given.width * given.column_bytes
        of_rows = self.unroll * (given.width * given.element_bytes + given.row_bytes)
        return REGISTERS_TO_WORK + ceil_div(of_columns + of_rows, REGISTER_BYTES)

    def resident(self, hardware: HardwareInfo) -> int:
        """Returns the blocks that an SM holds at once; 0 if it does not hold one."""
        warps = ceil_div(self.threads, WARP_SIZE)
        shared = self.shared_bytes + hardware.shared_memory_reserved
        if self.shared_bytes > hardware.shared_memory_per_block_optin:
            return 0
        return min(
            hardware.max_blocks_per_sm,
            hardware.max_threads_per_sm // (warps * WARP_SIZE),
            hardware.resident_warps(self.registers) // warps,
            hardware.shared_memory_per_sm // shared,
        )

    def _blocks_an_sm(self, hardware: HardwareInfo) -> int:
        """The blocks of the fullest SM."""
        return ceil_div(self.matrices.count * self.blocks, hardware.sm_count)

    def _turns(self, hardware: HardwareInfo) -> int:
        """The blocks of the fullest SM that follow each other."""
        return ceil_div(self._blocks_an_sm(hardware), self.resident(hardware))

    @property
    def _steps(self) -> int:
        """The steps of a block, one after the other."""
        return self.rows // (self.y * self.unroll)

    def loads_ahead(self, hardware: HardwareInfo) -> bool:
        """Whether a step's loads are to begin before the step in front of it: no other block's do meanwhile,
        or vectors are narrow.

        H200, of the time without: maxima of 512x256x384 0.96, sums of 300x500x127 and of 512x300x301 floats
        0.92 and 0.90; of 1024x512x512, whose blocks take turns, 1.05.
        """
        narrow = self.matrices.width * self.matrices.element_bytes < MAX_VECTOR_BYTES
        return self._steps > 1 and (narrow or self._turns(hardware) == 1)

    def reading_seconds(self, hardware: HardwareInfo) -> float:
        """Returns the seconds until all blocks have read their parts of the matrices: those of the memory, of
        the fullest SM's share of it, of the starts of the blocks, or of their steps one after the other. The
        first step and the end of the last block are in `cost.KERNEL_SECONDS`.
        """
        given = self.matrices
        bytes_ = given.points * given.element_bytes
        in_all = given.count * self.blocks
        if_all_alike = bytes_ / max(1, in_all) * self._blocks_an_sm(hardware) * hardware.sm_count
        return max(
            copy_seconds(bytes_, hardware),
            copy_seconds(if_all_alike * ENOUGH_SMS, hardware),
            starting_seconds(in_all),
            self._turns(hardware) * (self._steps * STEP_SECONDS + END_SECONDS) - STEP_SECONDS - END_SECONDS,
        )

    def shuffling_seconds(self, hardware: HardwareInfo) -> float:
        """Returns the seconds in which warps combine their threads' results of each row: an SM shuffles a
        word of a warp in each cycle.
        """
        given = self.matrices
        pieces = given.count * given.rows * ceil_div(given.columns, self.x * given.width)
        combined = pieces * self.x * (self.x.bit_length() - 1)
        words = ceil_div(given.row_bytes, REGISTER_BYTES)
        cycles = combined * words / (WARP_SIZE * hardware.sm_count)
        return cycles / (hardware.clock_mhz * 1e6) + slot_seconds(combined * given.row_slots, hardware)

    def seconds(self, hardware: HardwareInfo) -> float:
        """Returns the seconds of the kernel besides `cost.KERNEL_SECONDS`."""
        computing = self.matrices.computing + self.shuffling_seconds(hardware)
        computing += self.waiting_seconds(hardware)
        return max(self.reading_seconds(hardware), computing) + self.exchanging_seconds(hardware)

    def waiting_seconds(self, hardware: HardwareInfo) -> float:
        """Returns the seconds in which no warp of an SM has arithmetic to do that does not wait for other."""
        blocks = min(self.resident(hardware), self._blocks_an_sm(hardware))
        warps = max(1, blocks) * ceil_div(self.threads, WARP_SIZE)
        return (self.matrices.computing + self.shuffling_seconds(hardware)) * LATENCY_WARPS / warps

    def exchanging_seconds(self, hardware: HardwareInfo) -> float:
        """Returns the seconds in which blocks exchange what they have of a matrix."""
        if self.blocks == 1:
            return 0.0
        given = self.matrices
        of_rows = self.along * given.rows * given.row_bytes if self.along > 1 else 0
        of_columns = self.down * given.columns * given.column_bytes if self.down > 1 else 0
        exchanged = given.count * (of_rows + of_columns) * EXCHANGED_BYTES
        return GRID_REDUCTION_SECONDS + copy_seconds(exchanged, hardware)


def best_tile(matrices: Matrices, hardware: HardwareInfo) -> MatrixTile | None:
    """Returns the tile that is estimated the fastest, and has the fewest blocks of those; None if no block
    holds one.
    """
    tiles = _tiles(matrices, hardware)
    return min(tiles, key=lambda tile: (tile.seconds(hardware), tile.blocks), default=None)


def _tiles(matrices: Matrices, hardware: HardwareInfo) -> Iterator[MatrixTile]:
    for threads in BLOCKS:
        step = _step(matrices, threads)
        at_once = step.resident(hardware) * hardware.sm_count // max(1, matrices.count * step.along)
        steps = ceil_div(matrices.rows, step.rows)
        for down in (*FEW_BLOCKS, power_of_two_at_most(at_once)):
            tile = replace(step, rows=step.rows * ceil_div(steps, down))
            fits = 0 < tile.rows <= MAX_ROWS_PER_BLOCK and tile.along <= MAX_PARTIALS * tile.z
            if fits and tile.resident(hardware):
                yield tile


def _step(matrices: Matrices, threads: int) -> MatrixTile:
    """Returns the tile of a block of so many threads at most, with the rows that it has in flight."""
    vectors = ceil_div(matrices.columns, matrices.width)
    x = min(WARP_SIZE, power_of_two_at_least(vectors))
    groups = max(1, threads // x)
    parts = ceil_div(vectors, x)
    z = max(1, ceil_div(parts, max(1, ceil_div(parts, groups))))
    y = min(power_of_two_at_most(groups // z), power_of_two_at_least(matrices.rows))
    in_flight = BYTES_IN_FLIGHT // max(1, matrices.width * matrices.element_bytes)
    unroll = power_of_two_at_most(min(MAX_ROWS_IN_FLIGHT, in_flight, ceil_div(matrices.rows, y)))
    return MatrixTile(matrices, x, y, z, unroll, rows=y * unroll)
