"""Params for rows in several stretches of memory: a kept dimension lies between those that are reduced, of
which one is the innermost.
"""

from __future__ import annotations

from fusewright.core.hardware import HardwareInfo
from fusewright.schedulers.params import LaunchParams, ReductionParams
from fusewright.schedulers.reduction.grid_reduction import blocks_of_column, partials_read_at_once
from fusewright.schedulers.reduction.space import ReductionSpace
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_most

# Size of the innermost reduced dimension up to which threads go only along it, if there are no vectors: this
# saves a division by its size for every load. Otherwise threads go along all reduced dimensions.
#   H200, bf16: 64x128x64x64 in vectors, summed over dimensions 1 and 3, 22.6 us along all, 25.4 along the
#   innermost only; as squares of 2 x 2 29.1 and 24.8.
MAX_INNERMOST = 64
# Threads of a block whose threads go along the innermost dimension.
THREADS = 256
# Bytes and loads that such a thread has in flight at most.
MAX_BYTES_IN_FLIGHT = 128  # bytes
MAX_LOADS_IN_FLIGHT = 16  # loads

# Vectors of a row up to which one thread reduces it, if that makes enough threads for the GPU.
MAX_VECTORS_OF_A_THREAD = 4
# Threads of a block, each of which reduces rows by itself.
THREADS_WITH_ROWS = 128
# Bytes that such a thread has in flight, of several rows if these are short.
#   H200, bf16: squares of 2 x 2 22.9 us so, 25.1 by two threads each; of 4 x 4 21.5 and 22.8.
BYTES_IN_FLIGHT_WITH_ROWS = 32


def is_split(space: ReductionSpace) -> bool:
    """Whether a dimension that is kept lies between reduced ones, of which one is the innermost."""
    return 0 < len(space.reduced_axes_inside) < len(space.reduction)


def short_split_params(rows: int, vectors: int, width: int, element_bytes: int) -> ReductionParams:
    """Returns params that reduce each of `rows` by one thread, in its `vectors` of `width` elements."""
    in_flight = power_of_two_at_most(max(1, BYTES_IN_FLIGHT_WITH_ROWS // (vectors * width * element_bytes)))
    return ReductionParams(
        fastest_dim=True,
        unroll_factor_inner_reduction=width,
        vectorize_inner_reduction=width > 1,
        unroll_factor_top_of_vectorization=vectors,
        unroll_factor_iter_dom=in_flight,
        pad_inner_reduction_to_warp=True,
        lparams=LaunchParams(bdimx=1, bdimy=THREADS_WITH_ROWS, gdimy=1),
        reason=f"{rows} rows of {vectors} vectors of {width} in two stretches: a thread a row, {in_flight} "
        f"rows a thread, {THREADS_WITH_ROWS * in_flight} rows a block",
    )


def split_params(
    rows: int, outer: int, inner: int, width: int, element_bytes: int, hardware: HardwareInfo
) -> ReductionParams:
    """Returns params that reduce each of `rows` along a short contiguous dimension of `inner` elements and
    along `outer` places further out in memory.

    The threads of a block lie along `inner` and along rows that follow one another in memory, and each goes
    along `outer`.
    """
    vectors = max(1, ceil_div(inner, width))
    rows_a_block = max(1, min(rows, THREADS // vectors))
    most = max(1, MAX_BYTES_IN_FLIGHT // max(1, width * element_bytes))
    unroll = max(1, min(most, MAX_LOADS_IN_FLIGHT, outer))
    grid = blocks_of_column(
        blocks=ceil_div(rows, rows_a_block),
        steps=outer // unroll,
        bytes_in_flight=unroll * width * element_bytes,
        read_at_once=partials_read_at_once(vectors, 1),
        hardware=hardware,
    )
    return ReductionParams(
        fastest_dim=True,
        schedule_3d=True,
        unroll_factor_inner_reduction=width,
        vectorize_inner_reduction=width > 1,
        unroll_factor_top_of_vectorization=unroll,
        lparams=LaunchParams(bdimx=vectors, bdimy=rows_a_block, gdimy=grid),
        reason=f"{rows} rows of {outer} times {inner}, contiguous: {vectors} threads of {width} elements, "
        f"{rows_a_block} rows a block, {unroll} vectors in flight, {grid} blocks a row",
    )
