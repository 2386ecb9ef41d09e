"""Conditions on the positions at which a value is used, which follow from choices by position."""

from __future__ import annotations

from fusewright.ir.index_map import position_of
from fusewright.ir.node import Choose, Node, Pointwise
from fusewright.ir.value import TensorView
from fusewright.sym import TRUE, And, Expr, lnot


def conditions(pred: Expr) -> frozenset[Expr]:
    """The conditions of a conjunction."""
    if pred is TRUE:
        return frozenset()
    return frozenset(pred.args if isinstance(pred, And) else (pred,))


def conditions_read(node: Node, operand: int, where: frozenset[Expr]) -> frozenset[Expr]:
    """The conditions at the positions at which an operand is used.

    Args:
        where: the conditions at the positions at which the result is used.
    """
    value = node.inputs[operand]
    if not isinstance(value, TensorView) or not isinstance(node, (Choose, Pointwise)):
        return frozenset()
    if isinstance(node, Choose) and not node.index_tensors and operand < 2:
        where = where | conditions(lnot(node.pred) if operand else node.pred)
    concrete = {dim for dim, axis in enumerate(value.shape) if not axis.is_broadcast}
    return frozenset(e for e in where if _dims(e) <= concrete)


def _dims(e: Expr) -> set[int]:
    """The dimensions whose positions an expression contains."""
    return {dim for s in e.free_symbols if (dim := position_of(s)) is not None}
