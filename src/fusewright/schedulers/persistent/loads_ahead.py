"""Inputs that only the results of reductions are used with, such as a gate or what is added to a row that is
normalized: loaded before the reductions, they are in flight while a block waits for what it reduces.
"""

from __future__ import annotations

from fusewright.core.hardware import REGISTER_BYTES, HardwareInfo
from fusewright.schedulers.params import ReductionParams
from fusewright.schedulers.persistent.held_rows import Held
from fusewright.schedulers.reduction.space import ReductionSpace
from fusewright.schedulers.reduction.step_loads import REGISTERS_TO_WORK

# Registers of a thread that such loads and what is held may take together.
MAX_REGISTERS = 64


def check_loads_ahead(space: ReductionSpace, params: ReductionParams) -> None:
    """Raises ParamsError where loads are to be ahead and there are none."""
    if params.loads_ahead and not space.read_late:
        reason = "as reductions follow from all inputs that are read at every point"
        params.expect("loads_ahead", False, reason)


def may_load_ahead(
    space: ReductionSpace, params: ReductionParams, held: Held, hardware: HardwareInfo
) -> bool:
    """Whether there are such inputs, and registers for them beside what is held.

    H200, bf16, us without and with it: 16384x8192 normalized and added to another input 203 and 188, softmax
    times another input 210 and 193, RMS norm gated by another input 203 and 196; 16384x4096 101 and 97, 102
    and 97, 104 and 98; 5000x4096 35.8 and 35.1, 36.5 and 35.0, 40.7 and 41.3. Gated softmax down 512 and 1024
    rows in registers 64.3 and 58.0, 68.6 and 60.7, down 256 and 4096 in shared memory 72.1 and 73.0, 83.1 and
    86.9, of float 70.9 and 58.3, 77.7 and 75.9; columns centered and added to another input 58.9 and 55.7,
    63.3 and 58.1. Of rows in shared memory or clusters it is not known.
    """
    late = sum(tensor.dtype.size for tensor in space.read_late)
    if not late or not params.holds_batches or space.scans:
        return False
    in_shared = params.persistent_in_shared_memory
    if params.fastest_dim and (in_shared or params.blocks_per_cluster > 1):
        return False
    if params.staged_vector or params.shift_rows or params.unaligned_inputs:
        return False
    threads = max(1, params.lparams.bdimx) * max(1, params.lparams.bdimy) * max(1, params.lparams.bdimz)
    room = min(MAX_REGISTERS, hardware.registers_a_thread(threads) - REGISTERS_TO_WORK)
    width = params.unroll_factor_inner_reduction if params.fastest_dim else 1
    elements = width * params.batches_per_block_inner_reduction * params.unroll_factor_iter_dom
    in_registers = late if in_shared else held.at_once + late
    return elements * in_registers <= room * REGISTER_BYTES
