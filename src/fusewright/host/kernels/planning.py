"""Plans the kernels of a fusion for a GPU, which may be absent. Planning compiles and runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from fusewright.core.collector import paused_collector
from fusewright.core.hardware import HardwareInfo
from fusewright.core.options import Options
from fusewright.core.tracing import SILENT, Tracer
from fusewright.host.inputs.binding import Binder
from fusewright.host.inputs.layout import Layouts
from fusewright.host.inputs.memory import Memory
from fusewright.host.kernels.calls import call_of
from fusewright.host.program.ir import LaunchKernel
from fusewright.host.program.plan import LaunchPlan
from fusewright.host.reuse.stable_sizes import StableSizes
from fusewright.ir import Fusion
from fusewright.runtime.compiled_kernel import CompiledKernel
from fusewright.runtime.compiler import KernelCompiler, index_dtype_of, unlimited
from fusewright.runtime.launch_sizes import LaunchShape
from fusewright.runtime.machine_code import MachineCode
from fusewright.runtime.targets import SimulatedTarget
from fusewright.runtime.transfer import kernel_to_bytes
from fusewright.schedulers import Facts, Proposal, Registry
from fusewright.segment import Partitions, Segment
from fusewright.sym import Symbol


@dataclass(frozen=True, slots=True)
class PlannedKernel:
    """A segment, and its scheduler's proposal.

    Attributes:
        index: the segment's position in launch order.
        facts: the facts about the call that the scheduler used.
    """

    index: int
    segment: Segment
    proposal: Proposal
    facts: Facts


class PlannedKernels:
    """The segments of a fusion for one call; compiles their kernels with any params.

    Args:
        fusion: the fusion after `rewrite.simplified`, as executors use it.
        inputs: the call's inputs; may be tensors without memory.
        device: the device on which the inputs would be.
        alignment: an upper bound in bytes for the alignment of each input's address. None: as torch
            allocates.
    """

    def __init__(
        self,
        fusion: Fusion,
        registry: Registry,
        inputs: Sequence[Any],
        device: torch.device,
        hardware: HardwareInfo,
        options: Options,
        alignment: Sequence[int] | None = None,
    ) -> None:
        binder = Binder(fusion)
        self._binding = binder.describe(binder.flatten(inputs), device)
        if alignment is not None:
            least = tuple(map(min, self._binding.alignment, alignment))
            self._binding = replace(self._binding, alignment=least)
        self._memory = Memory(fusion, self._binding, Layouts(fusion))
        self._hardware = hardware
        self._target = SimulatedTarget(options)  # a LaunchPlan needs a target; nothing is launched
        # Most of a search's params may fail. To find the primitive at fault would take as long as lowering.
        self._compiler = KernelCompiler(options, explains=False)
        stable: frozenset[Symbol] = frozenset()
        if not options.disabled("constant_sizes"):
            stable = StableSizes().with_call(self._binding.sizes)
        call = call_of(fusion, self._binding, self._memory, stable, hardware, horizontal=False)
        planned = Partitions(fusion, registry, self._memory.input_layouts).select(call, Tracer())
        segments = planned.partition.segments
        self.kernels = tuple(
            PlannedKernel(i, segment, proposal, call.facts(segment))
            for i, (segment, proposal) in enumerate(zip(segments, planned.proposals))
            if segment.evaluated is None
        )

    def compile(
        self, planned: PlannedKernel, params: Any, tracer: Tracer
    ) -> tuple[MachineCode, LaunchShape | None]:
        """The machine code of a segment's kernel with these params, and its launch in this call.

        The machine code is compiled on demand. The launch is None if there is nothing to write.

        Raises:
            UserError: the scheduler, or this call, does not accept the params.
        """
        segment = planned.segment
        params.validate(self._hardware)
        with paused_collector():
            kernel = self._kernel(planned, params, tracer)
        values = (*segment.inputs, *segment.outputs)
        op = LaunchKernel(planned.index, kernel, values, segment.outputs, segment.bases)
        shape = LaunchPlan(op, segment, self._target).shape(self._memory)
        return kernel.code(None if shape is None else shape.threads, tracer=tracer), shape

    def _kernel(self, planned: PlannedKernel, params: Any, tracer: Tracer) -> CompiledKernel:
        segment = planned.segment
        return self._compiler.compile(
            segment.fusion,
            segment.scheduler,
            params,
            self._hardware,
            index_dtype_of(params, self._binding.index_dtype),
            tracer=tracer,
            text=segment.text,
        )

    def lowered(self, planned: PlannedKernel, params: Any) -> bytes:
        """The serialized kernel that `compile` made, for `adopt` in another process."""
        return kernel_to_bytes(self._kernel(planned, unlimited(params), SILENT))

    def adopt(self, planned: PlannedKernel, lowered: bytes) -> None:
        """Makes all executors of this process use a kernel that another process lowered."""
        self._compiler.adopt(lowered, planned.segment.scheduler, planned.segment.text)
