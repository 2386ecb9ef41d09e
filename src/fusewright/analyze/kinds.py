"""Of which kinds the nodes of a fusion are."""

from __future__ import annotations

from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Reduction
from fusewright.ir.text import value_name


def foreign_node(fusion: Fusion) -> str | None:
    """Why a fusion is more than elementwise work and reductions: the first node that is neither; or None."""
    for node in fusion.nodes:
        if not (node.traits.pointwise or isinstance(node, Reduction) or node.is_scalar):
            names = ", ".join(map(value_name, node.outputs))
            return f"{node.label}, which computes {names}, is neither pointwise nor a reduction"
    return None
