"""Finds work that a kernel repeats for each point of dimensions that the work does not depend on.

    x[b, s, d] + sin(positions[s] * rates[d])

A single kernel computes the sines for each b. If that takes longer than the memory traffic, a small kernel
computes them once, and the large kernel reads them from the L2 cache.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from fusewright.analyze.kinds import is_gather
from fusewright.ir import Copy, Node, Random, Reduction, Scan, TensorView, Val
from fusewright.schedulers.slots import LONG_SLOTS, slots_of
from fusewright.segment.order import connected_parts
from fusewright.sym import Symbol, evaluate

# The least ratio of a kernel's points to those of the work that it repeats.
LEAST_REPEATS = 4
# Slots that a load counts as whose place other loads say: it waits for these, and loads elements one by one.
GATHER_SLOTS = 32


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
    """The elementwise parts of a kernel that have few points and take long to compute.

    If such a part itself repeats work of even fewer points, both the part and that work are returned.

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
    position = {node: i for i, node in enumerate(nodes)}
    found: dict[tuple[Node, ...], None] = {}
    longest = sorted({few[n.output] for n in nodes if n.output in few and _takes_long(n)}, reverse=True)
    for bound in (most, *longest[:-1]) if longest else ():
        there = {value for value, needed in few.items() if needed < bound}
        parts = connected_parts(_worth_it(nodes, there))
        found.update(dict.fromkeys(sorted(parts, key=lambda part: position[part[-1]])))
    return [RepeatedWork(part, _saved(part, most, points)) for part in found]


def _saved(part: Sequence[Node], most: int, points: Mapping[TensorView, int]) -> int:
    """The slots that are saved if a kernel computes the part once.

    Nodes of a single point do not count: a thread computes them only once anyway.
    """
    repeated = [node for node in part if _takes_long(node) and points[node.output] > 1]
    return sum(_slots(node) * (most - points[node.output]) for node in repeated)


def _points(tensor: TensorView, sizes: Mapping[Symbol, int]) -> int:
    return prod(evaluate(axis.extent, sizes) for axis in tensor.iterated if not axis.is_broadcast)


def _takes_long(node: Node) -> bool:
    return not isinstance(node, (Reduction, Scan)) and _slots(node) >= LONG_SLOTS


def _slots(node: Node) -> int:
    return GATHER_SLOTS if is_gather(node) else slots_of(node)


def _may_be_apart(node: Node) -> bool:
    is_elementwise = node.traits.pointwise or node.traits.indexed
    is_boundary = isinstance(node, Copy) and node.segment
    return is_elementwise and not is_boundary and not isinstance(node, Random)


def _worth_it(nodes: Sequence[Node], few: Collection[Val]) -> list[Node]:
    """The nodes of a kernel that computes the long work among the nodes that make `few`.

    These are the nodes that take long, those that they depend on, and those that depend on nothing else.
    Views at the end are left out, since they cost their reader nothing.
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
