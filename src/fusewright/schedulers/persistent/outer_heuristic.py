"""Chooses params of the outer persistent scheduler: the tile of columns that a block or a cluster holds, or
sweeps where none can.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fusewright.core.hardware import REGISTER_BYTES, HardwareInfo
from fusewright.core.once import cached_property
from fusewright.core.recorded import gcd, log2
from fusewright.ir.node import Reduction
from fusewright.schedulers.base import (
    Facts,
    Proposal,
    Reject,
)
from fusewright.schedulers.cost import busy_share
from fusewright.schedulers.params import LaunchParams, ReductionParams
from fusewright.schedulers.params.launch import UNSET
from fusewright.schedulers.persistent.cache_hints import with_cache_hint
from fusewright.schedulers.persistent.column_tiles import (
    FEWER_BATCHES,
    MAX_ROWS_OF_A_THREAD,
    THREADS,
    ColumnsToHold,
    ColumnTile,
    clustered_tile,
    fewest_threads,
    is_of_short_rows,
    register_tile,
    short_tile,
)
from fusewright.schedulers.persistent.held_length import (
    are_stable,
    for_any_length,
    for_this_length,
    is_one_size,
)
from fusewright.schedulers.persistent.held_rows import Held
from fusewright.schedulers.persistent.loads_ahead import may_load_ahead
from fusewright.schedulers.persistent.row_buffers import RowBuffers
from fusewright.schedulers.persistent.row_threads import MIN_REGISTERS_TO_WORK
from fusewright.schedulers.persistent.short_row_tiles import short_row_tile
from fusewright.schedulers.persistent.sweep_heuristic import sweep_columns, swept
from fusewright.schedulers.reduction.planner import ReductionPlanner
from fusewright.schedulers.reduction.variances import has_welford, with_welford
from fusewright.schedulers.sectors import LINE_BYTES, SECTOR_BYTES
from fusewright.schedulers.sizes import ceil_div
from fusewright.sym import Const

# ---- tiles that a block holds in registers ----

# Bytes of a tile's row of the narrowest tensor that is read, the longest first: memory is read and written in
# longer runs then.
TILE_ROW_BYTES = (256, 128, 64, 32)
# Threads of a block: as few as hold a tile, since several blocks on an SM have their phases at other times.
BLOCKS_OF_THREADS = (128, 256, 512)
# Batches that a thread holds at most, and where no vectors are loaded.
MAX_BATCHES = 16  # of vectors
MAX_SINGLE_BATCHES = 32  # of elements
# Registers for them at most, if only inputs are held, and if all that is needed again is.
REGISTERS_TO_HOLD = 64  # inputs only
REGISTERS_TO_HOLD_ALL = 32  # everything

# ---- runs ----

# Rows that a thread combines as a run, where an operation does that in fewer steps.
#   H200, a maximum with its sum of exponentials, of a copy's speed, and one by one: of 4096 rows 0.70 and
#   0.60, of 1024 0.88 and 0.80.
LONGEST_RUN = 4
# Results of an operation that gains by runs, at most.
#   H200, Welford's three of 243 to 1224 rows: 1.06 times as long in runs.
MAX_RUN_STATES = 2

# ---- cost ----

# Share of a copy's speed that is kept with the shortest of TILE_ROW_BYTES, and what each doubling adds.
#   Measured on an H200 for columns of 512 to 4096 bf16, of which the mean is subtracted.
SPEED_OF_SHORTEST_ROWS = 0.6  # of a copy's speed
SPEED_A_DOUBLING = 0.1  # of a copy's speed, added by each doubling
# Share of the arithmetic's time during which memory waits: blocks are few, and each loads, computes and
# stores.
#   H200: softmax down 300 to 4096 bf16 takes 0.92 to 1.12 times as long as is estimated with it.
EXPOSED_ARITHMETIC = 0.2
# Seconds that holding adds to a kernel, whose last blocks nothing overlaps with.
HELD_SECONDS = 0.5e-6


class OuterPersistentPlanner(ReductionPlanner):
    """Derives params from the sizes of a call."""

    @cached_property
    def _buffers(self) -> RowBuffers:
        return RowBuffers(self.fusion)

    @cached_property
    def _has_welford(self) -> bool:
        return has_welford(self.fusion)

    @cached_property
    def _combines_runs(self) -> bool:
        """Whether there are operations that combine a run in less, and all of these gain by it."""
        runs = [node for node in self.fusion.nodes if isinstance(node, Reduction) and node.op.combine_run]
        return bool(runs) and all(len(node.outputs) <= MAX_RUN_STATES for node in runs)

    @cached_property
    def _element_bytes(self) -> int:
        """The bytes of an element of the narrowest tensor that is read at every point."""
        return min((a.tensor.dtype.size for a in self.space.full_loads), default=REGISTER_BYTES)

    def __call__(self, facts: Facts, hardware: HardwareInfo) -> Proposal | Reject:
        space = self.space
        width = self._width(facts)
        columns, length = space.iteration_size(facts), space.reduction_size(facts)
        if not columns or not length:
            return Reject("there is nothing to hold")
        # As constants, sizes leave guards of the last batch alone.
        stable = are_stable(space, facts)
        tile = self._tile(facts, hardware)
        if tile is None:
            what = swept(self, width, stable, facts)
            sweeps = None if what is None else sweep_columns(what, self._cost, facts, hardware)
            if sweeps is None:
                return Reject(f"columns of {length} do not fit in a block, and are too many to share out")
            return Proposal(sweeps.params, sweeps.estimate)
        width = tile.width
        blocks = ceil_div(columns, tile.threads_x * tile.tiles * width) * tile.blocks
        params = ReductionParams(
            fastest_dim=False,
            persistent_kernel=True,
            project_persistent_buffers=tile.project,
            persistent_in_shared_memory=tile.shared,
            blocks_per_cluster=tile.blocks,
            batches_per_block_inner_reduction=tile.batches,
            vectorize_iter_dom=width > 1,
            unroll_factor_iter_dom=width,
            unroll_factor_inner_reduction=gcd(tile.batches, LONGEST_RUN) if self._combines_runs else 1,
            lparams=LaunchParams(
                bdimx=tile.threads_x, bdimy=tile.threads_y, bdimz=tile.tiles if tile.tiles > 1 else UNSET
            ),
            reason=_reason(tile, columns, length),
        )
        if may_load_ahead(space, params, self._buffers.of(params), hardware):
            params = replace(params, loads_ahead=True)
        if stable:
            params = for_this_length(params, space, facts, "columns")
        else:
            params = for_any_length(params, space, threads="bdimy")
        params = with_cache_hint(params, self._cost, facts, hardware)
        speed, steps = self._speed(tile, blocks, facts, hardware), HELD_SECONDS
        if self._has_welford:
            speed, steps = with_welford(speed, steps)
        cost = self._cost_along_memory if self._is_along_memory(tile, facts) else self._cost
        return Proposal(params, cost.estimate(facts, hardware, speed=speed, steps=steps))

    def _is_along_memory(self, tile: ColumnTile, facts: Facts) -> bool:
        """Whether threads use whole sectors where few columns are side by side: as neighbours go through a
        stretch of memory, or a thread does so for columns of few rows, and finds it in the L1 cache again.
        """
        row = self.space.side_by_side(facts)
        stretch = self.space.reduction_size(facts) * row * self._element_bytes
        return tile.threads_x * tile.width == row or (tile.threads_y == 1 and stretch <= LINE_BYTES)

    def shares_columns(self, facts: Facts, hardware: HardwareInfo) -> bool:
        """Whether several blocks have a column together."""
        if not self.space.iteration_size(facts) or not self.space.reduction_size(facts):
            return False
        tile = self._tile(facts, hardware)
        return tile is None or tile.blocks > 1

    def _columns(self, facts: Facts) -> ColumnsToHold:
        space = self.space
        constant = are_stable(space, facts) or all(isinstance(axis.extent, Const) for axis in space.reduction)
        return ColumnsToHold(
            space.iteration_size(facts),
            space.reduction_size(facts),
            space.side_by_side(facts),
            self._width(facts),
            self._element_bytes,
            self._buffers.inputs,
            constant,
            known=constant or is_one_size(space),
        )

    def _tile(self, facts: Facts, hardware: HardwareInfo) -> ColumnTile | None:
        """Returns the tile that holds the columns; None if they are too long.

        Short columns are in wide rows of registers, others in clusters, and the rest as registers allow.
        """
        columns = self._columns(facts)
        of_short_rows = self._short_row_tile(columns, hardware) if is_of_short_rows(columns) else None
        if of_short_rows is not None:
            return of_short_rows
        few = short_tile(columns, hardware)
        if few is not None and self._fits(few, hardware):
            return few
        found = self._tiles(columns.count, columns.length, columns.width)
        tiles = [tile for tile in found if self._fits(tile, hardware)]
        short = [
            tile for tile in tiles if tile.row_bytes == TILE_ROW_BYTES[0] and tile.batches <= FEWER_BATCHES
        ]
        if short and short[0].threads_x * short[0].threads_y <= THREADS:
            return short[0]
        held = register_tile(columns, hardware) or clustered_tile(columns, hardware)
        return held or next(iter(tiles), None)

    def _short_row_tile(self, columns: ColumnsToHold, hardware: HardwareInfo) -> ColumnTile | None:
        """Returns the tile that holds columns of short rows; None if they are too long, or too short."""
        for project, held, registers in self._ways_to_hold:
            tile = short_row_tile(columns, project, held, registers)
            if tile is not None and self._fits(tile, hardware):
                return tile
        return clustered_tile(columns, hardware) if columns.length > MAX_ROWS_OF_A_THREAD else None

    @cached_property
    def _ways_to_hold(self) -> tuple[tuple[bool, Held, int], ...]:
        """Whether only inputs are held, what is held then, and in how many registers at most."""
        return (
            (False, self._buffers.everything, REGISTERS_TO_HOLD_ALL),
            (True, self._buffers.inputs, REGISTERS_TO_HOLD),
        )

    def _fits(self, tile: ColumnTile, hardware: HardwareInfo) -> bool:
        """Whether registers hold all loads of a tile's rows, which are in flight together: not only what is
        held, but also what is computed again from several inputs.
        """
        most = hardware.registers_a_thread(tile.threads_x * tile.threads_y * tile.tiles)
        return tile.batches * self.step_loads.registers(tile.width) <= most - MIN_REGISTERS_TO_WORK

    def _tiles(self, columns: int, length: int, width: int) -> Iterator[ColumnTile]:
        """Yields the tiles that a block can hold in registers: the longest rows first, in the fewest
        threads.
        """
        most = MAX_BATCHES if width > 1 else MAX_SINGLE_BATCHES
        for row_bytes in TILE_ROW_BYTES:
            threads_x = max(1, row_bytes // (width * self._element_bytes))
            if threads_x // 2 * width >= columns and row_bytes > TILE_ROW_BYTES[-1]:
                continue
            for block in BLOCKS_OF_THREADS:
                batches = ceil_div(length, max(1, block // threads_x))
                if batches > most:
                    continue
                threads_y, batches = fewest_threads(length, threads_x, batches)
                for inputs_only, held, registers in self._ways_to_hold:
                    if batches * width * held.at_once <= registers * REGISTER_BYTES:
                        yield ColumnTile(row_bytes, threads_x, threads_y, batches, width, inputs_only)

    def _speed(self, tile: ColumnTile, blocks: int, facts: Facts, hardware: HardwareInfo) -> float:
        """Returns the share of a copy's speed that is kept."""
        row_bytes = min(tile.row_bytes, TILE_ROW_BYTES[0])
        share = SPEED_OF_SHORTEST_ROWS + SPEED_A_DOUBLING * log2(row_bytes / TILE_ROW_BYTES[-1])
        if tile.width == 1 and self.space.side_by_side(facts) > tile.threads_x:
            # Rows of odd length: a tile's begin and end in the middle of sectors, which others read again.
            #   H200, columns that are centered: 4096 float in rows of 64 bytes 84 us, estimated as 78 (two
            #   kernels 59), 1024 in rows of 128 66 and 58, 1024 bf16 in rows of 32 103 and 119 (63).
            share *= row_bytes / (row_bytes + SECTOR_BYTES)
        moving = self._cost.seconds_an_sm(facts, hardware) / hardware.sm_count
        computing = EXPOSED_ARITHMETIC * self._cost.computing_seconds(facts, hardware)
        kept = moving / (moving / share + computing) if moving else 1.0
        return busy_share(blocks, hardware) * kept


def _reason(tile: ColumnTile, columns: int, length: int) -> str:
    several = f"{tile.tiles} tiles a block, each of " if tile.tiles > 1 else ""
    where = f"{' in shared memory' if tile.shared else ''}{', inputs only' if tile.project else ''}"
    return (
        f"{columns} columns of {length}: {several}{tile.threads_x} threads of {tile.width} "
        f"columns, {tile.threads_y} down the columns of {tile.blocks} blocks hold {tile.batches} rows each"
        f"{where}"
    )
