"""Rows that the blocks of a cluster hold together: when that pays, and how such rows are cut up.

Measured on an H200 for rows of 49,152 to 524,288 bfloat16 of softmax, RMS norm, layer norm and log-softmax.
"""

from __future__ import annotations

from fusewright.core.hardware import KIB, HardwareInfo
from fusewright.schedulers.held_rows import Held
from fusewright.schedulers.params import LaunchParams, ReductionParams
from fusewright.schedulers.sizes import ceil_div, whole_warps

# Bytes of a row that one block, alone on its SM, holds in shared memory as fast as a cluster does.
ROW_OF_A_BLOCK = 160 * KIB
# What a thread of a cluster holds of a row, in vectors of 16 bytes of one input or less of several.
HELD_BYTES = 128
# Threads of a block: more of them where VERY_FEW_BLOCKS suffice then, or FEW_BLOCKS would not otherwise.
THREADS, MOST_THREADS, VERY_FEW_BLOCKS, FEW_BLOCKS = 256, 512, 4, 8
# Vectors of a thread of the largest clusters, before they have blocks of more threads. (An H200, rows of
# 262,144 floats, of a copy's speed: softmax 0.95, with 512 threads 0.94, in sweeps 0.60; group norm 0.92,
# 0.77 and 0.58.)
MOST_BATCHES = 16
# Shared memory besides the row: what blocks exchange, and the alignment of all buffers together.
EXCHANGE_BYTES = 16 * KIB
# Of a copy's speed, what clusters of the largest size keep: 0.8 to 0.83 (batch norm), 0.72 (layer norm), 0.5
# (softmax), as 16 blocks have to be free at once in one part of the GPU.
LARGEST_SPEED = 0.7
# What a block of a cluster spends on each row with no loads or stores in flight.
ROW_SECONDS = 10e-6


def clustered(
    rows: int, vectors: int, width: int, held: Held, hardware: HardwareInfo
) -> ReductionParams | None:
    """Params for rows of `vectors` of `width` elements, of which `held` are the bytes to hold of each.

    They are held in shared memory, to which copies take no registers. (An H200, group norm of 262,144
    bfloat16, of any length: 0.83 of a copy's speed, 0.74 in registers.) None where no cluster holds them so,
    or one block does as well.
    """
    of_vector = width * held.at_once
    if hardware.max_cluster == 1 or width == 1 or vectors * of_vector <= ROW_OF_A_BLOCK:
        return None
    batches = max(1, HELD_BYTES // of_vector)
    cluster = ceil_div(vectors, THREADS * batches)
    least = ceil_div(vectors, MOST_THREADS * batches)
    cluster = least if least <= VERY_FEW_BLOCKS else min(cluster, FEW_BLOCKS)
    if ceil_div(vectors, cluster * batches) > MOST_THREADS:
        cluster = hardware.max_cluster
        most = THREADS if vectors <= cluster * THREADS * MOST_BATCHES else MOST_THREADS
        batches = max(batches, ceil_div(vectors, cluster * most))
    if cluster > hardware.max_cluster:
        return None
    threads = whole_warps(ceil_div(vectors, cluster * batches))
    of_block = threads * batches * width * held.in_all + EXCHANGE_BYTES
    if of_block > hardware.shared_memory_per_block_optin:
        return None
    return ReductionParams(
        fastest_dim=True,
        persistent_kernel=True,
        project_persistent_buffers=True,
        persistent_in_shared_memory=True,
        unroll_factor_inner_reduction=width,
        vectorize_inner_reduction=True,
        batches_per_block_inner_reduction=batches,
        blocks_per_cluster=cluster,
        pad_inner_reduction_to_warp=True,
        lparams=LaunchParams(bdimx=threads, bdimy=1),
        reason=f"{rows} rows of {vectors * width}: {cluster} blocks of a cluster a row, {threads} threads "
        f"each, {batches} vectors of {width} each, held in shared memory, inputs only",
    )


def speed(blocks: int, hardware: HardwareInfo) -> float:
    """Of a copy's speed, what clusters of so many blocks keep besides waiting for each other."""
    return LARGEST_SPEED if blocks == hardware.max_cluster > 1 else 1.0


def is_crowded(params: ReductionParams, hardware: HardwareInfo) -> bool:
    """Whether only the largest clusters hold rows, and in blocks of many threads."""
    return params.blocks_per_cluster == hardware.max_cluster and params.lparams.bdimx > THREADS
