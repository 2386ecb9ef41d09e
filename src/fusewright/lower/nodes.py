"""How each kind of node becomes statements: one rule a node class, registered in RULES."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from fusewright.core.dtype import DataType
from fusewright.core.enums import CacheOp, MemoryType, ParallelType
from fusewright.core.errors import ScheduleError
from fusewright.core.hardware import MAX_VECTOR_BYTES
from fusewright.ir.index_map import value_extent, value_of
from fusewright.ir.node import (
    Broadcast,
    Choose,
    Copy,
    Expand,
    Full,
    Indexed,
    Iota,
    Node,
    Permute,
    Pointwise,
    Random,
    Reduction,
    Relabel,
    Scan,
    Squeeze,
    Stored,
)
from fusewright.ir.value import TensorView
from fusewright.kernel import ir as k
from fusewright.lower.context import Context
from fusewright.lower.guards import guarded, or_zero, zero
from fusewright.lower.indexing import NodeIndices
from fusewright.lower.loops import Item, Loop
from fusewright.lower.reductions import reduction_items
from fusewright.lower.scans import scan_items
from fusewright.ops.elementwise import CAST, ELEMENTWISE
from fusewright.ops.random import BLOCK_BYTES
from fusewright.sym import TRUE, ZERO, Expr, Symbol, as_int, divides, substitute, symbol

Rule = Callable[[Context, Node, int], list[Item]]


def node_items(ctx: Context, node: Node, order: int) -> list[Item]:
    """The items of `node`; `order` is its place in the program, of which it may use up to 4 numbers."""
    return RULES[type(node)](ctx, node, order)


def _item(ctx: Context, node: Node, order: int, loops: tuple[Loop, ...], body: Sequence[k.Stmt]) -> Item:
    reads = tuple(v for v in node.inputs if isinstance(v, TensorView) and not ctx.fusion.is_input(v))
    writes = tuple(v for v in node.outputs if isinstance(v, TensorView))
    return Item(loops, body, reads, writes, order)


def _reading(
    ctx: Context, node: Node, indices: NodeIndices, dst: k.Ref, body: Sequence[k.Stmt]
) -> list[k.Stmt]:
    """`body`, which sets `dst` from what `node` reads, where there is something to compute and to read."""
    return guarded(ctx.guards(node, indices), or_zero(ctx.nonempty_guards(node), dst, 1, body))


def _pointwise(ctx: Context, node: Node, order: int) -> list[Item]:
    assert isinstance(node, Pointwise)
    indices = ctx.indices(node)
    args = tuple(ctx.operand(node, i, indices) for i in range(len(node.inputs)))
    dtype = compute_dtype(node)
    precise = bool(node.reduced) and node.op.spelling(dtype).precise is not None
    dst = ctx.result(node.output, indices)
    body = _reading(ctx, node, indices, dst, [k.Compute(node.op, dst, args, dtype, precise)])
    return [_item(ctx, node, order, ctx.loops.of(node), body)]


def compute_dtype(node: Pointwise) -> DataType:
    """The type that a pointwise node computes in."""
    operands = node.tensor_inputs or node.inputs
    return node.op.compute_dtype([v.dtype for v in operands], node.output.dtype)


def _copy(ctx: Context, node: Node, order: int) -> list[Item]:
    """Copies and relabelings: one move of an element, or of a vector along a vectorized innermost axis."""
    cache = node.cache if isinstance(node, Copy) else CacheOp.unspecified
    loops = ctx.loops.of(node)
    source = node.tensor_inputs[0]
    if is_vector_access(node) and loops[-1].is_real:
        return [_vector_copy(ctx, node, order, loops, cache)]
    indices = ctx.indices(node)
    src = ctx.operand(node, 0, indices)
    assert source.dtype is node.output.dtype, f"{node.label} changes the type of {source}"
    dst = ctx.result(node.output, indices)
    body = _reading(ctx, node, indices, dst, [_assignment(dst, src, source.dtype, cache)])
    return [_item(ctx, node, order, loops, body)]


def _assignment(
    dst: k.Ref, value: k.Operand, dtype: DataType, cache: CacheOp = CacheOp.unspecified
) -> k.Stmt:
    """Stores a value of `dtype`: a copy where `dst` holds that type, else a cast, which has no cache hint."""
    given = value.buffer.dtype if isinstance(value, k.Ref) else dtype
    if given is dst.buffer.dtype:
        return k.Copy(dst, value, 1, cache)
    return k.Compute(CAST, dst, (value,), given.compute)


def is_vector_access(node: Node) -> bool:
    """Whether `node` moves vectors between memories: a copy whose innermost loop is vectorized."""
    kind = node.traits
    if not (kind.move or kind.indexed or kind.placed) or node.tensor_inputs[0].is_cpu:
        return False
    out = node.output
    if not out.loop or out.loop[-1].parallel is not ParallelType.vectorize:
        return False
    return out.memory is not MemoryType.local or node.tensor_inputs[0].memory is not MemoryType.local


def _vector_copy(ctx: Context, node: Node, order: int, loops: tuple[Loop, ...], cache: CacheOp) -> Item:
    out, source = node.output, node.tensor_inputs[0]
    width = as_int(loops[-1].extent)
    assert width is not None
    if width * out.dtype.size > MAX_VECTOR_BYTES:
        raise ScheduleError(
            f"{out.name} is vectorized by {width}, more than one access of a thread can move",
            expected=f"at most {MAX_VECTOR_BYTES // out.dtype.size} elements of {out.dtype}",
            given=width,
        )
    lane = symbol("lane", lo=0, hi=width - 1)
    vector = Loop(loops[-1].extent, ParallelType.vectorize, 1, lane)
    indices = ctx.indices(node, (*loops[:-1], vector))
    dst, src = ctx.result(out, indices), ctx.operand(node, 0, indices)
    assert isinstance(src, k.Ref)
    guards = [substitute(g, {lane: 0}) for g in ctx.guards(node, indices)]
    first_dst, first_src = _first_lane(dst, lane), _first_lane(src, lane)
    if first_dst is None or (first_src is None and lane in src.index.free_symbols):
        bad = out if first_dst is None else source
        raise ScheduleError(
            f"{out.name} is vectorized by {width}, but its elements are not contiguous in {bad.name}: "
            f"{(dst if first_dst is None else src).index}",
            hint="vectorize the innermost contiguous axis",
        )
    pred: Expr = TRUE
    fill: k.Operand | None = None
    named: list[k.Stmt] = []
    if isinstance(node, Indexed):
        pred, fill = substitute(indices.expression(node.map.pred), {lane: 0}), _fill(ctx, node)
        # An index that is the same for all lanes is read for the first.
        named = _index_values(ctx, node, node.map.expressions, indices, lane)
    elif isinstance(node, Stored):
        pred = substitute(indices.expression(node.map.pred), {lane: 0})
    # One element for all lanes is loaded once and stored to each; elements that change type move one by one.
    each = [_assignment(dst, src, source.dtype, cache)]
    if isinstance(node, Stored):
        each = _predicated_store(dst, src, source.dtype, pred)
    elif pred is not TRUE:
        each = [k.Copy(dst, src, 1, cache, pred, fill, True)]
    statements: list[k.Stmt] = [k.For(lane, vector.extent, tuple(each), unroll=True)]
    if first_src is None:
        if out.memory is not MemoryType.local:
            raise ScheduleError(f"{out.name} is vectorized, but {source.name} has one element for all lanes")
    else:
        for ref, tensor in ((first_dst, out), (first_src, source)):
            if tensor.memory is not MemoryType.local and not divides(width, ref.index):
                raise ScheduleError(
                    f"{out.name} is vectorized by {width}, but its offset in {tensor.name} "
                    "is not a multiple of that",
                    given=str(ref.index),
                )
        if src.buffer.dtype is dst.buffer.dtype:
            statements = [k.Copy(first_dst, first_src, width, cache, pred, fill, fill is not None)]
    statements = [*named, *statements]
    body = guarded(guards, or_zero(ctx.nonempty_guards(node), first_dst, width, statements))
    return _item(ctx, node, order, loops[:-1], body)


def _first_lane(ref: k.Ref, lane: Expr) -> k.Ref | None:
    """The reference of lane 0 if the lanes are contiguous from there, else None."""
    first = substitute(ref.index, {lane: 0})  # type: ignore[dict-item]
    return k.Ref(ref.buffer, first) if first + lane is ref.index else None


def _indexed(ctx: Context, node: Node, order: int) -> list[Item]:
    """A predicated load: of a vector along a vectorized innermost axis, else of an element."""
    assert isinstance(node, Indexed)
    loops = ctx.loops.of(node)
    if is_vector_access(node) and loops[-1].is_real:
        return [_vector_copy(ctx, node, order, loops, CacheOp.unspecified)]
    indices = ctx.indices(node)
    pred, fill = indices.expression(node.map.pred), _fill(ctx, node)
    src, dst = ctx.operand(node, 0, indices), ctx.result(node.output, indices)
    load = k.Copy(dst, src, pred=pred, fill=fill, fill_is_value=fill is not None)
    body = [*_index_values(ctx, node, node.map.expressions, indices), load]
    return [_item(ctx, node, order, loops, _reading(ctx, node, indices, dst, body))]


def _stored(ctx: Context, node: Node, order: int) -> list[Item]:
    """A predicated store: of a vector along a vectorized innermost axis, else of an element."""
    assert isinstance(node, Stored)
    loops = ctx.loops.of(node)
    if is_vector_access(node) and loops[-1].is_real:
        return [_vector_copy(ctx, node, order, loops, CacheOp.unspecified)]
    indices = ctx.indices(node)
    pred = indices.expression(node.map.pred)
    dst, src = ctx.result(node.output, indices), ctx.operand(node, 0, indices)
    body = _predicated_store(dst, src, node.output.dtype, pred)
    return [_item(ctx, node, order, loops, guarded(ctx.guards(node, indices), body))]


def _predicated_store(dst: k.Ref, src: k.Operand, dtype: DataType, pred: Expr) -> list[k.Stmt]:
    store = _assignment(dst, src, dtype)
    return [replace(store, pred=pred)] if isinstance(store, k.Copy) else guarded([pred], [store])


def _fill(ctx: Context, node: Indexed) -> k.Operand | None:
    if node.map.pred is TRUE:
        return None
    fill = ctx.scalar(node.fill) if node.fill is not None else zero(node.output.dtype)
    return k.Imm(fill.value, node.output.dtype) if isinstance(fill, k.Imm) else fill


def _index_values(
    ctx: Context,
    node: Indexed | Choose,
    expressions: Sequence[Expr],
    indices: NodeIndices,
    lane: Symbol | None = None,
) -> list[k.Stmt]:
    """Names the loaded index values that the node's expressions use: those of lane 0 of a vector."""
    first = node.inputs.index(node.index_tensors[0]) if node.index_tensors else 0
    used = {s for e in expressions for s in e.free_symbols if value_of(s) is not None}
    found: list[k.Stmt] = []
    for s in sorted(used, key=lambda s: s.name):
        number = value_of(s)
        assert number is not None
        name, extent = indices.value(number, s), ctx.domains.known(value_extent(s))
        read = ctx.operand(node, first + number, indices)
        if lane is not None and isinstance(read, k.Ref):
            read = k.Ref(read.buffer, substitute(read.index, {lane: 0}))
        found.append(k.LetValue(name, read, extent))
    return found


