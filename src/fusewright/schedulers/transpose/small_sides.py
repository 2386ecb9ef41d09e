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

# The most elements of a usual tile's side, the largest share of them that the dimension has, and the most
# threads of a block.
MOST_ELEMENTS, MOST_USED, MOST_THREADS = 32, 0.75, 256
# Accesses of a thread along the other side whose addresses take little; what more cost that are at no
# constant distance, and what guards cost. (SASS of sm_90, three channels of bfloat16: 7.8 instructions an
# element, 10.2 at no constant distance, 16 with guards.)
FEW_ACCESSES, APART_COST, GUARD_COST = 2, 0.5, 1.0
# What the start of a block costs, in elements along the other side.
START_COST = 16


def tile_of_whole_side(
    own: int, usual_own: int, size: int, usual: int, width: int, threads: int
) -> tuple[int, int] | None:
    """Elements along the other side, and threads; None where a usual tile serves as well.

    Args:
        own, usual_own: elements of a small side's dimension, and of a usual tile along it.
        size, usual: elements of the other side's dimension, and of a usual tile along it.
        width: elements of a vector along the other side.
        threads: of a usual tile.
    """
    if usual_own > MOST_ELEMENTS or not 1 < own <= MOST_USED * usual_own:
        return None
    own, usual_own, usual, width, threads = map(plain, (own, usual_own, usual, width, threads))
    unit = lcm(own, WARP_SIZE)
    count = max(1, (threads * own // usual_own + unit // 2) // unit)
    step = lcm(count * unit // own, width)
    if count * unit > MOST_THREADS or step > usual:
        return None

    def cost(along: int) -> float:
        blocks = ceil_div(size, along)
        covered = blocks * along
        row, block = along // width, count * unit
        is_apart = row % block and block % row and own * row > FEW_ACCESSES * block
        each = 1 + APART_COST * bool(is_apart) + GUARD_COST * (covered != size)
        return covered * each + blocks * START_COST

    return min(range(usual // step * step, usual // 2, -step), key=cost), count * unit
