"""Describes the kernels of a call: how each was chosen, its code, launch and resources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fusewright.core.dtype import DataType
from fusewright.core.enums import SchedulerType
from fusewright.core.serialization import to_dict
from fusewright.core.tracing import SILENT, Tracer
from fusewright.cuda.nvrtc import Resources
from fusewright.host.inputs.memory import Memory
from fusewright.host.program.plan import LaunchPlan, StepPlan
from fusewright.ir import TensorView, Val
from fusewright.kernel.ir import param_name
from fusewright.runtime.arguments import Pointer, Value
from fusewright.runtime.compiled_kernel import CompiledKernel
from fusewright.runtime.launch_sizes import LaunchShape
from fusewright.runtime.machine_code import MachineCode, compile_all
from fusewright.runtime.occupancy import Occupancy
from fusewright.schedule import Call
from fusewright.schedulers import Cost, type_name
from fusewright.segment import Segment

MICROSECONDS, MEGABYTE = 1e6, 1e6


@dataclass(frozen=True, slots=True)
class KernelTensor:
    """A tensor that a kernel reads or writes.

    Attributes:
        name: its name in the kernel; "" if torch computes the segment.
        definition_name: its name in the printed definition; None if it is an intermediate value of an
            operation.
        shape, strides: its shape and strides in this call.
        is_written: whether the kernel writes it.
    """

    name: str
    definition_name: str | None
    dtype: DataType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    is_written: bool

    def __str__(self) -> str:
        theirs = self.definition_name or "made on the way"
        named = f"{self.name} = {theirs}" if self.name else theirs
        return f"{named} {self.dtype.ir_name}{list(self.shape)}"


@dataclass(frozen=True, eq=False, repr=False)
class SegmentKernel:
    """The kernel of a segment of a call, or of several segments that share a launch.

    Attributes:
        segments: the segments' positions in launch order; 0 for a user's schedule of the whole definition.
        scheduler: the scheduler's name, "user" for a user's schedule, "horizontal" for several segments,
            "expr_eval" if torch computes the segment.
        kernel: the compiled kernel. None: torch computes the segment.
        operation: the operation that torch computes; "" for kernels.
        proposal: the scheduler's estimate of bytes and seconds. None: no scheduler made a proposal.
        launch: grid, block and dynamic shared memory. None: nothing is launched.
        bytes_read, bytes_written: the bytes of the tensors it reads and writes; each tensor counts once.
        tensors: the tensors it reads and writes.
        schedule_text: the function `schedule(fd)` that makes the kernel from the definition, as Python; "" if
            torch computes the segment.
        parts: the description of each segment, if there are several.
    """

    segments: tuple[int, ...]
    scheduler: str
    kernel: CompiledKernel | None
    operation: str
    proposal: Cost | None
    launch: LaunchShape | None
    bytes_read: int
    bytes_written: int
    tensors: tuple[KernelTensor, ...]
    schedule_text: str
    parts: tuple[SegmentKernel, ...] = ()

    # ---- how it was made

    @property
    def name(self) -> str:
        """The name of the machine code, or of the operation that torch computes."""
        return self.operation if self.code is None else self.code.name

    @property
    def params(self) -> Any:
        """The params that the scheduler applied; None if there are none."""
        return None if self.kernel is None else self.kernel.params

    @property
    def reason(self) -> str:
        """Why the heuristic chose these params; "" if there are none."""
        return "" if self.kernel is None else self.kernel.reason

    @property
    def trace(self) -> tuple[Call, ...]:
        """The primitives that made the schedule, on the kernel's own fusion.

        If there are several parts, each part has a trace of its own.
        """
        return () if self.kernel is None else self.kernel.trace

    @property
    def cuda_text(self) -> str:
        """The text of the launched kernel; "" if torch computes the segment."""
        return "" if self.kernel is None else self.kernel.source_for(self._threads).kernel

    # ---- code and resources

    @property
    def code(self) -> MachineCode | None:
        """The machine code of this launch; None if torch computes the segment."""
        return self.code_traced(SILENT)

    def code_traced(self, tracer: Tracer) -> MachineCode | None:
        """The machine code of this launch; `tracer` records its printing, if it is not printed yet."""
        if self.kernel is None:
            return None
        return self.kernel.code(self._threads, tracer=tracer)

    @property
    def _threads(self) -> int | None:
        return None if self.launch is None else self.launch.threads

    @property
    def resources(self) -> Resources | None:
        """Registers, spills and static shared memory; None if torch computes the segment."""
        return None if self.code is None else self.code.resources()

    @property
    def occupancy(self) -> Occupancy | None:
        """The number of its blocks per SM; None if nothing is launched."""
        if self.kernel is None or self.code is None or self.launch is None:
            return None
        return self.code.occupancy(self.launch.threads, self.launch.shared_bytes, self.kernel.hardware)

    # ---- for reading

    def to_dict(self) -> dict[str, Any]:
        """All facts as plain values, for JSON."""
        resources, occupancy, launch, params = self.resources, self.occupancy, self.launch, self.params
        return {
            "name": self.name,
            "segments": list(self.segments),
            "scheduler": self.scheduler,
            "params": None if params is None else {"type": type(params).__name__, **to_dict(params)},
            "reason": self.reason,
            "proposal": None if self.proposal is None else asdict(self.proposal),
            "launch": None if launch is None else launch._asdict(),
            "resources": None if resources is None else asdict(resources),
            "occupancy": None if occupancy is None else asdict(occupancy),
            "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written,
            "tensors": [to_dict(tensor) for tensor in self.tensors],
            "schedule": self.schedule_text,
            "cuda": self.cuda_text,
            "parts": [part.to_dict() for part in self.parts],
        }

    def __str__(self) -> str:
        """A table of the facts, one on each line."""
        rows: list[tuple[str, object]] = [("scheduler", self._kind()), ("segments", _listed(self.segments))]
        if self.params is not None:
            rows.append(("params", type(self.params).__name__))
        rows += [("reason", self.reason), ("proposal", _estimate(self.proposal)), ("launch", self.launch)]
        rows += [("resources", self.resources), ("occupancy", self.occupancy)]
        rows.append(("bytes", f"{self.bytes_read} read, {self.bytes_written} written"))
        rows += [("writes" if tensor.is_written else "reads", tensor) for tensor in self.tensors]
        lines = [f"  {label:<10}{value}" for label, value in rows if value not in ("", None)]
        parts = [f"  part {i}: {part.name}, segment {part.segments[0]}" for i, part in enumerate(self.parts)]
        return "\n".join([self.name, *lines, *parts])

    __repr__ = __str__

    def _kind(self) -> str:
        if self.parts:
            return f"{self.scheduler}: {len(self.parts)} segments in one launch"
        return f"{self.scheduler}: torch computes it" if self.kernel is None else self.scheduler


class SegmentKernels(tuple[SegmentKernel, ...]):
    """The kernels of a call in launch order: a tuple that prints as a table.

    Attributes:
        parallel: whether `compile` works on several at a time.
        tracer: of what `compile` does.
    """

    parallel: bool
    tracer: Tracer

    def __new__(
        cls, kernels: Iterable[SegmentKernel] = (), parallel: bool = True, tracer: Tracer = SILENT
    ) -> SegmentKernels:
        made = super().__new__(cls, kernels)
        made.parallel, made.tracer = parallel, tracer
        return made

    def compile(self) -> None:
        """Makes the machine code of all kernels, as the table and `to_dict` do.

        Raises:
            CompileError: NVRTC refuses a kernel.
        """
        codes = [kernel.code_traced(self.tracer) for kernel in self]
        compile_all([code for code in codes if code is not None], self.parallel, self.tracer)

    def to_dict(self) -> dict[str, Any]:
        """The kernels as plain values, for JSON. Raises as `compile`."""
        self.compile()
        return {"kernels": [kernel.to_dict() for kernel in self]}

    def __str__(self) -> str:
        self.compile()
        rows = [_COLUMNS, *map(_row, self)]
        widths = [max(map(len, column)) for column in zip(*rows)]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)

    __repr__ = __str__


_COLUMNS = (
    "segments",
    "scheduler",
    "kernel",
    "grid",
    "block",
    "shared",
    "registers",
    "spills",
    "warps",
    "MB",
)


def _row(kernel: SegmentKernel) -> tuple[str, ...]:
    resources, occupancy, launch = kernel.resources, kernel.occupancy, kernel.launch
    return (
        _listed(kernel.segments),
        kernel.scheduler,
        kernel.name,
        "-" if launch is None else _extent(launch.grid),
        "-" if launch is None else _extent(launch.block),
        "-" if launch is None or resources is None else str(launch.shared_bytes + resources.static_shared),
        "-" if resources is None else str(resources.registers),
        "-" if resources is None else str(resources.spill_stores + resources.spill_loads),
        "-" if occupancy is None else f"{occupancy.share:.0%}",
        f"{(kernel.bytes_read + kernel.bytes_written) / MEGABYTE:.3g}",
    )


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _extent(extents: tuple[int, int, int]) -> str:
    x, y, z = extents
    return "x".join(map(str, (x, y, z) if z > 1 else (x, y) if y > 1 else (x,)))


def _estimate(cost: Cost | None) -> str:
    return "" if cost is None else f"{cost.bytes} bytes in {cost.seconds * MICROSECONDS:.1f} us"


# ---- from the steps of a call ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wording:
    """The names that the definition of a fusion uses.

    Attributes:
        name: returns the definition's name of a value; None if it has none.
        schedule: returns the text of the function `schedule(fd)` that makes the kernels of a launch.
    """

    name: Callable[[Val], str | None]
    schedule: Callable[[LaunchPlan], str]


def described_kernels(
    plans: Sequence[StepPlan],
    memory: Memory,
    costs: Mapping[Segment | None, Cost],
    wording: Wording,
    parallel: bool,
    tracer: Tracer,
) -> SegmentKernels:
    """Prints and describes the kernels of these steps. They are compiled if this is to be dumped.

    Args:
        memory: the layouts of the call's tensors, including tensors that are written in place.
        costs: the planners' estimates, by segment.

    Raises:
        LaunchError, ScheduleError: a kernel cannot be launched for this call.
    """
    done = [plan for plan in plans if isinstance(plan, LaunchPlan) or not plan.op.is_join]
    found = SegmentKernels([_described(plan, memory, costs, wording) for plan in done], parallel, tracer)
    for kernel in found:
        kernel.code_traced(tracer)  # prints it, so that faults of printing belong to this call
    if tracer.dumps_compilation:
        found.compile()
    return found


def _described(
    plan: StepPlan, memory: Memory, costs: Mapping[Segment | None, Cost], wording: Wording
) -> SegmentKernel:
    written = set(plan.op.outputs)
    kernel = plan.op.kernel if isinstance(plan, LaunchPlan) else None
    parts: tuple[SegmentKernel, ...] = ()
    if isinstance(plan, LaunchPlan) and plan.is_combined:
        parts = tuple([_described(part, memory, costs, wording) for part in plan.parts])
    return SegmentKernel(
        tuple([part.segments[0] for part in parts]) or (plan.op.segment,),
        type_name(SchedulerType.expr_eval) if kernel is None else kernel.scheduler,
        kernel,
        "" if isinstance(plan, LaunchPlan) else plan.op.node.label,
        costs.get(plan.segment),
        plan.shape(memory) if isinstance(plan, LaunchPlan) else None,
        memory.bytes_of(v for v in plan.op.values if v not in written),
        plan.bytes_written(memory) if isinstance(plan, LaunchPlan) else memory.bytes_of(plan.op.outputs),
        _tensors(plan, memory, wording),
        wording.schedule(plan) if isinstance(plan, LaunchPlan) else "",
        parts,
    )


def _tensors(plan: StepPlan, memory: Memory, wording: Wording) -> tuple[KernelTensor, ...]:
    written = set(plan.op.outputs)
    named: dict[Val, str] = dict.fromkeys(plan.op.values, "")
    if isinstance(plan, LaunchPlan):
        kernel = plan.op.kernel
        named = {
            plan.op.values[source.slot]: param_name(param)
            for param, source in zip(kernel.kernel.params, kernel.arguments)
            if isinstance(source, (Pointer, Value))
        }
    found = []
    for value, name in named.items():
        if isinstance(value, TensorView):
            shape, strides, _ = memory.of(value)
            found.append(
                KernelTensor(name, wording.name(value), value.dtype, shape, strides, value in written)
            )
    return tuple(found)
