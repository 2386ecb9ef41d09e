"""Builders of operations that regroup dimensions: reshape and flatten."""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.core.errors import ShapeError
from fusewright.ir import Fusion, IndexMap, TensorView, positions
from fusewright.ops.build_elementwise import copy_tensor
from fusewright.ops.build_indexed import indexed, own_positions, regrouped, reshape_map, sized_axis
from fusewright.ops.build_shape import check_extent, extent_of, known_size, wrap_index
from fusewright.ops.registry import Shape, op
from fusewright.sym import ZERO, Expr, eq, floordiv, maximum, product


@op()
def reshape(fusion: Fusion, arg: TensorView, new_shape: Shape) -> TensorView:
    """The elements of `arg`, in row-major order, as a tensor of `new_shape`; one entry may be -1.

    ShapeError if the numbers of elements differ: here where they are known, else when it is executed.
    """
    source = arg.extents
    target = _inferred(source, new_shape)
    fusion.require(
        eq(product(source), product(target)),
        f"Total element counts across view operation must match: {_listed(source)} becomes {_listed(target)}",
    )
    return reshaped(fusion, "Reshape", arg, target)


@op()
def flatten(fusion: Fusion, arg: TensorView, start_dim: int = 0, end_dim: int = -1) -> TensorView:
    """Dimensions start_dim to end_dim (inclusive) as one; a tensor of rank 0 becomes one of rank 1."""
    if not arg.ndim:
        return reshape(fusion, arg, [1])
    first, last = wrap_index(start_dim, arg.ndim), wrap_index(end_dim, arg.ndim)
    if first > last:
        raise ShapeError("flatten: start_dim comes after end_dim", expected=f"at most {last}", given=first)
    sizes = list(arg.extents)
    return reshaped(
        fusion, "Flatten", arg, [*sizes[:first], product(sizes[first : last + 1]), *sizes[last + 1 :]]
    )


def reshaped(fusion: Fusion, kind: str, arg: TensorView, target: Sequence[Expr]) -> TensorView:
    """`arg` with the sizes `target`, which hold as many elements."""
    source = arg.extents
    if list(source) == list(target):
        return copy_tensor(fusion, arg)
    # A dimension that shows copies of one element goes on to, where it stays one.
    kept = {
        theirs[0]: arg.shape[ours[0]]
        for ours, theirs in regrouped(source, target)
        if len(ours) == len(theirs) == 1 and arg.shape[ours[0]].expanded is not None
    }
    axes = [
        fusion.copy_axis(kept[i]) if i in kept else sized_axis(fusion, size) for i, size in enumerate(target)
    ]
    found = reshape_map(source, target, positions(target))
    forth = IndexMap(tuple(ZERO if a.is_broadcast else e for a, e in zip(arg.shape, found.indices)))
    is_injective = not arg.is_expanded
    inverse = reshape_map(target, source, own_positions(arg)) if is_injective else None
    return indexed(fusion, kind, arg, axes, forth, inverse=inverse)


def _inferred(source: Sequence[Expr], shape: Shape) -> list[Expr]:
    """The sizes that a user asks for, -1 replaced by what the others leave."""
    sizes: list[Expr | None] = []
    for i, given in enumerate(shape):
        size = known_size(given)
        if isinstance(size, int):
            check_extent(size, i, least=-1)
        sizes.append(None if size == -1 else extent_of(size))
    known = [size for size in sizes if size is not None]
    if len(known) == len(sizes):
        return known
    listed = "[" + ", ".join("-1" if size is None else str(size) for size in sizes) + "]"
    if len(known) < len(sizes) - 1:
        raise ShapeError("A maximum of one value of -1 can be specified in a reshape", given=listed)
    if any(size is ZERO for size in known):
        raise ShapeError("reshape: -1 beside a size of 0 could be any size", given=listed)
    rest = _quotient(source, known)
    return [rest if size is None else size for size in sizes]


def _quotient(source: Sequence[Expr], known: Sequence[Expr]) -> Expr:
    """How many elements of a tensor of sizes `source` there are for each of one of sizes `known`."""
    above, below = list(source), []
    for size in known:
        if size in above:
            above.remove(size)
        else:
            below.append(size)
    # A divisor of 0 leaves no elements, of which there are as many as anybody says.
    return floordiv(product(above), maximum(product(below), 1)) if below else product(above)


def _listed(sizes: Sequence[Expr]) -> str:
    return f"[{', '.join(map(str, sizes))}]"
