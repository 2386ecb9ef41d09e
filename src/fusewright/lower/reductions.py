"""Lowers reductions: accumulators, their initialisation, and the steps in a thread, a block and the grid."""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.core.enums import MemoryType, ParallelType
from fusewright.core.errors import ScheduleError
from fusewright.core.hardware import MAX_VECTOR_BYTES
from fusewright.ir.node import Reduction
from fusewright.kernel import ir as k
from fusewright.kernel.exchange import TURNS_OF_REDUCTION
from fusewright.lower.context import Context
from fusewright.lower.guards import guarded, lanes_of
from fusewright.lower.indexing import NodeIndices
from fusewright.lower.last_block import Across, reduced_across
from fusewright.lower.loops import Item, Loop, cluster_size
from fusewright.lower.node_work import item_of
from fusewright.sym import Expr, Symbol, as_int, const, land, lnot, substitute, symbol

# The most values that are combined at once: registers hold the elements of one vector side by side.
MAX_RUN = MAX_VECTOR_BYTES
_SIDE_BY_SIDE = (ParallelType.vectorize, ParallelType.unroll)


def reduction_items(ctx: Context, node: Reduction, order: int) -> list[Item]:
    """An item that sets the accumulators to the identity, and one that accumulates.

    Serial axes accumulate within the thread. Axes of threads and blocks are reduced by one collective. All
    threads of the block hold the result; across the grid, all threads of the last block.
    """
    for tensor in node.tensor_outputs:
        if tensor.memory is not MemoryType.local:
            raise ScheduleError(
                f"the reduction {tensor.name} accumulates in {tensor.memory.name} memory",
                hint="cache_before makes it accumulate in registers",
            )
    loops = ctx.loops.of(node)
    across = reduced_across(node, ctx.loops)
    items = [_init_item(ctx, node, loops, order)]
    if any(across):
        items.append(_collective_item(ctx, node, loops, order + 1, across))
    else:
        items.append(_serial_item(ctx, node, loops, order + 1))
    return items


def _reduced(ctx: Context, node: Reduction) -> tuple[Loop, ...]:
    """The loops along which the statements reduce."""
    loops = zip(node.output.loop, ctx.loops.of(node))
    return tuple(loop for axis, loop in loops if axis.is_reduction and loop.is_real)


def _accumulators(ctx: Context, node: Reduction, indices: NodeIndices) -> tuple[k.Ref, ...]:
    return tuple(ctx.result(t, indices) for t in node.tensor_outputs)


def _init_item(ctx: Context, node: Reduction, loops: tuple[Loop, ...], order: int) -> Item:
    """Sets the accumulators before the first loop that reduces."""
    out = node.output
    first = next(
        (i for i, (axis, loop) in enumerate(zip(out.loop, loops)) if axis.is_reduction and loop.is_real),
        len(loops),
    )
    own: list[Loop] = []
    table = {}
    for position, (axis, loop) in enumerate(zip(out.loop, loops)):
        if axis.is_reduction:
            if position < first:
                own.append(loop)
            continue
        table[axis] = loop.index
        inside = position >= first and loop.is_real
        own.append(Loop(loop.extent, loop.parallel, loop.padded, loop.index, unroll=True) if inside else loop)
    indices = NodeIndices(node, table, ctx.domains, skip_reductions=True)
    dst = _accumulators(ctx, node, indices)
    body: list[k.Stmt] = [k.Init(node.op, dst)]
    return Item(tuple(own), body, (), tuple(node.tensor_outputs), order)


def _serial_item(ctx: Context, node: Reduction, loops: tuple[Loop, ...], order: int) -> Item:
    run = _run_item(ctx, node, loops, order)
    if run is not None:
        return run
    indices = ctx.indices(node)
    src = tuple(ctx.operand(node, i, indices) for i in range(len(node.inputs)))
    pred = land(*ctx.thread_guards(node, indices), *ctx.nonempty_guards(node))
    statement = k.Combine(node.op, _accumulators(ctx, node, indices), src, pred=pred)
    body = guarded(ctx.block_guards(node), [statement])
    return item_of(ctx, node, order, loops, body, _reduced(ctx, node))


