"""Tiles of columns that a block, or the blocks of a cluster, hold in shared memory or registers."""

from __future__ import annotations

from dataclasses import dataclass

from fusewright.core.hardware import KIB, WARP_SIZE, HardwareInfo
from fusewright.schedulers.persistent.held_rows import Held
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_least

# Threads of a block, and the rows that each holds in shared memory at most: 64 KiB of bfloat16 in vectors of
# 16 bytes. An SM has room for three such blocks, one of which loads while others compute and store. Half as
# many in registers, and of columns that one or two blocks hold so (an H200: softmax down 4096, 1024 and 512
# bfloat16 reaches 0.74, 0.85 and 0.81 of a copy's speed; with 512 threads that hold tiles alone, 0.55, 0.64
# and 0.62).
THREADS, MOST_BATCHES, FEWER_BATCHES, FEW_BLOCKS = 256, 16, 8, 2
# Bytes of shared memory, and of registers of a thread, that the rows take at most.
TILE_BYTES, REGISTER_TILE_BYTES = 64 * KIB, 256
# Bytes of a tile's row, and the most blocks that hold it. Larger clusters leave more SMs idle between them,
# which costs more than runs of memory half as long. (An H200, of a copy's speed: 150 rows in the widest ones
# 0.97, before 0.87; 512 rows 0.84, before 0.71. Where the length is no constant, more than two blocks are no
# faster with wide rows.)
WIDEST_ROW, WIDE_ROW, NARROW_ROW, BLOCKS_OF_WIDE_ROWS = 256, 128, 64, 8
# Rows of a column that one thread holds in registers, or a few; the threads of a block of such columns, the
# bytes of their vectors, and those that each holds. (An H200, of a copy's speed, with 8 threads a column and
# more, and so: 8 rows 0.39, 0.97; 10 rows 0.64, 0.97; 21 rows 0.66, 0.98; 64 rows 0.95, 0.99.)
LONGEST_OF_A_THREAD, LONGEST_SHORT, SHORT_THREADS = 24, 64, 128
SHORT_VECTOR_BYTES, SHORT_BYTES = 8, 192
# Longer columns in registers: as many rows of a thread, of vectors of 8 bytes, and threads of a block, with
# the next power of two of blocks in a cluster; the bytes that a thread then holds at most. (An H200, softmax
# of bfloat16, of a copy's speed, with tiles in shared memory and so: 300 rows 0.89, 0.93; 600 rows 0.91,
# 1.01; 1200 rows 0.78, 0.91; 2048 rows 0.81, 0.83. Twice the threads in half as many blocks: 0.92, 0.95,
# 0.86, 0.71.)
ROWS_IN_REGISTERS, THREADS_IN_REGISTERS, BLOCKS_IN_REGISTERS, BYTES_IN_REGISTERS = 16, 256, 8, 128
# The least that an asynchronous copy moves (PTX ISA, cp.async).
COPIED_BYTES = 4


@dataclass(frozen=True, slots=True)
class ColumnTile:
    """A way to hold tiles of columns.

    Attributes:
        row_bytes: the bytes of a tile's row in the narrowest tensor that is read.
        threads_x, threads_y: threads of a block, along the columns and down them.
        batches: rows per thread.
        width: the width of the vectors, in elements.
        project: whether only inputs are held.
        blocks: the number of blocks of the cluster that holds a tile.
        shared: whether it is held in shared memory instead of registers.
    """

    row_bytes: int
    threads_x: int
    threads_y: int
    batches: int
    width: int
    project: bool
    blocks: int = 1
    shared: bool = False


@dataclass(frozen=True, slots=True)
class ColumnsToHold:
    """Columns to be held.

    Attributes:
        count, length: their number, and their number of elements.
        width, element_bytes: the width of the vectors that are read, and the bytes of the narrowest element.
        held: the bytes that are held, if only inputs are.
        constant: whether the kernel has the length as a constant.
        known: whether it has at least the number of threads that hold a column as a constant.
    """

    count: int
    length: int
    width: int
    element_bytes: int
    held: Held
    constant: bool
    known: bool


