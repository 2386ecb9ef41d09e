"""Tiles of transposes without vectors: the cost of positions outside the tensor, and of an element.

If every access has one element, the number of instructions matters. Each thread executes them also for
positions of a tile outside the dimension: rows of 67 in tiles of 128 take nearly twice the time of rows of
134. So the sides of tiles are chosen to have few such positions, and the number of threads of a block divides
both sides. Then the positions of a thread are at a constant distance, and its accesses share one address.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import lcm

from fusewright.core.hardware import HardwareInfo
from fusewright.core.recorded import followed, plain
from fusewright.schedulers.sectors import SECTOR_BYTES
from fusewright.schedulers.sizes import ceil_div

# ---- tiles that are tried ----

# Sides are multiples of the step, up to the longest of each group.
STEP = 8  # elements
MAX_ALONG_1 = 264  # elements along the first side
MAX_ALONG_2 = 72  # elements along the second side
# Threads of a block.
MIN_THREADS = 192  # at least
MAX_THREADS = 576  # at most
# Elements of a thread at most.
MAX_ELEMENTS = 24

# ---- cost of an element, in instructions ----

# Of an element itself.
#   SASS of sm_90: 8 an element and 40 a thread; four accesses an element take as long as ten more.
ELEMENT = 20
# Of each merged dimension, for an element.
MERGED = 4
# Of a thread besides its elements.
THREAD = 40
# Accesses of an element: to both tensors, and to the tile as it is written and read.
ACCESSES = 4

# ---- factors of that cost ----

# For sectors that a row of a tile shares with others, where it ends: another block reads the rest of these
# from a cache, or writes it.
PARTLY_READ_COST = 0.25  # of the second side
PARTLY_WRITTEN_COST = 1.0  # of the first side
# For threads for which an SM has room, but not for a whole block of them.
IDLE_COST = 0.3


@dataclass(frozen=True, slots=True)
class Along:
    """The dimension that tiles are cut from along one side.

    Attributes:
        size: elements.
        element_bytes: the size of one element.
        merged: dimensions that are merged with it and are not adjacent to it in a tensor.
        is_run: whether the elements of it after a tile's end are the tile's own next row in memory.
    """

    size: int
    element_bytes: int
    merged: int
    is_run: bool


@dataclass(frozen=True, slots=True)
class Tile:
    """Elements along both sides, and the threads of a block."""

    along1: int
    along2: int
    threads: int


def cheapest_tile(
    first: Along, second: Along, elements: int, most: int, hardware: HardwareInfo
) -> tuple[float, Tile] | None:
    """Returns the cost of an element and the tile for which it is the least; None if no tile fits.

    The sizes may be recorded numbers. The search then counts as one question.

    Args:
        elements: the most elements of a thread.
        most: the most elements of a tile.
    """
    one, other = replace(first, size=1), replace(second, size=1)

    def search(size1: int, size2: int) -> tuple[int, ...]:
        found = _cheapest(replace(one, size=size1), replace(other, size=size2), elements, most, hardware)
        return (0, 0, 0) if found is None else (found.along1, found.along2, found.threads)

    along1, along2, threads = map(plain, followed(search, first.size, second.size))
    if not threads:
        return None
    tile = Tile(along1, along2, threads)
    return tile_cost(first, second, tile, hardware), tile


@lru_cache(maxsize=1024)
def _cheapest(first: Along, second: Along, elements: int, most: int, hardware: HardwareInfo) -> Tile | None:
    longest1, longest2 = (ceil_div(along.size, STEP) * STEP for along in (first, second))
    best: tuple[float, Tile] | None = None
    least_of_all = least_cost(first, second)
    for tile in _tiles(min(elements, MAX_ELEMENTS), most):
        if tile.along1 > longest1 or tile.along2 > longest2:
            continue
        covered = _covered(first.size, tile.along1) * _covered(second.size, tile.along2)
        if best is None or covered * least_of_all < best[0]:
            cost = tile_cost(first, second, tile, hardware)
            if best is None or cost < best[0]:
                best = cost, tile
    return None if best is None else best[1]


@lru_cache(maxsize=64)
def _tiles(elements: int, most: int) -> tuple[Tile, ...]:
    """Returns the tiles in which each thread has places at a constant distance, the smallest first."""
    return tuple(
        Tile(along1, along2, threads)
        for along1 in range(STEP, MAX_ALONG_1 + 1, STEP)
        for along2 in range(STEP, MAX_ALONG_2 + 1, STEP)
        for threads in range(lcm(along1, along2), MAX_THREADS + 1, lcm(along1, along2))
        if along1 * along2 % threads == 0
        and threads >= MIN_THREADS
        and along1 * along2 <= min(most, elements * threads)
    )


def least_cost(first: Along, second: Along) -> float:
    """Returns a cost of an element that no tile is below."""
    written = PARTLY_WRITTEN_COST * _parts(first, MAX_ALONG_1)
    read = PARTLY_READ_COST * _parts(second, MAX_ALONG_2)
    return (ELEMENT + THREAD / MAX_ELEMENTS) * (1 + written + read)


def tile_cost(first: Along, second: Along, tile: Tile, hardware: HardwareInfo) -> float:
    """Returns the cost of an element, in instructions."""
    covered = _covered(first.size, tile.along1) * _covered(second.size, tile.along2)
    count = tile.along1 * tile.along2 / tile.threads
    instructions = ELEMENT + MERGED * (first.merged + second.merged) + THREAD / count
    written = PARTLY_WRITTEN_COST * _parts(first, tile.along1)
    read = PARTLY_READ_COST * _parts(second, tile.along2)
    resident = hardware.max_threads_per_sm // tile.threads * tile.threads
    idle = IDLE_COST * (1 - resident / hardware.max_threads_per_sm)
    return covered * instructions * (1 + written + read) * (1 + idle)


def _covered(size: int, along: int) -> float:
    """Returns the places of all tiles for each element."""
    return ceil_div(size, along) * along / max(1, size)


def _parts(along: Along, tile: int) -> float:
    """Returns the share of the sectors of a tile's rows that hold elements of others."""
    if along.is_run and tile >= along.size:
        return 0.0
    return SECTOR_BYTES / (min(tile, max(1, along.size)) * along.element_bytes)
