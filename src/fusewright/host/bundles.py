"""One launch for several segments: the kernels of a bundle combined, as far as they can be for a call."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from math import prod
from operator import gt
from typing import Any

from fusewright.core.errors import InternalError, ScheduleError
from fusewright.core.hardware import MAX_GRID
from fusewright.host.plan import LaunchPlan, Memory, StepPlan
from fusewright.kernel.combine import common_block, statement_count
from fusewright.kernel.ir import Kernel, ScalarParam

logger = logging.getLogger("fusewright")

# Bytes of parameters that every GPU and driver takes.
MAX_PARAMETER_BYTES, POINTER_BYTES = 4096, 8
# Statements of a combined kernel, those of equal parts once. NVRTC takes some half a millisecond for each in
# one thread, so several kernels are compiled side by side sooner than a longer one.
MAX_STATEMENTS = 512


class _Bundle:
    """Launches that are one, and what they need together."""

    def __init__(self) -> None:
        self._parts: dict[str, list[LaunchPlan]] = {}
        self._blocks = 0
        self._bytes = POINTER_BYTES
        self._statements = 0

    @property
    def parts(self) -> list[LaunchPlan]:
        """Equal kernels beside each other, which share their code."""
        return [plan for equal in self._parts.values() for plan in equal]

    def add(self, plan: LaunchPlan, blocks: int) -> bool:
        """Takes the launch in if there is room for it."""
        kernel = plan.op.kernel.kernel
        count = 0 if kernel.name in self._parts else statement_count(kernel)
        sums = self._blocks + blocks, self._bytes + _parameter_bytes(kernel), self._statements + count
        if self._parts and any(map(gt, sums, (MAX_GRID[0], MAX_PARAMETER_BYTES, MAX_STATEMENTS))):
            return False
        self._parts.setdefault(kernel.name, []).append(plan)
        self._blocks, self._bytes, self._statements = sums
        return True


def bundled(
    plans: Sequence[StepPlan],
    launches: Sequence[Sequence[int]],
    memory: Memory,
    combined: Callable[[tuple[LaunchPlan, ...]], LaunchPlan | None],
) -> list[StepPlan]:
    """The plans in the order of `launches`, each of which makes one plan of its members if it can.

    Kernels have to agree in their block, index type and limit of registers, and fit into one kernel. What
    does not is launched by itself.

    Args:
        launches: positions in `plans` that are independent of each other.
        combined: makes one launch of several; None: they are to be launched one by one.
    """
    result: list[StepPlan] = []
    for members in launches:
        open_bundles: dict[Any, _Bundle] = {}
        for plan in (plans[i] for i in members):
            blocks = _blocks(plan, memory) if len(members) > 1 else None
            if blocks is None or not isinstance(plan, LaunchPlan):
                result.append(plan)
                continue
            kernel = plan.op.kernel
            key = common_block(kernel.kernel), kernel.index_dtype, kernel.register_limit
            bundle = open_bundles.setdefault(key, _Bundle())
            if not bundle.add(plan, blocks):
                result += _made(bundle.parts, combined)
                bundle = open_bundles[key] = _Bundle()
                bundle.add(plan, blocks)
        for bundle in open_bundles.values():
            result += _made(bundle.parts, combined)
    return result


def _made(
    parts: list[LaunchPlan], combined: Callable[[tuple[LaunchPlan, ...]], LaunchPlan | None]
) -> list[LaunchPlan]:
    if len(parts) == 1:
        return parts
    try:
        one = combined(tuple(parts))
    except InternalError as error:
        names = ", ".join(part.op.kernel.name for part in parts)
        logger.error("%s cannot be combined: %s\nThey are launched one by one.", names, error, exc_info=error)
        return parts
    return parts if one is None else [one]


def _blocks(plan: StepPlan, memory: Memory) -> int | None:
    """The blocks of a launch that may be part of another; None if it may not."""
    if not isinstance(plan, LaunchPlan) or common_block(plan.op.kernel.kernel) is None:
        return None
    try:
        shape = plan.shape(memory)
    except ScheduleError:
        return None
    return None if shape is None else prod(shape.grid)


def _parameter_bytes(kernel: Kernel) -> int:
    """Of a part, with the number of its first block, if the next part begins at a multiple of a pointer."""
    sizes = [param.dtype.size if isinstance(param, ScalarParam) else POINTER_BYTES for param in kernel.params]
    end = 0
    for size in (*sizes, kernel.index_dtype.size, POINTER_BYTES):
        end = -(-end // size) * size + size
    return end - POINTER_BYTES
