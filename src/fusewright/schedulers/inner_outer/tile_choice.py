"""Chooses how the threads of a block, or of a cluster's blocks, lie along the rows that they hold: a
`RowTile`.

All choices of `row_tiles` that fit are compared by rank, then by the rows in flight on an SM. So a block
loads the next row ahead if it can, in registers or else in shared memory. Rows for which no block can do
that go to clusters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fusewright.core.hardware import SM_PAIR, HardwareInfo
from fusewright.schedulers.inner_outer.block_resources import BlockResources
from fusewright.schedulers.inner_outer.row_tiles import (
    CHOICES,
    NOT_AHEAD,
    SHIFTED,
    Choice,
    Rank,
    Rows,
    RowTile,
    clusters_of,
    in_turns,
    lanes_of,
    part_of,
    resident_blocks,
)
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_most

# ---- threads ----

# Threads of a row, unless it needs more.
#   H200, RMS norm backward of 4096x32768 bf16 by clusters of two blocks, of a copy's speed: 0.96 with 512
#   threads, 0.91 with 1024.
MAX_THREADS = 512
# Threads of a block that has several rows at a time.
BLOCK = 128
# A thread takes one vector more, of so many, if a row needs fewer threads then.
VECTORS_FOR_ONE_MORE = 8

# ---- registers ----

# Registers that are added for threads that read a ring, when the blocks are counted that fit an SM.
#   H200, layer norm backward of 16384x8192 bf16: two blocks of 256 threads, which spill, reach 0.81 of a
#   copy's speed, one of 512, which do not, 0.94.
REGISTERS_TO_SHARE_AN_SM = 24
# Registers that a thread may spill where shifted rows fit no choice of fewer elements a thread.
REGISTERS_TO_SPILL = 8

# ---- rows that are ahead in registers ----

# Bytes that an SM has to have on their way at once, where it works on one row at a time.
#   H200, layer norm backward of bf16: 32 KB of rows of 8192 reach 0.64 of a copy's speed, 48 KB of rows of
#   12288 reach 0.89.
BYTES_IN_FLIGHT = 40 * 1024
# Turns of a block up to which a row has more threads, of FEW_ELEMENTS each.
#   H200, layer norm backward of bf16 with 16 elements a thread and with 32: 2048x4096, 5 turns, 22.9 us and
#   25.1; 4096x2048 23.1 and 24.7; 4096x4096, 10 turns, 35.8 and 35.3.
FEW_TURNS = 6  # of a block
FEW_ELEMENTS = 16  # of a thread

# ---- rows that are read element by element, or by other narrow accesses ----

# Turns of a block up to which such rows are not loaded ahead, so that a block has more of them at once; and
# the fewest rows at once for which that pays.
#   H200, RMS norm backward of bf16: 7814x749 24.9 us, ahead 30.3; 16384x1025 52.9 and 56.6. Of more turns,
#   131072x257 76.5 and 73.1. Of three rows, 1024x4097 22.8 and 19.0.
MAX_TURNS_NOT_AHEAD = 12  # of a block
MIN_ROWS_NOT_AHEAD = 8  # at once on an SM
# Threads on an SM from which on fewer elements a thread are faster.
#   H200, layer norm backward of 8191x4097 bf16 88 us by 480 threads of 9 elements, 95 by 256 of 33; RMS norm
#   backward 84.5 and 88.9, and 127 by 512 threads of 17 elements, which spill.
BUSY_BY_ELEMENT = 384

# ---- few rows ----

# Rows for each SM up to which rows count as few: a block has one or two of them, and more threads for each.
FEW_ROWS_AN_SM = 2
# Vectors of a thread, of which a row has the last at most. Where a block has one row, a thread has the first
# of these numbers for which FEW_ROWS_THREADS suffice.
#   H200, RMS norm backward of bf16: 33x4096 7.3 us, with twice the vectors 7.7; 200x1000 6.7 and 7.1; 33x1024
#   7.2 with one vector, 7.8 with four.
FEW_ROWS_VECTORS = (1, 2, 4)  # of a thread
FEW_ROWS_THREADS = 256  # of a row
# Elements from which on rows, of which there are no more than SMs, are left to two kernels, which pass on
# nothing.
#   H200, RMS norm backward of bf16 by two kernels and by clusters, us: 33 rows of 32768 11.6 and 15.9, of
#   65536 14.2 and 19.9, of 8192 9.1 and 9.2; 132 rows of 16384 14.5 and 18.0, of 8192 11.8 and 11.2; 200 rows
#   of 32768 the same.
LONG_AMONG_FEW = 8192

# ---- shifted rows ----

# Rows of the ring of blocks that take shifted rows.
SHIFTED_STAGES = 3
# Threads on an SM from which on shifted rows are known to be faster than those that are read by element, if a
# column comes to one sum, and if it comes to more.
#   H200, 8191x4097 bf16: RMS norm backward 0.75 of a copy's speed with 384 threads, 0.67 with 576, 0.55 with
#   320, 0.66 by element; layer norm backward 101 us with 384 threads, 88 by element.
SHIFTED_THREADS_OF_ONE_SUM = 384  # on an SM
SHIFTED_THREADS_OF_SUMS = 448  # on an SM
# The same of clusters. The second is smaller, as the alternative, two kernels, is slower.
#   H200, layer norm backward: 2048x32769 289 us with 384 threads, 449 by two kernels; 1024x50257 248 with
#   320, and 270.
CLUSTER_THREADS_OF_ONE_SUM = 384  # on an SM
CLUSTER_THREADS_OF_SUMS = 320  # on an SM


@dataclass(frozen=True, eq=False)
class TileChoice:
    """Chooses tiles for the rows of one fusion."""

    resources: BlockResources

    def best(self, rows: Rows, hardware: HardwareInfo) -> RowTile | None:
        """Returns the tile of one block where that loads rows ahead, else that of a cluster whose blocks load
        their parts ahead; None where neither holds a row.
        """
        if rows.length > LONG_AMONG_FEW and rows.count <= hardware.sm_count:
            return None
        few = self._of_few_rows(rows, hardware)
        if few is not None:
            return few
        of_block = self._of_block(rows, hardware)
        if of_block is not None and of_block.choice.rank >= Rank.IN_SHARED_MEMORY:
            return of_block
        return self._of_cluster(rows, hardware) or of_block

    def is_faster_than_shifted(self, tile: RowTile, hardware: HardwareInfo) -> bool:
        """Whether a tile of narrow vectors is faster than vectors that are aligned by the start of each row:
        if registers load rows ahead, unless one at a time for many turns.

        H200, layer norm backward of 12730x2107 bf16 70 us, shifted 102; RMS norm backward 62 and 80, of
        1480x3187 21.4 and 22.8, of 8191x4097 84.5 and 82.5.
        """
        many_turns = tile.rows_an_sm == 1 and tile.turns(hardware) > MAX_TURNS_NOT_AHEAD
        return tile.cluster == 1 and self._rank(tile, hardware) >= Rank.IN_REGISTERS and not many_turns

    def of_shifted_rows(self, rows: Rows, hardware: HardwareInfo) -> RowTile | None:
        """Returns the tile of shifted rows, which are copied ahead: of one block, or of a cluster if a block
        has no room for them. None where those that may take turns would leave many SMs idle.
        """
        resources = self.resources
        threads = hardware.max_threads_per_block
        of_block = resources.may_be_streamed(rows.length, rows.width, SHIFTED_STAGES, threads, hardware)
        for cluster in (1,) if of_block else clusters_of(hardware):
            tiles = [self._tile(part_of(rows, cluster), choice, hardware) for choice in SHIFTED]
            found = [replace(tile, cluster=cluster) for tile in tiles if tile is not None]
            least = _least_threads_of_shifted(cluster, resources.has_one_sum)
            busy = [
                tile
                for tile in found
                if tile.threads >= BLOCK
                and in_turns(tile, hardware)
                and tile.threads * tile.resident >= least
            ]
            if busy:
                best = max(busy, key=lambda tile: (tile.choice.rank, tile.rows_an_sm, tile.choice.elements))
                return self._of_twice_the_blocks(best, rows, hardware) or best
        return None

    # ---- of a block ----

    def _of_block(self, rows: Rows, hardware: HardwareInfo) -> RowTile | None:
        """Returns the best tile of one block; None if none fits."""
        tiles = [self._tile(rows, choice, hardware) for choice in CHOICES]
        narrow = self._narrower(rows)
        if narrow is not None:
            tiles += [self._tile(narrow, choice, hardware) for choice in CHOICES if choice.in_registers]
        if self.resources.is_by_element(rows):
            inputs = replace(rows, projects=True)
            tiles += [self._tile(inputs, choice, hardware) for choice in NOT_AHEAD]
        # Of equal rank those with most rows in flight, then with most threads that have registers enough.
        found = [tile for tile in tiles if tile is not None]
        best = max(
            found,
            key=lambda tile: (
                self._rank(tile, hardware),
                tile.rows_an_sm,
                tile.rows is narrow,
                tile.threads <= MAX_THREADS,
                -tile.choice.elements,
            ),
            default=None,
        )
        return best and self._of_more_threads(best, found, hardware)

    def _narrower(self, rows: Rows) -> Rows | None:
        """Returns the rows in vectors of half the width, with everything held in place of inputs alone; None
        where everything is held anyway, or there are no vectors.

        Everything is computed once then, and loads and arithmetic are interleaved.
        H200, RMS norm backward of bf16: 16384x4096 104.5 us, 107.0 without; 4096x8192 60.3, in rings 63.1.
        """
        if not rows.projects or rows.width < 2:
            return None
        return replace(rows, width=rows.width // 2, projects=False)

    def _rank(self, tile: RowTile, hardware: HardwareInfo) -> int:
        """Returns the rank of a tile, which differs from its choice's where rows ahead in registers are too
        few, and where rows by element that are not ahead take few turns.
        """
        rows, rank = tile.rows, tile.choice.rank
        if rank == Rank.NOT_AHEAD and rows.projects and self.resources.is_by_element(rows):
            few = tile.turns(hardware) <= MAX_TURNS_NOT_AHEAD and tile.rows_an_sm >= MIN_ROWS_NOT_AHEAD
            return Rank.FEW_TURNS if few else Rank.NOT_AHEAD
        in_flight = tile.rows_an_sm * rows.length * self.resources.loaded_bytes
        starved = rows.projects and tile.rows_an_sm == 1 and in_flight < BYTES_IN_FLIGHT
        return Rank.STARVED if rank == Rank.IN_REGISTERS and starved else rank

    def _of_more_threads(self, best: RowTile, tiles: Sequence[RowTile], hardware: HardwareInfo) -> RowTile:
        """Returns another of the tiles in place of the best one, whose rows have more threads, where that is
        faster: if blocks take few turns, and if rows are read by element, with an address for each access.
        """
        ahead = [tile for tile in tiles if self._rank(tile, hardware) == Rank.IN_REGISTERS]
        ahead = [tile for tile in ahead if tile.threads <= MAX_THREADS]
        if best not in ahead:
            return best
        if self.resources.is_by_element(best.rows):
            busy = [tile for tile in ahead if tile.threads * tile.rows_an_sm >= BUSY_BY_ELEMENT]
            return min(busy, key=lambda tile: tile.choice.elements, default=best)
        if best.turns(hardware) > FEW_TURNS:
            return best
        fewer = [tile for tile in ahead if tile.choice.elements == FEW_ELEMENTS]
        return min(fewer, key=lambda tile: tile.rows.width, default=best)

    # ---- of few rows, and of clusters ----

    def _of_few_rows(self, rows: Rows, hardware: HardwareInfo) -> RowTile | None:
        """Returns the tile of rows so few that each block has one or two: many threads for each, of two
        blocks if need be. None of more rows.
        """
        if rows.count > FEW_ROWS_AN_SM * hardware.sm_count:
            return None
        rows = self._narrower(rows) or rows
        for vectors in FEW_ROWS_VECTORS if rows.count <= hardware.sm_count else FEW_ROWS_VECTORS[-1:]:
            choice = Choice(vectors * rows.width, prefetches=False, rank=Rank.NOT_AHEAD)
            tile = self._tile(rows, choice, hardware)
            if tile is not None and tile.threads <= FEW_ROWS_THREADS:
                break
        if tile is not None and tile.threads <= MAX_THREADS:
            at_once = ceil_div(rows.count, hardware.sm_count)
            fits = tile.threads * at_once <= MAX_THREADS
            return replace(tile, at_once=at_once, resident=1) if fits else tile
        for cluster in clusters_of(hardware):
            tile = self._tile(part_of(rows, cluster), choice, hardware)
            if tile is not None and rows.count <= hardware.resident_clusters(cluster):
                return replace(tile, cluster=cluster, resident=1)
        return None

    def _of_cluster(self, rows: Rows, hardware: HardwareInfo) -> RowTile | None:
        """Returns the tile of the smallest cluster that loads rows ahead, or, if that has more than two
        blocks, of the next larger one if two of its blocks have room on an SM; None if there is no such
        cluster.
        """
        for cluster in clusters_of(hardware):
            if cluster > SM_PAIR and self.resources.is_by_element(rows):
                return None
            tile = self._of_block(part_of(rows, cluster), hardware)
            if tile is None or tile.choice.rank < Rank.IN_SHARED_MEMORY:
                continue
            tile = replace(tile, cluster=cluster, resident=1)
            return self._of_twice_the_blocks(tile, rows, hardware) or tile
        return None

    def _of_twice_the_blocks(self, tile: RowTile, rows: Rows, hardware: HardwareInfo) -> RowTile | None:
        """Returns the tile of clusters of twice the blocks, if two of these have room on an SM, which then
        has something to do while one of them waits for its cluster; else None.
        """
        if not SM_PAIR < tile.cluster < hardware.max_cluster:
            return None
        larger = self._tile(part_of(rows, 2 * tile.cluster), tile.choice, hardware)
        if larger is None or larger.resident < 2:
            return None
        found = replace(larger, cluster=2 * tile.cluster, resident=2)
        return found if not rows.shifts or in_turns(found, hardware) else None

    # ---- of a choice ----

    def _tile(self, rows: Rows, choice: Choice, hardware: HardwareInfo) -> RowTile | None:
        """Returns how threads lie along a row by a choice; None if a block has no registers or memory for
        that.
        """
        resources = self.resources
        lanes, along, batches = _threads_along(ceil_div(rows.length, rows.width), rows.width, choice)
        threads = lanes * along
        if choice.stages and not resources.may_be_streamed(
            rows.length, rows.width, choice.stages, threads, hardware
        ):
            return None
        registers = resources.registers(rows, choice, batches, threads)
        room = hardware.registers_a_thread(max(threads, BLOCK))
        if rows.shifts and choice.rank == Rank.AT_LEAST:
            room += REGISTERS_TO_SPILL
        if threads > hardware.max_threads_per_block or registers > room:
            return None
        most = min(BLOCK // threads, rows.count // hardware.sm_count, hardware.max_block[2])
        at_once = 1 if choice.stages else power_of_two_at_most(max(1, most))
        beside = REGISTERS_TO_SHARE_AN_SM if choice.stages and not rows.shifts else 0
        resident = resident_blocks(threads * at_once, registers + beside, hardware)
        if choice.stages:
            shared = resources.streamed_bytes(rows.length, choice.stages, threads)
            shared += hardware.shared_memory_reserved
            resident = max(1, min(resident, hardware.shared_memory_per_sm // shared))
        return RowTile(choice, rows, lanes, along, batches, at_once, resident)


def _threads_along(vectors: int, width: int, choice: Choice) -> tuple[int, int, int]:
    """Returns the lanes and the groups of lanes that have a row of so many vectors, and the vectors of each
    thread.
    """
    most = max(1, choice.elements // width)
    lanes = lanes_of(vectors, most)
    batches = min(ceil_div(vectors, lanes), most)
    along = ceil_div(vectors, lanes * batches)
    fewer = max(1, along - 1)
    if ceil_div(vectors, lanes * fewer) <= batches + batches // VECTORS_FOR_ONE_MORE:
        batches = ceil_div(vectors, lanes * fewer)
        along = ceil_div(vectors, lanes * batches)
    return lanes, along, batches


def _least_threads_of_shifted(cluster: int, has_one_sum: bool) -> int:
    """Returns the threads that an SM has at least for shifted rows."""
    if cluster == 1:
        return SHIFTED_THREADS_OF_ONE_SUM if has_one_sum else SHIFTED_THREADS_OF_SUMS
    return CLUSTER_THREADS_OF_ONE_SUM if has_one_sum else CLUSTER_THREADS_OF_SUMS
