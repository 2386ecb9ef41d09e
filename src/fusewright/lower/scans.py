"""Lowers scans: a carry that runs along the scanned loops, and steps within a thread, a block and the grid.

    carry = identity                        carry = identity
    for j: carry = combine(carry, x[j])     for each step along the row:
           y[j] = carry                       y[i] = x[i], or the identity beyond the row's end
                                              y[i] = combine(y[i], y[i - 1])      for each i of a thread
                                              before, carry = block scan of y[last], onto carry
                                              y[i] = combine(y[i], before)

On the left each thread scans by itself. On the right the threads along one axis of the block scan together.
If blocks scan together as well, the carry on the right covers the elements that a block scans between two
exchanges with other blocks:

    of_all = identity
    for each step that blocks take together:
           carry = identity, and the above, for all elements of the block
           before, of_all = scan of the blocks' carries, onto of_all
           y[i] = combine(y[i], before)            for each i of a thread
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusewright.analyze.scan_axes import nesting_order, scanned_positions, unrolled_steps
from fusewright.core.enums import MemoryType, ParallelType
from fusewright.core.errors import ScheduleError
from fusewright.ir.node import Scan
from fusewright.ir.value import TensorView
from fusewright.kernel import ir as k
from fusewright.kernel.exchange import TURNS_OF_SCAN
from fusewright.lower.context import Context
from fusewright.lower.guards import guarded
from fusewright.lower.loops import Item, Loop, cluster_size
from fusewright.lower.node_work import item_of
from fusewright.sym import ONE, ZERO, Expr, Symbol, as_int, land, product, symbol


def scan_items(ctx: Context, node: Scan, order: int) -> list[Item]:
    """An item that sets the carry, and the items that scan.

    Raises:
        ScheduleError: the loops do not go through the scanned dimension in order, or axes of threads and
            blocks cannot scan together.
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
    fill, collective = _fill_item(ctx, shape, order + 2), _collective_item(ctx, shape, shape.axis, order + 3)
    if shape.blocks is None:
        return [start, fill, collective]
    meet = _grid_item(ctx, shape, shape.axis, shape.blocks, order + 4)
    return [start, _begin_item(shape, order + 1), fill, collective, meet]


@dataclass(frozen=True)
class _Carry:
    """The carries along the scanned loops.

    Attributes:
        loops: the loops of the scan.
        first: the position of the first loop that the carries run along.
        beside: the positions of loops inside the first one that are not scanned. There is a carry for each of
            their points.
        buffer: the buffer that holds the carries.
    """

    loops: tuple[Loop, ...]
    first: int
    beside: tuple[int, ...]
    buffer: k.Buffer

    def at(self, places: Sequence[Expr]) -> k.Ref:
        """The carry for these positions in the loops `beside`."""
        index: Expr = ZERO
        for position, place in zip(self.beside, places):
            index = index * self.loops[position].extent + place
        return k.Ref(self.buffer, index)

    def here(self) -> k.Ref:
        return self.at([self.loops[position].index for position in self.beside])


@dataclass(frozen=True)
class _Blocks:
    """How blocks scan together.

    Attributes:
        axis: the grid axis along which they scan.
        position: the position of the loop along this axis. The loops inside it are a block's part between two
            exchanges.
        carry: the carry along the loops around it.
    """

    axis: ParallelType
    position: int
    carry: _Carry


@dataclass(frozen=True)
class _Shape:
    """How the loops of a scan divide the work.

    Attributes:
        axis: the axis of the threads that scan together; None if each thread scans by itself.
        blocks: how blocks scan together; None if they do not.
        meeting: the number of loops around the step in which threads exchange results.
        steps: the position of a loop inside these over steps that are exchanged together; None if there is
            none.
        item: the position of the innermost loop over the elements of a thread; None if there is none.
        carry: the carry within a block.
    """

    node: Scan
    loops: tuple[Loop, ...]
    axis: ParallelType | None
    blocks: _Blocks | None
    meeting: int
    steps: int | None
    item: int | None
    carry: _Carry


