"""The kinds of the nodes of a fusion."""

from __future__ import annotations

from fusewright.analyze.kept import kept
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Node, Update
from fusewright.ir.text import value_name


@kept
def foreign_node(fusion: Fusion, *kinds: type[Node]) -> str | None:
    """Why a fusion is more than elementwise work, loads by index and nodes of these kinds, or None."""
    for node in fusion.nodes:
        if node.traits.indexed:
            source = node.inputs[0]
            if not fusion.is_input(source):
                return f"{node.label} reads {value_name(source)} by index, which the fusion computes"
        elif isinstance(node, Update) and (node.base is not None or node.output.uses):
            held = node.base if node.base is not None else node.output
            verb = "writes" if node.base is not None else "reads"
            return f"{node.label} changes {held.name} in memory, which the same fusion {verb}"
        elif not (node.traits.pointwise or node.traits.placed or isinstance(node, kinds) or node.is_scalar):
            names = ", ".join(map(value_name, node.outputs))
            expected = " nor ".join(("neither pointwise", *(f"a {kind.__name__.lower()}" for kind in kinds)))
            return f"{node.label}, which computes {names}, is {expected}"
    return None