def _run_item(ctx: Context, node: Reduction, loops: tuple[Loop, ...], order: int) -> Item | None:
    """Combines the values of the innermost loop as one run of registers, if the operation can.

    A partial run at the end of the reduced dimension is combined one by one. None if there is no such run.
    """
    out = node.output
    if not (node.op.combine_run and out.loop and out.loop[-1].is_reduction and len(node.inputs) == 1):
        return None
    source, width = node.tensor_inputs[0], as_int(loops[-1].extent) or 1
    if not loops[-1].is_real or width & (width - 1) or not 1 < width <= MAX_RUN:
        return None
    if source.memory is not MemoryType.local or source.dtype is not out.dtype or _shares_last_loop(node):
        return None
    lane = symbol("lane", lo=0, hi=width - 1)
    indices = _indices_of_lane(ctx, node, loops, lane)
    read = ctx.operand(node, 0, indices)
    guards, dst = land(*ctx.thread_guards(node, indices)), _accumulators(ctx, node, indices)
    lanes = lanes_of(guards, lane, width)
    if lanes is None or any(lane in ref.index.free_symbols for ref in dst):
        return None
    assert isinstance(read, k.Ref)
    gathered: list[k.Stmt] = []
    run = read
    if _is_run((read,), lane):
        if lane in guards.free_symbols:  # a vector at the edge of a row
            return None
    else:
        run = k.Ref(ctx.register(f"{out.name}_run", read.buffer.dtype, width), lane)
        gathered = [k.For(lane, const(width), (k.Copy(run, read),), unroll=True)]
    operand = (_first_of_run(run, lane),)
    combined: list[k.Stmt] = [k.Combine(node.op, dst, operand, width, guards)]
    if lane in guards.free_symbols:
        step = k.Combine(node.op, dst, (read,), pred=guards)
        one_by_one = k.For(lane, const(width), (step,), unroll=True)
        whole = k.Combine(node.op, dst, operand, width)
        combined = [k.If(lanes.all, (whole,)), k.If(lnot(lanes.all), (one_by_one,))]
    body = guarded(ctx.block_guards(node), [*gathered, *combined])
    return item_of(ctx, node, order, loops[:-1], body, _reduced(ctx, node))


def _collective_item(
    ctx: Context, node: Reduction, loops: tuple[Loop, ...], order: int, across: Across
) -> Item:
    out = node.output
    width = 1
    lane = symbol("lane")
    indices = ctx.indices(node)
    if out.loop and out.loop[-1].parallel in _SIDE_BY_SIDE and not out.loop[-1].is_reduction:
        extent = as_int(loops[-1].extent) or 1
        lane = symbol("lane", lo=0, hi=max(extent - 1, 0))
        wide = _indices_of_lane(ctx, node, loops, lane)
        if extent > 1 and _is_run(_accumulators(ctx, node, wide), lane) and not _shares_last_loop(node):
            width, indices, loops = extent, wide, loops[:-1]
    dst = tuple(_first_of_run(ref, lane) for ref in _accumulators(ctx, node, indices))
    guards = [*ctx.thread_guards(node, indices), *ctx.nonempty_guards(node)]
    src = tuple(ctx.operand(node, i, indices) for i in range(len(node.inputs)))
    gathered: list[k.Stmt] = []
    if width > 1 and (any(lane in g.free_symbols for g in guards) or not _is_run(src, lane)):
        src, gathered = _gathered(ctx, node, dst, src, land(*guards), lane, width)
        guards = []
    src = tuple(_first_of_run(s, lane) if isinstance(s, k.Ref) else s for s in src)
    dtypes = [r.buffer.dtype for r in dst]
    pred = land(*guards) if guards else k.TRUE
    threads, cluster, grid = across
    sends_by_warps = bool(cluster) and ctx.reduces_whole_warps(threads)
    work = ctx.workspace(dtypes, threads, width) if threads and not sends_by_warps else ()
    statement: k.Stmt
    if grid:
        _check_grid(ctx, node, loops)
        flag = None if out.everywhere else ctx.last_block.set_by(node).symbol
        turns = TURNS_OF_REDUCTION if out.everywhere else 1
        between = ctx.grid_exchange(dtypes, threads, width, turns)
        statement = k.GridReduce(node.op, dst, src, grid, threads, pred, work, between, flag, width)
    elif cluster:
        exchange = ctx.exchange(dtypes, threads, width)
        statement = k.ClusterReduce(node.op, dst, src, threads, pred, work, exchange, width)
    else:
        statement = k.BlockReduce(node.op, dst, src, threads, pred, work, width)
    # The guards have the same value in all threads of a block, so a collective may be under them.
    body = guarded(ctx.block_guards(node), [*gathered, statement])
    return item_of(ctx, node, order, loops, body, _reduced(ctx, node))


