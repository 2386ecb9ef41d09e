"""Params for sums over pairs: reductions in which no input has an element for each point.

All loads hit the caches, so the instructions of the threads take the time. A thread with several rows loads
the elements that all its rows read once. A thread with all of a short innermost dimension computes values
that do not vary along it once, such as the distance that the three components of a force share.
"""

from __future__ import annotations

from fusewright.core.hardware import WARP_SIZE, HardwareInfo
from fusewright.schedulers.params import LaunchParams, ReductionParams
from fusewright.schedulers.reduction.space import ReductionSpace
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_most

# Rows of a thread at most, and elements of each in flight, while threads are enough for this share
# of what the GPU holds at once; elements of a row that it goes through, in blocks of up to so many threads.
# (An H200: the potentials of 4096 points take 13.6 us so, by a row each 19.3; of 20000 309 us, by four rows
# 334; of 2048 7.0 by two rows, 7.7; the distances of 4096 points from the nearest of as many others 16.4 and
# 20.0.)
ROWS, IN_FLIGHT, LEAST_SHARE = 8, 4, 0.75
ELEMENTS_A_THREAD, WIDEST_BLOCK = 8, 256
# The same of several states, whose exchange between threads costs more: a warp has the rows (the nearest of
# 1024 points for each of 16384 are found in 15.7 us, not 19.5; of 256 for 65536 in 19.6, not 21.6).
ROWS_OF_STATES, SHARE_OF_STATES = 4, 0.45
# Vectors of a row from which on a thread has two of them, and of how many rows: neighbours share an operand
# (an H200: distances of 2048 x 2048 pairs of 32 bfloat16 take 26.8 us, by a vector of two rows each 44.0).
SHARED_VECTORS, ROWS_OF_VECTORS = 4, 8
# Columns along the innermost dimension up to which a thread has all of them (an H200: forces between 4096
# points take 45 us, by a component each 87).
MOST_OF_A_THREAD = 8


def rows_share_elements(space: ReductionSpace) -> bool:
    """Whether all rows read the same elements along the reduced dimensions, and none has more of its own."""
    reduced = frozenset(space.reduction)
    return not space.full_loads and any(load.concrete and load.concrete <= reduced for load in space.loads)


def sharing_rows(rows: int, length: int, states: int, hardware: HardwareInfo) -> ReductionParams | None:
    """Params of threads that have several of `rows` of `length`; None where there are too few."""
    most, share, widest = (
        (ROWS, LEAST_SHARE, WIDEST_BLOCK) if states == 1 else (ROWS_OF_STATES, SHARE_OF_STATES, WARP_SIZE)
    )
    threads = min(widest, power_of_two_at_most(max(1, length // ELEMENTS_A_THREAD)))
    wanted = share * hardware.sm_count * hardware.max_threads_per_sm
    in_flight = most
    while in_flight > 1 and rows * threads < in_flight * wanted:
        in_flight //= 2
    if in_flight == 1 or threads < WARP_SIZE:
        return None
    unroll = min(IN_FLIGHT, ceil_div(length, threads))
    return ReductionParams(
        fastest_dim=True,
        unroll_factor_top_of_vectorization=unroll,
        unroll_factor_iter_dom=in_flight,
        pad_inner_reduction_to_warp=True,
        lparams=LaunchParams(bdimx=threads, bdimy=1, gdimy=1),
        reason=f"{rows} rows of {length}, which share elements: {threads} threads for {in_flight} rows, "
        f"{unroll} elements of each in flight",
    )
