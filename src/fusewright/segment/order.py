"""The order in which kernels are launched."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from fusewright.ir import Node


def launch_order(
    groups: Sequence[Sequence[Node]], position: Mapping[Node, int]
) -> list[Sequence[Node]] | None:
    """The groups, each after those that it reads from, else by their first nodes; None if there is a
    cycle.
    """
    owner = {out: i for i, group in enumerate(groups) for node in group for out in node.outputs}
    readers: dict[int, set[int]] = {i: set() for i in range(len(groups))}
    waiting = [0] * len(groups)
    for i, group in enumerate(groups):
        for producer in {owner[v] for node in group for v in node.inputs if v in owner} - {i}:
            readers[producer].add(i)
            waiting[i] += 1
    first = [min(position[node] for node in group) for group in groups]
    ready = [(first[i], i) for i in range(len(groups)) if not waiting[i]]
    heapq.heapify(ready)
    order: list[Sequence[Node]] = []
    while ready:
        _, i = heapq.heappop(ready)
        order.append(groups[i])
        for reader in readers[i]:
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, (first[reader], reader))
    return order if len(order) == len(groups) else None
