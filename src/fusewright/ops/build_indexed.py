"""Shared by builders of shape and indexing operations: the nodes `Indexed` and `Choose`."""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.core.dtype import DataType
from fusewright.ir import (
    Choose,
    Fusion,
    Indexed,
    IndexMap,
    IterDomain,
    IterKind,
    Scalar,
    TensorView,
    Val,
    positions,
)
from fusewright.ops.build_elementwise import copy_tensor
from fusewright.sym import ONE, TRUE, ZERO, Expr, floordiv, land, le, lt, mod, product


def zero_of(fusion: Fusion, dtype: DataType) -> Scalar:
    """Zero, or False, as a scalar that a tensor of `dtype` is filled with."""
    return fusion.new_scalar(dtype, dtype.zero)


def sized_axis(fusion: Fusion, extent: Expr) -> IterDomain:
    """A dimension of this size: a broadcast if that is one."""
    return fusion.new_axis(extent, IterKind.BROADCAST if extent is ONE else IterKind.ITERATION)


def indexed(
    fusion: Fusion,
    kind: str,
    source: TensorView,
    axes: Sequence[IterDomain],
    index_map: IndexMap,
    *,
    indices: Sequence[TensorView] = (),
    fill: Scalar | None = None,
    inverse: IndexMap | None = None,
) -> TensorView:
    """The tensor of these dimensions whose elements are those of `source` that `index_map` names."""
    out = fusion.new_tensor(axes, source.dtype)
    # Each operand is read in its own way, so a tensor that is both is two.
    apart = [copy_tensor(fusion, tensor) if tensor is source else tensor for tensor in indices]
    fusion.add_node(Indexed(kind, source, out, index_map, apart, fill, inverse))
    return out


def choose(fusion: Fusion, first: TensorView, second: Val, pred: Expr) -> TensorView:
    """`first` where `pred`, over positions, holds, else `second`: a tensor of the same sizes, or a scalar."""
    others = second.shape if isinstance(second, TensorView) else first.shape
    told = IndexMap((), pred)
    axes = [
        _chosen_axis(fusion, ours, theirs, told.depends_on(dim))
        for dim, (ours, theirs) in enumerate(zip(first.shape, others))
    ]
    out = fusion.new_tensor(axes, first.dtype)
    fusion.add_node(Choose(first, second, out, pred))
    return out


def _chosen_axis(fusion: Fusion, ours: IterDomain, theirs: IterDomain, differs: bool) -> IterDomain:
    """A dimension of which either may be an element: copies of one are several where a choice tells them."""
    if ours.is_broadcast and not theirs.is_broadcast:
        return fusion.copy_axis(theirs)
    return sized_axis(fusion, ours.visible_extent) if differs else fusion.copy_axis(ours)


def own_positions(tensor: TensorView) -> list[Expr]:
    """The position along each dimension of a tensor; zero along broadcasts."""
    places = positions([axis.extent for axis in tensor.shape])
    return [ZERO if axis.is_broadcast else place for axis, place in zip(tensor.shape, places)]


def remainder(place: Expr, size: Expr) -> Expr:
    """place % size; zero if there is no position because the size is known to be zero."""
    return ZERO if size is ZERO else mod(place, size)


def quotient(place: Expr, size: Expr) -> Expr:
    """place // size; zero if there is no position because the size is known to be zero."""
    return ZERO if size is ZERO else floordiv(place, size)


def within(index: Expr, extent: Expr) -> Expr:
    """0 <= index < extent, without the parts that known facts imply."""
    return land(le(ZERO, index), lt(index, extent))


# ---- reshape -----------------------------------------------------------------------------------------------


def regrouped(source: Sequence[Expr], target: Sequence[Expr]) -> list[tuple[list[int], list[int]]]:
    """Dimensions of two shapes of as many elements, in groups that hold as many as each other.

    Each group is as small as the sizes allow to tell. Dimensions of size one belong to none.
    """
    ours = [i for i, size in enumerate(source) if size is not ONE]
    theirs = [i for i, size in enumerate(target) if size is not ONE]
    tail: list[tuple[list[int], list[int]]] = []
    groups: list[tuple[list[int], list[int]]] = []
    while ours and theirs:
        count = _matching(source, target, ours, theirs)
        if count is None:
            if source[ours[-1]] is not target[theirs[-1]]:
                break
            tail.insert(0, ([ours.pop()], [theirs.pop()]))
            continue
        a, b = count
        groups.append((ours[:a], theirs[:b]))
        ours, theirs = ours[a:], theirs[b:]
    if ours or theirs:
        groups.append((ours, theirs))
    return [*groups, *tail]


def _matching(
    source: Sequence[Expr], target: Sequence[Expr], ours: Sequence[int], theirs: Sequence[int]
) -> tuple[int, int] | None:
    """How many leading dimensions of each shape hold as many elements: the least, or None."""
    ends = {product(source[i] for i in ours[:a]): a for a in range(len(ours), 0, -1)}
    for b in range(1, len(theirs) + 1):
        a = ends.get(product(target[i] for i in theirs[:b]))
        if a is not None and (a < len(ours)) == (b < len(theirs)):
            return a, b
    return None


def reshape_map(source: Sequence[Expr], target: Sequence[Expr], places: Sequence[Expr]) -> IndexMap:
    """Where in a tensor of sizes `source` the elements of one of sizes `target` stand, in row-major order.

    `places`: the position in the target along each of its dimensions.
    """
    indices: list[Expr] = [ZERO] * len(source)
    for ours, theirs in regrouped(source, target):
        linear: Expr = ZERO
        for dim in theirs:
            linear = linear * target[dim] + places[dim]
        for k, dim in enumerate(ours):
            inner = product(source[i] for i in ours[k + 1 :])
            index = linear if inner is ONE else quotient(linear, inner)
            indices[dim] = index if k == 0 else remainder(index, source[dim])
    return IndexMap(tuple(indices), TRUE)


def is_reshape_map(index_map: IndexMap, memory: TensorView, view: TensorView) -> bool:
    """Whether a map is that of a reshape of `memory` to `view`, if they have as many elements."""
    if view.is_expanded or index_map.pred is not TRUE:
        return False
    target = view.extents
    return index_map == reshape_map(memory.extents, target, positions(target))


def is_reshape(node: Indexed) -> bool:
    """Whether a read has all elements of its source in order. The map alone could also be that of a slice."""
    source, view = node.source, node.output
    is_whole = node.inverse is not None and node.inverse.pred is TRUE
    is_whole |= product(source.extents) is product(view.extents)
    return is_whole and not source.is_expanded and is_reshape_map(node.map, source, view)
