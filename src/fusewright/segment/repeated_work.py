"""Finds work that a kernel repeats for each point of dimensions that the work does not depend on.

    x[b, s, d] + sin(positions[s] * rates[d])

A single kernel computes the sines for each b. If that takes longer than the memory traffic, a small kernel
computes them once, and the large kernel reads them from the L2 cache.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from fusewright.ir import Copy, Node, Random, Reduction, Scan, TensorView, Val
from fusewright.schedulers.slots import LONG_SLOTS, slots_of
from fusewright.sym import Symbol, evaluate

# The least ratio of a kernel's points to those of the work that it repeats.
LEAST_REPEATS = 4


@dataclass(frozen=True, slots=True)
class RepeatedWork:
    """A part of a kernel that could be computed once.

    Attributes:
        nodes: its nodes, producers first.
        slots: the most arithmetic (`core.op.Spelling.slots`) that computing it once would save.
    """

    nodes: tuple[Node, ...]
    slots: int


def repeated_work(nodes: Sequence[Node], sizes: Mapping[Symbol, int]) -> list[RepeatedWork]:
    """The elementwise parts of a kernel that have few points and take long to compute. A part that itself
    repeats work of fewer points is returned as well as that work alone.

    Args:
        nodes: the kernel's nodes, producers first.
        sizes: the sizes of the graph. If one that the kernel uses is missing, no part is returned.
    """
    if not any(map(_takes_long, nodes)):
        return []
    read = {v for node in nodes if isinstance(node, (Reduction, Scan)) for v in node.tensor_inputs}
    computed = {out for node in nodes for out in node.tensor_outputs}
    extents = {axis.extent for tensor in computed | read for axis in tensor.iterated}
    if not all(sizes.keys() >= extent.free_symbols for extent in extents):
        return []
    points = {tensor: _points(tensor, sizes) for tensor in computed | read}
    most = max(points.values())
    few: dict[Val, int] = {}
    for node in nodes:
        inside = [v for v in node.tensor_inputs if v in computed]
        own = points[node.output]
        if _may_be_apart(node) and LEAST_REPEATS * own <= most and all(v in few for v in inside):
            few[node.output] = max([own, *(few[v] for v in inside)])
    found: dict[tuple[Node, ...], None] = {}
    longest = sorted({few[n.output] for n in nodes if n.output in few and _takes_long(n)}, reverse=True)
    for bound in (most, *longest[:-1]) if longest else ():
        there = {value for value, needed in few.items() if needed < bound}
        found.update(dict.fromkeys(map(tuple, _connected(_worth_it(nodes, there)))))
    return [RepeatedWork(part, _saved(part, most, points)) for part in found]


def _saved(part: Sequence[Node], most: int, points: Mapping[TensorView, int]) -> int:
    """A value of one point a thread computes once."""
    repeated = [node for node in part if _takes_long(node) and points[node.output] > 1]
    return sum(slots_of(node) * (most - points[node.output]) for node in repeated)


def _points(tensor: TensorView, sizes: Mapping[Symbol, int]) -> int:
    return prod(evaluate(axis.extent, sizes) for axis in tensor.iterated if not axis.is_broadcast)


def _takes_long(node: Node) -> bool:
    return not isinstance(node, (Reduction, Scan)) and slots_of(node) >= LONG_SLOTS


def _may_be_apart(node: Node) -> bool:
    is_elementwise = node.traits.pointwise or node.traits.indexed
    is_boundary = isinstance(node, Copy) and node.segment
    return is_elementwise and not is_boundary and not isinstance(node, Random)


def _worth_it(nodes: Sequence[Node], few: Collection[Val]) -> list[Node]:
    """Of nodes of few points those that take long, what they follow from, and what follows from them alone
    but for views, which cost their reader nothing.
    """
    kept: set[Node] = {node for node in nodes if node.output in few and _takes_long(node)}
    for node in reversed(nodes):
        if node.output in few and any(use in kept for use in node.output.uses):
            kept.add(node)
    for node in nodes:
        read = node.tensor_inputs
        if node.output in few and read and all(v.definition in kept for v in read):
            kept.add(node)
    for node in reversed(nodes):
        is_last = not any(use in kept for use in node.output.uses)
        if node in kept and is_last and node.traits.view:
            kept.remove(node)
    return [node for node in nodes if node in kept]


def _connected(nodes: Sequence[Node]) -> list[list[Node]]:
    """The nodes cut up where no tensor leads from one to another."""
    parts: list[list[Node]] = []
    for node in nodes:
        near = [part for part in parts if any(v.definition in part for v in node.inputs)]
        parts = [part for part in parts if part not in near]
        parts.append([*(each for part in near for each in part), node])
    return [[node for node in nodes if node in part] for part in parts]
