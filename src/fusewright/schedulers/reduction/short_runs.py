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

# Bytes of a sector of memory: shorter runs are read with what lies beside them.
SHORT_RUN_BYTES = 32
# Elements of a row at least. Of shorter rows a block has several, which lie side by side: together they use
# whole sectors.
#   H200, bf16, us, as rows and by columns: windows of 8x8 of 64x256x56x56 35 and 74, groups of 4096x8 111 and
#   64.
MIN_LENGTH = 1024


def columns_first(part: Part, space: ReductionSpace, facts: Facts) -> Rewrite | None:
    """Returns a rewrite of all reductions in two steps, if they are of short runs and none depends on
    another; else None.
    """
    if not space.is_inner or space.reduced_inside(facts) * space.element_bytes >= SHORT_RUN_BYTES:
        return None
    if space.reduction_size(facts) < MIN_LENGTH:
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
