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

# ---- threads that have several rows, element by element ----

# Rows of a thread at most, of reductions of one state and of several, whose exchange between threads costs
# more.
#   H200, us: the potentials of 4096 points 13.6, by a row each 19.3; of 20000 309, by four rows 334; of 2048
#   by two rows 7.0 and 7.7; the distances of 4096 points from the nearest of as many others 16.4 and 20.0.
ROWS = 8  # of one state
ROWS_OF_STATES = 4  # of several
# Share of the threads that the GPU holds at once which there must be for so many rows of each, by states.
LEAST_SHARE = 0.75  # of one state
SHARE_OF_STATES = 0.45  # of several
# Elements of each row that a thread has in flight, and that it goes through at least.
IN_FLIGHT = 4  # elements of each row
ELEMENTS_A_THREAD = 8  # of each row
# Threads of a block at most. Of several states a warp has the rows.
#   H200, us, by a warp and by blocks: the nearest of 1024 points for each of 16384 15.7 and 19.5, of 256 for
#   65536 19.6 and 21.6.
WIDEST_BLOCK = 256

# ---- rows in vectors ----

# Vectors of a row from which on a thread has two of them, of so many rows: neighbours share an operand.
#   H200, distances of 2048x2048 pairs of 32 bf16: 26.8 us, by a vector of two rows each 44.0.
SHARED_VECTORS = 4  # of a row
ROWS_OF_VECTORS = 8  # of a thread

# ---- columns ----

# Columns along the innermost dimension up to which a thread has all of them.
#   H200, forces between 4096 points: 45 us, by a component each 87.
MAX_COLUMNS_OF_A_THREAD = 8


def rows_share_elements(space: ReductionSpace) -> bool:
    """Whether all rows read the same elements along the reduced dimensions, and none has more of its own."""
    reduced = frozenset(space.reduction)
    return not space.full_loads and any(load.concrete and load.concrete <= reduced for load in space.loads)


def sharing_rows(rows: int, length: int, states: int, hardware: HardwareInfo) -> ReductionParams | None:
    """Returns params of threads that have several of `rows` of `length`; None where there are too few."""
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