def _choose(ctx: Context, node: Node, order: int) -> list[Item]:
    assert isinstance(node, Choose)
    indices = ctx.indices(node)
    dst, pred = ctx.result(node.output, indices), indices.expression(node.pred)
    first, second = (ctx.operand(node, i, indices) for i in range(2))
    choice: k.Stmt
    if all(k.operand_dtype(each) is dst.buffer.dtype for each in (first, second)) and _can_fill(second):
        choice = k.Copy(dst, first, pred=pred, fill=second, fill_is_value=True)  # nothing is converted
        choice = choice if pred is not TRUE else k.Copy(dst, first)
    else:
        operands = (k.IndexValue(pred, DataType.Bool), first, second)
        choice = k.Compute(ELEMENTWISE["where"], dst, operands, node.output.dtype.compute)
    body = [*_index_values(ctx, node, (node.pred,), indices), choice]
    return [_item(ctx, node, order, ctx.loops.of(node), _reading(ctx, node, indices, dst, body))]


def _can_fill(operand: k.Operand) -> bool:
    """Whether a copy can take the operand where its source does not count."""
    return not isinstance(operand, k.Ref) or operand.buffer.space is k.Space.LOCAL


def _full(ctx: Context, node: Node, order: int) -> list[Item]:
    indices = ctx.indices(node)
    fill, dst = ctx.scalar(node.inputs[0]), ctx.result(node.output, indices)
    body = guarded(ctx.guards(node, indices), [_assignment(dst, fill, node.inputs[0].dtype)])
    return [_item(ctx, node, order, ctx.loops.of(node), body)]


