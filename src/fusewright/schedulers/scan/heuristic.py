"""Chooses params of the scan scheduler: the threads and blocks of a row or a column, and what each thread has
in flight.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from fusewright.core.hardware import MAX_THREADS_PER_BLOCK, WARP_SIZE, HardwareInfo
from fusewright.core.once import cached_property
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Scan
from fusewright.schedulers.base import Facts, Proposal
from fusewright.schedulers.cost import (
    GRID_REDUCTION_SECONDS,
    LATENCY_SECONDS,
    CostModel,
    busy_share,
    overlap,
    starting_seconds,
)
from fusewright.schedulers.params import CompileParams, LaunchParams, ScanParams
from fusewright.schedulers.scan.space import ScanSpace
from fusewright.schedulers.sectors import Sectors
from fusewright.schedulers.shifted_rows import ENOUGH_TO_SCAN, LEAST_SCANNED, ShiftedRows, is_narrow
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_least, power_of_two_at_most, whole_warps
from fusewright.schedulers.vector_limits import VectorLimits, Vectors

# Bytes of loads that a thread has in flight: as many as a reduction's. Down columns, where the steps of a
# block wait for each other, the next step's are loaded meanwhile, too.
#   H200, bf16, of a copy's speed, and without the next step's: 4096 columns of 16384 0.86 and 0.61, 65536
#   columns of 2048 0.90 and 0.83.
BYTES_IN_FLIGHT = 64
# Threads of the rows that share a block, where a warp or less scans one: four warps, of which an SM holds
# enough blocks to be full. They are more, up to the second, if so many blocks start more slowly than memory
# moves.
#   H200, 393312 rows of 19 float: 64.4 us in 98328 blocks, which take 63 us to start.
SMALL_BLOCK = 128
LARGER_BLOCK = 512
# Share of a copy's speed that a scan reaches where blocks are enough.
#   Measured on an H200 for 128 MB to 512 MB.
SCAN_SPEED = 0.93
# Slots of a scan's step from which on threads scan runs as long as the vectors of what is read, though each
# takes two accesses of what is stored.
#   H200, logarithms of sums of exponentials of 8192x2048 bf16 in Float: 41.9 us in runs of 8, 61.5 in runs of
#   4.
COSTLY_SLOTS = 8

# ---- rows ----

# Accesses that a thread has in flight at most: registers and code grow with them.
#   H200, rows of 3001 float, of a copy's speed: 0.75 with 4 accesses of each thread, 0.52 with 8.
MAX_INNER_UNROLL = 4
# Threads that scan a row in vectors, at most; and the vectors that each of them has at least, in shorter
# rows.
#   H200, bf16, of a copy's speed: 65536 elements by 512 threads 0.93, by 128 0.87; 4096 by 256 threads 0.99,
#   by 128 with four vectors 0.97; 1024 by 64 1.00, by 128 0.97.
ROW_THREADS = 512  # of a row
LEAST_VECTORS = 2  # of a thread
# The same where vectors have no more than FEW_ELEMENTS, so that threads pass fewer sums to each other.
#   H200, sums of bools as Int: 8192 rows of 2048 43.0 us by 256 threads with four vectors of two, 45.1 by
#   512; 2048 rows of 8192 47.2 and 56.3.
FEW_ELEMENTS = 2  # of a vector
NARROW_ROW_THREADS = 256  # of a row
NARROW_LEAST_VECTORS = 4  # of a thread

# ---- shifted rows ----

# Lanes of a warp that scan a row at least, and the vectors that each of them has at most.
#   H200, bf16, us: 262144 rows of 65 by 8 lanes 28, by 4 38, by 32 one element at a time 51; 524288 of 33 by
#   8 34, by 4 39, one at a time 84; 131072 of 129 by 8 lanes with three vectors 24, by 16 with two 28; 32768
#   of 1023 by a warp with five 37, with four 43, by 96 threads 48.
LEAST_LANES = 8  # of a row
MAX_VECTORS_OF_A_LANE = 5  # vectors
# Threads that scan a longer row in a single step at most, and the vectors of each.
#   H200, bf16, us: 16384 rows of 2047 by 96 threads with three vectors 37, by a warp 41, by 160 threads 49;
#   4096 of 4097 by 192 threads 22, by 288 with two 23.
MAX_THREADS_OF_ONE_STEP = 256  # of a row
VECTORS_OF_ONE_STEP = 3  # of a thread

# ---- columns ----

# Accesses that a thread has in flight at most.
MAX_OUTER_UNROLL = 16
# Threads of an SM that have 48 KiB in flight together, which covers the latency of HBM, with some to spare
# for those that wait for others.
#   Little's law on an H200: 4.8 TB/s at about 800 ns take 29 KiB of each SM.
OUTER_THREADS_A_SM = 768
# Threads down a column at most, each of which goes through what the others bring.
MAX_THREADS_A_COLUMN = 32
# Threads along the columns that make, with as many as there may be down them, a block of half the size that a
# GPU takes.
LEAST_THREADS_ALONG = 16
# Bytes of neighbouring elements that a block accesses at least: two sectors of memory; and at most: more
# blocks then share an SM.
#   H200, 65536 columns of 2048 bf16, of a copy's speed: 0.90, with twice as many bytes 0.84.
LEAST_ROW_BYTES = 64  # of a block
MAX_ROW_BYTES = 256  # of a block

# ---- blocks that share rows ----

# Blocks of an SM, and the threads of each along a contiguous row. A thread holds what it scans while blocks
# wait for each other, and the next step's loads: of so many bytes, in so many accesses at most.
#   H200, 2 rows of 16777216 bf16, of a copy's speed: 0.76; 0.72 with one block of twice as many threads, 0.64
#   with 64 bytes. Twice as many threads of an SM have registers for 64 bytes without the next step's loads:
#   0.66.
SHARING_BLOCKS_AN_SM = 2  # blocks
SHARING_THREADS = 256  # of a block
SHARING_BYTES = 128  # of loads of a thread
MAX_SHARING_UNROLL = 8  # accesses of a thread
# Blocks that share a row at least.
LEAST_SHARE = 2
# Steps of one block that a shared row has at least: blocks wait for each other after each of theirs.
LEAST_STEPS = 4


@dataclass(frozen=True, eq=False)
class ScanPlanner:
    """Derives params from the sizes of a call."""

    fusion: Fusion
    space: ScanSpace

    @cached_property
    def _cost(self) -> CostModel:
        space = self.space
        slow, fast = space.iteration, (space.scanned,)
        axes = (*slow, *fast) if space.is_inner else (*fast, *slow)
        return CostModel(self.fusion, Sectors.along(self.fusion, space.accesses, axes))

    @cached_property
    def _vectors(self) -> VectorLimits:
        return VectorLimits(self.fusion, self.space.inner_axis, self.space.accesses)

    @cached_property
    def _load_vectors(self) -> VectorLimits:
        loads = [access for access in self.space.accesses if access.node is not None]
        return VectorLimits(self.fusion, self.space.inner_axis, loads)

    @cached_property
    def _shifted(self) -> ShiftedRows:
        space = self.space
        return ShiftedRows(self.fusion, space.reference.shape, space.scanned, space.accesses, space.aligned)

    @cached_property
    def _is_costly(self) -> bool:
        """Whether scans along memory have costly steps, and all stores are to rows of fresh memory."""
        steps = (node.op.slots for node in self.fusion.nodes if isinstance(node, Scan))
        moved = any(access.node is None and access.by_index for access in self.space.accesses)
        fresh = not moved and all(output.alias is None for output in self.fusion.outputs)
        return self.space.is_inner and fresh and any(slots >= COSTLY_SLOTS for slots in steps)

    @cached_property
    def _loaded_bytes(self) -> int:
        """The bytes of an element of all loads that come from memory."""
        wanted = self.space.main.concrete
        read = (a.tensor for a in self.space.accesses if a.node is not None and a.concrete >= wanted)
        return max(1, sum(tensor.dtype.size for tensor in read))

    def __call__(self, facts: Facts, hardware: HardwareInfo) -> Proposal:
        params = self._params(facts, hardware)
        shared = params.lparams.gdimy > 1
        estimate = self._cost.estimate(
            facts,
            hardware,
            speed=self._speed(facts, params, hardware),
            steps=GRID_REDUCTION_SECONDS if shared else 0.0,
        )
        return Proposal(params, estimate)

    def _speed(self, facts: Facts, params: ScanParams, hardware: HardwareInfo) -> float:
        """Returns the share of a copy's speed that a kernel reaches."""
        blocks = self._blocks(facts, params)
        threads = params.lparams.bdimx * params.lparams.bdimy
        resident = min(hardware.max_blocks_per_sm, max(1, hardware.max_threads_per_sm // threads))
        moving = self._cost.seconds_an_sm(facts, hardware) / max(1, blocks)
        kept = overlap(resident, moving, LATENCY_SECONDS)
        started = self._cost.started_share(facts, hardware, blocks)
        return min(SCAN_SPEED * busy_share(blocks, hardware), kept, started)

    def _rows(self, facts: Facts) -> int:
        """Returns the number of rows or columns."""
        return max(1, prod(facts.value(axis.extent) for axis in self.space.iteration))

    def _params(self, facts: Facts, hardware: HardwareInfo) -> ScanParams:
        """Returns the params of a call."""
        # Where nothing goes along, elements that a thread has side by side lie apart for its neighbours.
        vectors = self._load_vectors if self._is_costly else self._vectors
        width = vectors.width(facts) if self.space.goes_along else 1
        length = max(1, facts.value(self.space.scanned.extent))
        rows = self._rows(facts)
        if self.space.is_inner:
            shared = _sharing_rows(rows, length, width, self._loaded_bytes, hardware)
            if shared is not None:
                return shared
            params = self._inner(facts, rows, length, vectors.vectors(facts, width), hardware)
            return _in_fewer_blocks(params, rows, self._cost.moving_seconds(facts, hardware), hardware)
        params = _outer_params(rows, length, width, self._loaded_bytes, hardware)
        return _sharing_columns(params, self._blocks(facts, params), length, hardware)

    def _inner(
        self, facts: Facts, rows: int, length: int, plain: Vectors, hardware: HardwareInfo
    ) -> ScanParams:
        """Returns params for rows that no blocks share, shifted if vectors are narrow otherwise.

        plain: the vectors of rows that are not shifted.
        """
        goes_along, bytes_ = self.space.goes_along, self._loaded_bytes
        found = self._shifted.vectors(facts) if length >= LEAST_SCANNED and goes_along else None
        if found is None or not is_narrow(plain.width, found, ENOUGH_TO_SCAN):
            width = plain.width if goes_along else 1
            params = _inner_params(rows, length, width, bytes_, hardware)
            return replace(params, unaligned_inputs=plain.unaligned if width > 1 else ())
        places = length + found.width - 1
        params = _inner_params(rows, places, found.width, bytes_, hardware)
        params = _with_whole_steps(params, rows, ceil_div(places, found.width), hardware)
        return replace(params, unaligned_inputs=found.unaligned)

    def _blocks(self, facts: Facts, params: ScanParams) -> int:
        """Returns the number of blocks of a kernel with such params."""
        columns = params.lparams.bdimx * params.vectorization_factor
        groups = ceil_div(self._rows(facts), params.lparams.bdimy if self.space.is_inner else columns)
        return groups * max(1, params.lparams.gdimy)


# ---- inner ------------------------------------------------------------------------------------


def _inner_params(
    rows: int, length: int, width: int, element_bytes: int, hardware: HardwareInfo
) -> ScanParams:
    """Returns params for `rows` of `length` elements that no blocks share, in vectors of `width`.

    element_bytes: the bytes of an element of all loads.
    """
    vectors = ceil_div(length, width)
    threads = _threads_of_row(rows, vectors, width, hardware)
    in_flight = max(1, min(BYTES_IN_FLIGHT // (width * element_bytes), MAX_INNER_UNROLL))
    unroll = max(1, min(in_flight, vectors // threads))
    fill_gpu = rows * WARP_SIZE >= hardware.sm_count * hardware.max_threads_per_sm
    if width == 1 and LEAST_LANES < vectors <= 2 * WARP_SIZE and fill_gpu:
        threads, unroll = _lanes_of_elements(vectors, in_flight)
    rows_a_block = max(1, min(SMALL_BLOCK // threads, power_of_two_at_least(rows)))
    return ScanParams(
        fastest_dim=True,
        vectorization_factor=width,
        unroll_factor=unroll,
        lparams=LaunchParams(bdimx=threads, bdimy=rows_a_block),
        reason=f"{rows} rows of {length}, contiguous: {threads} threads a row with {unroll} vectors "
        f"of {width} in flight, {rows_a_block} rows a block",
    )


def _threads_of_row(rows: int, vectors: int, width: int, hardware: HardwareInfo) -> int:
    """Returns the threads that scan a row, a power of two.

    A warp scans a row by shuffles alone, so more threads share one only where rows are few, or where each of
    the threads has vectors: then a row takes few steps.
    """
    usual, least_vectors = ROW_THREADS, LEAST_VECTORS
    if width <= FEW_ELEMENTS:
        usual, least_vectors = NARROW_ROW_THREADS, NARROW_LEAST_VECTORS
    with_vectors = min(usual, power_of_two_at_most(vectors // least_vectors)) if width > 1 else WARP_SIZE
    to_fill_gpu = ceil_div(hardware.sm_count * hardware.max_threads_per_sm, rows)
    wanted = max(WARP_SIZE, with_vectors, power_of_two_at_most(to_fill_gpu))
    most = ROW_THREADS if width > 1 else MAX_THREADS_PER_BLOCK
    return min(wanted, power_of_two_at_least(vectors), most)


def _lanes_of_elements(length: int, in_flight: int) -> tuple[int, int]:
    """Returns the lanes that scan a short row by element, and the elements of each: those with the fewest
    places beyond the row, and then the most elements of a lane.

    A warp for each row would have too few bytes in flight.
    """
    ways = []
    for lanes in (LEAST_LANES, 2 * LEAST_LANES, WARP_SIZE):
        elements = ceil_div(length, lanes)
        ways.append((elements > in_flight, lanes * elements, lanes, min(elements, in_flight)))
    _, _, lanes, elements = min(ways)
    return lanes, elements


def _in_fewer_blocks(params: ScanParams, rows: int, memory: float, hardware: HardwareInfo) -> ScanParams:
    """Returns the params with more rows a block, if rows share blocks that start more slowly than memory
    moves. There are blocks for all of the GPU still.

    Blocks of shifted rows stay as they were timed (LEAST_LANES).

    Args:
        memory: seconds of the traffic.
    """
    threads, rows_a_block = params.lparams.bdimx, params.lparams.bdimy
    wave = hardware.sm_count * hardware.max_threads_per_sm // threads  # rows
    if threads > WARP_SIZE or params.shift_rows or rows < wave:
        return params
    while 2 * threads * rows_a_block <= LARGER_BLOCK and starting_seconds(rows / rows_a_block) > memory:
        rows_a_block *= 2
    if rows_a_block == params.lparams.bdimy:
        return params
    return replace(
        params,
        lparams=replace(params.lparams, bdimy=rows_a_block),
        reason=f"{params.reason}; {rows_a_block} rows a block, as more blocks would start slowly",
    )


def _with_whole_steps(params: ScanParams, rows: int, vectors: int, hardware: HardwareInfo) -> ScanParams:
    """Returns params for shifted rows of so many vectors, often one more than a power of two.

    For that one a warp takes one more a lane, and a block more threads, since a step of its own would take as
    long as others.
    """
    threads, unroll = params.lparams.bdimx, params.unroll_factor
    rows_a_block = params.lparams.bdimy
    are_many = 4 * WARP_SIZE * rows >= hardware.sm_count * hardware.max_threads_per_sm
    if threads <= WARP_SIZE or (are_many and vectors <= WARP_SIZE * MAX_VECTORS_OF_A_LANE):
        threads = min(WARP_SIZE, max(LEAST_LANES, power_of_two_at_most(vectors // LEAST_VECTORS)))
        unroll = max(1, min(MAX_VECTORS_OF_A_LANE, ceil_div(vectors, threads)))
        rows_a_block = min(power_of_two_at_least(rows), SMALL_BLOCK // threads)
    elif are_many and vectors <= MAX_THREADS_OF_ONE_STEP * VECTORS_OF_ONE_STEP:
        threads, unroll = whole_warps(ceil_div(vectors, VECTORS_OF_ONE_STEP)), VECTORS_OF_ONE_STEP
        rows_a_block = 1
    else:
        steps = max(1, vectors // (threads * unroll))
        threads = min(MAX_THREADS_PER_BLOCK, whole_warps(ceil_div(vectors, steps * unroll)))
    return replace(
        params,
        shift_rows=True,
        unroll_factor=unroll,
        lparams=replace(params.lparams, bdimx=threads, bdimy=rows_a_block),
        reason=f"{params.reason}; aligned by the start of each row, {threads} threads with {unroll}",
    )


def _sharing_rows(
    rows: int, length: int, width: int, element_bytes: int, hardware: HardwareInfo
) -> ScanParams | None:
    """Returns params of blocks that share rows; None where there are enough rows."""
    most = max(1, min(SHARING_BYTES // (width * element_bytes), MAX_SHARING_UNROLL))
    available = SHARING_BLOCKS_AN_SM * hardware.sm_count // rows
    # As few steps as can be, of all blocks.
    needed = power_of_two_at_least(ceil_div(length, SHARING_THREADS * width * max(1, available)))
    unroll = min(power_of_two_at_most(most), needed)
    step = SHARING_THREADS * unroll * width
    share = _share(available, length, step)
    if share < LEAST_SHARE:
        return None
    return ScanParams(
        fastest_dim=True,
        vectorization_factor=width,
        unroll_factor=unroll,
        prefetches_steps=length > share * step,
        lparams=LaunchParams(gdimy=share, bdimx=SHARING_THREADS, bdimy=1),
        cparams=CompileParams(
            maxrregcount=hardware.registers_a_thread(SHARING_BLOCKS_AN_SM * SHARING_THREADS)
        ),
        reason=f"{rows} rows of {length}, contiguous: {share} blocks of {SHARING_THREADS} threads a row "
        f"with {unroll} vectors of {width} in flight",
    )


def _share(available: int, length: int, step: int) -> int:
    """Returns the number of blocks that share a row or column, 1 if none do.

    Of the `available` ones for each, as many share it as have all of the same steps. The number is the same
    for all lengths of a class, which so have one kernel.

    Args:
        step: the elements that a block goes through at a time.
    """
    least = power_of_two_at_most(length)
    if available < LEAST_SHARE or least < LEAST_STEPS * step:
        return 1
    return ceil_div(least, ceil_div(least, available * step) * step)


# ---- outer ------------------------------------------------------------------------------------


def _outer_params(
    rows: int, length: int, width: int, element_bytes: int, hardware: HardwareInfo
) -> ScanParams:
    """Returns params for `rows` columns of `length`, of which neighbours are contiguous, in vectors of up to
    `width`.
    """
    # Narrower blocks where wider ones would leave SMs without any, down to whole sectors of a row.
    block = min(width * WARP_SIZE, max(width, MAX_ROW_BYTES // element_bytes))
    while ceil_div(rows, block) < hardware.sm_count and block * element_bytes > LEAST_ROW_BYTES:
        block //= 2
    width = min(width, max(1, block // LEAST_THREADS_ALONG))
    columns = ceil_div(rows, width)
    threads_x = min(max(1, block // width), power_of_two_at_least(columns))
    unroll = max(1, min(BYTES_IN_FLIGHT // (width * element_bytes), MAX_OUTER_UNROLL, length))
    # As many threads down a column as fill the GPU, while each has elements.
    wanted = power_of_two_at_least(hardware.sm_count * OUTER_THREADS_A_SM // columns + 1) // 2
    threads_y = min(wanted, power_of_two_at_least(ceil_div(length, unroll)), MAX_THREADS_A_COLUMN)
    threads_y = max(1, threads_y)
    if threads_y == 1:
        threads_x = min(SMALL_BLOCK, max(threads_x, power_of_two_at_least(columns)))
    return ScanParams(
        fastest_dim=False,
        vectorization_factor=width,
        unroll_factor=unroll,
        prefetches_steps=length > threads_y * unroll,
        lparams=LaunchParams(bdimx=threads_x, bdimy=threads_y),
        reason=f"{rows} columns of {length}: {threads_x} threads of {width} columns, "
        f"{threads_y} down the columns with {unroll} rows in flight",
    )


def _sharing_columns(params: ScanParams, blocks: int, length: int, hardware: HardwareInfo) -> ScanParams:
    """Returns the params with several blocks down the columns, if `blocks` leave half of the GPU idle."""
    down = params.lparams.bdimy
    step = down * params.unroll_factor
    share = _share(hardware.sm_count // max(1, blocks), length, step)
    if share < LEAST_SHARE or down == 1:
        return params
    return replace(
        params,
        prefetches_steps=length > share * step,
        lparams=replace(params.lparams, gdimy=share),
        cparams=CompileParams(maxrregcount=hardware.registers_a_thread(params.lparams.bdimx * down)),
        reason=f"{params.reason}; {share} blocks share them",
    )
