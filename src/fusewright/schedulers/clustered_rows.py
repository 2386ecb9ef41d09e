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
# Shared memory besides the row: what blocks exchange, and the alignment of all buffers together.
EXCHANGE_BYTES = 16 * KIB
# Of a copy's speed, what clusters of the largest size keep: 0.8 to 0.83 (batch norm), 0.72 (layer norm), 0.5
# (softmax), as 16 blocks have to be free at once in one part of the GPU.
LARGEST_SPEED = 0.7
# What a block of a cluster spends on each row with no loads or stores in flight.
ROW_SECONDS = 10e-6


def clustered(
    rows: int, vectors: int, width: int, held: Held, constant: bool, hardware: HardwareInfo
) -> ReductionParams | None:
    """Params for rows of `vectors` of `width` elements, of which `held` are the bytes to hold of each.

    Rows of a constant length are held in shared memory, to which copies take no registers; others have an
    address and a comparison for each access, which pays in registers alone. None where no cluster holds them
    so, or one block does as well.
    """
    of_vector = width * held.at_once
    if hardware.max_cluster == 1 or width == 1 or vectors * of_vector <= ROW_OF_A_BLOCK:
        return None
    batches = max(1, HELD_BYTES // of_vector)
    cluster = ceil_div(vectors, THREADS * batches)
    if constant:
        least = ceil_div(vectors, MOST_THREADS * batches)
        cluster = least if least <= VERY_FEW_BLOCKS else min(cluster, FEW_BLOCKS)
        if ceil_div(vectors, cluster * batches) > MOST_THREADS:
            cluster = hardware.max_cluster
            batches = max(batches, ceil_div(vectors, cluster * MOST_THREADS))
    if cluster > hardware.max_cluster:
        return None
    threads = whole_warps(ceil_div(vectors, cluster * batches))
    of_block = threads * batches * width * held.in_all + EXCHANGE_BYTES
    if constant and of_block > hardware.shared_memory_per_block_optin:
        return None
    where = "shared memory" if constant else "registers"
    return ReductionParams(
        fastest_dim=True,
        persistent_kernel=True,
        project_persistent_buffers=True,
        persistent_in_shared_memory=constant,
        unroll_factor_inner_reduction=width,
        vectorize_inner_reduction=True,
        batches_per_block_inner_reduction=batches,
        blocks_per_cluster=cluster,
        pad_inner_reduction_to_warp=True,
        lparams=LaunchParams(bdimx=threads, bdimy=1),
        reason=f"{rows} rows of {vectors * width}: {cluster} blocks of a cluster a row, {threads} threads "
        f"each, {batches} vectors of {width} each, held in {where}, inputs only",
    )


def speed(blocks: int, hardware: HardwareInfo) -> float:
    """Of a copy's speed, what clusters of so many blocks keep besides waiting for each other."""
    return LARGEST_SPEED if blocks == hardware.max_cluster > 1 else 1.0
