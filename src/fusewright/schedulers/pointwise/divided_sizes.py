"""The sizes by which a pointwise kernel divides its indices.

If an access, or an expression over positions, is not contiguous along dimensions that are merged to one loop,
a division recovers the separate indices. Division by a size that is known only at the call takes some twenty
instructions, by a constant three.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.index_map import IndexMap
from fusewright.ir.node import Choose, Indexed, Iota, Stored
from fusewright.ir.value import TensorView
from fusewright.schedulers.pointwise.space import PointwiseSpace
from fusewright.sym import ONE, ZERO, Expr, FloorDiv, Mod, Symbol, floordiv, mod, product, symbol

#: The index of each dimension of the reference.
_Indices = Mapping[IterDomain, Expr]


def divided_sizes(fusion: Fusion, space: PointwiseSpace, break_point: int) -> tuple[Symbol, ...]:
    """Returns the size symbols in divisors of indices, if dimensions are merged left and right of
    `break_point`: only those that are the size of a dimension, of which a schedule can assume something.
    """
    if any(axis.extent is ZERO for axis in space.axes):
        return ()  # nothing is computed
    indices = {**_merged(space.axes[:break_point], "row"), **_merged(space.axes[break_point:], "column")}
    found: set[Symbol] = set()
    seen: set[Expr] = set()
    for e in _expressions(fusion, space, indices):
        _add_divisors(e, found, seen)
    return tuple(sorted(found.intersection(size_dimensions(fusion)), key=lambda s: s.name))


def size_dimensions(fusion: Fusion) -> dict[Symbol, tuple[TensorView, int]]:
    """Returns a dimension, as tensor and position, for each size symbol that is the size of one: a schedule
    names sizes so.
    """
    found: dict[Symbol, tuple[TensorView, int]] = {}
    for tensor in fusion.tensors():
        for dim, axis in enumerate(tensor.logical):
            if isinstance(axis.extent, Symbol):
                found.setdefault(axis.extent, (tensor, dim))
    return found


def _merged(axes: Sequence[IterDomain], name: str) -> dict[IterDomain, Expr]:
    """Returns the index of each of the dimensions, if they are merged to one loop."""
    rest: Expr = symbol(f"{name}_index", lo=0, hi=product(axis.extent for axis in axes) - 1)
    found: dict[IterDomain, Expr] = {}
    for position in reversed(range(len(axes))):
        extent = axes[position].extent
        if all(axis.extent is ONE for axis in axes[:position]):
            found[axes[position]] = rest
            rest = ZERO
        else:
            found[axes[position]] = mod(rest, extent)
            rest = floordiv(rest, extent)
    return found


def _expressions(fusion: Fusion, space: PointwiseSpace, indices: _Indices) -> Iterator[Expr]:
    """Yields the offsets of all loads and stores, and the other index expressions that are computed."""
    for access in space.accesses(fusion):
        if not access.by_index:
            yield _offset(access.tensor, {ours: indices[axis] for axis, ours in access.axes.items()})
    for node in fusion.nodes:
        if node.is_scalar or node.output not in space.maps:
            continue
        places = {ours: indices[axis] for axis, ours in space.maps[node.output].items()}
        root = [places.get(axis, ZERO) for axis in node.output.maybe_root]
        if isinstance(node, Iota):
            yield from root
        elif isinstance(node, Choose):
            yield _at(node.pred, root)
        elif isinstance(node, (Indexed, Stored)):
            memory = node.source if isinstance(node, Indexed) else node.output
            yield _at(node.map.pred, root)
            yield _offset(memory, {a: _at(e, root) for a, e in zip(memory.shape, node.map.indices)})


def _at(e: Expr, root: Sequence[Expr]) -> Expr:
    return IndexMap((), e).at(root).pred


def _offset(tensor: TensorView, indices: _Indices) -> Expr:
    """Returns the offset of an element of a tensor in global memory."""
    offset: Expr = ZERO
    stride: Expr = ONE
    for axis, contiguous in reversed(list(zip(tensor.memory_axes, tensor.contiguity))):
        if axis.is_broadcast:
            continue
        if not contiguous:
            stride = symbol(f"stride{tensor.shape.index(axis)}", lo=0)
        offset = offset + indices.get(axis, ZERO) * stride
        stride = stride * axis.extent
    return offset


def _add_divisors(e: Expr, found: set[Symbol], seen: set[Expr]) -> None:
    """Adds the symbols of all divisors in `e` that are no constants."""
    if e in seen:
        return
    seen.add(e)
    if isinstance(e, (FloorDiv, Mod)):
        found.update(e.args[1].free_symbols)
    for arg in e.args:
        _add_divisors(arg, found, seen)
