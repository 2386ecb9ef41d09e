"""The host IR: a call as a straight list of operations over the values of the whole fusion.

A program contains no sizes. It is made once for a combination of kernels and then bound to each signature.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fusewright.ir import Join, LibraryCall, Node, RandomState, Scalar, TensorView, Val
from fusewright.runtime.arguments import Value
from fusewright.runtime.compiled_kernel import CompiledKernel


@dataclass(frozen=True, slots=True, eq=False)
class ReadHostTensor:
    """Reads the value of a rank-0 tensor in host memory, which kernels take as a scalar."""

    tensor: TensorView

    def __str__(self) -> str:
        return f"{self.tensor.name}.value = item({self.tensor.name})"


@dataclass(frozen=True, slots=True, eq=False)
class EvaluateScalar:
    """Computes a scalar from scalars."""

    node: Node

    def __str__(self) -> str:
        return f"{self.node.outputs[0]} = {self.node.label}({', '.join(map(str, self.node.inputs))})"


@dataclass(frozen=True, slots=True, eq=False)
class DrawRandomState:
    """Takes seed and offset of random numbers from torch's generator and advances it."""

    node: RandomState

    def __str__(self) -> str:
        seed, offset = self.node.outputs
        return f"{seed}, {offset} = state of the generator"


@dataclass(frozen=True, slots=True, eq=False)
class Allocate:
    """Allocates a tensor that kernels write: an output, or an intermediate one."""

    tensor: TensorView
    is_output: bool

    def __str__(self) -> str:
        kind = "output" if self.is_output else "intermediate"
        sizes = ", ".join(map(str, self.tensor.extents))
        return f"{self.tensor.name} = allocate {kind} {self.tensor.dtype.ir_name}[{sizes}]"


@dataclass(frozen=True, slots=True, eq=False)
class AllocateWorkspace:
    """Allocates scratch memory for argument `argument` of the launch that is named by segment `launch`.

    Zeroed workspaces are kept between calls.
    """

    launch: int
    argument: int
    zeroed: bool

    @property
    def name(self) -> str:
        return f"work{self.launch}_{self.argument}"

    def __str__(self) -> str:
        return f"{self.name} = allocate workspace{' (zeroed)' if self.zeroed else ''}"


@dataclass(frozen=True, slots=True, eq=False)
class TakeOver:
    """Gives a tensor the memory of another one that nothing else needs. A kernel then changes it in place."""

    tensor: TensorView
    base: TensorView

    def __str__(self) -> str:
        return f"{self.tensor.name} = memory of {self.base.name}"


@dataclass(frozen=True, slots=True, eq=False)
class LaunchKernel:
    """Launches a kernel.

    Attributes:
        segment: the number of its segment.
        values: the value of the whole fusion in each slot of the kernel.
        bases: for each output that is written over another tensor and keeps some of its elements, that
            tensor.
    """

    segment: int
    kernel: CompiledKernel
    values: tuple[Val, ...]
    outputs: tuple[TensorView, ...]
    bases: Mapping[TensorView, TensorView] = field(default_factory=dict)

    @property
    def by_value(self) -> list[Val]:
        """The scalars that it takes, and the tensors in host memory that it takes as scalars."""
        return [self.values[source.slot] for source in self.kernel.arguments if isinstance(source, Value)]

    def __str__(self) -> str:
        written = set(self.outputs)
        reads = ", ".join(_name(v) for v in self.values if v not in written)
        writes = ", ".join(f"{v.name}{' (in part)' if v in self.bases else ''}" for v in self.outputs)
        return f"launch {self.kernel.name}({reads}) -> {writes}"


