"""Computes reciprocals of roots with one special function instead of a division.

    1 / x          becomes    reciprocal(x)
    1 / sqrt(x)    becomes    rsqrt(x)
    y / sqrt(x)    becomes    y * rsqrt(x)

A reciprocal root has an error of at most 2 ulp, and a product with it is rounded once more. A division by a
root has an error of 2.5 ulp in addition to the root's rounding (docs/accuracy.md).
"""

from __future__ import annotations

from fusewright.core.dtype import DataType
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Copy, Node, Pointwise
from fusewright.ir.value import Scalar, TensorView, Val
from fusewright.ops.elementwise import ELEMENTWISE, QUOTIENTS
from fusewright.rewrite.graph.shown import shown_by
from fusewright.rewrite.replacement import replace_node

_MUL, _SQRT, _RSQRT, _RECIPROCAL = (ELEMENTWISE[name] for name in ("mul", "sqrt", "rsqrt", "reciprocal"))
_DIVISIONS = QUOTIENTS | {_RECIPROCAL}


def divide_by_roots(fusion: Fusion) -> Fusion:
    """Replaces quotients by roots by reciprocal roots or products with them; returns `fusion`."""
    outputs = set(fusion.output_tensors())
    for node in fusion.ordered_nodes():
        if not isinstance(node, Pointwise) or node.op not in _DIVISIONS or node.is_scalar:
            continue
        new = _replacement(fusion, node)
        if new is not None:
            replace_node(fusion, node, new, outputs)
    return fusion


def _replacement(fusion: Fusion, node: Pointwise) -> Node | None:
    """The node that replaces a quotient, or None."""
    out, divisor = node.output, node.inputs[-1]
    if not isinstance(divisor, TensorView):
        return None
    if any(tensor.dtype is not DataType.Float for tensor in (*node.tensor_inputs, out)):
        return None
    is_reciprocal = node.op is _RECIPROCAL or _is_one(node.inputs[0])
    shown = shown_by(divisor)
    root = shown.tensor.definition
    if not isinstance(root, Pointwise) or root.op is not _SQRT or root.inputs[0].dtype is not DataType.Float:
        return (
            Pointwise(_RECIPROCAL, (divisor,), out) if is_reciprocal and node.op is not _RECIPROCAL else None
        )
    if is_reciprocal and not shown.views:
        return Pointwise(_RSQRT, root.inputs, out)
    factor = fusion.new_like(root.output, DataType.Float)
    fusion.add_node(Pointwise(_RSQRT, root.inputs, factor))
    if is_reciprocal:
        return Copy(shown.of(fusion, factor), out)
    return Pointwise(_MUL, (node.inputs[0], shown.of(fusion, factor)), out)


def _is_one(value: Val) -> bool:
    return isinstance(value, Scalar) and value.value == 1
