"""Powers by small constants as products: `pow` in general takes tens of instructions."""

from __future__ import annotations

from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Node, Pointwise
from fusewright.ir.value import Scalar, TensorView
from fusewright.ops.elementwise import ELEMENTWISE


def expand_powers(fusion: Fusion) -> Fusion:
    """x**2 becomes x*x, and x**3 becomes x*x*x, as torch computes them.

    A cube of a type that each step would round to is left as it is.
    """
    for node in list(fusion.nodes):
        if isinstance(node, Pointwise) and node.op is ELEMENTWISE["pow"]:
            _expand(fusion, node)
    return fusion


def _expand(fusion: Fusion, node: Pointwise) -> None:
    base, exponent = node.inputs
    out = node.output
    if not isinstance(exponent, Scalar) or not isinstance(exponent.value, (int, float)):
        return
    if not isinstance(base, TensorView) or not isinstance(out, TensorView) or base.dtype is not out.dtype:
        return
    value = exponent.value
    if out.dtype.is_bool:
        return
    if value == 2:
        _replace(fusion, node, Pointwise(ELEMENTWISE["mul"], (base, base), out))
    elif value == 3 and not out.dtype.is_reduced_float:
        square = fusion.new_tensor([fusion.copy_axis(axis) for axis in base.shape], out.dtype)
        fusion.add_node(Pointwise(ELEMENTWISE["mul"], (base, base), square))
        _replace(fusion, node, Pointwise(ELEMENTWISE["mul"], (square, base), out))


def _replace(fusion: Fusion, old: Node, new: Node) -> None:
    fusion.remove_node(old)
    fusion.add_node(new)
