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
    WIDEST_ROW,
    ColumnsToHold,
    ColumnTile,
    fewest_threads,
)
from fusewright.schedulers.persistent.held_rows import Held
from fusewright.schedulers.sectors import LINE_BYTES
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_least

# Bytes that a thread has in flight at least where a column has as many rows.
BYTES_IN_FLIGHT = 64
# Rows that a thread holds at most, of vectors and of single elements.
MAX_ROWS_OF_VECTORS = 16
MAX_ROWS_OF_ELEMENTS = 32
# Threads of a block: at least where a tile has fewer, and at most.
THREADS = 128  # at least
MAX_THREADS = 512  # at most


def short_row_tile(columns: ColumnsToHold, project: bool, held: Held, registers: int) -> ColumnTile | None:
    """Returns the tile of a row's columns that a block holds in registers; None where it has no room.

    Args:
        project: whether only inputs are held.
        held: what is held then.
        registers: registers of a thread for what it holds, at most.
    """
    along, width = columns.row // columns.width, columns.width
    most = MAX_ROWS_OF_VECTORS if width > 1 else MAX_ROWS_OF_ELEMENTS
    most = min(most, registers * REGISTER_BYTES // max(1, width * held.at_once))
    if not most or along > MAX_THREADS:
        return None
    usual = min(most, max(1, BYTES_IN_FLIGHT // (width * columns.element_bytes)))
    # Lanes exchange results where the threads down a column are a power of two; each step takes whole lines.
    lines = ceil_div(LINE_BYTES, columns.row * columns.element_bytes)
    wanted = max(ceil_div(columns.length, usual), lines, WARP_SIZE // along if along > 1 else 1)
    down = min(power_of_two_at_least(wanted), max(1, MAX_THREADS // along))
    batches = ceil_div(columns.length, down)
    if batches > most:
        return None
    tiles = max(1, THREADS // (along * down))
    down, batches = fewest_threads(columns.length, along * tiles, batches)
    return ColumnTile(WIDEST_ROW, along, down, batches, width, project, tiles=tiles)
