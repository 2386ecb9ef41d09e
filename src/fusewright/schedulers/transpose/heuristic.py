"""Chooses params of the transpose scheduler: the tiles, the dimensions that are merged for them, and the
threads of a block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from math import prod

from fusewright.core.hardware import MAX_VECTOR_BYTES, REGISTER_BYTES, HardwareInfo
from fusewright.core.once import cached_property
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.schedulers.base import Cost, Facts, Proposal, Reject
from fusewright.schedulers.cost import CostModel, busy_share, slot_seconds
from fusewright.schedulers.io import VectorLimits
from fusewright.schedulers.params import TRANSPOSE_THREADS, LaunchParams, TransposeParams
from fusewright.schedulers.reference_map import Access
from fusewright.schedulers.sectors import Sectors
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_least
from fusewright.schedulers.transpose.access_groups import AccessAlong, AccessGroups
from fusewright.schedulers.transpose.single_tiles import (
    ACCESSES,
    ELEMENT,
    Along,
    Tile,
    cheapest_tile,
    least_cost,
    tile_cost,
)
from fusewright.schedulers.transpose.small_sides import tile_of_whole_side
from fusewright.sym import Symbol

# Bytes of an input's run of memory up to which tiles do not pay: what a warp reads by element is in few lines
# then (an H200, channels-last images: two channels of one byte take 27 us, in tiles 71; three 27 and 36; four
# 27 to 36 and 37; two of bfloat16 34 and 71, three 36 and 37; six of one byte 29 and 27).
SHORTEST_RUN = 4
# Bytes of a tile's row in global memory, of the smallest element: full lines of the L2 cache.
ROW_BYTES = 128
MIN_TILE, MAX_TILE = 32, 64
# Tiles in vectors: elements along the first side, bytes and at most elements along the second, threads. Over
# six permutations and transposes of 8 and 8 bfloat16 (an H200) tiles of 64 x 128 by 256 threads reach 0.97 of
# a copy's speed in geometric mean, of 64 x 64 by 128 0.96, and of 128 x 64 by 128 0.91; over four of float
# those of 64 x 64 by 256 reach 0.99, of 64 x 32 by 128 0.97.
VECTOR_TILE, VECTOR_BYTES, MOST_ALONG, VECTOR_THREADS = 64, 256, 128, 256
# The same where vectors of both sides are narrow, of at most so many bytes, the narrower first: blocks are
# larger, as a thread has few bytes of each vector, and long pieces of the output count more (an H200,
# bfloat16: 84 x 194 x 990 takes 0.75 of the time, 2910 x 10140 0.92), but for threads of a single vector
# (channels of 12 bytes: 29.3 us with 512 threads a tile, 22.9 with 256).
NARROW_BYTES, NARROW_TILE, NARROW_ALONG, NARROW_THREADS = (4, 8), 256, 64, 512
# The same where vectors of the second side are as wide as an access: elements along both sides, and bytes of
# a vector along the second. (An H200: five permutations and transposes of bfloat16 with narrower vectors
# along the first side take 0.88 to 0.96 of the time with 16 bytes in tiles of 64 x 128 or 64 x 64; seventeen
# with as wide ones 0.87 to 1.05 of that in tiles of 64 x 128, 0.97 in geometric mean. Of other types nothing
# was measured.)
WIDE_ELEMENT, WIDE_TILE, WIDE_ALONG, WIDE_BYTES = 2, 128, 64, 8
# The same where one side alone has vectors: elements along the first side, and along the second where that
# has none; else bytes there, of a tile and of its vectors. (An H200: with vectors along the first side ten
# permutations and transposes take 0.82 to 1.04 of the time that they take in tiles of 64 x 64 and, of float,
# 32 x 32; with those along the second six of float 0.81 to 0.98 of that in 32 x 32 with 16 bytes, eighteen of
# bfloat16 0.93 to 1.06 of that with 8 bytes.)
LONE_TILE, LONE_FIRST_ALONG, LONE_ALONG, LONE_BYTES = 128, 32, 128, 4
# How much more than all elements tiles may cover that are lengthened to fill a block: rows of 129 are two
# tiles of 128, the second nearly empty.
MOST_COVERED = 1.25
# Elements of the longer side of a tile whose other side is cut short by a small dimension; of the first side
# where both have vectors, so many or those of so many bytes: smaller blocks are launched no faster than they
# are done (an H200, 34 MB in, 128 elements of 1 kB and 512 or 256 of 2 to 4 kB: four channels of bfloat16
# 23.9 and 20.3 us, two of float 23.9 and 20.4, eight bytes 24.1 and 20.5; larger tiles gain nothing).
MAX_LONG_TILE, MAX_LONG_VECTOR_TILE, LEAST_TILE_BYTES = 512, 128, 2048
# Slots of a thread for each line that its warp looks up besides those of an access to neighbours (an H200:
# with 24 of them for a point 32 images of 224 x 224 pixels and three channels took 15 us besides the launch).
LINE_SLOTS = 3.4
# Blocks that should fit in an SM's shared memory: with 16 KiB of loads each, eight hide their latency.
BLOCKS_PER_SM = 8
# Bytes of loads that a thread may hold: a quarter of its registers.
MAX_LOADED_BYTES = 256
# Of a copy's speed, what tiles reach: a barrier lies between their loads and stores.
TRANSPOSE_SPEED = 0.97
# Tiles without vectors: elements along the first side, bytes along the second, elements that a thread stores
# one by one, threads. Long pieces of the output count more than those of the input, and more stores a thread
# keep loads waiting: 8191 x 4095 bfloat16 takes 50 us in tiles of 128 x 32 by 256 threads, 64 us in tiles of
# 64 x 64 by 128 (an H200).
SINGLE_TILE, SINGLE_BYTES, SINGLE_STORES, SINGLE_THREADS = 128, 64, 16, 256
# Where an SM has so many of their blocks, other tiles are looked for, which take this share of their time at
# most by `tile_cost`. (An H200: at 0.52 and 0.68 of it 16 x 67 x 16899 and 7 x 33 x 1071 x 65 bfloat16 take
# 31.1 and 29.2 us, not 32.7 and 37.8; at 0.8 65 x 513 x 1021 takes 52.2, not 50.8.)
MANY_BLOCKS, LEAST_OF_USUAL = 4, 0.75


#: The positions of the dimensions that are merged with the first tiled one, and with the second.
_Merged = tuple[tuple[int, ...], tuple[int, ...]]


def _shared_bytes(hardware: HardwareInfo, threads: int) -> int:
    """Shared memory of a block of so many threads, of which an SM should have room for several."""
    blocks = BLOCKS_PER_SM * VECTOR_THREADS // threads
    return min(hardware.shared_memory_per_block, hardware.shared_memory_per_sm // blocks)


def _blocks(sizes: Sequence[int], along1: Along, along2: Along, tile: Tile) -> int:
    """How many tiles there are."""
    others = prod(sizes) // max(1, along1.size * along2.size)
    return others * ceil_div(along1.size, tile.along1) * ceil_div(along2.size, tile.along2)


def _lengthened(least: int, most: int, size: int) -> int:
    """The longest tile along a dimension, from `least` to `most` elements, of which few lie beyond it."""
    while most > least and ceil_div(size, most) * most > MOST_COVERED * size:
        most //= 2
    return max(least, most)


def assumable(groups: AccessGroups, params: TransposeParams) -> tuple[IterDomain, ...]:
    """The dimensions whose sizes the params may assume: all but the outermost, which only counts blocks."""
    tiled = {groups.inner1, groups.inner2, *chain(*merged_dimensions(groups, params))}
    axes = groups.space.axes
    others = [axis for axis in axes if axis not in tiled]
    return tuple(a for a in axes if isinstance(a.extent, Symbol) and a not in others[:1])


def merged_dimensions(
    groups: AccessGroups, params: TransposeParams
) -> tuple[Sequence[IterDomain], Sequence[IterDomain]]:
    """The dimensions to merge with the first tiled one and with the second.

    ParamsError for a position of none, or of one that is tiled or merged already.
    """
    axes = groups.space.axes
    taken = {groups.inner1, groups.inner2}
    for name in ("dims_merged_with_1", "dims_merged_with_2"):
        positions = getattr(params, name)
        merged = [axes[p] for p in positions if 0 <= p < len(axes)]
        are_new = len(merged) == len(positions) and len({*taken, *merged}) == len(taken) + len(merged)
        params.require(are_new, name, "positions of dimensions that are not tiled")
        taken.update(merged)
    first, second = params.dims_merged_with_1, params.dims_merged_with_2
    return [axes[p] for p in first], [axes[p] for p in second]


@dataclass(frozen=True)
class _Side:
    """One side of the tiles.

    The limits on the vectors along it, the position of its dimension among the reference's, the dimensions
    that may be merged with it and how many of them are adjacent to it in all tensors, and the bytes of the
    smallest element moved along it.
    """

    vectors: VectorLimits
    inner: int
    outer: tuple[int, ...]
    beside: int
    element_bytes: int

    def wanted(self, width: int) -> int:
        """Elements of a tile along it, where the sizes leave the choice."""
        least = MIN_TILE if width == 1 else width
        return max(least, min(MAX_TILE, ROW_BYTES // self.element_bytes))


@dataclass(frozen=True, eq=False)
class TransposePlanner:
    """Derives params from the sizes of a call."""

    fusion: Fusion
    groups: AccessGroups
    _of_tiles: dict[_Merged, Sectors] = field(default_factory=dict)

    @cached_property
    def _cost(self) -> CostModel:
        return CostModel(self.fusion, self._sectors())

    def _sectors(self) -> Sectors:
        """Group 2 is accessed along its own contiguous dimension, all else along the other."""
        groups = self.groups
        return self._sectors_along(
            *(
                (*(axis for axis in groups.space.axes if axis is not inner), inner)
                for inner in (groups.inner1, groups.inner2)
            )
        )

    def _sectors_along(self, *orders: Sequence[IterDomain]) -> Sectors:
        """Of threads that go along these dimensions, the fastest last, for each of the groups."""
        accesses = [(a, tuple(orders[a in self._staged])) for a in self._accesses]
        return Sectors(self.fusion, tuple(accesses))

    def _tile_sectors(self, merged: _Merged) -> Sectors:
        """Of a warp that goes along a tile's own side, and then along the other."""
        if merged not in self._of_tiles:
            axes = self.groups.space.axes
            along1, along2 = (
                [*(axes[p] for p in reversed(positions)), inner]
                for positions, inner in zip(merged, (self.groups.inner1, self.groups.inner2))
            )
            self._of_tiles[merged] = self._sectors_along((*along2, *along1), (*along1, *along2))
        return self._of_tiles[merged]

    @cached_property
    def _accesses(self) -> list[Access]:
        return self.groups.space.accesses(self.fusion)

    @cached_property
    def _staged(self) -> frozenset[Access]:
        """Those of group 2."""
        second = {(a.tensor, a.access.node) for a in self.groups.second}
        return frozenset(a for a in self._accesses if (a.tensor, a.node) in second)

    @cached_property
    def _sides(self) -> tuple[_Side, _Side]:
        groups = self.groups
        first = self._side(groups.inner1, groups.first, groups.outer1, groups.beside1)
        return first, self._side(groups.inner2, groups.second, groups.outer2, groups.beside2)

    def _side(
        self, inner: IterDomain, members: Sequence[AccessAlong], outer: tuple[int, ...], beside: int
    ) -> _Side:
        limits = VectorLimits(self.fusion, inner, [member.access for member in members])
        smallest = min(member.tensor.dtype.size for member in members if member.full)
        return _Side(limits, self.groups.space.axes.index(inner), outer, beside, smallest)

    @cached_property
    def _loads(self) -> tuple[list[int], list[int]]:
        """The bytes of an element of each load: of group 2, and of all others."""
        sizes: tuple[list[int], list[int]] = [], []
        for load in self._accesses:
            if self.fusion.is_input(load.tensor):
                sizes[load not in self._staged].append(load.tensor.dtype.size)
        return sizes

    def _loaded_bytes(self, width1: int, width2: int) -> int:
        """Registers, in bytes, for one element of all loads: what is no part of a vector has its own."""
        second, others = self._loads
        sizes = [max(size, REGISTER_BYTES // width2) for size in second]
        return sum(sizes) + sum(max(size, REGISTER_BYTES // width1) for size in others)

    def _are_narrow(self, width1: int, width2: int) -> bool:
        """Whether vectors of both sides are, as the sizes allow no wider ones."""
        sizes = sorted(w * side.element_bytes for w, side in zip((width1, width2), self._sides))
        return min(width1, width2) > 1 and all(size <= most for size, most in zip(sizes, NARROW_BYTES))

    def _is_second_wide(self, width1: int, width2: int) -> bool:
        """Whether vectors of the second side are as wide as an access, and those of the first no wider."""
        bytes1, bytes2 = (w * side.element_bytes for w, side in zip((width1, width2), self._sides))
        is_measured = all(side.element_bytes == WIDE_ELEMENT for side in self._sides)
        return is_measured and bytes1 <= bytes2 == MAX_VECTOR_BYTES

    def _lone_tile(self, sizes: Sequence[int], width1: int, width2: int) -> tuple[int, int] | None:
        """Elements along both sides where one alone has vectors, the second whole accesses; None: both have,
        or none, or a dimension is too small for such tiles.
        """
        first, second = self._sides
        if width1 == 1 < width2 and width2 * second.element_bytes == MAX_VECTOR_BYTES:
            least, along = LONE_TILE, LONE_ALONG // second.element_bytes
        elif width2 == 1 and width1 > 1:
            least, along = MAX_TILE, LONE_FIRST_ALONG
        else:
            return None
        fits = _fill(sizes, first, least)[1] >= least and _fill(sizes, second, along)[1] >= along
        return (LONE_TILE, along) if fits else None

    def __call__(self, facts: Facts, hardware: HardwareInfo) -> Proposal | Reject:
        sizes = [facts.value(axis.extent) for axis in self.groups.space.axes]
        if run := self._short_run(sizes):
            return Reject(f"runs of {run} bytes are read as fast by element")
        width1, width2 = (side.vectors.width(facts) for side in self._sides)
        merged, tile = self._usual_tile(sizes, width1, width2, hardware)
        if width1 == 1 and self._lone_tile(sizes, width1, width2) is not None:
            width2 = max(1, LONE_BYTES // self._sides[1].element_bytes)
        elif self._is_second_wide(width1, width2):
            width2 = WIDE_BYTES // WIDE_ELEMENT
        along1, along2 = self._along(sizes, merged)
        if width1 == width2 == 1 and _blocks(sizes, along1, along2, tile) >= MANY_BLOCKS * hardware.sm_count:
            merged, tile = self._single_tile(sizes, merged, tile, hardware)
            along1, along2 = self._along(sizes, merged)
        tile = _with_whole_side(along1, along2, tile, width1, width2)
        params = TransposeParams(
            tile_size1=tile.along1,
            tile_size2=tile.along2,
            vectorize_factor1=width1,
            vectorize_factor2=width2,
            dims_merged_with_1=merged[0],
            dims_merged_with_2=merged[1],
            lparams=LaunchParams(bdimx=tile.threads),
            reason=f"{along1.size} x {along2.size} in tiles of {tile.along1} x {tile.along2}; "
            f"vectors of {width1} and {width2}",
        )
        blocks = _blocks(sizes, along1, along2, tile)
        estimate = partial(self._estimate, facts, hardware, merged, (width1, width2), blocks)
        return Proposal(self._with_constants(params, facts), estimate)

    def _estimate(
        self, facts: Facts, hardware: HardwareInfo, merged: _Merged, widths: tuple[int, int], blocks: int
    ) -> Cost:
        points = prod(facts.value(axis.extent) for axis in self.groups.space.axes)
        speed = TRANSPOSE_SPEED * busy_share(blocks, hardware)
        slots = self._accesses_a_point(*widths) * ELEMENT / ACCESSES
        slots += LINE_SLOTS * self._lines_a_point(merged, widths[0], facts)
        accessing = slot_seconds(points * slots, hardware)
        return self._cost.estimate(facts, hardware, speed=speed, accessing=accessing)()

    def _accesses_a_point(self, width1: int, width2: int) -> float:
        """Instructions that access memory for a point, in such vectors. What passes through a tile is written
        to it and read from it besides, on one side by element: a window of many loads takes far longer for
        that than its bytes take.
        """
        groups = self.groups
        staged = len(groups.second)
        direct = sum(a.full for a in groups.first)
        return staged * (1 + 2 / width2) + direct / width1 + len(self._by_element)

    @cached_property
    def _by_element(self) -> list[Access]:
        """The loads of group 1's threads that go along its dimension, and not as in memory."""
        loads = [a for a in self._accesses if self.fusion.is_input(a.tensor) and a not in self._staged]
        along = {(a.tensor, a.access.node) for a in self.groups.first}
        inner = self.groups.inner1
        return [a for a in loads if inner in a.concrete and (a.tensor, a.node) not in along]

    def _lines_a_point(self, merged: _Merged, width1: int, facts: Facts) -> float:
        """Lines that a warp's access for a point looks up more than accesses of neighbours do.

        Threads that load by element in place of vectors are a vector apart.
        """
        sectors = self._tile_sectors(merged)
        staged = sum(sectors.more_lines(each, facts) for each in self._staged)
        return staged + sum(sectors.more_lines(each, facts, width1) for each in self._by_element)

    def _short_run(self, sizes: Sequence[int]) -> int:
        """Bytes of the runs of memory that group 2 is read in, if these are short; 0: they are not."""
        side = self._sides[1]
        if any(member.is_store(self.fusion) for member in self.groups.second):
            return 0
        run = side.element_bytes * sizes[side.inner] * prod(sizes[p] for p in side.outer)
        return run if run <= SHORTEST_RUN else 0

    @cached_property
    def _tile_bytes(self) -> int:
        """Of shared memory for each place of a tile."""
        return sum(member.tensor.dtype.size for member in self.groups.second)

    def _usual_tile(
        self, sizes: Sequence[int], width1: int, width2: int, hardware: HardwareInfo
    ) -> tuple[_Merged, Tile]:
        """The dimensions to merge and the tile, of powers of two, for vectors of such widths."""
        side1, side2 = self._sides
        wanted1, wanted2 = side1.wanted(width1), side2.wanted(width2)
        most_threads, lone = VECTOR_THREADS, self._lone_tile(sizes, width1, width2)
        if lone is not None:
            wanted1, wanted2 = lone
        elif width1 == width2 == 1:
            wanted1, wanted2 = SINGLE_TILE, max(MIN_TILE, SINGLE_BYTES // side2.element_bytes)
        elif self._are_narrow(width1, width2):
            wanted1, wanted2, most_threads = NARROW_TILE, NARROW_ALONG, NARROW_THREADS
        elif self._is_second_wide(width1, width2):
            wanted1, wanted2 = WIDE_TILE, WIDE_ALONG
        elif min(width1, width2) > 1:
            wanted1, wanted2 = VECTOR_TILE, max(width2, min(MOST_ALONG, VECTOR_BYTES // side2.element_bytes))
        # Dimensions that lie apart are merged for no longer a tile where the first side's vectors are wider.
        is_wider = 1 == width2 < width1 or width1 * side1.element_bytes == MAX_VECTOR_BYTES
        merged1, size1 = _fill(sizes, side1, min(wanted1, MAX_TILE) if is_wider else wanted1)
        merged2, size2 = _fill(sizes, side2, wanted2)
        most1, most2 = (max(w, power_of_two_at_least(n)) for w, n in ((width1, size1), (width2, size2)))
        # A dimension that is smaller than its side of the tile leaves room to the other.
        tile1, tile2 = min(wanted1, most1), min(wanted2, most2)
        if tile2 < wanted2:
            filling = LEAST_TILE_BYTES // (tile2 * side2.element_bytes)
            longest = max(MAX_LONG_VECTOR_TILE, filling) if min(width1, width2) > 1 else MAX_LONG_TILE
            tile1 = _lengthened(tile1, min(most1, longest, wanted1 * wanted2 // tile2), size1)
        elif tile1 < wanted1:
            tile2 = _lengthened(tile2, min(most2, MAX_LONG_TILE, wanted1 * wanted2 // tile1), size2)
        most = min(
            _shared_bytes(hardware, most_threads) // self._tile_bytes,
            most_threads * MAX_LOADED_BYTES // max(1, self._loaded_bytes(width1, width2)),
        )
        others = prod(sizes) // max(1, size1 * size2)
        while tile1 * tile2 > min(MIN_TILE * MIN_TILE, most):
            blocks = others * ceil_div(size1, tile1) * ceil_div(size2, tile2)
            if tile1 * tile2 <= most and blocks >= hardware.sm_count:
                break
            if tile1 > width1 and (tile1 >= tile2 or tile2 == width2):
                tile1 //= 2
            elif tile2 > width2:
                tile2 //= 2
            else:
                break
        if width1 > 1:
            vectors = tile1 * tile2 // max(width1, width2)
            threads = min(most_threads, vectors, max(VECTOR_THREADS, vectors // 2))
        else:
            threads = min(SINGLE_THREADS, max(TRANSPOSE_THREADS, tile1 * tile2 // SINGLE_STORES))
        return (merged1, merged2), Tile(tile1, tile2, max(hardware.warp_size, threads))

    def _single_tile(
        self, sizes: Sequence[int], merged: _Merged, usual: Tile, hardware: HardwareInfo
    ) -> tuple[_Merged, Tile]:
        """The dimensions to merge and the tile without vectors that takes least; those given, unless others
        take clearly less.
        """
        first, second = self._sides
        elements = MAX_LOADED_BYTES // max(1, self._loaded_bytes(1, 1))
        most = _shared_bytes(hardware, SINGLE_THREADS) // self._tile_bytes
        best = merged, usual
        least = LEAST_OF_USUAL * tile_cost(*self._along(sizes, merged), usual, hardware)
        for merged1 in dict.fromkeys((merged[0], first.outer[: first.beside])):
            for merged2 in dict.fromkeys((merged[1], second.outer[: second.beside])):
                sides = self._along(sizes, (merged1, merged2))
                if least_cost(*sides) >= least:
                    continue
                found = cheapest_tile(*sides, elements, most, hardware)
                if found is not None and found[0] < least:
                    least, best = found[0], ((merged1, merged2), found[1])
        return best

    def _along(self, sizes: Sequence[int], merged: _Merged) -> tuple[Along, Along]:
        """What tiles are cut from, with these dimensions merged."""
        inside = [{side.inner, *positions} for side, positions in zip(self._sides, merged)]
        found = []
        for i, order in enumerate(self._orders):
            around = order[: min(order.index(p) for p in inside[i])]
            is_run = bool(around) and around[-1] in inside[1 - i]
            apart = max(0, len(merged[i]) - self._sides[i].beside)
            size = prod(sizes[p] for p in inside[i])
            found.append(Along(size, self._sides[i].element_bytes, apart, is_run))
        return found[0], found[1]

    @cached_property
    def _orders(self) -> tuple[Sequence[int], Sequence[int]]:
        """The dimensions, by their positions, as the widest tensor of each group has them in memory."""
        groups = self.groups
        axes = groups.space.axes
        return [axes.index(a) for a in groups.order1], [axes.index(a) for a in groups.order2]

    def _with_constants(self, params: TransposeParams, facts: Facts) -> TransposeParams:
        """Sizes as constants, if they have not changed so far and elements are accessed one by one."""
        if not facts.stable or min(params.vectorize_factor1, params.vectorize_factor2) > 1:
            return params
        symbols = [axis.extent for axis in assumable(self.groups, params)]
        sizes = tuple(facts.value(symbol) for symbol in symbols)
        if not facts.stable.issuperset(symbols) or not all(sizes):
            return params
        return replace(params, assumed_sizes=sizes, reason=f"{params.reason}; for these sizes only")


def _with_whole_side(first: Along, second: Along, tile: Tile, width1: int, width2: int) -> Tile:
    """The tile, or one that is as long as one of its sides, if that is a small dimension that is accessed by
    element. Vectors leave so few instructions to an element that idle threads cost nothing: 24 x 1048577
    bfloat16 in vectors of 4 took 41.3 us in tiles of 24 and 38.7 in tiles of 32.
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


def _fill(sizes: Sequence[int], side: _Side, wanted: int) -> tuple[tuple[int, ...], int]:
    """The dimensions to merge with a side's own: those beside it, and more to fill a tile; their size."""
    size, count = sizes[side.inner], 0
    while count < len(side.outer) and (count < side.beside or 0 < size < wanted):
        size *= sizes[side.outer[count]]
        count += 1
    return side.outer[:count], size
