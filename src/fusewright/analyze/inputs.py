"""What follows from which inputs, and from which nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Node
from fusewright.ir.value import TensorView


def following_inputs(fusion: Fusion) -> set[Node]:
    """The nodes that compute with elements of inputs; others compute from positions only."""
    found: set[Node] = set()
    for node in fusion.ordered_nodes():
        if any(v.definition is None or v.definition in found for v in node.tensor_inputs):
            found.add(node)
    return found


def nodes_before(tensors: Iterable[TensorView], among: Callable[[Node], bool] | None = None) -> set[Node]:
    """All nodes that these tensors follow from.

    among: a condition that the nodes have to meet. The search does not go past others.
    """
    found: set[Node] = set()
    stack = [tensor.definition for tensor in tensors]
    while stack:
        node = stack.pop()
        if node is not None and node not in found and (among is None or among(node)):
            found.add(node)
            stack += [value.definition for value in node.inputs]
    return found
