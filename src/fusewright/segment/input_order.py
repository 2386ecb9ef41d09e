"""Copies inputs into the order of their dimensions where a kernel would read them across their memory.

    f(x, y), where x lies column by column      becomes      c = x in rows  |  f(c, y)

The bar marks the end of a kernel. Where tensors lie in several orders and no schedule reads each along its
memory, most elements of some take a memory sector each. A transpose reads and writes whole sectors,
and so does the kernel after it. The rewrite is tried for kernels that are estimated to be slow.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.ir import Copy, Fusion, Node, TensorView, Val
from fusewright.ops.memory_format import lay_out
from fusewright.schedulers.base import Rewrite


def in_order_of_dimensions(nodes: Sequence[Node]) -> Rewrite | None:
    """Replaces reads of inputs in another memory order by reads of copies in the order of their dimensions.

    Args:
        nodes: the kernel's nodes, producers first.

    Returns:
        None if the kernel has no such input, or only copies.
    """
    if all(isinstance(node, Copy) for node in nodes):
        return None
    inside = set(nodes)
    bases = dict.fromkeys(
        value
        for node in nodes
        for value in node.tensor_inputs
        if value.definition not in inside and not value.is_cpu and _is_out_of_order(value)
    )
    readers = [node for node in nodes if not bases.keys().isdisjoint(node.inputs)]
    if not bases or not all(map(_can_read_another, readers)):
        return None

    def replace_all(graph: Fusion) -> dict[TensorView, TensorView]:
        copies: dict[Val, Val] = {b: copied_in_order(graph, b, range(b.ndim)) for b in bases}
        replaced = {}
        for node in readers:
            new = graph.new_like(node.output, node.output.dtype)
            graph.add_node(node.copy({**copies, node.output: new}))
            replaced[node.output] = new
        return replaced

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


def _can_read_another(node: Node) -> bool:
    """Whether a node can be made again with another input: it has one result, and reduces nothing."""
    return len(node.outputs) == 1 and node.output.shape == tuple(node.output.maybe_root)
