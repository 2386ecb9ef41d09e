"""The memory order of tensors for which none is stated: that of their sources, as in torch.

Elementwise results have the layout of torch's TensorIterator (`TensorIteratorBase::reorder_dimensions`):
their dimensions are sorted by the strides of the operands, and the first operand that distinguishes two
dimensions decides. Views, slices, pads, joins and reshapes have the order of their source, if the dimensions
that they merge are contiguous in it. Scans and reads by index tensors are row-major, and so are reductions,
except that one between kernels has the order of its source. Everything computed only from row-major inputs is
row-major, too: a permutation of those in the definition changes the layout of the result. Sizes are not known
here: a dimension that might have one element counts as one of several.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusewright.ir import (
    Copy,
    Fusion,
    Indexed,
    IndexMap,
    IterDomain,
    Node,
    Reduction,
    TensorView,
    Update,
    position_of,
)
from fusewright.sym import Expr

#: Of each dimension how far outside it lies in memory, 0 for the innermost; None for one without strides.
Places = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Order:
    """How a tensor lies. `kept`: as an input that is not row-major, through permutations as well."""

    places: Places
    kept: bool = False


def keep_memory_format(tensor: TensorView) -> None:
    """Gives an output the layout of its sources, unless its order is stated."""
    if tensor.definition is not None and not _states_order(tensor.definition):
        _keep(tensor, {})


def lay_out_intermediates(fusion: Fusion) -> bool:
    """Gives tensors that are not outputs the layout of their sources, unless their order is stated; returns
    whether any changed.

    If a kernel ends after such a tensor, it and its readers access it in the order of the inputs.
    """
    outputs = set(fusion.output_tensors())
    known: dict[TensorView, Order] = {}
    moved = False
    for node in fusion.ordered_nodes():
        if node.is_scalar or _states_order(node):
            continue
        for tensor in node.outputs:
            if not isinstance(tensor, TensorView) or tensor in outputs:
                continue
            is_base = any(isinstance(use, Update) and use.base is tensor for use in tensor.uses)
            if not is_base and _order(tensor, known, between=True).kept:
                _keep(tensor, known, between=True)
                moved = True
    return moved


def _keep(tensor: TensorView, known: dict[TensorView, Order], between: bool = False) -> None:
    order = _order(tensor, known, between).places
    lay_out(tensor, list(reversed(_sorted([order], tensor.ndim))), [True] * tensor.ndim)


def lay_out(tensor: TensorView, order: Sequence[int], contiguity: Sequence[bool | None]) -> None:
    """Gives a tensor this order of dimensions in memory, the outermost first.

    A tensor that is written over another one gives the other the same layout.
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


def _order(tensor: TensorView, known: dict[TensorView, Order], between: bool = False) -> Order:
    """The order that a tensor has, or would have in memory of its own.

    between: whether it is between kernels.
    """
    stack = [tensor]
    while stack:
        current = stack[-1]
        node = current.definition
        if current in known:
            stack.pop()
        elif node is None or _states_order(node):
            places = _dense(current, current.allocation)
            known[stack.pop()] = Order(places, places != _dense(current, current.shape))
        elif not (_follows(node) or (between and isinstance(node, Reduction))):
            known[stack.pop()] = Order(_dense(current, current.shape))
        elif missing := [v for v in _operands(node) if v not in known]:
            stack += missing
        else:
            known[stack.pop()] = _computed_order(node, current, [known[v] for v in _operands(node)])
    return known[tensor]


def _follows(node: Node) -> bool:
    """Whether its output lies as its operands do."""
    if isinstance(node, Indexed):
        return not node.indices
    return node.traits.pointwise and bool(node.tensor_inputs)


def _operands(node: Node) -> list[TensorView]:
    return [node.source] if isinstance(node, Indexed) else node.tensor_inputs


def _dense(tensor: TensorView, memory: Sequence[IterDomain]) -> Places:
    """Of a tensor whose axes lie in memory like this, the outermost first."""
    places = {axis: place for place, axis in enumerate(reversed(memory))}
    return tuple([None if axis.is_broadcast else places[axis] for axis in tensor.shape])


def _computed_order(node: Node, out: TensorView, operands: Sequence[Order]) -> Order:
    """Of an elementwise or reduced result of a node, or of what shows its operand in another way."""
    row_major = Order(_dense(out, out.shape))
    if not any(order.kept for order in operands):
        return row_major
    if isinstance(node, Indexed):
        read = _read_places(node.map, out, operands[0].places)
        return row_major if read is None else Order(read, True)
    tensors = [i for i, value in enumerate(node.inputs) if isinstance(value, TensorView)]
    orders = [
        tuple([None if dim is None else order.places[dim] for dim in node.axis_map(i)])
        for i, order in zip(tensors, operands)
    ]
    if node.traits.view:
        return Order(orders[0], True)
    if isinstance(node, Reduction):
        kept = zip(out.maybe_root, orders[0])
        return Order(tuple([place for axis, place in kept if not axis.is_reduction]), True)
    places = {dim: place for place, dim in enumerate(_sorted(orders, out.ndim))}
    found = tuple([None if axis.is_broadcast else places[dim] for dim, axis in enumerate(out.shape)])
    # As the first operand that has several dimensions, even where that is the row-major order here.
    first = next((order for order in operands if sum(p is not None for p in order.places) > 1), None)
    return Order(found, found != row_major.places or first is None or first.kept)


def _read_places(index: IndexMap, out: TensorView, order: Places) -> Places | None:
    """Of a result that reads each element of a source, which lies in this order, at `index`.

    None if dimensions become one that do not lie beside each other, or if one comes from nowhere.
    """
    stored = [(-place, dim) for dim, place in enumerate(order) if place is not None]
    inwards = [dim for _, dim in sorted(stored)]
    parts = {dim: _dims(index.indices[dim]) for dim in inwards}
    found: list[int] = []
    for dim in inwards:
        found += [part for part in parts[dim] if part not in found]
    for part in found:
        merged = [dim for dim in inwards if part in parts[dim]]
        first = inwards.index(merged[0])
        if merged != sorted(merged) or merged != inwards[first : first + len(merged)]:
            return None
    if any(axis.is_broadcast == (dim in found) for dim, axis in enumerate(out.shape)):
        return None
    places = {dim: place for place, dim in enumerate(reversed(found))}
    return tuple([places.get(dim) for dim in range(out.ndim)])


def _dims(index: Expr) -> list[int]:
    """The dimensions of the result that an index is by, in order."""
    return sorted(dim for s in index.free_symbols if (dim := position_of(s)) is not None)


def _sorted(orders: Sequence[Places], rank: int) -> list[int]:
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


def _is_outside(orders: Sequence[Places], a: int, b: int) -> bool | None:
    """Whether dimension a lies outside of b for the first operand that tells; None if none does."""
    for order in orders:
        x, y = order[a], order[b]
        if x is not None and y is not None:
            return x > y
    return None
