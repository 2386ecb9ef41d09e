"""The transpose scheduler: elementwise work on tensors that are contiguous along different dimensions.

The tensors fall in two groups by the dimension that neighbours in memory lie along. Group 1 has the
reference, an output; its dimension is J here, that of group 2 is I. Both dimensions are tiled,

    [.., I, J] -> [blocks, tile of I, tile of J]

everything is computed by threads that go along J, and what belongs to group 2 passes through a tile in shared
memory: an input is loaded in vectors along I, stored to the tile as it comes and read from it along J, an
output the other way round. So every access to global memory is coalesced and as wide as the sizes allow.

A tile is stored in vectors as it is written and read elementwise across them. Threads that go across would
meet in the same banks. Where some elements of no use between rows prevent that (`banks.padding`), a tile is
stored so (`Schedule.store_along`): each of a thread's accesses then is at a constant distance from its first.
Otherwise, where vectors are too wide for such a distance, pieces of a row are exchanged (`Schedule.swizzle`):
the piece at column c of the rows that one thread reads together, the r-th such group, is stored at column
c ^ r. A piece is a vector, or as many as fill a bank.

Without vectors the instructions count: a thread has many small accesses, whose addresses and guards take few
where sizes are constants. So they are, for as long as they do not change (`assumable`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import prod

from fusewright.analyze.vectorize import power_of_two_divisor
from fusewright.core.enums import MemoryType, ParallelType, SchedulerType
from fusewright.core.errors import ParamsError
from fusewright.core.hardware import BANK_BYTES, BANKS, MAX_VECTOR_BYTES, REGISTER_BYTES, HardwareInfo
from fusewright.core.once import cached_property
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.value import TensorView
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.access_groups import AccessAlong, AccessGroups, access_groups
from fusewright.schedulers.banks import padding
from fusewright.schedulers.base import (
    BuiltInScheduler,
    Facts,
    Part,
    Planner,
    Proposal,
    Reject,
    Rewrite,
    accepted,
)
from fusewright.schedulers.cost import CostModel, busy_share
from fusewright.schedulers.io import (
    Ports,
    VectorLimits,
    cache_inputs_and_outputs,
    inline_rest,
    vectorize_ports,
)
from fusewright.schedulers.narrow_borders import narrow_borders
from fusewright.schedulers.params import TRANSPOSE_THREADS, LaunchParams, TransposeParams
from fusewright.schedulers.sectors import Sectors
from fusewright.schedulers.single_tiles import Along, Tile, cheapest_tile, least_cost, tile_cost
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_least
from fusewright.sym import Symbol

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
# bfloat16: 84 x 194 x 990 takes 0.75 of the time, 2910 x 10140 0.92).
NARROW_BYTES, NARROW_TILE, NARROW_ALONG, NARROW_THREADS = (4, 8), 256, 64, 512
# The same where vectors of the second side are as wide as an access, and those of the first are narrower:
# elements along both sides, and bytes of a vector along the second. (An H200: five permutations and
# transposes of bfloat16 take 0.88 to 0.96 of the time with 16 bytes in tiles of 64 x 128 or 64 x 64. Of other
# types nothing was measured.)
UNEVEN_ELEMENT, UNEVEN_TILE, UNEVEN_ALONG, UNEVEN_BYTES = 2, 128, 64, 8
# How much more than all elements tiles may cover that are lengthened to fill a block: rows of 129 are two
# tiles of 128, the second nearly empty.
MOST_COVERED = 1.25
# Elements of the longer side of a tile whose other side is cut short by a small dimension; of the first side
# where both have vectors, as these are read across rows that lie further apart in shared memory, in few banks
# (1048576 x 32 bfloat16 takes 39.6 us in tiles of 128 x 32, 52.0 of 256 x 32).
MAX_LONG_TILE, MAX_LONG_VECTOR_TILE = 512, 128
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


def assumable(fusion: Fusion, groups: AccessGroups, params: TransposeParams) -> tuple[IterDomain, ...]:
    """The dimensions whose sizes the params may assume: all but the outermost, which only counts blocks."""
    tiled = {groups.inner1, groups.inner2, *chain(*_merged_dimensions(groups, params))}
    axes = groups.space.axes
    others = [axis for axis in axes if axis not in tiled]
    return tuple(a for a in axes if isinstance(a.extent, Symbol) and a not in others[:1])


class TransposeScheduler(BuiltInScheduler):
    """Accepts fusions without reductions whose tensors are contiguous along at least two dimensions."""

    type = SchedulerType.transpose
    params_type = TransposeParams

    def prepare(self, fusion: Fusion) -> Planner | Reject:
        groups = access_groups(fusion)
        return Reject(groups) if isinstance(groups, str) else _Planner(fusion, groups)

    def apply(self, schedule: Schedule, params: TransposeParams) -> None:
        fusion = schedule.fusion
        groups = accepted(self, access_groups(fusion))
        _assume_sizes(schedule, groups, params)
        place = fusion.output_tensors().index(groups.space.reference)
        ports = cache_inputs_and_outputs(schedule)
        reference = fusion.output_tensors()[place]
        cached = accepted(self, access_groups(fusion, reference))
        staged = _stage(schedule, cached, ports)
        _tile(schedule, cached, params)
        schedule.transform_like(reference)
        padded = _pad(schedule, params, staged)
        if padded:
            schedule.transform_like(reference)
        computed = [t for t in fusion.tensors() if t.definition is not None]
        across = [t for t in computed if t not in staged.along]
        exchanged = replace(
            staged,
            input_tiles=tuple(t for t in staged.input_tiles if t not in padded),
            output_tiles=tuple(t for t in staged.output_tiles if t not in padded),
        )
        firsts = _bind(
            schedule, [reference, *(t for t in across if t is not reference)], params, exchanged, 1
        )
        _bind(schedule, staged.along, params, exchanged, 2)
        _vectorize(schedule, ports, staged, params)
        # A thread's loads are all in flight before the first use; those of group 1 do not wait for the tile.
        if ports.loads:
            schedule.inline_at(firsts[0], 1, best_effort=True, selected=ports.loads)
        inline_rest(schedule, ports.loads)

    def propose_redefinition(self, part: Part, facts: Facts, hardware: HardwareInfo) -> Rewrite | None:
        return narrow_borders(part)


@dataclass(frozen=True)
class _Side:
    """One side of the tiles: what bounds the vectors along it, the position of its dimension among the
    reference's, those that may be merged with it and how many of them lie beside it in all tensors, and the
    bytes of the smallest element moved along it.
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
class _Planner:
    """Derives params from the sizes of a call."""

    fusion: Fusion
    groups: AccessGroups

    @cached_property
    def _cost(self) -> CostModel:
        return CostModel(self.fusion, self._sectors())

    def _sectors(self) -> Sectors:
        """Group 2 is accessed along its own contiguous dimension, all else along the other."""
        groups = self.groups
        second = {(a.tensor, a.access.node) for a in groups.second}
        orders = [
            (*(axis for axis in groups.space.axes if axis is not inner), inner)
            for inner in (groups.inner1, groups.inner2)
        ]
        accesses = groups.space.accesses(self.fusion)
        return Sectors(self.fusion, tuple((a, orders[(a.tensor, a.node) in second]) for a in accesses))

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
        loads = [a for a in self.groups.space.accesses(self.fusion) if self.fusion.is_input(a.tensor)]
        second = {(a.tensor, a.access.node) for a in self.groups.second}
        sizes: tuple[list[int], list[int]] = [], []
        for load in loads:
            sizes[(load.tensor, load.node) not in second].append(load.tensor.dtype.size)
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

    def _are_uneven(self, width1: int, width2: int) -> bool:
        """Whether vectors of the second side are as wide as an access, and those of the first are narrower."""
        bytes1, bytes2 = (w * side.element_bytes for w, side in zip((width1, width2), self._sides))
        is_measured = all(side.element_bytes == UNEVEN_ELEMENT for side in self._sides)
        return is_measured and bytes1 < bytes2 == MAX_VECTOR_BYTES

    def __call__(self, facts: Facts, hardware: HardwareInfo) -> Proposal:
        sizes = [facts.value(axis.extent) for axis in self.groups.space.axes]
        width1, width2 = (side.vectors.width(facts) for side in self._sides)
        merged, tile = self._usual_tile(sizes, width1, width2, hardware)
        if self._are_uneven(width1, width2):
            width2 = UNEVEN_BYTES // UNEVEN_ELEMENT
        along1, along2 = self._along(sizes, merged)
        if width1 == width2 == 1 and _blocks(sizes, along1, along2, tile) >= MANY_BLOCKS * hardware.sm_count:
            merged, tile = self._single_tile(sizes, merged, tile, hardware)
            along1, along2 = self._along(sizes, merged)
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
        speed = TRANSPOSE_SPEED * busy_share(_blocks(sizes, along1, along2, tile), hardware)
        return Proposal(
            self._with_constants(params, facts), self._cost.estimate(facts, hardware, speed=speed)
        )

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
        most_threads = VECTOR_THREADS
        if width1 == width2 == 1:
            wanted1, wanted2 = SINGLE_TILE, max(MIN_TILE, SINGLE_BYTES // side2.element_bytes)
        elif self._are_narrow(width1, width2):
            wanted1, wanted2, most_threads = NARROW_TILE, NARROW_ALONG, NARROW_THREADS
        elif self._are_uneven(width1, width2):
            wanted1, wanted2 = UNEVEN_TILE, UNEVEN_ALONG
        elif min(width1, width2) > 1:
            wanted1, wanted2 = VECTOR_TILE, max(width2, min(MOST_ALONG, VECTOR_BYTES // side2.element_bytes))
        merged1, size1 = _fill(sizes, side1, wanted1)
        merged2, size2 = _fill(sizes, side2, wanted2)
        most1, most2 = (max(w, power_of_two_at_least(n)) for w, n in ((width1, size1), (width2, size2)))
        # A dimension that is smaller than its side of the tile leaves room to the other.
        tile1, tile2 = min(wanted1, most1), min(wanted2, most2)
        if tile2 < wanted2:
            longest = MAX_LONG_VECTOR_TILE if min(width1, width2) > 1 else MAX_LONG_TILE
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
            threads = min(most_threads, tile1 * tile2 // max(width1, width2))
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
        """The dimensions, by their positions, as the reference and the widest tensor of group 2 have them in
        memory.
        """
        axes = self.groups.space.axes
        widest = max(self.groups.second, key=lambda a: a.tensor.dtype.size)
        return range(len(axes)), [axes.index(axis) for axis in widest.order]

    def _with_constants(self, params: TransposeParams, facts: Facts) -> TransposeParams:
        """Sizes as constants, if they have not changed so far and elements are accessed one by one."""
        if not facts.stable or min(params.vectorize_factor1, params.vectorize_factor2) > 1:
            return params
        symbols = [axis.extent for axis in assumable(self.fusion, self.groups, params)]
        sizes = tuple(facts.value(symbol) for symbol in symbols)
        if not facts.stable.issuperset(symbols) or not all(sizes):
            return params
        return replace(params, assumed_sizes=sizes, reason=f"{params.reason}; for these sizes only")


def _fill(sizes: Sequence[int], side: _Side, wanted: int) -> tuple[tuple[int, ...], int]:
    """The dimensions to merge with a side's own: those beside it, and more to fill a tile; their size."""
    size, count = sizes[side.inner], 0
    while count < len(side.outer) and (count < side.beside or 0 < size < wanted):
        size *= sizes[side.outer[count]]
        count += 1
    return side.outer[:count], size


@dataclass(frozen=True, slots=True)
class _Staged:
    """along: what group 2's threads compute. tiles: tensors in shared memory, of inputs and of outputs.
    loads, stores: group 2's.
    """

    along: tuple[TensorView, ...]
    loads: tuple[TensorView, ...]
    stores: tuple[TensorView, ...]
    input_tiles: tuple[TensorView, ...]
    output_tiles: tuple[TensorView, ...]


def _stage(schedule: Schedule, groups: AccessGroups, ports: Ports) -> _Staged:
    """load -> use  becomes  load -> tile -> element -> use;  value -> store  value -> tile -> element ->
    store.
    """
    fusion = schedule.fusion
    nodes = {a.access.node for a in groups.second}
    stored = {a.tensor for a in groups.second if a.is_store(fusion)}
    loads = tuple(t for t in ports.loads if t.definition in nodes)
    stores = tuple(t for t in ports.stores if t in stored)
    input_tiles, output_tiles, elements = [], [], []
    for load in loads:
        tile = schedule.cache_after(load)
        schedule.set_memory_type(tile, MemoryType.shared)
        schedule.cache_after(tile)
        input_tiles.append(tile)
    for store in stores:
        tile = schedule.cache_before(store)
        schedule.set_memory_type(tile, MemoryType.shared)
        elements.append(schedule.cache_before(store))
        output_tiles.append(tile)
    along = (*loads, *input_tiles, *elements, *stores)
    return _Staged(along, loads, stores, tuple(input_tiles), tuple(output_tiles))


def _tile(schedule: Schedule, groups: AccessGroups, params: TransposeParams) -> None:
    """The reference's loops: [.., I, J] -> [blocks, tile of I, tile of J]."""
    reference, axes = groups.space.reference, groups.space.axes
    merged1, merged2 = _merged_dimensions(groups, params)
    inside = [*reversed(merged2), groups.inner2, *reversed(merged1), groups.inner1]
    schedule.order_loops(reference, [*(a for a in axes if a not in inside), *inside])
    for _ in merged1:
        schedule.merge(reference, -2)
    for _ in merged2:
        schedule.merge(reference, -3)
    schedule.split(reference, -1, params.tile_size1)
    schedule.split(reference, -3, params.tile_size2)
    schedule.reorder(reference, {-3: -2})
    while len(reference.loop) > 3:
        schedule.merge(reference, 0)


def _pad(schedule: Schedule, params: TransposeParams, staged: _Staged) -> tuple[TensorView, ...]:
    """Stores tiles in rows with a few elements between them, where that avoids all conflicts in banks.

    Returns those tiles. The others are written in vectors that are too wide for it.
    """
    padded = []
    for tile in (*staged.input_tiles, *staged.output_tiles):
        rows, columns = 1, 2  # axes of the tile
        row_width, width, length = params.vectorize_factor2, params.vectorize_factor1, params.tile_size1
        height = params.tile_size2
        if tile in staged.input_tiles:
            rows, columns, row_width, width = columns, rows, width, row_width
            height, length = length, height
        added = padding(height // row_width, row_width * length, tile.dtype.size, width)
        if added is not None:
            schedule.split(tile, rows, row_width)
            columns += columns > rows
            schedule.store_along(tile, [rows, rows + 1, columns], added)
            padded.append(tile)
    return tuple(padded)


def _assume_sizes(schedule: Schedule, groups: AccessGroups, params: TransposeParams) -> None:
    """The sizes that the params assume. ParamsError where the kernel can assume others, or none."""
    axes, reference = assumable(schedule.fusion, groups, params), groups.space.reference
    if len(params.assumed_sizes) not in (0, len(axes)):
        expected = f"() or ({', '.join(str(axis.extent) for axis in axes)})" if axes else "()"
        raise ParamsError(path="assumed_sizes", expected=expected, given=params.assumed_sizes)
    for axis, size in zip(axes, params.assumed_sizes):
        schedule.assume(reference, reference.logical.index(axis), size, size)


def _merged_dimensions(
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
        if len(merged) < len(positions) or len({*taken, *merged}) < len(taken) + len(merged):
            raise ParamsError(
                path=name, expected="positions of dimensions that are not tiled", given=list(positions)
            )
        taken.update(merged)
    first, second = params.dims_merged_with_1, params.dims_merged_with_2
    return [axes[p] for p in first], [axes[p] for p in second]


def _bind(
    schedule: Schedule, tensors: Sequence[TensorView], params: TransposeParams, staged: _Staged, group: int
) -> list[TensorView]:
    """Binds the loops [blocks, tile of I, tile of J] of one group's tensors.

    Tensors that the rest of their group does not reach but through the other group are transformed by
    themselves. Returns those that the others follow.
    """
    before = {t: list(t.loop) for t in tensors}
    leaders = []
    waiting = list(tensors)
    while waiting:
        leader = waiting[0]
        _to_threads(schedule, leader, params, staged, group)
        if len(waiting) > 1:
            schedule.transform_like(leader, selected=waiting[1:])
        followers = [t for t in waiting if t.loop != before[t]]
        for position, kind in enumerate((ParallelType.grid_x, ParallelType.unroll, ParallelType.block_x)):
            schedule.parallelize(leader, position, kind)
        schedule.parallelize_like(leader, selected=followers)
        waiting = [t for t in waiting if t not in followers]
        leaders.append(leader)
    return leaders


def _to_threads(
    schedule: Schedule, tensor: TensorView, params: TransposeParams, staged: _Staged, group: int
) -> None:
    """[blocks, tile of I, tile of J] -> [blocks, unroll, threads, vector], the vector along the group's
    dimension; in a group that writes tiles, their vectors exchanged.
    """
    rows, row_width = params.tile_size2, params.vectorize_factor2
    columns, width = params.tile_size1, params.vectorize_factor1
    if group == 2:
        rows, row_width, columns, width = columns, width, rows, row_width
        schedule.reorder(tensor, {1: 2})
    writes = staged.output_tiles if group == 1 else staged.input_tiles
    vectors, groups = columns // width, rows // row_width
    column_bytes = max((tile.dtype.size for tile in writes), default=BANK_BYTES)
    words = max(1, columns * column_bytes // BANK_BYTES)
    # Groups of rows that share a line of all banks are in different ones as they are.
    in_line, rest = divmod(BANKS * BANK_BYTES, row_width * columns * column_bytes)
    in_line = 1 if rest else power_of_two_divisor(groups, in_line)
    exchanged = power_of_two_divisor(groups // in_line, power_of_two_divisor(vectors, words & -words))
    schedule.split(tensor, 2, width)
    inside = 2  # axes between the blocks and the vector
    if writes and exchanged > 1:
        # [rows, vectors] -> [.., exchanged lines of groups, row of the line] x [exchanged, ..]
        schedule.split(tensor, 2, vectors // exchanged)
        schedule.split(tensor, 1, row_width * in_line)
        schedule.split(tensor, 1, exchanged)
        schedule.swizzle(tensor, 2, 4)
        inside = 5
    for _ in range(inside - 1):
        schedule.merge(tensor, 1)
    schedule.split(tensor, 1, params.threads)


def _vectorize(schedule: Schedule, ports: Ports, staged: _Staged, params: TransposeParams) -> None:
    """Vectors of both groups' accesses to global memory, and of the tiles as they are written.

    A tile of an output is written as wide as the other group's memory allows, which may be too wide for it.
    """
    loads = tuple(t for t in ports.loads if t not in staged.loads)
    stores = tuple(t for t in ports.stores if t not in staged.stores)
    vectorize_ports(schedule, Ports(loads, stores), params.vectorize_factor1)
    vectorize_ports(schedule, Ports(staged.loads, staged.stores), params.vectorize_factor2)
    for tiles, width in (
        (staged.input_tiles, params.vectorize_factor2),
        (staged.output_tiles, params.vectorize_factor1),
    ):
        for tile in tiles:
            if 1 < width <= MAX_VECTOR_BYTES // tile.dtype.size:
                schedule.parallelize(tile, -1, ParallelType.vectorize)
