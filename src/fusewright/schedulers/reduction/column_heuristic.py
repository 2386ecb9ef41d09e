"""Chooses params of reductions down columns, of which neighbours are contiguous: the columns of a thread, the
threads of a block along rows and down the columns, the rows in flight, and the blocks that share a column.

`outer_params` tries the special cases first: threads that sum whole columns, memory with short rows, columns
that are read element by element. Otherwise blocks have tiles of columns, in vectors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fusewright.core.hardware import MAX_VECTOR_BYTES, REGISTER_BYTES, WARP_SIZE, HardwareInfo
from fusewright.schedulers.cost import copy_seconds, starting_seconds
from fusewright.schedulers.params import CompileParams, LaunchParams, ReductionParams
from fusewright.schedulers.reduction.grid_reduction import (
    MANY_STATES,
    MAX_IDLE_SHARE,
    USUAL_BYTES_IN_FLIGHT,
    blocks_of_column,
    most_blocks_of_column,
    partials_read_at_once,
)
from fusewright.schedulers.reduction.shared_elements import MAX_COLUMNS_OF_A_THREAD
from fusewright.schedulers.reduction.step_loads import REGISTERS_TO_WORK
from fusewright.schedulers.sectors import LINE_BYTES
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_least, power_of_two_at_most

# ---- tiles: the threads of a block along rows and down columns, and what each has in flight ----

# Neighbouring columns that a thread sums at most: more take registers that more rows in flight use better.
#   H200, 16384x4096 bf16, of one input (a sum) and of two (column sums of a backward pass). Where each
#   element is stored as well, with four columns and with eight, us: 4319x1088 14.7 and 19.5, 10036x1664 32.5
#   and 40.3, 100000x256 46.8 and 49.6, 16384x4096 104.3 and 104.6.
MAX_COLUMNS_A_THREAD = 4
# Threads of a block. Twice as many if one block has all neighbouring columns: the work is down the columns
# then.
#   H200, the middle of 8x65536x128 with 512 threads and with 256: float 73.3 and 78.0 us, bf16 41.3 and 41.5.
THREADS = 256  # in general
THREADS_OF_FEW_COLUMNS = 512  # if one block has all neighbouring columns
# Threads along rows at most, where these are not whole warps.
#   Of two tiles of 33 columns one would have a single column. H200, bf16: 2000003x33 takes 0.62 of the time,
#   100003x333 without vectors 0.92.
MAX_THREADS_ALONG = 48
# Rows that a thread has in flight at most: of vectors, of single elements and vectors narrower than a word,
# and where bytes would allow more.
#   H200, sums of 16384 columns of 4097 bytes in vectors of 2: 40 us with eight rows in flight, 29 with 16.
MAX_ROWS_OF_VECTORS = 8  # of vectors
MAX_ROWS_OF_ELEMENTS = 16  # of single elements and narrow vectors
MAX_ROWS_IN_FLIGHT = 32  # where bytes would allow more
# Rows that a thread has in flight where all loads are broadcasts, which have no bytes to count.
ROWS_OF_BROADCASTS = 8
# Bytes that a thread has in flight where memory has a short row of a few columns, in vectors of any width,
# unless each element is stored as well.
#   H200, features of 4x32x2048x64 bf16 that are stored, too, and their sums: 44 us so, 30 with half of them.
BYTES_IN_FLIGHT_OF_FEW_COLUMNS = 128

# ---- threads that sum whole columns ----

# Length of columns up to which a thread sums whole ones, all loads in flight at once, if the GPU has so many
# threads per SM for them.
#   H200: [1024, 3, 4096] over dimension 1 takes 0.54 times as long as with two threads a column.
SHORT_COLUMN = 16  # elements
MIN_THREADS_AN_SM = 256  # threads
# Rows that each thread down a short column sums, if they are neighbours in memory.
NEIGHBOURING_ROWS_A_THREAD = 4
# Bytes of a row of memory from which on threads sum whole columns of any length, in the widest vectors; and
# the threads of such a block.
LONG_ROW_BYTES = 1 << 16  # of a row of memory
LONG_ROW_THREADS = 64  # of a block

# ---- memory with short rows ----

# Bytes of a row of memory below which a block's threads along rows have the whole row.
BLOCK_ROW_BYTES = 256
# Threads along rows of less than a line, and down them.
#   H200: 65536x32x32 bf16 0.95 of a copy's speed, 0.89 with narrower vectors.
SHORT_ROW_THREADS = 16  # along rows
SHORT_ROW_THREADS_DOWN = 8  # down the columns

# ---- columns that are read element by element ----

# Columns from which on a block reads ELEMENT_COLUMNS of them, its threads with more rows in flight.
#   H200, bf16: 20000x4095 takes 0.86 of the time. Not if each element is stored as well: GELU's gradient with
#   a bias's, 5215x1417, 26.7 us with 16 rows in flight, 39.9 with 32 (float 767x4329: 22.7 and 22.5).
MANY_ELEMENT_COLUMNS = 1024  # columns
ELEMENT_COLUMNS = 128  # of a block
BYTES_IN_FLIGHT_OF_ELEMENTS = 128  # of a thread
# Fewer columns are not shared between blocks if a single block takes their length: the columns and the
# threads down each of such a block, and how many blocks there have to be.
#   H200, bf16, and in blocks that share columns, us: 1024x257 6.3 and 7.7, 1024x513 6.6 and 7.7, 512x1023 6.5
#   and 7.7.
SINGLE_BLOCK_COLUMNS = 8  # of a block
SINGLE_BLOCK_DOWN = 64  # threads down the columns
MIN_SINGLE_BLOCKS = 32  # blocks
# Length of columns of bytes up to which a block of a warp's columns sums them alone.
#   H200, 6065 columns of 1027 bytes: 11.8 us so, 33.4 in blocks of 128 columns that share these.
LONGEST_OF_BYTES = 4096  # elements
# Blocks per SM for which registers are left, for columns that are read by narrow vectors.
#   H200, of the time without this limit: columns of 511 bf16 beside two broadcasts 0.19, of 3333 half 0.54,
#   of 256 from two inputs 0.70, of 2000 0.83.
NARROW_BLOCKS_AN_SM = 2

# ---- large blocks that sum whole columns, so that no blocks wait for each other ----

# Threads of such a block at most.
WIDEST_BLOCK = 1024
# Share of the SMs that must have such a block, and the most that each SM has where columns take several
# steps.
#   H200, bf16, of the time of smaller blocks that share columns: 512x768 and 1024x4096 0.77, 1024x16384 0.87,
#   8192x16384 and the middle of 16x4096x1024 0.98, of 7x170x3776 0.90, of 431x560x64 float 0.94.
MIN_BUSY_SMS = 0.9  # of all SMs
MAX_WHOLE_BLOCKS_AN_SM = 2  # blocks
# Length of columns beyond which the threads of such a block along a row are a whole warp.
MAX_LENGTH_OF_NARROW_BLOCK = 1024
# Blocks that an SM has at least if not all are resident at once: one loads while others compute.
#   H200: 200x65536 bf16 12.8 us with 16 threads down the columns, 13.8 with 25.
MIN_RESIDENT_IN_TURNS = 4

# ---- large blocks that share columns in few steps, so that fewer results are exchanged ----

# Threads of such a block, how many blocks an SM has, and how many steps each takes at most.
#   H200, bf16, of the time of smaller blocks: 60000x192 0.84, 16384x1024 0.91, 5000x2048 0.95, GELU's
#   gradient with a bias's of 4319x1088 0.71; 100003x1000, 24 steps, 1.02. Three sums of each of 1024 columns
#   of 32768, 16 steps, 0.70: more results are exchanged then.
FEW_STEPS_THREADS = 512  # of a block
FEW_STEPS_BLOCKS_AN_SM = 2  # blocks
MAX_FEW_STEPS = 12  # of a block


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
        reductions: the number of results of each column.
    """

    count: int
    length: int
    side_by_side: int
    width: int
    element_bytes: int
    stores: bool
    states: int = 1
    innermost: int = 0
    reductions: int = 1

    @property
    def row_bytes(self) -> int:
        """The bytes of a row of the reduced dimension in memory."""
        return self.side_by_side * self.element_bytes

    @property
    def has_short_rows(self) -> bool:
        """Whether not all columns are side by side in memory, and vectors go along those that are."""
        return self.side_by_side < self.count and self.width > 1

    @property
    def are_innermost_of_a_thread(self) -> bool:
        """Whether all loads are broadcasts, and a thread may have all columns of the innermost dimension."""
        return self.width == 1 and not self.element_bytes and 1 < self.innermost <= MAX_COLUMNS_OF_A_THREAD

    @property
    def fit_single_blocks(self) -> bool:
        """Whether threads that read elements have all of their part of a column in flight, in enough blocks
        that share nothing.
        """
        enough = self.count >= SINGLE_BLOCK_COLUMNS * MIN_SINGLE_BLOCKS
        return enough and SINGLE_BLOCK_DOWN < self.length <= MAX_LENGTH_OF_NARROW_BLOCK

    def tiles_along(self, width: int, threads: int) -> int:
        """Returns the number of blocks along all columns, with so many threads along of `width` columns."""
        return ceil_div(self.count, width * threads)

    def most_blocks(self, width: int, threads: int, hardware: HardwareInfo) -> int:
        """Returns the most blocks that may share columns, with so many threads along of `width` columns."""
        tile_bytes = self.length * width * threads * self.element_bytes
        tiles = self.tiles_along(width, threads)
        return most_blocks_of_column(self.length, self.states, tiles, tile_bytes, hardware)


