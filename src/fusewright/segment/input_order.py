"""Copies inputs into the order of their dimensions where a kernel would read them across their memory.

    f(x, y), where x lies column by column      becomes      c = x in rows  |  f(c, y)

The bar marks the end of a kernel. Where tensors lie in several orders and no schedule reads each along its
memory, most elements of some take a memory sector each. A transpose reads and writes whole sectors,
and so does the kernel after it. Or no schedule holds rows of all tensors, so that several kernels read each.
"""

from __future__ import annotations

from collections.abc import KeysView, Sequence

from fusewright.ir import Copy, Fusion, Node, TensorView
from fusewright.ops.memory_format import lay_out
from fusewright.schedulers.base import Rewrite


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


def in_order_of_dimensions(bases: Sequence[TensorView]) -> Rewrite:
    """Replaces inputs by copies in the order of their dimensions."""

    def replace_all(graph: Fusion) -> dict[TensorView, TensorView]:
        return {base: copied_in_order(graph, base, range(base.ndim)) for base in bases}

    return Rewrite("inputs in the order of dimensions", replace_all, "some are read across their memory")


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
