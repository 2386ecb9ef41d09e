"""The arrangement of a block's threads along the rows that they hold: tiles of them, and how many fit the
GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

from fusewright.core.hardware import WARP_SIZE, HardwareInfo
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_least

# Lanes of a row at least; and by which factor half as many lanes must have fewer places in vain to have the
# row.
#   H200, RMS norm backward of 131072x65 bf16: 29.9 us by half a warp, 35.3 by a warp; 16384x257 no faster.
MIN_LANES = 16  # of a row
MIN_GAIN_OF_HALF = 1.1  # factor of the places
# Blocks of a cluster that hold a row. SMs come in pairs, so all of them have clusters of two at once; of
# larger ones an H200 leaves a few SMs idle.
#   1024 rows of 65536 bf16, us, by clusters of four blocks, of eight (two blocks an SM), and by two kernels:
#   RMS norm backward 123, 114 and 167; layer norm backward 137, 131 and 174.
BLOCKS_OF_CLUSTER = (2, 4, 8, 16)
# Share of the SMs that blocks which take shifted rows in turns have at least.
MIN_SHARE_OF_SMS = 0.7


class Rank(IntEnum):
    """The priority of a choice: the highest that fits is taken.

    Attributes:
        AT_LEAST: for rows that fit nothing else.
        NOT_AHEAD: the next row is not loaded ahead.
        STARVED: it is, into registers, but too few bytes are in flight.
        IN_SHARED_MEMORY, IN_REGISTERS: where the next row is ahead.
        FEW_TURNS: not ahead, but blocks take so few turns that this is faster.
    """

    AT_LEAST = 0
    NOT_AHEAD = 1
    STARVED = 2
    IN_SHARED_MEMORY = 3
    IN_REGISTERS = 4
    FEW_TURNS = 5


@dataclass(frozen=True, slots=True)
class Choice:
    """The elements of a row per thread, and the buffer into which the next row is loaded meanwhile, if any.

    Attributes:
        prefetches: whether it is loaded into registers.
        stages: if not 0, it is copied into shared memory, which has room for this many rows.
        rank: the highest that fits is taken.
    """

    elements: int
    prefetches: bool
    rank: Rank
    stages: int = 0

    @property
    def in_registers(self) -> bool:
        """Whether registers take the next row."""
        return self.prefetches and not self.stages


# The choices for rows, of which many elements a thread make its part of a row's reductions cheap; those for
# shifted rows; and those that do not load the next row ahead.
CHOICES = (
    Choice(32, prefetches=True, rank=Rank.IN_REGISTERS),
    Choice(16, prefetches=True, rank=Rank.IN_REGISTERS),
    Choice(8, prefetches=True, rank=Rank.IN_REGISTERS),
    Choice(32, prefetches=True, rank=Rank.IN_SHARED_MEMORY, stages=3),
    Choice(16, prefetches=True, rank=Rank.IN_SHARED_MEMORY, stages=3),
    Choice(32, prefetches=False, rank=Rank.NOT_AHEAD),
    Choice(16, prefetches=False, rank=Rank.NOT_AHEAD),
    Choice(32, prefetches=True, rank=Rank.AT_LEAST, stages=2),
    Choice(64, prefetches=False, rank=Rank.AT_LEAST),
)
SHIFTED = (
    *(choice for choice in CHOICES if choice.stages),
    Choice(24, prefetches=True, rank=Rank.IN_SHARED_MEMORY, stages=3),
    Choice(40, prefetches=True, rank=Rank.AT_LEAST, stages=2),
)
NOT_AHEAD = tuple(choice for choice in CHOICES if choice.rank == Rank.NOT_AHEAD)


@dataclass(frozen=True, slots=True)
class Rows:
    """`count` rows of `length` elements in vectors of `width`.

    Attributes:
        knows_length: whether the kernel has the length as a constant.
        shifts: whether the vectors of each row start at its own aligned address; the length then includes the
            elements that the first vector may have before the row.
        projects: whether only inputs are held, and values computed from them are recomputed.
    """

    count: int
    length: int
    width: int
    knows_length: bool
    shifts: bool = False
    projects: bool = False


@dataclass(frozen=True, slots=True)
class RowTile:
    """The arrangement of a choice over rows: lanes * along threads, each with `batches` vectors; `at_once`
    rows per block; `resident` blocks per SM.

    Attributes:
        rows: their length is the part that a block holds; `cluster` blocks together hold a row.
    """

    choice: Choice
    rows: Rows
    lanes: int
    along: int
    batches: int
    at_once: int
    resident: int
    cluster: int = 1

    @property
    def threads(self) -> int:
        """The threads of one row."""
        return self.lanes * self.along

    @property
    def rows_an_sm(self) -> int:
        return self.at_once * self.resident

    def turns(self, hardware: HardwareInfo) -> float:
        """Returns the number of turns in which all SMs together process the rows."""
        return self.rows.count / (hardware.sm_count * self.rows_an_sm)


def lanes_of(vectors: int, most: int) -> int:
    """Returns the threads x of a row: a warp, or the part of it that leaves fewer places in vain, with up to
    `most` vectors each.
    """

    def places(lanes: int) -> int:
        return lanes * ceil_div(vectors, lanes)

    lanes = min(WARP_SIZE, power_of_two_at_least(vectors))
    half = lanes // 2
    fits = half >= MIN_LANES and places(half) <= half * most
    return half if fits and places(lanes) > MIN_GAIN_OF_HALF * places(half) else lanes


def clusters_of(hardware: HardwareInfo) -> tuple[int, ...]:
    """Returns the numbers of blocks of a cluster that may hold a row."""
    return tuple(blocks for blocks in BLOCKS_OF_CLUSTER if blocks <= hardware.max_cluster)


def part_of(rows: Rows, cluster: int) -> Rows:
    """Returns the part of each row that a block of a cluster has."""
    return replace(rows, length=ceil_div(ceil_div(rows.length, rows.width), cluster) * rows.width)


def groups_of(tile: RowTile, hardware: HardwareInfo) -> int:
    """Returns the number of blocks, or of clusters of them, that are resident at once."""
    return hardware.resident_clusters(tile.cluster, tile.resident)


def in_turns(tile: RowTile, hardware: HardwareInfo) -> int:
    """Returns the number of blocks, or clusters, that take shifted rows in turns; 0 if these have too few of
    the SMs.
    """
    groups = groups_of(tile, hardware) // tile.rows.width * tile.rows.width
    return groups if groups * tile.cluster >= MIN_SHARE_OF_SMS * hardware.sm_count * tile.resident else 0


def blocks_text(tile: RowTile) -> str:
    return f"clusters of {tile.cluster} blocks" if tile.cluster > 1 else "blocks"


def resident_blocks(threads: int, registers: int, hardware: HardwareInfo) -> int:
    """Returns how many blocks of so many threads, with so many registers each, an SM holds; at least one."""
    warps = ceil_div(threads, WARP_SIZE)
    by_registers = hardware.resident_warps(registers) // warps
    by_threads = hardware.max_threads_per_sm // (warps * WARP_SIZE)
    return max(1, min(by_registers, by_threads, hardware.max_blocks_per_sm))
