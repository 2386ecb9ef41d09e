"""The memory that threads and blocks need for collectives (block_reduce, cluster_reduce, grid_reduce)."""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.core.dtype import DataType
from fusewright.core.enums import ParallelType
from fusewright.core.hardware import WARP_SIZE
from fusewright.kernel.ir import THREAD_AXES
from fusewright.sym import ONE, Expr, as_int, maximum, product

# The bytes of a word. Blocks of a cluster send each other whole words.
WORD_BYTES = 4
# The number of rounds of a grid collective that have separate memory. The blocks of an all-reduce are at most
# one round apart. The blocks of a scan exchange two rounds and are at most two apart.
TURNS_OF_REDUCTION, TURNS_OF_SCAN = 2, 4
# For columns of at most this many threads, each thread adds up the values of the whole column itself.
SERIAL_ROWS = 8


def threads_a_value(block: Sequence[Expr], axes: Sequence[ParallelType]) -> int:
    """The number of threads of a block that share a slot in the workspace of a reduction along `axes`.

    If shuffles combine a warp's values first, it is more than one. They do if groups are whole warps, or
    every x-th lane of whole warps along only y or only z.

    Args:
        block: the extents of the block along x, y and z.
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
    """The number of elements of the buffer in which a block of a cluster receives results along `axes`.

    It has `values` for each group of threads, or for each warp if groups are whole warps, each in a separate
    word. It has room for two reductions, which alternate.

    Args:
        block: the extents of the block along x, y and z.
    """
    groups = product(extent for axis, extent in zip(THREAD_AXES, block) if axis not in axes)
    senders = maximum(maximum(groups, ONE), product(block) // WARP_SIZE)
    return senders * (2 * values * max(1, WORD_BYTES // dtype.size))


def grid_exchange_room(blocks: Expr, values: Expr, dtypes: Sequence[DataType], turns: int) -> Expr:
    """The number of 64-bit elements of the buffer in which `blocks` of a grid exchange results.

    Each block has two elements for itself: the current round of its reductions, and the number of blocks of a
    group that have started. All other elements hold a word of a state and the number of its round. There are
    `values` states for each block and for each of `turns` rounds. A state is a padded struct of `dtypes`.
    """
    words = len(dtypes) * -(-max(dtype.size for dtype in dtypes) // WORD_BYTES)
    return blocks * (values * (turns * words) + 2)
