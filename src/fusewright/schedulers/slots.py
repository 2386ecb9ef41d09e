"""How long nodes compute, in slots (`core.op.Spelling`)."""

from __future__ import annotations

from fusewright.core.dtype import DataType
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Choose, Indexed, Node, Pointwise, Reduction, Scan
from fusewright.ir.value import Scalar, TensorView
from fusewright.ops.approximate import PERIODIC, ROUNDED_TYPES, STAND_INS
from fusewright.ops.elementwise import ELEMENTWISE, QUOTIENTS

# Slots of an index expression or a choice by position, for each element.
INDEX_SLOTS = 2
# Slots of a division of Float by a constant, which the compiler makes a product with its reciprocal.
PRODUCT_SLOTS = ELEMENTWISE["mul"].spelling(DataType.Float).slots
# Slots of a node that is worth another kernel, or registers, rather than to be computed again: those of one
# special function.
LONG_SLOTS = 8


def slots_of(node: Node) -> int:
    """Returns the slots of a node for one point. A step of a reduction computes each of its states from all
    of them.
    """
    if node.is_scalar:
        return 0
    if isinstance(node, Pointwise):
        inputs = [value.dtype for value in node.inputs if isinstance(value, TensorView)]
        dtype = node.op.compute_dtype(inputs or [node.output.dtype], node.output.dtype)
        divisor = node.inputs[-1] if node.op in QUOTIENTS and dtype is DataType.Float else None
        if isinstance(divisor, Scalar) and divisor.is_constant:
            return PRODUCT_SLOTS
        return node.op.spelling(dtype).slots
    if isinstance(node, (Reduction, Scan)):
        return len(node.outputs) ** 2 * node.op.slots
    return INDEX_SLOTS if isinstance(node, (Indexed, Choose)) else 0


class RoundedSlots:
    """The slots of a fusion's nodes, where functions whose values are rounded before they reach memory or
    decide something are approximate (`lower.passes.approximate`).
    """

    def __init__(self, fusion: Fusion) -> None:
        self._exact = _exact_nodes(fusion)

    def of(self, node: Node) -> int:
        """Returns the slots of a node for one point."""
        if isinstance(node, Pointwise) and node not in self._exact:
            stand_in = STAND_INS.get(node.op)
            if stand_in is not None and node.output.dtype in (DataType.Float, *ROUNDED_TYPES):
                return stand_in.spelling(DataType.Float).slots
        return slots_of(node)


def _exact_nodes(fusion: Fusion) -> set[Node]:
    """The nodes whose values reach memory, a decision, an angle or another type without being rounded."""
    exact: set[Node] = set()
    outputs = set(fusion.output_tensors())
    for node in reversed(fusion.ordered_nodes()):
        for out in node.tensor_outputs:
            if out.dtype in ROUNDED_TYPES:
                continue
            if out in outputs or any(_needs_exact(use, exact) for use in out.uses):
                exact.add(node)
    return exact


def _needs_exact(use: Node, exact: set[Node]) -> bool:
    if isinstance(use, Pointwise) and use.op in PERIODIC:
        return True
    dtype = use.output.dtype
    return dtype not in ROUNDED_TYPES and (use in exact or dtype is not DataType.Float)
