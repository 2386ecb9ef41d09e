"""The kinds of the nodes of a fusion, and an order of those of one kind."""

from __future__ import annotations

from fusewright.analyze.kept import kept
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Indexed, Node, Update
from fusewright.ir.text import value_name
from fusewright.ir.value import TensorView


def is_gather(node: Node | None) -> bool:
    """Whether the values of index tensors say where a node reads."""
    return isinstance(node, Indexed) and bool(node.indices)


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


@kept
def reductions_by_output(fusion: Fusion) -> tuple[TensorView, ...]:
    """What the fusion reduces, ordered by the outputs and operands that depend on it.

    Copies between nodes do not change this order, as they may the order of the nodes. So a scheduler that
    starts from the first of several reductions starts from the same one before and after it caches inputs.
    """
    found: dict[TensorView, None] = {}
    seen: set[Node] = set()
    stack = [output.tensor.definition for output in reversed(fusion.outputs)]
    while stack:
        node = stack.pop()
        if node is None or node in seen or node.is_scalar:
            continue
        seen.add(node)
        if node.output.is_reduction:
            found[node.output] = None
        stack += [value.definition for value in reversed(node.inputs)]
    return tuple(found)
