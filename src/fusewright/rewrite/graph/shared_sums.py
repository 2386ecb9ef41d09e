"""Merges sums that differ by factors that are constant along the summed dimensions.

    sum(x), sum(x * w)                 becomes    s = sum(x), s * w
    sum(x * y * r), sum(x * y * w)     becomes    s = sum(x * y), s * r, s * w
    sum(-2 * x), sum(-x)               becomes    -2 * sum(x), -sum(x)
    sum(x * w, [1]), sum(x, [0, 1])    become     s = sum(x, [1]), s * w, sum(s, [0])
    sum(x * w)                         becomes    sum(x) * w

where `w` and `r` have no summed dimension, such as a channel's weight in the gradients of a normalization.
The factor is rounded once instead of with each element, so no sum becomes less accurate. A constant below 1
stays, since it may keep the sum finite. The values of a tensor `w` are unknown: a sum beyond the type's range
(2^128 in Float) becomes infinite, or NaN if `w` is 0, although the sum of the products with `w` would be
finite. The sums of a normalization and its gradients, for which this pass is meant, are far from that range.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from fusewright.core.dtype import DataType
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Node, Pointwise, Reduction
from fusewright.ir.value import TensorView, Val
from fusewright.ir.view import Relabel
from fusewright.ops.build_elementwise import apply_to_tensor
from fusewright.ops.build_reduction import reduce_states
from fusewright.ops.elementwise import ELEMENTWISE
from fusewright.ops.reductions import SUM
from fusewright.rewrite.replacement import remove_dead, return_instead

_MUL, _NEG = ELEMENTWISE["mul"], ELEMENTWISE["neg"]
_TYPES = frozenset({DataType.Float, DataType.Double})
# The most factors of one product that are followed. Definitions have fewer.
MAX_FACTORS = 16


#: The identities of the elements, and the summed dimensions.
_Key = tuple[tuple[int, ...], frozenset[int]]


def share_sums(fusion: Fusion) -> Fusion:
    """Merges sums of products with the same varying factors; returns `fusion`.

    Sums along more dimensions start from the merged sum.
    """
    outputs = set(fusion.output_tensors())
    sums = [each for node in fusion.ordered_nodes() if (each := _sum_of(node)) is not None]
    found: dict[_Key, list[_Sum]] = {}
    going_on: dict[_Key, list[_Sum]] = {}
    # Sums along fewer dimensions come first, since sums along more dimensions may continue from them.
    for each in sorted(sums, key=lambda each: len(each.dims)):
        narrow = _along_fewer(each, found)
        (found if narrow is None else going_on).setdefault((narrow or each).key, []).append(narrow or each)
    for key, alike in found.items():
        if len(alike) > 1 or key in going_on:
            total = _share(fusion, alike, outputs)
            for each in going_on.get(key, ()):
                _go_on(fusion, each, total, outputs)
        elif alike[0].node.tensor_inputs[0].uses == [alike[0].node]:
            _take_out(fusion, alike[0], outputs)
    return fusion


@dataclass(frozen=True)
class _Sum:
    """A sum of products along `dims`; the other dimensions of `node` remain.

    Attributes:
        elements: the factors that vary along the summed dimensions.
        common: the factors without a summed dimension, as operands of the products.
    """

    node: Reduction
    dims: frozenset[int]
    elements: tuple[TensorView, ...]
    common: tuple[Val | float, ...]

    @property
    def key(self) -> _Key:
        return tuple(sorted(map(id, self.elements))), self.dims

    def of(self, fusion: Fusion, factors: Sequence[TensorView]) -> TensorView:
        """Adds nodes for the sum of the products of only these factors."""
        product = factors[0]
        for factor in factors[1:]:
            product = apply_to_tensor(fusion, "mul", product, factor)
        return reduce_states(fusion, SUM, [product], sorted(self.dims))[0]


def _sum_of(node: Node, along: frozenset[int] | None = None) -> _Sum | None:
    """The sum that a node computes, if it sums a product of floats; else None.

    Args:
        along: the dimensions of a first step of the sum; by default all.
    """
    if not isinstance(node, Reduction) or node.op is not SUM or node.output.dtype not in _TYPES:
        return None
    (product,) = node.tensor_inputs
    dims = frozenset(node.reduced_dims) if along is None else along
    elements: list[TensorView] = []
    common: list[Val | float] = []
    stack: list[Val | float] = [product]
    while stack and len(elements) + len(common) < MAX_FACTORS:
        value = stack.pop()
        if not isinstance(value, TensorView) or _is_row(value, dims):
            common.append(value)
        elif (factors := _factors(value)) is not None:
            stack += reversed(factors)
        else:
            elements.append(value)
    summed = {dim for value in elements for dim in dims if not value.shape[dim].is_broadcast}
    return _Sum(node, dims, tuple(elements), tuple(common)) if summed == dims and not stack else None


def _factors(tensor: TensorView) -> Sequence[Val | float] | None:
    """The factors of a product or a negation; None for other tensors."""
    node = tensor.definition
    if not isinstance(node, Pointwise) or any(t.dtype is not tensor.dtype for t in node.tensor_inputs):
        return None
    if node.op is _NEG:
        return (*node.inputs, -1.0)
    if node.op is not _MUL or not all(map(_may_come_out, node.inputs)):
        return None
    return node.inputs


def _may_come_out(value: Val) -> bool:
    return isinstance(value, TensorView) or (isinstance(value.value, (int, float)) and abs(value.value) >= 1)


def _along_fewer(wide: _Sum, found: Collection[_Key]) -> _Sum | None:
    """The first step of a sum that another sum of the same elements computes.

    It is along as many dimensions as possible. None if there is no such sum.
    """
    others = sorted(
        {dims for _, dims in found if dims < wide.dims}, key=lambda dims: (-len(dims), sorted(dims))
    )
    parts = (_sum_of(wide.node, dims) for dims in others)
    return next((part for part in parts if part is not None and part.key in found), None)


def _go_on(fusion: Fusion, part: _Sum, total: TensorView, outputs: set[TensorView]) -> None:
    """Computes a sum from the sum of its elements along fewer dimensions."""
    row = _scaled(fusion, total, part.common, part.dims)
    kept = [dim for dim in range(part.node.tensor_inputs[0].ndim) if dim not in part.dims]
    left = [i for i, dim in enumerate(kept) if dim in part.node.reduced_dims]
    (new,) = reduce_states(fusion, SUM, [row], left)
    _replace(fusion, part.node, new, outputs)


def _share(fusion: Fusion, sums: Sequence[_Sum], outputs: set[TensorView]) -> TensorView:
    """Computes all sums from one, which it returns."""
    plain = next((each.node.output for each in sums if not each.common), None)
    total = sums[0].of(fusion, sums[0].elements) if plain is None else plain
    for each in sums:
        if each.common:
            _replace(fusion, each.node, _scaled(fusion, total, each.common, each.dims), outputs)
    return total


def _take_out(fusion: Fusion, each: _Sum, outputs: set[TensorView]) -> None:
    """Multiplies the sum by the common factors instead of each element.

    Tensor factors stay inside the sum if they may keep it finite, or if the products are needed anyway.
    """
    tensors = [value for value in each.common if isinstance(value, TensorView)]
    is_scale = any(value.reduced for value in tensors)
    inside = tensors if is_scale or not _are_only_summed(each) else []
    outside = [value for value in each.common if not any(value is other for other in inside)]
    if outside:
        total = _scaled(fusion, each.of(fusion, [*each.elements, *inside]), outside, each.dims)
        _replace(fusion, each.node, total, outputs)


def _are_only_summed(each: _Sum) -> bool:
    """Whether other nodes only scale the products of a sum further (`row_factors`), or do not use them."""
    (product,) = each.node.tensor_inputs
    stack: list[tuple[TensorView, Node]] = [(product, each.node)]
    while stack:
        tensor, reader = stack.pop()
        factors, others = _factors(tensor), [use for use in tensor.uses if use is not reader]
        if factors is None or tensor.definition is None:
            continue
        if len(others) > 1 or not all(_scales(use, tensor, each.dims) for use in others):
            return False
        varying = [
            value for value in factors if isinstance(value, TensorView) and not _is_row(value, each.dims)
        ]
        stack += [(value, tensor.definition) for value in varying]
    return True


def _scales(node: Node, tensor: TensorView, dims: Collection[int]) -> bool:
    """Whether a node multiplies a tensor by factors that are constant along these dimensions."""
    if not isinstance(node, Pointwise) or node.op is not _MUL:
        return False
    return all(value is tensor or _is_row(value, dims) for value in node.tensor_inputs)


def _is_row(tensor: TensorView, dims: Collection[int]) -> bool:
    """Whether a tensor is constant along these dimensions."""
    return all(tensor.shape[dim].is_broadcast for dim in dims)


def _scaled(
    fusion: Fusion, total: TensorView, factors: Sequence[Val | float], dims: Collection[int]
) -> TensorView:
    """Multiplies a sum along `dims` by factors that are constant along these dimensions."""
    for factor in factors:
        if isinstance(factor, TensorView):
            left = [dim for dim in range(factor.ndim) if dim not in dims]
            row = fusion.new_tensor([fusion.copy_axis(factor.shape[dim]) for dim in left], factor.dtype)
            fusion.add_node(Relabel(factor, row, left))
            total = apply_to_tensor(fusion, "mul", total, row)
        else:
            total = apply_to_tensor(fusion, "mul", total, factor)
    return total


def _replace(fusion: Fusion, node: Reduction, new: TensorView, outputs: set[TensorView]) -> None:
    return_instead(fusion, node.output, new, outputs)
    (product,) = node.tensor_inputs
    fusion.remove_node(node)
    if product.definition is not None:
        remove_dead(fusion, product.definition, outputs)
