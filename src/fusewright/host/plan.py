"""From the kernels of a fusion and the facts of one call to the program that is bound to its signature."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

import torch

from fusewright.core.errors import InputError, ScheduleError, SimulationError
from fusewright.core.once import OnceCache
from fusewright.core.op import movable
from fusewright.core.recorded import asked, computed
from fusewright.core.tracing import Tracer
from fusewright.cuda.driver import Dim3
from fusewright.host.binding import Binding
from fusewright.host.build import build_program
from fusewright.host.codegen import HostCode, Program, codegen, fixed_scalars
from fusewright.host.evaluation import EvaluatePlan, plain_torch_names
from fusewright.host.ir import (
    Allocate,
    AllocateWorkspace,
    EvaluateScalar,
    HostProgram,
    KeepApart,
    LaunchKernel,
)
from fusewright.host.layout import Layouts, size_value
from fusewright.host.memory import Memory
from fusewright.host.memory_checks import in_own_memory, spanned_elements, storage_fault
from fusewright.host.overlaps import Apart
from fusewright.host.scalars import ScalarFunction, scalar_value
from fusewright.host.views import Views
from fusewright.host.workspaces import ZeroedWorkspace
from fusewright.ir import Copy, Fusion, Scalar, TensorView, Update, Val
from fusewright.kernel.combine import part_symbol
from fusewright.kernel.ir import Buffer, ScalarParam, TensorParam
from fusewright.runtime.arguments import Pointer, Size, Stride, Value, Workspace
from fusewright.runtime.compiled_kernel import CompiledKernel
from fusewright.runtime.in_place import may_overwrite
from fusewright.runtime.launch_sizes import LaunchShape
from fusewright.runtime.targets import CudaTarget, Launch, Target
from fusewright.schedulers import Proposal
from fusewright.segment import Segment
from fusewright.sym import Symbol

# Kept for new signatures; programs that are bound already keep theirs.
MAX_TEMPLATES = 1024
MAX_WORKSPACES = 1024

NO_VIEWS: Views = {}
# Bytes that a tensor without elements needs of its storage, wherever in it it starts.
NO_BYTES = -(2**63)
# A name of a part in a kernel that is made of several, with the part's number and its own name.
_PART_NAME = re.compile(r"\b(p(\d+)\.([A-Za-z_]\w*))")


class BoundProgram:
    """What serves one signature: `run(inputs)` does the call; the rest is for looking at.

    Args:
        values: what the template is bound to.
        stable: the sizes that its kernels may take to be constant.
        binding: what is known of its calls, or what finds it when somebody asks.
    """

    __slots__ = ("run", "template", "values", "stable", "_binding")

    def __init__(
        self,
        template: Template,
        values: tuple[Any, ...],
        stable: frozenset[Symbol],
        binding: Binding | Callable[[], Binding],
    ) -> None:
        self.run: Program = template.make(*values)
        self.template = template
        self.values = values
        self.stable = stable
        self._binding = binding

    @property
    def binding(self) -> Binding:
        """What is known of its calls."""
        if not isinstance(self._binding, Binding):
            self._binding = self._binding()
        return self._binding

    @property
    def names(self) -> dict[str, Any]:
        """What the code of `run` knows by name."""
        return {**self.template.constants, **dict(zip(self.template.parameters, self.values))}

    @property
    def shapes(self) -> dict[LaunchPlan, LaunchShape | None]:
        """Of its launches; None where there is nothing to write."""
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


class LaunchError(ScheduleError):
    """The kernel of a segment cannot be launched with the sizes, or at the addresses, of a call."""

    def __init__(self, launch: LaunchPlan, cause: ScheduleError) -> None:
        super().__init__(cause.message, hint=cause.hint, location=cause.location, **cause.facts)
        self.launch = launch
        self.cause = cause


#: `zeroed(kernel, argument, workspace, count, grid)` yields workspaces that are kept between launches of one
#: grid.
Zeroed = Callable[[CompiledKernel, int, Workspace, int, Dim3 | None], ZeroedWorkspace]


class LaunchPlan:
    """One launch of a program: what no size changes, worked out once, and what a call's sizes make of it.

    segment: what it computes; None: a user's schedule of the whole fusion, or several segments.
    parts: the launches that it stands for: itself, or one for each of several segments.
    """

    def __init__(
        self,
        op: LaunchKernel,
        segment: Segment | None,
        target: Target,
        parts: tuple[LaunchPlan, ...] = (),
    ) -> None:
        kernel = op.kernel
        self.op = op
        self.segment = segment
        self.parts = parts or (self,)
        self.sizes = kernel.sizes
        self._target = target
        #: whether several segments are computed by this one launch
        self.is_combined = bool(parts)
        #: the buffer of each tensor that the kernel takes the address of
        self.buffers: dict[Val, Buffer] = {}
        self._sized: list[str] = []
        self._strided: list[tuple[str, Val, int]] = []
        self._workspaces: list[tuple[int, Workspace]] = []
        self.constants: dict[str, Any] = {}
        for j, (param, source) in enumerate(zip(kernel.kernel.params, kernel.arguments)):
            name = f"c{op.segment}_{j}"
            if isinstance(source, Size):
                self._sized.append(name)
            elif isinstance(source, Stride):
                self._strided.append((name, op.values[source.slot], source.dim))
            elif isinstance(source, Workspace):
                self._workspaces.append((j, source))
            elif isinstance(source, Pointer) and isinstance(param, TensorParam):
                self.buffers[op.values[source.slot]] = param.buffer
            elif isinstance(source, Value) and isinstance(param, ScalarParam):
                self.constants[f"as{op.segment}_{j}"] = partial(target.argument, param)
        needed = {alignment.buffer: alignment.bytes for alignment in kernel.kernel.alignments}
        #: bytes that a tensor's address must be a multiple of, where vectors are accessed
        self.alignments = {v: needed[buffer] for v, buffer in self.buffers.items() if buffer in needed}

    def symbols(self, memory: Memory, sizes: Mapping[Symbol, int] | None = None) -> dict[Symbol, int]:
        """The values of the kernel's symbols. sizes: those that it was made for, if they are known."""
        values = self.op.values
        strides = [memory.stride(values[slot], dim) for _, slot, dim in self.sizes.strided]
        return self.sizes.symbols(self._own_sizes(memory) if sizes is None else sizes, strides)

    def _own_sizes(self, memory: Memory) -> Mapping[Symbol, int]:
        """The values of the sizes that the kernel was made for, by the names that they have there."""
        if self.is_combined:
            return {
                part_symbol(i, own): value
                for i, part in enumerate(self.parts)
                for own, value in part._own_sizes(memory).items()
            }
        return memory.sizes if self.segment is None else memory.sizes_of(self.segment)

    def names_in(self, text: str) -> str:
        """What names of the kernel stand for in the definition: `T0 is T4`, or `p1.T0 is T4` of a part."""
        if not self.is_combined:
            return "" if self.segment is None else self.segment.names.said_in(text)
        found: dict[str, str] = {}
        for name, part, own in _PART_NAME.findall(text):
            segment = self.parts[int(part)].segment
            if segment is not None and own in segment.names.table:
                found[name] = segment.names.table[own]
        return ", ".join(f"{name} is {theirs}" for name, theirs in found.items())

    def shape(self, memory: Memory, values: Mapping[Symbol, int] | None = None) -> LaunchShape | None:
        """The launch for a call; None if there is nothing to write. `values`: of `symbols`, if known.

        Raises:
            LaunchError: the kernel of a segment cannot be launched with these sizes, or at these addresses.
            ScheduleError: a user's cannot.
        """
        for part in self.parts:
            if part.alignments:
                try:
                    part._check_alignment(memory)
                except ScheduleError as error:
                    raise error if part.segment is None else LaunchError(part, error) from error
        if not any(_is_written(tensor, memory) for tensor in self.op.outputs):
            return None
        try:
            return self.sizes.shape(self.symbols(memory) if values is None else values)
        except ScheduleError as error:
            self._raise_refused(error)

    def _raise_refused(self, error: ScheduleError) -> NoReturn:
        """Raises a LaunchError; of a user's own kernel the error as it is."""
        if self.segment is None:
            raise error
        error.reword(self.segment.names.translated)
        raise LaunchError(self, error) from error

    def bound(self, memory: Memory, zeroed: Zeroed, tracer: Tracer) -> dict[str, Any]:
        """What the launch uses by name. Raises as `shape`."""
        segment = self.op.segment
        sizes = self._own_sizes(memory)
        values = self.symbols(memory, sizes)
        shape = self.shape(memory, values)
        grid = None if shape is None else shape.grid
        names: dict[str, Any] = {f"launch_{segment}": _launch_nothing}
        if shape is not None:
            tracer.dump("launch", lambda: f"{self.op.kernel.name}: {shape}")
            names[f"launch_{segment}"] = computed(
                self._launch, shape.grid, shape.block, shape.shared_bytes, tracer
            )
        names.update(zip(self._sized, self.sizes.arguments(sizes)))
        for name, value, dim in self._strided:
            names[name] = memory.stride(value, dim)
        for (j, workspace), count in zip(self._workspaces, self.sizes.workspaces(values)):
            names[f"alloc_work{segment}_{j}"] = (
                computed(zeroed, self.op.kernel, j, workspace, count, grid)
                if workspace.zeroed
                else computed(self._scratch, workspace, count)
            )
        return names

    def _launch(self, grid: Dim3, block: Dim3, shared_bytes: int, tracer: Tracer) -> Launch:
        """What launches the kernel. Raises as `shape`."""
        try:
            launch = self._target.launcher(self.op.kernel, LaunchShape(grid, block, shared_bytes), tracer)
        except ScheduleError as error:
            self._raise_refused(error)
        return launch if self._target.takes_pointers else partial(_simulate, launch, self)

    def _scratch(self, workspace: Workspace, count: int) -> Callable[[int], torch.Tensor]:
        dtype, device = workspace.dtype.torch, self._target.device
        return lambda stream: torch.empty(count, dtype=dtype, device=device)

    def _check_alignment(self, memory: Memory) -> None:
        for value, bytes_ in self.alignments.items():
            given = memory.of(value)[2]
            if given % bytes_:
                raise ScheduleError(
                    f"{value.name} is vectorized, so its address must be a multiple of {bytes_} bytes",
                    given=f"a multiple of {given}",
                    hint="vectorize less, or pass a tensor that starts at such an address",
                )