def _shape(ctx: Context, node: Scan) -> _Shape:
    out, loops = node.output, ctx.loops.of(node)
    scanned = [i for i in scanned_positions(node) if as_int(loops[i].extent) != 1]
    _check_order(ctx, node, scanned)
    across = [i for i in scanned if loops[i].parallel.is_block]
    grid = [i for i in scanned if loops[i].parallel.is_grid]
    _check_axes(out, loops, across, grid, cluster_size(ctx.dims))
    within = [i for i in scanned if across and i > across[0]]
    if len(within) > 1:
        raise ScheduleError(
            f"each thread of the scan {out.name} goes through its elements in {len(within)} loops",
            expected="one loop",
            given=str(out),
            hint="split the elements of a thread off in one step, inside the axis of threads",
        )
    # Threads meet once for all loops inside the axis of threads, unless one of these is over steps.
    inside = [i for i in scanned_positions(node) if across and i > across[0]]
    steps = unrolled_steps(node)
    meeting = next(iter(inside), len(loops)) if steps is None else steps
    blocks = None
    if grid:
        outer = _carry(ctx, node, loops, scanned, 0, grid[0], "of_all")
        blocks = _Blocks(loops[grid[0]].parallel, grid[0], outer)
    carry = _carry(ctx, node, loops, scanned, grid[0] + 1 if grid else 0, meeting, "carry")
    axis = loops[across[0]].parallel if across else None
    return _Shape(node, loops, axis, blocks, meeting, steps, next(iter(within), None), carry)


def _check_axes(
    out: TensorView, loops: Sequence[Loop], across: Sequence[int], grid: Sequence[int], clusters: int
) -> None:
    """Raises ScheduleError if these axes of threads and blocks cannot scan together.

    Args:
        across, grid: the positions of scanned loops along threads and along blocks.
        clusters: the number of blocks of a cluster.
    """
    if len(across) > 1 or len(grid) > 1 or (grid and (not across or across[0] < grid[0])):
        raise ScheduleError(
            f"the scan {out.name} is spread over "
            f"{', '.join(loops[i].parallel.ir_name for i in sorted((*across, *grid)))}",
            expected="one axis of the threads of a block, or one of blocks around it",
            given=str(out),
            hint="leave the other axes along the scanned dimension serial",
        )
    if any(loops[i].parallel is ParallelType.cluster_x for i in grid):
        raise ScheduleError(
            f"the scan {out.name} is spread over the blocks of a cluster",
            expected="an axis of the grid",
            given=str(out),
        )
    if grid and clusters > 1:
        raise ScheduleError(
            f"the scan {out.name} is spread over the grid in a kernel whose blocks are clusters",
            expected="a scan within blocks, or no clusters",
            given=str(out),
        )


def _carry(
    ctx: Context, node: Scan, loops: tuple[Loop, ...], scanned: Sequence[int], begin: int, end: int, name: str
) -> _Carry:
    """The carry along the scanned loops from position `begin` up to `end`."""
    out = node.output
    first = next((i for i in scanned if begin <= i < end and loops[i].is_real), end)
    beside = [i for i, loop in enumerate(loops) if i >= first and i not in scanned and loop.is_real]
    size = product(loops[i].extent for i in beside)
    if as_int(size) is None:
        raise ScheduleError(
            f"the scan {out.name} has {size} carries in the registers of each thread",
            expected="loops of constant extent inside those along the scanned dimension",
            given=str(out),
            hint="reorder the scanned axes inward",
        )
    buffer = ctx.register(f"{out.name}_{name}", out.dtype, as_int(size) or 1)
    return _Carry(loops, first, tuple(beside), buffer)


def _check_order(ctx: Context, node: Scan, scanned: Sequence[int]) -> None:
    """Raises ScheduleError unless the loops go through the scanned dimension in order."""
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


def _start_item(ctx: Context, shape: _Shape, order: int) -> Item:
    """Sets the carries before the first loop that they run along."""
    carry = shape.carry if shape.blocks is None else shape.blocks.carry
    node, dst = shape.node, carry.here()
    body: list[k.Stmt] = [k.Init(node.op, (dst,))]
    if len(node.inputs) > 1:
        body = [k.Copy(dst, ctx.scalar(node.inputs[1]))]
    return Item(_around(carry), body, (), (node.output,), order)


def _begin_item(shape: _Shape, order: int) -> Item:
    """Sets the carries within a block, which start again after each exchange with other blocks."""
    body = [k.Init(shape.node.op, (shape.carry.here(),))]
    return Item(_around(shape.carry), body, (), (shape.node.output,), order)


def _around(carry: _Carry) -> tuple[Loop, ...]:
    """The loops in which carries are set: the loops around the first one, and the loops `beside`."""
    inside = (carry.loops[i] for i in carry.beside)
    own = (Loop(loop.extent, loop.parallel, loop.padded, loop.index, unroll=True) for loop in inside)
    return (*carry.loops[: carry.first], *own)


