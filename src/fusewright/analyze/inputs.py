"""Distinguishes tensors that are computed with elements of inputs from those computed only from positions."""

from __future__ import annotations

from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Node


def following_inputs(fusion: Fusion) -> set[Node]:
    """The nodes that compute with elements of inputs."""
    found: set[Node] = set()
    for node in fusion.ordered_nodes():
        if any(v.definition is None or v.definition in found for v in node.tensor_inputs):
            found.add(node)
    return found
