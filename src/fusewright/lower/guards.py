"""Guards: which threads do a node's work."""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.ir.node import Node
from fusewright.ir.value import TensorView
from fusewright.kernel import ir as k
from fusewright.lower.context import Context
from fusewright.lower.indexing import NodeIndices
from fusewright.sym import Expr, as_int, land


def guarded(guards: Sequence[Expr], body: Sequence[k.Stmt]) -> list[k.Stmt]:
    cond = land(*guards) if guards else k.TRUE
    return list(body) if as_int(cond) == 1 else [k.If(cond, tuple(body))]


def all_guards(ctx: Context, node: Node, indices: NodeIndices) -> list[Expr]:
    """The guards of `node`, and that the block holds the grid reductions that it reads."""
    flags = ctx.flags(node)
    for out in node.outputs:
        if flags and isinstance(out, TensorView):
            ctx.last_block[out] = flags
    return [*(flag for flag, _ in flags), *ctx.guards(node, indices)]
