"""Tiles that are exactly as long as a small side: no thread has places beyond it.

Tiles of powers of two leave a fourth of all threads without an element of three channels. Here a block's
threads are a multiple of the side's elements. So each thread has one place along this side and goes along the
other one, at a constant distance.
"""

from __future__ import annotations

from math import lcm

from fusewright.core.hardware import WARP_SIZE
from fusewright.core.recorded import plain
from fusewright.schedulers.sizes import ceil_div

# Elements of a usual tile's side at most.
MAX_ELEMENTS = 32
# Share of these that the dimension has, at most: the usual tile serves larger ones.
MAX_USED = 0.75
# Threads of a block at most.
MAX_THREADS = 256

# ---- cost of an element, as factors ----

# Accesses of a thread along the other side up to which their addresses take little, and what more of them
# cost, if they are at no constant distance.
#   SASS of sm_90, three channels of bf16, instructions an element: 7.8, at no constant distance 10.2, with
#   guards 16.
FEW_ACCESSES = 2  # of a thread
APART_COST = 0.5  # of the cost of an element
# Cost of guards, where tiles go beyond the other side's dimension.
GUARD_COST = 1.0
# Cost of the start of a block, in elements along the other side.
START_COST = 16


def tile_of_whole_side(
    own: int, usual_own: int, size: int, usual: int, width: int, threads: int
) -> tuple[int, int] | None:
    """Returns the elements along the other side, and the threads; None where a usual tile serves as well.

    Args:
        own, usual_own: elements of a small side's dimension, and of a usual tile along it.
        size, usual: elements of the other side's dimension, and of a usual tile along it.
        width: elements of a vector along the other side.
        threads: of a usual tile.
    """
    if usual_own > MAX_ELEMENTS or not 1 < own <= MAX_USED * usual_own:
        return None
    own, usual_own, usual, width, threads = map(plain, (own, usual_own, usual, width, threads))
    unit = lcm(own, WARP_SIZE)
    count = max(1, (threads * own // usual_own + unit // 2) // unit)
    step = lcm(count * unit // own, width)
    if count * unit > MAX_THREADS or step > usual:
        return None

    def cost(along: int) -> float:
        blocks = ceil_div(size, along)
        covered = blocks * along
        row, block = along // width, count * unit
        is_apart = row % block and block % row and own * row > FEW_ACCESSES * block
        each = 1 + APART_COST * bool(is_apart) + GUARD_COST * (covered != size)
        return covered * each + blocks * START_COST

    return min(range(usual // step * step, usual // 2, -step), key=cost), count * unit
