"""Reductions of what follows from reductions of rows reduce the rows first.

    y = exp(x - max(x, [1], keepdim)); sum(y, [0, 1])        becomes        sum(sum(y, [1]), [0])

The kernel that holds a row for its maximum then has its sum, too; what is left to sum is a value a row. In
one step y would be stored, or computed again from what another kernel found. This is the other direction of
`nested_reductions`, which leaves such sums apart, and holds for the same operations.
"""

from __future__ import annotations

from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Reduction
from fusewright.ir.value import TensorView
from fusewright.ops.build_reduction import reduce_states
from fusewright.rewrite.replacement import combines_elements, return_instead

__all__ = ["reduce_rows_first", "reduced_before"]


def reduce_rows_first(fusion: Fusion) -> Fusion:
    """`fusion` itself, in which a reduction along more dimensions than one before it is two."""
    outputs = set(fusion.output_tensors())
    for node in fusion.ordered_nodes():
        if not isinstance(node, Reduction) or not combines_elements(node):
            continue
        (source,) = node.tensor_inputs
        reduced = {dim for dim, axis in enumerate(node.output.logical) if axis.is_reduction}
        rows = reduced_before(source)
        if not rows or not rows < reduced:
            continue
        (parts,) = reduce_states(fusion, node.op, [source], sorted(rows))
        left = [dim for dim in range(source.ndim) if dim not in rows]
        (new,) = reduce_states(fusion, node.op, [parts], [i for i, dim in enumerate(left) if dim in reduced])
        return_instead(fusion, node.output, new, outputs)
        fusion.remove_node(node)
    return fusion


def reduced_before(tensor: TensorView) -> frozenset[int]:
    """The dimensions that results of reductions were broadcast along on the way to a tensor.

    None where two results differ in them.
    """
    found: set[frozenset[int]] = set()
    seen = {tensor}
    stack = [(tensor, tuple(range(tensor.ndim)))]
    while stack:
        value, names = stack.pop()
        node = value.definition
        if node is None or node.reduced or not node.traits.pointwise:
            continue
        for position, operand in enumerate(node.inputs):
            if not isinstance(operand, TensorView) or operand.is_cpu:
                continue
            own = dict.fromkeys(range(operand.ndim), -1)
            more: set[int] = set()
            for name, axis, dim in zip(names, value.shape, node.axis_map(position)):
                if dim is not None:
                    own[dim] = name
                if not axis.is_broadcast and (dim is None or operand.shape[dim].is_broadcast):
                    more.add(name)
            if operand.definition is not None and operand.definition.reduced:
                found.add(frozenset(more))
            elif operand not in seen:
                seen.add(operand)
                stack.append((operand, tuple(own.values())))
    found.discard(frozenset())
    return found.pop() if len(found) == 1 else frozenset()
