"""Rows that the blocks of a cluster hold together: when that pays, and how such rows are split.

Measured on an H200 for rows of 49,152 to 524,288 bfloat16 of softmax, RMS norm, layer norm and log-softmax.
"""

from __future__ import annotations

from dataclasses import replace

from fusewright.core.hardware import KIB, HardwareInfo
from fusewright.core.recorded import isqrt
from fusewright.schedulers.params import LaunchParams, ReductionParams
from fusewright.schedulers.persistent.held_rows import Held
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_most, whole_warps

# Bytes of a row that one block holds as fast as a cluster does. Fractions of a copy's speed, by blocks and by
# clusters: softmax of 32,768 bfloat16 0.99 and 0.99, of 49,152 0.96 and 0.98, of 65,536 0.87 and 0.96, of
# 98,304 0.84 and 0.97; RMS norm of 32,768 0.96 and 0.96, of 65,536 0.91 and 0.98; layer norm 0.95 and 0.90,
# 0.86 and 0.88; softmax's gradient of 32,768 0.94 and 1.00; softmax of 50,257 0.90 and 0.93.
ROW_OF_A_BLOCK = 64 * KIB
# The same of very few rows, which all blocks may share as well (`sweep_heuristic`).
ROW_OF_A_GRID = 160 * KIB
# What a thread of a cluster holds of a row, in vectors of 16 bytes of one input or less of several.
HELD_BYTES = 128
# Threads of a block: more of them where FEW_BLOCKS would not suffice otherwise.
THREADS, MOST_THREADS, FEW_BLOCKS = 256, 512, 8
# Where vectors are aligned by the start of each row: the bytes that a thread holds in registers at most, in
# clusters of so many blocks; else blocks of more threads, in shared memory. (An H200, of a copy's speed:
# softmax of 50,258 bfloat16 0.97 in registers of 4 blocks, 0.95 in shared memory and in registers of 2; of
# 50,257 floats 0.97 and 0.95, by one block 0.92.)
SHIFTED_BYTES, SHIFTED_BLOCKS, SHIFTED_THREADS = 208, (4, 8), 416
# Of rows that are few: bytes from which on clusters share them, rows from which on that is known to be faster
# than by all blocks, blocks of a cluster and threads of a block at least, and how many rows there may be for
# each SM and block of a cluster, times the blocks again. Fractions of a copy's speed, by one block a row and
# by clusters: softmax of 33 x 32768 bfloat16 0.76 and 0.91, of 132 x 32768 0.77 and 0.88, of 300 x 32768 0.83
# and 0.94; layer norm of 12 x 12288 0.55 and 0.78, of 33 x 16384 0.58 and 0.87, of 100 x 32768 0.66 and 0.81.
LEAST_SPREAD, LEAST_ROWS, LEAST_BLOCKS, LEAST_THREADS, ROWS_TIMES_BLOCKS = 16 * KIB, 8, 4, 128, 40
# Of rows of which threads hold more than FEW_BATCHES so, the largest clusters hold each in registers of
# LEAST_THREADS a block, if there are no more blocks than BLOCKS_AN_SM (33 x 131,072: layer norm 11.6 us, by
# 8 blocks in shared memory 13.0, RMS norm 10.0 and 10.4, softmax 11.0 and 11.5; of 64 layer norm 20.0 and
# 16.5).
BLOCKS_AN_SM = 4
# Vectors in registers of a thread of the largest clusters, which share rows that are fewer than LEAST_ROWS;
# or as many as HELD_BYTES are. (An H200, layer norm of one row of 65,536 bfloat16 8.6 us, in sweeps by all
# blocks 12.8, of 131,072 10.3 and 11.3, of 20,000 7.4 and 8.9; of 262,144 9.1 and 10.7, of four such rows
# 9.1, by clusters of 8 11.8; softmax of one 7.5 and 8.3.)
FEW_BATCHES = 4
# Threads of a block and vectors of each in registers, at most, of shifted rows beside weights.
THREADS_BESIDE_WEIGHTS, BATCHES_BESIDE_WEIGHTS = 352, 3
# Vectors of a thread of the largest clusters, before they have blocks of more threads. (An H200, rows of
# 262,144 floats, of a copy's speed: softmax 0.95, with 512 threads 0.94, in sweeps 0.60; group norm 0.92,
# 0.77 and 0.58.)
MOST_BATCHES = 16
# Registers of a thread that copies rows to shared memory and computes with one vector of each at a time.
LEAST_REGISTERS = 32
# Shared memory besides the row: what blocks exchange, and the alignment of all buffers together.
EXCHANGE_BYTES = 16 * KIB
# Of a copy's speed, what clusters keep, and those of the largest size (0.82 where those of 8 blocks keep
# 0.89), as 16 blocks have to be free at once in one part of the GPU.
SPEED, LARGEST_SPEED = 0.96, 0.9
# Rows beside weights of more bytes than theirs, of so many bytes at least: clusters of so many blocks hold
# two at a time, so many vectors of each a thread, if an SM has room for so many blocks, and so many rows to
# do. (An H200, layer norm of 4096 x 32768 bfloat16 136 us, one row at a time by one block in shared memory
# 144, in registers 163; 1000 x 32768 40.3 and 48.1; of 24,576 136, in registers 132; of 65,536, which takes
# clusters of four, no faster.)
LEAST_PAIRED, SHARED_BY, PAIRED_VECTORS, PAIRED_BLOCKS, ROWS_OF_PAIRS = 56 * KIB, 2, 4, 3, 6
EXCHANGED_BY_PAIRS = 4 * KIB
# What a block of a cluster spends on each row with no loads or stores in flight (softmax of 131,072 bfloat16
# by clusters of 2, one block an SM: 0.85 of a copy's speed).
ROW_SECONDS = 2e-6


