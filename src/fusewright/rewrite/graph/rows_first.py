"""Splits a reduction of values that depend on reductions of rows, so that rows are reduced first.

    y = exp(x - max(x, [1], keepdim)); sum(y, [0, 1])        becomes        sum(sum(y, [1]), [0])

The kernel that holds a row for its maximum then also computes its sum, and only one value per row remains to
be summed. With a single reduction, y would be stored, or recomputed from another kernel's result. This is the
inverse of `nested_reductions`, which leaves such sums separate, and it applies to the same operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Node, Reduction
from fusewright.ir.value import TensorView
from fusewright.ops.build_reduction import reduce_states
from fusewright.rewrite.replacement import combines_elements, return_instead


def reduce_rows_first(fusion: Fusion) -> Fusion:
    """Splits reductions along more dimensions than the reductions before them; returns `fusion`."""
    outputs = set(fusion.output_tensors())
    of_several = [
        node
        for node in fusion.ordered_nodes()
        if isinstance(node, Reduction) and combines_elements(node) and len(node.reduced_dims) > 1
    ]
    before = reduced_before(fusion) if of_several else {}
    for node in of_several:
        source, reduced = node.tensor_inputs[0], frozenset(node.reduced_dims)
        rows = before.get(source)
        if not rows or not rows < reduced:
            continue
        (parts,) = reduce_states(fusion, node.op, [source], sorted(rows))
        left = [dim for dim in range(source.ndim) if dim not in rows]
        (new,) = reduce_states(fusion, node.op, [parts], [i for i, dim in enumerate(left) if dim in reduced])
        return_instead(fusion, node.output, new, outputs)
        fusion.remove_node(node)
    return fusion


def reduced_before(fusion: Fusion) -> dict[TensorView, frozenset[int]]:
    """For each tensor the dimensions along which results of reductions were broadcast on the way to it.

    Tensors without such dimensions, and tensors for which two results differ in them, are left out.
    """
    found: dict[TensorView, frozenset[frozenset[int]]] = {}
    for node in fusion.ordered_nodes():
        if node.reduced or not node.traits.pointwise or not isinstance(node.outputs[0], TensorView):
            continue
        # Two different sets suffice: the tensor is then left out.
        if along := frozenset([*dict.fromkeys(_broadcast_along(node, found))][:2]):
            found[node.output] = along
    return {tensor: dims for tensor, (dims, *others) in found.items() if not others}


def _broadcast_along(
    node: Node, before: Mapping[TensorView, frozenset[frozenset[int]]]
) -> Iterator[frozenset[int]]:
    """Yields, for each reduction that a pointwise node depends on, the output's dimensions along which its
    result was broadcast. A dimension that the output lacks is -1.

    Args:
        before: the same for the tensors before the node.
    """
    shape = node.output.shape
    for position, operand in enumerate(node.inputs):
        if not isinstance(operand, TensorView) or operand.is_cpu:
            continue
        dims = node.axis_map(position)
        if operand.reduced:
            axes = enumerate(zip(shape, dims))
            new = {i for i, (axis, dim) in axes if not axis.is_broadcast and _is_new(operand, dim)}
            if new:
                yield frozenset(new)
        for along in before.get(operand, ()):
            places = {dim: i for i, dim in enumerate(dims)}
            yield frozenset(places.get(dim, -1) for dim in along)


def _is_new(operand: TensorView, dim: int | None) -> bool:
    return dim is None or operand.shape[dim].is_broadcast
