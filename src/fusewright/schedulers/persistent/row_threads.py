"""The number of threads that hold a row, and the number of vectors per thread."""

from __future__ import annotations

from dataclasses import replace

from fusewright.core.hardware import WARP_SIZE, HardwareInfo
from fusewright.schedulers.params import ReductionParams
from fusewright.schedulers.sizes import ceil_div, whole_warps

# Threads of the widest block: more leave fewer than 64 registers each.
WIDEST_BLOCK = 1024
# Vectors that a thread holds of a row: enough loads in flight, few enough registers.
BATCHES = 4
# More of narrow vectors, up to so many bytes and accesses in flight a thread, where that leaves a row
# to one warp, which needs no barrier; and rows for each SM that make up for fewer threads.
BYTES_IN_FLIGHT, MAX_BATCHES_A_WARP, ROWS_AN_SM = 64, 16, 64
# The fewest that a lane holds of a row of a part of a warp; of narrow vectors a quarter of those that may be
# in flight, four floats, say.
FEWEST_OF_A_LANE = 2
# Fewer where the threads of all rows are less than a quarter of those that the GPU holds at once; but rows of
# two vectors a lane, if each SM has so many, stay a warp's. (An H200: softmax of 2048 x 512 bfloat16 in 0.96
# of the time. Two batches that leave no thread idle, not three that do: 512 x 4096 in 0.97, layer norm in
# 0.94; of 1024 x 1024 floats 0.97 and 0.90.)
BUSY_SHARE, ROWS_OF_WARPS = 4, 8
# A thread needs this many registers besides the row: addresses, partial results, work in flight.
REGISTERS_TO_WORK = 32
# Where a thread has its results at hand, and computes none again, fewer will do.
FEWEST_TO_WORK = 16
# Registers that a thread needs besides a row of a constant length that it reads element by element: one
# address serves all of them. (sm_90a: softmax, RMS norm and corrected softmax of 9999 bfloat16 beside a
# vector of floats take 28 to 32 with ten floats held, of 2047 and 4999 24 to 32 with eight.)
REGISTERS_ONE_BY_ONE = 22
# Up to twice as many as BATCHES while that keeps a block at this size: its barriers are cheaper. Of inputs
# that come from the caches twice as many as are in flight (an H200: rows of 4608 products of two broadcast
# inputs take 19.6 us with 18 elements a thread, 23.7 with 8). Where each row has an SM for itself, a block
# may be as large as there are (a layer norm of one row of 4097 bfloat16 takes 5.1 us with a vector a thread,
# 6.0 with three; of 64 x 4096 5.4, with two 5.8).
COMFORTABLE_BLOCK = 256


def threads_and_batches(
    rows: int, vectors: int, most: int, hardware: HardwareInfo, cached: bool = False
) -> tuple[int, int]:
    """The number of threads for each of `rows` of `vectors`, and the number of vectors that each thread
    holds.

    It is a part of a warp, or one warp for as much as it holds with `most` vectors per thread; else whole
    warps. Up to BATCHES vectors per thread are preferred to more than one warp, since a warp needs no
    barrier, and loads in flight keep the memory busy. There are fewer if the rows leave most of the GPU idle.

    Args:
        cached: whether rows share all of their inputs with others, so that these come from the caches: the
            number of rows that an SM has at a time then matters, not the loads in flight.
    """
    if rows >= hardware.sm_count * ROWS_AN_SM:
        if vectors <= WARP_SIZE * BATCHES // 2:
            return part_of_a_warp(vectors, max(FEWEST_OF_A_LANE, most // BATCHES))
        if vectors <= WARP_SIZE * most:
            return WARP_SIZE, ceil_div(vectors, WARP_SIZE)
    batches = min(BATCHES, max(1, ceil_div(vectors, WARP_SIZE)))
    comfortable = 2 * (max(BATCHES, most) if cached else BATCHES)
    while ceil_div(vectors, batches) > (COMFORTABLE_BLOCK if batches < comfortable else WIDEST_BLOCK):
        batches += 1
    batches = _for_few_rows(rows, vectors, batches, hardware)
    return whole_warps(ceil_div(vectors, batches)), batches


def _for_few_rows(rows: int, vectors: int, batches: int, hardware: HardwareInfo) -> int:
    """Fewer batches where the rows leave most of the GPU idle, and fewer still while whole warps hold less
    in vain so; but not than make one warp of two vectors a lane, where the rows are not that few.
    """
    busy = hardware.sm_count * hardware.max_threads_per_sm // BUSY_SHARE
    usual, warps = batches, rows >= ROWS_OF_WARPS * hardware.sm_count
    widest = WIDEST_BLOCK if 2 * rows <= hardware.sm_count else COMFORTABLE_BLOCK
    while batches > 1 and ceil_div(vectors, batches - 1) <= widest:
        if warps and batches == 2 and vectors <= 2 * WARP_SIZE:
            break
        less_in_vain = batches < usual and _places(vectors, batches - 1) < _places(vectors, batches)
        if rows * vectors >= busy * batches and not less_in_vain:
            break
        batches -= 1
    return batches


def _places(vectors: int, batches: int) -> int:
    """Vectors that whole warps hold in so many batches, of which a row leaves some in vain."""
    return whole_warps(ceil_div(vectors, batches)) * batches


def least_idle(vectors: int, threads: int, batches: int) -> tuple[int, int]:
    """The threads and vectors per thread that leave the fewest threads idle, near the given ones.

    A row of a power of two plus a few elements has one vector more than fits: for example in 4 batches of 128
    threads, for which it would take a fifth warp.
    """
    best, least = (threads, batches), threads * batches
    for count in sorted(range(1, 2 * BATCHES + 1), key=lambda count: (abs(count - batches), -count)):
        needed = whole_warps(ceil_div(vectors, count))
        if needed * count < least and needed <= max(threads, COMFORTABLE_BLOCK):
            best, least = (needed, count), needed * count
    return best


def part_of_a_warp(vectors: int, least: int = FEWEST_OF_A_LANE) -> tuple[int, int]:
    """A power of two of lanes, and the vectors of each: `least` at least, so that loads are in flight
    together, and as few loads in vain as there can be.
    """
    lanes = [1 << i for i in range(6)]
    found = [(n, max(1, ceil_div(vectors, n))) for n in lanes]
    most = max(BATCHES, 2 * least)
    fit = [(n, each) for n, each in found if min(vectors, least) <= each <= most]
    return min(fit, key=lambda pair: (pair[0] * pair[1], pair[1]))


def makes_room(threads: int, everything: int, inputs: int, hardware: HardwareInfo) -> bool:
    """Whether an SM has room for a second block of `threads` that hold `inputs` registers, not `everything`.

    On an H200 a softmax of 4096x32768 bfloat16 is 1.25 times as fast so.
    """
    shared_by_two = hardware.registers_per_sm // (2 * threads)
    return FEWEST_TO_WORK + everything > shared_by_two >= REGISTERS_TO_WORK + inputs


def with_room_for_another(params: ReductionParams, words: int, hardware: HardwareInfo) -> ReductionParams:
    """The same with no more registers than let two blocks have room on an SM, which each hold a row of a
    constant length, element by element, in `words` registers of a thread; unchanged where they need more.
    """
    threads = max(1, params.lparams.bdimx) * params.lparams.bdimy
    most = hardware.registers_a_thread(2 * threads)
    if params.vectorize_inner_reduction or 2 * threads > hardware.max_threads_per_sm:
        return params
    if REGISTERS_ONE_BY_ONE + words > most:
        return params
    return replace(params, cparams=replace(params.cparams, maxrregcount=most))
