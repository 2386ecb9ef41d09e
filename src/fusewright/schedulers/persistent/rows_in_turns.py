"""Rows that vectors do not divide, with weights: each block takes rows, in turns, that have the same shift.

If the vectors of each row start at aligned addresses, the vectors of the weights start at different elements
in each row, and each takes two loads and a selection. But in rows whose distance is a multiple of the vector
width they start alike. So the selected vectors are kept (`lower.passes.row_invariants`): in shared memory if
rows are copied ahead, else in registers.
"""

from __future__ import annotations

from dataclasses import replace

from fusewright.core.hardware import BULK_BYTES, BULK_COPIES_SINCE, KIB, REGISTER_BYTES, HardwareInfo
from fusewright.schedulers.io import Vectors
from fusewright.schedulers.params import CompileParams, LaunchParams, ReductionParams
from fusewright.schedulers.persistent.held_rows import Held
from fusewright.schedulers.sizes import ceil_div, whole_warps

# Threads of all blocks on an SM, of one block, and the vectors that each holds of its row. On an H200 a layer
# norm of 32768 x 1025 took 74 us so, and 95 us by element; one of 8191 x 4095 60 and 62; an RMS norm 46 and
# 49.
THREADS_AN_SM, MOST_THREADS, MOST_VECTORS = 1280, 288, 2
# Rows a block, so that the last turn, which not all blocks have, is a small part.
ROWS_A_BLOCK = 8
# The same of rows that are copied ahead, that many at most, and the vectors that each thread has of a row. An
# H200, layer norm: 8191 x 4095 0.74 of a copy's speed, 0.61 in registers, 16384 x 2047 0.79 and 0.55, 5400 x
# 6001 0.81, 0.55 by element; the first two with two vectors a thread 0.70 and 0.65, with one 0.52 and 0.61;
# 4095 x 16385 0.88 by one block, 0.59 by element.
COPIED_THREADS_AN_SM, MOST_COPIED_THREADS, COPIED_VECTORS, COPIED_STAGES = 768, 704, 3, 3
# Clusters, blocks of each and vectors of each thread, that do the same with longer rows, in two stages if
# need be, if they have such a share of the SMs (1024 x 50257: 0.86 by clusters of two, by one block with
# chunks of a row in a ring 0.57; of 65537 by three 0.70 and 0.59; 1335 x 50257 floats by four 0.77, by
# element 0.48).
COPIED_BY_CLUSTERS, FEWEST_STAGES, SMS_IN_TURNS = ((2, 4), (2, 5), (3, 4), (3, 5), (4, 4), (4, 5)), 2, 0.7
# Shared memory of a block besides: what reductions exchange, mbarriers, and the alignment of all buffers.
OTHER_BYTES = 1 * KIB
# A thread needs this many registers besides what it holds.
REGISTERS_TO_WORK = 32


def in_turns(
    rows: int, length: int, vectors: Vectors, held_bytes: int, hardware: HardwareInfo
) -> ReductionParams | None:
    """How blocks take `rows` of a constant `length` in turns; None if that is not known to be faster.

    `held_bytes`: in registers, for each element of a row and of the weights.
    """
    needed = ceil_div(length + vectors.width - 1, vectors.width)
    batches = ceil_div(needed, MOST_THREADS)
    threads = whole_warps(ceil_div(needed, batches))
    resident = THREADS_AN_SM // threads
    blocks = hardware.sm_count * resident // vectors.width * vectors.width
    if batches > MOST_VECTORS or rows < ROWS_A_BLOCK * blocks or not blocks:
        return None
    registers = hardware.registers_a_thread(resident * threads)
    if REGISTERS_TO_WORK + batches * vectors.width * held_bytes // REGISTER_BYTES > registers:
        return None
    return replace(
        _shifted_alike(length, vectors, threads, batches, blocks, registers),
        reason=f"{rows} rows of {length}: {blocks} blocks take them in turns, {threads} threads a row, "
        f"{batches} vectors of {vectors.width} each, held in registers; aligned by the start of each row",
    )


def copied_in_turns(
    rows: int, length: int, vectors: Vectors, held: Held, weight_bytes: int, hardware: HardwareInfo
) -> ReductionParams | None:
    """Like `in_turns`, for rows that are copied ahead. Also None if the copy engine cannot move these.

    `held`: the bytes of a row if only its inputs are held. `weight_bytes`: for each element of the weights.
    """
    if hardware.compute_capability < BULK_COPIES_SINCE or held.in_all != held.copied:
        return None
    if held.copied * vectors.width != BULK_BYTES:
        return None
    needed = ceil_div(length + vectors.width - 1, vectors.width)
    for cluster, batches in ((1, COPIED_VECTORS), *COPIED_BY_CLUSTERS):
        threads = whole_warps(ceil_div(needed, cluster * batches))
        if cluster > hardware.max_cluster or threads > MOST_COPIED_THREADS:
            continue
        resident = COPIED_THREADS_AN_SM // threads if cluster == 1 else 1
        places = threads * batches * vectors.width
        room = min(hardware.shared_memory_per_sm // resident, hardware.shared_memory_per_block_optin)
        stages = (room - OTHER_BYTES - places * weight_bytes) // (places * held.copied)
        if stages >= (COPIED_STAGES if cluster == 1 else FEWEST_STAGES):
            break
    else:
        return None
    clusters = hardware.resident_clusters(cluster, resident) // vectors.width * vectors.width
    idle = clusters * cluster < SMS_IN_TURNS * resident * hardware.sm_count
    if rows < ROWS_A_BLOCK * clusters or idle:
        return None
    registers = hardware.registers_a_thread(resident * threads)
    return replace(
        _shifted_alike(length, vectors, threads, batches, clusters, registers),
        project_persistent_buffers=True,
        persistent_in_shared_memory=True,
        circular_stages=min(stages, COPIED_STAGES),
        weights_in_shared_memory=True,
        blocks_per_cluster=cluster,
        reason=f"{rows} rows of {length}: {clusters} "
        + (f"clusters of {cluster} blocks" if cluster > 1 else "blocks")
        + f" take them in turns and copy the next ones ahead, {threads} threads of each a row, {batches} "
        f"vectors of {vectors.width} each; aligned by the start of each row",
    )


def _shifted_alike(
    length: int, vectors: Vectors, threads: int, batches: int, blocks: int, registers: int
) -> ReductionParams:
    """Params of blocks that take rows of a constant length in turns and hold them in registers."""
    return ReductionParams(
        fastest_dim=True,
        persistent_kernel=True,
        unroll_factor_inner_reduction=vectors.width,
        vectorize_inner_reduction=True,
        batches_per_block_inner_reduction=batches,
        pad_inner_reduction_to_warp=True,
        assumed_reduction_sizes=(length,),
        shift_rows=True,
        unaligned_inputs=vectors.unaligned,
        persistent_blocks=blocks,
        lparams=LaunchParams(bdimx=threads, bdimy=1),
        cparams=CompileParams(maxrregcount=registers),
    )
