"""Finds the inputs of a kernel that a later one reads, too, so that they do not leave the caches first.

    first {mean of x}, second {x - mean}

The second kernel finds a part of x in the caches, if the first has not marked x as read once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import nsmallest

from fusewright.analyze.kinds import is_gather
from fusewright.ir import Node, Reduction, Scan, TensorView, Val

# Nodes at most that are looked at of those that follow from a kernel's results, or from another reader of its
# input, and readers at most of each input: a kernel that comes much later finds nothing in the caches.
MAX_AHEAD = 8
MAX_READERS = 4


def read_later(
    nodes: Sequence[Node],
    inputs: Sequence[Val],
    outputs: Collection[TensorView],
    returned: Collection[TensorView],
    position: Mapping[Node, int],
) -> frozenset[int]:
    """The positions of the inputs that kernels which follow from this one's results read, too.

    What this kernel computes and does not store, others compute from its inputs. Those that only need what
    index tensors select read little.

    Args:
        nodes: the kernel's.
        outputs: what it stores.
        returned: what the graph returns.
        position: the position of each node in topological order.
    """
    inside = set(nodes)
    last = max(map(position.__getitem__, nodes))
    readers = {i: _readers(v, inside, outputs, position, last) for i, v in enumerate(inputs) if v.uses}
    if not any(readers.values()):
        return frozenset()
    after = _following([use for out in outputs for use in out.uses], position)
    found = set()
    for i, those in readers.items():
        for loop in (_following([reader], position, in_one_loop=True) for reader in those):
            meets = not after.isdisjoint(loop) and inside.isdisjoint(loop)
            if meets and any(_needs_all(node, returned) for node in loop):
                found.add(i)
    return frozenset(found)


def _readers(
    value: Val,
    inside: Collection[Node],
    outputs: Collection[TensorView],
    position: Mapping[Node, int],
    last: int,
) -> list[Node]:
    """The nodes outside of a kernel that read an input of it, or what it computes and does not store: those
    nearest to the kernel's last node.
    """
    found: set[Node] = set()
    stack = [value]
    while stack:
        for use in stack.pop().uses:
            if use not in found and use in position:
                found.add(use)
                if use in inside:
                    stack += [out for out in use.tensor_outputs if out not in outputs]
    others = [(abs(position[node] - last), position[node], node) for node in found.difference(inside)]
    return [node for *_, node in nsmallest(MAX_READERS, others)]


def _needs_all(node: Node, returned: Collection[TensorView]) -> bool:
    """Whether a node needs all that it reads, not only for those that select elements of its result."""
    is_result = any(not out.uses or out in returned for out in node.tensor_outputs)
    return is_result or not node.traits.pointwise


def _following(nodes: Iterable[Node], position: Mapping[Node, int], in_one_loop: bool = False) -> set[Node]:
    """These nodes and the first that follow from them; with `in_one_loop` neither those behind reductions nor
    loads by index tensors.
    """
    found = dict.fromkeys(node for node in nodes if node in position)
    for node in (queue := list(found)):
        if len(queue) < MAX_AHEAD and not (in_one_loop and isinstance(node, (Reduction, Scan))):
            users = dict.fromkeys(use for out in node.outputs for use in out.uses if use in position)
            new = [use for use in users if use not in found and not (in_one_loop and is_gather(use))]
            found.update(dict.fromkeys(new))
            queue += new
    return set(found)
