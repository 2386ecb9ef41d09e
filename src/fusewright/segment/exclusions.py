"""Which schedulers a partition does not ask about which nodes: they failed, or are slow for some sizes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fusewright.ir import Node


@dataclass(frozen=True, slots=True)
class Exclusions:
    """What schedulers, by the names of their types, are not asked about.

    Attributes:
        nodes: a scheduler with a node: it is asked about no group with this node.
        merges: a scheduler with a set of nodes: it is asked about no group with two of them.
    """

    nodes: frozenset[tuple[str, Node]] = frozenset()
    merges: frozenset[tuple[str, frozenset[Node]]] = frozenset()

    def without_nodes(self, name: str, nodes: Iterable[Node]) -> Exclusions:
        return Exclusions(self.nodes | {(name, node) for node in nodes}, self.merges)

    def without_merges(self, name: str, nodes: Iterable[Node]) -> Exclusions:
        return Exclusions(self.nodes, self.merges | {(name, frozenset(nodes))})

    def __or__(self, other: Exclusions) -> Exclusions:
        return Exclusions(self.nodes | other.nodes, self.merges | other.merges)


class ExclusionIndex:
    """Answers by group which schedulers are excluded, at the cost of the group."""

    def __init__(self, exclusions: Exclusions) -> None:
        self._names: dict[Node, set[str]] = {}
        for name, node in exclusions.nodes:
            self._names.setdefault(node, set()).add(name)
        self._merges = exclusions.merges

    def names(self, group: Sequence[Node]) -> set[str]:
        """The schedulers that are not asked about a group."""
        names = set().union(*(self._names[node] for node in group if node in self._names))
        names.update(name for name, apart in self._merges if sum(node in apart for node in group) > 1)
        return names


NO_EXCLUSIONS = Exclusions()
