"""Reductions of tensors whose dimensions change places, which reduce them before they do.

    sum(permute(x, [2, 0, 1]), [1, 2])        becomes        sum(x, [0, 1])

So what reads x and what reduces it have the same dimensions in the same order, and share a kernel's loops.
"""

from __future__ import annotations

from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Node, Reduction
from fusewright.ir.view import Relabel
from fusewright.ops.build_reduction import reduce_states
from fusewright.rewrite.replacement import combines_elements, remove_dead, return_instead


def reduce_before_relabels(fusion: Fusion) -> Fusion:
    """`fusion` itself, in which no reduction reads what only puts dimensions into another order."""
    outputs = set(fusion.output_tensors())
    for node in fusion.ordered_nodes():
        if not isinstance(node, Reduction) or not combines_elements(node):
            continue
        above = node.tensor_inputs[0].definition
        if above is None or not _is_permutation(above):
            continue
        places, (source,) = above.axis_map(0), above.tensor_inputs
        kept = [dim for dim, axis in zip(places, node.output.logical) if not axis.is_reduction]
        reduced = [dim for dim in range(source.ndim) if dim not in kept]
        (new,) = reduce_states(fusion, node.op, [source], reduced)
        left = sorted(dim for dim in kept if dim is not None)
        if kept != left:
            ordered = fusion.new_like(node.output, new.dtype)
            fusion.add_node(Relabel(new, ordered, [left.index(dim) for dim in kept if dim is not None]))
            new = ordered
        return_instead(fusion, node.output, new, outputs)
        fusion.remove_node(node)
        remove_dead(fusion, above, outputs)
    return fusion


def _is_permutation(node: Node) -> bool:
    """Whether its result has all dimensions of its operand in another order, and no other."""
    if not node.traits.relabel:
        return False
    source = node.tensor_inputs[0]
    return not source.is_cpu and set(node.axis_map(0)) == set(range(source.ndim))
