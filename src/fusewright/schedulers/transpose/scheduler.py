"""The transpose scheduler: elementwise operations on tensors that are contiguous along different dimensions.

The tensors form two groups by their contiguous dimension. That of group 1 is called J here, and that of group
2 is I. The loops are those of an output, the reference, which is in group 1 unless tables are read along both
dimensions in the other order (`access_groups`). Both dimensions are tiled,

    [.., I, J] -> [blocks, tile of I, tile of J]

All computation is done by threads that go along J. Tensors of group 2 pass through a tile in shared memory.
An input is loaded in vectors along I, stored to the tile, and read from the tile along J; an output takes the
opposite way. So every access to global memory is coalesced and as wide as the sizes allow. Where a side is a
small dimension, the neighbours of its last element are those of the next point of the other side, in memory
and among the threads of a warp.

A tile is stored in vectors as it is written, and is read elementwise across them. A warp that reads it goes
along as many rows as together make lines of global memory, and then along columns (`_lanes`), so that few of
its lanes access the same bank. Some unused elements after each group of rows that a thread reads together
(`banks.padding`, `Schedule.store_along`) separate them: each of a thread's accesses is at a constant distance
from its first.

Without vectors the number of instructions matters: a thread has many small accesses, whose addresses and
guards take few instructions if sizes are constants. So sizes are constants as long as they do not change
(`assumable`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from fusewright.core.enums import MemoryType, ParallelType, SchedulerType
from fusewright.core.errors import ParamsError
from fusewright.core.hardware import MAX_VECTOR_BYTES, WARP_SIZE, HardwareInfo
from fusewright.ir.fusion import Fusion
from fusewright.ir.value import TensorView
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.base import (
    BuiltInScheduler,
    Facts,
    Part,
    Planner,
    Reject,
    Rewrite,
    accepted,
    planner_of,
)
from fusewright.schedulers.io import Ports, cache_inputs_and_outputs, inline_rest, vectorize_ports
from fusewright.schedulers.params import TransposeParams
from fusewright.schedulers.pointwise.space import iteration_order
from fusewright.schedulers.transpose.access_groups import AccessGroups, access_groups
from fusewright.schedulers.transpose.banks import padding
from fusewright.schedulers.transpose.heuristic import TransposePlanner
from fusewright.schedulers.transpose.merged_dimensions import assumable, merged_dimensions
from fusewright.schedulers.transpose.narrow_borders import narrow_borders

# Bytes that neighbouring threads access before others go elsewhere: two lines of the L2 cache.
#   H200: with one line transposes of float take 1 to 2% longer, tiles of few channels 1% less; with more,
#   rows of a tile meet in the same banks.
PIECE_BYTES = 256


class TransposeScheduler(BuiltInScheduler):
    """Accepts fusions without reductions whose tensors are contiguous along at least two dimensions."""

    type = SchedulerType.transpose
    params_type = TransposeParams
    # Their blocks have tiles, and many loads in flight.
    #   H200, steps of momentum of 8189x1024 half, one tensor of which lies column by column: 50.1 us in one
    #   launch, 44.9 in two.
    launches_apart: ClassVar[bool] = True

    def prepare(self, fusion: Fusion) -> Planner | Reject:
        return planner_of(TransposePlanner, fusion, access_groups(fusion))

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
        lanes = _lanes(cached, params)
        if staged.tiles:
            _pad(schedule, params, staged, lanes)
            schedule.transform_like(reference)
        computed = [t for t in fusion.tensors() if t.definition is not None]
        across = [t for t in computed if t not in staged.along and t is not reference]
        across = across if reference in staged.along else [reference, *across]
        firsts = _bind(schedule, across, params, 1, lanes[0])
        _bind(schedule, staged.along, params, 2, lanes[1])
        _vectorize(schedule, ports, staged, params)
        # A thread's loads are all in flight before the first use; those of group 1 do not wait for the tile.
        if ports.loads:
            schedule.inline_at(firsts[0], 1, best_effort=True, selected=ports.loads)
        inline_rest(schedule, ports.loads)

    def propose_redefinition(self, part: Part, facts: Facts, hardware: HardwareInfo) -> Rewrite | None:
        return narrow_borders(part)


@dataclass(frozen=True, slots=True)
class _Staged:
    """The staged tensors of group 2.

    Attributes:
        along: the tensors that group 2's threads compute.
        tiles: tensors in shared memory, of inputs and of outputs.
        loads, stores: those of group 2.
    """

    along: tuple[TensorView, ...]
    loads: tuple[TensorView, ...]
    stores: tuple[TensorView, ...]
    input_tiles: tuple[TensorView, ...]
    output_tiles: tuple[TensorView, ...]

    @property
    def tiles(self) -> tuple[TensorView, ...]:
        return *self.input_tiles, *self.output_tiles


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
    merged1, merged2 = merged_dimensions(groups, params)
    inside = [*reversed(merged2), groups.inner2, *reversed(merged1), groups.inner1]
    # A reference of group 2 has other dimensions since it is staged, in the same order.
    staged = dict(zip(axes, iteration_order(reference)))
    schedule.order_loops(reference, [staged[a] for a in (*(a for a in axes if a not in inside), *inside)])
    for _ in merged1:
        schedule.merge(reference, -2)
    for _ in merged2:
        schedule.merge(reference, -3)
    schedule.split(reference, -1, params.tile_size1)
    schedule.split(reference, -3, params.tile_size2)
    schedule.reorder(reference, {-3: -2})
    while len(reference.loop) > 3:
        schedule.merge(reference, 0)


def _lanes(groups: AccessGroups, params: TransposeParams) -> tuple[int, int]:
    """Neighbouring threads of each group that go along its dimension before others go along the other: those
    that access so many bytes together; all, where a warp has no more.
    """
    found = []
    for members, tile, width in (
        (groups.first, params.tile_size1, params.vectorize_factor1),
        (groups.second, params.tile_size2, params.vectorize_factor2),
    ):
        smallest = min(member.tensor.dtype.size for member in members if member.full)
        vectors, line = tile // width, max(1, PIECE_BYTES // (width * smallest))
        found.append(vectors if line >= WARP_SIZE or vectors % line else line)
    return found[0], found[1]


def _pad(schedule: Schedule, params: TransposeParams, staged: _Staged, lanes: tuple[int, int]) -> None:
    """Stores tiles in rows with a few elements between those that different threads read."""
    for tile in staged.tiles:
        rows, columns = 1, 2  # axes of the tile
        row_width, width, length = params.vectorize_factor2, params.vectorize_factor1, params.tile_size1
        across = lanes[1]
        if tile in staged.input_tiles:
            rows, columns, row_width, width = columns, rows, width, row_width
            across, length = lanes[0], params.tile_size2
        added = padding(across, row_width * length, tile.dtype.size, width)
        schedule.split(tile, rows, row_width)
        columns += columns > rows
        schedule.store_along(tile, [rows, rows + 1, columns], added)


def _assume_sizes(schedule: Schedule, groups: AccessGroups, params: TransposeParams) -> None:
    """The sizes that the params assume. ParamsError where the kernel can assume others, or none."""
    axes, reference = assumable(groups, params), groups.space.reference
    if len(params.assumed_sizes) not in (0, len(axes)):
        expected = f"() or ({', '.join(str(axis.extent) for axis in axes)})" if axes else "()"
        raise ParamsError(path="assumed_sizes", expected=expected, given=params.assumed_sizes)
    for axis, size in zip(axes, params.assumed_sizes):
        schedule.assume(reference, reference.logical.index(axis), size, size)


def _bind(
    schedule: Schedule, tensors: Sequence[TensorView], params: TransposeParams, group: int, lanes: int
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
        _to_threads(schedule, leader, params, group, lanes)
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
    schedule: Schedule, tensor: TensorView, params: TransposeParams, group: int, lanes: int
) -> None:
    """[blocks, tile of I, tile of J] -> [blocks, unroll, threads, vector], the vector along the group's
    dimension.
    """
    columns, width = params.tile_size1, params.vectorize_factor1
    if group == 2:
        columns, width = params.tile_size2, params.vectorize_factor2
        schedule.reorder(tensor, {1: 2})
    schedule.split(tensor, 2, width)
    if lanes < columns // width:
        # [rows, vectors] -> [vectors of a line, rows, vectors in it]
        schedule.split(tensor, 2, lanes)
        schedule.reorder(tensor, {2: 1})
        schedule.merge(tensor, 1)
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
