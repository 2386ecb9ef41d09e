"""Profiles of calls: how the time of one call is distributed, and how fast its kernels moved their data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from time import perf_counter
from typing import Any

import torch

from fusewright.core.enums import SchedulerType
from fusewright.host.inputs.memory import Memory
from fusewright.host.program.plan import LaunchPlan, StepPlan
from fusewright.host.program.programs import BoundProgram
from fusewright.runtime.launch_sizes import LaunchShape
from fusewright.runtime.targets import Target
from fusewright.schedulers import type_name

MS = 1e3
#: The number of the CPU among a profile's devices.
CPU = -1


@dataclass(frozen=True)
class KernelProfile:
    """One launch, or one operation that torch computed.

    Sizes are in bytes. The format of `*_str` is "[x, y, z]", that of shared memory is "[dynamic, static]".

    Attributes:
        time_ms: on a GPU, the time between events around the launch; in the simulator, the simulation's time.
        compile_time_ms: the time of scheduling, lowering, printing and NVRTC, when it was compiled.
        correlation_id: its position in the call.
        input_bytes, output_bytes: the bytes of the tensors it reads and writes; each tensor counts once.
        scheduler: the scheduler's name, "user" for a user's schedule, or "expr_eval" if torch computed it.
            The kernels of torch are unknown.
    """

    name: str
    segment_id: int
    device: int
    stream: int
    correlation_id: int
    compile_time_ms: float
    time_ms: float
    effective_bandwidth_gbs: float
    percentage_peak_bandwidth: float
    grid_str: str
    block_str: str
    cluster_str: str
    shared_mem_str: str
    registers: int
    input_bytes: int
    output_bytes: int
    scheduler: str


@dataclass(frozen=True)
class FusionProfile:
    """One call. The names are nvFuser's, including `percentage_peak_bandwith`.

    Attributes:
        cuda_evt_time_ms: the time from the first launch to the end of the last; in the simulator, wall time.
        host_time_ms: the time until the call returned.
        compile_time_ms: the sum over all kernels, each when it was compiled.
        input_bytes, output_bytes: the bytes of the call's inputs and outputs, without intermediate tensors.
    """

    verbose: bool
    fusion_id: int
    segments: int
    cuda_evt_time_ms: float
    host_time_ms: float
    compile_time_ms: float
    kernel_time_ms: float
    effective_bandwidth_gbs: float
    percentage_peak_bandwith: float
    input_bytes: int
    output_bytes: int
    kernel_profiles: list[KernelProfile]


class _Clock:
    """Records times during a call; reads them when it is over."""

    def __init__(self, target: Target) -> None:
        self._on_gpu = target.device.type == "cuda"

    def now(self) -> Any:
        if not self._on_gpu:
            return perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def ms(self, start: Any, end: Any) -> float:
        if not self._on_gpu:
            return float(end - start) * MS
        end.synchronize()
        return float(start.elapsed_time(end))


def run_profiled(
    inputs: Sequence[Any],
    program: BoundProgram,
    memory: Memory,
    target: Target,
    fusion_id: int,
) -> tuple[list[torch.Tensor], FusionProfile]:
    """Runs the call with a clock at each launch. The program itself stays as it is."""
    clock, times = _Clock(target), {}

    def timed(index: int, step: Callable[..., object]) -> Callable[..., object]:
        def run(*arguments: Any) -> object:
            start = clock.now()
            result = step(*arguments)
            times[index] = start, clock.now()
            return result

        return run

    names, plans, shapes = program.names, program.plans, program.shapes
    steps = [f"{'launch' if isinstance(plan, LaunchPlan) else 'call'}_{plan.op.segment}" for plan in plans]
    run = program.code.function(names | {name: timed(i, names[name]) for i, name in enumerate(steps)})()
    begin = perf_counter()
    outputs = run(inputs)
    host_ms = (perf_counter() - begin) * MS

    kernels = [
        _kernel_profile(i, plan, shapes, memory, target, clock.ms(*times[i])) for i, plan in enumerate(plans)
    ]
    spans = list(times.values())
    elapsed = clock.ms(spans[0][0], spans[-1][1]) if spans else 0.0
    read, written = memory.bytes_of(program.program.inputs), sum(map(_tensor_bytes, outputs))
    kernel_ms = sum(kernel.time_ms for kernel in kernels)
    bandwidth = _bandwidth(read + written, kernel_ms)
    return outputs, FusionProfile(
        verbose=False,
        fusion_id=fusion_id,
        segments=len(kernels),
        cuda_evt_time_ms=elapsed,
        host_time_ms=host_ms,
        compile_time_ms=sum(kernel.compile_time_ms for kernel in kernels),
        kernel_time_ms=kernel_ms,
        effective_bandwidth_gbs=bandwidth,
        percentage_peak_bandwith=100 * bandwidth / target.hardware.memory_bandwidth_gbs,
        input_bytes=read,
        output_bytes=written,
        kernel_profiles=kernels,
    )


def combined_profile(
    profiles: Sequence[FusionProfile], inputs: Sequence[Any], outputs: Sequence[torch.Tensor], fusion_id: int
) -> FusionProfile:
    """The profile of a call that ran several fusions, at least one, one after another."""
    kernels: list[KernelProfile] = []
    for profile in profiles:
        first = len(kernels)
        kernels += [
            replace(k, segment_id=first + k.segment_id, correlation_id=first + k.correlation_id)
            for k in profile.kernel_profiles
        ]
    read = sum(_tensor_bytes(value) for value in inputs if isinstance(value, torch.Tensor))
    written = sum(map(_tensor_bytes, outputs))
    kernel_ms = sum(profile.kernel_time_ms for profile in profiles)
    bandwidth = _bandwidth(read + written, kernel_ms)
    shares = [p for p in profiles if p.effective_bandwidth_gbs]
    share = shares[0].percentage_peak_bandwith / shares[0].effective_bandwidth_gbs if shares else 0.0
    return FusionProfile(
        verbose=False,
        fusion_id=fusion_id,
        segments=len(kernels),
        cuda_evt_time_ms=sum(profile.cuda_evt_time_ms for profile in profiles),
        host_time_ms=sum(profile.host_time_ms for profile in profiles),
        compile_time_ms=sum(profile.compile_time_ms for profile in profiles),
        kernel_time_ms=kernel_ms,
        effective_bandwidth_gbs=bandwidth,
        percentage_peak_bandwith=bandwidth * share,
        input_bytes=read,
        output_bytes=written,
        kernel_profiles=kernels,
    )


def _kernel_profile(
    index: int,
    plan: StepPlan,
    shapes: Mapping[LaunchPlan, LaunchShape | None],
    memory: Memory,
    target: Target,
    time_ms: float,
) -> KernelProfile:
    written = memory.bytes_of(plan.op.outputs)
    outputs = set(plan.op.outputs)
    read = memory.bytes_of([value for value in plan.op.values if value not in outputs])
    bandwidth = _bandwidth(read + written, time_ms)
    device = target.device
    return KernelProfile(
        segment_id=plan.op.segment,
        device=CPU if device.index is None else device.index,
        stream=target.stream(),
        correlation_id=index,
        time_ms=time_ms,
        effective_bandwidth_gbs=bandwidth,
        percentage_peak_bandwidth=100 * bandwidth / target.hardware.memory_bandwidth_gbs,
        input_bytes=read,
        output_bytes=written,
        **(
            _launch_facts(plan, shapes[plan])
            if isinstance(plan, LaunchPlan)
            else {**NO_LAUNCH, "name": plan.op.node.label}
        ),
    )


def _launch_facts(launch: LaunchPlan, shape: LaunchShape | None) -> dict[str, Any]:
    """The fields of a kernel's profile that neither its time nor its data determine."""
    kernel = launch.op.kernel
    code = kernel.code(None if shape is None else shape.threads)
    shape = shape or LaunchShape((0, 0, 0), (0, 0, 0), 0)
    resources = code.resources()
    return {
        "name": kernel.name,
        "compile_time_ms": (kernel.compile_seconds + code.cubin().compile_seconds) * MS,
        "grid_str": str(list(shape.grid)),
        "block_str": str(list(shape.block)),
        "cluster_str": str([1, 1, 1]),
        "shared_mem_str": str([shape.shared_bytes, resources.static_shared]),
        "registers": resources.registers,
        "scheduler": kernel.scheduler,
    }


#: These fields for an operation that torch computed.
NO_LAUNCH: dict[str, Any] = {
    "compile_time_ms": 0.0,
    "grid_str": str([0, 0, 0]),
    "block_str": str([0, 0, 0]),
    "cluster_str": str([0, 0, 0]),
    "shared_mem_str": str([0, 0]),
    "registers": 0,
    "scheduler": type_name(SchedulerType.expr_eval),
}


def _bandwidth(bytes_: int, ms: float) -> float:
    """The bandwidth in GB/s; 0 if no time was measured."""
    return bytes_ / (ms / MS) / 1e9 if ms > 0 else 0.0


def _tensor_bytes(tensor: torch.Tensor) -> int:
    shape, strides = tensor.shape, tensor.stride()
    stored = prod(size for size, stride in zip(shape, strides) if stride or not size)
    return stored * tensor.element_size()
