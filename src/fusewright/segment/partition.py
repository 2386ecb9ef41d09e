"""The greedy partition of a fusion into groups that one scheduler each accepts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from fusewright.core.errors import NoSchedulerError
from fusewright.core.tracing import SILENT, Tracer
from fusewright.ir import Fusion, Node, TensorView
from fusewright.schedulers.base import Planner, Scheduler, type_name
from fusewright.segment.canonical import Extraction
from fusewright.segment.exclusions import NO_EXCLUSIONS, ExclusionIndex, Exclusions
from fusewright.segment.extract import Extractor
from fusewright.segment.groups import GroupGraph
from fusewright.segment.recompute import owned_borders, recompute_borders
from fusewright.segment.segmented import Attempt, Segment, SegmentedFusion

# How often in a row a group may be refused before the round goes on to the next one: a full group next to
# hundreds of others would otherwise be shown with each of them.
MAX_REFUSALS = 8
# How many neighbours a group is offered at first.
FIRST_BATCH = 8


def partition(
    fusion: Fusion,
    registry: Iterable[Scheduler],
    tracer: Tracer | None = None,
    exclusions: Exclusions = NO_EXCLUSIONS,
) -> SegmentedFusion:
    """Cuts `fusion` into segments, each accepted by a scheduler of `registry`, in launch order.

    The result depends on the structure of the fusion, and on `exclusions`, alone, so it serves every call.
    Nodes that compute scalars are left to the host. If one scheduler takes everything, there is one segment.
    A node that no kernel contains is a segment by itself; what surrounds it merges as if it were not there,
    but for cycles through it.

    The search merges groups in rounds. In a round every group takes part in one merge at most, so the
    sizes of the groups asked about add up to a multiple of the size of the fusion, and groups grow
    geometrically: about n log n nodes are shown to the schedulers for n nodes.

    Raises:
        NoSchedulerError: nodes that no scheduler takes, alone or with their neighbours; the message says why.
    """
    tracer = tracer if tracer is not None else SILENT
    nodes = fusion.ordered_nodes()
    scalar_nodes = tuple(node for node in nodes if node.is_scalar)
    kernel_nodes = [node for node in nodes if not node.is_scalar]
    search = _Search(Extractor(fusion, tracer), kernel_nodes, list(registry), exclusions)
    segments = search.run()
    result = SegmentedFusion(fusion, segments, scalar_nodes, tuple(search.attempts))
    tracer.dump("segments", lambda: f"{result}\n{result.log()}")
    return result


#: The scheduler that takes a group, if one does, and the rejections before it.
Answer = tuple[Scheduler | None, list[str]]


class _Search:
    """The state of one partition."""

    def __init__(
        self,
        extractor: Extractor,
        nodes: Sequence[Node],
        registry: Sequence[Scheduler],
        exclusions: Exclusions,
    ) -> None:
        self.graph = GroupGraph(nodes)
        self.extractor = extractor
        self.registry = registry
        self._excluded = ExclusionIndex(exclusions)
        self.attempts: list[Attempt] = []
        self._asked: dict[tuple[Node, ...], Answer] = {}
        # What groups that were taken look like, until they merge: a group that stays is a segment as it is.
        self._extracted: dict[tuple[Node, ...], tuple[Extraction, Planner]] = {}
        # Group -> groups that it was refused with. A merged group inherits the refusals of its parts until
        # nothing else merges: growing seldom makes a neighbour welcome, and asking again is what costs.
        self._refused: dict[int, set[int]] = {}
        self._refusals = 0

    def run(self) -> tuple[Segment, ...]:
        graph = self.graph
        everything = graph.kernels()
        if everything and graph.can_merge(everything) and self._is_taken(everything):
            graph.merge(everything)
        else:
            self._merge_until_stable()
        groups = [graph.nodes([group]) for group in graph.groups()]
        if len(groups) > 1:
            cheaper = recompute_borders(self.extractor.whole, groups, self._is_segment)
            # A group that hands on less than when it was asked about may be refused after all.
            with suppress(NoSchedulerError):
                return self._segments(cheaper)
        return self._segments(groups)

    def _segments(self, groups: Sequence[Sequence[Node]]) -> tuple[Segment, ...]:
        """One segment a group. NoSchedulerError for groups that no scheduler takes."""
        handed_on = owned_borders(groups)
        answers = [self._segment(i, nodes, handed_on[i]) for i, nodes in enumerate(groups)]
        segments = tuple(answer for answer in answers if isinstance(answer, Segment))
        if len(segments) < len(answers):
            unschedulable = [(nodes, a) for nodes, a in zip(groups, answers) if not isinstance(a, Segment)]
            raise NoSchedulerError(
                "\n".join(_unschedulable_text(nodes, reasons) for nodes, reasons in unschedulable),
                nodes=frozenset(node for nodes, _ in unschedulable for node in nodes),
            )
        return segments

    def _merge_until_stable(self) -> None:
        while True:
            merged = False
            while self._round() or self._merge_siblings():
                merged = True
            if not merged or not self._refused:
                return
            self._refused.clear()

    def _round(self) -> bool:
        """Merges producers with consumers, each group once at most; returns whether any merged."""
        made: set[int] = set()
        for group in self.graph.kernels():
            if group not in self.graph.members:
                continue
            partners = [g for g in self.graph.neighbours(group) if g not in made]
            merged = self._absorb(group, partners)
            if merged != group:
                made.add(merged)
        return bool(made)

    def _merge_siblings(self) -> bool:
        """Merges groups that read the same tensor, which is then read once; returns whether any merged."""
        merged = False
        for readers in self.graph.readers():
            alive = [g for g in readers if g in self.graph.members]
            while len(alive) > 1:
                merged |= self._absorb(alive[0], alive[1:]) != alive[0]
                alive = [g for g in alive[1:] if g in self.graph.members]
        return merged

    def _absorb(self, group: int, partners: Sequence[int]) -> int:
        """Merges `group` with as many partners as a scheduler takes; returns what it is then part of.

        Partners are offered in batches that double as long as they are taken, so a large group is shown
        a few times only.
        """
        refused = self._refused.get(group, set())
        partners = [g for g in partners if g not in refused]
        self._refusals = 0
        start, size = 0, FIRST_BATCH
        while start < len(partners) and self._refusals < MAX_REFUSALS:
            before = group
            group = self._absorb_batch(group, partners[start : start + size])
            start += size
            size = 2 * size if group != before else FIRST_BATCH
        return group

    def _absorb_batch(self, group: int, partners: Sequence[int]) -> int:
        """Merges with the partners all at once if they are taken, else by halves."""
        groups = [group, *partners]
        if self.graph.can_merge(groups) and self._is_taken(groups):
            self._refusals = 0
            return self._merge(groups)
        if len(partners) == 1:
            self._refusals += 1
            for a, b in (groups, groups[::-1]):
                self._refused.setdefault(a, set()).add(b)
            return group
        half = len(partners) // 2
        for part in (partners[:half], partners[half:]):
            if self._refusals < MAX_REFUSALS:
                group = self._absorb_batch(group, part)
        return group

    def _merge(self, groups: Sequence[int]) -> int:
        for group in groups:
            self._extracted.pop(tuple(self.graph.nodes([group])), None)
        new = self.graph.merge(groups)
        inherited: set[int] = set()
        for group in groups:
            for other in self._refused.pop(group, ()):
                self._refused.get(other, set()).discard(group)
                inherited.add(other)
        if inherited := inherited - set(groups):
            self._refused[new] = inherited
            for other in inherited:
                self._refused.setdefault(other, set()).add(new)
        return new

    # ---- asking the schedulers

    def _is_taken(self, groups: Sequence[int]) -> bool:
        """Whether a scheduler takes the union of the groups."""
        return self._offer(self.graph.nodes(groups))[0] is not None

    def _offer(self, nodes: Sequence[Node]) -> Answer:
        """Shows the schedulers a group of nodes, producers first; asks once for each group."""
        key = tuple(nodes)
        if key in self._asked:
            return self._asked[key]
        extraction = self.extractor.extract(nodes)
        taker, reasons = extraction.first_accepting(self._schedulers(nodes))
        scheduler = None
        if taker is not None:
            scheduler, planner = taker
            self._extracted[key] = extraction, planner
        taken_by = type_name(scheduler.type) if scheduler is not None else None
        results = tuple(tensor.name for tensor in extraction.outputs)
        self.attempts.append(Attempt(results, len(nodes), taken_by, tuple(reasons)))
        self._asked[key] = scheduler, reasons
        return scheduler, reasons

    def _is_segment(self, nodes: Sequence[Node], read_elsewhere: set[TensorView]) -> bool:
        """Whether a scheduler takes these nodes as a group of which others read these tensors."""
        return isinstance(self._segment(0, nodes, read_elsewhere), Segment)

    def _segment(
        self, index: int, nodes: Sequence[Node], read_elsewhere: set[TensorView]
    ) -> Segment | list[str]:
        """The segment of a group, or the rejections where no scheduler takes it."""
        outputs = self.extractor.outputs_of(nodes, read_elsewhere)
        is_known = outputs == self.extractor.outputs_of(nodes)
        scheduler, reasons = self._offer(nodes) if is_known else (None, [])
        if is_known and scheduler is None:
            return reasons
        known = self._extracted.get(tuple(nodes)) if is_known else None
        if scheduler is None or known is None:
            extraction = self.extractor.extract(nodes, read_elsewhere)
            taker, reasons = extraction.first_accepting(self._schedulers(nodes))
            if taker is None:
                return reasons
            scheduler, planner = taker
            known = extraction, planner
        return Segment(index, scheduler, known[1], self.extractor.inputs_of(nodes), tuple(nodes), known[0])

    def _schedulers(self, nodes: Sequence[Node]) -> Sequence[Scheduler]:
        """Those that are asked about these nodes."""
        excluded = self._excluded.names(nodes)
        return [s for s in self.registry if type_name(s.type) not in excluded]


def _unschedulable_text(nodes: Sequence[Node], reasons: Sequence[str]) -> str:
    head = f"Can not find a scheduler to schedule fusion segment: {_described(nodes)}"
    return "\n  ".join([head, *reasons])


def _described(nodes: Sequence[Node]) -> str:
    """The nodes as a user knows them: `T3 = Sum(T1)`."""

    def names(values: Iterable[object]) -> str:
        return ", ".join(v.name if isinstance(v, TensorView) else str(v) for v in values)

    return "; ".join(f"{names(node.outputs)} = {node.label}({names(node.inputs)})" for node in nodes)
