"""What every scheduled fusion is brought to before it is lowered, so that the rules need not ask.

A reduction accumulates in registers, and a scan carries its state there: one that was scheduled to be an
output or in shared memory gets a register copy that is looped over and parallelized alike. Registers are as
many as the compiler sees: a tensor that would take as many as a size says is inlined as far as it can be.
"""

from __future__ import annotations

from fusewright.analyze.axis_map import sibling_keys
from fusewright.core.enums import MemoryType
from fusewright.core.errors import ScheduleError
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Node, Reduction, Scan
from fusewright.ir.value import TensorView, Val
from fusewright.ir.verify import verify_fusion
from fusewright.schedule.caching import cache_before
from fusewright.schedule.inlining import inline_most, max_inline_position
from fusewright.schedule.propagate import parallelize_like, replay_loops
from fusewright.sym import as_int


def prepare(fusion: Fusion) -> tuple[Fusion, dict[Val, Val]]:
    """The fusion with every reduction and scan computed in registers: itself, or a copy and the map from the
    copy's values back.

    Raises:
        ScheduleError: results that one statement computes are not scheduled alike.
        VerifyError: the fusion is not well-formed, by the fault of what scheduled it.
    """
    verify_fusion(fusion, "scheduling")
    for node in fusion.nodes:
        if not node.is_scalar:
            _check_siblings(node)
    if not any(map(_accumulates_in_memory, fusion.tensors())) and not _variable_tensors(fusion):
        return fusion, {}
    fusion, copies = fusion.clone()
    for tensor in fusion.tensors():
        if _accumulates_in_memory(tensor):
            _accumulate_in_registers(fusion, tensor)
    variable = _variable_tensors(fusion)
    if variable:
        inline_most(fusion, variable)
    return fusion, {copy: value for value, copy in copies.items()}


def _check_siblings(node: Node) -> None:
    first, *others = (out for out in node.outputs if isinstance(out, TensorView))
    for other in others:
        ours, theirs = sibling_keys(first, other)
        bound, elsewhere = ([a.parallel for a in t.loop] for t in (first, other))
        if ours != theirs or bound != elsewhere:
            raise ScheduleError(
                f"{other.name} is computed together with {first.name} but transformed differently",
                expected=str(first),
                given=str(other),
                hint=f"transform_like and parallelize_like make {other.name} follow {first.name}",
            )


def _accumulates_in_memory(tensor: TensorView) -> bool:
    """Whether it is a reduction or scan that was scheduled to be elsewhere than in registers."""
    return tensor.memory is not MemoryType.local and isinstance(tensor.definition, (Reduction, Scan))


def _variable_tensors(fusion: Fusion) -> list[TensorView]:
    return [tensor for tensor in fusion.tensors() if _is_of_variable_size(tensor)]


def _is_of_variable_size(tensor: TensorView) -> bool:
    """Whether a thread would hold as many elements of it as a size says."""
    return tensor.memory is MemoryType.local and any(
        as_int(axis.extent) is None
        for axis in tensor.loop[tensor.inline_at :]
        if not axis.is_reduction and not axis.parallel.is_thread
    )


def _accumulate_in_registers(fusion: Fusion, tensor: TensorView) -> None:
    inlined = tensor.inline_at
    local = cache_before(fusion, tensor)
    replay_loops(fusion, local, tensor, dict(zip(local.shape, tensor.shape)))
    parallelize_like(local, selected=[tensor])
    tensor.inline_at = inlined
    local.inline_at = max_inline_position(fusion, local)
