"""Chooses the tiles of reductions whose inputs or outputs are contiguous along rows and along columns
(`crossed_tiles`), and estimates the accesses of such a kernel.

Tiles and threads are like those of transposes (`transpose.tile_choice`).
H200, sum of x + y.t() along rows, 4096x4097 half: 29.1 us by these params, which have 64 x 64 elements and 4
threads along the reduced dimension; 31.2 with 8 threads, 32.4 with 32 rows a tile, 33.2 with 32 columns and 8
threads, 33.7 with the next step loaded ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusewright.core.hardware import REGISTER_BYTES, HardwareInfo
from fusewright.core.once import cached_property
from fusewright.ir.fusion import Fusion
from fusewright.schedulers.base import Facts
from fusewright.schedulers.cost import CostModel, slot_seconds
from fusewright.schedulers.params import LaunchParams, ReductionParams
from fusewright.schedulers.reduction.crossed_loads import crossed_sectors, tiled_accesses
from fusewright.schedulers.reduction.grid_reduction import blocks_of_column, partials_read_at_once
from fusewright.schedulers.reduction.space import ReductionSpace
from fusewright.schedulers.reference_map import Access
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_least
from fusewright.schedulers.transpose.single_tiles import ACCESSES, ELEMENT
from fusewright.schedulers.vector_limits import VectorLimits

# Elements of a tile along both dimensions: full lines of memory of two bytes an element.
SIDE = 64  # elements, along both
# Elements of a side at most, which is longer where the other is cut short by a small dimension.
MAX_SIDE = 512
# Size from which on tiles pay, of the innermost kept dimension and of the innermost reduced one, and of their
# sides: shorter runs of memory fill no sector.
MIN_SIZE = 8
# Threads of a block.
THREADS = 256
# Elements of a vector along a row at most, and bytes of one down a column: the threads that a vector leaves
# without one would wait for the others.
MAX_ALONG = 4  # elements
DOWN_BYTES = 4  # bytes
# Bytes of loads that a thread may hold: a quarter of its registers.
MAX_LOADED_BYTES = 256
# Blocks that should fit in an SM's shared memory.
BLOCKS_PER_SM = 8
# Share of the time in which the loads of a block are in flight: an assumption. It is at barriers otherwise,
# so more blocks are needed.
LOADING_SHARE = 0.5


@dataclass(frozen=True, eq=False)
class TileChoice:
    """Chooses for the kernels of one fusion."""

    fusion: Fusion
    space: ReductionSpace

    def params(
        self, rows: int, length: int, facts: Facts, hardware: HardwareInfo
    ) -> tuple[ReductionParams, int] | None:
        """Returns params that reduce `rows` columns of `length`, and the number of blocks; None where nothing
        passes through tiles, or a dimension is too small for them.
        """
        if not self._down:
            return None
        inner = self.space.iteration[-1], self.space.reduction[-1]
        if any(facts.value(axis.extent) < MIN_SIZE for axis in inner):
            return None
        along, down = self._widths(facts)
        columns, down_rows = _sides(rows, length, along, down, self._most_elements(along, down, hardware))
        if down_rows < MIN_SIZE:
            return None
        threads_x = columns // along
        threads_y = min(max(1, THREADS // threads_x), down_rows)
        unroll = down_rows // threads_y
        blocks, steps = ceil_div(rows, columns), ceil_div(length, down_rows)
        grid = blocks_of_column(
            blocks=ceil_div(blocks, int(1 / LOADING_SHARE)),
            steps=steps,
            bytes_in_flight=unroll * along * self.space.element_bytes,
            read_at_once=partials_read_at_once(threads_y, along),
            hardware=hardware,
        )
        found = ReductionParams(
            fastest_dim=False,
            unroll_factor_inner_reduction=unroll,
            vector_down_columns=down,
            tiles_in_shared_memory=True,
            vectorize_iter_dom=along > 1,
            unroll_factor_iter_dom=along,
            lparams=LaunchParams(bdimx=threads_x, bdimy=threads_y, gdimy=grid),
            reason=f"{rows} columns of {length}, accessed along rows and along columns: tiles of "
            f"{columns} x {down_rows}, in vectors of {along} and {down}; {grid} blocks a column",
        )
        return found, blocks * grid

    @cached_property
    def cost(self) -> CostModel:
        return CostModel(self.fusion, crossed_sectors(self.fusion, self.space, self._down))

    def accessing_seconds(
        self, params: ReductionParams, rows: int, length: int, hardware: HardwareInfo
    ) -> float:
        """Returns the seconds of the instructions that access memory.

        What passes through a tile is written to it and read from it besides, on one side by element.
        """
        along, down = params.unroll_factor_iter_dom, params.vector_down_columns
        rest = sum(map(self.space.is_full, self._accesses)) - len(self._down)
        a_point = len(self._down) * (1 + 2 / down) + rest / along
        return slot_seconds(rows * length * a_point * ELEMENT / ACCESSES, hardware)

    @cached_property
    def _down(self) -> Sequence[Access]:
        return tiled_accesses(self.space)

    @cached_property
    def _accesses(self) -> Sequence[Access]:
        return *self.space.loads, *self.space.stores

    @cached_property
    def _limits(self) -> tuple[VectorLimits, VectorLimits]:
        space = self.space
        inner = space.iteration[-1], space.reduction[-1]
        along, down = (VectorLimits(self.fusion, axis, self._accesses) for axis in inner)
        return along, down

    def _widths(self, facts: Facts) -> tuple[int, int]:
        """Returns the elements of vectors along rows and down columns."""
        along, down = (limit.width(facts) for limit in self._limits)
        widest = max(access.tensor.dtype.size for access in self._down)
        return min(along, MAX_ALONG), min(down, max(1, DOWN_BYTES // widest))

    def _most_elements(self, along: int, down: int, hardware: HardwareInfo) -> int:
        """Returns the elements of a tile for which an SM has room in several blocks, and threads have in
        registers, of which what is no part of a vector takes one.
        """
        a_point = sum(access.tensor.dtype.size for access in self._down)
        room = min(hardware.shared_memory_per_block, hardware.shared_memory_per_sm // BLOCKS_PER_SM)
        loaded = sum(
            max(load.tensor.dtype.size, REGISTER_BYTES // (down if load in self._down else along))
            for load in self.space.full_loads
        )
        return min(SIDE * SIDE, room // a_point, THREADS * MAX_LOADED_BYTES // loaded)


def _sides(rows: int, length: int, along: int, down: int, elements: int) -> tuple[int, int]:
    """Returns the columns and the rows of a tile, powers of two, of so many elements at most."""
    columns = max(along, min(SIDE, power_of_two_at_least(rows)))
    most = max(down, power_of_two_at_least(length))
    down_rows = min(SIDE if columns == SIDE else MAX_SIDE, most)
    while columns * down_rows > elements and down_rows > down:
        down_rows //= 2
    longest = min(MAX_SIDE, along * THREADS, power_of_two_at_least(rows))
    while 2 * columns <= longest and 2 * columns * down_rows <= elements:
        columns *= 2
    return columns, down_rows
