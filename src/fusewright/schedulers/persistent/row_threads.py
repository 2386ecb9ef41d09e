"""The number of threads that hold a row, and the number of vectors per thread."""

from __future__ import annotations

from dataclasses import replace

from fusewright.core.hardware import REGISTER_BYTES, REGISTER_STEP, WARP_SIZE, HardwareInfo
from fusewright.schedulers.params import ReductionParams
from fusewright.schedulers.persistent.held_rows import Held
from fusewright.schedulers.reduction.step_loads import REGISTERS_TO_WORK
from fusewright.schedulers.sizes import ceil_div, whole_warps

# ---- vectors of a row that a thread holds (batches) ----

# In general: enough loads in flight, few enough registers. Up to twice as many where that keeps a block
# comfortable.
BATCHES = 4
# Bytes of narrow vectors that a thread has in flight, and vectors that it holds at most then, where that
# leaves a row to one warp, which needs no barrier.
BYTES_IN_FLIGHT = 64  # of a thread
MAX_BATCHES_A_WARP = 16  # vectors of a thread
# Bytes of narrow vectors that a thread has in flight where several warps have a row.
#   H200, us of softmax and layer norm by 4 vectors a thread, or as many as 256 threads leave, and by this:
#   half by element 32768x637 35.1 and 39.1, 29.4 and 33.4; 32768x901 52.5 and 62.8, 38.0 and 44.4; 16384x1501
#   33.9 and 74.7, 33.4 and 43.8; 8192x4097 54.9 and 118.8, 45.2 and 71.5; pairs of bf16 32768x1282 53.1 and
#   60.4, 46.0 and 48.8; 16384x2050 39.7 and 44.1, 38.3 and 41.7; float by element 32768x637 49.6 and 49.5,
#   46.1 and 48.2; 16384x1025 39.1 and 41.1, 37.9 and 39.5. Twice as many gain nothing on average.
BYTES_OF_SEVERAL_WARPS = 32  # of a thread
# Rows for each SM that make up for a warp's having few threads.
ROWS_AN_SM = 64
# Vectors of a lane at least, where a part of a warp has a row. Of narrow vectors it has a quarter of those
# that may be in flight, four floats, say. A lane that has a row alone has no more than two of 16 bytes, which
# are a sector.
#   H200, softmax of three vectors by one lane, by two and by four, us: 4000003x12 float 128, 93.7 and 101,
#   4000003x24 bf16 114, 97.5 and 102.
MIN_BATCHES_OF_A_LANE = 2

# Vectors that a thread holds where results are used with other inputs, whose vectors are in flight as well;
# and the longest rows for which that is so.
#   H200, RMS norm of bf16 gated by another input, with four vectors a thread and with two, us: 5000x2048 25.3
#   and 22.9, 16384x2048 54.0 and 52.3, 1304x4096 17.3 and 15.0, 5000x4096 41.3 and 36.2, 16384x4096 98.4 and
#   100.4, 5000x8192 67.4 and 72.4. Added to another one: 20.4 and 20.2, 51.7 and 51.1, 13.7 and 13.5, 35.1
#   and 34.9, 96.9 and 100.2, 61.7 and 61.7.
BATCHES_BESIDE_OTHERS = 2
VECTORS_BESIDE_OTHERS = 256  # of a row, of any number of rows
VECTORS_OF_FEWER_ROWS = 512  # of a row, of fewer than ROWS_AN_SM rows for each SM

# Registers of a thread besides the floats that it holds, and how many of these are many.
#   H200, 16384x4096 floats, us, with room for them and without: layer norm 129.0 and 130.9, with a scale and
#   a shift for each batch 131.6 and 145.7; softmax, RMS norm, gradients of these the same.
REGISTERS_BESIDE_FLOATS = 44
MANY_FLOATS = 16

# ---- threads of a block ----

