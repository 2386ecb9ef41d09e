"""The acyclic graph of groups of nodes. A merge that would make a cycle is refused."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from fusewright.ir import Copy, Node, TensorView, Update, Val


def is_boundary(value: TensorView, reader: Node) -> bool:
    """Whether a kernel must end between the node that computes a tensor and one that reads it."""
    if isinstance(reader, Copy) and reader.segment:
        return True
    if isinstance(reader, Update) and value is reader.base:
        return True
    return value.definition is not None and value.definition.traits.updates


class GroupGraph:
    """Groups of nodes, with the edges that tensors make between them.

    A group is a number. Groups are kept in a topological order (`rank`). A merge repairs it only between the
    merged groups, as Pearce and Kelly (2007) do for new edges: "A dynamic topological sort algorithm for
    directed acyclic graphs". So the cost of a merge is proportional to the part of the order that it spans.
    """

    def __init__(self, groups: Sequence[Sequence[Node]], apart: Collection[Node] = ()) -> None:
        """The graph of these groups.

        If several groups compute a node, the other groups read its results from the first of them.

        Args:
            groups: groups of nodes that compute tensors, producers first; so are the nodes of each group.
            apart: nodes whose groups never merge.
        """
        count = len(groups)
        self._nodes = [node for group in groups for node in group]
        # Groups that never merge but keep their place in the order: nodes of libraries, and those of `apart`.
        self._whole = {
            i for i, group in enumerate(groups) if group and (group[0].traits.whole or group[0] in apart)
        }
        self.members: dict[int, list[int]] = {}
        self._consumers: dict[int, set[int]] = {i: set() for i in range(count)}
        self._producers: dict[int, set[int]] = {i: set() for i in range(count)}
        # Group -> groups that it never merges with, since a kernel boundary is between them.
        self._separated: dict[int, set[int]] = {i: set() for i in range(count)}
        self._order: list[int | None] = list(range(count))
        self._rank: dict[int, int] = {i: i for i in range(count)}
        self._owner = [i for i, group in enumerate(groups) for _ in group]
        self._next = count
        # Places are indices into `_nodes`. For each tensor: the places of all its readers, and of the readers
        # in groups that do not compute it. For each node: its first place.
        self._readers: dict[TensorView, list[int]] = {}
        self._foreign_readers: dict[Val, list[int]] = {}
        self._first: dict[Node, int] = {}
        start = 0
        for i, group in enumerate(groups):
            self.members[i] = list(range(start, start + len(group)))
            own = set(group)
            for place, node in enumerate(group, start):
                self._first.setdefault(node, place)
                for value in dict.fromkeys(v for v in node.inputs if isinstance(v, TensorView)):
                    self._readers.setdefault(value, []).append(place)
                    above = value.definition
                    if above is None or above in own or above not in self._first:
                        continue
                    self._foreign_readers.setdefault(value, []).append(place)
                    producer = self._owner[self._first[above]]
                    self._consumers[producer].add(i)
                    self._producers[i].add(producer)
                    if is_boundary(value, node):
                        self._separated[producer].add(i)
                        self._separated[i].add(producer)
            start += len(group)

    # ---- queries

    def groups(self) -> list[int]:
        """All groups, producers first."""
        return [g for g in self._order if g is not None]

    def kernels(self) -> list[int]:
        """The groups that may merge into kernels, producers first."""
        return [g for g in self._order if g is not None and g not in self._whole]

    def nodes(self, groups: Iterable[int]) -> list[Node]:
        """The nodes of several groups, each once, producers first."""
        return list(dict.fromkeys(self._nodes[i] for i in sorted(i for g in groups for i in self.members[g])))

    def handed_on(self, groups: Sequence[int]) -> set[TensorView]:
        """The tensors that other groups read from these groups."""
        inside = set(groups)
        found: set[TensorView] = set()
        for node in self.nodes(groups):
            if self._owner[self._first[node]] in inside:
                for out in node.outputs:
                    readers = {self._owner[i] for i in self._foreign_readers.get(out, ())} - inside
                    if any(node not in self.nodes([reader]) for reader in readers):
                        assert isinstance(out, TensorView)
                        found.add(out)
        return found

    def neighbours(self, group: int) -> list[int]:
        """The consumers and then the producers that may merge with `group`, each in topological order."""
        rank = self._rank.__getitem__
        consumers, producers = self._consumers[group] - self._whole, self._producers[group] - self._whole
        return [*sorted(consumers, key=rank), *sorted(producers, key=rank)]

    def readers(self) -> list[list[int]]:
        """For each tensor that several groups of `kernels` read: these groups, in topological order.

        Tensors of one element are left out, since it costs nothing to read them again.
        """
        found = []
        for tensor, readers in self._readers.items():
            if all(axis.is_broadcast for axis in tensor.shape):
                continue
            groups = sorted({self._owner[i] for i in readers} - self._whole, key=self._rank.__getitem__)
            if len(groups) > 1:
                found.append(groups)
        return found

    def can_merge(self, groups: Sequence[int]) -> bool:
        """Whether no kernel boundary is between the groups, and no path leaves them and comes back."""
        merged = set(groups)
        if any(self._separated[g] & merged for g in merged):
            return False
        return self._between(merged) is not None

    # ---- merging

    def merge(self, groups: Sequence[int]) -> int:
        """Merges groups for which `can_merge` is true; returns the number of the new group."""
        merged = set(groups)
        between = self._between(merged)
        assert between is not None, "merging these groups makes a cycle"
        new = self._next
        self._next += 1
        self.members[new] = sorted(i for g in merged for i in self.members.pop(g))
        for i in self.members[new]:
            self._owner[i] = new
        for edges in (self._consumers, self._producers, self._separated):
            edges[new] = set().union(*(edges.pop(g) for g in merged)) - merged
        for edges, back in (
            (self._consumers, self._producers),
            (self._producers, self._consumers),
            (self._separated, self._separated),
        ):
            for other in edges[new]:
                back[other] -= merged
                back[other].add(new)
        self._reorder(merged, new, *between)
        return new

    def _between(self, merged: set[int]) -> tuple[set[int], bool] | None:
        """The groups that stand between the first and the last of `merged` and depend on one of them.

        If `merged` have fewer producers than consumers, it returns the groups that one of them depends on
        instead: a tensor may have thousands of readers.

        Returns:
            The groups, and whether they are the dependent ones; None if a path through them leads back to
            `merged`, so that a merge would make a cycle.
        """
        rank = self._rank
        ranks = [rank[g] for g in merged]
        first, last = min(ranks), max(ranks)
        forward = sum(len(self._consumers[g]) for g in merged) <= sum(len(self._producers[g]) for g in merged)
        edges = self._consumers if forward else self._producers
        found: set[int] = set()
        stack = [g for m in merged for g in edges[m] if g not in merged]
        while stack:
            group = stack.pop()
            if group in found or not first < rank[group] < last:
                continue
            found.add(group)
            following = edges[group]
            if not merged.isdisjoint(following):
                return None
            stack += following
        return found, forward

    def _reorder(self, merged: set[int], new: int, found: set[int], forward: bool) -> None:
        """Puts `new` in place of `merged` in the order: its dependents after it, its dependencies before it.

        Args:
            found, forward: the result of `_between`.
        """
        ranks = [self._rank.pop(g) for g in merged]
        first, last = min(ranks), max(ranks)
        stretch = [g for g in self._order[first : last + 1] if g is not None and g not in merged]
        before = [g for g in stretch if (g in found) != forward]
        order = [*before, new, *(g for g in stretch if (g in found) == forward)]
        for place in range(first, last + 1):
            group = order[place - first] if place - first < len(order) else None
            self._order[place] = group
            if group is not None:
                self._rank[group] = place
