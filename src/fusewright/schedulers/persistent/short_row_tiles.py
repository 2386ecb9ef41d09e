"""Tiles of columns whose elements lie in short rows of memory: softmax over the places of [batch, place, 4].

Only a few columns are side by side, and all rows of these columns follow one another. A tile of the usual
width would take pieces of many such stretches. Here a tile is as wide as a row, so that neighbouring threads,
along the row and then down the columns, go through one stretch. A block holds several stretches if they are
short:

    [I, R] -> [I BIDx, I TIDz, R TIDy, I TIDx | batches, I vector]
"""

from __future__ import annotations

from fusewright.core.hardware import REGISTER_BYTES, WARP_SIZE
from fusewright.schedulers.persistent.column_tiles import (
    MAX_ROWS_OF_A_THREAD,
    WIDEST_ROW,
    ColumnsToHold,
    ColumnTile,
    fewest_threads,
)
from fusewright.schedulers.persistent.held_rows import Held
from fusewright.schedulers.sectors import LINE_BYTES, SECTOR_BYTES
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_least

# Bytes that a thread has in flight where a column has enough rows for that.
BYTES_IN_FLIGHT = 64
# How much of a stretch of memory the threads of a tile read in one step, in bytes, and the bytes that a
# thread must then have in flight; a column takes the first pair that it has enough rows for. With less in
# flight, memory waits.
#   H200, softmax of 64 places of bf16: of four columns by lines, in four steps, at a copy's speed; of two by
#   lines in two steps, eight bytes in flight, at 0.8 of it. The other pairs follow from that, and are not
#   measured.
LEAST_IN_FLIGHT = 16  # bytes of a thread
STEPS = (
    (LINE_BYTES, 2 * LEAST_IN_FLIGHT),
    (SECTOR_BYTES, LEAST_IN_FLIGHT),
    (SECTOR_BYTES // 2, LEAST_IN_FLIGHT),
)
# Bytes of a stretch up to which each thread holds a whole column instead (`column_tiles.short_tile`): its
# accesses and those of its neighbours are in the same few lines.
SHORT_STRETCH = 64
# Rows that a thread holds at most, of vectors and of single elements.
MAX_ROWS_OF_VECTORS = 16
MAX_ROWS_OF_ELEMENTS = 32
# Threads of a block that has several tiles, and of a tile.
MIN_THREADS = 128  # of several tiles, at least
MAX_THREADS = 512  # of a tile


def short_row_tile(columns: ColumnsToHold, project: bool, held: Held, registers: int) -> ColumnTile | None:
    """Returns the tile of a row's columns that a block holds in registers; None where it has no room, or
    columns have so few rows that threads which hold whole ones serve them.

    Args:
        project: whether only inputs are held.
        held: what is held then.
        registers: registers of a thread for what it holds, at most.
    """
    along, width = columns.row // columns.width, columns.width
    most = MAX_ROWS_OF_VECTORS if width > 1 else MAX_ROWS_OF_ELEMENTS
    most = min(most, registers * REGISTER_BYTES // max(1, width * held.at_once))
    bytes_of_vector, bytes_of_row = width * columns.element_bytes, columns.row * columns.element_bytes
    if not most or along > MAX_THREADS or columns.length * bytes_of_row <= SHORT_STRETCH:
        return None
    usual = min(most, max(1, BYTES_IN_FLIGHT // bytes_of_vector))
    least = max(ceil_div(columns.length, usual), WARP_SIZE // along if along > 1 else 1)
    for step, enough in STEPS:
        wanted = max(least, ceil_div(step, bytes_of_row))
        down = min(power_of_two_at_least(wanted), max(1, MAX_THREADS // along))
        batches = ceil_div(columns.length, down)
        in_flight = batches * bytes_of_vector
        if in_flight >= enough:
            break
    is_short = columns.length <= MAX_ROWS_OF_A_THREAD
    if batches > most or (is_short and in_flight < LEAST_IN_FLIGHT):
        return None
    tiles = max(1, MIN_THREADS // (along * down))
    down, batches = fewest_threads(columns.length, along * tiles, batches)
    while tiles > 1 and not _exchange_by_lanes(along, down):
        tiles //= 2
        down, batches = fewest_threads(columns.length, along * tiles, batches)
    return ColumnTile(WIDEST_ROW, along, down, batches, width, project, tiles=tiles)


def _exchange_by_lanes(along: int, down: int) -> bool:
    """Whether the threads of a tile down a column reduce by shuffles: they are lanes of a warp, a power of
    two, or of whole warps. Where they cannot, as beside three threads along a row, any number will do.
    """
    threads = along * down
    return (
        along & (along - 1) > 0
        or threads % WARP_SIZE == 0
        or (threads < WARP_SIZE and down & (down - 1) == 0)
    )
