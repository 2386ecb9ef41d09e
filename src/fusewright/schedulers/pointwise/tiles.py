"""Tiles of rows and columns as blocks, for an input whose runs of memory are short."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusewright.ir.axis import IterDomain
from fusewright.schedulers.reference_map import Access

# Vectors along a row of a tile, and bytes of runs of an input's memory up to which a block is a tile: rows of
# the output that are neighbours in that memory share its lines then (an H200, 134 MB of bfloat16 with the
# first two dimensions exchanged: runs of 16 bytes take 72 us, not 98, of 32 72 and 84, of 64 74 and 80).
TILE_COLUMNS, SHORT_RUN_BYTES = 8, 64


@dataclass(frozen=True, slots=True)
class Tile:
    """Blocks of rows and columns: how many dimensions are rows, and threads along columns and rows."""

    at: int
    columns: int
    rows: int


def short_run(access: Access, axes: Sequence[IterDomain], sizes: Sequence[int]) -> int | None:
    """How many of a kernel's dimensions are rows for neighbours in an input's memory to be rows, where its
    runs along the columns are short; None: they are not.
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
