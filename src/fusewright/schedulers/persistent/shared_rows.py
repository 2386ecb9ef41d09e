"""Rows that one block holds in shared memory, filled by asynchronous copies: when that pays."""

from __future__ import annotations

from dataclasses import replace

from fusewright.core.hardware import ASYNC_BYTES, HardwareInfo
from fusewright.schedulers.params import ReductionParams
from fusewright.schedulers.persistent.held_rows import Held
from fusewright.schedulers.sizes import ceil_div, whole_warps

# Threads of a block at most: with more, an SM has fewer blocks.
#   H200, rows of 32000 to 50257 bf16, of which registers hold one on an SM at a time and shared memory two or
#   three, of a copy's speed, and in registers: softmax 0.92 to 0.96, and 0.71 to 0.90; log-softmax 0.92 and
#   0.74; cross entropy with its gradient 0.96 and 0.70. By more threads 0.74 to 0.89.
MAX_THREADS = 512
# Bytes of shared memory besides rows: the alignment of all buffers together, and what the system takes of
# each block.
SLACK = 2 * 1024


def in_shared(
    params: ReductionParams, vectors: int, held: Held, partial_bytes: int, hardware: HardwareInfo
) -> ReductionParams | None:
    """Returns params that hold the rows of `params`, of so many vectors, in shared memory; None if there is
    no room for several blocks per SM, or if copies cannot be asynchronous.

    Args:
        held: the bytes to hold of each element if only inputs are held.
        partial_bytes: the further bytes that a thread needs.
    """
    width = params.unroll_factor_inner_reduction
    if held.copied * width not in ASYNC_BYTES or params.multiple_reds_per_blk:
        return None
    batches = ceil_div(vectors, min(params.lparams.bdimx, MAX_THREADS))
    threads = whole_warps(ceil_div(vectors, batches))
    of_block = threads * (batches * width * held.in_all + partial_bytes) + SLACK
    blocks = min(hardware.shared_memory_per_sm // of_block, hardware.max_threads_per_sm // threads)
    if blocks < 2 or of_block > hardware.shared_memory_per_block_optin:
        return None
    return replace(
        params,
        project_persistent_buffers=True,
        persistent_in_shared_memory=True,
        batches_per_block_inner_reduction=batches,
        lparams=replace(params.lparams, bdimx=threads),
        reason=f"{params.reason}; as registers hold one on an SM, in shared memory, inputs only: {threads} "
        f"threads, {batches} vectors each, {blocks} blocks",
    )
