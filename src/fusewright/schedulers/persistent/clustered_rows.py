"""Rows that the blocks of a cluster hold together: when that pays, and how such rows are split.

Measured on an H200 for rows of 49152 to 524288 bf16 of softmax, RMS norm, layer norm and log-softmax.
"""

from __future__ import annotations

from dataclasses import replace

from fusewright.core.hardware import KIB, HardwareInfo
from fusewright.core.recorded import isqrt
from fusewright.schedulers.params import LaunchParams, ReductionParams
from fusewright.schedulers.persistent.held_rows import Held
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_most, whole_warps

# ---- rows that are long for one block ----

# Bytes of a row that one block holds as fast as a cluster does.
#   H200, bf16, of a copy's speed by blocks and by clusters: softmax of 32768 0.99 and 0.99, of 49152 0.96 and
#   0.98, of 50257 0.90 and 0.93, of 65536 0.87 and 0.96, of 98304 0.84 and 0.97; RMS norm of 32768 0.96 and
#   0.96, of 65536 0.91 and 0.98; layer norm of these 0.95 and 0.90, 0.86 and 0.88; softmax's gradient of
#   32768 0.94 and 1.00.
ROW_OF_A_BLOCK = 64 * KIB
# The same of rows fewer than LEAST_ROWS, which all blocks may share as well (`sweep_heuristic`).
ROW_OF_A_GRID = 160 * KIB
# Bytes that a thread holds of a row, in vectors of 16 bytes of one input or less of several.
HELD_BYTES = 128
# Threads of a block, and of the largest clusters' blocks if fewer would have more than MAX_BATCHES vectors.
THREADS = 256  # of a block
MAX_THREADS = 512  # of a block of the largest clusters
# Vectors of a thread of the largest clusters, before these have blocks of more threads.
#   H200, rows of 262144 float, of a copy's speed: softmax 0.95, with 512 threads 0.94, in sweeps 0.60; group
#   norm 0.92, 0.77 and 0.58.
MAX_BATCHES = 16
# Blocks of a cluster in general, at most: larger ones have to find as many free SMs in one part of the GPU.
USUAL_BLOCKS = 8
# Registers of a thread at least that copies rows to shared memory and computes with one vector of each at a
# time.
MIN_REGISTERS = 32
# Bytes of shared memory besides the row: what blocks exchange, and the alignment of all buffers together.
EXCHANGE_BYTES = 16 * KIB

# ---- rows whose vectors are aligned by the start of each row ----

# Bytes that a thread holds in registers at most, in clusters of these numbers of blocks. Other rows are in
# shared memory, by blocks of more threads.
#   H200, softmax, of a copy's speed: 50258 bf16 0.97 in registers of 4 blocks, 0.95 in shared memory and in
#   registers of 2 blocks; 50257 float 0.97 and 0.95, by one block 0.92.
SHIFTED_BYTES = 208  # of registers of a thread
SHIFTED_BLOCKS = (4, 8)  # of a cluster
SHIFTED_THREADS = 416  # of a block that holds rows in shared memory

# ---- rows that are few ----

# Bytes of a row from which on clusters share it.
#   H200, bf16, of a copy's speed by one block a row and by clusters: softmax of 33x32768 0.76 and 0.91, of
#   132x32768 0.77 and 0.88, of 300x32768 0.83 and 0.94; layer norm of 12x12288 0.55 and 0.78, of 33x16384
#   0.58 and 0.87, of 100x32768 0.66 and 0.81.
LEAST_SPREAD = 16 * KIB
# Rows from which on that is known to be faster than sweeps by all blocks.
LEAST_ROWS = 8
# Blocks of a cluster, and threads of a block, at least.
MIN_BLOCKS = 4  # of a cluster
MIN_THREADS = 128  # of a block
# Rows for each SM and block of a cluster, times the blocks again, at most.
ROWS_TIMES_BLOCKS = 40
# Vectors in registers of a thread of the largest clusters at most, which share rows that are fewer than
# LEAST_ROWS, unless HELD_BYTES are more.
#   H200, bf16, us: layer norm of one row of 65536 8.6, in sweeps by all blocks 12.8, of 131072 10.3 and 11.3,
#   of 20000 7.4 and 8.9, of 262144 9.1 and 10.7; of four such rows 9.1, by clusters of 8 11.8; softmax of one
#   7.5 and 8.3.
FEW_BATCHES = 4
# Blocks for each SM up to which the largest clusters hold rows in registers of MIN_THREADS a block, if
# threads of the usual clusters would hold more than FEW_BATCHES.
#   H200, 33 rows of 131072, us, by 8 blocks in shared memory second: layer norm 11.6 and 13.0, RMS norm 10.0
#   and 10.4, softmax 11.0 and 11.5; 64 rows, layer norm 20.0 and 16.5.
BLOCKS_AN_SM = 4
# Threads of a block and vectors of each in registers, at most, of shifted rows beside weights.
THREADS_BESIDE_WEIGHTS = 352  # of a block
BATCHES_BESIDE_WEIGHTS = 3  # vectors of a thread

