"""Lowers copies of vectors and bulk copies."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from fusewright.analyze.stepped_runs import picked_run
from fusewright.analyze.vectorize import is_shifted, is_shifted_run
from fusewright.core.enums import CacheOp, MemoryType, ParallelType
from fusewright.core.errors import ScheduleError
from fusewright.core.hardware import MAX_VECTOR_BYTES
from fusewright.ir.node import Indexed, Node, Stored
from fusewright.ir.value import TensorView
from fusewright.kernel import ir as k
from fusewright.lower.context import Context
from fusewright.lower.guards import guarded, lanes_of, necessary
from fusewright.lower.indexing import NodeIndices
from fusewright.lower.loops import Item, Loop, cluster_size
from fusewright.lower.node_work import (
    Work,
    assignment,
    cache_hint,
    first_lane,
    index_values,
    item_of,
    moves,
    padded,
    placed,
    values_of_lanes,
    work_of,
)
from fusewright.lower.partial_vectors import (
    Move,
    Scattered,
    edged_load,
    edged_store,
    own_loops,
    unaligned_load,
)
from fusewright.lower.picked_vectors import picked_items
from fusewright.lower.rings import elements_of_unit, run_length, whole_units
from fusewright.lower.straight_runs import straightened
from fusewright.sym import TRUE, Expr, Symbol, as_int, const, divides, land, lt, substitute, symbol


def is_vector_access(node: Node) -> bool:
    """Whether `node` moves vectors between memories: a copy whose innermost loop is vectorized."""
    kind = node.traits
    if not (kind.move or kind.indexed or kind.placed) or node.tensor_inputs[0].is_cpu:
        return False
    out = node.output
    if not out.loop or out.loop[-1].parallel is not ParallelType.vectorize:
        return False
    return out.memory is not MemoryType.local or node.tensor_inputs[0].memory is not MemoryType.local


def refuse_shifted(node: Node) -> None:
    """Raises ScheduleError for vectors that may be partial if an index determines where they are stored."""
    if is_shifted(node.output):
        raise ScheduleError(
            f"{node.output.name} is stored by index, in vectors that may not be whole",
            hint="leave the axis that shifted_split made serial",
        )


def vector_items(ctx: Context, node: Node, order: int, loops: tuple[Loop, ...], cache: CacheOp) -> list[Item]:
    """The items of a copy of vectors: one, or several for vectors that may be partial or unaligned."""
    out = node.output
    width = _vector_width(out, loops)
    run = picked_run(node, width)
    if run is not None:
        return picked_items(ctx, node, order, loops, run, cache)
    if not out.unaligned and not is_shifted(out):
        return [vector_copy(ctx, node, order, loops, cache)]
    lane = symbol("lane", lo=0, hi=width - 1)
    indices = ctx.indices(node, (*loops[:-1], Loop(loops[-1].extent, ParallelType.vectorize, 1, lane)))
    dst, src = ctx.result(out, indices), ctx.operand(node, 0, indices)
    assert isinstance(src, k.Ref)
    own, nonempty = ctx.thread_guards(node, indices), ctx.nonempty_guards(node)
    work = Work(tuple(ctx.block_guards(node)), land(*necessary([*own, *nonempty])), None, bool(nonempty))
    exists = work.pred
    named: list[k.Stmt] = []
    if isinstance(node, Indexed):
        named = index_values(ctx, node, node.map.expressions, indices, exists, lane)
        work = padded(ctx, node, indices, work)
    first_dst, first_src = first_lane(dst, lane), first_lane(src, lane)
    straight = None
    if out.unaligned and (first_src is None or lanes_of(work.pred, lane, width) is None):
        straight = straightened([src.index, work.pred], lane, width)
        first_src = first_lane(k.Ref(src.buffer, straight.expressions[0]), lane)
    if first_dst is None or first_src is None or src.buffer.dtype is not dst.buffer.dtype:
        own_names, src, work = _of_lanes(ctx, node, indices, exists, work, src, lane)
        body = assignment(ctx, work, dst, src, src.buffer.dtype, cache)
        if dst.buffer.space is not k.Space.LOCAL:
            body = guarded([work.pred], assignment(ctx, replace(work, pred=TRUE), dst, src, src.buffer.dtype))
        each = k.For(lane, const(width), (*own_names, *body), unroll=True)
        return [item_of(ctx, node, order, loops[:-1], work.statements([*named, each]))]
    move = Move(first_dst, first_src, work.pred, work.fill, work.fill_is_value, width, lane, cache)
    if straight is not None:
        own_names, own_src, own_work = _of_lanes(ctx, node, indices, exists, work, src, lane)
        scattered = Scattered(own_src, own_work.pred, own_names)
        move = replace(move, pred=straight.expressions[1], whole=straight.whole, scattered=scattered)
    if not out.unaligned:
        _check_aligned(node, width, first_dst, first_src)
    if dst.buffer.space is not k.Space.LOCAL:
        return [item_of(ctx, node, order, loops[:-1], work.statements(edged_store(move, out)))]
    phases = unaligned_load(ctx, move, out) if out.unaligned else edged_load(move, out)
    if named:  # all phases need the names, so they are one body
        phases = [[*named, *itertools.chain(*phases)]]
    items: list[Item] = []
    for number, body in enumerate(filter(None, phases)):
        around = own_loops(loops[:-1], out.inline_at) if number else loops[:-1]
        items.append(item_of(ctx, node, order + number, around, work.statements(body)))
    return items


def _of_lanes(
    ctx: Context, node: Node, indices: NodeIndices, exists: Expr, work: Work, src: k.Ref, lane: Symbol
) -> tuple[tuple[k.Stmt, ...], k.Ref, Work]:
    """The source and the work of each lane, with the lane's own index values if lanes have different values.

    They do if a vector crosses the end of a row: it also reads by the next row's index.

    Args:
        exists: the condition that the lane has an element; `work.pred` also has the condition of the index.

    Returns:
        The statements that name the lane's index values, the source, and the work.
    """
    if not isinstance(node, Indexed):
        return (), src, work
    named, names = values_of_lanes(ctx, node, indices, exists, lane)
    if not names:
        return (), src, work
    own = k.Ref(src.buffer, substitute(src.index, names))
    return named, own, replace(work, pred=substitute(work.pred, names))


def _check_aligned(node: Node, width: int, dst: k.Ref, src: k.Ref) -> None:
    """Raises ScheduleError unless the vectors of both sides are at multiples of their width."""
    for ref, tensor in ((dst, node.output), (src, node.tensor_inputs[0])):
        if tensor.memory is not MemoryType.local and not divides(width, ref.index):
            raise ScheduleError(
                f"{node.output.name} is vectorized by {width}, but its offset in {tensor.name} "
                "is not a multiple of that",
                given=str(ref.index),
                hint="allow_unaligned lets the vectors of a load start at any element",
            )


def _vector_width(out: TensorView, loops: Sequence[Loop]) -> int:
    """The number of elements of a vector.

    Raises:
        ScheduleError: one access cannot move so many.
    """
    width = as_int(loops[-1].extent)
    assert width is not None
    if width * out.dtype.size > MAX_VECTOR_BYTES:
        raise ScheduleError(
            f"{out.name} is vectorized by {width}, more than one access of a thread can move",
            expected=f"at most {MAX_VECTOR_BYTES // out.dtype.size} elements of {out.dtype}",
            given=width,
        )
    return width


def vector_copy(ctx: Context, node: Node, order: int, loops: tuple[Loop, ...], cache: CacheOp) -> Item:
    out, source = node.output, node.tensor_inputs[0]
    width = _vector_width(out, loops)
    lane = symbol("lane", lo=0, hi=width - 1)
    vector = Loop(loops[-1].extent, ParallelType.vectorize, 1, lane)
    indices = ctx.indices(node, (*loops[:-1], vector))
    dst, src = ctx.result(out, indices), ctx.operand(node, 0, indices)
    assert isinstance(src, k.Ref)
    work = work_of(ctx, node, indices, lane)
    first_dst, first_src = first_lane(dst, lane), first_lane(src, lane)
    if first_dst is None or (first_src is None and lane in src.index.free_symbols):
        bad = out if first_dst is None else source
        raise ScheduleError(
            f"{out.name} is vectorized by {width}, but its elements are not contiguous in {bad.name}: "
            f"{(dst if first_dst is None else src).index}",
            hint="vectorize the innermost contiguous axis",
        )
    named: list[k.Stmt] = []
    if isinstance(node, Indexed):
        # All lanes have the same index value, so it is read for the first lane.
        named = index_values(ctx, node, node.map.expressions, indices, work.pred, lane)
        work = padded(ctx, node, indices, work, lane)
    elif isinstance(node, Stored):
        work = placed(node, indices, work, lane)
    # Elements are copied one by one if they change type, or if one element is copied to all lanes.
    statements: list[k.Stmt] = [
        k.For(lane, vector.extent, tuple(assignment(ctx, work, dst, src, source.dtype, cache)), unroll=True)
    ]
    if first_src is None:
        if out.memory is not MemoryType.local:
            raise ScheduleError(f"{out.name} is vectorized, but {source.name} has one element for all lanes")
    else:
        _check_aligned(node, width, first_dst, first_src)
        if src.buffer.dtype is dst.buffer.dtype:
            statements = moves(ctx, node, indices, work, first_dst, first_src, width, cache, lane)
    return item_of(ctx, node, order, loops[:-1], work.statements([*named, *statements]))


def bulk_copy(ctx: Context, node: Node, order: int, loops: tuple[Loop, ...]) -> Item:
    """The copy of the run along the innermost axis into the stage that the loops around it count."""
    out, source = node.output, node.tensor_inputs[0]
    lane = symbol("lane", lo=0, hi=loops[-1].extent - 1)
    run = Loop(loops[-1].extent, ParallelType.tma, 1, lane)
    indices = ctx.indices(node, (*loops[:-1], run))
    dst, src = ctx.result(out, indices), ctx.operand(node, 0, indices)
    assert isinstance(src, k.Ref)
    if src.buffer.space is not k.Space.GLOBAL:
        raise ScheduleError(
            f"{out.name} is copied in bulk from {source.name}, which is no longer in global memory",
            expected="an input",
            given=str(source),
            hint=f"cache what reads {out.name}: cache_after({out.name})",
        )
    # A run ends where the dimension that it was split from ends.
    ends = (lt(indices.of(axis), ctx.domains.extent(out, axis)) for axis in out.maybe_root)
    count = run_length(run, lane, necessary(end for end in ends if lane in end.free_symbols))
    own = (guard for guard in ctx.element_guards(node, indices) if lane not in guard.free_symbols)
    shifted = is_shifted_run(out)
    # All blocks of a cluster, and all rows that start anywhere, have the same number of stages. Their last
    # stage may be empty.
    beyond = [lt(0, count)] if shifted or cluster_size(ctx.dims) > 1 else []
    pred = land(*own, *ctx.nonempty_guards(node), *beyond)
    unit = elements_of_unit(out)
    first_dst, first_src = first_lane(dst, lane), first_lane(src, lane)
    if shifted and first_src is not None:
        count = whole_units(count, unit, first_src)
    for first, tensor in ((first_dst, out), (first_src, source)):
        if first is None:
            problem = "its elements are not contiguous"
        elif (
            lane in count.free_symbols
            or not divides(unit, first.index)
            or not (shifted or divides(unit, count))
        ):
            problem = f"element {first.index}, {count} of them"
        else:
            continue
        raise ScheduleError(
            f"{out.name} is copied in bulk, but not so in {tensor.name}: {problem}",
            expected=f"contiguous runs that start, and end, at multiples of {unit} elements",
            hint="merge what is contiguous in memory into the innermost axis, or assume_multiple",
        )
    assert first_dst is not None and first_src is not None
    stages = ctx.buffers.stages[out]
    assert stages.filled is not None
    full = k.Ref(stages.full, stages.slot(stages.filled))
    copy = k.BulkCopy(first_dst, first_src, count, full, pred, cache_hint(node))
    return item_of(ctx, node, order, loops[:-1], guarded(ctx.block_guards(node), [copy]))
