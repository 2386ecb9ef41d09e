"""How many blocks share one reduction, and then combine their partial results by a grid reduction.

Each block writes its partial results to memory. The last one to arrive reads them all and finishes. So more
blocks fill the GPU better, but the last one waits longer.
"""

from __future__ import annotations

from math import trunc

from fusewright.core.hardware import KIB, HardwareInfo
from fusewright.core.recorded import isqrt
from fusewright.schedulers.sizes import ceil_div

# ---- rows ----

# Loads that each thread of a shared row has at least, so that they take longer than the round trip through L2
# that a grid reduction costs.
MIN_LOADS_PER_THREAD = 4
# The same if each load reads a sector of its own: an SM takes a cycle for each of those, so one is enough.
#   H200: a sum of 8192 elements by index 4.5 us by 16 blocks, 10.3 by one.
MIN_SCATTERED_LOADS = 1

# ---- columns ----

# Bytes that a thread of a usual block has in flight. Threads with more of them need fewer blocks.
USUAL_BYTES_IN_FLIGHT = 64
# Blocks per SM, with the usual bytes in flight, that fill the GPU.
BLOCKS_AN_SM = 4
# Steps of a block at least, each with all of its loads in flight, so that they outweigh the round trip.
MIN_STEPS = 2
# Blocks of a column from which on only a share of the blocks is used, since the last one adds up all results.
#   H200, bf16: sums of 100003x1000 columns take 0.98 of the time with three quarters of the blocks.
MANY_BLOCKS_DOWN = 32  # of a column
SHARE_OF_MANY = 0.75  # of the blocks
# How often the last block may wait for partial results, per step that each block takes before.
#   H200, bf16: 60000x192 takes 0.84 of the time with this limit, GELU's gradient with a bias's of 4319x1088
#   0.90.
WAITS_A_STEP = 0.5
# Partial results, as words, that a thread of the last block reads at once (grid_reduce.cuh: WORDS_AT_ONCE).
WORDS_READ_AT_ONCE = 8
# Share of the SMs' time that may be idle because the last wave of blocks does not fill the GPU. Beyond it
# more blocks share the work.
MAX_IDLE_SHARE = 0.12

# ---- several states ----

# States of a reduction from which on blocks exchange so much that fewer, larger ones are faster.
#   H200, bf16: variances (three states) of 4096 columns of 16384 take 44.4 us with half as many blocks of
#   twice the threads, 52.9 without.
MANY_STATES = 3
# Blocks per SM, at most, that share rows of so many states.
#   H200, bf16: the variance of 16777216 elements 18.2 us by two blocks an SM, 20.1 by four.
MAX_BLOCKS_OF_STATES_AN_SM = 2
# Blocks that share a column of so many states at most, per SM of the GPU.
#   H200, bf16: 65536x64 16.3 us by 64 blocks, 21.4 by 256; 200704x256 41.1 by 66 blocks, 44.2 by 132.
MAX_BLOCKS_OF_STATES_DOWN = 0.5
# Bytes that each of more blocks must have to read, where fewer leave SMs without a block.
#   H200: batch norm in training of 303240x128 float, 1.2 MB a block, 168 us by 132 blocks, 185 by 66.
LEAST_OF_A_BLOCK_OF_STATES = 256 * KIB


def blocks_of_row(
    blocks: int,
    vectors: int,
    threads: int,
    unroll: int,
    states: int,
    scattered: bool,
    hardware: HardwareInfo,
) -> int:
    """Returns the number of blocks that share each row.

    Args:
        blocks: the number of blocks if each row had one.
        vectors: vectors of a row.
        threads, unroll: threads of a block, and the vectors that each has in flight.
        states: states of the reduction.
        scattered: whether each load reads a sector of its own.
    """
    resident = hardware.sm_count * hardware.max_threads_per_sm // threads
    if states >= MANY_STATES:
        resident = min(resident, MAX_BLOCKS_OF_STATES_AN_SM * hardware.sm_count)
    least_loads = MIN_SCATTERED_LOADS if scattered else max(MIN_LOADS_PER_THREAD, unroll)
    return min(max(1, resident // blocks), max(1, vectors // (threads * least_loads)))


def blocks_of_column(
    blocks: int, steps: int, bytes_in_flight: int, read_at_once: int, hardware: HardwareInfo
) -> int:
    """Returns the number of blocks that share each column: as many as fill the GPU's SMs, and evenly.

    Args:
        blocks: the number of blocks if each column had one.
        steps: the steps of such a block down its columns.
        bytes_in_flight: bytes that each thread has in flight in a step.
        read_at_once: the number of blocks whose results the last one reads at once
            (`partials_read_at_once`).
    """
    full = BLOCKS_AN_SM * hardware.sm_count * USUAL_BYTES_IN_FLIGHT
    wanted = full // max(USUAL_BYTES_IN_FLIGHT, bytes_in_flight)
    # With `grid` blocks the last one waits grid / read_at_once times, and each takes steps / grid steps.
    most_by_waits = isqrt(trunc(WAITS_A_STEP * steps * read_at_once))
    most = max(1, min(steps // MIN_STEPS, most_by_waits))
    if blocks >= wanted or most == 1:
        return 1
    grid = wanted // max(1, blocks)
    if grid > MANY_BLOCKS_DOWN:
        grid = max(MANY_BLOCKS_DOWN, trunc(grid * SHARE_OF_MANY))
    grid = min(grid, most)
    while grid < most and blocks * grid < 2 * wanted and _leaves_sms_idle(blocks * grid, hardware):
        grid += 1
    return grid


def partials_read_at_once(threads_down: int, width: int) -> int:
    """Returns the number of blocks whose partial results for a column the last block reads at once, if it has
    `threads_down` threads down its columns, each with `width` of these.
    """
    return threads_down * max(1, WORDS_READ_AT_ONCE // width)


def most_blocks_of_column(
    length: int, states: int, tiles: int, tile_bytes: int, hardware: HardwareInfo
) -> int:
    """Returns the most blocks that may share columns of `length`, by what they exchange.

    Args:
        tiles: the number of blocks if each column had one.
        tile_bytes: bytes that such a block would read.
    """
    if states < MANY_STATES:
        return max(1, length)
    most = max(1, int(MAX_BLOCKS_OF_STATES_DOWN * hardware.sm_count))
    if tiles * most >= hardware.sm_count:
        return most
    return max(most, min(hardware.sm_count // max(1, tiles), tile_bytes // LEAST_OF_A_BLOCK_OF_STATES))


def _leaves_sms_idle(blocks: int, hardware: HardwareInfo) -> bool:
    """Whether too much of the SMs' time is idle during the last wave, if all blocks take equally long."""
    busy = blocks / (ceil_div(blocks, hardware.sm_count) * hardware.sm_count)
    return 1 - busy > MAX_IDLE_SHARE
