"""Copies inputs into the order of their dimensions, or of another tensor, where it is slow to read them, and
results from that order into their own.

    z = f(x, y), where x lies column by column      becomes      c = x in rows  |  z = f(c, y)
    z = f(x, y), where z lies column by column      becomes      c = f(x, y)    |  z = c in columns

The bar marks the end of a kernel. Where tensors lie in several orders and no schedule accesses each along its
memory, most elements of some take a memory sector each. A transpose reads and writes whole sectors,
and so does the other kernel. Or no schedule holds rows of all tensors, so that several kernels read each.
"""

from __future__ import annotations

from collections.abc import Collection, KeysView, Mapping, Sequence

from fusewright.ir import Copy, Fusion, Node, TensorView
from fusewright.ops.memory_format import lay_out
from fusewright.schedulers.base import Rewrite
from fusewright.segment.axis_places import Places, places_beside

#: Orders of dimensions in memory, the outermost first, of inputs that are to lie so.
Orders = dict[TensorView, list[int]]


def out_of_order(nodes: Sequence[Node]) -> list[TensorView]:
    """The graph's inputs that these nodes read whose neighbours along the last dimension lie apart."""
    return [value for value in read_by(nodes) if not value.is_cpu and _is_out_of_order(value)]


def results_out_of_order(nodes: Sequence[Node], results: Collection[TensorView]) -> list[TensorView]:
    """The results that these nodes compute whose neighbours along the last dimension lie apart."""
    made = [node.output for node in nodes if len(node.outputs) == 1 and not node.traits.updates]
    return [out for out in made if out in results and _is_out_of_order(out)]


def has_several_orders(nodes: Sequence[Node]) -> bool:
    """Whether of the tensors that a kernel reads, some lie in the order of their dimensions, others not."""
    inside = set(nodes)
    read = {v for node in nodes for v in node.tensor_inputs if v.definition not in inside and not v.is_cpu}
    large = [value for value in read if sum(not axis.is_broadcast for axis in value.shape) > 1]
    return len({_is_out_of_order(value) for value in large}) > 1


def hands_on_wider(nodes: Sequence[Node]) -> bool:
    """Whether a kernel reads inputs across their memory, and stores wider elements for others to read: those
    could read copies of the inputs, and compute the same.
    """
    inside, bases = set(nodes), out_of_order(nodes)
    read = max((base.dtype.size for base in bases), default=0)
    return bool(bases) and any(
        out.dtype.size > read
        and out.ndim >= max(base.ndim for base in bases)
        and not inside.issuperset(out.uses)
        for node in nodes
        for out in node.tensor_outputs
    )


def read_by(nodes: Sequence[Node]) -> KeysView[TensorView]:
    """The graph's inputs that these nodes read."""
    return dict.fromkeys(v for node in nodes for v in node.tensor_inputs if v.definition is None).keys()


def orders_beside(nodes: Sequence[Node], outputs: Collection[TensorView]) -> list[tuple[str, Orders]]:
    """The orders in which the graph's inputs that these nodes read would lie in memory as one of the tensors
    of the most dimensions does: an output that they compute, or an input. Each with that tensor's name, those
    in which the fewest inputs change first.
    """
    read = [base for base in read_by(nodes) if not base.is_cpu and not base.is_expanded]
    made = [out for node in nodes for out in node.tensor_outputs if out in outputs]
    most = max((_rank(tensor) for tensor in (*made, *read)), default=0)
    found: list[tuple[str, Orders]] = []
    for tensor in (*made, *read):
        if _rank(tensor) == most > 1:
            places = places_beside(nodes, tensor)
            wanted = {base: _in_places(base, places.get(base, {})) for base in read}
            orders = {base: order for base, order in wanted.items() if order is not None}
            if orders and orders not in [known for _, known in found]:
                found.append((tensor.name, orders))
    return sorted(found, key=lambda item: sum(_rank(base) for base in item[1]))


def _in_places(base: TensorView, places: Places) -> list[int] | None:
    """The dimensions of an input in the order of their places; None where they lie so, or some have none."""
    own = base.memory_dims
    moving = _of_several(base, own)
    if not all(base.shape[dim] in places for dim in moving):
        return None
    wanted = iter(sorted(moving, key=lambda dim: places[base.shape[dim]]))
    order = [next(wanted) if dim in moving else dim for dim in own]
    return order if order != own else None


def _rank(tensor: TensorView) -> int:
    """The number of its dimensions of several elements."""
    return sum(not axis.is_broadcast for axis in tensor.shape)


def _of_several(tensor: TensorView, order: Sequence[int]) -> list[int]:
    """Of an order of dimensions those of several elements: where others stand is the same memory."""
    return [dim for dim in order if not tensor.shape[dim].is_broadcast]


def in_order(
    orders: Mapping[TensorView, Sequence[int]], of: str, results: Sequence[TensorView] = ()
) -> Rewrite:
    """Replaces inputs by copies in these orders of dimensions, those of `of`; and results, computed in the
    order of their dimensions, by copies in their own.
    """

    def replace_all(graph: Fusion) -> dict[TensorView, TensorView]:
        replaced = {base: copied_in_order(graph, base, order) for base, order in orders.items()}
        return replaced | {result: _copied_from_rows(graph, result) for result in results}

    what = " and results" if results else ""
    return Rewrite(f"inputs{what} in the order of {of}", replace_all, "some are accessed across their memory")


def _copied_from_rows(graph: Fusion, result: TensorView) -> TensorView:
    """Adds a twin of a tensor in the order of its dimensions, and a copy of it by another kernel."""
    twin, copied = (graph.new_like(result) for _ in range(2))
    node = result.definition
    assert node is not None
    graph.add_node(node.copy({result: twin}))
    graph.add_node(Copy(twin, copied, segment=True, ordered=True))
    return copied


def copied_in_order(graph: Fusion, base: TensorView, order: Sequence[int]) -> TensorView:
    """Adds a copy of a tensor in this order of dimensions, made by a kernel of its own."""
    handed_on, read = (graph.new_like(base, base.dtype) for _ in range(2))
    for tensor in (handed_on, read):
        lay_out(tensor, order, [True] * len(order))
    graph.add_node(Copy(base, handed_on, ordered=True))
    graph.add_node(Copy(handed_on, read, segment=True, ordered=True))
    return read


def _is_out_of_order(tensor: TensorView) -> bool:
    """Whether neighbours along the last dimension are not neighbours in memory."""
    own, last = (
        [axis for axis in axes if not axis.is_broadcast] for axes in (tensor.memory_axes, tensor.shape)
    )
    return bool(own) and own[-1] is not last[-1] and not tensor.is_expanded