def clustered(
    rows: int, vectors: int, width: int, held: Held, shifts: bool, hardware: HardwareInfo
) -> ReductionParams | None:
    """Params for rows of `vectors` of `width` elements, of which `held` are the bytes to hold of each.

    They are held in shared memory, to which copies take no registers, or, if shifted, in registers. (An
    H200, group norm of 262,144 bfloat16, of any length: 0.83 of a copy's speed, 0.74 in registers.) None
    where no cluster holds them so, or one block does as well.
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
    cluster = min(FEW_BLOCKS, ceil_div(vectors, (SHIFTED_THREADS if shifts else THREADS) * batches))
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
    params = _params(rows, vectors, width, cluster, batches, in_shared=True)
    if held.tensors == 1:
        return params
    return _with_room(threads * batches * width * held.in_all, params, hardware)


def _with_room(held_bytes: int, params: ReductionParams, hardware: HardwareInfo) -> ReductionParams:
    """The same with no more registers than let as many blocks, of so many bytes each, be on an SM at once as
    shared memory has room for; unchanged where these would be too few for the kernel.

    With several inputs, the number of registers depends on how the computation is written. (An H200, gradient
    of a batch norm of 32 x 256 x 56 x 56 bfloat16: without this limit the ways of tests/ways took 47.3 to
    54.4 us with 32 to 44 registers. With it, four take 46.7 to 47.0, and the three that spill 24 or 56 bytes
    51.4 to 52.6.)
    """
    threads = params.lparams.bdimx
    by_memory = hardware.shared_memory_per_sm // (held_bytes + hardware.shared_memory_reserved)
    resident = min(by_memory, hardware.max_threads_per_sm // threads)
    most = hardware.registers_a_thread(resident * threads)
    if most < LEAST_REGISTERS:
        return params
    return replace(params, cparams=replace(params.cparams, maxrregcount=most))


def in_pairs(
    rows: int, vectors: int, width: int, held: Held, hardware: HardwareInfo
) -> ReductionParams | None:
    """The same for rows beside weights of more bytes than theirs: two at a time, which share the weights.

    None of rows of which a cluster of two blocks does not hold two, or which are shorter or few.
    """
    of_vector = width * held.at_once
    cluster = SHARED_BY if hardware.max_cluster >= SHARED_BY else 1
    threads = whole_warps(ceil_div(vectors, cluster * PAIRED_VECTORS))
    of_block = 2 * threads * PAIRED_VECTORS * width * held.in_all + EXCHANGED_BY_PAIRS
    if vectors * of_vector < LEAST_PAIRED or rows < ROWS_OF_PAIRS * hardware.sm_count or width == 1:
        return None
    if threads > MOST_THREADS or PAIRED_BLOCKS * of_block > hardware.shared_memory_per_sm:
        return None
    params = _params(rows, vectors, width, cluster, PAIRED_VECTORS, in_shared=True)
    reason = f"{params.reason}; two rows at a time, beside weights"
    return replace(params, unroll_factor_iter_dom=2, whole_blocks=rows % 2 == 0, reason=reason)


def spread(rows: int, vectors: int, width: int, held: Held, hardware: HardwareInfo) -> ReductionParams | None:
    """The same for rows so few that the GPU has blocks for parts of each; None where there are more."""
    of_vector = width * held.at_once
    if width == 1 or rows < 1 or vectors * of_vector <= LEAST_SPREAD:
        return None
    most = isqrt(ROWS_TIMES_BLOCKS * hardware.sm_count // rows)
    largest = FEW_BLOCKS if rows >= LEAST_ROWS else hardware.max_cluster
    most = min(most, largest, hardware.max_cluster, vectors // LEAST_THREADS)
    if most < LEAST_BLOCKS:
        return None
    cluster = power_of_two_at_most(most)
    batches = ceil_div(vectors, THREADS * cluster)
    if rows < LEAST_ROWS:
        few = batches <= FEW_BATCHES or batches * of_vector <= HELD_BYTES
        return _params(rows, vectors, width, cluster, batches, in_shared=False) if few else None
    if batches * of_vector > HELD_BYTES:
        return None
    is_few = rows * hardware.max_cluster <= BLOCKS_AN_SM * hardware.sm_count
    if cluster == FEW_BLOCKS < hardware.max_cluster and batches > FEW_BATCHES and is_few:
        most = ceil_div(vectors, hardware.max_cluster * LEAST_THREADS)
        return _params(rows, vectors, width, hardware.max_cluster, most, in_shared=False)
    return _params(rows, vectors, width, cluster, batches, in_shared=batches > 1)


def spread_beside_weights(
    rows: int, vectors: int, width: int, held: Held, hardware: HardwareInfo
) -> ReductionParams | None:
    """The same of shifted rows beside weights, whose vectors start at any element: in registers where few
    vectors of a thread suffice. (An H200, layer norm of 33 x 65537 bfloat16 12.6 us so, in shared memory
    14.3.)
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
    """Of a copy's speed, what clusters of so many blocks keep besides waiting for each other."""
    if blocks == 1:
        return 1.0
    return LARGEST_SPEED if blocks == hardware.max_cluster else SPEED


def is_crowded(params: ReductionParams, hardware: HardwareInfo) -> bool:
    """Whether only the largest clusters hold rows, and in blocks of many threads."""
    return params.blocks_per_cluster == hardware.max_cluster and params.lparams.bdimx > THREADS
