"""Merges groups that shared elementwise work kept apart, once each group recomputes this work.

    first {mean}, second {deviations, column sums}, third {rows, of the mean and the deviations}

The third depends on the second, which depends on the first, so the first and the third cannot merge. Once the
third recomputes the deviations, it depends only on the first, and they can. Similarly, groups read a common
tensor once each recomputes an intermediate tensor from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from fusewright.ir import Node, TensorView
from fusewright.segment.groups import GroupGraph

Group = Sequence[Node]

# Each reader of a tensor is offered for a merge with at most this many of the following readers: a tensor may
# have thousands.
MAX_SIBLINGS = 8


def merged_again(
    before: Sequence[Group],
    after: Sequence[Sequence[Group]],
    position: Mapping[Node, int],
    accepts: Callable[[Sequence[Node], set[TensorView]], bool],
) -> list[Group]:
    """The groups in launch order, after merges that the previous search did not try.

    Args:
        before: groups in launch order that share no node.
        after: the replacement of each.
        position, accepts: as in `recompute_borders`.
    """
    if all(_stays(old, new) for old, new in zip(before, after)):
        return list(before)
    return _Regrouping(before, after, position, accepts).run()


class _Regrouping:
    def __init__(
        self,
        before: Sequence[Group],
        after: Sequence[Sequence[Group]],
        position: Mapping[Node, int],
        accepts: Callable[[Sequence[Node], set[TensorView]], bool],
    ) -> None:
        self.old = GroupGraph(before)
        self.graph = GroupGraph([group for parts in after for group in parts])
        self.then = [set(group) for group in before]
        self.now = [set(group) for parts in after for group in parts]
        self.position = position
        self.accepts = accepts
        # For each group of `graph` the group of `old` that it replaces.
        self.origin = [i for i, parts in enumerate(after) for _ in parts]
        self.changed = {i for i, (a, b) in enumerate(zip(before, after)) if not _stays(a, b)}
        self.related_before = _candidates(self.old)
        # For each initial group of `graph` the merged group that it is part of.
        self.part_of = list(range(len(self.origin)))

    def run(self) -> list[Group]:
        candidates = sorted(_candidates(self.graph))
        for pair in candidates:
            groups = sorted({self.part_of[i] for i in pair})
            if len(groups) < 2 or not self._is_new(pair) or not self.graph.can_merge(groups):
                continue
            if self.accepts(self._nodes(groups), self.graph.handed_on(groups)):
                merged = self.graph.merge(groups)
                self.part_of = [merged if g in groups else g for g in self.part_of]
        return [nodes for group in self.graph.groups() if (nodes := self._nodes([group]))]

    def _is_new(self, pair: tuple[int, int]) -> bool:
        """Whether the previous search did not ask schedulers about the nodes of these two groups."""
        first, second = self.origin[pair[0]], self.origin[pair[1]]
        if (first, second) not in self.related_before or not self.old.can_merge((first, second)):
            return True
        # If one group only recomputes nodes of the other, they have together the same nodes as before.
        is_changed = first in self.changed or second in self.changed
        return is_changed and self.now[pair[0]] | self.now[pair[1]] != self.then[first] | self.then[second]

    def _nodes(self, groups: Sequence[int]) -> list[Node]:
        return sorted(self.graph.nodes(groups), key=self.position.__getitem__)


def _stays(group: Group, parts: Sequence[Group]) -> bool:
    return len(parts) == 1 and set(parts[0]) == set(group)


def _candidates(graph: GroupGraph) -> set[tuple[int, int]]:
    """Pairs of groups that might merge: producer and consumer, or readers of the same tensor."""
    return set(_pairs(graph))


def _pairs(graph: GroupGraph) -> Iterator[tuple[int, int]]:
    kernels = graph.kernels()
    for group in kernels:
        for other in graph.neighbours(group):
            yield min(group, other), max(group, other)
    for readers in graph.readers():
        for i, group in enumerate(readers):
            for other in readers[i + 1 : i + 1 + MAX_SIBLINGS]:
                yield min(group, other), max(group, other)