def _serial_item(ctx: Context, shape: _Shape, order: int) -> Item:
    node = shape.node
    indices = ctx.indices(node)
    carry, dst = shape.carry.here(), ctx.result(node.output, indices)
    pred = land(*ctx.thread_guards(node, indices), *ctx.nonempty_guards(node))
    step = k.Combine(node.op, (carry,), (ctx.operand(node, 0, indices),), pred=pred)
    body = guarded(ctx.block_guards(node), [step, k.Copy(dst, carry)])
    return item_of(ctx, node, order, shape.loops, body)


def _fill_item(ctx: Context, shape: _Shape, order: int) -> Item:
    """Copies a thread's elements to the result's registers, with the identity beyond the end of a row."""
    node = shape.node
    indices = ctx.indices(node)
    dst = ctx.result(node.output, indices)
    pred = land(*ctx.thread_guards(node, indices), *ctx.nonempty_guards(node))
    dtype = node.output.dtype
    [identity] = node.op.identity(dtype)
    fill = None if pred is k.TRUE else k.Imm(identity, dtype)
    load = k.Copy(dst, ctx.operand(node, 0, indices), pred=pred, fill=fill, fill_is_value=fill is not None)
    body = guarded(ctx.block_guards(node), [load])
    return item_of(ctx, node, order, shape.loops, body)


def _collective_item(ctx: Context, shape: _Shape, axis: ParallelType, order: int) -> Item:
    """Scans a thread's elements, then across threads, then combines each element with the total before it."""
    node, out = shape.node, shape.node.output
    if shape.steps is not None:
        body = _side_by_side(ctx, shape, axis, shape.steps)
        return Item(shape.loops[: shape.meeting], guarded(ctx.block_guards(node), body), (), (out,), order)
    own = _OwnLoops.inside(shape, shape.carry, shape.meeting, [shape.item])
    at = ctx.result(out, ctx.indices(node, own.table))
    carry, side = shape.carry.at([own.table[i].index for i in shape.carry.beside]), own.side
    total, before = (ctx.register(f"{out.name}_{name}", out.dtype, own.width) for name in ("total", "before"))
    lane = ZERO if side is None else side.index
    run: list[k.Stmt] = [k.Combine(node.op, (k.Ref(total, lane),), (at,)), k.Copy(at, k.Ref(total, lane))]
    add: list[k.Stmt] = [k.Combine(node.op, (at,), (k.Ref(before, lane),))]
    carried = k.Ref(carry.buffer, carry.index - lane)
    body = [
        k.Init(node.op, (k.Ref(total, ZERO),), own.width),
        *own.over_steps(run),
        _block_scan(ctx, node, before, total, carried, axis, own.width),
        *own.over_steps(add),
    ]
    loops = shape.loops[: shape.meeting]
    return Item(loops, guarded(ctx.block_guards(node), own.over_columns(body)), (), (out,), order)


def _side_by_side(ctx: Context, shape: _Shape, axis: ParallelType, position: int) -> list[k.Stmt]:
    """Scans several steps as `_collective_item` does, with one exchange between threads for all steps.

    The carry is passed from step to step afterwards.
    """
    node, out = shape.node, shape.node.output
    own = _OwnLoops.inside(shape, shape.carry, shape.meeting, [position, shape.item])
    at, carry = ctx.result(out, ctx.indices(node, own.table)), shape.carry.here()
    step = own.steps[0]
    width = as_int(step.extent) or 1
    total, before, found = (
        ctx.register(f"{out.name}_{name}", out.dtype, width) for name in ("total", "before", "found")
    )
    here = {buffer: k.Ref(buffer, step.index) for buffer in (total, before, found)}
    run: list[k.Stmt] = [k.Combine(node.op, (here[total],), (at,)), k.Copy(at, here[total])]
    add: list[k.Stmt] = [k.Combine(node.op, (at,), (here[before],))]
    go_on: list[k.Stmt] = [
        k.Combine(node.op, (here[before],), (carry,)),
        k.Combine(node.op, (carry,), (here[found],)),
        *_over(own.steps[1:], add),
    ]
    return [
        k.Init(node.op, (k.Ref(total, ZERO),), width),
        k.Init(node.op, (k.Ref(found, ZERO),), width),
        *_over(own.steps, run),
        _block_scan(ctx, node, before, total, k.Ref(found, ZERO), axis, width),
        *_over([step], go_on),
    ]


def _block_scan(
    ctx: Context, node: Scan, dst: k.Buffer, src: k.Buffer, carry: k.Ref, axis: ParallelType, width: int
) -> k.BlockScan:
    dtype = node.output.dtype
    work = ctx.workspace([dtype], (axis,), width, scans=True)
    return k.BlockScan(node.op, (k.Ref(dst, ZERO),), (k.Ref(src, ZERO),), (carry,), axis, work, width)


