"""The greedy partition of a graph into groups, each of which one scheduler accepts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from fusewright.core.tracing import SILENT, Tracer
from fusewright.ir import Fusion, Node
from fusewright.schedulers.base import Scheduler, merges_last
from fusewright.segment.draft import Draft
from fusewright.segment.exclusions import NO_EXCLUSIONS, ExclusionIndex, Exclusions
from fusewright.segment.groups import GroupGraph
from fusewright.segment.row_results import with_row_results
from fusewright.segment.segmented import SegmentedFusion

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
    """Partitions `fusion` into segments, each accepted by a scheduler of `registry`, in launch order.

    The result depends only on the structure of the fusion and on `exclusions`. `decision` continues from
    there for the sizes of a call.

    Raises:
        NoSchedulerError: no scheduler accepts some nodes, alone or with their neighbours; the message says
            why.
    """
    draft = Draft(fusion, registry, tracer if tracer is not None else SILENT)
    exclusions = draft.translated(exclusions)
    return draft.result(draft.segments(merged_groups(draft, draft.nodes, exclusions), exclusions))


def merged_groups(
    draft: Draft, nodes: Sequence[Node], exclusions: Exclusions, apart: Collection[Node] = ()
) -> list[list[Node]]:
    """Merges `nodes` of the draft's graph into groups, each accepted by one scheduler, producers first.

    The host computes nodes of scalars. If one scheduler accepts everything, there is one group. A node that
    no kernel contains is a group by itself; the nodes around it merge as if it were absent, except for cycles
    through it. A node that no scheduler accepts stays a group, too.

    The search merges groups in rounds. In a round every group takes part in at most one merge, so the sizes
    of the tried groups add up to a multiple of the size of the fusion, and groups grow geometrically: for n
    nodes, about n log n nodes are shown to the schedulers.

    Args:
        apart: those of the nodes that stay groups by themselves.
    """
    groups = _Search(draft, nodes, exclusions, apart).run()
    excluded = ExclusionIndex(exclusions)
    kept = set(apart)

    def is_taken(group: Sequence[Node]) -> bool:
        return kept.isdisjoint(group) and draft.offer(group, excluded)[0] is not None

    return with_row_results(groups, draft.position, is_taken)


class _Search:
    """The state of one search."""

    def __init__(
        self, draft: Draft, nodes: Sequence[Node], exclusions: Exclusions, apart: Collection[Node]
    ) -> None:
        self.graph = GroupGraph([[node] for node in nodes], apart)
        self.draft = draft
        self._excluded = ExclusionIndex(exclusions)
        # Group -> groups that it was refused with. A merged group inherits the refusals of its parts until
        # nothing else merges: growing seldom makes a neighbour welcome, and asking again is what costs.
        self._refused: dict[int, set[int]] = {}
        self._refusals = 0
        # Whether schedulers that merge last may; and whether one would have before it might.
        self._may_merge_last = True
        self._would_merge_last = False

    def run(self) -> list[list[Node]]:
        graph = self.graph
        everything = graph.kernels()
        if everything and graph.can_merge(everything) and self._is_taken(everything):
            graph.merge(everything)
        else:
            self._may_merge_last = False
            self._merge_until_stable()
            if self._would_merge_last:
                self._may_merge_last = True
                self._refused.clear()
                self._merge_until_stable()
        return [graph.nodes([group]) for group in graph.groups()]

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
            self.draft.forget(self.graph.nodes([group]), self._excluded)
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

    def _is_taken(self, groups: Sequence[int]) -> bool:
        """Whether a scheduler takes the union of the groups."""
        scheduler, _ = self.draft.offer(self.graph.nodes(groups), self._excluded)
        if scheduler is None or self._may_merge_last or not merges_last(scheduler):
            return scheduler is not None
        self._would_merge_last = True
        return False
