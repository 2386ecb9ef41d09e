"""Which reductions of threads come first, where some need others: those that need the fewest.

    reduce a into m; reduce a - m into s; reduce b into n; reduce b - n into t
        ->
    reduce a into m; reduce b into n; reduce a - m into s; reduce b - n into t

Neighbours that do not need each other share an exchange (`lower.passes.joined_reductions`): two here, not
four.
"""

from __future__ import annotations

from fusewright.analyze.persistent import most_held, persistent_tensors
from fusewright.core.enums import ParallelType
from fusewright.ir.node import Node, Reduction
from fusewright.kernel.ir import BLOCK_AXES
from fusewright.lower.context import Context
from fusewright.sym import as_int


def exchanges_before(ctx: Context) -> dict[Node, int]:
    """How many exchanges of threads each node comes after; empty where they are in order anyway, or where
    one row after the other takes fewer registers than all at once.
    """
    before: dict[Node, int] = {}
    for node in ctx.nodes:
        inputs = [tensor.definition for tensor in node.tensor_inputs]
        made = [before[above] + _exchanges(above) for above in inputs if above in before]
        before[node] = max(made, default=0)
    order = [before[node] for node in ctx.nodes if _exchanges(node)]
    return {} if order == sorted(order) or not _are_held_at_once(ctx) else before


def _exchanges(node: Node | None) -> bool:
    """Whether threads of a block, or of a cluster, share a reduction."""
    across = [axis.parallel for axis in node.output.loop if axis.is_reduction] if node is not None else []
    is_shared = any(parallel.is_block or parallel is ParallelType.cluster_x for parallel in across)
    return isinstance(node, Reduction) and is_shared and not any(p in BLOCK_AXES for p in across)


def _are_held_at_once(ctx: Context) -> bool:
    """Whether all elements that outlive some reduction are needed together at some point anyway."""
    held = {
        tensor: reductions
        for tensor, reductions in persistent_tensors(ctx.fusion).items()
        if as_int(ctx.buffers.of(tensor).size) != 1
    }
    return sum(tensor.dtype.size for tensor in held) <= most_held(ctx.fusion, held)
