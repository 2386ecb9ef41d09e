"""Scans: a carry that runs along the scanned loops, and the steps within a thread and across those of a block.

    carry = identity                        carry = identity
    for j: carry = combine(carry, x[j])     for each step along the row:
           y[j] = carry                         y[i] = x[i], or the identity beyond the end, for each i of a thread
                                                y[i] = combine(y[i], y[i - 1])
                                                before, carry = block scan of y[last], onto carry
                                                y[i] = combine(y[i], before)

On the left each thread scans by itself, on the right the threads along one axis of the block do together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusewright.analyze.scan_axes import nesting_order, scanned_positions
from fusewright.core.enums import MemoryType, ParallelType
from fusewright.core.errors import ScheduleError
from fusewright.ir.node import Scan
from fusewright.ir.value import TensorView
from fusewright.kernel import ir as k
from fusewright.lower.context import Context
from fusewright.lower.guards import guarded
from fusewright.lower.loops import Item, Loop
from fusewright.sym import ONE, ZERO, Expr, Symbol, as_int, product, substitute, symbol


def scan_items(ctx: Context, node: Scan, order: int) -> list[Item]:
    """An item that starts the carry, and those that scan.

    Raises:
        ScheduleError: loops that do not go through the scanned dimension in order, or that blocks share.
    """
    if node.output.memory is not MemoryType.local:
        raise ScheduleError(
            f"the scan {node.output.name} is computed in {node.output.memory.name} memory",
            hint="cache_before makes it a copy of what is computed in registers",
        )
    shape = _shape(ctx, node)
    start = _start_item(ctx, shape, order)
    if shape.axis is None:
        return [start, _serial_item(ctx, shape, order + 1)]
    return [start, _fill_item(ctx, shape, order + 1), _collective_item(ctx, shape, shape.axis, order + 2)]


@dataclass(frozen=True)
class _Shape:
    """How the loops of a scan divide the work.

    Attributes:
        axis: of the threads that scan together; None where each scans by itself.
        first: the position of the first loop that the carry runs along.
        meeting: how many loops stand around the step in which threads meet.
        item: the position of the loop over the elements of a thread inside of that, if there is one.
        beside: positions of loops inside the carry's that are not scanned: a carry for each of their points.
        carry: the buffer.
    """

    node: Scan
    loops: tuple[Loop, ...]
    axis: ParallelType | None
    first: int
    meeting: int
    item: int | None
    beside: tuple[int, ...]
    carry: k.Buffer

    def carry_at(self, places: Sequence[Expr]) -> k.Ref:
        """The carry for these places in the loops `beside`."""
        index: Expr = ZERO
        for position, place in zip(self.beside, places):
            index = index * self.loops[position].extent + place
        return k.Ref(self.carry, index)

    def carry_here(self) -> k.Ref:
        return self.carry_at([self.loops[position].index for position in self.beside])


def _shape(ctx: Context, node: Scan) -> _Shape:
    out, loops = node.output, ctx.loops.of(node)
    scanned = [i for i in scanned_positions(node) if as_int(loops[i].extent) != 1]
    _check_order(node, loops, scanned)
    across = [i for i in scanned if loops[i].is_parallel]
    if any(loops[i].parallel.is_grid for i in across) or len(across) > 1:
        raise ScheduleError(
            f"the scan {out.name} is spread over {', '.join(loops[i].parallel.ir_name for i in across)}",
            expected="one axis of the threads of a block",
            given=str(out),
            hint="leave the other axes along the scanned dimension serial",
        )
    within = [i for i in scanned if across and i > across[0]]
    if len(within) > 1:
        raise ScheduleError(
            f"each thread of the scan {out.name} goes through its elements in {len(within)} loops",
            expected="one",
            given=str(out),
            hint="split off those of a thread at once, inside the axis of threads",
        )
    # What stands inside the axis of threads, and is no step along the row, each thread does at once.
    inside = [i for i in scanned_positions(node) if across and i > across[0]]
    meeting = next(iter(inside), len(loops))
    first = next((i for i in scanned if i < meeting and loops[i].is_real), meeting)
    beside = [i for i, loop in enumerate(loops) if i >= first and i not in scanned and loop.is_real]
    size = product(loops[i].extent for i in beside)
    if as_int(size) is None:
        raise ScheduleError(
            f"the scan {out.name} has {size} carries in the registers of each thread",
            expected="loops of constant extent inside those along the scanned dimension",
            given=str(out),
            hint="reorder the scanned axes inward",
        )
    carry = k.Buffer(f"{out.name}_carry", out.dtype, k.Space.LOCAL, size)
    ctx.registers.append(carry)
    axis = loops[across[0]].parallel if across else None
    return _Shape(node, loops, axis, first, meeting, next(iter(within), None), tuple(beside), carry)


def _check_order(node: Scan, loops: Sequence[Loop], scanned: Sequence[int]) -> None:
    """The loops of more than one point go through the scanned dimension from its first element to its last."""
    out = node.output
    order = nesting_order(node)
    if order is None:
        raise ScheduleError(
            f"the scan {out.name} runs along a loop that more than splits of the scanned dimension made",
            given=str(out),
            hint="split the scanned dimension, and merge others without it",
        )
    nested = [out.loop[i] for i in scanned]
    if nested != [axis for axis in order if axis in nested]:
        raise ScheduleError(
            f"the loops of the scan {out.name} do not go through the scanned dimension in order",
            expected=", ".join(map(str, (axis for axis in order if axis in nested))),
            given=", ".join(map(str, nested)),
            hint="reorder the outer result of each split outside of the inner one",
        )


def _reads(ctx: Context, node: Scan) -> tuple[TensorView, ...]:
    return tuple(v for v in node.tensor_inputs if not ctx.fusion.is_input(v))


def _start_item(ctx: Context, shape: _Shape, order: int) -> Item:
    """Sets the carries, outside the first loop that they run along."""
    node, loops = shape.node, shape.loops
    inside = (loops[i] for i in shape.beside)
    own = (Loop(loop.extent, loop.parallel, loop.padded, loop.index, unroll=True) for loop in inside)
    dst = shape.carry_here()
    body: list[k.Stmt] = [k.Init(node.op, (dst,))]
    if len(node.inputs) > 1:
        body = [k.Copy(dst, ctx.scalar(node.inputs[1]))]
    return Item((*loops[: shape.first], *own), body, (), (node.output,), order)


def _serial_item(ctx: Context, shape: _Shape, order: int) -> Item:
    node = shape.node
    indices = ctx.indices(node)
    carry, dst = shape.carry_here(), ctx.result(node.output, indices)
    body = [k.Combine(node.op, (carry,), (ctx.operand(node, 0, indices),)), k.Copy(dst, carry)]
    guards = [*ctx.guards(node, indices), *ctx.nonempty_guards(node)]
    return Item(shape.loops, guarded(guards, body), _reads(ctx, node), (node.output,), order)


def _fill_item(ctx: Context, shape: _Shape, order: int) -> Item:
    """The elements of a thread; what is beyond the end of a row changes nothing."""
    node = shape.node
    indices = ctx.indices(node)
    dst = ctx.result(node.output, indices)
    guards = [*ctx.guards(node, indices), *ctx.nonempty_guards(node)]
    body: list[k.Stmt] = [k.Init(node.op, (dst,))] if guards else []
    body += guarded(guards, [k.Copy(dst, ctx.operand(node, 0, indices))])
    return Item(shape.loops, body, _reads(ctx, node), (node.output,), order)


def _collective_item(ctx: Context, shape: _Shape, axis: ParallelType, order: int) -> Item:
    """The scan of a thread's elements, then across threads, and what comes before added to each element."""
    node, loops, out = shape.node, shape.loops, shape.node.output
    places = {i: loop.index for i, loop in enumerate(loops)}
    inside = [i for i in shape.beside if i >= shape.meeting]
    for number, position in enumerate(inside):
        places[position] = _counter(f"column{number}", loops[position].extent)
    count = ONE if shape.item is None else loops[shape.item].extent
    item = _counter("item", count)
    if shape.item is not None:
        places[shape.item] = item
    table = [Loop(loop.extent, loop.parallel, loop.padded, places[i]) for i, loop in enumerate(loops)]
    at = ctx.result(out, ctx.indices(node, table))
    carry = shape.carry_at([places[i] for i in shape.beside])
    columns = [place for i in inside if isinstance(place := places[i], Symbol)]
    last = k.Ref(at.buffer, substitute(at.index, {item: count - 1}))
    side = (
        columns[-1]
        if columns and all(_moves_by_one(ref.index, columns[-1]) for ref in (last, carry))
        else None
    )
    width = 1 if side is None else as_int(loops[inside[-1]].extent) or 1
    before = k.Buffer(f"{out.name}_before", out.dtype, k.Space.LOCAL, product([width]))
    ctx.registers.append(before)
    ahead = k.Ref(at.buffer, substitute(at.index, {item: item + 1}))
    prefix = k.Ref(before, ZERO if side is None else side)
    run = _over(side, width, k.Combine(node.op, (ahead,), (at,)))
    add = _over(side, width, k.Combine(node.op, (at,), (prefix,)))
    if shape.item is None:
        run = ()
    else:
        run = (k.For(item, count - 1, run, unroll=True),)
        add = (k.For(item, count, add, unroll=True),)
    scan = k.BlockScan(
        node.op,
        (k.Ref(before, ZERO),),
        (_first(last, side),),
        (_first(carry, side),),
        axis,
        ctx.workspace([out.dtype], (axis,), width),
        width,
    )
    body: tuple[k.Stmt, ...] = (*run, scan, *add)
    for place, position in reversed(list(zip(columns, inside))):
        if place is not side:
            body = (k.For(place, loops[position].extent, body, unroll=True),)
    return Item(loops[: shape.meeting], guarded(ctx.block_guards(node), body), (), (out,), order)


def _counter(name: str, extent: Expr) -> Symbol:
    return symbol(name, lo=0, hi=extent - 1)


def _moves_by_one(index: Expr, place: Symbol) -> bool:
    return substitute(index, {place: 0}) + place is index


def _first(ref: k.Ref, side: Symbol | None) -> k.Ref:
    return ref if side is None else k.Ref(ref.buffer, substitute(ref.index, {side: 0}))


def _over(side: Symbol | None, width: int, stmt: k.Stmt) -> tuple[k.Stmt, ...]:
    """`stmt` for each of the elements that are scanned side by side."""
    return (stmt,) if side is None else (k.For(side, product([width]), (stmt,), unroll=True),)
