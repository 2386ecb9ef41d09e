"""The report of a conversion: how much of a graph is in definitions, and what torch evaluates."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Evaluated:
    """An operator that torch computes because Fusewright has no operation for it.

    Attributes:
        node: its name in the graph.
        operator: the overload of ATen.
        reason: why there is no operation for it.
        within: whether it is part of a definition, whose host program calls torch; else it runs between two.
        results: type and sizes of its results.
    """

    node: str
    operator: str
    reason: str
    within: bool
    results: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """The conversion of a graph.

    Attributes:
        definitions: the number of definitions.
        nodes: the number of operators of the graph.
        records: the number of records of each definition.
        evaluated: the operators that torch computes, except those that it computes for every definition
            (products of matrices, sorting).
    """

    definitions: int
    nodes: int
    records: tuple[int, ...]
    evaluated: tuple[Evaluated, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as JSON takes it."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"{self.nodes} operators in {self.definitions} definition(s)"]
        places = {True: "within a definition", False: "between definitions"}
        counts = Counter((e.operator, e.within, e.reason) for e in self.evaluated)
        for (name, within, reason), count in counts.items():
            lines.append(f"torch computes {name} ({count}x, {places[within]}): {reason}")
        return "\n".join(lines)
