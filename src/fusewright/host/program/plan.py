"""Plans the launches of a program: computes the values that bind each launch to the sizes of a call."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, NoReturn

from fusewright.analyze.stores import stored_extents
from fusewright.core.errors import ScheduleError, SimulationError
from fusewright.core.recorded import asked, computed
from fusewright.core.tracing import Tracer
from fusewright.cuda.driver import Dim3
from fusewright.host.inputs.layout import size_value
from fusewright.host.inputs.memory import Memory
from fusewright.host.program.evaluation import EvaluatePlan
from fusewright.host.program.ir import (
    LaunchKernel,
)
from fusewright.host.program.workspaces import ZeroedWorkspace
from fusewright.ir import Copy, Fusion, Piece, TensorView, Update, Val
from fusewright.kernel.combine import part_symbol
from fusewright.kernel.ir import Buffer, ScalarParam, TensorParam
from fusewright.runtime.arguments import Pointer, Size, Stride, Value, Workspace
from fusewright.runtime.compiled_kernel import CompiledKernel
from fusewright.runtime.in_place import may_overwrite
from fusewright.runtime.launch_sizes import LaunchShape
from fusewright.runtime.targets import Launch, Target
from fusewright.segment import Segment
from fusewright.sym import Symbol

# A part's name in a combined kernel: (the whole name, the part's number, the part's own name).
_PART_NAME = re.compile(r"\b(p(\d+)\.([A-Za-z_]\w*))")


class LaunchError(ScheduleError):
    """The kernel of a segment cannot be launched with the sizes, or at the addresses, of a call."""

    def __init__(self, launch: LaunchPlan, cause: ScheduleError) -> None:
        super().__init__(cause.message, hint=cause.hint, location=cause.location, **cause.facts)
        self.launch = launch
        self.cause = cause


#: `zeroed(kernel, argument, workspace, count, grid)` returns a workspace that launches of this grid share.
Zeroed = Callable[[CompiledKernel, int, Workspace, int, Dim3 | None], ZeroedWorkspace]


class LaunchPlan:
    """One launch of a program. Computes all that does not depend on sizes once, and the rest for each call.

    Attributes:
        segment: the segment that it computes. None: it launches a user's schedule of the whole fusion, or
            several segments.
        parts: one launch for each of several segments; otherwise the launch itself.
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
        #: whether this launch computes several segments
        self.is_combined = bool(parts)
        #: the kernel's buffer for each tensor whose address it takes
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
                self.constants[f"dtype_work{op.segment}_{j}"] = source.dtype.torch
            elif isinstance(source, Pointer) and isinstance(param, TensorParam):
                self.buffers[op.values[source.slot]] = param.buffer
            elif isinstance(source, Value) and isinstance(param, ScalarParam):
                self.constants[f"as{op.segment}_{j}"] = partial(target.argument, param)
        twins = () if segment is None else zip(segment.outputs, segment.fusion.output_tensors())
        #: for each output that is a piece of a tensor, its extents in the segment's own sizes
        self._pieces = {
            tensor: stored_extents(node) for tensor, own in twins if isinstance(node := own.definition, Piece)
        }
        needed = {alignment.buffer: alignment.bytes for alignment in kernel.kernel.alignments}
        #: for each tensor that is accessed by vectors, the bytes that its address must be a multiple of
        self.alignments = {v: needed[buffer] for v, buffer in self.buffers.items() if buffer in needed}

    def symbols(self, memory: Memory, sizes: Mapping[Symbol, int] | None = None) -> dict[Symbol, int]:
        """The values of the kernel's symbols. `sizes`: the result of `_own_sizes`, if it is known."""
        values = self.op.values
        strides = [memory.stride(values[slot], dim) for _, slot, dim in self.sizes.strided]
        return self.sizes.symbols(self._own_sizes(memory) if sizes is None else sizes, strides)

    def _own_sizes(self, memory: Memory) -> Mapping[Symbol, int]:
        """The values of the size symbols of the fusion that the kernel was made from."""
        if self.is_combined:
            return {
                part_symbol(i, own): value
                for i, part in enumerate(self.parts)
                for own, value in part._own_sizes(memory).items()
            }
        return memory.sizes if self.segment is None else memory.sizes_of(self.segment)

    def names_in(self, text: str) -> str:
        """The definition's names for a kernel's names in `text`: `T0 is T4`, or `p1.T0 is T4` for a part."""
        if not self.is_combined:
            return "" if self.segment is None else self.segment.names.said_in(text)
        found: dict[str, str] = {}
        for name, part, own in _PART_NAME.findall(text):
            segment = self.parts[int(part)].segment
            if segment is not None and own in segment.names.table:
                found[name] = segment.names.table[own]
        return ", ".join(f"{name} is {theirs}" for name, theirs in found.items())

    def shape(self, memory: Memory, values: Mapping[Symbol, int] | None = None) -> LaunchShape | None:
        """The launch for a call; None if there is nothing to write.

        values: the result of `symbols`, if it is known.

        Raises:
            LaunchError: the kernel of a segment cannot be launched with these sizes, or at these addresses.
            ScheduleError: the kernel of a user's schedule of the whole fusion cannot be launched so.
        """
        for part in self.parts:
            if part.alignments:
                try:
                    part._check_alignment(memory)
                except ScheduleError as error:
                    raise error if part.segment is None else LaunchError(part, error) from error
        if not any(part._is_written(tensor, memory) for part in self.parts for tensor in part.op.outputs):
            return None
        try:
            return self.sizes.shape(self.symbols(memory) if values is None else values)
        except ScheduleError as error:
            self._raise_refused(error)

    def _is_written(self, tensor: TensorView, memory: Memory) -> bool:
        """Whether there are elements of an output to write.

        An update writes one element for each point of its root domain, not all elements of its result, and so
        does a piece.
        """
        if tensor in self._pieces:
            return 0 not in self._shape_of_piece(tensor, memory)
        if isinstance(tensor.definition, Update):
            return all(size_value(axis.visible_extent, memory.sizes) for axis in tensor.maybe_root)
        return 0 not in memory.of(tensor)[0]

    def _shape_of_piece(self, tensor: TensorView, memory: Memory) -> tuple[int, ...]:
        assert self.segment is not None
        sizes = memory.sizes_of(self.segment)
        return tuple([size_value(extent, sizes) for extent in self._pieces[tensor]])

    def bytes_written(self, memory: Memory) -> int:
        """The bytes that it stores; each tensor counts once, an expanded dimension as one element."""
        if self.is_combined:
            return sum(part.bytes_written(memory) for part in self.parts)
        whole = memory.bytes_of(t for t in self.op.outputs if t not in self._pieces)
        shapes = [(t.dtype.size, self._shape_of_piece(t, memory)) for t in self._pieces]
        return whole + sum(size * prod(shape) for size, shape in shapes)

    def _raise_refused(self, error: ScheduleError) -> NoReturn:
        """Raises a LaunchError in the definition's names; `error` itself if there is no segment."""
        if self.segment is None:
            raise error
        error.reword(self.segment.names.translated)
        raise LaunchError(self, error) from error

    def bound(self, memory: Memory, zeroed: Zeroed, tracer: Tracer) -> dict[str, Any]:
        """The values in the program's code that depend on sizes, by name. Raises like `shape`."""
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
            if workspace.zeroed:
                kept = computed(zeroed, self.op.kernel, j, workspace, count, grid)
                names[f"alloc_work{segment}_{j}"] = kept
            else:
                names[f"shape_work{segment}_{j}"] = (count,)
        return names

    def _launch(self, grid: Dim3, block: Dim3, shared_bytes: int, tracer: Tracer) -> Launch:
        """The function that launches the kernel. Raises like `shape`."""
        try:
            launch = self._target.launcher(self.op.kernel, LaunchShape(grid, block, shared_bytes), tracer)
        except ScheduleError as error:
            self._raise_refused(error)
        return launch if self._target.takes_pointers else partial(_simulate, launch, self)

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
    """Launches in the simulator. Errors quote the kernel and add the definition's names for its names."""
    try:
        launch(stream, values)
    except SimulationError as error:
        if plan.segment is not None or plan.is_combined:
            error.where = plan.names_in(str(error))
        raise


