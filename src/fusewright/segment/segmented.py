"""What segmentation yields: the segments of a fusion in launch order, and how their values correspond."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fusewright.core.enums import SchedulerType
from fusewright.ir import Fusion, Node, Output, TensorView, Update, Val
from fusewright.schedulers.base import Planner, Scheduler, type_name


@dataclass(frozen=True, slots=True)
class Attempt:
    """One question to the schedulers: would you take the group that computes these tensors?

    results: names of the tensors that the group would hand on. nodes: the size of the group.
    taken_by: the scheduler that accepted, or None. reasons: the rejections before it, as sentences.
    """

    results: tuple[str, ...]
    nodes: int
    taken_by: str | None
    reasons: tuple[str, ...] = ()

    def __str__(self) -> str:
        verdict = f"taken by {self.taken_by}" if self.taken_by else "taken by none"
        lines = [f"{self.nodes} node(s) computing {', '.join(self.results)}: {verdict}"]
        return "\n  ".join([*lines, *self.reasons])


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """One kernel's worth of a fusion, or one node that a library computes.

    Attributes:
        index: its place in launch order.
        fusion: the computation, with the values that cross its border as inputs and outputs.
        scheduler, planner: who makes its kernel, and what decides how for given sizes.
        inputs, outputs: the whole fusion's values that those of `fusion` stand for, in the same order.
        nodes: of the whole fusion.
        to_segment: from values of the whole fusion to those of `fusion`.
    """

    index: int
    fusion: Fusion
    scheduler: Scheduler
    planner: Planner
    inputs: tuple[Val, ...]
    outputs: tuple[TensorView, ...]
    nodes: tuple[Node, ...] = field(repr=False)
    to_segment: Mapping[Val, Val] = field(repr=False)

    @property
    def evaluated(self) -> Node | None:
        """The node of the whole fusion that torch computes, if that is what the segment is."""
        return self.nodes[0] if self.scheduler.type is SchedulerType.expr_eval else None

    @property
    def bases(self) -> dict[TensorView, TensorView]:
        """The outputs that changes of a tensor in memory make, and that tensor."""
        updates = [node for node in self.nodes if isinstance(node, Update)]
        return {node.output: node.base for node in updates if node.base is not None}

    def __str__(self) -> str:
        name = type_name(self.scheduler.type)
        reads = ", ".join(_name(v) for v in self.inputs)
        writes = ", ".join(_name(v) for v in self.outputs)
        lines = [f"segment {self.index} ({name}): {reads} -> {writes}"]
        lines += [f"  {_equation(node)}" for node in self.fusion.nodes]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, eq=False)
class SegmentedFusion:
    """A partition: what the host computes (`scalar_nodes`), then one kernel a segment, in launch order.

    Fusion outputs that no segment makes are inputs handed on.
    """

    fusion: Fusion
    segments: tuple[Segment, ...]
    scalar_nodes: tuple[Node, ...]
    attempts: tuple[Attempt, ...] = ()

    def log(self) -> str:
        """Why the partition is what it is: every question to the schedulers, in order."""
        return "\n".join(map(str, self.attempts))

    def __str__(self) -> str:
        parts = [f"inputs: {', '.join(_name(v) for v in self.fusion.inputs)}"]
        if self.scalar_nodes:
            parts.append("host:")
            parts += [f"  {_equation(node)}" for node in self.scalar_nodes]
        parts += [str(segment) for segment in self.segments]
        parts.append(f"outputs: {', '.join(_output_name(o) for o in self.fusion.outputs)}")
        return "\n".join(parts) + "\n"


def _name(value: Val) -> str:
    return value.name if isinstance(value, TensorView) else str(value)


def _equation(node: Node) -> str:
    results = ", ".join(_name(v) for v in node.outputs)
    operands = ", ".join(_name(v) for v in node.inputs)
    return f"{results} = {node.label}({operands})"


def _output_name(output: Output) -> str:
    alias = f" in {output.alias.name}" if output.alias is not None else ""
    return f"{output.tensor.name}{alias}{' (hidden)' if output.hidden else ''}"