def _indices_of_lane(ctx: Context, node: Reduction, loops: tuple[Loop, ...], lane: Symbol) -> NodeIndices:
    """The indices of `node` with `lane` as the index of its innermost loop."""
    innermost = Loop(loops[-1].extent, node.output.loop[-1].parallel, 1, lane)
    return ctx.indices(node, (*loops[:-1], innermost))


def _shares_last_loop(node: Reduction) -> bool:
    """Whether an operand is computed inside the innermost loop, one element at a time."""
    return any(tensor.inline_at >= len(node.output.loop) for tensor in node.tensor_inputs)


def _is_run(operands: Sequence[k.Operand], lane: Symbol) -> bool:
    """Whether the lanes access adjacent elements of each operand."""
    refs = [operand for operand in operands if isinstance(operand, k.Ref)]
    return all(_first_of_run(ref, lane).index + lane is ref.index for ref in refs)


def _first_of_run(ref: k.Ref, lane: Symbol) -> k.Ref:
    return k.Ref(ref.buffer, substitute(ref.index, {lane: 0}))


def _gathered(
    ctx: Context,
    node: Reduction,
    states: Sequence[k.Ref],
    src: tuple[k.Operand, ...],
    pred: Expr,
    lane: Symbol,
    width: int,
) -> tuple[tuple[k.Operand, ...], list[k.Stmt]]:
    """Puts the states of all lanes side by side in registers, with the identity where `pred` does not hold.

    A collective has one predicate for all lanes and takes a run of registers.

    Returns:
        The registers, and the statements that set them.
    """
    own = tuple(
        k.Ref(ctx.numbered_register(f"{ref.buffer.name}_", ref.buffer.dtype, width), lane) for ref in states
    )
    body = (k.Init(node.op, own), k.Combine(node.op, own, src, pred=pred))
    return own, [k.For(lane, const(width), body, unroll=True)]


def _check_grid(ctx: Context, node: Reduction, loops: tuple[Loop, ...]) -> None:
    """Raises ScheduleError if a reduction across the grid is not possible at this place."""
    out = node.output
    if cluster_size(ctx.dims) > 1:
        raise ScheduleError(
            f"{out.name} is reduced across the grid in a kernel whose blocks are clusters",
            expected="a reduction across clusters alone, or without clusters",
            given=str(out),
        )
    if ctx.block_guards(node):
        raise ScheduleError(
            f"the grid reduction {out.name} reads the result of another, which only one block holds",
            hint="reduce all axes of blocks in one step: rfactor the others",
        )
    if any(loop.is_real for loop in loops) and not out.everywhere:
        raise ScheduleError(
            f"the grid reduction {out.name} stands in a serial loop, "
            "where its iterations would share scratch memory",
            hint="rfactor the serial axes, and unroll those that are not reduced as its innermost axis; "
            "or all_reduce, whose iterations may follow one another",
        )
