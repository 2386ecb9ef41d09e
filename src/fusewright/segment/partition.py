"""The greedy partition of a graph into groups, each of which one scheduler accepts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeVar

from fusewright.core.errors import NoSchedulerError, RejectedError
from fusewright.core.tracing import SILENT, Tracer
from fusewright.ir import Fusion, Node
from fusewright.schedulers.base import Scheduler, merges_last, type_name
from fusewright.segment.draft import Draft
from fusewright.segment.exclusions import NO_EXCLUSIONS, ExclusionIndex, Exclusions
from fusewright.segment.groups import GroupGraph
from fusewright.segment.row_results import with_row_results
from fusewright.segment.segmented import SegmentedFusion
from fusewright.segment.window_results import WindowResults, far_too_often_repeated

#: The segments of a graph, or a decision's state.
Partitioned = TypeVar("Partitioned")

# After this many rejections in a row, a round goes on to the next group. Otherwise schedulers would be asked
# about a full group with each of its neighbours, which may be hundreds.
MAX_REFUSALS = 8
# The number of neighbours in the first batch that a group is offered with.
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
    return by_structure(draft, draft.translated(exclusions))


def by_structure(draft: Draft, exclusions: Exclusions) -> SegmentedFusion:
    """See `partition`."""

    def made(excluded: Exclusions) -> SegmentedFusion:
        return draft.result(draft.segments(merged_groups(draft, draft.nodes, excluded), excluded))

    return made_within_bounds(draft, exclusions, made)


def made_within_bounds(
    draft: Draft, exclusions: Exclusions, made: Callable[[Exclusions], Partitioned]
) -> Partitioned:
    """What `made` makes with the exclusions, extended so that no kernel computes results far too often
    (`window_results`) if there is such a partition.
    """
    found = far_too_often_repeated(draft.nodes, draft.graph.output_tensors())
    if found:
        try:
            return made(excluded_windows(draft, found, exclusions))
        except (NoSchedulerError, RejectedError):
            pass
    return made(exclusions)


def excluded_windows(draft: Draft, results: Sequence[WindowResults], exclusions: Exclusions) -> Exclusions:
    """Extends the exclusions so that kernels read these results instead of computing them again."""
    for each in results:
        exclusions = exclusions.without_repeats(each.makers)
        for scheduler in draft.registry:
            exclusions = exclusions.without_merges(type_name(scheduler.type), each.makers, each.readers)
    return exclusions


def merged_groups(
    draft: Draft, nodes: Sequence[Node], exclusions: Exclusions, apart: Collection[Node] = ()
) -> list[list[Node]]:
    """Merges nodes of the draft's graph into groups, each accepted by one scheduler, producers first.

    If one scheduler accepts everything, there is one group. A node that no kernel contains is a separate
    group; the nodes around it merge as if it were absent, unless that makes a cycle through it. A node that
    no scheduler accepts is a separate group, too.

    The search merges groups in rounds. In a round every group takes part in at most one merge, so the sizes
    of the tried groups add up to a multiple of the size of the fusion, and groups grow geometrically. For n
    nodes the schedulers are asked about groups of about n log n nodes in all.

    Args:
        nodes: the nodes, without nodes of scalars, which the host computes.
        apart: nodes among them that stay separate groups.
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
        # Group -> groups that schedulers rejected it with. A merged group inherits the rejections of its
        # parts until nothing else merges: a larger group is seldom accepted with a neighbour that rejected
        # its part, and questions take most of the time.
        self._refused: dict[int, set[int]] = {}
        self._refusals = 0
        # Whether schedulers that merge last are asked, and whether one has accepted a group while they were
        # not.
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
        """Merges groups that read the same tensor, so that it is read once; returns whether any merged."""
        merged = False
        for readers in self.graph.readers():
            alive = [g for g in readers if g in self.graph.members]
            while len(alive) > 1:
                merged |= self._absorb(alive[0], alive[1:]) != alive[0]
                alive = [g for g in alive[1:] if g in self.graph.members]
        return merged

    def _absorb(self, group: int, partners: Sequence[int]) -> int:
        """Merges `group` with as many partners as schedulers accept; returns the merged group.

        Partners are offered in batches. Each accepted batch doubles the size of the next, so schedulers are
        asked only a few times about a large group.
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
        """Merges with all the partners at once if a scheduler accepts that, else tries the two halves."""
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
        """Whether a scheduler that may merge now accepts the union of the groups."""
        scheduler, _ = self.draft.offer(self.graph.nodes(groups), self._excluded)
        if scheduler is None or self._may_merge_last or not merges_last(scheduler):
            return scheduler is not None
        self._would_merge_last = True
        return False
