"""Reductions of a few elements, which may be elementwise work of other kernels instead of a kernel's own."""

from __future__ import annotations

from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Reduction
from fusewright.ir.value import TensorView
from fusewright.rewrite.short_reductions import can_be_unrolled, unrolled_reduction
from fusewright.schedulers.base import Part, Rewrite


def elementwise_reductions(part: Part) -> Rewrite | None:
    """The elements of short reductions one by one, for kernels that reduce something else, or nothing.

    None where there is no other kernel: estimates do not tell which of two that move the same is faster.
    """
    nodes = [node for node in part.nodes if isinstance(node, Reduction) and can_be_unrolled(node)]
    if not nodes or not _has_neighbours(part):
        return None

    def replace_all(graph: Fusion) -> dict[TensorView, TensorView]:
        return {old: new for node in nodes for old, new in unrolled_reduction(graph, node).items()}

    # Named by what they are, since one that joins what others became may be tried, too.
    names = ", ".join(node.output.name for node in nodes)
    reason = "a few elements are reduced, which any kernel may read"
    return Rewrite(f"elements of {names} one by one", replace_all, reason)


def _has_neighbours(part: Part) -> bool:
    """Whether the part reads what others compute, or others read what it computes."""
    inside = set(part.nodes)
    for node in part.nodes:
        if any(v.definition is not None and v.definition not in inside for v in node.tensor_inputs):
            return True
        if any(use not in inside for out in node.tensor_outputs for use in out.uses):
            return True
    return False
