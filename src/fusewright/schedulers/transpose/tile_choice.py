"""Chooses the tiles of a transpose: the dimensions that are merged for their sides, the elements along these,
the vectors, and the threads of a block.

The first side is that of group 1, along which the output is usually stored, the second that of group 2. How
long tiles are to be depends on which sides have vectors; small dimensions then shorten them, and lengthen the
other side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from fusewright.core.hardware import MAX_VECTOR_BYTES, REGISTER_BYTES, HardwareInfo
from fusewright.core.once import cached_property
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.schedulers.base import Facts
from fusewright.schedulers.cost import copy_seconds, starting_seconds
from fusewright.schedulers.params import TRANSPOSE_THREADS
from fusewright.schedulers.reference_map import Access
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_least
from fusewright.schedulers.transpose.access_groups import AccessAlong, AccessGroups
from fusewright.schedulers.transpose.single_tiles import Along, Tile, cheapest_tile, least_cost, tile_cost
from fusewright.schedulers.transpose.small_sides import tile_of_whole_side
from fusewright.schedulers.vector_limits import VectorLimits

# ---- in general ----

# A side of a tile has the elements of ROW_BYTES in global memory, full lines of the L2 cache, within these
# limits.
MIN_TILE = 32  # elements, of a side without vectors
MAX_TILE = 64  # elements
ROW_BYTES = 128  # of the smallest element
# Blocks that should fit in an SM's shared memory: with 16 KiB of loads each, eight hide their latency.
BLOCKS_PER_SM = 8
# Bytes of loads that a thread may hold: a quarter of its registers.
MAX_LOADED_BYTES = 256

# ---- vectors along both sides ----

# Tiles in general, and the threads of their blocks.
#   H200, six permutations and transposes of 8 and 8 bf16, of a copy's speed in geometric mean: 0.97 in tiles
#   of 64x128 by 256 threads, 0.96 of 64x64 by 128, 0.91 of 128x64 by 128. Four of float: 0.99 in tiles of
#   64x64 by 256, 0.97 of 64x32 by 128.
VECTOR_TILE = 64  # elements along the first side
VECTOR_BYTES = 256  # along the second side,
MAX_VECTOR_ALONG = 128  # of so many elements at most
VECTOR_THREADS = 256  # of a block
# Tiles of narrow vectors. Blocks are larger, as a thread has few bytes of each vector, and long pieces of the
# output count more. Each thread has more than one vector.
#   H200, bf16: 84x194x990 takes 0.75 of the time, 2910x10140 0.92. Channels of 12 bytes, by threads of a
#   single vector: 29.3 us with 512 threads a tile, 22.9 with 256.
NARROW_BYTES = (4, 8)  # at most, of the narrower vector and of the wider one
NARROW_TILE = 256  # elements along the first side
NARROW_ALONG = 64  # elements along the second side
NARROW_THREADS = 512  # of a block
# Tiles of vectors that are as wide as an access along the second side, which are narrowed there. This is
# known for elements of WIDE_ELEMENT bytes only.
#   H200, bf16: five permutations and transposes with narrower vectors along the first side take 0.88 to 0.96
#   of the time with 16 bytes in tiles of 64x128 or 64x64; seventeen with as wide ones 0.87 to 1.05 of that in
#   tiles of 64x128, 0.97 in geometric mean.
WIDE_ELEMENT = 2  # bytes
WIDE_TILE = 128  # elements along the first side
WIDE_ALONG = 64  # elements along the second side
WIDE_BYTES = 8  # of a vector along the second side

# ---- vectors along one side ----

# Tiles of vectors along the second side alone, which are narrowed.
#   H200: six permutations and transposes of float take 0.81 to 0.98 of the time of tiles of 32x32 with 16
#   bytes, eighteen of bf16 0.93 to 1.06 of that with 8 bytes.
LONE_TILE = 128  # elements along the first side
LONE_ALONG_BYTES = 128  # along the second side with vectors
LONE_VECTOR_BYTES = 4  # of these vectors
# Tiles of vectors along the first side alone: the second, which is accessed by element since its rows start
# anywhere, has long pieces, if possible a whole dimension. Each thread has many loads in flight.
#   H200, us, in tiles of 128x32 by 256 threads and in these: float8 both ways of 6063x8192 101 and 84,
#   transposes of 1048576x67 bf16 128 and 85, of 4096x8191 44.8 and 43.4, of 16384x4095 float 148 and 145
#   (171 in tiles of 64x128 by 128 threads), merged heads of 65 54.3 and 47.3, three tensors of 16384x4096 163
#   and 140.
LONE_FIRST_TILE = 64  # elements along the first side
LONE_FIRST_BYTES = 256  # along the second side,
MAX_LONE_FIRST = 128  # of so many elements at most
LEAST_LONE_FIRST = 32  # of so many at least
LONE_FIRST_THREADS = 128  # of a block
LONE_FIRST_LOADED_BYTES = 800  # that a thread may hold
LONE_FIRST_BLOCKS = 6  # that should fit in an SM's shared memory
# Pieces of a dimension below which they are half as long.
#   H200, images of 14x14 pixels with a token and tables: 31.6 us in two pieces of 104, 29.0 in four of 64.
MANY_LONE_PARTS = 4

# ---- no vectors ----

# Tiles in general. Long pieces of the output count more than those of the input, and more stores of a thread
# keep loads waiting.
#   H200, 8191x4095 bf16: 50 us in tiles of 128x32 by 256 threads, 64 in tiles of 64x64 by 128.
SINGLE_TILE = 128  # elements along the first side
SINGLE_BYTES = 64  # along the second side
SINGLE_STORES = 16  # elements that a thread stores one by one
SINGLE_THREADS = 256  # of a block, at most
# If there are many blocks, tiles whose sides are no powers of two are tried (`single_tiles`), and taken if
# their time by `tile_cost` is clearly less.
#   H200, bf16: at 0.52 and 0.68 of it 16x67x16899 and 7x33x1071x65 take 31.1 and 29.2 us, otherwise 32.7 and
#   37.8. At 0.8 65x513x1021 takes 52.2, otherwise 50.8.
MANY_BLOCKS = 4  # for each SM
MAX_SHARE_OF_USUAL = 0.75  # of the usual tile's time

# ---- small dimensions ----

# Dimensions that are merged at most to fill both sides of a tile where they lie apart: each takes every
# thread a division.
MAX_APART = 5

# Factor by which tiles that are lengthened to fill a block may cover more than all elements: rows of 129 are
# two tiles of 128, the second nearly empty. The same of tiles where one side alone has vectors.
#   H200, float, two inputs of 17x125x55x80, 125 elements by 4400: 34.9 us in tiles of 128x32, 42.2 of 32x32.
MAX_COVERED = 1.25
# Elements at most of a side that is lengthened because the other one is cut short by a small dimension.
MAX_LONG_TILE = 512
# The same of the first side where both have vectors: the greater of these. Smaller blocks are launched no
# faster than they are done; larger tiles gain nothing.
#   H200, 34 MB in, by 128 elements of 1 kB and by 512 or 256 of 2 to 4 kB, us: four channels of bf16 23.9 and
#   20.3, two of float 23.9 and 20.4, eight bytes 24.1 and 20.5.
MAX_LONG_VECTOR_TILE = 128  # elements
LEAST_TILE_BYTES = 2048  # of a tile

#: The positions of the dimensions that are merged with the first tiled one, and with the second.
Merged = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class _Side:
    """One side of the tiles.

    Attributes:
        vectors: the limits on the vectors along it.
        inner: the position of its dimension among the reference's.
        outer: the dimensions that may be merged with it, from the inside.
        beside: how many of these are adjacent to it in all tensors.
        element_bytes: the bytes of the smallest element moved along it.
        widest_bytes: those of the largest.
    """

    vectors: VectorLimits
    inner: int
    outer: tuple[int, ...]
    beside: int
    element_bytes: int
    widest_bytes: int

    def usual_elements(self, width: int) -> int:
        """Returns the elements of a tile along it, where the sizes leave the choice."""
        least = MIN_TILE if width == 1 else width
        return max(least, min(MAX_TILE, ROW_BYTES // self.element_bytes))

    def is_whole_access(self, width: int) -> bool:
        """Whether vectors of `width` elements, of the largest if there are several, are as wide as an access.

        H200, float with a mask of bools, 24577 x 2048 by rows added to as many by columns: 174 us in tiles of
        64 x 64 and narrowed vectors, as for an access, and 215 of 32 x 64.
        """
        return width * self.widest_bytes == MAX_VECTOR_BYTES


@dataclass(frozen=True, slots=True)
class Tiling:
    """The tiles of a kernel.

    Attributes:
        merged: the dimensions that are merged for the sides.
        along1, along2: the dimensions that the sides are cut from.
        widths: elements of the vectors along both sides.
    """

    merged: Merged
    along1: Along
    along2: Along
    tile: Tile
    widths: tuple[int, int]

    def blocks(self, sizes: Sequence[int]) -> int:
        """Returns the number of tiles."""
        others = prod(sizes) // max(1, self.along1.size * self.along2.size)
        of_side1, of_side2 = (
            ceil_div(self.along1.size, self.tile.along1),
            ceil_div(self.along2.size, self.tile.along2),
        )
        return others * of_side1 * of_side2


@dataclass(frozen=True, eq=False)
class TileChoice:
    """Chooses for the kernels of one fusion.

    Attributes:
        accesses: all loads and stores.
        staged: those of group 2.
    """

    fusion: Fusion
    groups: AccessGroups
    accesses: Sequence[Access]
    staged: frozenset[Access]

    def best(self, sizes: Sequence[int], facts: Facts, hardware: HardwareInfo) -> Tiling:
        """Returns the tiles of a call."""
        width1, width2 = (side.vectors.width(facts) for side in self.sides)
        lone = self._lone_tile(sizes, width1, width2)
        merged, tile = self._usual_tile(sizes, width1, width2, lone, hardware)
        if width1 == 1 and lone is not None:
            width2 = max(1, LONE_VECTOR_BYTES // self.sides[1].widest_bytes)
        elif self._is_second_wide(width1, width2):
            width2 = WIDE_BYTES // WIDE_ELEMENT
        usual = Tiling(merged, *self._along(sizes, merged), tile, (width1, width2))
        if width1 == width2 == 1 and usual.blocks(sizes) >= MANY_BLOCKS * hardware.sm_count:
            merged, tile = self._single_tile(sizes, merged, tile, hardware)
        along1, along2 = self._along(sizes, merged)
        tile = _with_whole_side(along1, along2, tile, width1, width2)
        return Tiling(merged, along1, along2, tile, (width1, width2))

    @cached_property
    def sides(self) -> tuple[_Side, _Side]:
        groups = self.groups
        first = self._side(groups.inner1, groups.first, groups.outer1, groups.beside1)
        return first, self._side(groups.inner2, groups.second, groups.outer2, groups.beside2)

    def _side(
        self, inner: IterDomain, members: Sequence[AccessAlong], outer: tuple[int, ...], beside: int
    ) -> _Side:
        limits = VectorLimits(self.fusion, inner, [member.access for member in members])
        bytes_ = [member.tensor.dtype.size for member in members if member.full]
        place = self.groups.space.axes.index(inner)
        return _Side(limits, place, outer, beside, min(bytes_), max(bytes_))

    # ---- by which sides have vectors ----

    def _are_narrow(self, width1: int, width2: int) -> bool:
        """Whether both sides have vectors, and the sizes allow only narrow ones."""
        sizes = sorted(w * side.element_bytes for w, side in zip((width1, width2), self.sides))
        return min(width1, width2) > 1 and all(size <= most for size, most in zip(sizes, NARROW_BYTES))

    def _is_second_wide(self, width1: int, width2: int) -> bool:
        """Whether vectors of the second side are as wide as an access, and those of the first no wider."""
        bytes1, bytes2 = (w * side.element_bytes for w, side in zip((width1, width2), self.sides))
        is_measured = all(side.element_bytes == WIDE_ELEMENT for side in self.sides)
        return is_measured and bytes1 <= bytes2 == MAX_VECTOR_BYTES

    def _lone_tile(self, sizes: Sequence[int], width1: int, width2: int) -> Tile | None:
        """Returns the tile where one side alone has vectors, the second whole accesses; None where both have,
        or none, or a dimension is too small for such tiles.
        """
        first, second = self.sides
        if width1 == 1 < width2 and second.is_whole_access(width2):
            along = least = LONE_ALONG_BYTES // second.element_bytes
            tile = Tile(LONE_TILE, along, VECTOR_THREADS)
        elif _is_first_lone(width1, width2):
            least, most = LEAST_LONE_FIRST, LONE_FIRST_BYTES // second.element_bytes
            tile = Tile(LONE_FIRST_TILE, min(MAX_LONE_FIRST, most), LONE_FIRST_THREADS)
        else:
            return None
        size1, size2 = _fill(sizes, first, tile.along1)[1], _fill(sizes, second, least)[1]
        return tile if MAX_COVERED * size1 >= tile.along1 and size2 >= least else None

    def _wanted_tile(self, width1: int, width2: int) -> Tile:
        """Returns the tile for vectors of such widths, and the most threads, where sizes are no limit and
        several sides have vectors, or none.
        """
        first, second = self.sides
        if width1 == width2 == 1:
            return Tile(SINGLE_TILE, max(MIN_TILE, SINGLE_BYTES // second.element_bytes), VECTOR_THREADS)
        if self._are_narrow(width1, width2):
            return Tile(NARROW_TILE, NARROW_ALONG, NARROW_THREADS)
        if self._is_second_wide(width1, width2):
            return Tile(WIDE_TILE, WIDE_ALONG, VECTOR_THREADS)
        if min(width1, width2) > 1:
            along2 = max(width2, min(MAX_VECTOR_ALONG, VECTOR_BYTES // second.element_bytes))
            return Tile(VECTOR_TILE, along2, VECTOR_THREADS)
        return Tile(first.usual_elements(width1), second.usual_elements(width2), VECTOR_THREADS)

    # ---- tiles of powers of two ----

    def _usual_tile(
        self, sizes: Sequence[int], width1: int, width2: int, lone: Tile | None, hardware: HardwareInfo
    ) -> tuple[Merged, Tile]:
        """Returns the dimensions to merge and the tile, of powers of two, for vectors of such widths.

        lone: the tile where one side alone has vectors (`_lone_tile`).
        """
        side1, side2 = self.sides
        wanted = lone or self._wanted_tile(width1, width2)
        # Dimensions that lie apart are merged for no longer a tile where the first side's vectors are wider.
        is_wider = 1 == width2 < width1 or side1.is_whole_access(width1)
        enough = min(wanted.along1, MAX_TILE) if is_wider else wanted.along1
        is_lone = lone is not None and _is_first_lone(width1, width2)
        enough2 = LEAST_LONE_FIRST if is_lone else wanted.along2
        merged1, size1 = _fill(sizes, side1, enough)
        merged2, size2 = _fill(sizes, side2, enough2, side1, merged1)
        least = self._least_elements(prod(sizes) // max(1, size1 * size2), hardware)
        if 0 < size1 * min(size2, MAX_LONG_TILE) < least:
            wanted_long = min(MAX_LONG_TILE, ceil_div(least, size1))
            merged2, size2 = _fill(sizes, side2, max(wanted.along2, wanted_long), side1, merged1)
        along1, along2 = self._lengthened_sides(wanted, (size1, size2), width1, width2)
        loaded = self._loaded_bytes(width1, width2)
        most = self._most_elements(wanted.threads, is_lone, loaded, hardware)
        others = prod(sizes) // max(1, size1 * size2)
        while along1 * along2 > min(MIN_TILE * MIN_TILE, most):
            blocks = others * ceil_div(size1, along1) * ceil_div(size2, along2)
            if along1 * along2 <= most and blocks >= hardware.sm_count:
                break
            if along1 > width1 and (along1 >= along2 or along2 == width2):
                along1 //= 2
            elif along2 > width2:
                along2 //= 2
            else:
                break
        if width1 > 1:
            vectors = along1 * along2 // max(width1, width2)
            threads = min(wanted.threads, vectors, max(VECTOR_THREADS, vectors // 2))
        else:
            threads = min(SINGLE_THREADS, max(TRANSPOSE_THREADS, along1 * along2 // SINGLE_STORES))
        if is_lone and size2 > LEAST_LONE_FIRST:
            along2 = _lone_part(size2, along2)
        return (merged1, merged2), Tile(along1, along2, max(hardware.warp_size, threads))

    def _most_elements(self, threads: int, is_lone: bool, loaded: int, hardware: HardwareInfo) -> int:
        """Returns the elements of a tile for which there is shared memory, and registers for their loads.

        Args:
            is_lone: whether the first side alone has vectors.
            loaded: the bytes of registers for one element of all loads.
        """
        shared, held = _shared_bytes(hardware, threads), MAX_LOADED_BYTES
        if is_lone:
            shared, held = hardware.shared_memory_per_sm // LONE_FIRST_BLOCKS, LONE_FIRST_LOADED_BYTES
        return min(shared // self._tile_bytes, threads * held // max(1, loaded))

    def _lengthened_sides(
        self, wanted: Tile, sizes: tuple[int, int], width1: int, width2: int
    ) -> tuple[int, int]:
        """Returns the elements along both sides, one of which is longer than wanted if the other's dimension
        is smaller than its side.
        """
        size1, size2 = sizes
        most1, most2 = (max(w, power_of_two_at_least(n)) for w, n in ((width1, size1), (width2, size2)))
        along1, along2 = min(wanted.along1, most1), min(wanted.along2, most2)
        elements = wanted.along1 * wanted.along2
        if along2 < wanted.along2:
            filling = LEAST_TILE_BYTES // (along2 * self.sides[1].element_bytes)
            longest = max(MAX_LONG_VECTOR_TILE, filling) if min(width1, width2) > 1 else MAX_LONG_TILE
            along1 = _lengthened(along1, min(most1, longest, elements // along2), size1)
        elif along1 < wanted.along1:
            along2 = _lengthened(along2, min(most2, MAX_LONG_TILE, elements // along1), size2)
        return along1, along2

    def _least_elements(self, blocks: int, hardware: HardwareInfo) -> int:
        """Returns the elements of a tile with which blocks start as fast as memory moves their bytes; 0 where
        all of so many start at once.
        """
        if blocks <= hardware.sm_count * hardware.max_blocks_per_sm:
            return 0
        moved = sum(access.tensor.dtype.size for access in self.accesses)
        return int(starting_seconds(1) / copy_seconds(moved, hardware))

    @cached_property
    def _tile_bytes(self) -> int:
        """The bytes of shared memory for each place of a tile."""
        return sum(member.tensor.dtype.size for member in self.groups.second)

    @cached_property
    def _loads(self) -> tuple[list[int], list[int]]:
        """The bytes of an element of each load: of group 2, and of all others."""
        sizes: tuple[list[int], list[int]] = [], []
        for load in self.accesses:
            if self.fusion.is_input(load.tensor):
                sizes[load not in self.staged].append(load.tensor.dtype.size)
        return sizes

    def _loaded_bytes(self, width1: int, width2: int) -> int:
        """Returns the bytes of registers for one element of all loads: what is no part of a vector has its
        own.
        """
        second, others = self._loads
        sizes = [max(size, REGISTER_BYTES // width2) for size in second]
        return sum(sizes) + sum(max(size, REGISTER_BYTES // width1) for size in others)

    # ---- other tiles ----

    def _single_tile(
        self, sizes: Sequence[int], merged: Merged, usual: Tile, hardware: HardwareInfo
    ) -> tuple[Merged, Tile]:
        """Returns the dimensions to merge and the tile without vectors that takes least; those given, unless
        others take clearly less.
        """
        first, second = self.sides
        elements = MAX_LOADED_BYTES // max(1, self._loaded_bytes(1, 1))
        most = _shared_bytes(hardware, SINGLE_THREADS) // self._tile_bytes
        best = merged, usual
        least = MAX_SHARE_OF_USUAL * tile_cost(*self._along(sizes, merged), usual, hardware)
        for merged1 in dict.fromkeys((merged[0], first.outer[: first.beside])):
            for merged2 in dict.fromkeys((merged[1], second.outer[: second.beside])):
                sides = self._along(sizes, (merged1, merged2))
                if least_cost(*sides) >= least:
                    continue
                found = cheapest_tile(*sides, elements, most, hardware)
                if found is not None and found[0] < least:
                    least, best = found[0], ((merged1, merged2), found[1])
        return best

    def _along(self, sizes: Sequence[int], merged: Merged) -> tuple[Along, Along]:
        """Returns what the sides are cut from, with these dimensions merged."""
        inside = [{side.inner, *positions} for side, positions in zip(self.sides, merged)]
        found = []
        for i, order in enumerate(self._orders):
            around = order[: min(order.index(p) for p in inside[i])]
            is_run = bool(around) and around[-1] in inside[1 - i]
            apart = max(0, len(merged[i]) - self.sides[i].beside)
            size = prod(sizes[p] for p in inside[i])
            found.append(Along(size, self.sides[i].element_bytes, apart, is_run))
        return found[0], found[1]

    @cached_property
    def _orders(self) -> tuple[Sequence[int], Sequence[int]]:
        """The dimensions, by their positions, as the widest tensor of each group has them in memory."""
        groups = self.groups
        axes = groups.space.axes
        return [axes.index(a) for a in groups.order1], [axes.index(a) for a in groups.order2]


def _shared_bytes(hardware: HardwareInfo, threads: int) -> int:
    """Returns the bytes of shared memory of a block of so many threads, of which an SM should have room for
    several.
    """
    blocks = BLOCKS_PER_SM * VECTOR_THREADS // threads
    return min(hardware.shared_memory_per_block, hardware.shared_memory_per_sm // blocks)


def _fill(
    sizes: Sequence[int], side: _Side, wanted: int, other: _Side | None = None, taken: Sequence[int] = ()
) -> tuple[tuple[int, ...], int]:
    """Returns the dimensions to merge with a side's own, and the size of all: those beside it, and more to
    fill a tile, up to one that is `taken` for the other side.
    """
    apart = MAX_APART if other is None else MAX_APART - max(0, len(taken) - other.beside)
    size, count = sizes[side.inner], 0
    while count < len(side.outer) and side.outer[count] not in taken:
        if count >= side.beside and (not 0 < size < wanted or count >= side.beside + apart):
            break
        size *= sizes[side.outer[count]]
        count += 1
    return side.outer[:count], size


def _is_first_lone(width1: int, width2: int) -> bool:
    """Whether the first side alone has vectors."""
    return width2 == 1 < width1


def _lone_part(size: int, most: int) -> int:
    """Returns the elements of a tile along a second side without vectors: all of the dimension, `most`, or
    half of these where there would be few tiles: less of the last one is beyond the dimension.
    """
    if size <= most:
        return size
    return most if size >= MANY_LONE_PARTS * most else most // 2


def _lengthened(least: int, most: int, size: int) -> int:
    """Returns the longest side along a dimension, from `least` to `most` elements, of which few lie beyond
    the dimension.
    """
    while most > least and ceil_div(size, most) * most > MAX_COVERED * size:
        most //= 2
    return max(least, most)


def _with_whole_side(first: Along, second: Along, tile: Tile, width1: int, width2: int) -> Tile:
    """Returns the tile, or one that is as long as one of its sides, if that is a small dimension that is
    accessed by element.

    Vectors leave so few instructions to an element that idle threads cost nothing.
    H200, 24x1048577 bf16 in vectors of 4: 41.3 us in tiles of 24, 38.7 in tiles of 32.
    """
    if width1 == 1:
        found = tile_of_whole_side(first.size, tile.along1, second.size, tile.along2, width2, tile.threads)
        if found is not None:
            return Tile(first.size, *found)
    if width2 == 1:
        found = tile_of_whole_side(second.size, tile.along2, first.size, tile.along1, width1, tile.threads)
        if found is not None:
            return Tile(found[0], second.size, found[1])
    return tile
