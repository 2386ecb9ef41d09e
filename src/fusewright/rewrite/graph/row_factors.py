"""Multiplies factors of a row with each other before they are applied to its elements.

    x * r * w        becomes    x * (r * w)

where `r` and `w` lack a dimension of `x`: for example, a channel's deviation and weight in a batch norm. The
number of roundings is the same, and each element takes one product less. This holds if a Float can represent
r * w: beyond 2^128 it is infinite, and below 2^-126 it loses digits, even if `x * r` would be of another
magnitude.
"""

from __future__ import annotations

from collections.abc import Iterator

from fusewright.core.dtype import DataType
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Node, Pointwise
from fusewright.ir.value import TensorView
from fusewright.ops.build_elementwise import apply_to_tensor
from fusewright.ops.elementwise import ELEMENTWISE
from fusewright.rewrite.replacement import shape_of

_MUL = ELEMENTWISE["mul"]


def multiply_row_factors(fusion: Fusion) -> Fusion:
    """`fusion` itself, in which elements are multiplied only once with factors that are constant along a
    dimension.
    """
    outputs = set(fusion.output_tensors())
    for node in fusion.ordered_nodes():
        if not isinstance(node, Pointwise) or node.op is not _MUL:
            continue
        found = next(_splits(node, outputs), None)
        if found is not None:
            elements, inner, row, product = found
            out = node.output
            fusion.remove_node(node)
            fusion.remove_node(product)
            fusion.add_node(Pointwise(_MUL, (elements, apply_to_tensor(fusion, "mul", inner, row)), out))
    return fusion


def _splits(
    node: Node, outputs: set[TensorView]
) -> Iterator[tuple[TensorView, TensorView, TensorView, Node]]:
    """(x, r, w, the node of x * r), such that a node computes x * r * w."""
    for product, row in _orders(node):
        inner = product.definition
        if inner is None or product in outputs or product.uses != [node]:
            continue
        for elements, factor in _orders(inner):
            if _are_alike_along_one(factor, row, elements) and shape_of(elements) == shape_of(node.output):
                yield elements, factor, row, inner


def _orders(node: Node) -> Iterator[tuple[TensorView, TensorView]]:
    """The factors of a product of Floats, in both orders."""
    if not isinstance(node, Pointwise) or node.op is not _MUL or node.outputs[0].dtype is not DataType.Float:
        return
    a, b = node.inputs
    if isinstance(a, TensorView) and isinstance(b, TensorView) and a.dtype is b.dtype is DataType.Float:
        yield a, b
        yield b, a


def _are_alike_along_one(a: TensorView, b: TensorView, elements: TensorView) -> bool:
    """Whether both factors are the same along a dimension of the elements."""
    axes = zip(a.shape, b.shape, elements.shape)
    return any(x.is_broadcast and y.is_broadcast and not each.is_broadcast for x, y, each in axes)
