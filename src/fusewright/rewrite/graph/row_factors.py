"""Multiplies factors that are constant along a row with each other before they are applied to its elements.

    x * r * w        becomes    x * (r * w)
    x * r * c / n    becomes    x * (r * c / n)

where `r` and `w` lack a dimension of `x`, and `c` and `n` are numbers: for example, a channel's deviation and
weight in a batch norm. The number of roundings is the same, and each element takes one product less. The
result is the same only if r * w is a normal Float: above 2^128 it is infinite, and below 2^-126 it loses
digits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TypeGuard

from fusewright.core.dtype import DataType
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Node, Pointwise
from fusewright.ir.value import Scalar, TensorView, Val
from fusewright.ops.build_elementwise import apply_to_tensor
from fusewright.ops.elementwise import ELEMENTWISE, QUOTIENTS
from fusewright.rewrite.replacement import shape_of

_MUL = ELEMENTWISE["mul"]
_SCALING = QUOTIENTS | {_MUL}


def multiply_row_factors(fusion: Fusion) -> Fusion:
    """Combines factors that are constant along a dimension of the elements; returns `fusion`."""
    outputs = set(fusion.output_tensors())
    for node in fusion.ordered_nodes():
        if not isinstance(node, Pointwise) or node.op not in _SCALING:
            continue
        found = next(_splits(node, outputs), None)
        if found is not None:
            elements, inner, row, product = found
            out = node.output
            fusion.remove_node(node)
            fusion.remove_node(product)
            factor = apply_to_tensor(fusion, node.op.name, inner, row)
            fusion.add_node(Pointwise(_MUL, (elements, factor), out))
    return fusion


def _splits(node: Node, outputs: set[TensorView]) -> Iterator[tuple[TensorView, TensorView, Val, Node]]:
    """Yields (x, r, w, the node of x * r) such that a node computes x * r * w or x * r / w."""
    for product, row in _orders(node):
        inner = product.definition
        if inner is None or product in outputs or product.uses != [node]:
            continue
        for elements, factor in _orders(inner) if _is_of_floats(inner, {_MUL}) else ():
            if not isinstance(factor, TensorView) or shape_of(elements) != shape_of(node.output):
                continue
            if _are_alike_along_one(factor, row, elements):
                yield elements, factor, row, inner


def _orders(node: Node) -> Iterator[tuple[TensorView, Val]]:
    """Yields the factors of a product of Floats in both orders, tensor first, or a tensor and its divisor."""
    if not _is_of_floats(node, _SCALING):
        return
    a, b = node.inputs
    if isinstance(a, TensorView):
        yield a, b
    if isinstance(b, TensorView) and node.op is _MUL:
        yield b, a


def _is_of_floats(node: Node, ops: Collection[object]) -> TypeGuard[Pointwise]:
    if not isinstance(node, Pointwise) or node.op not in ops:
        return False
    return all(value.dtype is DataType.Float for value in (*node.tensor_inputs, node.outputs[0]))


def _are_alike_along_one(a: TensorView, b: Val, elements: TensorView) -> bool:
    """Whether both factors are constant along a common dimension of the elements."""
    return any(
        x.is_broadcast and (isinstance(b, Scalar) or b.shape[dim].is_broadcast) and not each.is_broadcast
        for dim, (x, each) in enumerate(zip(a.shape, elements.shape))
    )
