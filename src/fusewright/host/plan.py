"""From the kernels of a fusion and the facts of one call to the program that is bound to its signature."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from fusewright.core.errors import ScheduleError
from fusewright.core.options import Options
from fusewright.core.tracing import Tracer
from fusewright.host.binding import Binding
from fusewright.host.build import KernelUse, build_program
from fusewright.host.codegen import HostCode, Program, codegen, fixed_scalars
from fusewright.host.ir import Allocate, AllocateWorkspace, EvaluateScalar, HostProgram, LaunchKernel
from fusewright.host.layout import Layout
from fusewright.host.scalars import ScalarFunction, scalar_value
from fusewright.host.signature import ALIGNMENT_BYTES
from fusewright.host.workspaces import ZeroedWorkspace
from fusewright.ir import Fusion, TensorView, Val
from fusewright.kernel.ir import ScalarParam, TensorParam
from fusewright.runtime.arguments import Pointer, Size, Stride, Value, Workspace, symbol_values
from fusewright.runtime.compiler import CompiledKernel
from fusewright.runtime.in_place import may_overwrite
from fusewright.runtime.once import OnceCache
from fusewright.runtime.targets import CudaTarget, Target, launch_shape
from fusewright.sym import Symbol, evaluate


@dataclass(frozen=True, slots=True, eq=False)
class BoundProgram:
    """What serves one signature: `run(inputs)` does the call; the rest is for looking at."""

    run: Program
    kernels: tuple[CompiledKernel, ...]
    program: HostProgram
    code: HostCode


class Memory:
    """Shape, strides and alignment of every tensor that kernels touch in one call."""

    def __init__(self, fusion: Fusion, binding: Binding, layouts: Mapping[TensorView, Layout]) -> None:
        self._binding = binding
        self._layouts = layouts
        self._facts: dict[Val, tuple[tuple[int, ...], tuple[int, ...], int]] = {
            value: (binding.shapes[i], binding.strides[i], binding.alignment[i])
            for i, value in enumerate(fusion.inputs)
        }

    def of(self, value: Val) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        """(shape, strides, alignment in bytes); empty for a scalar."""
        found = self._facts.get(value)
        if found is None:
            layout = self._layouts.get(value) if isinstance(value, TensorView) else None
            shape, strides = layout.at(self._binding.sizes) if layout is not None else ((), ())
            found = self._facts[value] = shape, strides, ALIGNMENT_BYTES
        return found

    def symbols(self, use: KernelUse) -> dict[Symbol, int]:
        """The values of the kernel's symbols."""
        strides = [self.of(value)[1] for value in use.values]
        return symbol_values(use.kernel.symbols, self._binding.sizes, strides)


def in_place_outputs(
    fusion: Fusion, uses: Sequence[KernelUse], memory: Memory
) -> dict[TensorView, TensorView]:
    """Aliased outputs that their kernel may write straight into the aliased input.

    It may if it writes them with that input's strides, no later kernel reads the input, and the kernel itself
    reads an element before it overwrites it. All others are computed elsewhere and copied at the end.
    """
    aliases = {o.tensor: o.alias for o in fusion.outputs if o.alias is not None}
    homes = list(aliases.values())
    found: dict[TensorView, TensorView] = {}
    for tensor, home in aliases.items():
        position = next((i for i, use in enumerate(uses) if tensor in use.outputs), None)
        if position is None or homes.count(home) > 1 or tensor.dtype is not home.dtype:
            continue
        if any(home in use.values for use in uses[position + 1 :]):
            continue
        if memory.of(tensor)[:2] != memory.of(home)[:2]:
            continue
        if _kernel_allows(uses[position], home, tensor, memory):
            found[tensor] = home
    return found


def _kernel_allows(use: KernelUse, home: TensorView, tensor: TensorView, memory: Memory) -> bool:
    buffers = {
        use.values[source.slot]: param.buffer
        for param, source in zip(use.kernel.kernel.params, use.kernel.arguments)
        if isinstance(source, Pointer) and isinstance(param, TensorParam)
    }
    needed = {a.buffer: a.bytes for a in use.kernel.kernel.alignments}
    if tensor not in buffers or memory.of(home)[2] % needed.get(buffers[tensor], 1):
        return False
    if home not in buffers:
        return True
    return may_overwrite(use.kernel.kernel, buffers[home], buffers[tensor], memory.symbols(use))


