"""Tiles of rows and columns as blocks, for an input whose runs of memory are short."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusewright.ir.axis import IterDomain
from fusewright.schedulers.reference_map import Access

# Vectors along a row of a tile.
TILE_COLUMNS = 8
# Bytes of runs of an input's memory up to which a block is a tile: rows of the output that are neighbours in
# that memory share its lines then.
#   H200, 134 MB of bf16 with the first two dimensions exchanged, us, by tiles and by rows: runs of 16 bytes
#   72 and 98, of 32 72 and 84, of 64 74 and 80.
SHORT_RUN_BYTES = 64


@dataclass(frozen=True, slots=True)
class Tile:
    """Blocks of rows and columns.

    Attributes:
        at: the number of dimensions that are rows.
        columns, rows: threads of a block along each.
    """

    at: int
    columns: int
    rows: int


def short_run(access: Access, axes: Sequence[IterDomain], sizes: Sequence[int]) -> int | None:
    """Returns how many of a kernel's dimensions have to be rows for neighbours in an input's memory to be
    rows, if its runs along the columns are short; else None.
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
            is_short = is_run and place[axis] < expected and run <= SHORT_RUN_BYTES
            return place[axis] + 1 if is_short else None
        run *= sizes[expected]
    return None


def along_memory(access: Access, axes: Sequence[IterDomain]) -> list[IterDomain]:
    """Returns a kernel's dimensions in the order in which an input lies in memory: a tile's threads have its
    short runs side by side.
    """
    place = {ours: i for i, ours in enumerate(access.tensor.allocation)}
    return sorted(axes, key=lambda axis: place.get(access.axes.get(axis), -1))  # type: ignore[arg-type]
