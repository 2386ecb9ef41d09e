"""Makes broadcasts, squeezes and permutes in turn one step.

    sum(x, [1], keepdim) -> broadcast [n, 1, 1]        becomes        relabel of the sum

A tensor in between has some of the dimensions alone, which keeps them from being one (`border`).
"""

from __future__ import annotations

from fusewright.ir.fusion import Fusion
from fusewright.ir.view import Relabel


def join_relabels(fusion: Fusion) -> Fusion:
    """`fusion` itself, in which no relabeling is read by another one alone."""
    outputs = set(fusion.output_tensors())
    for node in fusion.ordered_nodes():
        above = node.source.definition if node.traits.relabel else None
        if above is None or not above.traits.relabel or node.source in outputs or node.source.uses != [node]:
            continue
        before, out = above.axis_map(0), node.output
        dims = [None if dim is None else before[dim] for dim in node.axis_map(0)]
        fusion.remove_node(node)
        fusion.remove_node(above)
        fusion.add_node(Relabel(above.source, out, dims))
    return fusion