class Programs:
    """Host programs of one fusion on one target, shared by all signatures that need the same kernels."""

    def __init__(self, fusion: Fusion, target: Target) -> None:
        self.fusion = fusion
        self.target = target
        self._codes: OnceCache[tuple[object, ...], tuple[HostProgram, HostCode]] = OnceCache()
        self._workspaces: OnceCache[tuple[object, ...], ZeroedWorkspace] = OnceCache()

    def bind(
        self,
        uses: Sequence[KernelUse],
        binding: Binding,
        memory: Memory,
        tracer: Tracer,
    ) -> BoundProgram:
        """The function for calls that `binding` describes."""
        in_place = in_place_outputs(self.fusion, uses, memory)
        static = frozenset(binding.values)
        key = (tuple(use.kernel for use in uses), tuple(in_place), static)
        program, code = self._codes.get(key, lambda: self._write(uses, in_place, static, tracer))
        names = self._names(program, binding, memory, tracer)
        run = names["run_here"] = code.bind(names)
        return BoundProgram(run, tuple(use.kernel for use in uses), program, code)

    def _write(
        self,
        uses: Sequence[KernelUse],
        in_place: dict[TensorView, TensorView],
        static: frozenset[Val],
        tracer: Tracer,
    ) -> tuple[HostProgram, HostCode]:
        program = build_program(self.fusion, uses, in_place, static)
        zeroed = any(isinstance(op, AllocateWorkspace) and op.zeroed for op in program.operations)
        on_cuda = isinstance(self.target, CudaTarget)
        several = on_cuda and torch.cuda.device_count() > 1
        code = codegen(program, self.target.takes_pointers, on_cuda or zeroed, several)
        tracer.dump("host", lambda: f"{program}\n{code.source}")
        return program, code

    # ---- what a bound program knows by name

    def _names(
        self, program: HostProgram, binding: Binding, memory: Memory, tracer: Tracer
    ) -> dict[str, Any]:
        names = _target_names(self.target)
        for name, scalar in fixed_scalars(program).items():
            names[name] = scalar_value(scalar, binding.values, binding.sizes)
        for op in program.operations:
            if isinstance(op, Allocate):
                name = op.tensor.name
                names[f"shape_{name}"], names[f"stride_{name}"], _ = memory.of(op.tensor)
                names[f"dtype_{name}"] = op.tensor.dtype.torch
            elif isinstance(op, EvaluateScalar):
                names[f"eval_{op.node.outputs[0].name}"] = ScalarFunction(op.node)
            elif isinstance(op, LaunchKernel):
                names.update(self._launch_names(op, memory, binding, tracer))
        return names

    def _launch_names(
        self, op: LaunchKernel, memory: Memory, binding: Binding, tracer: Tracer
    ) -> dict[str, Any]:
        kernel = op.kernel
        use = KernelUse(kernel, op.values, op.outputs)
        values = memory.symbols(use)
        _check_alignment(use, memory)
        names: dict[str, Any] = {}
        if any(0 not in memory.of(tensor)[0] for tensor in op.outputs):
            shape = launch_shape(kernel, values)
            tracer.dump("launch", lambda: f"{kernel.name}: {shape}")
            names[f"launch_{op.segment}"] = self.target.launcher(kernel, shape, tracer)
        else:
            names[f"launch_{op.segment}"] = _launch_nothing
        for j, (param, source) in enumerate(zip(kernel.kernel.params, kernel.arguments)):
            if isinstance(source, Size):
                names[f"c{op.segment}_{j}"] = evaluate(source.extent, binding.sizes)
            elif isinstance(source, Stride):
                names[f"c{op.segment}_{j}"] = memory.of(op.values[source.slot])[1][source.dim]
            elif isinstance(source, Workspace):
                names[f"alloc_work{op.segment}_{j}"] = self._workspace(op, j, source, values)
            elif isinstance(source, Value) and isinstance(param, ScalarParam):
                names[f"as{op.segment}_{j}"] = partial(self.target.argument, param)
        return names

    def _workspace(
        self, op: LaunchKernel, argument: int, source: Workspace, values: Mapping[Symbol, int]
    ) -> Callable[[int], torch.Tensor]:
        count = max(1, evaluate(source.size, values))
        dtype, device = source.dtype.torch, self.target.device
        if source.zeroed:
            key = (op.kernel, argument, count)
            return self._workspaces.get(key, lambda: ZeroedWorkspace(count, dtype, device))
        return lambda stream: torch.empty(count, dtype=dtype, device=device)


def _launch_nothing(stream: int, values: Sequence[Any]) -> None:
    """Stands for the launch of a kernel that has nothing to write."""


def _check_alignment(use: KernelUse, memory: Memory) -> None:
    """Raises ScheduleError if a pointer is less aligned than the kernel's vector accesses need."""
    needed = {alignment.buffer: alignment.bytes for alignment in use.kernel.kernel.alignments}
    for param, source in zip(use.kernel.kernel.params, use.kernel.arguments):
        if isinstance(source, Pointer) and isinstance(param, TensorParam) and param.buffer in needed:
            value, bytes_ = use.values[source.slot], needed[param.buffer]
            if memory.of(value)[2] % bytes_:
                raise ScheduleError(
                    f"{value.name} is vectorized, so its address must be a multiple of {bytes_} bytes",
                    given=f"a multiple of {memory.of(value)[2]}",
                    hint="vectorize less, or pass a tensor that starts at such an address",
                )


def _target_names(target: Target) -> dict[str, Any]:
    names: dict[str, Any] = {
        "empty": torch.empty_strided,
        "device": target.device,
        "stream": threading.get_ident,
    }
    if isinstance(target, CudaTarget):
        index = target.device.index
        names |= {
            "stream": partial(_current_stream, index),
            "device_index": index,
            "current_device": torch.cuda.current_device,
            "on_device": partial(torch.cuda.device, index),
        }
    return names


# The handle of torch's current stream without a Stream object around it, which is a microsecond less a call.
_current_stream: Callable[[int], int] = getattr(
    torch._C, "_cuda_getCurrentRawStream", lambda index: torch.cuda.current_stream(index).cuda_stream
)


def options_key(options: Options) -> tuple[object, ...]:
    """What of the options a program depends on."""
    return (options.code_key(), options.sim_device, options.cache_dir, options.disabled("nvrtc_caching"))
