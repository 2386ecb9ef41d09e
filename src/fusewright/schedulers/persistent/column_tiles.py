"""Tiles of columns that a block, or the blocks of a cluster, hold in shared memory or registers."""

from __future__ import annotations

from dataclasses import dataclass

from fusewright.core.hardware import KIB, WARP_SIZE, HardwareInfo
from fusewright.schedulers.persistent.held_rows import Held
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_least

# ---- tiles of blocks of 256 threads ----

# Threads of a block.
THREADS = 256
# Rows that a thread holds in shared memory at most: 64 KiB of bf16 in vectors of 16 bytes. An SM has room for
# three such blocks, one of which loads while others compute and store.
MAX_BATCHES = 16
# The same in registers, and of columns that up to FEW_BLOCKS hold in shared memory.
#   H200, softmax down 4096, 1024 and 512 bf16, of a copy's speed: 0.74, 0.85 and 0.81; with 512 threads that
#   hold tiles alone 0.55, 0.64 and 0.62.
FEWER_BATCHES = 8  # rows of a thread
FEW_BLOCKS = 2  # that hold a column
# Bytes of shared memory of a block, and of registers of a thread, that rows take at most.
TILE_BYTES = 64 * KIB  # of shared memory of a block
REGISTER_TILE_BYTES = 256  # of registers of a thread
# Bytes of a tile's row: the widest for columns that few blocks hold, and so on. Larger clusters leave more
# SMs idle between them, which costs more than runs of memory half as long.
#   H200, of a copy's speed: 150 rows in the widest ones 0.97, otherwise 0.87; 512 rows 0.84, otherwise 0.71.
WIDEST_ROW = 256  # bytes, for columns that few blocks hold with MAX_BATCHES
WIDE_ROW = 128  # bytes, for columns that more blocks hold
NARROW_ROW = 64  # bytes, for all others
# Blocks that hold wide rows of columns of a constant length at most. Where the length is no constant, more
# than FEW_BLOCKS are no faster with wide rows.
MAX_BLOCKS_OF_WIDE_ROWS = 8
# The least bytes that an asynchronous copy moves (PTX ISA, cp.async).
COPIED_BYTES = 4

# ---- columns of few rows, in registers ----

# Rows of a column that one thread holds at most, and that a few threads do.
#   H200, of a copy's speed, with 8 threads a column or more, and so: 8 rows 0.39 and 0.97, 10 rows 0.64 and
#   0.97, 21 rows 0.66 and 0.98, 64 rows 0.95 and 0.99.
MAX_ROWS_OF_A_THREAD = 24  # rows of a column
MAX_ROWS_OF_SHORT = 64  # rows of a column that a few threads hold
# Threads of a block of such columns, the bytes of their vectors, and those that each thread holds, at most.
SHORT_THREADS = 128  # of a block
SHORT_VECTOR_BYTES = 8  # of a vector
SHORT_BYTES = 192  # of registers of a thread

# ---- longer columns in registers of a cluster ----

# Rows of a thread, in vectors of SHORT_VECTOR_BYTES, threads of a block, and blocks of a cluster at most: the
# next power of two that holds a column.
#   H200, softmax of bf16, of a copy's speed with tiles in shared memory, and so: 300 rows 0.89 and 0.93, 600
#   rows 0.91 and 1.01, 1200 rows 0.78 and 0.91, 2048 rows 0.81 and 0.83. Twice the threads in half as many
#   blocks: 0.92, 0.95, 0.86, 0.71.
ROWS_IN_REGISTERS = 16  # of a thread
THREADS_IN_REGISTERS = 256  # of a block
MAX_BLOCKS_IN_REGISTERS = 8  # of a cluster
# Bytes that a thread then holds at most.
MAX_BYTES_IN_REGISTERS = 128


@dataclass(frozen=True, slots=True)
class ColumnTile:
    """A way to hold tiles of columns.

    Attributes:
        row_bytes: the bytes of a tile's row in the narrowest tensor that is read; WIDEST_ROW where rows
            follow one another in memory, which is as fast.
        threads_x, threads_y: threads of a block, along the columns and down them.
        batches: rows per thread.
        width: the width of the vectors, in elements.
        project: whether only inputs are held.
        blocks: the number of blocks of the cluster that holds a tile.
        shared: whether it is held in shared memory instead of registers.
        tiles: the number of such tiles that a block holds.
    """

    row_bytes: int
    threads_x: int
    threads_y: int
    batches: int
    width: int
    project: bool
    blocks: int = 1
    shared: bool = False
    tiles: int = 1


@dataclass(frozen=True, slots=True)
class ColumnsToHold:
    """Columns to be held.

    Attributes:
        count, length: their number, and their number of elements.
        row: the number of columns whose elements follow one another in memory.
        width, element_bytes: the width of the vectors that are read, and the bytes of the narrowest element.
        held: the bytes that are held, if only inputs are.
        constant: whether the kernel has the length as a constant.
        known: whether it has at least the number of threads that hold a column as a constant.
    """

    count: int
    length: int
    row: int
    width: int
    element_bytes: int
    held: Held
    constant: bool
    known: bool


