"""How much threads bring to shared memory to reduce together (snippets block_reduce, cluster_reduce)."""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.core.enums import ParallelType
from fusewright.core.hardware import WARP_SIZE
from fusewright.kernel.ir import THREAD_AXES
from fusewright.sym import ONE, Expr, as_int, maximum, product

# Threads down a column that each adds up by itself what all of them bring.
SERIAL_ROWS = 8


def threads_a_value(block: Sequence[Expr], axes: Sequence[ParallelType]) -> int:
    """How many threads of a block (x, y, z) share a place in the workspace of a reduction along `axes`.

    One each, but where groups are whole warps, or along y, or z alone, every x-th lane of whole warps:
    shuffles combine a warp's first.
    """
    x, y, z = map(as_int, block)
    if tuple(axes) == (ParallelType.block_x,) and x is not None and x % WARP_SIZE == 0:
        return WARP_SIZE
    down = None
    if tuple(axes) == (ParallelType.block_y,):
        down = y
    elif tuple(axes) == (ParallelType.block_z,) and y == 1:
        down = z
    if x is None or down is None:
        return 1
    interleaved = 1 < x <= WARP_SIZE and not x & (x - 1) and not x * down % WARP_SIZE and down > SERIAL_ROWS
    return WARP_SIZE // x if interleaved else 1


def senders(block: Sequence[Expr], axes: Sequence[ParallelType]) -> Expr:
    """How many values of a block (x, y, z) the blocks of a cluster get at most of a reduction along `axes`.

    One of each group of threads, or of each warp where groups are whole warps.
    """
    groups = product(extent for axis, extent in zip(THREAD_AXES, block) if axis not in axes)
    return maximum(maximum(groups, ONE), product(block) // WARP_SIZE)
