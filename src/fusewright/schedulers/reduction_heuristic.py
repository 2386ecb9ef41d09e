"""How the reduction scheduler cuts up rows and columns: params from sizes."""

from __future__ import annotations

from dataclasses import dataclass

from fusewright.core.hardware import WARP_SIZE, HardwareInfo
from fusewright.schedulers.params import LaunchParams, ReductionParams
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_least, power_of_two_at_most

# Loads that a thread has in flight; with 16-byte vectors, 64 bytes a thread cover the latency of HBM at half
# occupancy.
LOADS_IN_FLIGHT = 4
# More threads for a row than this gain nothing once every SM has work, and make a block's barriers slower.
MAX_THREADS_A_ROW = 512
# Rows of one warp each that share a block: four warps, of which an SM holds enough blocks to be full.
MAX_ROWS_A_BLOCK = 4
# A grid reduction costs one round trip through L2; a block should have at least this many loads to hide it.
MIN_LOADS_PER_THREAD = 4

# Columns a thread sums side by side unless it writes them as well, and bytes of them that it has in flight,
# in as many rows: more columns take registers that more rows use better, but only 16-byte stores reach the
# full bandwidth. Measured on an H200 for 16384 x 4096 bfloat16 with one input (a sum), two (column sums of
# a backward pass), and two with an output.
COLUMNS = 4
OUTER_BYTES_IN_FLIGHT = 64
MAX_ROWS_IN_FLIGHT = 32
# The same where memory has a short row of a few columns only: vectors as wide as can be, and fewer blocks.
NARROW_BYTES_IN_FLIGHT = 128
# Threads of a block that sums columns; twice as many where all columns fit in one block along x, for the work
# lies down the columns then.
OUTER_BLOCK, OUTER_BLOCK_OF_FEW_COLUMNS = 256, 512
# Bytes of a row that a block reads side by side.
BLOCK_ROW_BYTES = 256
# Blocks for each SM that columns are shared out to by a grid reduction, and what makes that worth its round
# trip: at least so many times that all of a block's loads in flight are issued.
OUTER_BLOCKS_A_SM = 4
MIN_OUTER_STEPS = 2
# Columns so short that each thread sums all of theirs, all loads in flight at once, if there are this many
# threads for each SM (an H200: [1024, 3, 4096] over 1 takes 0.54 times as long as with two threads a column).
SHORT_COLUMN, SHORT_COLUMN_THREADS = 16, 256
# Vectors of a contiguous reduced dimension up to which threads go along it alone, not along all that are
# reduced: no division by its size for every load.
SHORT_INNER = 64
# Rows that each of the threads down a short column sums, where these are neighbours in memory.
ROWS_A_LANE = 4


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns to be reduced.

    Attributes:
        count, length: how many there are, of how many elements.
        side_by_side: of how many the elements follow one another in memory, a row of the reduced dimension.
        width: elements of the widest vector.
        element_bytes: of all loads of one element.
        stores: whether every element is stored as well.
    """

    count: int
    length: int
    side_by_side: int
    width: int
    element_bytes: int
    stores: bool


def inner_params(rows: int, length: int, width: int, hardware: HardwareInfo) -> ReductionParams:
    """How `rows` that are contiguous are reduced, in vectors of `width`."""
    vectors = max(1, ceil_div(length, width))
    wanted = power_of_two_at_least(ceil_div(vectors, LOADS_IN_FLIGHT))
    threads = min(MAX_THREADS_A_ROW, max(WARP_SIZE, wanted))
    unroll = max(1, min(LOADS_IN_FLIGHT, vectors // threads))
    row_threads = 1
    if threads == WARP_SIZE:
        # Twice the rows a block, while that leaves a block for each SM.
        while row_threads < MAX_ROWS_A_BLOCK and rows >= 2 * row_threads * hardware.sm_count:
            row_threads *= 2
    blocks = max(1, ceil_div(rows, row_threads))
    grid = 1
    if blocks < hardware.sm_count and threads == MAX_THREADS_A_ROW:
        # Rows too few to fill the GPU: several blocks share one.
        resident = hardware.sm_count * hardware.max_threads_per_sm // threads
        grid = min(max(1, resident // blocks), max(1, vectors // (threads * MIN_LOADS_PER_THREAD)))
    return ReductionParams(
        fastest_dim=True,
        unroll_factor_inner_reduction=width,
        vectorize_inner_reduction=width > 1,
        unroll_factor_top_of_vectorization=unroll,
        pad_inner_reduction_to_warp=True,
        lparams=LaunchParams(bdimx=threads, bdimy=row_threads, gdimy=grid),
        reason=f"{rows} rows of {length}, contiguous: {threads} threads a row with {unroll} vectors "
        f"of {width} in flight, {row_threads} rows a block, {grid} blocks a row",
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
    unroll = max(1, min(most, MAX_ROWS_IN_FLIGHT, outer))
    blocks = max(1, ceil_div(rows, row_threads))
    wanted = OUTER_BLOCKS_A_SM * OUTER_BYTES_IN_FLIGHT // NARROW_BYTES_IN_FLIGHT * hardware.sm_count
    grid = 1
    if blocks < wanted:
        grid = min(max(1, wanted // blocks), max(1, outer // (unroll * MIN_OUTER_STEPS)))
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


def outer_params(columns: Columns, hardware: HardwareInfo) -> ReductionParams:
    """How columns are reduced."""
    chunks = ceil_div(columns.count, columns.width)
    if columns.length <= SHORT_COLUMN and chunks >= SHORT_COLUMN_THREADS * hardware.sm_count:
        return _short_columns(columns, hardware)
    if columns.side_by_side < columns.count:
        beside = ceil_div(columns.side_by_side, columns.width)
        if beside == 1:
            return _lanes_down(columns, hardware)
        is_narrow = columns.side_by_side * columns.element_bytes < BLOCK_ROW_BYTES
        if is_narrow and columns.length >= ROWS_A_LANE * OUTER_BLOCK // beside:
            return _tiles(
                columns, columns.width, beside, OUTER_BLOCK // beside, hardware, NARROW_BYTES_IN_FLIGHT
            )
    width = columns.width if columns.stores else min(columns.width, COLUMNS)
    chunks = max(1, ceil_div(columns.count, width))
    row_bytes = max(1, width * columns.element_bytes)
    across = max(WARP_SIZE, power_of_two_at_most(BLOCK_ROW_BYTES // row_bytes))
    threads_x = min(across, power_of_two_at_least(chunks))
    block = OUTER_BLOCK if chunks > WARP_SIZE else OUTER_BLOCK_OF_FEW_COLUMNS
    # At least two elements of a column for each thread, as long as it has as many.
    threads_y = max(1, min(block // threads_x, power_of_two_at_least(columns.length) // 2))
    return _tiles(columns, width, threads_x, threads_y, hardware)


def _rows_in_flight(columns: Columns, width: int, in_flight: int) -> int:
    return max(1, min(MAX_ROWS_IN_FLIGHT, in_flight // max(1, width * columns.element_bytes)))


def _short_columns(columns: Columns, hardware: HardwareInfo) -> ReductionParams:
    """Each thread sums whole columns: no threads have results to exchange."""
    wide = columns.side_by_side >= columns.width * OUTER_BLOCK
    threads = OUTER_BLOCK // 2 if wide else WARP_SIZE
    return _params(columns, columns.width, LaunchParams(bdimx=threads, bdimy=1, gdimy=1), columns.length)


def _tiles(
    columns: Columns,
    width: int,
    threads_x: int,
    threads_y: int,
    hardware: HardwareInfo,
    in_flight: int = OUTER_BYTES_IN_FLIGHT,
) -> ReductionParams:
    """Blocks of `threads_x` along rows and `threads_y` down columns. `in_flight`: bytes of a thread."""
    unroll = max(1, min(_rows_in_flight(columns, width, in_flight), columns.length // threads_y))
    wanted = OUTER_BLOCKS_A_SM * OUTER_BYTES_IN_FLIGHT // in_flight * hardware.sm_count
    grid = _blocks_down(columns, width * threads_x, threads_y * unroll, wanted)
    return _params(columns, width, LaunchParams(bdimx=threads_x, bdimy=threads_y, gdimy=grid), unroll)


def _lanes_down(columns: Columns, hardware: HardwareInfo) -> ReductionParams:
    """One vector holds a row: neighbouring threads go down the columns, as memory does."""
    down = min(OUTER_BLOCK, power_of_two_at_most(max(1, columns.length // ROWS_A_LANE)))
    along = OUTER_BLOCK // down
    unroll = max(
        1, min(_rows_in_flight(columns, columns.width, NARROW_BYTES_IN_FLIGHT), columns.length // down)
    )
    wanted = OUTER_BLOCKS_A_SM * OUTER_BYTES_IN_FLIGHT // NARROW_BYTES_IN_FLIGHT * hardware.sm_count
    grid = _blocks_down(columns, columns.width * along, down * unroll, wanted)
    launch = LaunchParams(bdimx=down, bdimy=along, gdimy=grid)
    return _params(columns, columns.width, launch, unroll, lanes_down=True)


def _blocks_down(columns: Columns, tile: int, rows: int, wanted: int) -> int:
    """Blocks that share `tile` columns, each with `rows` in flight: `wanted` in all, with steps enough."""
    blocks = ceil_div(columns.count, tile)
    if blocks >= wanted:
        return 1
    return min(max(1, wanted // max(1, blocks)), max(1, columns.length // (rows * MIN_OUTER_STEPS)))


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