# Threads of the widest block: more leave fewer than 64 registers each.
WIDEST_BLOCK = 1024
# Threads of a block whose barriers are cheap.
#   Of inputs that come from the caches a thread holds twice as many vectors as are in flight to stay below
#   it. H200: rows of 4608 products of two broadcast inputs 19.6 us with 18 elements a thread, 23.7 with 8.
#   Where each row has an SM for itself, a block may be as large as there are. H200, layer norm of bf16: one
#   row of 4097 5.1 us with a vector a thread, 6.0 with three; 64x4096 5.4, with two 5.8.
COMFORTABLE_BLOCK = 256
# Divisor of the threads that the GPU holds at once. If all rows together have fewer threads than that gives,
# each thread holds less.
BUSY_SHARE = 4
# Rows for each SM from which on rows of two vectors a lane stay a warp's all the same.
#   H200: softmax of 2048x512 bf16 takes 0.96 of the time. Two batches that leave no thread idle, not three
#   that do: 512x4096 0.97, layer norm 0.94; of 1024x1024 float 0.97 and 0.90.
ROWS_OF_WARPS = 8

# ---- registers of a thread besides its row ----

# For a thread that has its results at hand, and computes none again; others need REGISTERS_TO_WORK.
MIN_REGISTERS_TO_WORK = 16
# For a thread that reads a row of a constant length element by element: one address serves all elements.
#   sm_90a, softmax, RMS norm and corrected softmax of bf16 beside a vector of floats take in all: rows of
#   9999 with ten floats held 28 to 32, of 2047 and 4999 with eight 24 to 32.
REGISTERS_ONE_BY_ONE = 22


