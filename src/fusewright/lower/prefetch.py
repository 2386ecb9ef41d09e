"""Loads that are issued an iteration ahead: `Schedule.prefetch`.

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
from fusewright.sym import ZERO, Expr, Symbol, as_int, land, lt, substitute, symbol


def prefetched(ctx: Context, node: Node, items: Sequence[Item]) -> list[Item]:
    """The items of a load that is issued an iteration ahead, made of that which is not.

    Raises:
        ScheduleError: no loop stands around the load.
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
        Item(outer, [_moved(ahead, own)], item.reads, item.writes, item.order + 1),
        _ahead(item, item.loops, own, ahead, loop, loop.index + 1, 2),
    ]


def _moved(source: k.Buffer, target: k.Buffer) -> k.Stmt:
    """Copies all registers of a buffer."""
    if as_int(source.size) == 1:
        return k.Copy(k.Ref(target, ZERO), k.Ref(source, ZERO))
    element = symbol("e", lo=0, hi=source.size - 1)
    copy = k.Copy(k.Ref(target, element), k.Ref(source, element))
    return k.For(element, source.size, (copy,), unroll=True)


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
