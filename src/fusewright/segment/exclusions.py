"""Pairs of schedulers and nodes that a partition does not try, because they failed or are slow for some
sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fusewright.ir import Node


@dataclass(frozen=True, slots=True)
class Exclusions:
    """The groups that schedulers are not asked about. A scheduler is given by the name of its type.

    Attributes:
        nodes: pairs of a scheduler and a node. The scheduler is not asked about groups with the node.
        apart: pairs of a scheduler and disjoint sets of nodes. The scheduler is not asked about groups with
            nodes of two of the sets.
        once: nodes that no kernel recomputes; kernels read their results.
        redefinition: whether the graph may be rewritten for the sizes of a call.
    """

    nodes: frozenset[tuple[str, Node]] = frozenset()
    apart: frozenset[tuple[str, frozenset[frozenset[Node]]]] = frozenset()
    once: frozenset[Node] = frozenset()
    redefinition: bool = True

    def without_nodes(self, name: str, nodes: Iterable[Node]) -> Exclusions:
        return replace(self, nodes=self.nodes | {(name, node) for node in nodes})

    def without_merges(self, name: str, *parts: Iterable[Node]) -> Exclusions:
        """Also excludes the scheduler from groups with nodes of two of the parts."""
        return replace(self, apart=self.apart | {(name, frozenset(map(frozenset, parts)))})

    def without_repeats(self, nodes: Iterable[Node]) -> Exclusions:
        return replace(self, once=self.once.union(nodes))

    def without_redefinition(self) -> Exclusions:
        return replace(self, redefinition=False)

    def forgetting(self, nodes: Iterable[Node], required: Exclusions) -> Exclusions:
        """Those that name none of these nodes, and the required ones."""
        named = set(nodes)
        apart = {(name, parts) for name, parts in self.apart if named.isdisjoint(frozenset().union(*parts))}
        return replace(
            self,
            nodes=required.nodes | {(name, node) for name, node in self.nodes if node not in named},
            apart=required.apart | apart,
            once=required.once | (self.once - named),
        )

    def of(self, twins: Mapping[Node, Node]) -> Exclusions:
        """The same exclusions with each node replaced by `twins[node]`, if there is one."""
        if not self.nodes and not self.apart and not self.once:
            return self
        return replace(
            self,
            nodes=frozenset((name, twins.get(node, node)) for name, node in self.nodes),
            apart=frozenset(
                (name, frozenset(frozenset(twins.get(n, n) for n in part) for part in parts))
                for name, parts in self.apart
            ),
            once=frozenset(twins.get(node, node) for node in self.once),
        )


class ExclusionIndex:
    """Finds the schedulers that are excluded for a group, in time proportional to the group."""

    def __init__(self, exclusions: Exclusions) -> None:
        self._names: dict[Node, set[str]] = {}
        for name, node in exclusions.nodes:
            self._names.setdefault(node, set()).add(name)
        # For each pair of `exclusions.apart`: the scheduler, and the index of the set that a node is in.
        self._apart = [
            (name, {node: i for i, part in enumerate(parts) for node in part})
            for name, parts in exclusions.apart
        ]

    def names(self, group: Sequence[Node]) -> frozenset[str]:
        """The schedulers that are not asked about a group."""
        if not self._names and not self._apart:
            return _NOTHING
        names = set().union(*(self._names[node] for node in group if node in self._names))
        for name, part in self._apart:
            if len({part[node] for node in group if node in part}) > 1:
                names.add(name)
        return frozenset(names)


_NOTHING: frozenset[str] = frozenset()

NO_EXCLUSIONS = Exclusions()
