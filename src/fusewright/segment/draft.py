"""The graph that is being partitioned into kernels, with its segments and the schedulers' verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from fusewright.analyze.inputs import nodes_before
from fusewright.core.enums import MemoryType
from fusewright.core.errors import NoSchedulerError, SchedulerError
from fusewright.core.tracing import SILENT, Tracer
from fusewright.ir import Fusion, Node, Piece, TensorView, Update, Val
from fusewright.schedulers.base import Planner, Reject, Rewrite, Scheduler, type_name
from fusewright.segment.canonical import Extraction
from fusewright.segment.exclusions import ExclusionIndex, Exclusions
from fusewright.segment.extract import Extractor
from fusewright.segment.layouts import InputLayout, lay_out_inputs
from fusewright.segment.read_later import read_later
from fusewright.segment.recompute import owned_borders, recompute_borders
from fusewright.segment.regroup import merged_again
from fusewright.segment.segmented import Attempt, Segment, SegmentedFusion, Trial

#: The scheduler that accepts a group, or None, and the rejections by the schedulers before it.
Answer = tuple[Scheduler | None, list[str]]
Group = Sequence[Node]
AnyVal = TypeVar("AnyVal", bound=Val)


class Draft:
    """A copy of a definition's graph, which rewrites may change and restore.

    Segments use the names of the definition's values, if they have any. Schedulers' verdicts on a group are
    cached as long as the graph does not change. Only one thread may use a draft.

    Attributes:
        graph: the copy.
        registry: the schedulers that are asked, in order.
        attempts: every question to the schedulers, in order.
        made_by: for nodes that rewrites made, the names of these rewrites and of those that made the replaced
            nodes.
    """

    def __init__(
        self,
        fusion: Fusion,
        registry: Iterable[Scheduler],
        tracer: Tracer = SILENT,
        layouts: Iterable[InputLayout] = (),
    ) -> None:
        self.graph, values = fusion.clone()
        lay_out_inputs(self.graph, layouts)
        self.whole = fusion
        self._definition: dict[Val, Val] = {twin: value for value, twin in values.items()}
        self._twins = dict(zip(fusion.nodes, self.graph.nodes))
        self.registry = list(registry)
        self._tracer = tracer
        self.attempts: list[Attempt] = []
        self.made_by: dict[Node, frozenset[str]] = {}
        self._asked: dict[tuple[tuple[Node, ...], frozenset[str]], Answer] = {}
        # The extractions of accepted groups, until they merge: a group that does not merge becomes a segment
        # without being extracted again.
        self._extracted: dict[tuple[tuple[Node, ...], frozenset[str]], tuple[Extraction, Planner]] = {}
        self._segments: dict[tuple[object, ...], Segment | list[str]] = {}
        self._placed: dict[tuple[Segment, int], Segment] = {}
        self._refresh()

    def defined_nodes(self) -> dict[Node, Node]:
        """Maps each node of the graph that is a copy of a definition's node to that node."""
        return {twin: node for node, twin in self._twins.items()}

    def translated(self, exclusions: Exclusions) -> Exclusions:
        """Translates exclusions of the definition's nodes to exclusions of the graph's."""
        return exclusions.of(self._twins)

    def _refresh(self) -> None:
        """Recomputes what depends on the graph, after the graph has changed."""
        self.extractor = Extractor(self.graph, self._tracer)
        ordered = self.graph.ordered_nodes()
        #: the nodes that kernels and libraries compute, producers first
        self.nodes = [node for node in ordered if not node.is_scalar]
        #: the position of each node in topological order
        self.position = {node: i for i, node in enumerate(ordered)}
        self._returned = frozenset(self.graph.output_tensors())

    # ---- asking the schedulers

    def offer(self, nodes: Group, excluded: ExclusionIndex) -> Answer:
        """Asks the schedulers about a group of nodes, producers first. Each group is asked about once."""
        names = excluded.names(nodes)
        key = tuple(nodes), names
        if key in self._asked:
            return self._asked[key]
        schedulers = self._schedulers(names)
        if not schedulers:  # extracting what no scheduler may take would be work for nothing
            self._asked[key] = None, []
            return self._asked[key]
        extraction = self.extractor.extract(nodes)
        taker, reasons = extraction.first_accepting(schedulers)
        scheduler = None
        if taker is not None:
            scheduler, planner = taker
            self._extracted[key] = extraction, planner
        taken_by = type_name(scheduler.type) if scheduler is not None else None
        results = tuple(tensor.name for tensor in extraction.outputs)
        self.attempts.append(Attempt(results, len(nodes), taken_by, tuple(reasons)))
        self._asked[key] = scheduler, reasons
        return scheduler, reasons

    def forget(self, nodes: Group, excluded: ExclusionIndex) -> None:
        """Removes the cached data of a group that became part of another."""
        self._extracted.pop((tuple(nodes), excluded.names(nodes)), None)

    def _schedulers(self, excluded: frozenset[str]) -> Sequence[Scheduler]:
        return [s for s in self.registry if type_name(s.type) not in excluded]

    # ---- segments

    def segments(self, groups: Sequence[Group], exclusions: Exclusions) -> tuple[Segment, ...]:
        """The segments of the groups, in order.

        Groups recompute elementwise work at their borders if that saves memory traffic. Recomputation may
        leave a group without nodes or let groups merge, so there may be fewer segments than groups.

        Raises:
            NoSchedulerError: no scheduler accepts some of the groups.
        """
        excluded = ExclusionIndex(exclusions)
        if len(groups) > 1:

            def accepts(nodes: Sequence[Node], read_elsewhere: set[TensorView]) -> bool:
                return isinstance(self._segment(nodes, read_elsewhere, excluded), Segment)

            copies = [list(g) for g in groups]
            cheaper = recompute_borders(self.graph, copies, self.position, accepts, exclusions.once)
            # After all recomputation a group may have fewer outputs than when schedulers were asked about it,
            # so they may reject it now.
            plain = [group for parts in cheaper for group in parts]
            for made in (merged_again(groups, cheaper, self.position, accepts), plain):
                try:
                    return self._all_segments(made, excluded)
                except NoSchedulerError:
                    pass
        return self._all_segments(groups, excluded)

    def segment_of(self, group: Group, exclusions: Exclusions) -> Segment | None:
        """The segment of a group without recomputation; None if no scheduler accepts it."""
        inside = set(group)
        read = {
            out
            for node in group
            for out in node.outputs
            if isinstance(out, TensorView)
            and any(use not in inside and use in self.position for use in out.uses)
        }
        found = self._segment(group, read, ExclusionIndex(exclusions))
        return found if isinstance(found, Segment) else None

    def result(
        self,
        segments: Sequence[Segment],
        trials: tuple[Trial, ...] = (),
        launches: tuple[tuple[int, ...], ...] = (),
    ) -> SegmentedFusion:
        """The partition of the definition into these segments, in launch order."""
        placed = []
        for i, segment in enumerate(segments):
            if (segment, i) not in self._placed:
                self._placed[segment, i] = replace(segment, index=i)
            placed.append(self._placed[segment, i])
        scalars = tuple(node for node in self.whole.ordered_nodes() if node.is_scalar)
        return SegmentedFusion(self.whole, tuple(placed), scalars, tuple(self.attempts), trials, launches)

    def _all_segments(self, groups: Sequence[Group], excluded: ExclusionIndex) -> tuple[Segment, ...]:
        handed_on = owned_borders(groups)
        answers = [self._segment(nodes, handed_on[i], excluded) for i, nodes in enumerate(groups)]
        segments = tuple(answer for answer in answers if isinstance(answer, Segment))
        if len(segments) < len(answers):
            unschedulable = [(nodes, a) for nodes, a in zip(groups, answers) if not isinstance(a, Segment)]
            raise NoSchedulerError(
                "\n".join(_unschedulable_text(nodes, reasons) for nodes, reasons in unschedulable)
            )
        return segments

    def _segment(
        self, nodes: Group, read_elsewhere: set[TensorView], excluded: ExclusionIndex
    ) -> Segment | list[str]:
        """The segment of a group whose tensors in `read_elsewhere` others read, or the rejections."""
        names = excluded.names(nodes)
        outputs = self.extractor.outputs_of(nodes, read_elsewhere)
        key = tuple(nodes), outputs, names
        if key not in self._segments:
            self._segments[key] = self._new_segment(nodes, read_elsewhere, outputs, excluded)
        return self._segments[key]

    def _new_segment(
        self,
        nodes: Group,
        read_elsewhere: set[TensorView],
        outputs: tuple[TensorView, ...],
        excluded: ExclusionIndex,
    ) -> Segment | list[str]:
        names = excluded.names(nodes)
        is_known = outputs == self.extractor.outputs_of(nodes)
        scheduler, reasons = self.offer(nodes, excluded) if is_known else (None, [])
        if is_known and scheduler is None:
            return reasons
        known = self._extracted.get((tuple(nodes), names)) if is_known else None
        if scheduler is None or known is None:
            if not self._schedulers(names):
                return []
            extraction = self.extractor.extract(nodes, read_elsewhere)
            taker, reasons = extraction.first_accepting(self._schedulers(names))
            if taker is None:
                return reasons
            scheduler, planner = taker
            known = extraction, planner
        return self._make_segment(nodes, known[0], scheduler, known[1])

    def _make_segment(
        self, nodes: Group, extraction: Extraction, scheduler: Scheduler, planner: Planner
    ) -> Segment:
        values, outputs = self.named(extraction.values), self.named(extraction.outputs)
        inputs = self.extractor.inputs_of(nodes)
        return Segment(
            index=0,
            scheduler=scheduler,
            planner=planner,
            inputs=self.named(inputs),
            read_later=read_later(nodes, inputs, extraction.outputs, self._returned, self.position),
            nodes=tuple(nodes),
            operands=self.named(nodes[0].inputs),
            results=self.named(nodes[0].outputs),
            bases=self._bases(nodes),
            graph=self.graph,
            extraction=replace(extraction, values=values, outputs=outputs),
        )

    def joined(
        self, segments: Sequence[Segment], others: Sequence[Segment]
    ) -> tuple[tuple[Node, ...], set[TensorView]]:
        """The nodes of several segments, producers first, and the results that the segments `others` read."""
        nodes = {node for segment in segments for node in segment.nodes}
        read = {value for other in others for value in other.inputs}
        made = [out for node in nodes for out in node.tensor_outputs]
        handed_on = {out for out, name in zip(made, self.named(made)) if name in read}
        return tuple(sorted(nodes, key=self.position.__getitem__)), handed_on

    def made_by_scheduler(
        self, scheduler: Scheduler, nodes: Group, read_elsewhere: set[TensorView]
    ) -> Segment | Reject:
        """The segment that this scheduler makes of a group whose tensors in `read_elsewhere` others read, or
        its rejection.
        """
        extraction = self.extractor.extract(nodes, read_elsewhere)
        taker, _ = extraction.first_accepting([scheduler])
        if taker is not None:
            return self._make_segment(nodes, extraction, *taker)
        answer = extraction.segment.prepare(scheduler)
        assert isinstance(answer, Reject)
        return Reject(extraction.names.translated(answer.reason))

    def _bases(self, nodes: Group) -> dict[TensorView, TensorView]:
        changes = [(n.output, n.base) for n in nodes if isinstance(n, Update) and n.base is not None]
        changes += [(n.output, n.output.uses[0].output) for n in nodes if isinstance(n, Piece)]
        return dict(self.named(pair) for pair in changes)  # type: ignore[misc]

    def named(self, values: Iterable[AnyVal]) -> tuple[AnyVal, ...]:
        """Each value's counterpart in the definition, or the value itself if a rewrite made it."""
        own = self._definition
        return tuple([own.get(value, value) for value in values])  # type: ignore[misc]

    # ---- rewriting

    def apply(self, rewrite: Rewrite, nodes: Group, scheduler: Scheduler, copies: bool = False) -> Change:
        """Applies a rewrite that `scheduler` proposed for the segment of `nodes`.

        Args:
            copies: whether the new tensors are copies in another memory order. Then they may replace inputs
                of the graph, for all readers but those that make the copies. Of a result, the user gets the
                copy, and other readers read what is copied.

        Raises:
            SchedulerError: the rewrite replaces a tensor that the nodes do not compute, or replaces a tensor
                by one of another type or shape.
        """
        change = Change(self.graph)
        alive = frozenset(self.position)
        try:
            replaced = rewrite.replace(self.graph)
        except BaseException:
            change.note_new_nodes()
            change.undo()
            raise
        change.note_new_nodes()
        outputs = {out for node in nodes for out in node.outputs}
        for old, new in replaced.items():
            if (
                not (old in outputs or (copies and old.definition is None))
                or new.definition not in change.made
                or old.dtype is not new.dtype
                or old.extents != new.extents
            ):
                change.undo()
                expected = "a tensor that the segment computes, and a new one of its type and sizes"
                raise _misused(rewrite, old, new, expected, scheduler)
        change.redirect(replaced, copies)
        computed = _computed(replaced)
        for old, new in computed.items():
            # Readers, including the user, find the new tensor in the memory and layout of the old one.
            new.lie_as(old)
            if old in self._definition:
                self._definition[new] = self._definition[old]
        change.replaced = tuple(replaced.values())
        history = frozenset({rewrite.name}).union(*(self.made_by.get(node, ()) for node in nodes))
        self.made_by.update(dict.fromkeys(change.made, history))
        self._refresh()
        change.dead = tuple(node for node in alive if node not in self.position)
        known = alive.union(change.made)
        change.revived = tuple(node for node in self.position if node not in known)
        change.dropped = self._drop(change)
        for old, new in computed.items():
            if any(use in self.position for use in old.uses):
                self.undo(change)
                raise _misused(rewrite, old, new, "one that is not computed from it", scheduler)
        return change

    def undo(self, change: Change) -> None:
        """Undoes the latest change of the graph."""
        change.undo()
        for node in change.made:
            self.made_by.pop(node, None)
        for tensor in change.replaced:
            self._definition.pop(tensor, None)
        self._refresh()
        self._drop(change)
        for cache, key, value in change.dropped:
            cache[key] = value

    def _drop(self, change: Change) -> list[tuple[dict[Any, Any], Any, Any]]:
        """Removes and returns the cached data of nodes whose operands or readers the change replaces."""
        changed = [*change.made, *change.dead, *change.revived, *change.inputs]
        read = [v for node in changed for v in (*node.inputs, *change.inputs.get(node, ()))]
        touched = {*changed, *(v.definition for v in read if v.definition is not None)}
        caches: tuple[dict[Any, Any], ...] = (self._asked, self._extracted, self._segments)
        found = [(cache, key) for cache in caches for key in cache if not touched.isdisjoint(key[0])]
        found += [(self._placed, key) for key in self._placed if not touched.isdisjoint(key[0].nodes)]
        return [(cache, key, cache.pop(key)) for cache, key in found]


