"""Issues loads an iteration ahead of their use (`Schedule.prefetch`).

                                next = x[0]
for j in n:                     for j in n:
  a = x[j]                ->      a = next
  work(a)                         next = x[j + 1] if j + 1 < n
                                  work(a)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from fusewright.core.errors import ScheduleError
from fusewright.ir.node import Node
from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.lower.context import Context
from fusewright.lower.guards import zero
from fusewright.lower.loops import Item, Loop
from fusewright.lower.node_work import copy_registers
from fusewright.sym import ZERO, Expr, Symbol, as_int, land, lt, substitute


def prefetched(ctx: Context, node: Node, items: Sequence[Item]) -> list[Item]:
    """The items of a load that is issued an iteration ahead.

    Args:
        items: the items of the load where it is used.

    Raises:
        ScheduleError: there is no serial loop around the load, an unrolled loop is between them, or the
            vectors of the load may be partial or unaligned.
    """
    out = node.output
    if len(items) > 1:
        raise ScheduleError(
            f"prefetch: the vectors of {out.name} may start at any element, or not be whole",
            hint="load it where it is used, or in aligned vectors",
        )
    (item,) = items
    inlined = ctx.loops.of(node)[: out.inline_at]
    around = [loop for loop in inlined if loop.is_real and not loop.unroll]
    if not around:
        raise ScheduleError(
            f"prefetch: {out.name} is inlined into no serial loop, whose iterations it could be ahead of",
            given=str(out),
            hint="inline_at places it in the loop over what it is loaded for",
        )
    loop = around[-1]
    position = inlined.index(loop) + 1
    if any(inner.is_real for inner in inlined[position:]):
        raise ScheduleError(
            f"prefetch: {out.name} is inlined into an unrolled loop, where it holds one iteration",
            expected=f"room for all of its iterations: inlined at {position}",
            given=f"inlined at {out.inline_at}",
            hint="inline_at places it in the serial loop around",
        )
    own = ctx.buffers.of(out)
    ahead = k.Buffer(f"{own.name}_next", own.dtype, own.space, own.size, own.align)
    ctx.registers.append(ahead)
    first = tuple(each for each in item.loops if each is not loop)
    outer = item.loops[: item.loops.index(loop) + 1]
    return [
        _ahead(item, first, own, ahead, loop, ZERO, 0),
        Item(outer, [_copied(ahead, own)], item.reads, item.writes, item.order + 1),
        _ahead(item, item.loops, own, ahead, loop, loop.index + 1, 2),
    ]


def _copied(source: k.Buffer, target: k.Buffer) -> k.Stmt:
    """Copies all registers of a buffer."""
    size = as_int(source.size)
    assert size is not None, f"{source.name} is not in registers"
    return copy_registers(source, k.Ref(target, ZERO), size)


def _ahead(
    item: Item,
    loops: tuple[Loop, ...],
    own: k.Buffer,
    ahead: k.Buffer,
    loop: Loop,
    iteration: Expr,
    order: int,
) -> Item:
    """The load of an iteration of `loop` into the registers `ahead`."""
    there, index = lt(iteration, loop.extent if loop.trips is None else loop.trips), loop.index
    assert isinstance(index, Symbol)

    def load(stmt: k.Stmt) -> k.Stmt:
        if isinstance(stmt, k.For):
            return k.with_children(stmt, lambda body: tuple(map(load, body)))
        stmt = access.map_buffers(stmt, {own: ahead})
        stmt = access.map_expressions(stmt, lambda e: substitute(e, {index: iteration}))
        if not (isinstance(stmt, k.Copy) and isinstance(stmt.src, k.Ref)):
            return stmt
        if stmt.src.buffer.space is not k.Space.GLOBAL:
            return stmt
        pred = land(stmt.pred, there)
        fill = None if pred is k.TRUE else stmt.fill or zero(stmt.dst.buffer.dtype)
        return dataclasses.replace(stmt, pred=pred, fill=fill)

    return Item(loops, [load(stmt) for stmt in item.body], item.reads, item.writes, item.order + order)
