"""Which schedulers a partition does not ask about which nodes: they failed, or are slow for some sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fusewright.ir import Node


@dataclass(frozen=True, slots=True)
class Exclusions:
    """What schedulers, by the names of their types, are not asked about.

    Attributes:
        nodes: a scheduler with a node: it is asked about no group with this node.
        merges: a scheduler with a set of nodes: it is asked about no group with two of them.
        once: nodes that no kernel computes again: it reads their results.
        redefinition: whether the graph may be rewritten for the sizes of a call.
    """

    nodes: frozenset[tuple[str, Node]] = frozenset()
    merges: frozenset[tuple[str, frozenset[Node]]] = frozenset()
    once: frozenset[Node] = frozenset()
    redefinition: bool = True

    def without_nodes(self, name: str, nodes: Iterable[Node]) -> Exclusions:
        return replace(self, nodes=self.nodes | {(name, node) for node in nodes})

    def without_merges(self, name: str, nodes: Iterable[Node]) -> Exclusions:
        return replace(self, merges=self.merges | {(name, frozenset(nodes))})

    def without_repeats(self, nodes: Iterable[Node]) -> Exclusions:
        return replace(self, once=self.once.union(nodes))

    def without_redefinition(self) -> Exclusions:
        return replace(self, redefinition=False)

    def of(self, twins: Mapping[Node, Node]) -> Exclusions:
        """The same of other nodes: `twins[node]`, where there is one."""
        if not self.nodes and not self.merges and not self.once:
            return self
        return replace(
            self,
            nodes=frozenset((name, twins.get(node, node)) for name, node in self.nodes),
            merges=frozenset(
                (name, frozenset(twins.get(n, n) for n in apart)) for name, apart in self.merges
            ),
            once=frozenset(twins.get(node, node) for node in self.once),
        )


class ExclusionIndex:
    """Answers by group which schedulers are excluded, at the cost of the group."""

    def __init__(self, exclusions: Exclusions) -> None:
        self._names: dict[Node, set[str]] = {}
        for name, node in exclusions.nodes:
            self._names.setdefault(node, set()).add(name)
        self._merges = exclusions.merges

    def names(self, group: Sequence[Node]) -> frozenset[str]:
        """The schedulers that are not asked about a group."""
        if not self._names and not self._merges:
            return _NOTHING
        names = set().union(*(self._names[node] for node in group if node in self._names))
        names.update(name for name, apart in self._merges if sum(node in apart for node in group) > 1)
        return frozenset(names)


_NOTHING: frozenset[str] = frozenset()

NO_EXCLUSIONS = Exclusions()
