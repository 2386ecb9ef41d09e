"""Computes powers by small constants as products or roots. A general `pow` takes a hundred instructions."""

from __future__ import annotations

from collections.abc import Collection

from fusewright.core.dtype import DataType
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Copy, Node, Pointwise
from fusewright.ir.value import Scalar, TensorView
from fusewright.ops.elementwise import ELEMENTWISE
from fusewright.rewrite.replacement import is_in_memory_of_its_own, read_instead, shape_of

# The most factors of a product that is as accurate as CUDA's `pow`, which has an error of at most 4 ulp in
# Float and 2 in Double. x**7 would have an error of up to 4.4 ulp in Float, and x**5 up to 2.9 in Double.
MOST_FACTORS = {DataType.Float: 6, DataType.Double: 4}
# The most factors under a reciprocal, which adds up to 2 ulp in Float and half an ulp in Double.
MOST_DIVIDED = {DataType.Float: 3, DataType.Double: 2}
# The most factors for other types, for which torch also multiplies.
FACTORS = 3
# Exponents for which there is a separate operation.
ROWS = {0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}


def expand_powers(fusion: Fusion) -> Fusion:
    """Replaces powers by products, reciprocals and roots; returns `fusion`.

    x**1 becomes x, x**2 becomes x*x, x**4 the square of that, x**-3 the reciprocal of x*x*x and x**0.5 a
    root. Cubes of reduced float types stay, since each product would be rounded.
    """
    outputs = set(fusion.output_tensors())
    for node in list(fusion.nodes):
        if isinstance(node, Pointwise) and node.op is ELEMENTWISE["pow"]:
            _expand(fusion, node, outputs)
    return fusion


def _expand(fusion: Fusion, node: Pointwise, outputs: Collection[TensorView]) -> None:
    base, exponent = node.inputs
    out = node.output
    if not isinstance(exponent, Scalar) or not isinstance(exponent.value, (int, float)):
        return
    if not isinstance(base, TensorView) or not isinstance(out, TensorView) or base.dtype is not out.dtype:
        return
    value = exponent.value
    if out.dtype.is_bool:
        return
    if value == 1:
        reads_base = not is_in_memory_of_its_own(out, outputs) and shape_of(out) == shape_of(base)
        if reads_base and read_instead(fusion, out, base):
            fusion.remove_node(node)
        else:
            _replace(fusion, node, Copy(base, out))
    elif value in ROWS and out.dtype.is_floating:
        _replace(fusion, node, Pointwise(ELEMENTWISE[ROWS[value]], (base,), out))
    elif float(value).is_integer() and 2 <= value <= _most_factors(out.dtype):
        _multiply(fusion, node, base, int(value))
    elif float(value).is_integer() and 2 <= -value <= MOST_DIVIDED.get(out.dtype, 0):
        product = fusion.new_like(out)
        power = Pointwise(node.op, (base, exponent), product)
        fusion.add_node(power)
        _replace(fusion, node, Pointwise(ELEMENTWISE["reciprocal"], (product,), out))
        _multiply(fusion, power, base, -int(value))


def _most_factors(dtype: DataType) -> int:
    return 2 if dtype.is_reduced_float else MOST_FACTORS.get(dtype, FACTORS)


def _multiply(fusion: Fusion, node: Pointwise, base: TensorView, exponent: int) -> None:
    """Replaces `node`, which computes base**exponent, by products (exponentiation by squaring)."""
    last = base
    # Products have the shape of the node's output: the base may be a CPU tensor, which has fewer dimensions.
    for digit in f"{exponent:b}"[1:]:
        last = _product(fusion, node.output, last, last)
        if digit == "1":
            last = _product(fusion, node.output, last, base)
    made = last.definition
    assert made is not None
    fusion.remove_node(made)
    _replace(fusion, node, Pointwise(ELEMENTWISE["mul"], made.inputs, node.output))


def _product(fusion: Fusion, like: TensorView, a: TensorView, b: TensorView) -> TensorView:
    product = fusion.new_like(like)
    fusion.add_node(Pointwise(ELEMENTWISE["mul"], (a, b), product))
    return product


def _replace(fusion: Fusion, old: Node, new: Node) -> None:
    fusion.remove_node(old)
    fusion.add_node(new)
