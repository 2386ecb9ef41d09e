"""Tiles of columns that are held in shared memory: by one block, or by the blocks of a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from fusewright.core.hardware import KIB, WARP_SIZE, HardwareInfo
from fusewright.schedulers.held_rows import Held
from fusewright.schedulers.sizes import ceil_div

# Threads of a block, what each holds at most, and what all of them do: an SM has room for three such blocks,
# one of which loads while others compute and store.
THREADS, MOST_BATCHES, TILE_BYTES = 256, 16, 64 * KIB
# Fewer are held in registers as fast.
LEAST_BATCHES = 8
# Bytes of a tile's row: as many as one block holds all rows of, or the last of these, in a cluster (an H200:
# softmax down 4096 bfloat16 takes 104 us so, 111 us with twice as many; 123 us in 32 bytes of one block).
SHARED_ROW_BYTES = (256, 128, 64)
# The least that an asynchronous copy moves (PTX ISA, cp.async).
COPIED_BYTES = 4


@dataclass(frozen=True, slots=True)
class Tile:
    """A way to hold tiles of columns.

    Attributes:
        row_bytes: of the narrowest tensor that is read.
        threads_x, threads_y: of a block, along the columns and down them.
        batches: rows of a thread.
        project: only inputs are held.
        blocks: of the cluster that holds a tile.
        shared: in shared memory, not in registers.
    """

    row_bytes: int
    threads_x: int
    threads_y: int
    batches: int
    project: bool
    blocks: int = 1
    shared: bool = False


def tile_in_shared(
    columns: int, length: int, width: int, element_bytes: int, held: Held, hardware: HardwareInfo
) -> Tile | None:
    """How columns of a constant `length` are held, in vectors of `width`; `held` are the bytes of each
    element. None where registers are as fast, or no cluster has room for a tile.
    """
    if width * element_bytes < COPIED_BYTES or not held.in_all:
        return None
    most = min(MOST_BATCHES, TILE_BYTES // (THREADS * width * held.in_all))
    for row_bytes in SHARED_ROW_BYTES:
        threads_x = max(1, row_bytes // (width * element_bytes))
        is_last = row_bytes == SHARED_ROW_BYTES[-1]
        rows = THREADS // threads_x * most
        blocks = ceil_div(length, max(1, rows))
        if not is_last and (blocks > 1 or threads_x // 2 * width >= columns):
            continue
        if not rows or blocks > hardware.max_cluster:
            return None
        # As many threads as the batches need, in whole warps, and as few batches as those leave.
        step = max(1, WARP_SIZE // threads_x)
        batches = ceil_div(length, THREADS // threads_x * blocks)
        threads_y = ceil_div(length, batches * blocks * step) * step
        batches = ceil_div(length, threads_y * blocks)
        if blocks == 1 and batches < LEAST_BATCHES:
            return None
        return Tile(row_bytes, threads_x, threads_y, batches, True, blocks, shared=True)
    return None
