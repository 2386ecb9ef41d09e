"""Rows that vectors do not divide, with weights: each block takes rows, in turns, that have the same shift.

If the vectors of each row start at aligned addresses, the vectors of the weights start at different elements
in each row, and each takes two loads and a selection. But in rows whose distance is a multiple of the vector
width they start alike. So the selected vectors are kept (`lower.passes.row_invariants`): in shared memory if
rows are copied ahead, else in registers.
"""

from __future__ import annotations

from dataclasses import replace

from fusewright.core.hardware import BULK_BYTES, BULK_COPIES_SINCE, KIB, REGISTER_BYTES, HardwareInfo
from fusewright.schedulers.params import CompileParams, LaunchParams, ReductionParams
from fusewright.schedulers.persistent.held_rows import Held
from fusewright.schedulers.sizes import ceil_div, whole_warps
from fusewright.schedulers.vector_limits import Vectors

# ---- rows that registers hold ----

# Threads of all blocks on an SM.
#   H200, us, so and by element: layer norm of 32768x1025 74 and 95, of 8191x4095 60 and 62; RMS norm 46 and
#   49.
THREADS_AN_SM = 1280
# Threads of a block, and vectors that each holds of its row, at most.
MAX_THREADS = 288  # of a block
MAX_VECTORS = 2  # of a thread
# Registers of a thread besides what it holds.
REGISTERS_TO_WORK = 32

# ---- rows that are copied ahead ----

# Threads of all blocks on an SM, and of one block at most; vectors that each has of a row, and rows of a
# ring.
#   H200, layer norm, of a copy's speed: 8191x4095 0.74, in registers 0.61; 16384x2047 0.79 and 0.55;
#   5400x6001 0.81, by element 0.55; 4095x16385 by one block 0.88, by element 0.59. The first two with two
#   vectors a thread 0.70 and 0.65, with one 0.52 and 0.61.
COPIED_THREADS_AN_SM = 768  # of all blocks
MAX_COPIED_THREADS = 704  # of a block
COPIED_VECTORS = 3  # of a thread
COPIED_STAGES = 3  # rows of a ring
# Blocks of a cluster, and vectors of each thread, that do the same with longer rows: the first pair that
# fits.
#   H200, layer norm, of a copy's speed: 1024x50257 by clusters of two 0.86, by one block with chunks of a row
#   in a ring 0.57; rows of 65537 by three 0.70 and 0.59; 1335x50257 float by four 0.77, by element 0.48.
COPIED_BY_CLUSTERS = ((2, 4), (2, 5), (3, 4), (3, 5), (4, 4), (4, 5))
# Rows of a cluster's ring at least, and the share of the SMs that clusters must have.
MIN_STAGES_OF_CLUSTER = 2  # rows of a ring
MIN_SHARE_OF_SMS = 0.7  # of all SMs
# Bytes of shared memory of a block besides: what reductions exchange, mbarriers, and the alignment of all
# buffers.
OTHER_BYTES = 1 * KIB

# ---- both ----

# Rows of a block at least, so that the last turn, which not all blocks have, is a small part.
MIN_ROWS_A_BLOCK = 8


def in_turns(
    rows: int, length: int, vectors: Vectors, held_bytes: int, hardware: HardwareInfo
) -> ReductionParams | None:
    """Returns params of blocks that take `rows` of a constant `length` in turns and hold them in registers;
    None if that is not known to be faster.

    held_bytes: bytes of registers for each element of a row and of the weights.
    """
    needed = ceil_div(length + vectors.width - 1, vectors.width)
    batches = ceil_div(needed, MAX_THREADS)
    threads = whole_warps(ceil_div(needed, batches))
    resident = THREADS_AN_SM // threads
    blocks = hardware.sm_count * resident // vectors.width * vectors.width
    if batches > MAX_VECTORS or rows < MIN_ROWS_A_BLOCK * blocks or not blocks:
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
    """Returns params like `in_turns` for rows that are copied ahead; also None if the copy engine cannot move
    these.

    Args:
        held: the bytes of an element of a row if only inputs are held.
        weight_bytes: the bytes of an element of the weights.
    """
    if hardware.compute_capability < BULK_COPIES_SINCE or held.in_all != held.copied:
        return None
    if held.copied * vectors.width != BULK_BYTES:
        return None
    needed = ceil_div(length + vectors.width - 1, vectors.width)
    for cluster, batches in ((1, COPIED_VECTORS), *COPIED_BY_CLUSTERS):
        threads = whole_warps(ceil_div(needed, cluster * batches))
        if cluster > hardware.max_cluster or threads > MAX_COPIED_THREADS:
            continue
        resident = COPIED_THREADS_AN_SM // threads if cluster == 1 else 1
        places = threads * batches * vectors.width
        room = min(hardware.shared_memory_per_sm // resident, hardware.shared_memory_per_block_optin)
        stages = (room - OTHER_BYTES - places * weight_bytes) // (places * held.copied)
        if stages >= (COPIED_STAGES if cluster == 1 else MIN_STAGES_OF_CLUSTER):
            break
    else:
        return None
    clusters = hardware.resident_clusters(cluster, resident) // vectors.width * vectors.width
    idle = clusters * cluster < MIN_SHARE_OF_SMS * resident * hardware.sm_count
    if rows < MIN_ROWS_A_BLOCK * clusters or idle:
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
