"""Rows that vectors do not divide, with weights: blocks take in turns rows that are shifted alike.

Where the vectors of each row begin at aligned addresses, those of the weights begin elsewhere in each row,
and take two loads and a choice from them. Not so in rows that are a multiple of the width apart: registers
keep what was chosen once (`lower.passes.row_invariants`).
"""

from __future__ import annotations

from fusewright.core.hardware import REGISTER_BYTES, HardwareInfo
from fusewright.schedulers.io import Vectors
from fusewright.schedulers.params import CompileParams, LaunchParams, ReductionParams
from fusewright.schedulers.sizes import ceil_div, whole_warps

# Threads of all blocks on an SM, of one block, and the vectors that each holds of its row. On an H200 a layer
# norm of 32768 x 1025 took 74 us so, and 95 us by element; one of 8191 x 4095 60 and 62; an RMS norm 46 and
# 49.
THREADS_AN_SM, MOST_THREADS, MOST_VECTORS = 1280, 288, 2
# Rows a block, so that the last turn, which not all blocks have, is a small part.
ROWS_A_BLOCK = 8
# A register file is handed out to a warp by so many registers a thread.
REGISTER_STEP = 8
# A thread needs this many registers besides what it holds.
REGISTERS_TO_WORK = 32


def in_turns(
    rows: int, length: int, vectors: Vectors, held_bytes: int, hardware: HardwareInfo
) -> ReductionParams | None:
    """How blocks take `rows` of a constant `length` in turns; None where that is not known to be faster.

    `held_bytes`: in registers, for each element of a row and of the weights.
    """
    needed = ceil_div(length + vectors.width - 1, vectors.width)
    batches = ceil_div(needed, MOST_THREADS)
    threads = whole_warps(ceil_div(needed, batches))
    resident = THREADS_AN_SM // threads
    blocks = hardware.sm_count * resident // vectors.width * vectors.width
    if batches > MOST_VECTORS or rows < ROWS_A_BLOCK * blocks or not blocks:
        return None
    registers = hardware.registers_per_sm // (resident * threads) // REGISTER_STEP * REGISTER_STEP
    if REGISTERS_TO_WORK + batches * vectors.width * held_bytes // REGISTER_BYTES > registers:
        return None
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
        reason=f"{rows} rows of {length}: {blocks} blocks take them in turns, {threads} threads a row, "
        f"{batches} vectors of {vectors.width} each, held in registers; aligned by the start of each row",
    )
