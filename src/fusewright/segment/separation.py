"""Why two parts of a partition are not one kernel."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from fusewright.core.errors import ScheduleError
from fusewright.core.serialization import to_dict
from fusewright.core.tracing import Tracer
from fusewright.ir import Copy, Fusion, Node, TensorView, Update
from fusewright.schedulers.base import Cost, Reject, rejection_text, type_name
from fusewright.segment.draft import Draft
from fusewright.segment.exclusions import ExclusionIndex, Exclusions
from fusewright.segment.groups import is_boundary
from fusewright.segment.segmented import Segment, SegmentedFusion
from fusewright.segment.selection import Partitions
from fusewright.segment.state import Call, estimated

_TENSOR = re.compile(r"\bT[\d_]\w*")

#: A tensor of the fusion, or the place of a segment in launch order.
Part = TensorView | int


class SeparationKind(Enum):
    """What keeps two parts of a fusion from being one kernel, if anything."""

    #: they are one kernel
    together = "together"
    #: no kernel computes one of them: it is an input, a view of an input, a size, or not needed
    no_kernel = "no kernel"
    #: torch computes one of them, or a tensor on a path between them
    library = "library"
    #: a kernel has to end between them: one changes memory that the other reads, or the user asked for it
    boundary = "boundary"
    #: other segments are on a path between them, and no scheduler accepts all of these together
    cycle = "cycle"
    #: no scheduler accepts both, for any sizes
    structure = "structure"
    #: a scheduler accepts both, but not at the sizes of the call
    sizes = "sizes"
    #: one kernel is estimated to take longer than the present kernels
    cost = "cost"
    #: a scheduler would accept both, but the search found another partition
    search = "search"


@dataclass(frozen=True, slots=True)
class Declined:
    """Why a scheduler does not make one kernel of both parts.

    Attributes:
        at_sizes: whether it declines only at the sizes of the call.
    """

    scheduler: str
    reason: str
    at_sizes: bool = False

    def __str__(self) -> str:
        return rejection_text(self.scheduler, self.reason)


@dataclass(frozen=True, slots=True)
class Separation:
    """Why two parts of a fusion are not one kernel.

    Attributes:
        parts: the parts in question, as `fusion_ir` names them.
        segments: for each part the segments that compute it, by their position in launch order.
        reason: the reason, as a sentence.
        where: the kernels of the parts, if they are two.
        path: tensors on a path between the parts through other segments. One kernel would have to compute
            them, too. Empty if there is no such path.
        between: the other segments on such paths.
        declined: each scheduler's answer about one kernel for both parts and everything between them.
        apart, merged: the cost of the present segments, and of one kernel for all of them, if one can be
            made.
        changes: the trials of other partitions that concern the two parts.
        one_launch: whether the segments may be in one combined launch.
    """

    kind: SeparationKind
    parts: tuple[str, str]
    segments: tuple[tuple[int, ...], tuple[int, ...]]
    reason: str
    where: str = ""
    path: tuple[str, ...] = ()
    between: tuple[int, ...] = ()
    declined: tuple[Declined, ...] = ()
    apart: Cost | None = None
    merged: Cost | None = None
    changes: tuple[str, ...] = ()
    one_launch: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return to_dict(self)

    def __str__(self) -> str:
        lines = [self.where] if self.where else []
        if self.path:
            segments, tensors = ", ".join(map(str, self.between)), ", ".join(self.path)
            plural = "s" if len(self.between) > 1 else ""
            way = f"A path leads from one to the other through segment{plural} {segments}: {tensors}."
            lines.append(f"{way} One kernel would have to compute that, too.")
        lines.append(self.reason)
        lines += [f"  {declined}" for declined in self.declined]
        lines += [f"  tried: {change}" for change in self.changes]
        if self.one_launch:
            lines.append("They may be one launch, each block of which computes one or the other.")
        return "\n".join(lines)


def separation(
    partitions: Partitions,
    call: Call,
    tracer: Tracer,
    required: Exclusions,
    parts: tuple[Part, Part],
    views: Collection[TensorView] = (),
) -> Separation:
    """Why the two parts are not one kernel in the partition for a call.

    Args:
        views: outputs that are views of inputs, which no segment computes.

    Raises:
        ScheduleError: there is no segment of such a number.
    """

    def asked(draft: Draft, partition: SegmentedFusion) -> Separation:
        return _Question(draft, partition, call, draft.translated(required), views).answer(parts)

    return partitions.ask(call, tracer, required, asked)


class _Question:
    """Answers why parts of one partition are not one kernel."""

    def __init__(
        self,
        draft: Draft,
        partition: SegmentedFusion,
        call: Call,
        required: Exclusions,
        views: Collection[TensorView],
    ) -> None:
        self._draft = draft
        self._partition = partition
        self._segments = partition.segments
        self._call = call
        self._required = required
        self._views = {tensor.number for tensor in views}

    def answer(self, parts: tuple[Part, Part]) -> Separation:
        names = tuple(self._name(part) for part in parts)
        found = tuple(self._segments_of(part) for part in parts)
        missing = [part for part, places in zip(parts, found) if not places]
        if missing:
            reason = "; ".join(self._why_no_kernel(part) for part in missing if isinstance(part, TensorView))
            return Separation(SeparationKind.no_kernel, names, found, reason)  # type: ignore[arg-type]
        both = sorted(set(found[0]) & set(found[1]))
        if both:
            reason = f"{names[0]} and {names[1]} are one kernel: {self._described(both[0])}."
            return Separation(SeparationKind.together, names, found, reason)  # type: ignore[arg-type]
        first, second = found[0][0], found[1][0]
        path, between = self._between(first, second)
        answer = self._apart(sorted({first, second, *between}), {first, second})
        launch = next(members for members in self._partition.launches if first in members)
        return Separation(
            answer.kind,
            names,  # type: ignore[arg-type]
            found,  # type: ignore[arg-type]
            answer.reason,
            f"{self._at(parts[0], first)} and {self._at(parts[1], second)} are two kernels.",
            path,
            tuple(sorted(between)),
            answer.declined,
            answer.apart,
            answer.merged,
            self._changes({first, second, *between}),
            second in launch,
        )

    # ---- the parts in question

    def _name(self, part: Part) -> str:
        return part.name if isinstance(part, TensorView) else f"segment {part}"

    def _segments_of(self, part: Part) -> tuple[int, ...]:
        if isinstance(part, TensorView):
            return tuple(
                s.index for s in self._segments if part.number in {t.number for t in self._computed(s)}
            )
        if not 0 <= part < len(self._segments):
            raise ScheduleError(
                "there is no such segment", expected=f"0 to {len(self._segments) - 1}", given=part
            )
        return (part,)

    def _computed(self, segment: Segment) -> Iterable[TensorView]:
        made = self._draft.named(out for node in segment.nodes for out in node.outputs)
        return [value for value in made if isinstance(value, TensorView)]

    def _why_no_kernel(self, tensor: TensorView) -> str:
        whole: Fusion = self._partition.fusion
        if tensor.number in {v.number for v in whole.inputs if isinstance(v, TensorView)}:
            return f"{tensor.name} is an input."
        if tensor.number in self._views:
            return f"{tensor.name} is a view of an input: no kernel computes it."
        alive = {t.number for n in whole.ordered_nodes() for t in n.outputs if isinstance(t, TensorView)}
        if tensor.number not in alive:
            return f"Nothing needs {tensor.name}: no kernel computes it."
        return f"A rewrite computes in another way what {tensor.name} was for."

    def _at(self, part: Part, index: int) -> str:
        described = self._described(index)
        return f"{part.name} in {described}" if isinstance(part, TensorView) else described

    def _described(self, index: int) -> str:
        segment = self._segments[index]
        node = segment.evaluated
        by = type_name(segment.scheduler.type) if node is None else f"torch's {node.label}"
        return f"segment {index} ({by})"

    # ---- why

    def _between(self, first: int, second: int) -> tuple[tuple[str, ...], set[int]]:
        """The tensors of one path between two segments through others, and all segments on such paths."""
        first, second = min(first, second), max(first, second)
        paths: dict[int, tuple[str, ...]] = {first: ()}  # segment -> the tensors of a path from `first` to it
        readers = range(first + 1, second + 1)
        for i in readers:
            for j in sorted(paths):
                shared = [v.name for v in self._segments[j].outputs if v in self._segments[i].inputs]
                is_direct = (j, i) == (first, second)
                if j < i and shared and not is_direct:
                    paths.setdefault(i, (*paths[j], shared[0]))
        if second not in paths:
            return (), set()
        needed = {second}
        for j in reversed(range(first + 1, second)):
            outputs = set(self._segments[j].outputs)
            if j in paths and any(not outputs.isdisjoint(self._segments[i].inputs) for i in needed):
                needed.add(j)
        return paths[second], needed - {second}

    def _apart(self, group: Sequence[int], asked: set[int]) -> _Apart:
        segments = [self._segments[i] for i in group]
        for segment in segments:
            if segment.evaluated is not None:
                what = "" if segment.index in asked else ", which lies between,"
                reason = f"torch computes {segment.outputs[0].name}{what} as a whole: no kernel contains it."
                return _Apart(SeparationKind.library, reason)
        boundary = self._boundary(segments)
        if boundary:
            return _Apart(SeparationKind.boundary, boundary)
        return self._verdicts(segments)

    def _boundary(self, segments: Sequence[Segment]) -> str:
        """Why a kernel has to end between some of the segments; empty if none has to."""
        maker = {out: segment for segment in segments for node in segment.nodes for out in node.outputs}
        found: dict[str, None] = {}
        for reader in segments:
            for node in reader.nodes:
                for value in node.inputs:
                    if not isinstance(value, TensorView) or maker.get(value, reader) is reader:
                        continue
                    if is_boundary(value, node):
                        (name,) = (v.name for v in self._draft.named([value]))
                        found[_boundary_text(node, value, name)] = None
        return " ".join(found)

    def _verdicts(self, segments: Sequence[Segment]) -> _Apart:
        """Asks each scheduler about one kernel for all the segments."""
        draft, call = self._draft, self._call
        others = [s for s in self._segments if s not in segments]
        nodes, read = draft.joined(segments, others)
        excluded = ExclusionIndex(self._required).names(nodes)
        declined: list[Declined] = []
        merged: tuple[str, Cost] | None = None
        for scheduler in draft.registry:
            name = type_name(scheduler.type)
            if name in excluded:
                reason = "the call's options, or a failure before, keep it from these nodes"
                declined.append(Declined(name, reason))
                continue
            answer = draft.made_by_scheduler(scheduler, nodes, read)
            if isinstance(answer, Reject):
                declined.append(Declined(name, answer.reason))
                continue
            call.start([*others, answer])
            proposal = call.plan(answer)
            if isinstance(proposal, Reject):
                declined.append(Declined(name, proposal.reason, at_sizes=True))
                continue
            cost = estimated(call, answer, proposal)
            if merged is None or cost.seconds < merged[1].seconds:
                merged = name, cost
        call.start(self._segments)
        if merged is None:
            at_sizes = any(each.at_sizes for each in declined)
            kind = SeparationKind.sizes if at_sizes else SeparationKind.structure
            what = "both" if len(segments) == 2 else "both, and what lies between,"
            reason = f"No scheduler takes {what} in one kernel{' at these sizes' if at_sizes else ''}:"
            return _Apart(kind if len(segments) == 2 else SeparationKind.cycle, reason, tuple(declined))
        return self._compared(segments, *merged, tuple(declined))

    def _compared(
        self, segments: Sequence[Segment], name: str, merged: Cost, declined: tuple[Declined, ...]
    ) -> _Apart:
        costs = []
        for segment in segments:
            proposal = self._call.plan(segment)
            assert not isinstance(proposal, Reject), "what was accepted is accepted again"
            costs.append(estimated(self._call, segment, proposal))
        apart = Cost(
            sum(cost.bytes for cost in costs),
            sum(cost.seconds for cost in costs),
            sum(cost.least_seconds for cost in costs),
        )
        figures = f"one kernel ({name}) is estimated at {_figures(merged)}, {len(costs)} at {_figures(apart)}"
        if merged.seconds >= apart.seconds:
            return _Apart(SeparationKind.cost, f"They cost less apart: {figures}.", declined, apart, merged)
        reason = f"The search has found another partition of all, although {figures}."
        return _Apart(SeparationKind.search, reason, declined, apart, merged)

    def _changes(self, places: set[int]) -> tuple[str, ...]:
        """The trials that name outputs of these segments."""
        handed_on = {tensor.name for i in places for tensor in self._segments[i].outputs}
        trials = self._partition.trials
        return tuple(str(t) for t in trials if not handed_on.isdisjoint(_TENSOR.findall(t.change)))


@dataclass(frozen=True, slots=True)
class _Apart:
    """The fields of a `Separation` that follow from its kind."""

    kind: SeparationKind
    reason: str
    declined: tuple[Declined, ...] = ()
    apart: Cost | None = None
    merged: Cost | None = None


def _figures(cost: Cost) -> str:
    return f"{cost.seconds * 1e6:.1f} us ({cost.bytes} bytes)"


def _boundary_text(reader: Node, value: TensorView, name: str) -> str:
    if isinstance(reader, Copy):
        return f"segment_set ends a kernel behind {name}."
    if isinstance(reader, Update) and value is reader.base:
        return f"{name} is changed in memory, once the kernel that writes it has ended."
    return f"{name} is changed in memory, and read once the kernel that changes it has ended."
