"""Short rows that vectors do not divide: the rows of a block are adjacent in memory and form one run.

    [I, R] -> [BIDx, rows x R -> batches, TIDy, TIDx, vector]    what is loaded and stored
    [I, R] -> [BIDx, TIDy, TIDx | rows in flight, batches]       what is computed

Whole vectors move between global and shared memory. Threads read the elements of their row from shared memory
and write its results there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fusewright.core.enums import MemoryType, ParallelType
from fusewright.core.hardware import MAX_VECTOR_BYTES, WARP_SIZE, HardwareInfo
from fusewright.ir.value import TensorView
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.io import Ports, find_loads
from fusewright.schedulers.params import LaunchParams, ReductionParams
from fusewright.schedulers.reduction.space import ReductionSpace
from fusewright.schedulers.reduction.wider_vectors import aligned_rows
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_least, power_of_two_at_most

# All counts of elements below are of those of 2 bytes, of which a vector has COUNTED_WIDTH; rows of wider
# elements count as longer.
#   H200, softmax of 257 float, of a copy's speed: 0.99 by a warp and 4 rows a block, 0.88 by half a warp,
#   0.87 by element.
COUNTED_WIDTH = 8

# ---- threads of a row ----

# A row has half a warp, if each of its lanes has few elements then, else a warp. Rows beside weights have two
# warps, if the lanes of one would have more elements.
#   H200, bf16, of a copy's speed so and otherwise: softmax of 65 elements 0.75 and 0.35, 129 0.83 and 0.66,
#   257 0.92 and 0.82, 513 0.94 and 0.69, 1023 1.03 and 0.91; layer norm of 513 0.75 and 0.41, 1023 0.71 and
#   0.52.
MIN_LANES = WARP_SIZE // 2  # of a row
ELEMENTS_A_LANE = 17  # at most, before a row has more lanes
# Elements at most of rows that are staged: longer ones are held in other ways.
#   H200, layer norm of 2047 elements by two warps, of a copy's speed: 0.70, copied ahead 0.79.
MAX_ELEMENTS_A_LANE = 33  # of a lane of a warp
MAX_ELEMENTS_BESIDE_WEIGHTS = 1536  # of a row
# The lanes of a row read a word of each bank at a time: each lane takes as many neighbouring elements. It
# takes one element if otherwise the row would have too many places beyond its end.
#   H200, bf16, and by one element, us: softmax of 257 by 4 neighbours 23.1 and 23.8, of 513 by 2 69.9 and
#   75.5, layer norm of 513 87.1 and 94.2.
BANKS_BYTES = 128  # of all banks
MAX_GROWTH_OF_PLACES = 1.2  # factor, from one element a lane

# ---- rows of a block ----

# Rows of a block at least where a row has less than a warp. There are as many as a vector has elements: whole
# vectors are a block's then.
MIN_ROWS_A_BLOCK = 8
# Elements of a row up to which each thread has two rows in flight. Beside weights it also has two longer
# rows, if half a warp has each, as both share the weights.
#   H200: softmax of 65 0.75 of a copy's speed, with one 0.69; layer norm of 257 47.7 us, with one 50.6.
TWO_IN_FLIGHT = 160
# Blocks for each SM that make up for the phases in which a block loads or stores nothing, as many resident.
BLOCKS_AN_SM = 3

# ---- rows of a few elements ----

# Rows between these lengths have fewer lanes, and blocks twice the rows, so that these have more to load at a
# time, and what is read of weights serves more rows. Beside weights each lane has neighbouring elements.
#   H200, us, so and as other rows: layer norm of 65 19.8 and 22.3, of 97 23.2 and 26.4, of 129 36.2 and 32.6;
#   RMS norm of 65 18.5 and 21.7. Softmax of 1000003 rows of 35 56.6 and 80.6, of 49 62.8 and 82.5, of 61 67.8
#   and 85.0, of 91 108 and 120; of fewer rows of 65 with neighbouring elements 18.0 and 17.2.
MIN_SHORT = 32  # elements, exclusive
MIN_SHORT_BESIDE_WEIGHTS = 64  # elements, exclusive
MAX_SHORT = 128  # elements, exclusive
SHORT_LANES = 8  # of a row
SHORT_TOGETHER = 3  # neighbouring elements of a lane beside weights

# ---- rows of fewer elements than lanes ----

# Threads of a block at most, each of which has one or several rows to itself, as many as load a whole vector.
# Blocks have fewer threads if there are too few rows for BLOCKS_AN_SM.
#   Rows with lanes would leave some of these without elements, and a block with less to load than threads.
#   H200, 4194304 rows of 3 bf16, eight a block of 64 threads: 0.05 of a copy's speed.
THREADS_WITH_ROWS = 128


def staged(
    rows: int,
    side_by_side: int,
    length: int,
    width: int,
    element_bytes: int,
    shares_loads: bool,
    hardware: HardwareInfo,
) -> ReductionParams | None:
    """Returns params of blocks that stage `rows` of a constant `length`, by vectors of `width`; None if other
    ways are as fast.

    Args:
        side_by_side: the number of rows along the innermost of their dimensions, or a divisor of it.
        element_bytes: the bytes that are loaded and stored for each element of a row.
        shares_loads: whether rows read common data.
    """
    if width % length == 0:  # a vector has whole rows: threads load their own at once
        return None
    thin = _row_a_thread(rows, side_by_side, length, width, element_bytes, hardware)
    if thin is not None:
        return thin
    counted = length * COUNTED_WIDTH // width
    lanes = MIN_LANES if counted <= MIN_LANES * ELEMENTS_A_LANE else WARP_SIZE
    if shares_loads and counted > lanes * ELEMENTS_A_LANE:
        lanes = 2 * WARP_SIZE
    shortest = MIN_SHORT_BESIDE_WEIGHTS if shares_loads else MIN_SHORT
    is_short = shortest < counted < MAX_SHORT and width == COUNTED_WIDTH
    if not shares_loads and rows < BLOCKS_AN_SM * 2 * width * hardware.sm_count:
        is_short = False
    rows_a_block = 2 * width if is_short else width
    block_bytes = rows_a_block * length * element_bytes
    most = MAX_ELEMENTS_BESIDE_WEIGHTS if shares_loads else WARP_SIZE * MAX_ELEMENTS_A_LANE
    if counted > most or BLOCKS_AN_SM * block_bytes > hardware.shared_memory_per_sm:
        return None
    if rows < BLOCKS_AN_SM * rows_a_block * hardware.sm_count:
        return None
    if rows_a_block < MIN_ROWS_A_BLOCK and lanes < WARP_SIZE:  # too few threads
        return None
    in_flight = 2 if counted <= TWO_IN_FLIGHT or (shares_loads and lanes < WARP_SIZE) else 1
    together = max(1, BANKS_BYTES * width // (MAX_VECTOR_BYTES * min(lanes, WARP_SIZE)))
    if is_short and shares_loads:
        lanes, together = SHORT_LANES, SHORT_TOGETHER
    if _places(length, lanes, together) > MAX_GROWTH_OF_PLACES * _places(length, lanes, 1):
        together = 1
    lanes = SHORT_LANES if is_short else lanes
    return ReductionParams(
        fastest_dim=True,
        persistent_kernel=True,
        unroll_factor_inner_reduction=together,
        batches_per_block_inner_reduction=ceil_div(length, lanes * together),
        unroll_factor_iter_dom=in_flight,
        pad_inner_reduction_to_warp=True,
        staged_vector=width,
        whole_blocks=side_by_side % rows_a_block == 0,
        lparams=LaunchParams(bdimx=lanes, bdimy=rows_a_block // in_flight),
        reason=f"{rows} rows of {length}: {rows_a_block} of a block pass through shared memory as one run, "
        f"in vectors of {width}; {lanes} threads a row, {in_flight} rows in flight, {together} elements of a "
        "thread side by side",
    )


def _row_a_thread(
    rows: int, side_by_side: int, length: int, width: int, element_bytes: int, hardware: HardwareInfo
) -> ReductionParams | None:
    """Returns params of threads that have whole rows; None if rows are too long or too few for that."""
    if length > MIN_LANES:
        return None
    in_flight = min(width, power_of_two_at_least(ceil_div(width, length)))
    most = rows // (BLOCKS_AN_SM * hardware.sm_count)  # of a block
    while in_flight > 1 and WARP_SIZE * in_flight > most:
        in_flight //= 2
    if in_flight > most // WARP_SIZE:
        return None
    threads = min(THREADS_WITH_ROWS, power_of_two_at_most(most // in_flight))
    rows_a_block = threads * in_flight
    if BLOCKS_AN_SM * rows_a_block * length * element_bytes > hardware.shared_memory_per_sm:
        return None
    return ReductionParams(
        fastest_dim=True,
        persistent_kernel=True,
        unroll_factor_inner_reduction=length,
        batches_per_block_inner_reduction=1,
        unroll_factor_iter_dom=in_flight,
        pad_inner_reduction_to_warp=True,
        staged_vector=width,
        whole_blocks=side_by_side % rows_a_block == 0,
        lparams=LaunchParams(bdimx=1, bdimy=threads),
        reason=f"{rows} rows of {length}: {rows_a_block} of a block pass through shared memory as one run, "
        f"in vectors of {width}; a thread has {in_flight} whole rows",
    )


def _places(length: int, lanes: int, together: int) -> int:
    """Returns the elements for which so many lanes have places, some of them beyond the row."""
    return ceil_div(length, lanes * together) * lanes * together


def check_staged(space: ReductionSpace, params: ReductionParams) -> None:
    """Raises ParamsError if the rows of a block are not staged as one run."""
    if not params.staged_vector:
        return
    where = "where the rows of a block are staged (staged_vector)"
    params.expect("shift_rows", False, where)
    params.expect("persistent_blocks", 0, where)
    params.expect("blocks_per_cluster", 1, where)
    params.require(bool(space.iteration), "staged_vector", "0, as all is one row")
    rows = params.lparams.bdimy * params.rows_in_flight
    fits = rows % params.staged_vector == 0
    params.require(fits, "staged_vector", f"a divisor of {rows}, the rows of a block")


def stage(schedule: Schedule, ports: Ports, space: ReductionSpace) -> list[TensorView]:
    """load -> use  becomes  load -> tile -> element -> use;  value -> store  value -> tile -> element ->
    store.

    So it is for what has an element for each point. Returns what goes along memory: loads, the tiles that
    these are stored in, the elements of the others, and stores.
    """
    full = {access.node for access in space.full_loads}
    along: list[TensorView] = []
    for load in ports.loads:
        if load.definition in full or space.has_every_element(load):
            tile = schedule.cache_after(load)
            schedule.set_memory_type(tile, MemoryType.shared)
            schedule.cache_after(tile)
            along += [load, tile]
    for store in ports.stores:
        if space.has_every_element(store):
            tile = schedule.cache_before(store)
            schedule.set_memory_type(tile, MemoryType.shared)
            along += [schedule.cache_before(store), store]
    return along


def lay_side_by_side(
    schedule: Schedule,
    reference: TensorView,
    along: Sequence[TensorView],
    space: ReductionSpace,
    params: ReductionParams,
) -> None:
    """[I, R] -> [BIDx, rows in flight, TIDy, R] of the reference, and of the tiles of results, which lie in
    shared memory along these.
    """
    read = [tensor.definition.inputs[0] for tensor in along if tensor.definition is not None]
    tiles = [t for t in read if isinstance(t, TensorView) and t.memory is MemoryType.shared]
    results = [tile for tile in tiles if tile not in along]
    for tile in results:
        _merge_as_memory_goes(schedule, tile, space)
    for tensor in (reference, *results):
        schedule.split(tensor, 0, params.lparams.bdimy)
        schedule.split(tensor, 0, params.rows_in_flight)
    for tile in results:
        schedule.store_along(tile, [1, 2, 3])


def bind_staged_rows(schedule: Schedule, tensor: TensorView, serial: int) -> None:
    """[BIDx, rows in flight, TIDy, .., serial axes] -> [BIDx, TIDy, .., rows in flight, serial axes]."""
    schedule.parallelize(tensor, 0, ParallelType.grid_x)
    schedule.parallelize(tensor, 2, ParallelType.block_y)
    position = len(tensor.loop) - serial - 1
    schedule.reorder(tensor, {1: position})
    schedule.parallelize(tensor, position, ParallelType.unroll)


def inline_staged_loads(schedule: Schedule, along: Collection[TensorView]) -> list[TensorView]:
    """Inlines tensors that are loaded along memory into only the loop over blocks. Returns them.

    So all of a thread's loads are in flight before the first is staged.
    """
    loads = [load for load in find_loads(schedule.fusion) if load in along]
    for load in loads:
        schedule.inline_at(load, 1)
    return loads


def cut_along(
    schedule: Schedule, along: Collection[TensorView], space: ReductionSpace, params: ReductionParams
) -> None:
    """The loops of what goes along memory, of which the last vector may not be whole."""
    aligned = aligned_rows(space)
    assert aligned is not None
    kinds = (
        ParallelType.grid_x,
        ParallelType.unroll,
        ParallelType.block_y,
        ParallelType.block_x,
        ParallelType.vectorize,
    )
    for tensor in along:
        _merge_as_memory_goes(schedule, tensor, space)
        schedule.split(tensor, 0, params.lparams.bdimy * params.rows_in_flight)
        schedule.merge(tensor, 1)
        if params.whole_blocks:
            schedule.split(tensor, 1, params.staged_vector)
        else:
            schedule.shifted_split(tensor, 1, params.staged_vector, aligned)
        schedule.split(tensor, 1, params.lparams.bdimx)
        schedule.split(tensor, 1, params.lparams.bdimy)
        for position, kind in enumerate(kinds):
            schedule.parallelize(tensor, position, kind)


def _merge_as_memory_goes(schedule: Schedule, tensor: TensorView, space: ReductionSpace) -> None:
    """[..] -> [I, R]"""
    order = [space.maps[tensor][axis] for axis in (*space.iteration, *space.reduction)]
    moves = {tensor.loop.index(axis): i for i, axis in enumerate(order)}
    if any(old != new for old, new in moves.items()):
        schedule.reorder(tensor, moves)
    for _ in range(len(space.iteration) - 1):
        schedule.merge(tensor, 0)
    for _ in range(len(space.reduction) - 1):
        schedule.merge(tensor, 1)
