"""Blocks of the pointwise scheduler: the order of its rows in the grid, and the number of accesses per
thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from fusewright.core.hardware import MAX_GRID, HardwareInfo
from fusewright.schedulers.sizes import ceil_div

# Accesses of one thread, where elements are so small that their bytes allow more: code and registers grow.
MAX_ACCESSES_IN_FLIGHT = 4
# The same of single elements, whose addresses take most of a thread's instructions (an H200: 513 x 1023 x 129
# bfloat16, the first two dimensions exchanged, takes 82.0 us with eight, 91.5 with four).
MAX_SINGLES_IN_FLIGHT = 8
# From the start of one block to that of the next, over the whole GPU (an H200: 102,400 blocks take 65.6 us,
# 51,200 34.6, 129,287 84.1). It counts where it takes longer than memory: casts of 67 million floats, whose
# blocks start in 0.89 of that time, run at a copy's speed.
BLOCK_SECONDS = 0.64e-9


def fit_rows(sizes: Sequence[int], break_point: int, rows: int, columns: int) -> tuple[bool, bool]:
    """(split_grid_y_dim, flip_grid_binding) of blocks of so many rows and columns: rows beyond the limit of
    grid_y take grid_x, or where there are as many blocks of columns, go to grid_z.
    """
    row_blocks = ceil_div(prod(sizes[:break_point]), rows)
    column_blocks = ceil_div(prod(sizes[break_point:]), columns)
    if row_blocks <= MAX_GRID[1]:
        return False, False
    return (False, True) if column_blocks <= MAX_GRID[1] else (True, False)


def unrolled(loaded: int, in_flight: int, width: int, total: int, hardware: HardwareInfo) -> int:
    """Accesses a thread has in flight along the unrolled axis: so many bytes, yet a full wave of blocks.

    `loaded`: bytes of one access to each input, of two to those whose vectors start at any element.
    """
    unroll, most = 1, MAX_ACCESSES_IN_FLIGHT if width > 1 else MAX_SINGLES_IN_FLIGHT
    while unroll < most and 2 * unroll * max(loaded, 1) <= in_flight:
        unroll *= 2
    wave = hardware.sm_count * hardware.max_threads_per_sm * width
    while unroll > 1 and total < wave * unroll:
        unroll //= 2
    return unroll


def with_fewer_blocks(unroll: int, blocks: float, wave: float, memory: float) -> int:
    """Accesses a thread has in flight, so many or more, for all blocks to start while memory is busy.

    `blocks`: with one access a thread. `wave`: those that the GPU holds, of which it has one at least.
    `memory`: the seconds that the traffic takes.
    """
    while unroll < MAX_ACCESSES_IN_FLIGHT and starting_seconds(blocks / unroll) > memory:
        if blocks / unroll < 2 * wave:
            break
        unroll *= 2
    return unroll


def starting_seconds(blocks: float) -> float:
    """What it takes to start so many blocks."""
    return blocks * BLOCK_SECONDS
