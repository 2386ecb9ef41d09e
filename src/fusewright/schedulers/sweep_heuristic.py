"""How blocks go over what they reduce and need again: params from sizes, and what of it they read again.

As many blocks as the GPU has SMs share out rows, or tiles of columns, and go over them at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fusewright.core.hardware import WARP_SIZE, HardwareInfo
from fusewright.schedulers.params import CompileParams, LaunchParams, ReductionParams
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_least, power_of_two_at_most

# Threads of a block: two blocks share an SM with rows; one has it with columns, whose threads pass on more.
THREADS_OF_ROWS, THREADS_OF_COLUMNS, THREADS_AN_SM = 512, 1024, 1024
# Of small tensors blocks have fewer threads, this many at least before each has several vectors in flight.
FEW_THREADS = 256
# Bytes that a thread has in flight: the vectors of one step of its loop. (An H200, batch norm of 256 channels
# of 802,816 bfloat16, in turns of 32: 0.70 of a copy's speed with 64 bytes, 0.68 with 32. Columns, with one
# block an SM, have no registers for 64.)
BYTES_OF_ROWS, BYTES_OF_COLUMNS = 64, 32
# Blocks that share a row at least.
LEAST_SHARE = 4
# Bytes of a tile's row, of the narrowest tensor, which memory is read in runs of; wider for many columns.
TILE_ROW_BYTES = (256, 512)
# Shared memory that the alignment of all buffers may take.
SHARED_SLACK = 512
# The share of the L2 cache that holds what a sweep read last when the next begins there.
FOUND_IN_L2 = 0.5
# Of a copy's speed, what is left: all blocks wait for each other after each sweep.
SPEED = 0.88


@dataclass(frozen=True, slots=True)
class Swept:
    """What is gone over.

    Attributes:
        rows, length: rows or columns, and how many elements of each are reduced.
        width: elements of a vector. element_bytes: of all loads of a point, narrowest_bytes: of one.
        state_bytes: what a thread passes on of one row or column.
        sizes: of the reduced dimensions, where the kernel is for these alone; () else.
        sweeps: over all elements, the first included.
    """

    rows: int
    length: int
    width: int
    element_bytes: int
    narrowest_bytes: int
    state_bytes: int
    sizes: tuple[int, ...]
    sweeps: int

    def vectors_of(self, bytes_in_flight: int) -> int:
        return power_of_two_at_most(max(1, bytes_in_flight // (self.width * self.element_bytes)))


@dataclass(frozen=True, slots=True)
class Sweeping:
    """blocks: in all. reads: how often an element is read from memory. turns: in which blocks take rows."""

    params: ReductionParams
    blocks: int
    reads: float
    turns: int = 1


def sweep_rows(what: Swept, hardware: HardwareInfo) -> Sweeping | None:
    """Blocks that share rows; None where one block for a row is enough.

    Rows come in turns of as many as are near once they were read, in shared memory or in the L2 cache. (An
    H200, 256 channels of 802,816 bfloat16: 0.70 of a copy's speed in turns of 32, 0.66 of 64, 0.63 of 16.)
    """
    resident = THREADS_AN_SM // THREADS_OF_ROWS
    places = resident * hardware.sm_count
    near = hardware.sm_count * hardware.shared_memory_per_sm + FOUND_IN_L2 * hardware.l2_bytes
    fitting = max(1, int(near) // max(1, what.length * what.element_bytes))
    turns = ceil_div(what.rows, min(fitting, places // LEAST_SHARE))
    at_once = ceil_div(what.rows, turns)  # in turns of equal length
    share = places // at_once
    vectors = ceil_div(what.length, what.width)
    enough = power_of_two_at_least(ceil_div(vectors, share * FEW_THREADS))
    unroll = min(what.vectors_of(BYTES_OF_ROWS), enough)
    threads = min(THREADS_OF_ROWS, ceil_div(ceil_div(vectors, share * unroll), WARP_SIZE) * WARP_SIZE)
    share = min(share, ceil_div(vectors, threads * unroll))
    if share < 2:
        return None
    steps = ceil_div(vectors, share * threads * unroll)
    params = ReductionParams(
        fastest_dim=True,
        unroll_factor_inner_reduction=what.width,
        vectorize_inner_reduction=what.width > 1,
        unroll_factor_top_of_vectorization=unroll,
        pad_inner_reduction_to_warp=True,
        persistent_blocks=at_once if turns > 1 else 0,
        lparams=LaunchParams(gdimy=share, bdimx=threads),
        reason=f"{what.rows} rows of {what.length}, {at_once} at a time: {share} blocks of {threads} threads "
        "a row",
    )
    blocks, exchanged = at_once * share, threads // WARP_SIZE * what.state_bytes
    turn = replace(what, rows=at_once)
    found = _held(turn, params, threads * unroll, steps, blocks, resident, exchanged, hardware)
    return replace(found, turns=turns)


def sweep_columns(what: Swept, hardware: HardwareInfo) -> Sweeping | None:
    """Blocks that share tiles of columns; None where there are too many columns for that."""
    tiles = (_tile(what, size, hardware) for size in TILE_ROW_BYTES)
    return next((tile for tile in tiles if tile is not None), None)


def _tile(what: Swept, row_bytes: int, hardware: HardwareInfo) -> Sweeping | None:
    unroll = what.vectors_of(BYTES_OF_COLUMNS)
    along = max(1, row_bytes // (what.width * what.narrowest_bytes))
    along = min(along, power_of_two_at_least(ceil_div(what.rows, what.width)))
    down = THREADS_OF_COLUMNS // along
    tiles = ceil_div(what.rows, along * what.width)
    share = hardware.sm_count // max(1, tiles)
    if share < 2 or not what.length:
        return None
    share = min(share, ceil_div(what.length, down * unroll))
    steps = ceil_div(what.length, share * down * unroll)
    params = ReductionParams(
        fastest_dim=False,
        unroll_factor_iter_dom=what.width,
        vectorize_iter_dom=what.width > 1,
        unroll_factor_inner_reduction=unroll,
        lparams=LaunchParams(gdimy=share, bdimx=along, bdimy=down),
        reason=f"{what.rows} contiguous columns of {what.length}: {share} blocks of {along} x {down} threads "
        f"a tile of {along * what.width} columns",
    )
    # Threads of a warp that have the same columns combine by shuffles.
    exchanged = along * down * what.width * what.state_bytes // max(1, WARP_SIZE // along)
    return _held(what, params, along * down * unroll, steps, tiles * share, 1, exchanged, hardware)


def _held(
    what: Swept,
    params: ReductionParams,
    vectors: int,
    steps: int,
    blocks: int,
    resident: int,
    exchanged: int,
    hardware: HardwareInfo,
) -> Sweeping:
    """With what blocks hold, `resident` on an SM, of `steps` of so many vectors, beside `exchanged` bytes."""
    each = vectors * what.width * what.element_bytes
    of_block = hardware.shared_memory_per_sm // resident - hardware.shared_memory_reserved
    room = min(of_block, hardware.shared_memory_per_block_optin) - SHARED_SLACK - exchanged
    held = max(0, min(steps, room // each))
    near = blocks * held * each + FOUND_IN_L2 * hardware.l2_bytes
    total = what.rows * what.length * what.element_bytes
    again = max(0.0, 1 - near / total) if held < steps else 0.0
    params = replace(
        params,
        persistent_kernel=True,
        project_persistent_buffers=True,
        batches_per_block_inner_reduction=0,
        held_steps=held,
        sweeps_backward=held < steps,
        streams_last_sweep=held < steps,
        assumed_reduction_sizes=what.sizes,
        cparams=CompileParams(maxrregcount=hardware.registers_per_sm // THREADS_AN_SM),
        reason=f"{params.reason}, which hold {held} of {steps} steps of {vectors} vectors of {what.width}",
    )
    return Sweeping(params, blocks, 1 + (what.sweeps - 1) * again)
