"""Sums down columns of rows that vectors do not divide: several rows of memory are read as one.

Eight rows of 33 are a run of 264 elements, which vectors of 8 divide. A thread that advances by as many rows
has the same columns in its vector again:

    [I, R, S] -> [I BIDx, (I TIDz,) (R joined, S) TIDx, R TIDy | R serial, R unroll, (R joined, S) vector]

Then the threads' partial results are in shared memory, where each column is the sum of a few positions. A
block has several batches (TIDz) where one would leave it a few threads. Its threads go along memory, so short
rows are read this way even if no vector divides a batch. What rows have one element of each is read by
element, unless rows are so short that threads have whole ones (`whole_rows`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from fusewright.analyze.inputs import nodes_before
from fusewright.core.enums import MemoryType, ParallelType
from fusewright.core.hardware import MAX_VECTOR_BYTES, REGISTER_BYTES, HardwareInfo
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Reduction
from fusewright.ir.value import TensorView
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.cost import busy_share, slot_seconds
from fusewright.schedulers.io import (
    cache_inputs_and_outputs,
    find_loads,
    inline_rest,
    input_hint,
    vectorize_ports,
)
from fusewright.schedulers.params import LaunchParams, ReductionParams
from fusewright.schedulers.params.launch import UNSET
from fusewright.schedulers.reduction.grid_reduction import WAITS_A_STEP, WORDS_READ_AT_ONCE
from fusewright.schedulers.reduction.space import ReductionSpace, all_outputs, reduction_space
from fusewright.schedulers.reduction.step_loads import REGISTERS_TO_WORK
from fusewright.schedulers.reference_map import Access
from fusewright.schedulers.sectors import LINE_BYTES
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_least, power_of_two_at_most
from fusewright.schedulers.transpose.single_tiles import ACCESSES, ELEMENT

# Threads of a block, at least where a row has fewer elements, and at most.
THREADS = 256  # at least
MAX_THREADS = 512  # at most
# Bytes that each thread has in flight.
#   H200, 4096x512x33 and 512x1024x99 bf16, of a copy's speed: 0.97, with 64 bytes 0.94.
BYTES_IN_FLIGHT = 128
# Vectors that each thread adds up at least.
MIN_VECTORS = 4
# The same where a block has several batches, whose threads are few otherwise. Threads exchange a vector of
# results each: of one vector, that costs more than what it saves.
MIN_VECTORS_OF_BATCHES = 2
# Blocks per SM that there are at least before each of them has several batches.
LEAST_BLOCKS_AN_SM = 2
# Elements that a thread adds up at least, and has in flight at most, if no vector divides what a batch has.
ELEMENTS_A_THREAD = 8  # at least
MAX_ELEMENTS_IN_FLIGHT = 16  # at most
# Bytes of a thread's partial results at most: a vector of each, in registers and in shared memory.
MAX_PARTIAL_BYTES = 128
# Positions of a column in shared memory from which on threads down the columns add them up together: a single
# one would wait for shared memory once for each.
MANY_POSITIONS = 256

# ---- blocks that share columns ----

# Threads of such a block at most.
SHARING_THREADS = 800
# Steps of each block at least.
MIN_STEPS = 2
# Steps from which on there is a block for each SM, not for every second one: the last block adds up what all
# have found.
#   H200, sums of bf16, us: 131072x257 with 66 blocks of 10 steps 26.4, with 132 28.2, by element 34.8;
#   3000000x33 with 132 of 15 steps 57.6, with 264 59.2, by element 76.6; 131072x65 with 66 of 3 steps 12.8,
#   by element 13.7; 300000x33 with 66 of 3 steps 13.1, by element 17.4; 16384x257 with 66 of one step 11.3,
#   by element 10.0; 65536x129, where the last one waits more, 13.7, by element 12.8.
MANY_STEPS = 12
# Blocks of each column in any case: of these, the last one has next to nothing to add up.
FEW_BLOCKS = 2
# Share of the memory's speed that blocks reach at least if each has a column to itself. The estimate decides
# whether columns across stretches, which read sectors several times, are slower.
LEAST_BUSY = 0.3

# Why rows that are not neighbours in memory are not read as one.
APART = "where rows of memory do not follow one another"


def joins_rows(fusion: Fusion, space: ReductionSpace) -> bool:
    """Whether one reduced dimension has one other inside of it in memory, and each tensor is computed for the
    reductions or for what follows from them, not for both.
    """
    order = space.order
    if len(order) < 2 or len(space.reduction) > 1 or order[-2] is not space.reduction[0]:
        return False
    if not space.full_loads or any(map(space.is_full, space.stores)):
        return False
    results = {*space.after, *all_outputs(space.reductions)}
    if not results.issuperset(fusion.output_tensors()):
        return False
    reduced = {value for node in nodes_before(space.reductions) for value in node.tensor_inputs}
    return reduced.isdisjoint(_beside_results(fusion, space))


def _beside_results(fusion: Fusion, space: ReductionSpace) -> set[TensorView]:
    """Returns what is used with results of the reductions, and all that this follows from."""
    results = {*space.after, *all_outputs(space.reductions)}
    after = [node for node in fusion.tensor_nodes() if node.output in space.after]
    used = {value for node in after for value in node.tensor_inputs if value not in results}
    return used.union(value for node in nodes_before(used) for value in node.tensor_inputs)


def loads_of_rows(space: ReductionSpace) -> list[Access]:
    """Returns the loads of what rows have one element of each, such as a mask of pixels."""
    last = space.iteration[-1]
    return [a for a in space.loads if last not in a.concrete and not a.concrete.isdisjoint(space.reduction)]


def accessing_seconds(space: ReductionSpace, points: int, hardware: HardwareInfo) -> float:
    """Returns the seconds of loads by element beside vectors through several rows."""
    return slot_seconds(points * len(loads_of_rows(space)) * ELEMENT / ACCESSES, hardware)


def _nodes(space: ReductionSpace) -> list[Reduction]:
    found = {tensor.definition: None for tensor in space.reductions}
    return [node for node in found if isinstance(node, Reduction)]


@dataclass(frozen=True, slots=True)
class Batches:
    """Columns to be reduced, side by side in several stretches of memory.

    Attributes:
        count: the number of stretches.
        length: the elements of a column.
        row: the columns of a stretch.
        width: the elements of a vector, which divide the length.
        element_bytes: the bytes of all loads of one element.
        reductions: the number of reductions.
        results: the number of results of each column, which are several of one reduction, too.
        result_bytes: the bytes of these.
    """

    count: int
    length: int
    row: int
    width: int
    element_bytes: int
    reductions: int
    results: int
    result_bytes: int

    @property
    def groups(self) -> int:
        """The vectors of a stretch that each thread along a row may have."""
        return self.length // self.width

    @property
    def in_flight(self) -> int:
        """The vectors that a thread has in flight."""
        return max(1, BYTES_IN_FLIGHT // (self.width * self.element_bytes))

    @property
    def may_be_shared(self) -> bool:
        """Whether several blocks may share a stretch. The last of several reductions would stand in a loop.
        What blocks exchange of several results is not known to be worth it, unless columns would otherwise be
        read across stretches.
        """
        return self.reductions == 1 and (self.results == 1 or self.count > 1)

    def threads(self, hardware: HardwareInfo) -> int:
        """Returns the threads of a large block: fewer for several results, if registers do not hold these and
        what is in flight.
        """
        bytes_held = self.width * (self.in_flight * self.element_bytes + self.result_bytes)
        registers = REGISTERS_TO_WORK + ceil_div(bytes_held, REGISTER_BYTES)
        fits = self.results == 1 or registers <= hardware.registers_a_thread(SHARING_THREADS)
        return SHARING_THREADS if fits else MAX_THREADS


def joined_params(batches: Batches, hardware: HardwareInfo) -> ReductionParams | None:
    """Returns params that reduce the columns; None where other ways keep the GPU busier."""
    most = MAX_PARTIAL_BYTES // batches.result_bytes
    if batches.row > MAX_THREADS or not batches.count or not most:
        return None
    batches = replace(batches, width=min(batches.width, power_of_two_at_most(most)))
    if batches.width == 1:
        return _elements(batches, hardware)
    if batches.count < 2 * hardware.sm_count:
        shared = _shared_columns(batches, hardware) if batches.may_be_shared else None
        return shared or _block_a_column(batches, hardware)
    row, groups = batches.row, batches.groups
    # A power of two, as lengths often are multiples of one.
    down = power_of_two_at_most(max(1, groups // MIN_VECTORS))
    down = min(down, power_of_two_at_least(ceil_div(THREADS, row)), power_of_two_at_most(MAX_THREADS // row))
    together = _batches_a_block(batches, down, hardware)
    if groups < (MIN_VECTORS if together == 1 else MIN_VECTORS_OF_BATCHES):
        return None
    vectors = groups // down if together == 1 else ceil_div(groups, down)
    return _params(batches, min(batches.in_flight, vectors), down, together)


def _batches_a_block(batches: Batches, down: int, hardware: HardwareInfo) -> int:
    """Returns the number of batches of a block that has `down` threads down the columns of each."""
    most = batches.count // (LEAST_BLOCKS_AN_SM * hardware.sm_count)
    return max(1, min(THREADS // (batches.row * down), hardware.max_block[2], most))


def _elements(batches: Batches, hardware: HardwareInfo) -> ReductionParams | None:
    """Returns params of blocks that read several batches element by element; None where there are too few
    of these, or a row is longer than what memory is read in.
    """
    row, length = batches.row, batches.length
    if row * batches.element_bytes >= LINE_BYTES or length < MIN_VECTORS_OF_BATCHES * ELEMENTS_A_THREAD:
        return None
    down = min(ceil_div(length, ELEMENTS_A_THREAD), max(1, THREADS // (2 * row)))
    together = _batches_a_block(batches, down, hardware)
    unroll = min(MAX_ELEMENTS_IN_FLIGHT, batches.in_flight, ceil_div(length, down))
    return None if together == 1 else _params(batches, unroll, down, together)


def _shared_columns(batches: Batches, hardware: HardwareInfo) -> ReductionParams | None:
    """Returns params of several blocks for each stretch of memory; None where these would have little to
    do.
    """
    down, unroll = batches.threads(hardware) // batches.row, batches.in_flight
    steps = batches.length // (batches.width * down * unroll)
    blocks = hardware.sm_count // batches.count
    if blocks > FEW_BLOCKS and steps < MANY_STEPS * blocks:
        blocks = max(FEW_BLOCKS, blocks // 2)
    waits = blocks / (down * WORDS_READ_AT_ONCE)
    if blocks < 2 or steps < max(MIN_STEPS, waits / WAITS_A_STEP) * blocks:
        return None
    return _params(batches, unroll, down, blocks=blocks)


def _block_a_column(batches: Batches, hardware: HardwareInfo) -> ReductionParams | None:
    """Returns params of a large block for each stretch of memory; None where these would keep too few SMs
    busy, or would have little to do.

    A block that has an SM to itself is as large as those that share columns.
    """
    if busy_share(batches.count, hardware) < LEAST_BUSY:
        return None
    unroll = batches.in_flight
    down = (batches.threads(hardware) if batches.count <= hardware.sm_count else MAX_THREADS) // batches.row
    if batches.length < MIN_STEPS * batches.width * down * unroll:
        return None
    return _params(batches, unroll, down)


def _params(batches: Batches, unroll: int, down: int, together: int = 1, blocks: int = 1) -> ReductionParams:
    row, width = batches.row, batches.width
    bdimz = together if together > 1 else UNSET
    each = f"{together} of them a block" if together > 1 else f"{blocks} blocks a column"
    return ReductionParams(
        joined_rows=width,
        unroll_factor_inner_reduction=unroll,
        unroll_factor_iter_dom=width,
        vectorize_iter_dom=width > 1,
        lparams=LaunchParams(bdimx=row, bdimy=down, bdimz=bdimz, gdimy=blocks),
        reason=f"{batches.count} times {row} columns of {batches.length}, {width} rows as one: "
        f"{row} threads of {width} elements, {down} down the columns with {unroll} vectors in flight, {each}",
    )


def join_rows(schedule: Schedule, params: ReductionParams, read_once: Collection[TensorView] = ()) -> None:
    """Schedules a fusion that `reduction` takes.

    Raises:
        ParamsError: a row's elements do not follow those of the row before in memory.
    """
    ports = cache_inputs_and_outputs(schedule, read_once, input_hint(params))
    space = reduction_space(schedule.fusion)
    assert isinstance(space, ReductionSpace), space
    if not joins_rows(schedule.fusion, space):
        params.expect("joined_rows", 1, APART)
        params.require(False, "lparams.bdimz", f"1 {APART}")
    reference, launch, width = space.reference, params.lparams, params.unroll_factor_iter_dom
    [reduced] = space.reduction
    schedule.assume_multiple(reference, reference.logical.index(reduced), params.joined_rows)
    order = [*space.iteration[:-1], *space.reduction, space.iteration[-1]]
    schedule.order_loops(reference, order)
    rows = len(order) - 2
    for _ in range(rows - 1):
        schedule.merge(reference, 0)
    first = min(rows, 1)
    for factor in (params.joined_rows, launch.bdimy, params.unroll_factor_inner_reduction):
        schedule.split(reference, first, factor)
    # now [(I,) serial, unroll, threads y, joined, S]
    together = launch.bdimz > 1
    if together:
        params.require(rows > 0, "lparams.bdimz", "1 where all columns are side by side")
        schedule.split(reference, 0, launch.bdimz)
        first += 1
    # now [(I,) (I threads z,) serial, ..]
    among = _shared_by(params)
    if among is not None:
        schedule.split(reference, first, max(launch.gdimy, params.blocks_per_cluster))
        schedule.reorder(reference, {first + 1: first})
        first += 1  # [(I,) blocks, serial, ..]
    schedule.transform_like(reference)
    others = _beside_results(schedule.fusion, space)
    beside = [tensor for tensor in schedule.tensors() if tensor in others and tensor.definition is not None]
    reductions = [node.output for node in _nodes(space)]
    partials = [schedule.rfactor(tensor, [first, first + 1]) for tensor in reductions]
    lead = partials[0]
    results = all_outputs(reductions)
    final = {*_after(results), *results, *beside}
    before = [t for t in schedule.tensors() if t.definition is not None and t not in final]
    held = [schedule.cache_after(partial) for partial in all_outputs(partials)]
    schedule.merge(lead, first + 3)
    schedule.split(lead, first + 3, width)
    # [.. serial, unroll, y, x, vector] -> [.. x, y, serial, unroll, vector]
    schedule.reorder(lead, {first: first + 2, first + 1: first + 3, first + 2: first + 1, first + 3: first})
    bound = {first: ParallelType.block_x, first + 1: ParallelType.block_y, first + 3: ParallelType.unroll}
    batches = _batches(rows, together)
    bound |= batches
    if among is not None:
        bound[first - 1] = among
    for position, kind in bound.items():
        schedule.parallelize(lead, position, kind)
    schedule.parallelize(lead, first + 4, ParallelType.unroll)
    schedule.transform_like(lead, selected=[*before, *held])
    schedule.parallelize_like(lead, selected=[*before, *held])
    for tensor in held:
        schedule.set_memory_type(tensor, MemoryType.shared)
        schedule.parallelize(tensor, -1, ParallelType.serial)
        schedule.split(tensor, -1, min(width, MAX_VECTOR_BYTES // tensor.dtype.size))
        schedule.parallelize(tensor, -1, ParallelType.vectorize)
        inside = [first + 1, first, first + 2, first + 3]
        schedule.store_along(tensor, [1, *inside] if together else inside)
    vectorize_ports(schedule, ports, width, merged=2)
    # Where blocks share a column, or one has many positions of it, threads y add them up together.
    down = among is not None or launch.bdimy * params.joined_rows > MANY_POSITIONS
    _finish(schedule, reductions, batches, among, down, beside)
    loads = find_loads(schedule.fusion)
    schedule.inline_at(lead, first + 3, best_effort=True, selected=loads)
    inline_rest(schedule, {*loads, *held})


def _shared_by(params: ReductionParams) -> ParallelType | None:
    """Returns how blocks that share columns are bound; None if none do."""
    if params.cross_grid_inner_reduction:
        return ParallelType.grid_y
    return ParallelType.cluster_x if params.blocks_per_cluster > 1 else None


def _batches(rows: int, together: bool) -> dict[int, ParallelType]:
    """Returns how the loops of the batches are bound, if there are any."""
    if not rows:
        return {}
    return {0: ParallelType.grid_x, 1: ParallelType.block_z} if together else {0: ParallelType.grid_x}


def _finish(
    schedule: Schedule,
    reductions: list[TensorView],
    batches: Mapping[int, ParallelType],
    among: ParallelType | None,
    down: bool,
    beside: Collection[TensorView],
) -> None:
    """[.. (blocks,) y, joined, S] -> [.. S TIDx | (blocks,) y TIDy, joined], where `..` are the batches, as
    they are bound; without `down`, y is a loop.
    """
    first = len(batches)
    bound = {**batches, first: ParallelType.block_x}
    found = list(reductions)
    if down:
        y = first + (among is not None)
        found += [schedule.rfactor(tensor, [y + 1]) for tensor in reductions]
        bound |= {y + 1: ParallelType.block_y}
        if among is not None:
            bound[y] = among
    # Each by itself: what two reductions read lies between them, and has loops of another kind.
    for tensor in all_outputs(found):
        schedule.reorder(tensor, {len(tensor.loop) - 1: first})
        _bind(schedule, tensor, bound)
    for tensor in _after(all_outputs(reductions)):
        columns = max(i for i, axis in enumerate(tensor.loop) if not axis.is_broadcast)
        _bind(schedule, tensor, {**batches, columns: ParallelType.block_x})
        schedule.parallelize_like(tensor, selected=beside)


def _bind(schedule: Schedule, tensor: TensorView, bound: Mapping[int, ParallelType]) -> None:
    for position, kind in bound.items():
        schedule.parallelize(tensor, position, kind)


def _after(reductions: list[TensorView]) -> list[TensorView]:
    found: dict[TensorView, None] = {}
    stack = list(reductions)
    while stack:
        for tensor in stack.pop().consumers:
            if tensor not in found:
                found[tensor] = None
                stack.append(tensor)
    return list(found)
