"""Copies inputs into the order of their dimensions, or of outputs, where kernels read them across memory.

    f(x, y), where x lies column by column      becomes      c = x in rows  |  f(c, y)

The bar marks the end of a kernel. Where tensors lie in several orders and no schedule reads each along its
memory, most elements of some take a memory sector each. A transpose reads and writes whole sectors,
and so does the kernel after it. Or no schedule holds rows of all tensors, so that several kernels read each.
"""

from __future__ import annotations

from collections.abc import Collection, KeysView, Mapping, Sequence

from fusewright.ir import Copy, Fusion, Node, TensorView
from fusewright.ops.memory_format import lay_out
from fusewright.schedulers.base import Rewrite
from fusewright.sym import Expr


def out_of_order(nodes: Sequence[Node]) -> list[TensorView]:
    """The graph's inputs that these nodes read whose neighbours along the last dimension lie apart."""
    return [value for value in read_by(nodes) if not value.is_cpu and _is_out_of_order(value)]


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


def beside_outputs(nodes: Sequence[Node], outputs: Collection[TensorView]) -> dict[TensorView, list[int]]:
    """The graph's inputs that these nodes read in another order than that of an output of as many elements,
    which they compute; with the output's order of dimensions.
    """
    orders: dict[tuple[Expr, ...], list[int]] = {}
    for node in nodes:
        for out in node.tensor_outputs:
            if out in outputs:
                orders.setdefault(_sizes(out), _order(out))
    found: dict[TensorView, list[int]] = {}
    for base in read_by(nodes):
        wanted = orders.get(_sizes(base))
        if wanted is None or base.is_cpu or base.is_expanded:
            continue
        if _of_several(base, wanted) != _of_several(base, _order(base)):
            found[base] = wanted
    return found


def _of_several(tensor: TensorView, order: Sequence[int]) -> list[int]:
    """Of an order of dimensions those of several elements: where others stand is the same memory."""
    return [dim for dim in order if not tensor.shape[dim].is_broadcast]


def _sizes(tensor: TensorView) -> tuple[Expr, ...]:
    return tuple([axis.extent for axis in tensor.shape])


def _order(tensor: TensorView) -> list[int]:
    """The dimensions of a tensor, the outermost in memory first."""
    place = {axis: dim for dim, axis in enumerate(tensor.shape)}
    return [place[axis] for axis in tensor.memory_axes]


def in_order(orders: Mapping[TensorView, Sequence[int]], of: str) -> Rewrite:
    """Replaces inputs by copies in these orders of dimensions, those of `of`."""

    def replace_all(graph: Fusion) -> dict[TensorView, TensorView]:
        return {base: copied_in_order(graph, base, order) for base, order in orders.items()}

    return Rewrite(f"inputs in the order of {of}", replace_all, "some are read across their memory")


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