def _simulate(launch: Launch, plan: LaunchPlan, stream: int, values: Sequence[Any]) -> None:
    """A launch whose errors, which quote the kernel, tell what its names stand for in the definition."""
    try:
        launch(stream, values)
    except SimulationError as error:
        if plan.segment is not None or plan.is_combined:
            error.where = plan.names_in(str(error))
        raise


def _is_written(tensor: TensorView, memory: Memory) -> bool:
    """Whether a kernel has elements of an output to write: of an update, as many as it is computed along."""
    if isinstance(tensor.definition, Update):
        return all(size_value(axis.visible_extent, memory.sizes) for axis in tensor.maybe_root)
    return 0 not in memory.of(tensor)[0]


def _launch_nothing(stream: int, values: Sequence[Any]) -> None:
    """Stands for the launch of a kernel that has nothing to write."""


def in_place_candidates(
    fusion: Fusion, steps: Sequence[tuple[Sequence[Val], Sequence[TensorView]]], memory: Memory
) -> dict[TensorView, TensorView]:
    """Aliased outputs that may be written straight into the input that they alias, if their kernel allows it.

    It takes the input's dtype, shape and strides, and that no later kernel reads the input. An update may if
    its base may, which a kernel computes from the input: both lie there then.

    Args:
        steps: of each kernel, in launch order, the values that it reads (and may be writes) and its outputs.
    """
    found: dict[TensorView, TensorView] = {}
    for output in fusion.outputs:
        tensor, home = output.tensor, output.alias
        if home is None or tensor.dtype is not home.dtype:
            continue
        written = _written_for(tensor)
        position = next((i for i, (_, made) in enumerate(steps) if written[0] in made), None)
        if position is None or any(home in values for values, _ in steps[position + 1 :]):
            continue
        if written[0] is not tensor and home not in steps[position][0]:
            continue
        if all(memory.is_laid_out_as(each, home) for each in written):
            found.update(dict.fromkeys(written, home))
    return found


