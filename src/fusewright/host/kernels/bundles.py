"""Combines the kernels of several segments into one launch, if a call allows it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from math import prod
from operator import gt
from typing import Any

from fusewright.core.errors import InternalError, ScheduleError
from fusewright.core.hardware import MAX_GRID, MAX_PARAMETER_BYTES
from fusewright.core.once import OnceCache
from fusewright.core.tracing import Tracer
from fusewright.host.inputs.memory import Memory
from fusewright.host.program.ir import LaunchKernel
from fusewright.host.program.plan import LaunchPlan, StepPlan
from fusewright.kernel.combine import common_block, statement_count
from fusewright.kernel.ir import Kernel
from fusewright.kernel.operands import POINTER_BYTES, packed_bytes, param_size
from fusewright.runtime.compiler import KernelCompiler
from fusewright.runtime.targets import Target
from fusewright.segment import Segment

logger = logging.getLogger("fusewright")

# The most statements of a combined kernel; statements of equal parts count once. NVRTC's time grows with the
# statements of a kernel, and it compiles several kernels in parallel but each in one thread.
MAX_STATEMENTS = 512
# The most combined kernels of the same segments with different params, each compiled as a whole. Calls that
# need more launch the segments one by one: each segment has as many kernels as it has params, while their
# combinations multiply.
MAX_COMBINATIONS = 4
# The most sets of segments whose combined launches are kept.
MAX_BUNDLES = 1024


class _Bundle:
    """Launches that are to be combined, and what they require together."""

    def __init__(self) -> None:
        self._parts: dict[str, list[LaunchPlan]] = {}
        self._blocks = 0
        self._bytes = POINTER_BYTES
        self._statements = 0

    @property
    def parts(self) -> tuple[LaunchPlan, ...]:
        """The launches; those of equal kernels are adjacent and share their code."""
        return tuple([plan for equal in self._parts.values() for plan in equal])

    def add(self, plan: LaunchPlan, blocks: int) -> bool:
        """Adds a launch if the limits allow it; returns whether they do."""
        kernel = plan.op.kernel.kernel
        count = 0 if kernel.name in self._parts else statement_count(kernel)
        sums = self._blocks + blocks, self._bytes + _parameter_bytes(kernel), self._statements + count
        if self._parts and any(map(gt, sums, (MAX_GRID[0], MAX_PARAMETER_BYTES, MAX_STATEMENTS))):
            return False
        self._parts.setdefault(kernel.name, []).append(plan)
        self._blocks, self._bytes, self._statements = sums
        return True


class Bundles:
    """Makes and caches the combined launches of several segments on one device."""

    def __init__(self, compiler: KernelCompiler, target: Target) -> None:
        self._compiler = compiler
        self._target = target
        #: the segments of a combined launch -> their launches -> the combined launch
        self._made: OnceCache[frozenset[Segment | None], OnceCache[tuple[LaunchPlan, ...], LaunchPlan]] = (
            OnceCache(MAX_BUNDLES)
        )

    def joined(
        self,
        plans: Sequence[StepPlan],
        launches: Sequence[Sequence[int]],
        memory: Memory,
        tracer: Tracer,
    ) -> list[StepPlan]:
        """The plans in the order of `launches`; the members of each launch are combined where possible.

        Kernels are combined if they have the same block, index type and limit of registers and fit into one
        kernel. Any other kernel is launched by itself.

        Args:
            launches: for each launch, the positions of its members in `plans`. Members do not depend on each
                other.
        """
        result: list[StepPlan] = []
        for members in launches:
            if len(members) == 1:
                result.append(plans[members[0]])
                continue
            open_bundles: dict[Any, _Bundle] = {}
            for plan in (plans[i] for i in members):
                blocks = _blocks(plan, memory)
                if blocks is None or not isinstance(plan, LaunchPlan):
                    result.append(plan)
                    continue
                kernel = plan.op.kernel
                key = common_block(kernel.kernel), kernel.index_dtype, kernel.register_limit
                bundle = open_bundles.setdefault(key, _Bundle())
                if not bundle.add(plan, blocks):
                    result += self._combined(bundle.parts, tracer)
                    bundle = open_bundles[key] = _Bundle()
                    bundle.add(plan, blocks)
            for bundle in open_bundles.values():
                result += self._combined(bundle.parts, tracer)
        return result

    def _combined(self, parts: tuple[LaunchPlan, ...], tracer: Tracer) -> Sequence[LaunchPlan]:
        """The combined launch of these parts; the parts themselves if they cannot be combined.

        They are not combined if MAX_COMBINATIONS kernels of these segments exist already.
        """
        if len(parts) == 1:
            return parts
        known = self._made.get(frozenset(part.segment for part in parts), lambda: OnceCache())
        if parts not in known and len(known) >= MAX_COMBINATIONS:
            return parts
        try:
            return [known.get(parts, lambda: self._make(parts, tracer))]
        except InternalError as error:
            names = ", ".join(part.op.kernel.name for part in parts)
            problem = f"{names} cannot be combined: {error}\nThey are launched one by one."
            logger.error("%s", problem, exc_info=error)
            return parts

    def _make(self, parts: tuple[LaunchPlan, ...], tracer: Tracer) -> LaunchPlan:
        kernels, slots = [part.op.kernel for part in parts], [len(part.op.values) for part in parts]
        kernel = self._compiler.combine(kernels, slots, tracer=tracer)
        values = tuple(value for part in parts for value in part.op.values)
        outputs = tuple(tensor for part in parts for tensor in part.op.outputs)
        bases = {tensor: base for part in parts for tensor, base in part.op.bases.items()}
        op = LaunchKernel(parts[0].op.segment, kernel, values, outputs, bases)
        return LaunchPlan(op, None, self._target, parts)


def _blocks(plan: StepPlan, memory: Memory) -> int | None:
    """The number of blocks of a launch that may be part of a combined one; None for any other step."""
    if not isinstance(plan, LaunchPlan) or common_block(plan.op.kernel.kernel) is None:
        return None
    if any(out.definition is not None and out.definition.traits.updates for out in plan.op.bases):
        return None
    try:
        shape = plan.shape(memory)
    except ScheduleError:
        return None
    return None if shape is None else prod(shape.grid)


def _parameter_bytes(kernel: Kernel) -> int:
    """The bytes of a part's parameters and of the number of its first block, in whole pointers."""
    sizes = map(param_size, kernel.params)
    next_part = POINTER_BYTES
    return packed_bytes([*sizes, kernel.index_dtype.size, next_part]) - next_part