# ---- two rows at a time, beside weights of more bytes than theirs ----

# Bytes of such a row at least, and rows for each SM, of which each cluster takes several in turn.
#   H200, bf16, us: layer norm of 4096x32768 136, one row at a time by one block in shared memory 144, in
#   registers 163; of 1000x32768 40.3 and 48.1; of 24576 136, in registers 132; of 65536, which takes clusters
#   of four, no faster.
MIN_PAIRED = 56 * KIB  # bytes of a row
ROWS_OF_PAIRS = 6  # for each SM
# Blocks of a cluster, vectors of each row a thread, and blocks for which an SM must have room.
PAIRED_CLUSTER = 2  # blocks of a cluster
PAIRED_VECTORS = 4  # of each row a thread
PAIRED_BLOCKS = 3  # on an SM
# Bytes of shared memory besides the rows.
EXCHANGED_BY_PAIRS = 4 * KIB

# ---- cost ----

# Share of a copy's speed that clusters keep, and those of the largest size, of which all blocks have to be
# free at once in one part of the GPU.
#   H200: clusters of 16 blocks keep 0.82 where those of 8 keep 0.89.
SPEED = 0.96  # of other clusters
LARGEST_SPEED = 0.9  # of the largest clusters
# Seconds that a block of a cluster spends on each row with no loads or stores in flight.
#   H200, softmax of 131072 bf16 by clusters of two, one block an SM: 0.85 of a copy's speed.
ROW_SECONDS = 2e-6