def _iota(ctx: Context, node: Node, order: int) -> list[Item]:
    indices = ctx.indices(node)
    out = node.output
    dst = ctx.result(out, indices)
    dtype = out.dtype.compute
    along = next((a for a in out.maybe_root if not a.is_broadcast), None)  # None: of one element
    position = k.IndexValue(ZERO if along is None else indices.of(along), dtype)
    start, step = ctx.scalar(node.inputs[0]), ctx.scalar(node.inputs[1])
    statements = [
        k.Compute(ELEMENTWISE["mul"], dst, (position, step), dtype),
        k.Compute(ELEMENTWISE["add"], dst, (dst, start), dtype),
    ]
    body = guarded(ctx.guards(node, indices), statements)
    return [_item(ctx, node, order, ctx.loops.of(node), body)]


def _random(ctx: Context, node: Node, order: int) -> list[Item]:
    """Numbers of one block of the generator are told apart by their place in it, and so can share it."""
    assert isinstance(node, Random)
    indices = ctx.indices(node)
    out = node.output
    number: Expr = ZERO
    for axis in out.maybe_root:
        if not axis.is_broadcast:
            number = number * ctx.domains.known(axis.extent) + indices.of(axis)
    each = BLOCK_BYTES // out.dtype.size
    block, place = (k.IndexValue(e, DataType.Int) for e in (number // each, number % each))
    state = (ctx.scalar(v) for v in node.inputs)
    statement = k.Compute(node.op, ctx.result(out, indices), (block, place, *state), out.dtype)
    body = guarded(ctx.guards(node, indices), [statement])
    return [_item(ctx, node, order, ctx.loops.of(node), body)]


def _reduction(ctx: Context, node: Node, order: int) -> list[Item]:
    assert isinstance(node, Reduction)
    return reduction_items(ctx, node, order)


def _scan(ctx: Context, node: Node, order: int) -> list[Item]:
    assert isinstance(node, Scan)
    return scan_items(ctx, node, order)


RULES: dict[type[Node], Rule] = {
    Pointwise: _pointwise,
    Copy: _copy,
    Broadcast: _copy,
    Squeeze: _copy,
    Permute: _copy,
    Relabel: _copy,
    Expand: _copy,
    Indexed: _indexed,
    Choose: _choose,
    Stored: _stored,
    Full: _full,
    Iota: _iota,
    Random: _random,
    Reduction: _reduction,
    Scan: _scan,
}