def _launch_nothing(stream: int, values: Sequence[Any]) -> None:
    """Stands for the launch of a kernel that has nothing to write."""


def in_place_candidates(
    fusion: Fusion, steps: Sequence[tuple[Sequence[Val], Sequence[TensorView]]], memory: Memory
) -> dict[TensorView, TensorView]:
    """The aliased outputs that may be written straight into the input that they alias, each with this input.

    The kernel may still forbid it. An output is a candidate if it has the input's dtype, shape and strides
    and no later kernel reads the input. If the output is an update, its base must be a candidate, too, and
    be computed from the input: then both lie in the input's memory.

    Args:
        steps: for each kernel in launch order, the values that it reads (and maybe writes), and its outputs.
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


#: The plan of a program's step.
StepPlan = LaunchPlan | EvaluatePlan


def in_place_outputs(
    fusion: Fusion, plans: Sequence[StepPlan], memory: Memory
) -> dict[TensorView, TensorView]:
    """The aliased outputs that their kernel writes straight into the aliased input, each with this input.

    They are the candidates whose kernel reads each element before it overwrites it. All other aliased outputs
    are computed in separate memory and copied at the end.
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
    """The plans that have something to do, and the outputs in an input's memory, each with the input.

    Also gives these outputs the input's layout in `memory`.
    """
    in_place = in_place_outputs(fusion, plans, memory)
    memory.place(in_place)
    needed = [plan for plan in plans if not _copies_in_place(plan, in_place)] if in_place else plans
    return tuple(needed), in_place


def _copies_in_place(plan: StepPlan, in_place: Mapping[TensorView, TensorView]) -> bool:
    """Whether a kernel does nothing but copy inputs onto themselves."""
    nodes = [tensor.definition for tensor in plan.op.outputs]
    return all(isinstance(node, Copy) and in_place.get(node.output) is node.inputs[0] for node in nodes)


def _may_be_written(plan: StepPlan, home: TensorView, tensor: TensorView, memory: Memory) -> bool:
    """Whether the kernel of the part that computes `tensor` may write it into the input `home`.

    No other part of the launch may access `home`, since parts run concurrently.
    """
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