def clustered(
    rows: int, vectors: int, width: int, held: Held, shifts: bool, hardware: HardwareInfo
) -> ReductionParams | None:
    """Returns params for rows of `vectors` of `width` elements; None if no cluster holds them, or one block
    does as well.

    They are held in shared memory, to which copies take no registers, or, if shifted, in registers.
    H200, group norm of 262144 bf16 of any length, of a copy's speed: 0.83, in registers 0.74.

    Args:
        held: the bytes to hold of each element.
        shifts: whether vectors are aligned by the start of each row.
    """
    of_vector = width * held.at_once
    least = ROW_OF_A_BLOCK if rows >= LEAST_ROWS else ROW_OF_A_GRID
    if hardware.max_cluster == 1 or width == 1 or vectors * of_vector <= least:
        return None
    for cluster in SHIFTED_BLOCKS if shifts else ():
        batches = ceil_div(vectors, cluster * THREADS)
        if batches * of_vector <= SHIFTED_BYTES:
            return _params(rows, vectors, width, cluster, batches, in_shared=False)
    batches = max(1, HELD_BYTES // of_vector)
    cluster = min(USUAL_BLOCKS, ceil_div(vectors, (SHIFTED_THREADS if shifts else THREADS) * batches))
    if ceil_div(vectors, cluster * batches) > MAX_THREADS:
        cluster = hardware.max_cluster
        most = THREADS if vectors <= cluster * THREADS * MAX_BATCHES else MAX_THREADS
        batches = max(batches, ceil_div(vectors, cluster * most))
    if cluster > hardware.max_cluster:
        return None
    threads = whole_warps(ceil_div(vectors, cluster * batches))
    of_block = threads * batches * width * held.in_all + EXCHANGE_BYTES
    if of_block > hardware.shared_memory_per_block_optin:
        return None
    params = _params(rows, vectors, width, cluster, batches, in_shared=True)
    if held.tensors == 1:
        return params
    return _with_room(threads * batches * width * held.in_all, params, hardware)


def _with_room(held_bytes: int, params: ReductionParams, hardware: HardwareInfo) -> ReductionParams:
    """Returns the params with a limit on registers that lets as many blocks of `held_bytes` be on an SM at
    once as shared memory has room for; unchanged if these registers are too few for the kernel.

    With several inputs, the number of registers depends on how the computation is written.
    H200, gradient of a batch norm of 32x256x56x56 bf16 in the ways of tests/ways: without this limit 47.3 to
    54.4 us with 32 to 44 registers. With it, four take 46.7 to 47.0, and the three that spill 24 or 56 bytes
    51.4 to 52.6.
    """
    threads = params.lparams.bdimx
    by_memory = hardware.shared_memory_per_sm // (held_bytes + hardware.shared_memory_reserved)
    resident = min(by_memory, hardware.max_threads_per_sm // threads)
    most = hardware.registers_a_thread(resident * threads)
    if most < MIN_REGISTERS:
        return params
    return replace(params, cparams=replace(params.cparams, maxrregcount=most))


def in_pairs(
    rows: int, vectors: int, width: int, held: Held, hardware: HardwareInfo
) -> ReductionParams | None:
    """Returns params for rows beside weights of more bytes than theirs: two rows at a time, which share the
    weights. None if rows are short or few, or a cluster does not hold two.
    """
    of_vector = width * held.at_once
    cluster = PAIRED_CLUSTER if hardware.max_cluster >= PAIRED_CLUSTER else 1
    threads = whole_warps(ceil_div(vectors, cluster * PAIRED_VECTORS))
    of_block = 2 * threads * PAIRED_VECTORS * width * held.in_all + EXCHANGED_BY_PAIRS
    if vectors * of_vector < MIN_PAIRED or rows < ROWS_OF_PAIRS * hardware.sm_count or width == 1:
        return None
    if threads > MAX_THREADS or PAIRED_BLOCKS * of_block > hardware.shared_memory_per_sm:
        return None
    params = _params(rows, vectors, width, cluster, PAIRED_VECTORS, in_shared=True)
    reason = f"{params.reason}; two rows at a time, beside weights"
    return replace(params, unroll_factor_iter_dom=2, whole_blocks=rows % 2 == 0, reason=reason)


def spread(rows: int, vectors: int, width: int, held: Held, hardware: HardwareInfo) -> ReductionParams | None:
    """Returns params for rows so few that the GPU has blocks for parts of each; None if there are more."""
    of_vector = width * held.at_once
    if width == 1 or rows < 1 or vectors * of_vector <= LEAST_SPREAD:
        return None
    most = isqrt(ROWS_TIMES_BLOCKS * hardware.sm_count // rows)
    largest = USUAL_BLOCKS if rows >= LEAST_ROWS else hardware.max_cluster
    most = min(most, largest, hardware.max_cluster, vectors // MIN_THREADS)
    if most < MIN_BLOCKS:
        return None
    cluster = power_of_two_at_most(most)
    batches = ceil_div(vectors, THREADS * cluster)
    if rows < LEAST_ROWS:
        few = batches <= FEW_BATCHES or batches * of_vector <= HELD_BYTES
        return _params(rows, vectors, width, cluster, batches, in_shared=False) if few else None
    if batches * of_vector > HELD_BYTES:
        return None
    is_few = rows * hardware.max_cluster <= BLOCKS_AN_SM * hardware.sm_count
    if cluster == USUAL_BLOCKS < hardware.max_cluster and batches > FEW_BATCHES and is_few:
        most = ceil_div(vectors, hardware.max_cluster * MIN_THREADS)
        return _params(rows, vectors, width, hardware.max_cluster, most, in_shared=False)
    return _params(rows, vectors, width, cluster, batches, in_shared=batches > 1)


def spread_beside_weights(
    rows: int, vectors: int, width: int, held: Held, hardware: HardwareInfo
) -> ReductionParams | None:
    """Returns what `spread` does for shifted rows beside weights, whose vectors start at any element, but in
    registers if few vectors of a thread suffice.

    H200, layer norm of 33x65537 bf16: 12.6 us, in shared memory 14.3.
    """
    params = spread(rows, vectors, width, held, hardware)
    if params is None or not params.persistent_in_shared_memory:
        return params
    batches = ceil_div(vectors, params.blocks_per_cluster * THREADS_BESIDE_WEIGHTS)
    if batches > BATCHES_BESIDE_WEIGHTS:
        return params
    return _params(rows, vectors, width, params.blocks_per_cluster, batches, in_shared=False)


def _params(
    rows: int, vectors: int, width: int, cluster: int, batches: int, in_shared: bool
) -> ReductionParams:
    threads = whole_warps(ceil_div(vectors, cluster * batches))
    where = "shared memory" if in_shared else "registers"
    return ReductionParams(
        fastest_dim=True,
        persistent_kernel=True,
        project_persistent_buffers=True,
        persistent_in_shared_memory=in_shared,
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
    """Returns the share of a copy's speed that clusters of so many blocks keep besides waiting for each
    other.
    """
    if blocks == 1:
        return 1.0
    return LARGEST_SPEED if blocks == hardware.max_cluster else SPEED


def is_crowded(params: ReductionParams, hardware: HardwareInfo) -> bool:
    """Whether only the largest clusters hold rows, and in blocks of many threads."""
    return params.blocks_per_cluster == hardware.max_cluster and params.lparams.bdimx > THREADS
