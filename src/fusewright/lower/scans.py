"""Scans: a carry that runs along the scanned loops, and the steps within a thread and across a block.

    carry = identity                        carry = identity
    for j: carry = combine(carry, x[j])     for each step along the row:
           y[j] = carry                       y[i] = x[i], or the identity beyond the row's end
                                              y[i] = combine(y[i], y[i - 1])      for each i of a thread
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
from fusewright.sym import ONE, ZERO, Expr, Symbol, as_int, land, product, symbol


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
    _check_order(ctx, node, scanned)
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
    carry = ctx.register(f"{out.name}_carry", out.dtype, as_int(size) or 1)
    axis = loops[across[0]].parallel if across else None
    return _Shape(node, loops, axis, first, meeting, next(iter(within), None), tuple(beside), carry)


def _check_order(ctx: Context, node: Scan, scanned: Sequence[int]) -> None:
    """Raises ScheduleError unless the loops go through the scanned dimension from its first element on."""
    out = node.output
    order = nesting_order(node, lambda axis: ctx.domains.extent(out, axis) is ONE)
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
    pred = land(*ctx.thread_guards(node, indices), *ctx.nonempty_guards(node))
    step = k.Combine(node.op, (carry,), (ctx.operand(node, 0, indices),), pred=pred)
    body = guarded(ctx.block_guards(node), [step, k.Copy(dst, carry)])
    return Item(shape.loops, body, _reads(ctx, node), (node.output,), order)


def _fill_item(ctx: Context, shape: _Shape, order: int) -> Item:
    """The elements of a thread; what is beyond the end of a row changes nothing."""
    node = shape.node
    indices = ctx.indices(node)
    dst = ctx.result(node.output, indices)
    pred = land(*ctx.thread_guards(node, indices), *ctx.nonempty_guards(node))
    dtype = node.output.dtype
    [identity] = node.op.identity(dtype)
    fill = None if pred is k.TRUE else k.Imm(identity, dtype)
    load = k.Copy(dst, ctx.operand(node, 0, indices), pred=pred, fill=fill, fill_is_value=fill is not None)
    body = guarded(ctx.block_guards(node), [load])
    return Item(shape.loops, body, _reads(ctx, node), (node.output,), order)


def _collective_item(ctx: Context, shape: _Shape, axis: ParallelType, order: int) -> Item:
    """The scan of a thread's elements, then across threads, and what comes before added to each element."""
    node, loops, out = shape.node, shape.loops, shape.node.output
    inside = [i for i in shape.beside if i >= shape.meeting]
    columns = [_own(f"column{n}", loops[i]) for n, i in enumerate(inside)]
    item = None if shape.item is None else _own("item", loops[shape.item])
    table = list(loops)
    for position, loop in (*zip(inside, columns), (shape.item, item)):
        if position is not None and loop is not None:
            table[position] = loop
    at = ctx.result(out, ctx.indices(node, table))
    carry = shape.carry_at([table[i].index for i in shape.beside])
    # What lies side by side in the carries is scanned side by side.
    side = columns[-1] if columns else None
    width = 1 if side is None else as_int(side.extent) or 1
    total, before = (ctx.register(f"{out.name}_{name}", out.dtype, width) for name in ("total", "before"))
    lane = ZERO if side is None else side.index
    run: list[k.Stmt] = [k.Combine(node.op, (k.Ref(total, lane),), (at,)), k.Copy(at, k.Ref(total, lane))]
    add: list[k.Stmt] = [k.Combine(node.op, (at,), (k.Ref(before, lane),))]
    scan = k.BlockScan(
        node.op,
        (k.Ref(before, ZERO),),
        (k.Ref(total, ZERO),),
        (k.Ref(carry.buffer, carry.index - lane),),
        axis,
        ctx.workspace([out.dtype], (axis,), width, scans=True),
        width,
    )
    body: list[k.Stmt] = [
        k.Init(node.op, (k.Ref(total, ZERO),), width),
        *_over(item, _over(side, run)),
        scan,
        *_over(item, _over(side, add)),
    ]
    for column in reversed(columns):
        body = body if column is side else _over(column, body)
    return Item(loops[: shape.meeting], guarded(ctx.block_guards(node), body), (), (out,), order)


def _own(name: str, loop: Loop) -> Loop:
    """A loop like another, with a variable of its own."""
    return Loop(loop.extent, loop.parallel, 1, symbol(name, lo=0, hi=loop.extent - 1))


def _over(loop: Loop | None, body: list[k.Stmt]) -> list[k.Stmt]:
    """`body` in the loop; as it is if there is none."""
    if loop is None:
        return body
    assert isinstance(loop.index, Symbol)
    return [k.For(loop.index, loop.extent, tuple(body), unroll=True)]
