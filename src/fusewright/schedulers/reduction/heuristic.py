"""Chooses params of the reduction scheduler: how rows and columns are split."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import trunc

from fusewright.core.hardware import MAX_VECTOR_BYTES, WARP_SIZE, HardwareInfo
from fusewright.core.recorded import isqrt
from fusewright.schedulers.params import CompileParams, LaunchParams, ReductionParams
from fusewright.schedulers.reduction.shared_elements import (
    MOST_OF_A_THREAD,
    ROWS_OF_VECTORS,
    SHARED_VECTORS,
)
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_least, power_of_two_at_most

# Vectors of a row that a thread sums while there are threads for the others (one, in rows of a few), and has
# in flight at most, of all inputs together in long rows (an H200: a loss of 8192 x 4096 from three bfloat16
# inputs takes 57.0 us with one of each in flight, 64.3 with four). On an H200, for bfloat16 rows of 64 to
# 16384, two are 0.01 to 0.06 of a copy's speed faster than four. Of two inputs a thread has one of each in
# rows that take more than a warp (16384 x 4096 multiplied and summed: 68.1 us, not 71.0), unless it stores
# the rows as well, for which fewer threads wait then (16384 x 3136: 75.6 us, not 87.7). Of narrow vectors it
# has as many bytes, while a warp has the row (two inputs of rows of 784 in vectors of four, and stored: 24.4
# us, not 29.5; of 196 in vectors of two 15.5, not 24.5; the mean and maximum of rows of 784 12.7, not 15.4).
VECTORS_A_THREAD, LOADS_IN_FLIGHT, FEW_VECTORS = 2, 4, 8
# If the last step of a row would waste more than this fraction of the loads, the number of threads is another
# one, with up to so many vectors in flight each: one vector more than a power of two costs one more step. (An
# H200: bfloat16 rows of 4097 at 0.98 of a copy's speed, 0.63 with 512 threads of two; 513 0.91 with 16
# threads, 0.73 with 32 of three; 2049 0.99 with 64, 0.94 with 32 of nine.)
IN_VAIN_SHARE, IN_ONE_STEP = 1 / 3, 5
# The fewest and the most rows that a thread sums together, and the number of their elements up to which there
# are more than the fewest: rows of a few elements have too few bytes by themselves.
FEWEST_ROWS, MOST_ROWS, ELEMENTS_OF_ROWS = 2, 8, 16
# For blocks whose threads have rectangles of elements: threads; threads along rows, which read a line of
# memory together; bytes in flight per thread; and the most elements along a row. There are as many blocks as
# with half of these bytes. (An H200: 4096 columns of 8192 bfloat16 from two inputs take 48.6 us; in squares
# of 8 x 8, whose threads take twice the registers, 58.5.)
CROSSED_BLOCK, CROSSED_THREADS_ALONG, CROSSED_BYTES_IN_FLIGHT, CROSSED_ALONG = 512, 16, 128, 4
# For rows in two stretches of memory: the number of vectors up to which one thread reduces a row, if this
# gives enough threads for the GPU; and bytes in flight per thread (an H200: squares of 2 x 2 bfloat16 take
# 22.9 us, by two threads each 25.1; of 4 x 4 21.5, not 22.8).
FEWEST_SPLIT_VECTORS, BYTES_OF_SHORT_ROWS = 4, 32
# From this number of states on, blocks exchange so much that there are half as many, with twice the threads
# (an H200: the variances of 4096 columns of 16384 bfloat16 take 44.4 us, not 52.9).
MANY_STATES = 3
# For such reductions: the most blocks per SM that share a row, and that share columns (an H200, bfloat16: the
# variance of 16777216 elements by two blocks an SM takes 18.2 us, by four 20.1; of 65536 x 64 by 64 blocks
# 16.3, by 256 21.4; of 200704 x 256 by 66 blocks 41.1, by 132 44.2).
BLOCKS_OF_STATES_AN_SM, BLOCKS_OF_STATES_DOWN = 2, 0.5
# Loads in flight of single elements.
ELEMENTS_A_THREAD = 9
# For several states, whose exchange between threads costs more: vectors per thread in rows that a warp
# reduces at once, vectors per thread in longer rows, and vectors in flight.
STATES_A_THREAD_AT_ONCE, STATES_A_THREAD, STATES_IN_FLIGHT = 4, 16, 8
# More threads for a row than this gain nothing once every SM has work, and make a block's barriers slower.
MAX_THREADS_A_ROW, MAX_THREADS_OF_STATES = 512, 128
# If each SM has so many rows, one after another, a block may have the maximum size: the SM then reads fewer
# rows at a time (an H200: 8192 x 16384 bfloat16 in 0.95 of the time, 2048 x 65536 in 0.99).
ROWS_OF_WIDEST_BLOCKS, WIDEST_BLOCK = 8, 1024
# Threads of a block of several rows.
SHORT_ROWS_BLOCK = 128
# A grid reduction costs one round trip through L2; a thread should have at least this many loads to hide it.
# One is enough if each load reads a separate sector, as an SM takes a cycle for each (an H200: a sum of 8192
# elements by index takes 4.5 us by 16 blocks, 10.3 by one).
MIN_LOADS_PER_THREAD, MIN_SCATTERED_LOADS = 4, 1

# The number of neighbouring columns that a thread sums, and the bytes of them in flight, which give the
# number of rows in flight: more columns take registers that more rows use better. Measured on an H200 for
# 16384 x 4096 bfloat16 with one input (a sum) and two (column sums of a backward pass). Where each element is
# stored, too, four are no slower than eight (us: 4319 x 1088 14.7 and 19.5, 10036 x 1664 32.5 and 40.3,
# 100000 x 256 46.8 and 49.6, 16384 x 4096 104.3 and 104.6).
COLUMNS = 4
OUTER_BYTES_IN_FLIGHT = 64
USUAL_ROWS_IN_FLIGHT, SINGLE_ROWS_IN_FLIGHT, MAX_ROWS_IN_FLIGHT = 8, 16, 32
# The number of columns of a block that reads single elements instead of vectors, and the number of columns
# from which on it does: its threads have more rows in flight (an H200: 20000 x 4095 bfloat16 in 0.86 of the
# time), except if each element is also stored (GELU's gradient with a bias's, 5215 x 1417: 26.7 us with 16
# rows, 39.9 with 32; in float 767 x 4329 22.7 and 22.5).
SINGLE_COLUMNS, MANY_SINGLE_COLUMNS = 128, 1024
# The number of blocks per SM for which there are registers, for columns that are read word by word (an H200:
# columns of 511 bfloat16 beside two broadcasts are summed in 0.19 of the time, of 3333 half in 0.54, of 256
# from two inputs in 0.70, of 2000 in 0.83).
BLOCKS_OF_WORDS_AN_SM = 2
# Fewer columns, if a single block can take their length, are read by single elements and not shared between
# blocks: columns per block, threads down each, and the least number of such blocks. (An H200, bfloat16, us:
# 1024 x 257 6.3, in blocks that share columns 7.7; 1024 x 513 6.6, 7.7; 512 x 1023 6.5, 7.7.)
SINGLE_BLOCK_COLUMNS, SINGLE_BLOCK_DOWN, LEAST_SINGLE_BLOCKS = 8, 64, 32
# The same if memory has only a short row of a few columns: vectors of the largest width, and fewer blocks.
NARROW_BYTES_IN_FLIGHT = 128
# The threads of a block that sums columns; twice as many if all neighbouring columns fit in one block along
# x, since the work is then down the columns (an H200, the middle of 8 x 65536 x 128: of float 73.3 us, not
# 78.0, of bfloat16 41.3, not 41.5).
OUTER_BLOCK, OUTER_BLOCK_OF_FEW_COLUMNS = 256, 512
# The contiguous bytes of a row that a block reads.
BLOCK_ROW_BYTES = 256
# The same of blocks that share columns and go so many times through memory each, or less, and how many of
# them an SM has (an H200, bfloat16: 60000 x 192 in 0.84 of the time, 16384 x 1024 in 0.91, 5000 x 2048 in
# 0.95, GELU's gradient with a bias's of 4319 x 1088 in 0.71; but 100003 x 1000, 24 steps, in 1.02).
OUTER_BLOCK_OF_FEW_STEPS, BLOCKS_OF_FEW_STEPS_AN_SM, FEW_STEPS = 512, 2, 12
# The number of blocks per SM that share columns by a grid reduction, and the least number of steps of a
# block, each of which issues all of its loads in flight, that makes this worth the round trip.
OUTER_BLOCKS_A_SM = 4
MIN_OUTER_STEPS = 2
# Only a fraction of the blocks is used if more than this would share a column, since the last block adds up
# all partial results (an H200: 100003 x 1000 bfloat16 in 0.98 of the time). It waits for memory at most so
# often per step of a block, with so many words of a thread in flight each time (60000 x 192 in 0.84 of the
# time, GELU's gradient with a bias's of 4319 x 1088 in 0.90).
MANY_BLOCKS_DOWN, SHARE_OF_MANY = 32, 0.75
WAITS_A_STEP, WORDS_HEARD_AT_ONCE = 0.5, 8
# Blocks of the maximum size sum whole columns if at least this fraction of the SMs has one, and each has at
# most so many: then no blocks wait for each other. Columns longer than this require rows of memory of whole
# warps. (An H200,
# bfloat16: 512 x 768 and 1024 x 4096 in 0.77 of the time, 1024 x 16384 in 0.87, 8192 x 16384 and the middle
# of 16 x 4096 x 1024 in 0.98, of 7 x 170 x 3776 in 0.90, of 431 x 560 x 64 float in 0.94.)
SINGLE_BLOCK_SMS, SINGLE_BLOCKS_AN_SM, SINGLE_BLOCK_COLUMN = 0.9, 2, 1024
# If not all of them are resident at once, an SM has at least so many: one loads while others compute (an
# H200: 200 x 65536 bfloat16 takes 12.8 us with 16 threads down the columns, 13.8 with 25).
BLOCKS_IN_TURNS_AN_SM = 4
# More blocks share the work if SMs would be idle for more than this fraction of the time.
IDLE_SHARE = 0.12
# The length up to which each thread sums whole columns, with all loads in flight at once, if there are this
# many threads per SM (an H200: [1024, 3, 4096] over 1 takes 0.54 times as long as with two threads a column).
SHORT_COLUMN, SHORT_COLUMN_THREADS = 16, 256
# The size of a contiguous reduced dimension up to which threads go only along it instead of along all reduced
# dimensions, if there are no vectors: this avoids a division by its size for every load. (An H200: 64 x 128 x
# 64 x 64 bfloat16, in vectors, summed over 1 and 3 takes 22.6 us along all, 25.4 so; squares of 2 x 2 24.8,
# not 29.1.)
SHORT_INNER = 64
MAX_SPLIT_UNROLL = 16
# Bytes of a line of the L1 and L2 caches.
LINE_BYTES = 128
# The length of rows of memory from which on so many threads sum whole columns of any length, in the widest
# vectors.
LONG_ROW_BYTES, LONG_ROW_THREADS = 1 << 16, 64
# Threads along rows of less than a line, and down them (an H200: 65536 x 32 x 32 bfloat16 at 0.95 of a copy's
# speed, 0.89 with narrower vectors).
SHORT_ROW_THREADS, SHORT_ROWS = 16, 8
# The most threads along a row that are not whole warps: of two tiles of a row of 33 elements one would have a
# single element (an H200: 2000003 x 33 bfloat16 in 0.62 of the time, 100003 x 333 without vectors in 0.92).
MOST_THREADS_ALONG = 48
# The number of rows that each thread down a short column sums, if these are neighbours in memory.
ROWS_A_LANE = 4


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns to be reduced.

    Attributes:
        count, length: their number, and their number of elements.
        side_by_side: the number of columns whose elements are adjacent in memory, in a row of the reduced
            dimension.
        width: the elements of the widest vector.
        element_bytes: the bytes of all loads of one element.
        stores: whether every element is stored as well.
        states: the most states of any reduction.
        innermost: the number of columns along only the innermost dimension.
    """

    count: int
    length: int
    side_by_side: int
    width: int
    element_bytes: int
    stores: bool
    states: int = 1
    innermost: int = 0


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

    def vectors_a_thread(self, is_long: bool) -> int:
        """Of each load, those of a thread."""
        shares = is_long and not self.stores
        return max(1, VECTORS_A_THREAD // max(1, self.loads)) if shares else VECTORS_A_THREAD

    def shares_vectors(self, vectors: int, width: int) -> bool:
        """Whether rows of so many vectors have none of their own, but for those that neighbours read, too."""
        few = SHARED_VECTORS <= vectors <= 2 * WARP_SIZE
        return not self.loads and not self.stores and self.states == 1 and width > 1 and few

    def to_whole(self, width: int) -> int:
        """Vectors of so many elements that have the bytes of the widest."""
        bytes_ = width * self.element_bytes // max(1, self.loads)
        return max(1, MAX_VECTOR_BYTES // bytes_) if width > 1 and bytes_ else 1


def inner_params(
    rows: int, length: int, width: int, hardware: HardwareInfo, accesses: RowAccesses = RowAccesses()
) -> ReductionParams:
    """How `rows` that are contiguous are reduced, in vectors of `width` of each load."""
    vectors = max(1, ceil_div(length, width))
    states = accesses.states
    threads, unroll = _threads_of_row(rows, vectors, width, accesses, hardware)
    row_threads = max(1, WARP_SIZE // threads)
    # Twice the rows a block, while that leaves a block for each SM.
    while row_threads * threads < SHORT_ROWS_BLOCK and rows >= 2 * row_threads * hardware.sm_count:
        row_threads *= 2
    side_by_side = threads <= WARP_SIZE and states == 1 and (unroll == 1 or width == 1)
    most = max(FEWEST_ROWS, min(MOST_ROWS, ELEMENTS_OF_ROWS // width)) if width > 1 else FEWEST_ROWS
    if accesses.shares_vectors(vectors, width):
        most = ROWS_OF_VECTORS
    in_flight = 1
    while side_by_side and in_flight < most and rows >= 4 * in_flight * row_threads * hardware.sm_count:
        in_flight *= 2
    blocks = max(1, ceil_div(rows, row_threads * in_flight))
    grid = 1
    if blocks < hardware.sm_count and threads == MAX_THREADS_A_ROW:
        # Rows too few to fill the GPU: several blocks share one.
        resident = hardware.sm_count * hardware.max_threads_per_sm // threads
        if states >= MANY_STATES:
            resident = min(resident, BLOCKS_OF_STATES_AN_SM * hardware.sm_count)
        least = threads * (MIN_SCATTERED_LOADS if accesses.scattered else max(MIN_LOADS_PER_THREAD, unroll))
        grid = min(max(1, resident // blocks), max(1, vectors // least))
        unroll = min(unroll, max(1, ceil_div(vectors, threads * grid)))
    a_block = row_threads * in_flight
    return ReductionParams(
        fastest_dim=True,
        unroll_factor_inner_reduction=width,
        vectorize_inner_reduction=width > 1,
        unroll_factor_top_of_vectorization=unroll,
        unroll_factor_iter_dom=in_flight,
        pad_inner_reduction_to_warp=True,
        lparams=LaunchParams(bdimx=threads, bdimy=row_threads, gdimy=grid),
        reason=f"{rows} rows of {length}, contiguous: {threads} threads a row with {unroll} vectors of "
        f"{width} in flight, {in_flight} rows a thread, {a_block} rows a block, {grid} blocks a row",
    )


def _threads_of_row(
    rows: int, vectors: int, width: int, accesses: RowAccesses, hardware: HardwareInfo
) -> tuple[int, int]:
    """Threads that reduce a row, and vectors that each has in flight."""
    states, inputs = accesses.states, accesses.loads
    least, loads = WARP_SIZE if rows == 1 else 1, LOADS_IN_FLIGHT
    most = WIDEST_BLOCK if rows >= ROWS_OF_WIDEST_BLOCKS * hardware.sm_count else MAX_THREADS_A_ROW
    if states > 1:
        loads = STATES_IN_FLIGHT
        if vectors <= WARP_SIZE * STATES_A_THREAD_AT_ONCE:
            wanted = ceil_div(vectors, STATES_A_THREAD_AT_ONCE)
        else:
            least = WARP_SIZE
            # Rows too few to fill half the GPU have more threads each.
            fill = hardware.sm_count * hardware.max_threads_per_sm // (2 * max(1, rows))
            wanted = min(ceil_div(vectors, STATES_A_THREAD), max(MAX_THREADS_OF_STATES, fill))
    elif width == 1:
        wanted, loads = ceil_div(vectors, ELEMENTS_A_THREAD), ELEMENTS_A_THREAD
    else:
        to_whole = accesses.to_whole(width)
        each = accesses.vectors_a_thread(vectors > VECTORS_A_THREAD * WARP_SIZE * to_whole)
        wanted = vectors if vectors <= FEW_VECTORS else ceil_div(vectors, each)
        if accesses.shares_vectors(vectors, width):
            wanted, loads = ceil_div(vectors, 2), 1
        # A warp reads narrow vectors as fast.
        wanted = min(wanted, max(WARP_SIZE, ceil_div(wanted, to_whole)))
    threads = min(most, max(least, power_of_two_at_least(wanted)))
    if states == 1 and width > 1 and vectors > threads * loads:
        loads = max(1, loads // max(1, inputs))
    unroll = max(1, min(loads, ceil_div(vectors, threads)))
    if states == 1 and width > 1 and threads > WARP_SIZE:
        steps = ceil_div(vectors, threads * unroll)
        if vectors < (1 - IN_VAIN_SHARE) * steps * threads * unroll:
            wanted = power_of_two_at_least(ceil_div(vectors, IN_ONE_STEP))
            threads = min(most, max(least, wanted))
            unroll = min(IN_ONE_STEP, ceil_div(vectors, threads))
    return threads, unroll


def short_split_params(rows: int, vectors: int, width: int, element_bytes: int) -> ReductionParams:
    """How rows of so few vectors, in two stretches of memory each, are reduced: by a thread each."""
    in_flight = power_of_two_at_most(max(1, BYTES_OF_SHORT_ROWS // (vectors * width * element_bytes)))
    return ReductionParams(
        fastest_dim=True,
        unroll_factor_inner_reduction=width,
        vectorize_inner_reduction=width > 1,
        unroll_factor_top_of_vectorization=vectors,
        unroll_factor_iter_dom=in_flight,
        pad_inner_reduction_to_warp=True,
        lparams=LaunchParams(bdimx=1, bdimy=SHORT_ROWS_BLOCK, gdimy=1),
        reason=f"{rows} rows of {vectors} vectors of {width} in two stretches: a thread a row, {in_flight} "
        f"rows a thread, {SHORT_ROWS_BLOCK * in_flight} rows a block",
    )


def split_params(
    rows: int, outer: int, inner: int, width: int, element_bytes: int, hardware: HardwareInfo
) -> ReductionParams:
    """How rows are reduced along a short contiguous dimension and another one, further out in memory.

    The threads of a block lie along `inner` and along rows that follow one another in memory, and each goes
    along `outer`.
    """
    vectors = max(1, ceil_div(inner, width))
    row_threads = max(1, min(rows, OUTER_BLOCK // vectors))
    most = max(1, NARROW_BYTES_IN_FLIGHT // max(1, width * element_bytes))
    unroll = max(1, min(most, MAX_SPLIT_UNROLL, outer))
    in_flight = unroll * width * element_bytes
    heard = _heard_at_once(vectors, 1)
    grid = _blocks_down(ceil_div(rows, row_threads), outer // unroll, in_flight, heard, hardware)
    return ReductionParams(
        fastest_dim=True,
        schedule_3d=True,
        unroll_factor_inner_reduction=width,
        vectorize_inner_reduction=width > 1,
        unroll_factor_top_of_vectorization=unroll,
        lparams=LaunchParams(bdimx=vectors, bdimy=row_threads, gdimy=grid),
        reason=f"{rows} rows of {outer} times {inner}, contiguous: {vectors} threads of {width} elements, "
        f"{row_threads} rows a block, {unroll} vectors in flight, {grid} blocks a row",
    )


def crossed_params(
    rows: int, length: int, along: int, down: int, element_bytes: int, hardware: HardwareInfo
) -> ReductionParams:
    """How `rows` columns of `length` are reduced where some inputs are read in vectors of `along` elements of
    a row, and others in vectors of `down` elements of a column.
    """
    along = min(along, CROSSED_ALONG)
    threads_x = min(CROSSED_THREADS_ALONG, power_of_two_at_least(ceil_div(rows, along)))
    threads_y = max(1, min(CROSSED_BLOCK // threads_x, power_of_two_at_least(length // down)))
    in_flight = along * down * element_bytes
    unroll = max(1, min(CROSSED_BYTES_IN_FLIGHT // in_flight, length // (down * threads_y)))
    steps = length // (down * threads_y * unroll)
    heard = _heard_at_once(threads_y, along)
    grid = _blocks_down(ceil_div(rows, along * threads_x), steps, unroll * in_flight // 2, heard, hardware)
    return ReductionParams(
        fastest_dim=False,
        unroll_factor_inner_reduction=unroll,
        vector_down_columns=down,
        vectorize_iter_dom=True,
        unroll_factor_iter_dom=along,
        lparams=LaunchParams(bdimx=threads_x, bdimy=threads_y, gdimy=grid),
        reason=f"{rows} columns of {length}, of which inputs are contiguous along rows and along columns: "
        f"{threads_x} x {threads_y} threads with {along} x {down} elements, {grid} blocks a column",
    )


def outer_params(columns: Columns, hardware: HardwareInfo) -> ReductionParams:
    """How columns are reduced."""
    chunks = ceil_div(columns.count, columns.width)
    row_bytes = columns.side_by_side * columns.element_bytes
    if columns.length <= SHORT_COLUMN and chunks >= SHORT_COLUMN_THREADS * hardware.sm_count:
        return _short_columns(columns)
    is_long_row = row_bytes >= LONG_ROW_BYTES and columns.width * columns.element_bytes >= MAX_VECTOR_BYTES
    if is_long_row and chunks >= SHORT_COLUMN_THREADS * hardware.sm_count:
        launch = LaunchParams(bdimx=LONG_ROW_THREADS, bdimy=1, gdimy=1)
        return _params(columns, columns.width, launch, SHORT_COLUMN)
    if columns.side_by_side < columns.count and columns.width > 1:
        beside = ceil_div(columns.side_by_side, columns.width)
        if beside == 1:
            return _lanes_down(columns, hardware)
        if row_bytes < BLOCK_ROW_BYTES and columns.length >= ROWS_A_LANE * OUTER_BLOCK // beside:
            in_flight = NARROW_BYTES_IN_FLIGHT
            return _tiles(columns, columns.width, beside, OUTER_BLOCK // beside, in_flight, hardware)
        if row_bytes < LINE_BYTES and columns.length > SHORT_COLUMN:
            return _tiles(
                columns, columns.width, SHORT_ROW_THREADS, SHORT_ROWS, OUTER_BYTES_IN_FLIGHT, hardware
            )
    if columns.width == 1 and not columns.element_bytes and 1 < columns.innermost <= MOST_OF_A_THREAD:
        down = OUTER_BLOCK // WARP_SIZE
        tiles = _tiles(columns, columns.innermost, WARP_SIZE, down, OUTER_BYTES_IN_FLIGHT, hardware)
        return replace(tiles, vectorize_iter_dom=False)
    if columns.width == 1 and columns.count >= MANY_SINGLE_COLUMNS:
        threads_y = OUTER_BLOCK // SINGLE_COLUMNS
        in_flight = OUTER_BYTES_IN_FLIGHT if columns.stores else NARROW_BYTES_IN_FLIGHT
        return _tiles(columns, 1, SINGLE_COLUMNS, threads_y, in_flight, hardware)
    width = min(columns.width, COLUMNS)
    if width == 1 and not columns.stores and _is_for_single_blocks(columns):
        launch = LaunchParams(bdimx=SINGLE_BLOCK_COLUMNS, bdimy=SINGLE_BLOCK_DOWN, gdimy=1)
        return _params(columns, 1, launch, ceil_div(columns.length, SINGLE_BLOCK_DOWN))
    chunks = max(1, ceil_div(columns.count, width))
    threads_x = _threads_along(chunks, width)
    exchanges_much = columns.states >= MANY_STATES and chunks > threads_x
    block = OUTER_BLOCK_OF_FEW_COLUMNS
    if ceil_div(columns.side_by_side, width) > threads_x or exchanges_much:
        block = OUTER_BLOCK // WARP_SIZE * max(threads_x, WARP_SIZE)
    if exchanges_much:
        block *= 2
    # At least two elements of a column for each thread, as long as it has as many.
    threads_y = max(1, min(block // threads_x, power_of_two_at_least(columns.length) // 2))
    rows = USUAL_ROWS_IN_FLIGHT if width > 1 else SINGLE_ROWS_IN_FLIGHT
    in_flight = min(OUTER_BYTES_IN_FLIGHT, rows * width * columns.element_bytes)
    if width > 1 and not columns.stores:
        whole = _whole_columns(columns, width, in_flight, hardware)
        if whole is not None:
            return whole
    few_steps = _few_steps(columns, width, in_flight, hardware) if width > 1 else None
    if few_steps is None and exchanges_much:
        return _tiles(columns, width, threads_x, threads_y, in_flight, hardware, blocks_share=2)
    return few_steps or _tiles(columns, width, threads_x, threads_y, in_flight, hardware)


def with_words_in_flight(params: ReductionParams, hardware: HardwareInfo) -> ReductionParams:
    """Registers for the words of columns that a thread has in flight: left alone, the CUDA compiler spares
    them and waits for a few loads at a time.
    """
    launch = params.lparams
    registers = hardware.registers_a_thread(BLOCKS_OF_WORDS_AN_SM * launch.bdimx * launch.bdimy)
    return replace(params, cparams=CompileParams(maxrregcount=registers))


def _is_for_single_blocks(columns: Columns) -> bool:
    """Whether threads have all of their part of a column in flight at once, in enough blocks."""
    enough = columns.count >= SINGLE_BLOCK_COLUMNS * LEAST_SINGLE_BLOCKS
    return enough and SINGLE_BLOCK_DOWN < columns.length <= SINGLE_BLOCK_COLUMN


def _whole_columns(
    columns: Columns, width: int, in_flight: int, hardware: HardwareInfo
) -> ReductionParams | None:
    """Large blocks that sum whole columns: where threads have all of a column in flight at once, or there is
    a block or two for each SM.
    """
    chunks = max(1, ceil_div(columns.count, width))
    usual, rows = OUTER_BLOCK // WARP_SIZE, max(1, in_flight // max(1, width * columns.element_bytes))
    # A block reads half a line of each row at least.
    narrowest = WARP_SIZE // 4
    for along in (WARP_SIZE, WARP_SIZE // 2, narrowest):
        tiles = ceil_div(chunks, along)
        down, most = ceil_div(columns.length, rows), WIDEST_BLOCK // along
        enough = tiles >= SINGLE_BLOCK_SMS * hardware.sm_count or (along == narrowest and down <= most)
        if not enough or 2 * along * width * columns.element_bytes < LINE_BYTES:
            continue
        if along < WARP_SIZE and columns.length > SINGLE_BLOCK_COLUMN:
            return None
        if down > most:
            an_sm = ceil_div(tiles, hardware.sm_count)
            if an_sm > SINGLE_BLOCKS_AN_SM:
                return None
            down = most // an_sm
        elif down <= usual:
            return None
        elif along == narrowest:
            down = most if 2 * down > most else most // 2
        threads = hardware.max_threads_per_sm
        if tiles > threads // (along * down) * hardware.sm_count:
            down = min(down, threads // (BLOCKS_IN_TURNS_AN_SM * along))
        launch = LaunchParams(bdimx=along, bdimy=down, gdimy=1)
        return _params(columns, width, launch, rows)
    return None


def _few_steps(
    columns: Columns, width: int, in_flight: int, hardware: HardwareInfo
) -> ReductionParams | None:
    """Large blocks that share columns, if each takes few steps: then fewer results are exchanged."""
    chunks, along = max(1, ceil_div(columns.count, width)), WARP_SIZE
    if chunks < (1 - IDLE_SHARE) * ceil_div(chunks, along) * along:
        along //= 2
    tiles, down = ceil_div(chunks, along), OUTER_BLOCK_OF_FEW_STEPS // along
    unroll = _rows_in_flight(columns, width, in_flight, down)
    steps = columns.length // (down * unroll)
    grid = min(round(BLOCKS_OF_FEW_STEPS_AN_SM * hardware.sm_count / tiles), steps)
    grid = min(grid, _most_sharing(columns, hardware))
    if grid <= 1 or steps > FEW_STEPS * grid:
        return None
    return _params(columns, width, LaunchParams(bdimx=along, bdimy=down, gdimy=grid), unroll)


def _threads_along(chunks: int, width: int) -> int:
    """Threads of a block along rows of so many vectors: a warp, or what leaves fewer of the last one idle."""
    threads = min(WARP_SIZE, power_of_two_at_least(chunks))
    tiles = ceil_div(chunks, threads)
    if tiles == 1 or (width > 1 and chunks >= (1 - IDLE_SHARE) * tiles * threads):
        return threads
    return ceil_div(chunks, ceil_div(chunks, MOST_THREADS_ALONG))


def _short_columns(columns: Columns) -> ReductionParams:
    """Each thread sums whole columns, with nothing to exchange, unless memory has rows that are shorter than
    a line, of which threads down the columns then read the rest.
    """
    threads_x, threads_y = OUTER_BLOCK // 2, 1
    if columns.side_by_side < columns.width * OUTER_BLOCK:
        threads_x = WARP_SIZE
    if 0 < columns.side_by_side * columns.element_bytes < LINE_BYTES:
        threads_x, threads_y = WARP_SIZE // 2, max(1, columns.length // ROWS_A_LANE)
    launch = LaunchParams(bdimx=threads_x, bdimy=threads_y, gdimy=1)
    return _params(columns, columns.width, launch, ceil_div(columns.length, threads_y))


def _tiles(
    columns: Columns,
    width: int,
    threads_x: int,
    threads_y: int,
    in_flight: int,
    hardware: HardwareInfo,
    blocks_share: int = 1,
) -> ReductionParams:
    """Blocks of `threads_x` along rows and `threads_y` down columns, with `in_flight` bytes a thread.

    blocks_share: a block has the work of so many.
    """
    unroll = _rows_in_flight(columns, width, in_flight, threads_y)
    blocks = ceil_div(columns.count, width * threads_x)
    heard = _heard_at_once(threads_y, width)
    grid = _blocks_down(
        blocks, columns.length // (threads_y * unroll), blocks_share * in_flight, heard, hardware
    )
    grid = min(grid, _most_sharing(columns, hardware))
    return _params(columns, width, LaunchParams(bdimx=threads_x, bdimy=threads_y, gdimy=grid), unroll)


def _most_sharing(columns: Columns, hardware: HardwareInfo) -> int:
    """The most blocks that share columns, by what they exchange."""
    if columns.states < MANY_STATES:
        return max(1, columns.length)
    return max(1, int(BLOCKS_OF_STATES_DOWN * hardware.sm_count))


def _lanes_down(columns: Columns, hardware: HardwareInfo) -> ReductionParams:
    """One vector holds a row: neighbouring threads go down the columns, as memory does."""
    width, in_flight = columns.width, NARROW_BYTES_IN_FLIGHT
    down = min(OUTER_BLOCK_OF_FEW_COLUMNS, power_of_two_at_most(max(1, columns.length // ROWS_A_LANE)))
    along = max(1, OUTER_BLOCK // down)
    unroll = _rows_in_flight(columns, width, in_flight, down)
    blocks = ceil_div(columns.count, width * along)
    heard = _heard_at_once(down, width)
    grid = _blocks_down(blocks, columns.length // (down * unroll), in_flight, heard, hardware)
    return _params(columns, width, LaunchParams(bdimx=down, bdimy=along, gdimy=grid), unroll, lanes_down=True)


def _rows_in_flight(columns: Columns, width: int, in_flight: int, threads_y: int) -> int:
    """Of a thread, which has `in_flight` bytes at most; as usual where all loads are broadcasts."""
    row_bytes = width * columns.element_bytes
    most = min(MAX_ROWS_IN_FLIGHT, in_flight // row_bytes) if row_bytes else USUAL_ROWS_IN_FLIGHT
    return max(1, min(most, columns.length // threads_y))


def _heard_at_once(down: int, width: int) -> int:
    """Blocks whose results for a column a block of so many threads down its columns, each of `width` of them,
    asks for at once (grid_reduce.cuh: WORDS_AT_ONCE).
    """
    return down * max(1, WORDS_HEARD_AT_ONCE // width)


def _blocks_down(blocks: int, steps: int, in_flight: int, heard: int, hardware: HardwareInfo) -> int:
    """How many blocks share the work of each of `blocks`, whose threads go `steps` times through memory with
    `in_flight` bytes each: as many as fill the GPU's SMs, and evenly. The last one asks for the results of
    `heard` of them at once.
    """
    full = OUTER_BLOCKS_A_SM * hardware.sm_count * OUTER_BYTES_IN_FLIGHT
    wanted = full // max(OUTER_BYTES_IN_FLIGHT, in_flight)
    # grid / heard waits, steps / grid steps
    most = max(1, min(steps // MIN_OUTER_STEPS, isqrt(trunc(WAITS_A_STEP * steps * heard))))
    if blocks >= wanted or most == 1:
        return 1
    grid = wanted // max(1, blocks)
    if grid > MANY_BLOCKS_DOWN:
        grid = max(MANY_BLOCKS_DOWN, trunc(grid * SHARE_OF_MANY))
    grid = min(grid, most)
    while grid < most and _idle_share(blocks * grid, hardware) > IDLE_SHARE and blocks * grid < 2 * wanted:
        grid += 1
    return grid


def _idle_share(blocks: int, hardware: HardwareInfo) -> float:
    """Of the SMs' time, if each block takes as long and all SMs have as many as the last to finish."""
    return 1 - blocks / (ceil_div(blocks, hardware.sm_count) * hardware.sm_count)


def _params(
    columns: Columns, width: int, launch: LaunchParams, unroll: int, lanes_down: bool = False
) -> ReductionParams:
    along, down = (launch.bdimy, launch.bdimx) if lanes_down else (launch.bdimx, launch.bdimy)
    return ReductionParams(
        fastest_dim=False,
        lanes_down_columns=lanes_down,
        unroll_factor_inner_reduction=max(1, unroll),
        vectorize_iter_dom=width > 1,
        unroll_factor_iter_dom=width,
        lparams=launch,
        reason=f"{columns.count} contiguous columns of {columns.length}: {along} threads of {width} columns, "
        f"{down} {'neighbours ' if lanes_down else ''}down the columns with {unroll} rows in flight, "
        f"{launch.gdimy} blocks a column",
    )
