"""The result of segmentation: the segments of a fusion in launch order, and the map of their values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fusewright.core.enums import SchedulerType
from fusewright.ir import Fusion, Node, Output, TensorView, Val
from fusewright.schedulers.base import Planner, Scheduler, type_name
from fusewright.segment.canonical import Extraction, Names
from fusewright.sym import Symbol, evaluate


@dataclass(frozen=True, slots=True)
class Attempt:
    """One question to the schedulers about the group that computes these tensors.

    Attributes:
        results: the names of the tensors that the group would output.
        nodes: the number of nodes of the group.
        taken_by: the scheduler that accepted, or None.
        reasons: the rejections by the schedulers before it, as sentences.
    """

    results: tuple[str, ...]
    nodes: int
    taken_by: str | None
    reasons: tuple[str, ...] = ()

    def __str__(self) -> str:
        verdict = f"taken by {self.taken_by}" if self.taken_by else "taken by none"
        lines = [f"{self.nodes} node(s) computing {', '.join(self.results)}: {verdict}"]
        return "\n  ".join([*lines, *self.reasons])


@dataclass(frozen=True, slots=True)
class Trial:
    """One change of a partition, and its effect.

    Attributes:
        change: the change that was tried, for the user.
        before, after: estimated seconds of all kernels; `after` is None if there was no such partition.
        kept: whether the change was kept.
    """

    change: str
    before: float
    after: float | None
    kept: bool

    def __str__(self) -> str:
        if self.after is None:
            return f"{self.change}: no such partition"
        figures = f"{self.before * 1e6:.1f} us -> {self.after * 1e6:.1f} us"
        return f"{self.change}: {figures}, {'kept' if self.kept else 'undone'}"


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """A part of a fusion that one kernel computes, or one node that a library computes.

    A value that a rewrite made is a value of `graph`, since the whole fusion does not have it.

    Attributes:
        index: its position in launch order.
        scheduler, planner: the scheduler that makes its kernel, and its planner for given sizes.
        inputs: the whole fusion's values that correspond to the inputs of `fusion`, in the same order.
        read_later: the positions of the inputs that kernels which follow from its results read, too.
        nodes: its nodes in `graph`, the partitioned copy of the whole fusion.
        operands, results: the operands and results of the first node, as values of the whole fusion.
        bases: maps each output that is an update of a tensor in memory, or a piece of one, to that tensor.
        extraction: its canonical segment, and the correspondence of values.
    """

    index: int
    scheduler: Scheduler
    planner: Planner
    inputs: tuple[Val, ...]
    read_later: frozenset[int]
    nodes: tuple[Node, ...] = field(repr=False)
    operands: tuple[Val, ...] = field(repr=False)
    results: tuple[Val, ...] = field(repr=False)
    bases: Mapping[TensorView, TensorView] = field(repr=False)
    graph: Fusion = field(repr=False)
    extraction: Extraction = field(repr=False)

    @property
    def fusion(self) -> Fusion:
        """The computation, with the values that cross its border as inputs and outputs."""
        return self.extraction.fusion

    @property
    def text(self) -> str:
        """The canonical text. It is equal for segments that differ only in names."""
        return self.extraction.segment.text

    @property
    def outputs(self) -> tuple[TensorView, ...]:
        """The whole fusion's values that correspond to the outputs of `fusion`, in the same order."""
        return self.extraction.outputs

    @property
    def to_segment(self) -> Mapping[Val, Val]:
        """Maps values of the whole fusion to those of `fusion`."""
        return self.extraction.to_segment()

    @property
    def names(self) -> Names:
        """Maps names in `fusion` to those of the whole fusion."""
        return self.extraction.names

    @property
    def sizes(self) -> Iterable[tuple[Symbol, Symbol]]:
        """The size symbols of `fusion`, each with the corresponding one of the whole fusion."""
        return zip(self.extraction.segment.sizes, self.extraction.sizes)

    def own_sizes(self, sizes: Mapping[Symbol, int]) -> dict[Symbol, int]:
        """The values of the size symbols of `fusion`, from the values of the whole fusion's size symbols."""
        own = {own: sizes[theirs] for own, theirs in self.sizes if theirs in sizes}
        computed = self.fusion.computed_sizes
        if computed:
            own.update([(name, evaluate(e, own)) for name, e in computed.items()])
        return own

    def own_stable(self, stable: Collection[Symbol]) -> frozenset[Symbol]:
        """The size symbols of `fusion` whose values depend only on these sizes of the whole fusion."""
        own = {own for own, theirs in self.sizes if theirs in stable}
        computed = self.fusion.computed_sizes.items()
        return frozenset(own.union([name for name, e in computed if own.issuperset(e.free_symbols)]))

    def own_strides(
        self, strides: Sequence[tuple[int, ...]], sizes: Mapping[Symbol, int]
    ) -> tuple[tuple[int, ...], ...]:
        """The strides of the inputs of `fusion`.

        Args:
            strides: the strides of the corresponding values of the whole fusion.
            sizes: the values of the size symbols of `fusion`.
        """
        own = list(strides)
        for position in self.extraction.segment.reshaped:
            tensor = self.fusion.inputs[position]
            assert isinstance(tensor, TensorView)
            own[position] = _dense_strides(tensor, sizes)
        return tuple(own)

    @property
    def evaluated(self) -> Node | None:
        """The node that torch computes from `operands`; None if the segment is a kernel."""
        return self.nodes[0] if self.scheduler.type is SchedulerType.expr_eval else None

    def __str__(self) -> str:
        name = type_name(self.scheduler.type)
        reads = ", ".join(_name(v) for v in self.inputs)
        writes = ", ".join(_name(v) for v in self.outputs)
        lines = [f"segment {self.index} ({name}): {reads} -> {writes}"]
        if str(self.names):
            lines.append(f"  where {self.names}")
        lines += [f"  {_equation(node)}" for node in self.fusion.nodes]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, eq=False)
