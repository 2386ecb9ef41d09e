"""Computes a reduction from another reduction of the same operand along fewer dimensions.

    s = sum(x, [1]), t = sum(x, [1, 2])        becomes        s = sum(x, [1]), t = sum(s, [1])

So no kernel reads all elements for `t`. If there are several such results, the pass takes one with the fewest
remaining dimensions, since sizes are unknown here. Among these it takes the one that keeps the innermost
dimension, whose rows the following kernels can hold. The pass applies to the operations that
`nested_reductions` merges. That pass leaves these reductions separate, since the first result has other uses.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Reduction
from fusewright.ir.value import TensorView
from fusewright.ops.build_reduction import reduce_states
from fusewright.rewrite.replacement import combines_elements, return_instead


def reduce_partial_results(fusion: Fusion) -> Fusion:
    """Makes reductions start from results along some of their dimensions; returns `fusion`."""
    outputs = set(fusion.output_tensors())
    found: dict[TensorView, list[Reduction]] = {}
    for node in fusion.ordered_nodes():
        if isinstance(node, Reduction) and combines_elements(node) and not node.output.is_cpu:
            found.setdefault(node.tensor_inputs[0], []).append(node)
    for source, alike in found.items():
        # Reductions along fewer dimensions are rewritten first, since others may start from their new
        # results.
        for node in sorted(alike, key=lambda each: len(each.reduced_dims)):
            partial = _partial_result(node, alike)
            if partial is None:
                continue
            kept = [dim for dim in range(source.ndim) if dim not in partial.reduced_dims]
            left = [i for i, dim in enumerate(kept) if dim in node.reduced_dims]
            (new,) = reduce_states(fusion, node.op, [partial.output], left)
            return_instead(fusion, node.output, new, outputs)
            fusion.remove_node(node)
            alike.remove(node)
    return fusion


def _partial_result(node: Reduction, alike: Sequence[Reduction]) -> Reduction | None:
    """The reduction of the same operand that `node` can start from, or None."""
    reduced = set(node.reduced_dims)
    others = [
        each
        for each in alike
        if each.op is node.op and each.output.dtype is node.output.dtype and set(each.reduced_dims) < reduced
    ]
    return min(others, key=lambda each: (-len(each.reduced_dims), sorted(each.reduced_dims)), default=None)
