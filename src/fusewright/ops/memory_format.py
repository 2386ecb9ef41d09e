"""The memory order of outputs for which none is stated: that of their inputs, as torch keeps it.

Elementwise results lie as torch's TensorIterator lays them out (`TensorIteratorBase::reorder_dimensions`):
their dimensions are sorted by the strides of the operands, the first of which that tells decides. What is
not elementwise lies row-major, and so does what follows from a permutation in the definition itself, which
is there to change how the result lies. Sizes are not known here: a dimension that only may be of one element
counts as one of several.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.ir import Copy, IterDomain, Node, TensorView, Update

__all__ = ["keep_memory_format", "lay_out"]

#: Of each dimension how far outside it lies in memory, 0 for the innermost; None for one without strides.
Order = tuple[int | None, ...]


def keep_memory_format(tensor: TensorView) -> None:
    """Lays an output out as what it is computed from, unless its order is stated."""
    if tensor.definition is None or _states_order(tensor.definition):
        return
    order = _order(tensor, {})
    lay_out(tensor, list(reversed(_sorted([order], tensor.ndim))), [True] * tensor.ndim)


def lay_out(tensor: TensorView, order: Sequence[int], contiguity: Sequence[bool | None]) -> None:
    """Has a tensor lie in memory with its dimensions in this order, the outermost first.

    What is written where another tensor lies has that lie in the same way.
    """
    node = tensor.definition
    base = node.base if isinstance(node, Update) else None
    for each in (tensor,) if base is None else (tensor, base):
        each.allocation = tuple(each.shape[dim] for dim in order)
        flags = zip(each.allocation, contiguity)
        each.contiguity = tuple(None if axis.is_broadcast else bool(flag) for axis, flag in flags)


def _states_order(node: Node) -> bool:
    """Whether the order of its outputs in memory is part of what the definition says of it."""
    return node.traits.whole or (isinstance(node, Copy) and node.ordered)


def _permutes(node: Node) -> bool:
    """Whether it is a view with dimensions in another order than those of its input."""
    if not node.traits.relabel:
        return False
    dims = [dim for dim in node.axis_map(0) if dim is not None]
    return dims != sorted(dims)


def _order(tensor: TensorView, known: dict[TensorView, Order]) -> Order:
    """The order that a tensor has, or would have in memory of its own."""
    stack = [tensor]
    while stack:
        current = stack[-1]
        node = current.definition
        if current in known:
            stack.pop()
        elif node is None or _states_order(node):
            known[stack.pop()] = _dense(current, current.allocation)
        elif not node.traits.pointwise or not node.tensor_inputs or _permutes(node):
            known[stack.pop()] = _dense(current, current.shape)
        elif missing := [v for v in node.tensor_inputs if v not in known]:
            stack += missing
        else:
            known[stack.pop()] = _computed_order(node, known)
    return known[tensor]


def _dense(tensor: TensorView, memory: Sequence[IterDomain]) -> Order:
    """Of a tensor whose axes lie in memory like this, the outermost first."""
    places = {axis: place for place, axis in enumerate(reversed(memory))}
    return tuple(None if axis.is_broadcast else places[axis] for axis in tensor.shape)


def _computed_order(node: Node, known: dict[TensorView, Order]) -> Order:
    """Of an elementwise result, or a view of its operand."""
    axes = node.output.shape
    orders = [
        tuple(None if dim is None else known[operand][dim] for dim in node.axis_map(i))
        for i, operand in enumerate(node.inputs)
        if isinstance(operand, TensorView)
    ]
    if node.traits.view:
        return orders[0]
    places = {dim: place for place, dim in enumerate(_sorted(orders, len(axes)))}
    return tuple(None if axis.is_broadcast else places[dim] for dim, axis in enumerate(axes))


def _sorted(orders: Sequence[Order], rank: int) -> list[int]:
    """The dimensions, innermost first, by an insertion sort; those that nobody tells apart stay."""
    dims = list(reversed(range(rank)))
    for start in range(1, rank):
        at = start
        for before in reversed(range(start)):
            swap = _is_outside(orders, dims[before], dims[at])
            if swap is None:
                continue
            if not swap:
                break
            dims[before], dims[at] = dims[at], dims[before]
            at = before
    return dims


def _is_outside(orders: Sequence[Order], a: int, b: int) -> bool | None:
    """Whether dimension a lies outside of b for the first operand that tells; None if none does."""
    for order in orders:
        x, y = order[a], order[b]
        if x is not None and y is not None:
            return x > y
    return None