def _written_for(tensor: TensorView) -> tuple[TensorView, ...]:
    """The tensors that lie in the memory of an output, in the order in which kernels write them."""
    node = tensor.definition
    base = node.base if isinstance(node, Update) else None
    return (tensor,) if base is None else (base, tensor)


#: What a program does for one segment.
StepPlan = LaunchPlan | EvaluatePlan


def in_place_outputs(
    fusion: Fusion, plans: Sequence[StepPlan], memory: Memory
) -> dict[TensorView, TensorView]:
    """Aliased outputs that their kernel writes straight into the aliased input.

    They are the candidates whose kernel reads an element before it overwrites it. All others are computed
    elsewhere and copied at the end.
    """
    steps = [(plan.op.values, plan.op.outputs) for plan in plans]
    allowed = {
        tensor: home
        for tensor, home in in_place_candidates(fusion, steps, memory).items()
        if _may_be_written(next(p for p in plans if tensor in p.op.outputs), home, tensor, memory)
    }
    together = [_written_for(output.tensor) for output in fusion.outputs if output.tensor in allowed]
    return {t: allowed[t] for each in together if all(t in allowed for t in each) for t in each}


def placed(
    fusion: Fusion, plans: Sequence[StepPlan], memory: Memory
) -> tuple[tuple[StepPlan, ...], dict[TensorView, TensorView]]:
    """The plans that there is something to do for, and the outputs that lie in an input's memory.

    From now on `memory` knows these.
    """
    in_place = in_place_outputs(fusion, plans, memory)
    memory.place(in_place)
    needed = [plan for plan in plans if not _copies_in_place(plan, in_place)] if in_place else plans
    return tuple(needed), in_place