def _grid_item(ctx: Context, shape: _Shape, axis: ParallelType, blocks: _Blocks, order: int) -> Item:
    """Scans the totals of blocks, then combines each element of a thread with the total of earlier blocks."""
    node, out, loops = shape.node, shape.node.output, shape.loops
    if ctx.block_guards(node):
        raise ScheduleError(
            f"the scan {out.name} of several blocks reads what only one block holds",
            hint="all_reduce gives the result of a reduction to all blocks",
        )
    around = blocks.position + 1
    if [i for i in blocks.carry.beside if i >= around] != list(shape.carry.beside):
        raise ScheduleError(
            f"the scan {out.name} of several blocks goes through columns outside of its own loops",
            expected="loops along the scanned dimension in each thread around those of columns",
            given=str(out),
            hint="split the scanned dimension once more, or bind the loops of columns to threads or blocks",
        )
    steps = [i for i in range(around, len(loops)) if loops[i].is_real and i not in blocks.carry.beside]
    own = _OwnLoops.inside(shape, blocks.carry, around, steps)
    at = ctx.result(out, ctx.indices(node, own.table))
    carry, found = (
        each.at([own.table[i].index for i in each.beside]) for each in (blocks.carry, shape.carry)
    )
    before = ctx.register(f"{out.name}_of_blocks", out.dtype, own.width)
    lane = ZERO if own.side is None else own.side.index
    scan = k.GridScan(
        node.op,
        (k.Ref(before, ZERO),),
        (k.Ref(found.buffer, found.index - lane),),
        (k.Ref(carry.buffer, carry.index - lane),),
        blocks.axis,
        axis,
        ctx.workspace([out.dtype], (axis,), 2 * own.width),
        ctx.grid_exchange([out.dtype], (axis,), own.width, TURNS_OF_SCAN),
        own.width,
    )
    add: list[k.Stmt] = [k.Combine(node.op, (at,), (k.Ref(before, lane),))]
    return Item(loops[:around], own.over_columns([scan, *own.over_steps(add)]), (), (out,), order)


@dataclass(frozen=True)
class _OwnLoops:
    """Loops that an item contains, with their own variables.

    Attributes:
        table: the loops of the node, in which these loops replace those of the same axes.
        columns: the loops that are not scanned. One collective scans all columns of the innermost (`side`).
        steps: the loops that are scanned.
    """

    table: tuple[Loop, ...]
    columns: tuple[Loop, ...]
    steps: tuple[Loop, ...]

    @staticmethod
    def inside(shape: _Shape, carry: _Carry, around: int, steps: Sequence[int | None]) -> _OwnLoops:
        """Makes the loops inside the outermost `around` ones: `steps`, and the loops beside the carry."""
        loops = shape.loops
        places = [i for i in carry.beside if i >= around]
        columns = {i: _own(f"column{n}", loops[i]) for n, i in enumerate(places)}
        names = ["item"] if len(steps) == 1 else [f"item{n}" for n in range(len(steps))]
        items = {i: _own(name, loops[i]) for name, i in zip(names, steps) if i is not None}
        own = {**columns, **items}
        table = tuple(own.get(i, loop) for i, loop in enumerate(loops))
        return _OwnLoops(table, tuple(columns.values()), tuple(items.values()))

    @property
    def side(self) -> Loop | None:
        return self.columns[-1] if self.columns else None

    @property
    def width(self) -> int:
        """The number of columns that one collective scans side by side, as they are in the carries."""
        return 1 if self.side is None else as_int(self.side.extent) or 1

    def over_steps(self, body: list[k.Stmt]) -> list[k.Stmt]:
        return _over((*self.steps, *self.columns[-1:]), body)

    def over_columns(self, body: list[k.Stmt]) -> list[k.Stmt]:
        return _over(self.columns[:-1], body)


def _own(name: str, loop: Loop) -> Loop:
    """A copy of a loop with its own variable."""
    return Loop(loop.extent, loop.parallel, 1, symbol(name, lo=0, hi=loop.extent - 1))


def _over(loops: Sequence[Loop], body: list[k.Stmt]) -> list[k.Stmt]:
    """`body` in these loops, outermost first."""
    for loop in reversed(loops):
        assert isinstance(loop.index, Symbol)
        body = [k.For(loop.index, loop.extent, tuple(body), unroll=True)]
    return body
