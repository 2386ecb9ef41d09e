"""The memory that threads and blocks need for collective reductions (block_reduce, cluster_reduce,
grid_reduce).
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.core.dtype import DataType
from fusewright.core.enums import ParallelType
from fusewright.core.hardware import WARP_SIZE
from fusewright.kernel.ir import THREAD_AXES
from fusewright.sym import ONE, Expr, as_int, maximum, product

# What blocks of a cluster send each other are whole words.
WORD_BYTES = 4
# The rounds of a collective of the grid that have places of their own: of an all-reduce, whose blocks are one
# round apart at most, and of a scan, whose blocks hear of two rounds and are two apart.
TURNS_OF_REDUCTION, TURNS_OF_SCAN = 2, 4
# The number of threads down a column up to which each adds up the values of all of them by itself.
SERIAL_ROWS = 8


def threads_a_value(block: Sequence[Expr], axes: Sequence[ParallelType]) -> int:
    """The number of threads of a block (x, y, z) that share a slot in the workspace of a reduction along
    `axes`.

    It is one, unless groups are whole warps, or every x-th lane of whole warps along only y or only z:
    shuffles then combine a warp's values first.
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


def exchange_room(block: Sequence[Expr], axes: Sequence[ParallelType], values: int, dtype: DataType) -> Expr:
    """The number of elements of a buffer in which blocks (x, y, z) of a cluster receive the results of others
    along `axes`.

    It is twice, as reductions take turns, `values` for each group of threads, or for each warp if groups are
    whole warps; each in its own word.
    """
    groups = product(extent for axis, extent in zip(THREAD_AXES, block) if axis not in axes)
    senders = maximum(maximum(groups, ONE), product(block) // WARP_SIZE)
    return senders * (2 * values * max(1, WORD_BYTES // dtype.size))


def grid_exchange_room(blocks: Expr, values: Expr, dtypes: Sequence[DataType], turns: int) -> Expr:
    """The number of elements, of 64 bits, of a buffer in which `blocks` of a grid receive the results of
    others.

    Each block has two for itself: the current round of its reductions, and the number of blocks of a group
    that have started. Each of the others holds a word of a state and the number of its round: the states of
    `values` of each block, for as many rounds as take `turns`. A state is a padded struct of `dtypes`.
    """
    words = len(dtypes) * -(-max(dtype.size for dtype in dtypes) // WORD_BYTES)
    return blocks * (values * (turns * words) + 2)