def _copies_in_place(plan: StepPlan, in_place: Mapping[TensorView, TensorView]) -> bool:
    """Whether all that a kernel does is to copy an input onto itself."""
    nodes = [tensor.definition for tensor in plan.op.outputs]
    return all(isinstance(node, Copy) and in_place.get(node.output) is node.inputs[0] for node in nodes)


def _may_be_written(plan: StepPlan, home: TensorView, tensor: TensorView, memory: Memory) -> bool:
    """Whether the kernel allows it, of several parts that of the part which makes the tensor."""
    if not isinstance(plan, LaunchPlan):
        return False
    part = next(part for part in plan.parts if tensor in part.op.outputs)
    if any(home in other.op.values for other in plan.parts if other is not part):
        return False
    return _kernel_allows(part, home, tensor, memory)


def _kernel_allows(launch: LaunchPlan, home: TensorView, tensor: TensorView, memory: Memory) -> bool:
    buffers = launch.buffers
    if tensor not in buffers or memory.of(home)[2] % launch.alignments.get(tensor, 1):
        return False
    if home not in buffers or tensor in launch.op.bases:
        return home not in buffers
    kernel, sizes = launch.op.kernel.kernel, launch.symbols(memory)

    def may(*values: int) -> bool:
        return may_overwrite(kernel, buffers[home], buffers[tensor], dict(zip(sizes, values)))

    return asked(may, *sizes.values())


@dataclass(frozen=True, slots=True)
class Chosen:
    """How a call is served.

    Attributes:
        plans: its steps, in order. views, empty: the outputs that no step computes.
        proposals: of the planners, by segment; none for a user's schedule of the whole fusion.
    """

    plans: Sequence[StepPlan]
    views: Views = field(default_factory=dict)
    empty: tuple[TensorView, ...] = ()
    proposals: Mapping[Segment, Proposal] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    """A program before it is bound: its code, and what every binding of it starts from.

    Attributes:
        plans: its steps, in order.
        constants: what the code knows by name in every program.
        setup: (result, function, operands) of the scalars that a signature fixes.
        fixed: those that the code uses and that are no constants, with their names.
        parameters: the other names that the code uses. make: the program for their values.
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


class Programs:
    """Host programs of one fusion on one target, shared by all signatures that need the same kernels."""

    def __init__(self, fusion: Fusion, target: Target, static: frozenset[Val]) -> None:
        self.fusion = fusion
        self.target = target
        self._static = static
        #: whether there are outputs that are written into inputs
        self._writes = any(output.alias is not None for output in fusion.outputs)
        #: of each input tensor the position, the name of how many bytes it spans, and those of an element
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
        """The function for calls that `binding` describes, which follows these plans in order.

        stable: the sizes that the plans may take to be constant.
        """
        template, values = self.decided(chosen, binding, memory, tracer)
        return BoundProgram(template, values, stable, binding)

    def decided(
        self, chosen: Chosen, binding: Binding, memory: Memory, tracer: Tracer
    ) -> tuple[Template, tuple[Any, ...]]:
        """The template of that function, and what it is bound to; of recorded numbers (`core.recorded`), how
        that is computed.
        """
        views, empty = chosen.views, chosen.empty
        viewed = {tensor: source for tensor, (source, _) in views.items()}
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
        """What follows from where tensors lie, by the names that a program may use."""
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
        """names: what `_names` has for these plans."""
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
    """`empty(shape, strides, dtype)` on this device, if it is the current one of its kind.

    What torch.compile's own programs allocate by takes half the time of torch.empty_strided.
    """
    direct = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    found = getattr(direct, f"_empty_strided_{device.type}", None)
    if found is not None:
        return found
    return lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype, device=device)


def copy_into(target: torch.Tensor, source: torch.Tensor) -> None:
    """Writes a result into an input as a kernel would: unseen by autograd."""
    with torch.inference_mode():
        movable(target).copy_(movable(source))


def _view(
    source: torch.Tensor, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> torch.Tensor:
    """Part of an input, or all of it, in another shape; without its history for autograd."""
    return source.detach().as_strided(shape, strides, source.storage_offset() + offset)


def _refuse_storage(tensor: torch.Tensor) -> NoReturn:
    span = spanned_elements(tensor.shape, tensor.stride())
    raise InputError(expected="tensors whose storage holds them", given=storage_fault(tensor, span))


# The handle of torch's current stream without a Stream object around it, which is a microsecond less a call.
_current_stream: Callable[[int], int] = getattr(
    torch._C, "_cuda_getCurrentRawStream", lambda index: torch.cuda.current_stream(index).cuda_stream
)
