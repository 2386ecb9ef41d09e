"""Sums down columns of rows that vectors do not divide: several rows of memory are read as one.

Eight rows of 33 are a run of 264 elements, which vectors of 8 divide. A thread that advances by as many rows
has the same columns in its vector again:

    [I, R, S] -> [I BIDx, (R joined, S) TIDx, R TIDy | R serial, R unroll, (R joined, S) vector]

Then the threads' partial results are in shared memory, where each column is the sum of a few positions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fusewright.core.enums import MemoryType, ParallelType
from fusewright.core.hardware import MAX_VECTOR_BYTES, HardwareInfo
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Reduction
from fusewright.ir.value import TensorView
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.io import (
    cache_inputs_and_outputs,
    find_loads,
    inline_rest,
    input_hint,
    vectorize_ports,
)
from fusewright.schedulers.params import LaunchParams, ReductionParams
from fusewright.schedulers.reduction.grid_reduction import WAITS_A_STEP, WORDS_READ_AT_ONCE
from fusewright.schedulers.reduction.space import ReductionSpace, all_outputs, reduction_space
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_least, power_of_two_at_most

# Threads of a block, at least where a row has fewer elements, and at most.
THREADS = 256  # at least
MAX_THREADS = 512  # at most
# Bytes that each thread has in flight.
#   H200, 4096x512x33 and 512x1024x99 bf16, of a copy's speed: 0.97, with 64 bytes 0.94.
BYTES_IN_FLIGHT = 128
# Vectors that each thread adds up at least.
MIN_VECTORS = 4

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


def joins_rows(fusion: Fusion, space: ReductionSpace) -> bool:
    """Whether one reduced dimension has one other inside of it in memory, and all that is computed has an
    element for each point or follows from the reductions alone.
    """
    order = space.order
    if len(order) < 2 or len(space.reduction) > 1 or order[-2] is not space.reduction[0]:
        return False
    if not all(map(space.is_full, space.loads)) or any(map(space.is_full, space.stores)):
        return False
    results = {*space.after, *(out for node in _nodes(space) for out in node.outputs)}
    for node in fusion.nodes:
        if node.is_scalar or node.output not in space.after:
            continue
        if not results.issuperset(node.tensor_inputs):
            return False
    return all(
        out in results or (isinstance(out, TensorView) and space.has_every_element(out))
        for node in fusion.nodes
        if not node.is_scalar
        for out in node.outputs
    )


def _nodes(space: ReductionSpace) -> list[Reduction]:
    found = {tensor.definition: None for tensor in space.reductions}
    return [node for node in found if isinstance(node, Reduction)]


def joined_params(
    batches: int, length: int, row: int, width: int, element_bytes: int, hardware: HardwareInfo
) -> ReductionParams | None:
    """Returns params that sum columns of `length` in each of `batches` stretches of memory, of rows of `row`
    elements; None where other ways keep the GPU busier.

    width: elements of a vector, which divide the length.
    """
    groups = length // width
    if row > MAX_THREADS or groups < MIN_VECTORS or not batches:
        return None
    in_flight = max(1, BYTES_IN_FLIGHT // (width * element_bytes))
    if batches < 2 * hardware.sm_count:
        return _shared_columns(batches, length, row, width, in_flight, hardware)
    # A power of two, as lengths often are multiples of one.
    down = min(power_of_two_at_least(ceil_div(THREADS, row)), power_of_two_at_most(groups // MIN_VECTORS))
    down = min(down, power_of_two_at_most(MAX_THREADS // row))
    unroll = min(in_flight, groups // down)
    return _params(batches, length, row, width, unroll, LaunchParams(bdimx=row, bdimy=down, gdimy=1))


def _shared_columns(
    batches: int, length: int, row: int, width: int, unroll: int, hardware: HardwareInfo
) -> ReductionParams | None:
    """Returns params of several blocks for each stretch of memory; None where these would have little to
    do.
    """
    down = SHARING_THREADS // row
    steps = length // (width * down * unroll)
    blocks = hardware.sm_count // batches
    if steps < MANY_STEPS * blocks:
        blocks //= 2
    waits = blocks / (down * WORDS_READ_AT_ONCE)
    if blocks < 2 or steps < max(MIN_STEPS, waits / WAITS_A_STEP) * blocks:
        return None
    return _params(batches, length, row, width, unroll, LaunchParams(bdimx=row, bdimy=down, gdimy=blocks))


def _params(
    batches: int, length: int, row: int, width: int, unroll: int, launch: LaunchParams
) -> ReductionParams:
    return ReductionParams(
        joined_rows=width,
        unroll_factor_inner_reduction=unroll,
        unroll_factor_iter_dom=width,
        vectorize_iter_dom=True,
        lparams=launch,
        reason=f"{batches} times {row} contiguous columns of {length}, {width} rows as one: {row} threads of "
        f"{width} elements, {launch.bdimy} down the columns with {unroll} vectors in flight, {launch.gdimy} "
        "blocks a column",
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
        params.expect("joined_rows", 1, "where rows of memory do not follow one another")
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
    among = _shared_by(params)
    if among is not None:
        schedule.split(reference, first, max(launch.gdimy, params.blocks_per_cluster))
        schedule.reorder(reference, {first + 1: first})
        first += 1  # [(I,) blocks, serial, ..]
    schedule.transform_like(reference)
    reductions = [node.output for node in _nodes(space)]
    partials = [schedule.rfactor(tensor, [first, first + 1]) for tensor in reductions]
    lead = partials[0]
    results = all_outputs(reductions)
    final = {*_after(results), *results}
    before = [t for t in schedule.tensors() if t.definition is not None and t not in final]
    held = [schedule.cache_after(partial) for partial in all_outputs(partials)]
    schedule.merge(lead, first + 3)
    schedule.split(lead, first + 3, width)
    # [(I,) serial, unroll, y, x, vector] -> [(I,) x, y, serial, unroll, vector]
    schedule.reorder(lead, {first: first + 2, first + 1: first + 3, first + 2: first + 1, first + 3: first})
    bound = {first: ParallelType.block_x, first + 1: ParallelType.block_y, first + 3: ParallelType.unroll}
    if rows:
        bound[0] = ParallelType.grid_x
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
        schedule.store_along(tensor, [first + 1, first, first + 2, first + 3])
    vectorize_ports(schedule, ports, width, merged=2)
    _finish(schedule, reductions, rows, among)
    loads = find_loads(schedule.fusion)
    schedule.inline_at(lead, first + 3, best_effort=True, selected=loads)
    inline_rest(schedule, {*loads, *held})


def _shared_by(params: ReductionParams) -> ParallelType | None:
    """Returns how blocks that share columns are bound; None if none do."""
    if params.cross_grid_inner_reduction:
        return ParallelType.grid_y
    return ParallelType.cluster_x if params.blocks_per_cluster > 1 else None


def _finish(schedule: Schedule, reductions: list[TensorView], rows: int, among: ParallelType | None) -> None:
    """[(I,) y, joined, S] -> [(I BIDx,) S TIDx | y, joined]; or, where blocks share a column,
    [(I,) blocks, y, joined, S] -> [(I BIDx,) S TIDx | blocks, y TIDy, joined].
    """
    first = min(rows, 1)
    grid = {0: ParallelType.grid_x} if rows else {}
    bound = {**grid, first: ParallelType.block_x}
    found = list(reductions)
    if among is not None:
        found += [schedule.rfactor(tensor, [first + 2]) for tensor in reductions]
        bound |= {first + 1: among, first + 2: ParallelType.block_y}
    # Each by itself: what two reductions read lies between them, and has loops of another kind.
    for tensor in all_outputs(found):
        schedule.reorder(tensor, {len(tensor.loop) - 1: first})
        _bind(schedule, tensor, bound)
    for tensor in _after(all_outputs(reductions)):
        columns = max(i for i, axis in enumerate(tensor.loop) if not axis.is_broadcast)
        _bind(schedule, tensor, {**grid, columns: ParallelType.block_x})


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