@dataclass(frozen=True, slots=True, eq=False)
class Evaluate:
    """Lets torch compute a node, which makes `results` from `inputs` and allocates their memory.

    Attributes:
        outputs: the results that something reads.
        over: the operand whose memory the only result takes, since nothing needs the operand any more.
    """

    segment: int
    node: Node
    inputs: tuple[Val, ...]
    results: tuple[Val, ...]
    outputs: tuple[TensorView, ...]
    over: TensorView | None = None

    @property
    def is_join(self) -> bool:
        """Whether nothing is to be done: kernels stored the pieces of the result in its memory."""
        return isinstance(self.node, Join)

    @property
    def values(self) -> tuple[Val, ...]:
        """The values that torch reads, then the tensors that it writes."""
        return (*self.inputs, *self.outputs)

    @property
    def by_value(self) -> list[Val]:
        """The scalars that it takes."""
        return [value for value in self.inputs if isinstance(value, Scalar)]

    def __str__(self) -> str:
        results = ", ".join(_name(v) for v in self.outputs)
        operands = (self._operand(i) for i in range(len(self.inputs)))
        memory = "" if self.over is None else f", in the memory of {self.over.name}"
        return f"{results} = {self.node.label}({', '.join(operands)}) by torch{memory}"

    @property
    def overwritable(self) -> TensorView | None:
        """The operand in whose memory the result may lie, if nothing else needs the operand."""
        node = self.node
        if not isinstance(node, LibraryCall) or node.op.overwriting is None:
            return None
        value = self.inputs[node.op.overwriting.operand]
        return value if isinstance(value, TensorView) and self.inputs.count(value) == 1 else None

    def seen_through(self, index: int) -> tuple[Node, ...]:
        """The view nodes through which the computation reads an operand."""
        return self.node.seen_through(index) if isinstance(self.node, LibraryCall) else ()

    def _operand(self, index: int) -> str:
        nodes = self.seen_through(index)
        return " of ".join([*(node.label for node in reversed(nodes)), _name(self.inputs[index])])


@dataclass(frozen=True, slots=True, eq=False)
class KeepApart:
    """Copies inputs that are read and share memory with a written one (`overlaps.Apart`).

    Attributes:
        tensors: the inputs that the call reads or writes.
        early: the inputs that kernels write in place.
        late: the inputs that are overwritten by copies at the end.
        copied: the inputs that these copies read.
    """

    tensors: tuple[TensorView, ...]
    early: frozenset[TensorView]
    late: frozenset[TensorView]
    copied: frozenset[TensorView]

    def __str__(self) -> str:
        return f"keep apart {', '.join(map(_name, self.tensors))}"


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """Saves the values of an input that is overwritten before they are read."""

    tensor: TensorView

    def __str__(self) -> str:
        return f"{self.tensor.name}.old = clone({self.tensor.name})"


@dataclass(frozen=True, slots=True, eq=False)
class CopyInto:
    """Copies a result into the input that it aliases. `old`: it reads the snapshot of the source."""

    source: TensorView
    target: TensorView
    old: bool = False

    def __str__(self) -> str:
        return f"{self.target.name} <- copy of {self.source.name}{'.old' if self.old else ''}"


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """Makes an output that is a view of an input, or of an output made before: no copy."""

    tensor: TensorView
    source: TensorView

    def __str__(self) -> str:
        return f"{self.tensor.name} = view of {self.source.name}"


@dataclass(frozen=True, slots=True, eq=False)
class Free:
    """Drops a tensor after its last use."""

    tensor: TensorView

    def __str__(self) -> str:
        return f"free {self.tensor.name}"


@dataclass(frozen=True, slots=True, eq=False)
class Return:
    """Ends the program with the visible outputs, each in its memory."""

    tensors: tuple[TensorView, ...]

    def __str__(self) -> str:
        return f"return {', '.join(t.name for t in self.tensors)}"


#: The operation that computes a segment.
Step = LaunchKernel | Evaluate

Operation = (
    ReadHostTensor
    | EvaluateScalar
    | DrawRandomState
    | Allocate
    | AllocateWorkspace
    | TakeOver
    | LaunchKernel
    | Evaluate
    | KeepApart
    | Snapshot
    | CopyInto
    | View
    | Free
    | Return
)


@dataclass(frozen=True, slots=True, eq=False)
class HostProgram:
    """The operations of a call.

    Attributes:
        memory: for each tensor that is written into (or returned from) the memory of an input, this input.
        static: the scalars that a signature fixes. They are constants of a bound program.
        setup: computes the static scalars that kernels take, once for each signature.
    """

    inputs: tuple[Val, ...]
    operations: tuple[Operation, ...]
    memory: dict[TensorView, TensorView]
    static: frozenset[Val]
    setup: tuple[EvaluateScalar, ...] = ()

    @property
    def launches(self) -> list[LaunchKernel]:
        return [op for op in self.operations if isinstance(op, LaunchKernel)]

    def __str__(self) -> str:
        lines = [f"program({', '.join(_name(v) for v in self.inputs)}):"]
        lines += [f"  # {tensor.name} is stored in {home.name}" for tensor, home in self.memory.items()]
        lines += [f"  once for these sizes: {op}" for op in self.setup]
        lines += [f"  {op}" for op in self.operations]
        return "\n".join(lines) + "\n"


def _name(value: Val) -> str:
    return value.name if isinstance(value, (TensorView, Scalar)) else str(value)