class SegmentedFusion:
    """A partition: the nodes that the host computes (`scalar_nodes`), then the segments, each after its
    producers.

    Fusion outputs that no segment makes are forwarded inputs.

    Attributes:
        trials: other partitions whose costs were compared.
        launches: the positions of segments that share a launch, in order; by default each segment has its
            own.
    """

    fusion: Fusion
    segments: tuple[Segment, ...]
    scalar_nodes: tuple[Node, ...]
    attempts: tuple[Attempt, ...] = ()
    trials: tuple[Trial, ...] = ()
    launches: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if not self.launches:
            object.__setattr__(self, "launches", tuple((i,) for i in range(len(self.segments))))

    def log(self) -> str:
        """The reasons for the partition: every question to the schedulers, in order, and every trial."""
        return "\n".join(map(str, (*self.attempts, *self.trials)))

    def __str__(self) -> str:
        parts = [f"inputs: {', '.join(_name(v) for v in self.fusion.inputs)}"]
        if self.scalar_nodes:
            parts.append("host:")
            parts += [f"  {_equation(node)}" for node in self.scalar_nodes]
        parts += [str(segment) for segment in self.segments]
        parts += [f"one launch: segments {', '.join(map(str, m))}" for m in self.launches if len(m) > 1]
        parts.append(f"outputs: {', '.join(_output_name(o) for o in self.fusion.outputs)}")
        return "\n".join(parts) + "\n"


def _dense_strides(tensor: TensorView, sizes: Mapping[Symbol, int]) -> tuple[int, ...]:
    """The strides of a tensor that lies in memory without gaps."""
    strides, step = {}, 1
    for axis in reversed(tensor.memory_axes):
        strides[axis] = step
        extent = axis.extent
        step *= max(1, sizes[extent] if isinstance(extent, Symbol) else evaluate(extent, sizes))
    return tuple([strides[axis] for axis in tensor.shape])


def _name(value: Val) -> str:
    return value.name if isinstance(value, TensorView) else str(value)


def _equation(node: Node) -> str:
    results = ", ".join(_name(v) for v in node.outputs)
    operands = ", ".join(_name(v) for v in node.inputs)
    return f"{results} = {node.label}({operands})"


def _output_name(output: Output) -> str:
    alias = f" in {output.alias.name}" if output.alias is not None else ""
    return f"{output.tensor.name}{alias}{' (hidden)' if output.hidden else ''}"
