"""Rows whose contiguous runs in memory are shorter than a memory access. A separate kernel, which reads whole
lines of memory, reduces their columns first.
"""

from __future__ import annotations

from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Reduction
from fusewright.ir.value import TensorView
from fusewright.rewrite.proposed.columns_first import can_be_cut, reduced_across_first
from fusewright.schedulers.base import Facts, Part, Rewrite
from fusewright.schedulers.reduction.space import ReductionSpace

# Runs of fewer bytes than a sector of memory are read with what lies beside them.
SHORT_RUN = 32
# Of shorter rows a block has several, which lie side by side: together they use whole sectors. (An H200,
# windows of 8 x 8 of 64x256x56x56 bfloat16: 35 us as rows, 74 by columns; groups of 4096 x 8: 111 and 64.)
LEAST_LENGTH = 1024


def columns_first(part: Part, space: ReductionSpace, facts: Facts) -> Rewrite | None:
    """Where reductions are of short runs and none depends on another, all in two steps."""
    if not space.is_inner or space.reduced_inside(facts) * space.element_bytes >= SHORT_RUN:
        return None
    if space.reduction_size(facts) < LEAST_LENGTH:
        return None
    nodes = [node for node in part.nodes if isinstance(node, Reduction)]
    made = [tensor.definition for tensor in space.reductions]
    if any(node is None or not space.after.isdisjoint(node.inputs) for node in made):
        return None
    if not all(can_be_cut(part.graph, node) for node in nodes):
        return None

    def replace(graph: Fusion) -> dict[TensorView, TensorView]:
        return {old: new for node in nodes for old, new in reduced_across_first(graph, node).items()}

    reason = "memory has rows in runs that are shorter than what it is read in"
    return Rewrite("columns first", replace, reason)
