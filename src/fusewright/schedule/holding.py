"""Holds a part of the data of one load for a later load of the same elements."""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.core.enums import MemoryType
from fusewright.core.errors import ScheduleError
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Copy
from fusewright.ir.value import HeldPart, TensorView
from fusewright.schedule.caching import shape_twin
from fusewright.schedule.transforms import wrap


def hold_part(
    fusion: Fusion, load: TensorView, again: Sequence[TensorView], steps: int, position: int
) -> TensorView:
    """source -> load, again  becomes  source -> load -> held; source, held -> again. Returns `held`."""
    position = wrap(position, len(load.loop))
    axis = load.loop[position]
    if axis.parallel.is_thread or steps < 1 or not again:
        raise ScheduleError(
            f"hold_part: what {load.name} loads in some iterations of a loop is held for later loads",
            expected="1 iteration or more of a loop that no threads or blocks are bound to",
            given=f"{steps} of {axis}, for {len(again)} loads",
        )
    source = _loaded(fusion, load)
    for tensor in again:
        if tensor is load or _loaded(fusion, tensor) is not source:
            raise ScheduleError(
                f"hold_part: {tensor.name} does not load again what {load.name} does",
                expected=f"another copy of {source.name}",
                hint="recompute makes it",
            )
    held = shape_twin(fusion, load)
    held.memory = MemoryType.shared
    held.part = HeldPart(position, steps)
    fusion.add_node(Copy(load, held))
    for tensor in again:
        assert isinstance(tensor.definition, Copy)
        cache = tensor.definition.cache
        fusion.remove_node(tensor.definition)
        fusion.add_node(Copy(source, tensor, cache=cache, held=held))
    return held


def _loaded(fusion: Fusion, tensor: TensorView) -> TensorView:
    """The input that a tensor in registers is copied from, as it lies there."""
    node = tensor.definition
    source = node.inputs[0] if isinstance(node, Copy) and node.held is None else None
    if (
        not isinstance(source, TensorView)
        or not fusion.is_input(source)
        or source.dtype.in_memory is not tensor.dtype
        or tensor.memory is not MemoryType.local
    ):
        raise ScheduleError(
            f"hold_part: {tensor.name} is not copied from an input into registers as it lies there",
            hint="cache_after makes such a copy",
        )
    return source
