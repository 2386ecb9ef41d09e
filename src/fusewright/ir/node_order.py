"""Orders of nodes in which each comes after those that it reads from."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from fusewright.ir.node import Node


def are_ordered(nodes: Sequence[Node]) -> bool:
    """Whether each node comes after those of them that it reads from."""
    later = {out for node in nodes for out in node.outputs}
    for node in nodes:
        if not later.isdisjoint(node.inputs):
            return False
        later.difference_update(node.outputs)
    return True


def producers_first(nodes: Sequence[Node]) -> list[Node]:
    """Each node after those of them that it reads from, as early in `nodes` as that allows."""
    position = {node: i for i, node in enumerate(nodes)}
    waiting = [len({v.definition for v in n.inputs if v.definition in position}) for n in nodes]
    ready = [i for i, count in enumerate(waiting) if count == 0]  # ascending, so a heap
    order: list[Node] = []
    while ready:
        node = nodes[heapq.heappop(ready)]
        order.append(node)
        users = node.outputs[0].uses
        if len(node.outputs) > 1:
            users = list(dict.fromkeys(u for out in node.outputs for u in out.uses))
        for user in users:
            place = position.get(user)
            if place is not None:
                waiting[place] -= 1
                if waiting[place] == 0:
                    heapq.heappush(ready, place)
    return order


def before_readers(nodes: Iterable[Node]) -> dict[Node, None]:
    """Each node in its place, or directly before its first reader if it stands behind that one.

    The nodes are those of a whole fusion.
    """
    order: dict[Node, None] = {}
    for first in nodes:
        stack = [first]
        while stack:
            above = (value.definition for value in stack[-1].inputs)
            missing = [node for node in above if node is not None and node not in order]
            if missing:
                stack += missing
            else:
                order[stack.pop()] = None
    return order
