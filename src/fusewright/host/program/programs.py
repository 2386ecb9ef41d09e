"""Host programs: code for a sequence of plans, shared by all signatures that need it, and bound to each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn

import torch

from fusewright.core.errors import InputError
from fusewright.core.once import OnceCache
from fusewright.core.op import movable
from fusewright.core.recorded import computed
from fusewright.core.tracing import Tracer
from fusewright.cuda.driver import Dim3
from fusewright.host.inputs.binding import Binding
from fusewright.host.inputs.layout import Layouts
from fusewright.host.inputs.memory import Memory
from fusewright.host.inputs.memory_checks import in_own_memory, spanned_elements, storage_fault
from fusewright.host.inputs.scalars import ScalarFunction, scalar_value
from fusewright.host.program.build import build_program
from fusewright.host.program.codegen import HostCode, Program, codegen, fixed_scalars
from fusewright.host.program.evaluation import EvaluatePlan, plain_torch_names
from fusewright.host.program.ir import (
    Allocate,
    AllocateWorkspace,
    EvaluateScalar,
    HostProgram,
    KeepApart,
)
from fusewright.host.program.overlaps import Apart
from fusewright.host.program.plan import LaunchPlan, StepPlan, placed
from fusewright.host.program.views import Views
from fusewright.host.program.workspaces import ZeroedWorkspace
from fusewright.ir import Fusion, Scalar, TensorView, Val
from fusewright.runtime.arguments import Workspace
from fusewright.runtime.compiled_kernel import CompiledKernel
from fusewright.runtime.launch_sizes import LaunchShape
from fusewright.runtime.targets import CudaTarget, Target
from fusewright.schedulers import Proposal
from fusewright.segment import Segment
from fusewright.sym import Symbol

# The most templates and workspaces that are kept for new signatures. Bound programs keep their own anyway.
MAX_TEMPLATES = 1024
MAX_WORKSPACES = 1024

#: Returns whether flat inputs are known to have the key of an earlier call.
Matches = Callable[[Sequence[Any]], bool]

NO_VIEWS: Views = {}
# The span in bytes of a tensor without elements: so small that any storage holds it at any offset.
NO_BYTES = -(2**63)


class BoundProgram:
    """The program of one signature: `run(inputs)` executes the call; the other attributes are for inspection.

    Args:
        values: the values that the template is bound to.
        stable: the sizes that its kernels may have as constants.
        binding: the facts about its calls, or a function that returns them.

    Attributes:
        matches: recognizes calls of its signature. None until it serves two in a row (`repeated_calls`).
    """

    __slots__ = ("run", "matches", "template", "values", "stable", "_binding")

    def __init__(
        self,
        template: Template,
        values: tuple[Any, ...],
        stable: frozenset[Symbol],
        binding: Binding | Callable[[], Binding],
    ) -> None:
        self.run: Program = template.make(*values)
        self.matches: Matches | None = None
        self.template = template
        self.values = values
        self.stable = stable
        self._binding = binding

    @property
    def binding(self) -> Binding:
        """The facts about its calls."""
        if not isinstance(self._binding, Binding):
            self._binding = self._binding()
        return self._binding

    @property
    def names(self) -> dict[str, Any]:
        """The values of the names that the code of `run` uses."""
        return {**self.template.constants, **dict(zip(self.template.parameters, self.values))}

    @property
    def shapes(self) -> dict[LaunchPlan, LaunchShape | None]:
        """The shapes of its launches; None if there is nothing to write."""
        fusion = self.template.fusion
        memory = Memory(fusion, self.binding, Layouts(fusion))
        placed(fusion, self.plans, memory)
        return {launch: launch.shape(memory) for launch in self.launches}

    @property
    def plans(self) -> tuple[StepPlan, ...]:
        return self.template.plans

    @property
    def program(self) -> HostProgram:
        return self.template.program

    @property
    def code(self) -> HostCode:
        return self.template.code

    @property
    def launches(self) -> tuple[LaunchPlan, ...]:
        return tuple(plan for plan in self.plans if isinstance(plan, LaunchPlan))

    @property
    def kernels(self) -> tuple[CompiledKernel, ...]:
        return tuple(launch.op.kernel for launch in self.launches)


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    """A program before it is bound: its code, and the values that all bindings share.

    Attributes:
        plans: its steps, in order.
        constants: the values of names that are the same in every binding.
        setup: (result, function, operands) for each scalar that a signature fixes.
        fixed: (name, scalar) for each scalar that the code uses, a signature fixes and is not constant.
        parameters: the names that the code uses and each binding gives a value.
        make: makes the program from the values of `parameters`.
    """

    fusion: Fusion
    plans: tuple[StepPlan, ...]
    program: HostProgram
    code: HostCode
    constants: Mapping[str, Any]
    setup: tuple[tuple[Val, ScalarFunction, tuple[Val, ...]], ...]
    fixed: tuple[tuple[str, Scalar], ...]
    parameters: tuple[str, ...]
    make: Callable[..., Program]


@dataclass(frozen=True, slots=True)
class Chosen:
    """How a call is served.

    Attributes:
        plans: its steps, in order.
        views, empty: the outputs that need no step.
        proposals: the planners' proposals, by segment; none for a user's schedule of the whole fusion.
    """

    plans: Sequence[StepPlan]
    views: Views = field(default_factory=dict)
    empty: tuple[TensorView, ...] = ()
    proposals: Mapping[Segment, Proposal] = field(default_factory=dict)


def _without_computed_views(chosen: Chosen) -> Chosen:
    """The same, but an output that a step computes for others is returned as it is, and no view."""
    made = {tensor for plan in chosen.plans for tensor in plan.op.outputs}
    if made.isdisjoint(chosen.views):
        return chosen
    return replace(chosen, views={t: view for t, view in chosen.views.items() if t not in made})


class Programs:
    """Host programs of one fusion on one target, shared by all signatures that need the same kernels."""

    def __init__(self, fusion: Fusion, target: Target, static: frozenset[Val]) -> None:
        self.fusion = fusion
        self.target = target
        self._static = static
        #: whether there are outputs that are written into inputs
        self._writes = any(output.alias is not None for output in fusion.outputs)
        #: for each input tensor, (position, the name of its span in bytes, bytes of an element)
        self._stored = [
            (i, f"bytes_{value.name}", value.dtype.size)
            for i, value in enumerate(fusion.inputs)
            if isinstance(value, TensorView)
        ]
        self._templates: OnceCache[tuple[object, ...], Template] = OnceCache(MAX_TEMPLATES)
        self._workspaces: OnceCache[tuple[object, ...], ZeroedWorkspace] = OnceCache(MAX_WORKSPACES)

    def bind(
        self, chosen: Chosen, binding: Binding, memory: Memory, stable: frozenset[Symbol], tracer: Tracer
    ) -> BoundProgram:
        """The program that executes the chosen plans in order for the calls that `binding` describes.

        stable: the sizes that may be constants in the plans' kernels.
        """
        template, values = self.decided(chosen, binding, memory, tracer)
        return BoundProgram(template, values, stable, binding)

    def decided(
        self, chosen: Chosen, binding: Binding, memory: Memory, tracer: Tracer
    ) -> tuple[Template, tuple[Any, ...]]:
        """The template of that program, and the values to bind it to.

        If the numbers of `binding` are recorded (`core.recorded`), the values are recorded computations.
        """
        chosen = _without_computed_views(chosen)
        empty = chosen.empty
        viewed = {tensor: source for tensor, (source, _) in chosen.views.items()}
        plans = tuple(chosen.plans)
        in_place: dict[TensorView, TensorView] = {}
        if self._writes:
            plans, in_place = placed(self.fusion, plans, memory)
        names = self._names(plans, chosen, binding, memory, tracer)
        key = plans, tuple(in_place), tuple(viewed.items()), empty
        template = self._templates.get(
            key, lambda: self._write(plans, in_place, viewed, empty, names, tracer)
        )
        values = dict(binding.values)
        for result, function, operands in template.setup:
            values[result] = computed(function, *[scalar_value(v, values, binding.sizes) for v in operands])
        for name, scalar in template.fixed:
            names[name] = scalar_value(scalar, values, binding.sizes)
        for op in template.program.operations[:1]:
            if isinstance(op, KeepApart):
                names["keep_apart"] = self._apart(op, binding)
        return template, tuple([names[name] for name in template.parameters])

    def _names(
        self,
        plans: Sequence[StepPlan],
        chosen: Chosen,
        binding: Binding,
        memory: Memory,
        tracer: Tracer,
    ) -> dict[str, Any]:
        """The values that depend on the layouts of tensors, by the names that a program may use."""
        names: dict[str, Any] = {}
        for i, name, element_bytes in self._stored:
            names[name] = binding.spans[i] * element_bytes or NO_BYTES
        for tensor in (*chosen.empty, *(tensor for plan in plans for tensor in plan.op.outputs)):
            names[f"shape_{tensor.name}"], names[f"stride_{tensor.name}"], _ = memory.of(tensor)
        for tensor, (_, place) in chosen.views.items():
            names[f"shape_{tensor.name}"], names[f"stride_{tensor.name}"] = place.shape, place.strides
            names[f"offset_{tensor.name}"] = place.offset
        for plan in plans:
            if isinstance(plan, EvaluatePlan):
                names.update(plan.bound(memory))
            else:
                names.update(plan.bound(memory, self._zeroed, tracer))
        return names

    def _apart(self, op: KeepApart, binding: Binding) -> Any:
        positions = [self.fusion.inputs.index(tensor) for tensor in op.tensors]
        spans = [binding.spans[i] * tensor.dtype.torch.itemsize for i, tensor in zip(positions, op.tensors)]
        return computed(Apart, op, positions, tuple(spans))

    def _zeroed(
        self, kernel: CompiledKernel, argument: int, workspace: Workspace, count: int, grid: Dim3 | None
    ) -> ZeroedWorkspace:
        def allocate() -> ZeroedWorkspace:
            return ZeroedWorkspace(count, workspace.dtype.torch, self.target.device)

        return self._workspaces.get((kernel, argument, count, grid), allocate)

    def _write(
        self,
        plans: tuple[StepPlan, ...],
        in_place: dict[TensorView, TensorView],
        viewed: dict[TensorView, TensorView],
        empty: tuple[TensorView, ...],
        names: Collection[str],
        tracer: Tracer,
    ) -> Template:
        """Writes the program of these plans. `names`: the names that bindings give values (`_names`)."""
        steps = [plan.op for plan in plans]
        program = build_program(self.fusion, steps, in_place, self._static, viewed, empty)
        zeroed = any(isinstance(op, AllocateWorkspace) and op.zeroed for op in program.operations)
        on_cuda = isinstance(self.target, CudaTarget)
        several = on_cuda and torch.cuda.device_count() > 1
        code = codegen(program, self.target.takes_pointers, on_cuda or zeroed, several)
        tracer.dump("host", lambda: f"{program}\n{code.source}")
        constants = _target_names(self.target)
        allocated = [op.tensor for op in program.operations if isinstance(op, Allocate)]
        constants.update({f"dtype_{tensor.name}": tensor.dtype.torch for tensor in allocated})
        scalars = fixed_scalars(program)
        constants.update({name: scalar.value for name, scalar in scalars.items() if scalar.value is not None})
        for op in program.operations:
            if isinstance(op, EvaluateScalar):
                constants[f"eval_{op.node.outputs[0].name}"] = ScalarFunction(op.node)
        for plan in plans:
            constants.update(plan.constants)
        fixed = tuple([(name, scalar) for name, scalar in scalars.items() if scalar.value is None])
        parameters = code.used([*names, "keep_apart", *(name for name, _ in fixed)])
        setup = [(op.node.outputs[0], ScalarFunction(op.node), op.node.inputs) for op in program.setup]
        make = code.function(constants, parameters)
        return Template(self.fusion, plans, program, code, constants, tuple(setup), fixed, parameters, make)


def _target_names(target: Target) -> dict[str, Any]:
    names: dict[str, Any] = {
        "empty": _allocator(target.device),
        "stream": threading.get_ident,
        "draw": target.random_states.take,
        "copy_into": copy_into,
        "view": _view,
        "conjugated": in_own_memory,
        "no_storage": _refuse_storage,
        **plain_torch_names(),
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


def _allocator(device: torch.device) -> Callable[..., torch.Tensor]:
    """The function `empty(shape, strides, dtype)` for this device, which must be the current one of its type.

    If possible it is the function of torch.compile's own programs, twice as fast as torch.empty_strided.
    """
    direct = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    found = getattr(direct, f"_empty_strided_{device.type}", None)
    if found is not None:
        return found
    return lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype, device=device)


def copy_into(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copies a result into an input without a record for autograd, as a kernel would write it."""
    with torch.inference_mode():
        movable(target).copy_(movable(source))


def _view(
    source: torch.Tensor, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> torch.Tensor:
    """A view of a tensor with this shape, these strides and this offset, detached from autograd."""
    return source.detach().as_strided(shape, strides, source.storage_offset() + offset)


def _refuse_storage(tensor: torch.Tensor) -> NoReturn:
    span = spanned_elements(tensor.shape, tensor.stride())
    raise InputError(expected="tensors whose storage holds them", given=storage_fault(tensor, span))


# Returns the handle of torch's current stream without a Stream object, which saves time at each call.
_current_stream: Callable[[int], int] = getattr(
    torch._C, "_cuda_getCurrentRawStream", lambda index: torch.cuda.current_stream(index).cuda_stream
)
