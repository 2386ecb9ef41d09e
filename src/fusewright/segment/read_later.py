"""Finds the inputs of a kernel that a later one reads, too, so that they are not to leave the caches first.

first {mean of x}, second {x - mean}        the first's x
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from fusewright.ir import Indexed, Node, Reduction, Scan, TensorView, Val

# Nodes at most that are looked at of those that follow from the results: a kernel that comes much later finds
# nothing in the caches.
MAX_AHEAD = 64


def read_later(
    nodes: Sequence[Node],
    inputs: Sequence[Val],
    outputs: Collection[TensorView],
    position: Mapping[Node, int],
) -> frozenset[int]:
    """The positions of the inputs that kernels read, too, with what follows from this one's results.

    What this kernel computes and does not store, others compute from its inputs. Those that only need what
    index tensors select read little.

    Args:
        nodes: the kernel's.
        outputs: what it stores.
        position: the position of each node in topological order.
    """
    inside = set(nodes)
    readers = {
        i: {node for node in _readers(value, inside, outputs, position) if _reads_much(node, position)}
        for i, value in enumerate(inputs)
        if isinstance(value, TensorView)
    }
    first = min([position[reader] for those in readers.values() for reader in those], default=None)
    if first is None:
        return frozenset()
    before = _before(nodes, first, position)
    after = _following([use for out in outputs for use in out.uses], position)
    met = {reader for those in readers.values() for reader in those - before}
    later = {reader for reader in met if after.intersection(_following([reader], position, elementwise=True))}
    return frozenset(i for i, those in readers.items() if those & later)


def _readers(
    value: TensorView, inside: Collection[Node], outputs: Collection[TensorView], position: Mapping[Node, int]
) -> set[Node]:
    """The nodes outside of a kernel that read an input of it, or what it computes and does not store."""
    found: set[Node] = set()
    stack = [value]
    while stack:
        for use in stack.pop().uses:
            if use not in found and use in position:
                found.add(use)
                if use in inside:
                    stack += [out for out in use.tensor_outputs if out not in outputs]
    return found.difference(inside)


def _reads_much(node: Node, position: Mapping[Node, int]) -> bool:
    """Whether more is needed of a node, and of what is computed with it, than index tensors select."""
    stack, known = [node], {node}
    while stack:
        each = stack.pop()
        if isinstance(each, Indexed) and each.indices:
            continue
        users = {use for out in each.tensor_outputs for use in out.uses if use in position}
        if not (each.traits.pointwise and users):
            return True
        stack += users - known
        known |= users
    return False


def _before(nodes: Iterable[Node], first: int, position: Mapping[Node, int]) -> set[Node]:
    """The nodes on which these depend, from the position `first` on."""
    found: set[Node] = set()
    stack = [*nodes]
    while stack:
        for value in stack.pop().inputs:
            maker = value.definition
            if maker is not None and maker not in found and position[maker] >= first:
                found.add(maker)
                stack.append(maker)
    return found


def _following(nodes: Iterable[Node], position: Mapping[Node, int], elementwise: bool = False) -> set[Node]:
    """These nodes and the first that follow from them; with `elementwise` not those behind reductions."""
    found = {node for node in nodes if node in position}
    queue = sorted(found, key=position.__getitem__)
    for node in queue:
        if elementwise and isinstance(node, (Reduction, Scan)):
            continue
        for use in (use for out in node.outputs for use in out.uses):
            if use in position and use not in found and len(queue) < MAX_AHEAD:
                found.add(use)
                queue.append(use)
    return found
