"""Blocks of the pointwise scheduler: the order of its rows in the grid, and the number of accesses per
thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from fusewright.core.hardware import MAX_GRID, HardwareInfo
from fusewright.schedulers.cost import starting_seconds
from fusewright.schedulers.sizes import ceil_div

# Threads of a block in general: enough to hide latency with few blocks' tails, and a multiple of the warp
# that divides an SM's 2048.
THREADS = 128
# Vectors that a thread has in flight at most, where elements are so small that their bytes allow more: code
# and registers grow.
MAX_ACCESSES_IN_FLIGHT = 4
# The same of single elements, whose addresses take most of a thread's instructions.
#   H200, 513x1023x129 bf16, the first two dimensions exchanged: 82.0 us with eight, 91.5 with four.
MAX_SINGLES_IN_FLIGHT = 8


def fit_rows(sizes: Sequence[int], break_point: int, rows: int, columns: int) -> tuple[bool, bool]:
    """Returns the params split_grid_y_dim and flip_grid_binding of blocks of so many rows and columns.

    Blocks of rows beyond the limit of grid_y take grid_x, or, where there are as many blocks of columns, go
    to grid_z.
    """
    row_blocks = ceil_div(prod(sizes[:break_point]), rows)
    column_blocks = ceil_div(prod(sizes[break_point:]), columns)
    if row_blocks <= MAX_GRID[1]:
        return False, False
    return (False, True) if column_blocks <= MAX_GRID[1] else (True, False)


def unrolled(
    loaded: int, in_flight: int, width: int, total: int, hardware: HardwareInfo, least_wave: float = 1.0
) -> int:
    """Returns the accesses that a thread has in flight along the unrolled axis: a power of two.

    Args:
        loaded: bytes of one access to each input, of two to those whose vectors start at any element.
        in_flight: bytes of all accesses at most.
        width: elements of an access.
        total: elements of all threads.
        least_wave: the share of a full wave that the blocks are at least.
    """
    unroll, most = 1, MAX_ACCESSES_IN_FLIGHT if width > 1 else MAX_SINGLES_IN_FLIGHT
    while unroll < most and 2 * unroll * max(loaded, 1) <= in_flight:
        unroll *= 2
    wave = hardware.sm_count * hardware.max_threads_per_sm * width
    while unroll > 1 and total < least_wave * wave * unroll:
        unroll //= 2
    return unroll


def with_fewer_blocks(unroll: int, blocks: float, wave: float, memory: float) -> int:
    """Returns the accesses that a thread has in flight, at least `unroll`, for all blocks to start while
    memory is busy.

    Args:
        blocks: the number of blocks with one access a thread.
        wave: the blocks that the GPU holds at once, of which there is one wave at least.
        memory: seconds of the traffic.
    """
    while unroll < MAX_ACCESSES_IN_FLIGHT and starting_seconds(blocks / unroll) > memory:
        if blocks / unroll < 2 * wave:
            break
        unroll *= 2
    return unroll
