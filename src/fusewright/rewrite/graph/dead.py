"""Removes nodes that no output needs.

Scalars stay: sizes may follow from them, and the host computes only those that are used.
"""

from __future__ import annotations

from fusewright.ir.fusion import Fusion


def remove_dead_nodes(fusion: Fusion) -> Fusion:
    """`fusion` itself, without the nodes of tensors that no output follows from."""
    needed = set(fusion.ordered_nodes())
    for node in reversed(list(fusion.nodes)):
        if node not in needed and not node.is_scalar:
            fusion.remove_node(node)
    return fusion
