"""Circular buffers: tensors in shared memory that bulk copies fill ahead of their readers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from fusewright.core.enums import MemoryType, ParallelType
from fusewright.core.errors import ScheduleError
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Copy
from fusewright.ir.value import CircularBuffer, TensorView
from fusewright.schedule.transforms import MAX_FACTOR

# What the hardware may give a thread (PTX ISA, setmaxnreg).
REGISTERS = range(24, 257, 8)


def circular_buffer(fusion: Fusion, tensor: TensorView, stages: int, prefetch: int, pos: int) -> None:
    _set(fusion, "circular_buffer", tensor, CircularBuffer(stages, prefetch, pos))


def warp_specialize(
    fusion: Fusion,
    tensor: TensorView,
    stages: int,
    prefetch: int,
    parallel: ParallelType,
    registers: Sequence[int] | None,
    pos: int,
) -> None:
    if not parallel.is_block:
        raise ScheduleError(
            "warp_specialize: the warp that loads is one of the block",
            expected="block_x, block_y or block_z",
            given=parallel.name,
        )
    if registers is not None:
        load, compute = (*registers, 0, 0)[:2]
        if len(registers) != 2 or load not in REGISTERS or compute not in REGISTERS or load > compute:
            raise ScheduleError(
                "warp_specialize: num_registers are those of a thread that loads and of one that computes",
                expected=f"two multiples of 8 from {REGISTERS[0]} to {REGISTERS[-1]}, the second not less",
                given=str(list(registers)),
            )
    given = (registers[0], registers[1]) if registers is not None else None
    _set(fusion, "warp_specialize", tensor, CircularBuffer(stages, prefetch, pos, parallel, given))


def _set(fusion: Fusion, primitive: str, tensor: TensorView, ring: CircularBuffer) -> None:
    """Checks and completes `ring`, and binds the innermost axis to the copy engine."""
    node = tensor.definition
    if tensor.memory is not MemoryType.shared or not isinstance(node, Copy):
        raise ScheduleError(
            f"{primitive}: {tensor.name} is no copy of an input in shared memory",
            given=f"a tensor in {tensor.memory.name.rstrip('_')} memory",
            hint="cache_after makes a copy of an input, set_memory_type places it in shared memory",
        )
    source = node.tensor_inputs[0]
    if not fusion.is_input(source) or source.is_cpu or source.dtype is not tensor.dtype:
        raise ScheduleError(f"{primitive}: {tensor.name} is copied from {source.name}, which is no input")
    if not 2 <= ring.stages <= MAX_FACTOR:
        raise ScheduleError(
            f"{primitive}: takes 2 stages or more",
            expected=f"2 to {MAX_FACTOR}",
            given=str(ring.stages),
        )
    prefetch = ring.prefetch + ring.stages if ring.prefetch < 0 else ring.prefetch
    least = 1 if ring.parallel is None else 0
    if not least <= prefetch < ring.stages:
        raise ScheduleError(
            f"{primitive}: prefetch_distance says how many of {ring.stages} stages are filled ahead",
            expected=f"{least} to {ring.stages - 1}",
            given=str(ring.prefetch),
        )
    rank = len(tensor.loop)
    position = ring.position + rank if ring.position < 0 else ring.position
    if not 0 <= position < rank:
        raise ScheduleError(
            f"{primitive}: pos is a position among the loops of {tensor.name}",
            expected=f"-{rank} to {rank - 1}",
            given=str(ring.position),
        )
    if any(axis.parallel.is_block for axis in tensor.loop) or tensor.loop[-1].parallel.is_grid:
        raise ScheduleError(
            f"{primitive}: one thread copies {tensor.name}, so none of its axes is bound to threads",
            given=str(tensor),
        )
    tensor.loop[-1].parallel = ParallelType.tma
    tensor.circular = dataclasses.replace(ring, prefetch=prefetch, position=position)