def clustered_tile(columns: ColumnsToHold, hardware: HardwareInfo) -> ColumnTile | None:
    """How blocks of 256 threads hold the columns, those of a cluster together where one has no room.

    In shared memory where the number of threads is known: otherwise each access has an address of its own.
    None where vectors are narrow, or no cluster has room for a tile.
    """
    bytes_of_vector = columns.width * columns.element_bytes
    if bytes_of_vector < COPIED_BYTES or not columns.held.in_all:
        return None
    shared = columns.known
    if shared:
        most = min(MOST_BATCHES, TILE_BYTES // (THREADS * columns.width * columns.held.in_all))
    else:
        most = min(FEWER_BATCHES, REGISTER_TILE_BYTES // (columns.width * columns.held.at_once))
    fewer = min(most, FEWER_BATCHES)
    if not most:
        return None
    widest, wide, narrow = (_threads_along(columns, row) for row in (WIDEST_ROW, WIDE_ROW, NARROW_ROW))
    most_of_wide = BLOCKS_OF_WIDE_ROWS if columns.constant else FEW_BLOCKS
    if shared and _blocks(columns, widest, most) <= FEW_BLOCKS:
        ways = [(widest, most), (wide, fewer)]
    elif _blocks(columns, wide, fewer) <= FEW_BLOCKS:
        ways = [(wide, fewer)]
    elif shared and _blocks(columns, wide, most) <= most_of_wide:
        ways = [(wide, most), (narrow, fewer)]
    else:
        ways = [(narrow, most), (narrow, fewer)]
    found = [(along, batches, _blocks(columns, along, batches)) for along, batches in ways]
    found = [way for way in found if way[2] <= hardware.max_cluster]
    busy = [way for way in found if _tiles(columns, way[0]) * way[2] >= hardware.sm_count * FEW_BLOCKS]
    if not found:
        return None
    along, _, blocks = (busy or found[::-1])[0]
    batches = most if blocks == 1 and shared else ceil_div(columns.length, THREADS // along * blocks)
    down, batches = fewest_threads(columns.length, along, batches, blocks)
    return ColumnTile(along * bytes_of_vector, along, down, batches, columns.width, True, blocks, shared)


def register_tile(columns: ColumnsToHold, hardware: HardwareInfo) -> ColumnTile | None:
    """How the blocks of a cluster hold columns of a known length in registers.

    None where one block holds them, or more than eight are needed; where threads have no registers for as
    many rows; and where the tiles, whose rows are 128 bytes, are too few for the GPU.
    """
    width = min(columns.width, max(1, SHORT_VECTOR_BYTES // columns.element_bytes))
    along = WIDE_ROW // SHORT_VECTOR_BYTES
    a_block = THREADS_IN_REGISTERS // along * ROWS_IN_REGISTERS
    blocks = power_of_two_at_least(ceil_div(columns.length, a_block))
    if not columns.constant or not 1 < blocks <= min(BLOCKS_IN_REGISTERS, hardware.max_cluster):
        return None
    if width * columns.element_bytes < SHORT_VECTOR_BYTES or columns.count < along * width:
        return None
    if ROWS_IN_REGISTERS * width * columns.held.at_once > BYTES_IN_REGISTERS:
        return None
    if ceil_div(columns.count, along * width) * blocks < hardware.sm_count * FEW_BLOCKS:
        return None
    down, batches = fewest_threads(columns.length, along, ROWS_IN_REGISTERS, blocks)
    return ColumnTile(WIDE_ROW, along, down, batches, width, True, blocks)


def short_tile(columns: ColumnsToHold, hardware: HardwareInfo) -> ColumnTile | None:
    """How threads hold columns of few rows in registers: all of a column each, or a few threads of a block.

    None where columns are longer, or a warp's row would be shorter than memory is fast with.
    """
    single = columns.length <= LONGEST_OF_A_THREAD
    down = 1 if single else ceil_div(columns.length, MOST_BATCHES)
    batches = ceil_div(columns.length, down)
    along = SHORT_THREADS if single else WARP_SIZE
    width = min(columns.width, max(1, SHORT_VECTOR_BYTES // columns.element_bytes))
    all_sms = along * hardware.sm_count
    while width > 1 and (
        batches * width * columns.held.at_once > SHORT_BYTES
        or (width * columns.element_bytes > COPIED_BYTES and columns.count < width * all_sms)
    ):
        width //= 2
    if columns.length > LONGEST_SHORT or width * columns.element_bytes < COPIED_BYTES:
        return None
    return ColumnTile(along * width * columns.element_bytes, along, down, batches, width, True)


def fewest_threads(length: int, along: int, batches: int, blocks: int = 1) -> tuple[int, int]:
    """The fewest threads down the columns that hold them in `batches` rows each, and the fewest rows each
    that these threads then need. Blocks are whole warps.

    Args:
        along: threads along the columns.
        blocks: that share a column.
    """
    step = max(1, WARP_SIZE // along)
    down = ceil_div(length, batches * blocks * step) * step
    return down, ceil_div(length, down * blocks)


def _threads_along(columns: ColumnsToHold, row_bytes: int) -> int:
    """Threads along a tile's row, and no more than half of them beyond the last column."""
    threads = max(1, row_bytes // (columns.width * columns.element_bytes))
    while threads > 1 and threads // 2 * columns.width >= columns.count:
        threads //= 2
    return threads


def _blocks(columns: ColumnsToHold, along: int, batches: int) -> int:
    return ceil_div(columns.length, THREADS // along * batches)


def _tiles(columns: ColumnsToHold, along: int) -> int:
    return ceil_div(columns.count, along * columns.width)
