"""Chooses params of reductions along contiguous rows: the threads and blocks of a row, the vectors that each
thread has in flight, and the rows that a thread and a block take at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from fusewright.core.hardware import MAX_VECTOR_BYTES, WARP_SIZE, HardwareInfo
from fusewright.schedulers.params import LaunchParams, ReductionParams
from fusewright.schedulers.reduction.grid_reduction import blocks_of_row
from fusewright.schedulers.reduction.shared_elements import ROWS_OF_VECTORS, SHARED_VECTORS
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_least, whole_warps

# ---- threads of a row and vectors of a thread ----

# Vectors of a row up to which each has a thread of its own.
MAX_VECTORS_WITH_A_THREAD_EACH = 8
# Vectors of each load that a thread sums in longer rows, while the GPU has threads for the others.
#   H200, bf16, rows of 64 to 16384: two are faster than four by 0.01 to 0.06 of a copy's speed.
VECTORS_A_THREAD = 2
# Vectors that a thread has in flight at most, of all loads together: further ones take registers only.
#   H200, bf16: a loss of 8192x4096 from three inputs 57.0 us with one vector of each, 64.3 with four.
MAX_VECTORS_IN_FLIGHT = 4
# Share of a row's loads that may be wasted, as its last step goes beyond its end. If more are, the row is
# read in one step, by another number of threads.
#   A row of one vector more than a power of two would take one more step. H200, bf16, of a copy's speed:
#   4097 elements 0.98 in one step, 0.63 by 512 threads with two vectors; 513 0.91 by 16 threads, 0.73 by 32
#   with three; 2049 0.99 by 64 threads, 0.94 by 32 with nine.
MAX_WASTED_SHARE = 1 / 3
# Vectors that a thread has in flight at most if it reads its part of a row in one step: of all loads in all,
# but VECTORS_A_THREAD of each.
#   H200, three misaligned inputs of 12288x2049 bf16: 43.6 us by 160 threads with two vectors of each, 45.7 by
#   96 with three, 49.4 by 64 with five, 50.1 by 288 with one.
MAX_VECTORS_OF_ONE_STEP = 5
# Elements that a thread sums, all in flight, where rows are read element by element.
ELEMENTS_A_THREAD = 9
# Threads of a row at most. More gain nothing once every SM has work, and make a block's barriers slower.
MAX_THREADS_A_ROW = 512
# Rows for each SM from which on a row may have WIDEST_BLOCK threads. The SM then reads fewer rows at a time.
#   H200, bf16: 8192x16384 takes 0.95 of the time, 2048x65536 0.99.
ROWS_OF_WIDEST_BLOCKS = 8  # for each SM
WIDEST_BLOCK = 1024  # threads

# ---- the same for several states, whose exchange between threads costs more ----

# Vectors of a thread at most, in rows for which a warp then suffices.
STATES_VECTORS_OF_WARP = 4
# Vectors of a thread in longer rows, and how many of them it has in flight.
STATES_VECTORS_A_THREAD = 16  # of a thread
STATES_VECTORS_IN_FLIGHT = 8  # of a thread
# The same where the row is read in one step, as a second one would have too many of its loads beyond the end.
#   H200, variances of 65536 rows of 1025 half, and of their columns: 228 us with nine in flight, 264 with
#   eight.
STATES_VECTORS_OF_ONE_STEP = 10  # of a thread
# Threads of a longer row at most, unless the rows would leave half of the GPU idle.
STATES_MAX_THREADS_A_ROW = 128

# ---- rows of a thread and of a block ----

# Threads of a block of several rows.
SHORT_ROWS_BLOCK = 128
# Rows that a thread sums side by side at most: rows of a few elements have too few bytes by themselves. There
# are as many as have ROWS_IN_FLIGHT_ELEMENTS in a vector each, within these two limits.
MIN_ROWS_IN_FLIGHT = 2  # rows of a thread
MAX_ROWS_IN_FLIGHT = 8  # rows of a thread
ROWS_IN_FLIGHT_ELEMENTS = 16  # elements of all rows' vectors


@dataclass(frozen=True, slots=True)
class RowAccesses:
    """The loads and stores of a kernel that reduces rows.

    Attributes:
        states: the most states of any reduction.
        loads: the number of inputs of which every element is loaded, of `element_bytes` together.
        stores: whether every element is stored as well.
        scattered: whether neighbours of some load are not adjacent in memory.
    """

    states: int = 1
    loads: int = 1
    element_bytes: int = 0
    stores: bool = False
    scattered: bool = False

    def vectors_a_thread(self, needs_several_warps: bool) -> int:
        """Returns the vectors of each load that a thread sums.

        Several loads share them in rows that take more than a warp, unless elements are stored as well: then
        more vectors are faster, since fewer threads wait for the stores.
            H200, bf16: 16384x4096 of two inputs, multiplied and summed, 68.1 us with one vector of each, 71.0
            with two; 16384x3136, stored as well, 75.6 us with two, 87.7 with one.
        """
        if not needs_several_warps or self.stores:
            return VECTORS_A_THREAD
        return max(1, VECTORS_A_THREAD // max(1, self.loads))

    def shares_vectors(self, vectors: int, width: int) -> bool:
        """Whether rows of so many vectors of `width` load only what neighbouring rows load as well."""
        few = SHARED_VECTORS <= vectors <= 2 * WARP_SIZE
        return not self.loads and not self.stores and self.states == 1 and width > 1 and few

    def narrow_vectors_of_widest(self, width: int) -> int:
        """Returns how many vectors of `width` elements have the bytes of the widest; 1 for elements."""
        bytes_ = width * self.element_bytes // max(1, self.loads)
        return max(1, MAX_VECTOR_BYTES // bytes_) if width > 1 and bytes_ else 1


def inner_params(
    rows: int, length: int, width: int, hardware: HardwareInfo, accesses: RowAccesses = RowAccesses()
) -> ReductionParams:
    """Returns params that reduce `rows` contiguous rows of `length` elements, in vectors of `width`."""
    vectors = max(1, ceil_div(length, width))
    threads, unroll = _threads_of_row(rows, vectors, width, accesses, hardware)
    rows_down = max(1, WARP_SIZE // threads)  # threads of a block across rows
    # Twice the rows a block, while that leaves a block for each SM.
    while rows_down * threads < SHORT_ROWS_BLOCK and rows >= 2 * rows_down * hardware.sm_count:
        rows_down *= 2
    in_flight = 1
    if threads <= WARP_SIZE and accesses.states == 1 and (unroll == 1 or width == 1):
        most = _most_rows_in_flight(vectors, width, accesses)
        while in_flight < most and rows >= 4 * in_flight * rows_down * hardware.sm_count:
            in_flight *= 2
    blocks = max(1, ceil_div(rows, rows_down * in_flight))
    grid = 1
    if blocks < hardware.sm_count and threads == MAX_THREADS_A_ROW:
        states, scattered = accesses.states, accesses.scattered
        grid = blocks_of_row(blocks, vectors, threads, unroll, states, scattered, hardware)
        unroll = min(unroll, max(1, ceil_div(vectors, threads * grid)))
    a_block = rows_down * in_flight
    return ReductionParams(
        fastest_dim=True,
        unroll_factor_inner_reduction=width,
        vectorize_inner_reduction=width > 1,
        unroll_factor_top_of_vectorization=unroll,
        unroll_factor_iter_dom=in_flight,
        pad_inner_reduction_to_warp=True,
        lparams=LaunchParams(bdimx=threads, bdimy=rows_down, gdimy=grid),
        reason=f"{rows} rows of {length}, contiguous: {threads} threads a row with {unroll} vectors of "
        f"{width} in flight, {in_flight} rows a thread, {a_block} rows a block, {grid} blocks a row",
    )


def _most_rows_in_flight(vectors: int, width: int, accesses: RowAccesses) -> int:
    """Returns the most rows that a thread may sum side by side."""
    if accesses.shares_vectors(vectors, width):
        return ROWS_OF_VECTORS
    if width == 1:
        return MIN_ROWS_IN_FLIGHT
    return max(MIN_ROWS_IN_FLIGHT, min(MAX_ROWS_IN_FLIGHT, ROWS_IN_FLIGHT_ELEMENTS // width))


def _threads_of_row(
    rows: int, vectors: int, width: int, accesses: RowAccesses, hardware: HardwareInfo
) -> tuple[int, int]:
    """Returns the threads of a row, a power of two or whole warps, and the vectors in flight of each."""
    fewest = WARP_SIZE if rows == 1 else 1
    most = WIDEST_BLOCK if rows >= ROWS_OF_WIDEST_BLOCKS * hardware.sm_count else MAX_THREADS_A_ROW
    if accesses.states > 1:
        wanted, in_flight = _threads_for_states(rows, vectors, hardware), STATES_VECTORS_IN_FLIGHT
    elif width == 1:
        wanted, in_flight = ceil_div(vectors, ELEMENTS_A_THREAD), ELEMENTS_A_THREAD
    else:
        wanted, in_flight = _threads_for_vectors(vectors, width, accesses)
    threads = min(most, max(fewest, power_of_two_at_least(wanted)))
    is_vectorized = accesses.states == 1 and width > 1
    if is_vectorized and vectors > threads * in_flight:
        in_flight = max(1, in_flight // max(1, accesses.loads))
    unroll = max(1, min(in_flight, ceil_div(vectors, threads)))
    if is_vectorized and threads > WARP_SIZE and _wastes_loads(vectors, threads, unroll):
        a_thread = max(VECTORS_A_THREAD, MAX_VECTORS_OF_ONE_STEP // max(1, accesses.loads))
        least = ceil_div(vectors, a_thread)
        rounded = power_of_two_at_least(least) if least <= WARP_SIZE else whole_warps(least)
        threads = min(most, max(fewest, rounded))
        unroll = min(a_thread, ceil_div(vectors, threads))
    if accesses.states > 1 and _wastes_loads(vectors, threads, unroll):
        a_thread = ceil_div(vectors, threads)
        unroll = a_thread if a_thread <= STATES_VECTORS_OF_ONE_STEP else unroll
    return threads, unroll


def _threads_for_states(rows: int, vectors: int, hardware: HardwareInfo) -> int:
    """Returns the number of threads wanted for a row of several states."""
    if vectors <= WARP_SIZE * STATES_VECTORS_OF_WARP:
        return ceil_div(vectors, STATES_VECTORS_OF_WARP)
    to_fill_half = hardware.sm_count * hardware.max_threads_per_sm // (2 * max(1, rows))
    most = max(STATES_MAX_THREADS_A_ROW, to_fill_half)
    return max(WARP_SIZE, min(ceil_div(vectors, STATES_VECTORS_A_THREAD), most))


def _threads_for_vectors(vectors: int, width: int, accesses: RowAccesses) -> tuple[int, int]:
    """Returns the number of threads wanted for a row of one state in vectors, and the vectors that each may
    have in flight.
    """
    narrow = accesses.narrow_vectors_of_widest(width)
    in_flight = MAX_VECTORS_IN_FLIGHT
    if accesses.shares_vectors(vectors, width):
        wanted, in_flight = ceil_div(vectors, 2), 1
    elif vectors <= MAX_VECTORS_WITH_A_THREAD_EACH:
        wanted = vectors
    else:
        needs_several_warps = vectors > VECTORS_A_THREAD * WARP_SIZE * narrow
        wanted = ceil_div(vectors, accesses.vectors_a_thread(needs_several_warps))
    # A thread has as many bytes of narrow vectors as of wide ones, while a warp has the row.
    #   H200, bf16: two inputs of rows of 784 in vectors of four, and stored, 24.4 us, with fewer bytes 29.5;
    #   of 196 in vectors of two 15.5 and 24.5; mean and maximum of rows of 784 12.7 and 15.4.
    return min(wanted, max(WARP_SIZE, ceil_div(wanted, narrow))), in_flight


def _wastes_loads(vectors: int, threads: int, unroll: int) -> bool:
    """Whether threads that go through a row in steps have too many of their loads beyond its end."""
    steps = ceil_div(vectors, threads * unroll)
    return vectors < (1 - MAX_WASTED_SHARE) * steps * threads * unroll