def threads_and_batches(
    rows: int,
    vectors: int,
    most: int,
    hardware: HardwareInfo,
    cached: bool = False,
    loads_late: bool = False,
    most_of_warps: int = BATCHES,
    most_alone: int | None = None,
) -> tuple[int, int]:
    """Returns the number of threads for each of `rows` of `vectors`, and the number of vectors that each
    thread holds.

    The threads are a part of a warp, or one warp for as much as it holds with `most` vectors per thread; else
    whole warps. Up to `most_of_warps` vectors per thread are preferred to more than one warp, since a warp
    needs no barrier, and loads in flight keep the memory busy. There are fewer if the rows leave most of the
    GPU idle.

    Args:
        cached: whether rows share all of their inputs with others, so that these come from the caches: the
            number of rows that an SM has at a time then matters, not the loads in flight.
        loads_late: whether results are used with inputs that no reduction follows from.
        most_of_warps: vectors that a thread holds where several warps have a row, unless these would be too
            many threads: BATCHES, or more if vectors are narrow.
        most_alone: vectors of a thread that has a row alone; None: any that it holds.
    """
    are_many = rows >= hardware.sm_count * ROWS_AN_SM
    holds_fewer = loads_late and vectors <= (VECTORS_BESIDE_OTHERS if are_many else VECTORS_OF_FEWER_ROWS)
    if are_many:
        if vectors <= WARP_SIZE * BATCHES // 2:
            return part_of_a_warp(vectors, max(MIN_BATCHES_OF_A_LANE, most // BATCHES), most_alone)
        if vectors <= WARP_SIZE * (BATCHES if holds_fewer else most):
            return WARP_SIZE, ceil_div(vectors, WARP_SIZE)
    batches = min(
        BATCHES_BESIDE_OTHERS if holds_fewer else most_of_warps, max(1, ceil_div(vectors, WARP_SIZE))
    )
    comfortable = 2 * (max(BATCHES, most) if cached else BATCHES)
    while ceil_div(vectors, batches) > (COMFORTABLE_BLOCK if batches < comfortable else WIDEST_BLOCK):
        batches += 1
    batches = _for_few_rows(rows, vectors, batches, hardware)
    threads = whole_warps(ceil_div(vectors, batches))
    # Whole warps may hold the row in fewer vectors a thread. (Of BATCHES, all that was timed had as many.)
    return threads, batches if most_of_warps == BATCHES else ceil_div(vectors, threads)


def _for_few_rows(rows: int, vectors: int, batches: int, hardware: HardwareInfo) -> int:
    """Returns fewer batches if the rows leave most of the GPU idle, and still fewer while whole warps then
    hold less in vain.

    A warp with two vectors a lane keeps them, unless rows are too few for that.
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
    """Returns the vectors that whole warps hold in so many batches; a row may have fewer."""
    return whole_warps(ceil_div(vectors, batches)) * batches


def least_idle(vectors: int, threads: int, batches: int) -> tuple[int, int]:
    """Returns the threads and vectors per thread that leave the fewest threads idle, near the given ones.

    A row of a power of two plus a few elements has one vector more than fits: for example in 4 batches of 128
    threads, for which it would take a fifth warp.
    """
    best, least = (threads, batches), threads * batches
    for count in sorted(range(1, 2 * BATCHES + 1), key=lambda count: (abs(count - batches), -count)):
        needed = whole_warps(ceil_div(vectors, count))
        if needed * count < least and needed <= max(threads, COMFORTABLE_BLOCK):
            best, least = (needed, count), needed * count
    return best


def part_of_a_warp(
    vectors: int, least: int = MIN_BATCHES_OF_A_LANE, most_alone: int | None = None
) -> tuple[int, int]:
    """Returns the lanes that have a row, a power of two, and the vectors of each: at least `least`, so that
    loads are in flight together, and otherwise with the fewest loads in vain.
    """
    lanes = [1 << i for i in range(6)]
    found = [(n, max(1, ceil_div(vectors, n))) for n in lanes]
    most = max(BATCHES, 2 * least)
    alone = most if most_alone is None or least > most_alone else most_alone
    fit = [(n, each) for n, each in found if min(vectors, least) <= each <= (most if n > 1 else alone)]
    return min(fit, key=lambda pair: (pair[0] * pair[1], pair[1]))


def makes_room(threads: int, everything: int, inputs: int, hardware: HardwareInfo) -> bool:
    """Whether an SM has room for a second block of `threads` if each holds `inputs` registers, but not if it
    holds `everything`.

    H200: softmax of 4096x32768 bf16 is 1.25 times as fast with a second block.
    """
    shared_by_two = hardware.registers_per_sm // (2 * threads)
    return MIN_REGISTERS_TO_WORK + everything > shared_by_two >= REGISTERS_TO_WORK + inputs


def with_room_for_another(params: ReductionParams, words: int, hardware: HardwareInfo) -> ReductionParams:
    """Returns the params with a limit on registers that leaves room for two blocks on an SM, if they read a
    row of a constant length element by element.

    words: registers of a thread that hold its part of the row. The params are unchanged if these and others
    exceed the limit.
    """
    threads = max(1, params.lparams.bdimx) * params.lparams.bdimy
    most = hardware.registers_a_thread(2 * threads)
    if params.vectorize_inner_reduction or 2 * threads > hardware.max_threads_per_sm:
        return params
    if REGISTERS_ONE_BY_ONE + words > most:
        return params
    return replace(params, cparams=replace(params.cparams, maxrregcount=most))


def with_room_for_floats(params: ReductionParams, held: Held, hardware: HardwareInfo) -> ReductionParams:
    """Returns the params with a limit on registers that leaves room for the floats that each thread holds of
    a row, if these are many.

    Left alone, the CUDA compiler leaves registers for as many blocks as an SM can have, and spills.
    """
    threads = max(1, params.lparams.bdimx) * params.lparams.bdimy
    words = params.elements_a_thread * params.rows_in_flight * held.at_once // REGISTER_BYTES
    registers = ceil_div(words + REGISTERS_BESIDE_FLOATS, REGISTER_STEP) * REGISTER_STEP
    resident = hardware.registers_per_sm // (threads * registers)
    if words < MANY_FLOATS or not resident:
        return params
    return replace(
        params, cparams=replace(params.cparams, maxrregcount=hardware.registers_a_thread(resident * threads))
    )
