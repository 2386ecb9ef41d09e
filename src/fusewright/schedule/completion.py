"""Completes a schedule before lowering. It uses primitives, so the trace has each step.

A reduction accumulates in registers, and a scan carries its state there. If its result is scheduled to be an
output or in shared memory, it gets a register copy with the same loops and parallelization. The compiler must
know the number of registers, so a tensor whose register count depends on a size is inlined as far as
possible.
"""

from __future__ import annotations

from fusewright.core.enums import MemoryType
from fusewright.core.errors import ScheduleError
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Reduction, Scan
from fusewright.ir.value import TensorView
from fusewright.schedule.caching import cache_before
from fusewright.schedule.inlining import max_inline_position
from fusewright.schedule.propagate import parallelize_like, replay_loops
from fusewright.sym import as_int, substitute, symbol


def accumulated_in_memory(fusion: Fusion) -> list[TensorView]:
    """The results of reductions and scans that are not in registers."""
    return [tensor for tensor in fusion.tensors() if _is_in_memory(tensor)]


def _is_in_memory(tensor: TensorView) -> bool:
    return isinstance(tensor.definition, (Reduction, Scan)) and tensor.memory is not MemoryType.local


def accumulate_in_registers(fusion: Fusion, tensor: TensorView) -> TensorView:
    """reduction -> tensor  becomes  reduction -> copy in registers -> tensor, in the same loops."""
    if not _is_in_memory(tensor):
        raise ScheduleError(
            f"accumulate_in_registers: {tensor.name} is no result of a reduction or scan outside of registers"
        )
    inlined = tensor.inline_at
    local = cache_before(fusion, tensor)
    replay_loops(fusion, local, tensor, dict(zip(local.shape, tensor.shape)))
    parallelize_like(local, selected=[tensor])
    tensor.inline_at = inlined
    local.inline_at = max_inline_position(fusion, local)
    return local


def of_variable_size(fusion: Fusion) -> list[TensorView]:
    """The tensors for which the number of elements per thread depends on a size, whatever is assumed about
    it.
    """
    known = {
        size: symbol(size.name, lo=low, hi=high, multiple_of=size.multiple_of)
        for size, (low, high) in fusion.ranges.items()
    }
    return [
        tensor
        for tensor in fusion.tensors()
        if tensor.memory is MemoryType.local
        and any(
            as_int(substitute(axis.extent, known)) is None
            for axis in tensor.loop[tensor.inline_at :]
            if not axis.is_reduction and not axis.parallel.is_thread
        )
    ]
