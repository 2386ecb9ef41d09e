"""Tiles of rows and columns as blocks, for an input whose runs of memory are short."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from fusewright.ir.axis import IterDomain
from fusewright.schedulers.pointwise.blocks import THREADS
from fusewright.schedulers.reference_map import Access

# Vectors along a row of a tile.
TILE_COLUMNS = 8
# Bytes of runs of an input's memory up to which a block is a tile: rows of the output that are neighbours in
# that memory share its lines then.
#   H200, 134 MB of bf16 with the first two dimensions exchanged, us, by tiles and by rows: runs of 16 bytes
#   72 and 98, of 32 72 and 84, of 64 74 and 80.
SHORT_RUN_BYTES = 64
# Threads along a row of a tile whose elements are accessed one by one, since no vectors lie in such runs; the
# rows of its block, and those of a thread; and bytes of runs up to which that is faster than vectors through
# several runs.
#   H200, 134 MB of bf16, the middle dimensions of 16x1024xSx3 exchanged, us: in one dimension 231, in such
#   tiles 121, with two rows a thread 156, with one 243; runs of 5 157 and 113, of 7 146 and 104; of float 134
#   and 83, 107 and 81, 94 and 81.
ELEMENT_COLUMNS = 32
ELEMENT_ROWS = 16
ELEMENT_ROWS_A_THREAD = 4
ELEMENT_RUN_BYTES = 32


@dataclass(frozen=True, slots=True)
class Tile:
    """Blocks of rows and columns.

    Attributes:
        at: the number of dimensions that are rows.
        columns, rows: threads of a block along each.
        rows_a_thread: the rows of a thread.
    """

    at: int
    columns: int
    rows: int
    rows_a_thread: int = 1


def tile_of(access: Access, axes: Sequence[IterDomain], sizes: Sequence[int], width: int) -> Tile | None:
    """Returns the tile whose rows are neighbours in an input's memory, if its runs along the columns are
    short, and the columns enough for a tile; else None.

    Args:
        width: the elements of vectors within runs.
    """
    by_element = width == 1
    found = _short_run(access, axes, sizes, ELEMENT_RUN_BYTES if by_element else SHORT_RUN_BYTES)
    columns = ELEMENT_COLUMNS if by_element else TILE_COLUMNS
    if found is None or prod(sizes[found:]) < columns * width:
        return None
    if by_element:
        return Tile(found, columns, ELEMENT_ROWS, ELEMENT_ROWS_A_THREAD)
    return Tile(found, columns, THREADS // columns)


def _short_run(access: Access, axes: Sequence[IterDomain], sizes: Sequence[int], most: int) -> int | None:
    """Returns how many of a kernel's dimensions have to be rows for neighbours in an input's memory to be
    rows, if its runs along the columns have no more than `most` bytes; else None.
    """
    place = {ours: axes.index(axis) for axis, ours in access.axes.items()}
    kept = [axis for axis in access.tensor.allocation if not (axis.is_broadcast or axis.is_reduction)]
    if access.by_index or not all(axis in place for axis in kept):
        return None
    run = access.tensor.dtype.size
    own = [i for i, axis in enumerate(axes) if not axis.is_broadcast]
    for axis, expected in zip(reversed(kept), reversed(own)):
        if place[axis] != expected:
            is_run = axis is not kept[-1]
            is_short = is_run and place[axis] < expected and run <= most
            return place[axis] + 1 if is_short else None
        run *= sizes[expected]
    return None


def along_memory(access: Access, axes: Sequence[IterDomain]) -> list[IterDomain]:
    """Returns a kernel's dimensions in the order in which an input lies in memory: a tile's threads have its
    short runs side by side.
    """
    place = {ours: i for i, ours in enumerate(access.tensor.allocation)}
    return sorted(axes, key=lambda axis: place.get(access.axes.get(axis), -1))  # type: ignore[arg-type]
