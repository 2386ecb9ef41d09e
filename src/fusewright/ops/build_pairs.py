"""Builders of packed tensors: two Float4 in a byte, along the dimension that is innermost in memory.

Only a fusion's inputs and outputs are packed; everything in between has single elements. `unpacked` follows
an input and `packed` precedes an output.
"""

from __future__ import annotations

from fusewright.core.dtype import DataType
from fusewright.core.errors import RankError
from fusewright.ir import Fusion, IndexMap, TensorView, position
from fusewright.ops.build_elementwise import convert_tensor, pointwise
from fusewright.ops.build_indexed import choose, indexed, own_positions, sized_axis
from fusewright.ops.pairs import HIGH, LOW, PACK
from fusewright.sym import Expr, const, eq, floordiv, mod


def unpacked(fusion: Fusion, pairs: TensorView) -> TensorView:
    """The elements of a tensor of pairs: twice as many along its innermost dimension."""
    dim = innermost(pairs)
    size = pairs.extents[dim] * 2
    place = position(dim, size)
    indices = own_positions(pairs)
    if not pairs.shape[dim].is_broadcast:
        indices[dim] = floordiv(place, const(2))
    axes = [sized_axis(fusion, size) if i == dim else fusion.copy_axis(a) for i, a in enumerate(pairs.shape)]
    # Each byte is read for both of its elements, which lie side by side.
    found = indexed(fusion, "Unpack", pairs, axes, IndexMap(tuple(indices)))
    low, high = (pointwise(fusion, row, [found], DataType.Float) for row in (LOW, HIGH))
    return convert_tensor(
        fusion, choose(fusion, low, high, eq(mod(place, const(2)), const(0))), DataType.Float4_e2m1fn
    )


def packed(fusion: Fusion, elements: TensorView) -> TensorView:
    """A tensor of Float4 as pairs: half as many along its innermost dimension, whose size must be even."""
    dim = innermost(elements)
    size = elements.extents[dim]
    fusion.require(
        eq(mod(size, const(2)), const(0)),
        f"{elements.name} is packed in pairs along dimension {dim}, whose size must be even: {size}",
    )
    half = floordiv(size, const(2))
    halves = (_every_other(fusion, elements, dim, half, start) for start in (0, 1))
    low, high = (convert_tensor(fusion, each, DataType.Float) for each in halves)
    pairs = pointwise(fusion, PACK, [low, high], DataType.Float4_e2m1fn_x2)
    order = [elements.shape.index(axis) for axis in elements.allocation]
    pairs.allocation = tuple(pairs.shape[i] for i in order)
    return pairs


def innermost(tensor: TensorView) -> int:
    """The dimension that is innermost in memory. RankError for a tensor of rank 0, which has no pairs."""
    if not tensor.ndim:
        raise RankError(
            f"a tensor of {DataType.Float4_e2m1fn} is packed in pairs along a dimension", expected=1, given=0
        )
    return tensor.shape.index(tensor.allocation[-1])


def _every_other(fusion: Fusion, tensor: TensorView, dim: int, half: Expr, start: int) -> TensorView:
    """The elements at start, start + 2, ... of `half` pairs along a dimension."""
    axes = [sized_axis(fusion, half) if i == dim else fusion.copy_axis(a) for i, a in enumerate(tensor.shape)]
    places = own_positions(tensor)
    found = list(places)
    found[dim] = (const(0) if half is const(1) else position(dim, half)) * 2 + start
    back = list(places)
    back[dim] = floordiv(places[dim] - start, const(2))
    has = eq(mod(places[dim], const(2)), const(start))
    is_injective = not tensor.is_expanded
    inverse = IndexMap(tuple(back), has) if is_injective else None
    return indexed(fusion, "EveryOther", tensor, axes, IndexMap(tuple(found)), inverse=inverse)