def clustered_tile(columns: ColumnsToHold, hardware: HardwareInfo) -> ColumnTile | None:
    """Returns the tile by which blocks of 256 threads hold the columns, those of a cluster together where one
    has no room; None where vectors are narrow, or no cluster has room for a tile.

    It is in shared memory if the number of threads is known, as otherwise each access has an address of its
    own.
    """
    bytes_of_vector = columns.width * columns.element_bytes
    if bytes_of_vector < COPIED_BYTES or not columns.held.in_all:
        return None
    shared = columns.known
    if shared:
        most = min(MAX_BATCHES, TILE_BYTES // (THREADS * columns.width * columns.held.in_all))
    else:
        most = min(FEWER_BATCHES, REGISTER_TILE_BYTES // (columns.width * columns.held.at_once))
    fewer = min(most, FEWER_BATCHES)
    if not most:
        return None
    widest, wide, narrow = (_threads_along(columns, row) for row in (WIDEST_ROW, WIDE_ROW, NARROW_ROW))
    most_of_wide = MAX_BLOCKS_OF_WIDE_ROWS if columns.constant else FEW_BLOCKS
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
    row_bytes = WIDEST_ROW if is_of_short_rows(columns) else along * bytes_of_vector
    return ColumnTile(row_bytes, along, down, batches, columns.width, True, blocks, shared)


def register_tile(columns: ColumnsToHold, hardware: HardwareInfo) -> ColumnTile | None:
    """Returns the tile by which the blocks of a cluster hold columns of a known length in registers.

    None where one block holds them, or more than eight are needed; where threads have no registers for as
    many rows; and where the tiles, whose rows are 128 bytes, are too few for the GPU.
    """
    width = min(columns.width, max(1, SHORT_VECTOR_BYTES // columns.element_bytes))
    along = WIDE_ROW // SHORT_VECTOR_BYTES
    a_block = THREADS_IN_REGISTERS // along * ROWS_IN_REGISTERS
    blocks = power_of_two_at_least(ceil_div(columns.length, a_block))
    if not columns.constant or not 1 < blocks <= min(MAX_BLOCKS_IN_REGISTERS, hardware.max_cluster):
        return None
    if width * columns.element_bytes < SHORT_VECTOR_BYTES or columns.count < along * width:
        return None
    if ROWS_IN_REGISTERS * width * columns.held.at_once > MAX_BYTES_IN_REGISTERS:
        return None
    if ceil_div(columns.count, along * width) * blocks < hardware.sm_count * FEW_BLOCKS:
        return None
    down, batches = fewest_threads(columns.length, along, ROWS_IN_REGISTERS, blocks)
    return ColumnTile(WIDE_ROW, along, down, batches, width, True, blocks)


def short_tile(columns: ColumnsToHold, hardware: HardwareInfo) -> ColumnTile | None:
    """Returns the tile by which threads hold columns of few rows in registers, each all of a column, or a few
    threads of a block; None where columns are longer, or a warp's row is shorter than memory is fast with.
    """
    single = columns.length <= MAX_ROWS_OF_A_THREAD
    down = 1 if single else ceil_div(columns.length, MAX_BATCHES)
    batches = ceil_div(columns.length, down)
    along = SHORT_THREADS if single else WARP_SIZE
    width = min(columns.width, max(1, SHORT_VECTOR_BYTES // columns.element_bytes))
    all_sms = along * hardware.sm_count
    while width > 1 and (
        batches * width * columns.held.at_once > SHORT_BYTES
        or (width * columns.element_bytes > COPIED_BYTES and columns.count < width * all_sms)
    ):
        width //= 2
    if columns.length > MAX_ROWS_OF_SHORT or width * columns.element_bytes < COPIED_BYTES:
        return None
    return ColumnTile(along * width * columns.element_bytes, along, down, batches, width, True)


def is_of_short_rows(columns: ColumnsToHold) -> bool:
    """Whether tiles of the usual widths would have pieces of several stretches of memory: the columns that
    are side by side, in rows that follow one another, are fewer than the narrowest tile has, or a few tiles
    and a part.
    """
    row = columns.row * columns.element_bytes
    if not columns.row or columns.row >= columns.count or columns.row % columns.width:
        return False
    return row < NARROW_ROW or (row % NARROW_ROW > 0 and row <= WIDEST_ROW)


def fewest_threads(length: int, along: int, batches: int, blocks: int = 1) -> tuple[int, int]:
    """Returns the fewest threads down the columns that hold them in `batches` rows each, and the fewest rows
    each that these threads then need. Blocks are whole warps.

    Args:
        along: threads along the columns.
        blocks: that share a column.
    """
    step = max(1, WARP_SIZE // along)
    down = ceil_div(length, batches * blocks * step) * step
    return down, ceil_div(length, down * blocks)


def _threads_along(columns: ColumnsToHold, row_bytes: int) -> int:
    """Returns the threads along a tile's row, of which no more than half are beyond the last column; or those
    along a short row of memory.
    """
    if is_of_short_rows(columns):
        return columns.row // columns.width
    threads = max(1, row_bytes // (columns.width * columns.element_bytes))
    while threads > 1 and threads // 2 * columns.width >= columns.count:
        threads //= 2
    return threads


def _blocks(columns: ColumnsToHold, along: int, batches: int) -> int:
    return ceil_div(columns.length, THREADS // along * batches)


def _tiles(columns: ColumnsToHold, along: int) -> int:
    return ceil_div(columns.count, along * columns.width)
