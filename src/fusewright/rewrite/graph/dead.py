"""Removes nodes that no output depends on.

Scalars stay: sizes may depend on them, and the host computes only those that are used.
"""

from __future__ import annotations

from fusewright.ir.fusion import Fusion


def remove_dead_nodes(fusion: Fusion) -> Fusion:
    """Removes the nodes of tensors that no output depends on; returns `fusion`."""
    needed = set(fusion.ordered_nodes())
    for node in reversed(list(fusion.nodes)):
        if node not in needed and not node.is_scalar:
            fusion.remove_node(node)
    return fusion
