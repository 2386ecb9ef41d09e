"""Powers by small constants as products or roots: `pow` in general takes a hundred instructions."""

from __future__ import annotations

from collections.abc import Collection

from fusewright.core.dtype import DataType
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Copy, Node, Pointwise
from fusewright.ir.value import Scalar, TensorView
from fusewright.ops.elementwise import ELEMENTWISE
from fusewright.rewrite.replacement import is_in_memory_of_its_own, read_instead, shape_of

# Exponents that have a row of their own.
ROWS = {0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}
# The largest exponent that products stand for: x**n of products of equals is (n - 1) / 2 ulp from the exact
# power at most, and CUDA's own pow up to 4.
MOST_FACTORS = 8


def expand_powers(fusion: Fusion) -> Fusion:
    """x**1 becomes x, x**2 becomes x*x, x**3 x*x*x and x**0.5 a root, as torch computes them; x**4 to x**8
    become products of squares.

    More than a square of a type that each step would round to is left as it is, and more than a cube of a
    complex number, whose power is computed in double.
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
    elif value in range(2, _most_factors(out.dtype) + 1):
        _replace(fusion, node, Pointwise(ELEMENTWISE["mul"], _factors(fusion, base, int(value), out), out))


def _most_factors(dtype: DataType) -> int:
    if dtype.is_reduced_float:
        return 2
    return 3 if dtype.is_complex else MOST_FACTORS


def _factors(fusion: Fusion, base: TensorView, exponent: int, out: TensorView) -> tuple[TensorView, ...]:
    """Two powers of a base whose product is the one of `exponent`, equal ones if it is even."""
    if exponent % 2:
        return _product(fusion, base, exponent - 1, out), base
    half = _product(fusion, base, exponent // 2, out)
    return half, half


def _product(fusion: Fusion, base: TensorView, exponent: int, out: TensorView) -> TensorView:
    if exponent == 1:
        return base
    # Like what it is for: the base may be a number in a tensor of the host, which has fewer dimensions.
    power = fusion.new_like(out)
    fusion.add_node(Pointwise(ELEMENTWISE["mul"], _factors(fusion, base, exponent, out), power))
    return power


def _replace(fusion: Fusion, old: Node, new: Node) -> None:
    fusion.remove_node(old)
    fusion.add_node(new)
