"""One launch for several segments: the kernels of a bundle combined, as far as they can be for a call."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from fusewright.core.errors import InternalError, ScheduleError
from fusewright.core.hardware import MAX_GRID
from fusewright.host.plan import LaunchPlan, Memory, StepPlan
from fusewright.kernel.combine import common_block, statements
from fusewright.kernel.ir import Kernel, ScalarParam

logger = logging.getLogger("fusewright")

# Bytes of parameters that every GPU and driver takes, and of one parameter at most but for complex doubles.
MAX_PARAMETER_BYTES, PARAMETER_BYTES = 4096, 8
# Statements of a combined kernel. NVRTC takes about a millisecond for each, and a kernel is compiled by one
# thread; beyond, several kernels are compiled side by side sooner than one.
MAX_STATEMENTS = 1024


@dataclass
class _Bundle:
    """Launches that are one, and what they need together."""

    parts: list[LaunchPlan] = field(default_factory=list)
    blocks: int = 0
    bytes: int = 0
    statements: int = 0

    def takes(self, kernel: Kernel, blocks: int) -> bool:
        return (
            self.blocks + blocks <= MAX_GRID[0]
            and self.bytes + _parameter_bytes(kernel) <= MAX_PARAMETER_BYTES
            and self.statements + statements(kernel) <= MAX_STATEMENTS
        )

    def add(self, plan: LaunchPlan, blocks: int) -> None:
        kernel = plan.op.kernel.kernel
        self.parts.append(plan)
        self.blocks += blocks
        self.bytes += _parameter_bytes(kernel)
        self.statements += statements(kernel)


def bundled(
    plans: Sequence[StepPlan],
    launches: Sequence[Sequence[int]],
    memory: Memory,
    combined: Callable[[tuple[LaunchPlan, ...]], LaunchPlan],
) -> list[StepPlan]:
    """The plans in the order of `launches`, each of which makes one plan of its members if it can.

    Kernels have to agree in their block, index type and limit of registers, and fit into one kernel. What
    does not is launched by itself.

    Args:
        launches: positions in `plans` that are independent of each other.
        combined: makes one launch of several.
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
            bundle = open_bundles.get(key)
            if bundle is None or not bundle.takes(kernel.kernel, blocks):
                if bundle is not None:
                    result += _made(bundle, combined)
                bundle = open_bundles[key] = _Bundle()
            bundle.add(plan, blocks)
        for bundle in open_bundles.values():
            result += _made(bundle, combined)
    return result


def _made(
    bundle: _Bundle, combined: Callable[[tuple[LaunchPlan, ...]], LaunchPlan]
) -> list[LaunchPlan]:
    if len(bundle.parts) == 1:
        return bundle.parts
    try:
        return [combined(tuple(bundle.parts))]
    except InternalError as error:
        names = ", ".join(part.op.kernel.name for part in bundle.parts)
        logger.error("%s cannot be combined: %s\nThey are launched one by one.", names, error, exc_info=error)
        return bundle.parts


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
    """At most, with the end of its blocks."""
    sizes = [param.dtype.size if isinstance(param, ScalarParam) else 0 for param in kernel.params]
    return PARAMETER_BYTES + sum(max(size, PARAMETER_BYTES) for size in sizes)