def _computed(replaced: Mapping[TensorView, TensorView]) -> dict[TensorView, TensorView]:
    """Those that a node computes: all but inputs."""
    return {old: new for old, new in replaced.items() if old.definition is not None}


def _misused(
    rewrite: Rewrite, old: TensorView, new: TensorView, expected: str, scheduler: Scheduler
) -> SchedulerError:
    problem = f"{rewrite.name} replaces {old} by {new}: expected {expected}"
    return SchedulerError(scheduler=type_name(scheduler.type), step="propose_redefinition", problem=problem)


class Change:
    """The effect of one rewrite on a graph, so that it can be undone exactly.

    Attributes:
        made: the nodes that it added.
        dead: the nodes that are no longer needed.
        revived: the nodes that an earlier change left without readers, and that have some again.
        inputs: for nodes with changed inputs, the previous inputs.
        replaced: the tensors that replaced another.
        dropped: cached data about the previous graph: cache, key and value.
    """

    def __init__(self, graph: Fusion) -> None:
        self.made: tuple[Node, ...] = ()
        self.dead: tuple[Node, ...] = ()
        self.revived: tuple[Node, ...] = ()
        self.inputs: dict[Node, tuple[Val, ...]] = {}
        self.replaced: tuple[TensorView, ...] = ()
        self.dropped: list[tuple[dict[Any, Any], Any, Any]] = []
        self._graph = graph
        self._before = set(graph.nodes)
        self._outputs = list(graph.outputs)
        self._numbering = graph.numbering

    def note_new_nodes(self) -> None:
        self.made = tuple(node for node in self._graph.nodes if node not in self._before)

    def redirect(self, replaced: Mapping[TensorView, TensorView], copies: bool = False) -> None:
        """Replaces the old tensors by the new ones in their readers and in the fusion's outputs.

        The nodes that compute a new tensor continue to read the old one. If the new ones are `copies`, the
        readers of a computed tensor read what is copied.
        """
        for old, new in replaced.items():
            tensor = new
            if copies and old.definition is not None:
                assert new.definition is not None
                (tensor,) = new.definition.tensor_inputs
            above = nodes_before([tensor])
            for user in [use for use in old.uses if use not in above]:
                self.inputs.setdefault(user, user.inputs)
                self._graph.replace_inputs(user, {old: tensor})
        computed = _computed(replaced)
        self._graph.outputs[:] = [
            replace(output, tensor=computed.get(output.tensor, output.tensor)) for output in self._outputs
        ]
        for output in self._graph.outputs:
            output.tensor.memory = MemoryType.global_

    def undo(self) -> None:
        for node, inputs in self.inputs.items():
            self._graph.replace_inputs(node, dict(zip(node.inputs, inputs)))
        for node in reversed(self.made):
            self._graph.remove_node(node)
        self._graph.outputs[:] = self._outputs
        self._graph.numbering = self._numbering


def _unschedulable_text(nodes: Sequence[Node], reasons: Sequence[str]) -> str:
    head = f"Can not find a scheduler to schedule fusion segment: {_described(nodes)}"
    return "\n  ".join([head, *reasons])


def _described(nodes: Sequence[Node]) -> str:
    """The nodes as text for the user: `T3 = Sum(T1)`."""

    def names(values: Iterable[object]) -> str:
        return ", ".join(v.name if isinstance(v, TensorView) else str(v) for v in values)

    return "; ".join(f"{names(node.outputs)} = {node.label}({names(node.inputs)})" for node in nodes)
