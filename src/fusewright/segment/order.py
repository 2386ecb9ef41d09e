"""The order in which kernels are launched, and which nodes of one kernel could move to another."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence

from fusewright.ir import Node, Permute, Reduction, Relabel, Scan, Val


def launch_order(
    groups: Sequence[Sequence[Node]], position: Mapping[Node, int]
) -> list[Sequence[Node]] | None:
    """The groups in topological order, otherwise by their first nodes; None if they form a cycle."""
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


def independent_parts(group: Sequence[Node]) -> list[tuple[Node, ...]]:
    """The parts of the group that can be separate kernels, each producers first.

    Parts are connected only by values that are computed from single elements, which each part may recompute.
    """
    made = {out: node for node in group for out in node.outputs}
    single: set[Node] = set()
    for node in group:
        tensors = (node.output, *node.tensor_inputs)
        own = (made[value] for value in node.inputs if value in made)
        if all(axis.is_broadcast for t in tensors for axis in t.shape) and all(n in single for n in own):
            single.add(node)
    parts = connected_parts([node for node in group if node not in single])
    if len(parts) < 2:
        return [tuple(group)]
    inside = single.union(parts[0])
    return [tuple(node for node in group if node in inside), *parts[1:]]


def connected_parts(group: Sequence[Node]) -> list[tuple[Node, ...]]:
    """The connected components of the group, ordered by their first nodes.

    Two nodes are connected if one reads what the other computes.
    """
    made = {out: node for node in group for out in node.outputs}
    neighbours: dict[Node, list[Node]] = {node: [] for node in group}
    for node in group:
        for producer in [made[value] for value in node.inputs if value in made]:
            neighbours[node].append(producer)
            neighbours[producer].append(node)
    position = {node: i for i, node in enumerate(group)}
    parts: list[tuple[Node, ...]] = []
    seen: set[Node] = set()
    for first in group:
        if first in seen:
            continue
        part: set[Node] = set()
        stack = [first]
        while stack:
            node = stack.pop()
            if node not in part:
                part.add(node)
                stack += neighbours[node]
        seen |= part
        parts.append(tuple(sorted(part, key=position.__getitem__)))
    return parts


def reductions_apart(group: Sequence[Node]) -> Iterator[tuple[Node, ...]]:
    """For each reduction two parts of the group: the reduction with its dependents, and these with the nodes
    that only they need.

    Parts that are the whole group are left out. The nodes are producers first, as in the group.
    """
    for start in group:
        if not isinstance(start, Reduction):
            continue
        part = _dependents(start, group)
        inside = set(part)
        for node in reversed(group):
            if node not in inside and all(inside.issuperset(out.uses) and out.uses for out in node.outputs):
                inside.add(node)
        if len(part) < len(group):
            yield part
        if len(part) < len(inside) < len(group):
            yield tuple([node for node in group if node in inside])


def across_memory(group: Sequence[Node]) -> list[tuple[Node, ...]]:
    """The parts that are independent of the group's reductions and reorder dimensions; of a group without a
    reduction, those that each reorder them in another way.
    """
    reducing = [node for node in group if isinstance(node, (Reduction, Scan))]
    if not reducing:
        return _orders(group)
    after: set[Val] = {out for node in reducing for out in node.outputs}
    before: set[Val] = {value for node in reducing for value in node.inputs}
    for node in group:
        if not after.isdisjoint(node.inputs):
            after.update(node.outputs)
    for node in reversed(group):
        if not before.isdisjoint(node.outputs):
            before.update(node.inputs)
    concerned = after | before
    parts = connected_parts([node for node in group if concerned.isdisjoint(node.outputs)])
    return [part for part in parts if any(map(_reorders, part))]


def _orders(group: Sequence[Node]) -> list[tuple[Node, ...]]:
    """Nodes that reorder dimensions, each with all that follows from it. The result is empty if these parts
    have a node in common, or reorder dimensions alike.
    """
    parts = {node: _dependents(node, group) for node in group if _reorders(node)}
    nodes = [node for part in parts.values() for node in part]
    apart = len(nodes) == len(set(nodes)) and len(set(map(_order, parts))) > 1
    return list(parts.values()) if apart else []


def _dependents(start: Node, group: Sequence[Node]) -> tuple[Node, ...]:
    """The node and those of the group that follow from it."""
    part, made = [start], set(start.outputs)
    for node in group[group.index(start) + 1 :]:
        if not made.isdisjoint(node.inputs):
            part.append(node)
            made.update(node.outputs)
    return tuple(part)


def _order(node: Node) -> tuple[int, ...]:
    """The input's dimension of each dimension of the output that has one, if the node may reorder them."""
    if not isinstance(node, (Permute, Relabel)):
        return ()
    return tuple(dim for dim in node.dims if dim is not None)


def _reorders(node: Node) -> bool:
    """Whether dimensions of the output are in another order than those of the input."""
    order = _order(node)
    return list(order) != sorted(order)


def surroundings(groups: Sequence[Sequence[Node]], index: int, owners: Mapping[Node, int]) -> list[int]:
    """The indices of the group and of the kernels that share a tensor with it, in order.

    owners: the index of each node's group.
    """
    values = {value for node in groups[index] for value in (*node.tensor_inputs, *node.outputs)}
    nodes = {node for value in values for node in (value.definition, *value.uses)}
    near = {owners[node] for node in nodes if node is not None and node in owners}
    return sorted(i for i in near if i == index or not groups[i][0].traits.whole)