def outer_params(columns: Columns, hardware: HardwareInfo) -> ReductionParams:
    """Returns params that reduce the columns."""
    return (
        _whole_columns_of_threads(columns, hardware)
        or (_of_short_rows(columns, hardware) if columns.has_short_rows else None)
        or (_of_elements(columns, hardware) if columns.width == 1 else None)
        or _of_vectors(columns, hardware)
    )


def anywhere_params(
    columns: Columns, inputs: tuple[int, ...], hardware: HardwareInfo
) -> ReductionParams | None:
    """Returns params that reduce the columns in vectors of `columns.width` that start at any element of these
    inputs; None where there are too few columns for whole warps along rows.

    H200, sums of 24576 misaligned columns of 4096 bf16, us: one by one 75.9, in vectors of 2 76.4, of 4 59.6,
    of 8 59.1 with 4 rows in flight and 64.9 with 8.
    """
    if columns.side_by_side < WARP_SIZE * columns.width:
        return None
    found = _whole_columns_of_threads(columns, hardware) if columns.length <= SHORT_COLUMN else None
    if found is None:
        down = min(THREADS // WARP_SIZE, power_of_two_at_least(columns.length))
        found = _tiles(columns, columns.width, WARP_SIZE, down, USUAL_BYTES_IN_FLIGHT, hardware)
    reason = f"{found.reason}; loaded from any element on"
    return replace(found, unaligned_inputs=inputs, reason=reason)


def with_words_in_flight(
    params: ReductionParams, held: int, blocks: int, hardware: HardwareInfo
) -> ReductionParams:
    """Returns params that allow registers for all words that a thread has in flight, of columns in narrow
    vectors. Left alone, the CUDA compiler spares registers and waits for a few loads at a time.

    Args:
        held: the registers that hold these words.
        blocks: the number of blocks. Where each has an SM for itself, it leaves no registers for another if
            it needs them.
    """
    threads = params.lparams.threads
    registers = hardware.registers_a_thread(NARROW_BLOCKS_AN_SM * threads)
    if held + REGISTERS_TO_WORK > registers and blocks <= hardware.sm_count:
        registers = hardware.registers_a_thread(threads)
    return replace(params, cparams=CompileParams(maxrregcount=registers))


# ---- special cases ----------------------------------------------------------------------------


def _whole_columns_of_threads(columns: Columns, hardware: HardwareInfo) -> ReductionParams | None:
    """Returns params of threads that sum whole columns; None where columns are too few, or are long and in
    rows of memory that are not.
    """
    if ceil_div(columns.count, columns.width) < MIN_THREADS_AN_SM * hardware.sm_count:
        return None
    if columns.length <= SHORT_COLUMN:
        return _short_columns(columns, hardware)
    has_widest_vectors = columns.width * columns.element_bytes >= MAX_VECTOR_BYTES
    if columns.row_bytes >= LONG_ROW_BYTES and has_widest_vectors:
        launch = LaunchParams(bdimx=LONG_ROW_THREADS, bdimy=1, gdimy=1)
        return _params(columns, columns.width, launch, SHORT_COLUMN)
    return None


def _short_columns(columns: Columns, hardware: HardwareInfo) -> ReductionParams:
    """Returns params of threads that sum whole columns, with nothing to exchange; or parts of them where rows
    of memory are shorter than a line, which threads down the columns then share.

    Blocks of narrow rows are a warp, unless so many start more slowly than memory moves.
    H200, 9.6 million columns of 11 bf16 in rows of 96, one by one: 185 us in 300000 blocks, which take about
    as long to start.
    """
    threads_x, threads_y = THREADS // 2, 1
    if columns.side_by_side < columns.width * THREADS:
        threads_x = WARP_SIZE
        vectors = columns.count / columns.width
        memory = copy_seconds(columns.count * columns.length * columns.element_bytes, hardware)
        has_waves = vectors > hardware.sm_count * hardware.max_threads_per_sm
        while has_waves and 2 * threads_x < THREADS and starting_seconds(vectors / threads_x) > memory:
            threads_x *= 2
    if 0 < columns.row_bytes < LINE_BYTES:
        threads_x, threads_y = WARP_SIZE // 2, max(1, columns.length // NEIGHBOURING_ROWS_A_THREAD)
    launch = LaunchParams(bdimx=threads_x, bdimy=threads_y, gdimy=1)
    return _params(columns, columns.width, launch, ceil_div(columns.length, threads_y))


def _of_short_rows(columns: Columns, hardware: HardwareInfo) -> ReductionParams | None:
    """Returns params for columns of short rows of memory; None where the rows or columns are long enough for
    usual tiles.
    """
    vectors_a_row = ceil_div(columns.side_by_side, columns.width)
    # Without a load of every element the bytes of a row say nothing of its length.
    if not 0 < vectors_a_row <= THREADS:
        return None
    if vectors_a_row == 1:
        return _lanes_down(columns, hardware)
    down = THREADS // vectors_a_row
    is_long = columns.length >= NEIGHBOURING_ROWS_A_THREAD * THREADS // vectors_a_row
    if columns.row_bytes < BLOCK_ROW_BYTES and is_long:
        in_flight = USUAL_BYTES_IN_FLIGHT if columns.stores else BYTES_IN_FLIGHT_OF_FEW_COLUMNS
        return _tiles(columns, columns.width, vectors_a_row, down, in_flight, hardware)
    if columns.row_bytes < LINE_BYTES and columns.length > SHORT_COLUMN:
        along, down = SHORT_ROW_THREADS, SHORT_ROW_THREADS_DOWN
        return _tiles(columns, columns.width, along, down, USUAL_BYTES_IN_FLIGHT, hardware)
    return None


def _lanes_down(columns: Columns, hardware: HardwareInfo) -> ReductionParams:
    """Returns params of blocks whose neighbouring threads go down the columns, as memory does where one
    vector holds a row.
    """
    width, in_flight = columns.width, BYTES_IN_FLIGHT_OF_FEW_COLUMNS
    most_down = power_of_two_at_most(max(1, columns.length // NEIGHBOURING_ROWS_A_THREAD))
    down = min(THREADS_OF_FEW_COLUMNS, most_down)
    along = max(1, THREADS // down)
    unroll = _rows_in_flight(columns, width, in_flight, down)
    grid = blocks_of_column(
        blocks=columns.tiles_along(width, along),
        steps=columns.length // (down * unroll),
        bytes_in_flight=in_flight,
        read_at_once=partials_read_at_once(down, width),
        hardware=hardware,
    )
    return _params(columns, width, LaunchParams(bdimx=down, bdimy=along, gdimy=grid), unroll, lanes_down=True)


def _of_elements(columns: Columns, hardware: HardwareInfo) -> ReductionParams | None:
    """Returns params for columns that are read element by element; None where usual tiles serve them."""
    if columns.are_innermost_of_a_thread:
        along, down = WARP_SIZE, THREADS // WARP_SIZE
        tiles = _tiles(columns, columns.innermost, along, down, USUAL_BYTES_IN_FLIGHT, hardware)
        return replace(tiles, vectorize_iter_dom=False)
    if columns.element_bytes == 1 and SINGLE_BLOCK_DOWN < columns.length <= LONGEST_OF_BYTES:
        blocks = ceil_div(columns.count, WARP_SIZE)
        if not columns.stores and blocks >= MIN_BUSY_SMS * hardware.sm_count:
            launch = LaunchParams(bdimx=WARP_SIZE, bdimy=FEW_STEPS_THREADS // WARP_SIZE, gdimy=1)
            return _params(columns, 1, launch, MAX_ROWS_OF_ELEMENTS)
    if columns.count >= MANY_ELEMENT_COLUMNS:
        in_flight = USUAL_BYTES_IN_FLIGHT if columns.stores else BYTES_IN_FLIGHT_OF_ELEMENTS
        return _tiles(columns, 1, ELEMENT_COLUMNS, THREADS // ELEMENT_COLUMNS, in_flight, hardware)
    if not columns.stores and columns.fit_single_blocks:
        launch = LaunchParams(bdimx=SINGLE_BLOCK_COLUMNS, bdimy=SINGLE_BLOCK_DOWN, gdimy=1)
        return _params(columns, 1, launch, ceil_div(columns.length, SINGLE_BLOCK_DOWN))
    return None


# ---- tiles ------------------------------------------------------------------------------------


def _of_vectors(columns: Columns, hardware: HardwareInfo) -> ReductionParams:
    """Returns params of blocks that have tiles of columns, in vectors if there are any."""
    width = min(columns.width, MAX_COLUMNS_A_THREAD)
    is_narrow = width == 1 or width * columns.element_bytes < REGISTER_BYTES
    most_rows = MAX_ROWS_OF_ELEMENTS if is_narrow else MAX_ROWS_OF_VECTORS
    in_flight = min(USUAL_BYTES_IN_FLIGHT, most_rows * width * columns.element_bytes)
    if width > 1:
        whole = None if columns.stores else _whole_columns_of_blocks(columns, width, in_flight, hardware)
        large = whole or _few_steps(columns, width, in_flight, hardware)
        if large is not None:
            return large
    vectors = max(1, ceil_div(columns.count, width))
    threads_x = _threads_along(vectors, width)
    exchanges_much = columns.states >= MANY_STATES and vectors > threads_x
    threads = THREADS_OF_FEW_COLUMNS
    if ceil_div(columns.side_by_side, width) > threads_x or exchanges_much:
        threads = THREADS // WARP_SIZE * max(threads_x, WARP_SIZE)
    if exchanges_much:
        threads *= 2
    # At least two elements of a column for each thread, as long as it has as many.
    threads_y = max(1, min(threads // threads_x, power_of_two_at_least(columns.length) // 2))
    fewer_blocks = 2 if exchanges_much else 1
    return _tiles(columns, width, threads_x, threads_y, in_flight, hardware, fewer_blocks)


def _threads_along(vectors: int, width: int) -> int:
    """Returns the threads of a block along rows of so many vectors: a warp, or a number that leaves fewer of
    the last block's threads idle.
    """
    threads = min(WARP_SIZE, power_of_two_at_least(vectors))
    blocks = ceil_div(vectors, threads)
    if blocks == 1 or (width > 1 and vectors >= (1 - MAX_IDLE_SHARE) * blocks * threads):
        return threads
    return ceil_div(vectors, ceil_div(vectors, MAX_THREADS_ALONG))


def _tiles(
    columns: Columns,
    width: int,
    threads_x: int,
    threads_y: int,
    in_flight: int,
    hardware: HardwareInfo,
    fewer_blocks: int = 1,
) -> ReductionParams:
    """Returns params of blocks that share columns.

    Args:
        width: columns of a thread.
        threads_x, threads_y: threads along rows and down the columns.
        in_flight: bytes that a thread has in flight.
        fewer_blocks: the factor by which fewer blocks than usual are to fill the GPU.
    """
    unroll = _rows_in_flight(columns, width, in_flight, threads_y)
    grid = blocks_of_column(
        blocks=columns.tiles_along(width, threads_x),
        steps=columns.length // (threads_y * unroll),
        bytes_in_flight=fewer_blocks * in_flight,
        read_at_once=partials_read_at_once(threads_y, width),
        hardware=hardware,
    )
    grid = min(grid, columns.most_blocks(width, threads_x, hardware))
    return _params(columns, width, LaunchParams(bdimx=threads_x, bdimy=threads_y, gdimy=grid), unroll)


def _whole_columns_of_blocks(
    columns: Columns, width: int, in_flight: int, hardware: HardwareInfo
) -> ReductionParams | None:
    """Returns params of large blocks that sum whole columns; None where these would be too few or too many.

    Threads have all of a column in flight at once, or there is a block or two for each SM.
    """
    vectors = max(1, ceil_div(columns.count, width))
    usual_down = THREADS // WARP_SIZE
    rows = max(1, in_flight // max(1, width * columns.element_bytes))
    # A block reads half a line of each row at least.
    narrowest = WARP_SIZE // 4
    for along in (WARP_SIZE, WARP_SIZE // 2, narrowest):
        blocks = ceil_div(vectors, along)
        down, most_down = ceil_div(columns.length, rows), WIDEST_BLOCK // along
        is_one_step = down <= most_down
        enough = blocks >= MIN_BUSY_SMS * hardware.sm_count or (along == narrowest and is_one_step)
        if not enough or 2 * along * width * columns.element_bytes < LINE_BYTES:
            continue
        if along < WARP_SIZE and columns.length > MAX_LENGTH_OF_NARROW_BLOCK:
            return None
        if not is_one_step:
            blocks_an_sm = ceil_div(blocks, hardware.sm_count)
            if blocks_an_sm > MAX_WHOLE_BLOCKS_AN_SM:
                return None
            down = most_down // blocks_an_sm
        elif down <= usual_down:
            return None
        elif along == narrowest:
            down = most_down if 2 * down > most_down else most_down // 2
        threads = hardware.max_threads_per_sm
        are_resident = blocks <= threads // (along * down) * hardware.sm_count
        if not are_resident:
            down = min(down, threads // (MIN_RESIDENT_IN_TURNS * along))
        return _params(columns, width, LaunchParams(bdimx=along, bdimy=down, gdimy=1), rows)
    return None


def _few_steps(
    columns: Columns, width: int, in_flight: int, hardware: HardwareInfo
) -> ReductionParams | None:
    """Returns params of large blocks that share columns, if each takes few steps; else None."""
    vectors, along = max(1, ceil_div(columns.count, width)), WARP_SIZE
    if vectors < (1 - MAX_IDLE_SHARE) * ceil_div(vectors, along) * along:
        along //= 2
    blocks, down = ceil_div(vectors, along), FEW_STEPS_THREADS // along
    unroll = _rows_in_flight(columns, width, in_flight, down)
    steps = columns.length // (down * unroll)
    grid = min(round(FEW_STEPS_BLOCKS_AN_SM * hardware.sm_count / blocks), steps)
    grid = min(grid, columns.most_blocks(width, along, hardware))
    if grid <= 1 or steps > MAX_FEW_STEPS * grid * columns.reductions:
        return None
    return _params(columns, width, LaunchParams(bdimx=along, bdimy=down, gdimy=grid), unroll)


def _rows_in_flight(columns: Columns, width: int, in_flight: int, threads_y: int) -> int:
    """Returns the rows that a thread has in flight, of at most `in_flight` bytes."""
    row_bytes = width * columns.element_bytes
    most = min(MAX_ROWS_IN_FLIGHT, in_flight // row_bytes) if row_bytes else ROWS_OF_BROADCASTS
    return max(1, min(most, columns.length // threads_y))


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
        reason=f"{columns.count} columns of {columns.length}: {along} threads of {width} columns, "
        f"{down} {'neighbours ' if lanes_down else ''}down the columns with {unroll} rows in flight, "
        f"{launch.gdimy} blocks a column",
    )
