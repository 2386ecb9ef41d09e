"""The rules that lower nodes to statements: one for each node class, registered in RULES."""

from __future__ import annotations

from collections.abc import Callable

from fusewright.core.dtype import DataType
from fusewright.core.enums import CacheOp, ParallelType
from fusewright.ir.node import (
    FEW_REDUCED,
    Choose,
    Copy,
    Full,
    Indexed,
    Iota,
    Node,
    Piece,
    Pointwise,
    Random,
    Reduction,
    Scan,
    Stored,
    Update,
)
from fusewright.ir.value import TensorView
from fusewright.ir.view import Broadcast, Expand, Permute, Relabel, Squeeze
from fusewright.kernel import ir as k
from fusewright.kernel.operands import operand_dtype
from fusewright.lower.context import Context
from fusewright.lower.loops import Item, Loop
from fusewright.lower.node_work import (
    Work,
    assignment,
    cache_hint,
    first_lane,
    in_registers,
    index_values,
    item_of,
    moves,
    padded,
    placed,
    work_of,
)
from fusewright.lower.reductions import reduction_items
from fusewright.lower.scans import scan_items
from fusewright.lower.vector_copies import (
    bulk_copy,
    is_vector_access,
    refuse_shifted,
    vector_copy,
    vector_items,
)
from fusewright.ops.elementwise import ELEMENTWISE
from fusewright.ops.random import BLOCK_BYTES
from fusewright.sym import TRUE, ZERO, Expr, Symbol, as_int, const, divides, land, substitute, symbol

Rule = Callable[[Context, Node, int], list[Item]]


def node_items(ctx: Context, node: Node, order: int) -> list[Item]:
    """The items of `node`. They may have the order numbers `order` to `order + 4`."""
    return RULES[type(node)](ctx, node, order)


def _pointwise(ctx: Context, node: Node, order: int) -> list[Item]:
    assert isinstance(node, Pointwise)
    indices = ctx.indices(node)
    work, dtype = work_of(ctx, node, indices), compute_dtype(node)
    operands = [ctx.operand(node, i, indices) for i in range(len(node.inputs))]
    loads, args = in_registers(ctx, work, operands, node.op, dtype)
    precise = _is_precise(node) and node.op.spelling(dtype).precise is not None
    dst = ctx.result(node.output, indices)
    body = work.statements([*loads, k.Compute(node.op, dst, tuple(args), dtype, precise)])
    return [item_of(ctx, node, order, ctx.loops.of(node), body)]


def _is_precise(node: Pointwise) -> bool:
    """Whether a node is computed once a row, or once a row of a few elements with one number for all.

    For rows of a few elements, the correction of a quotient takes longer than the elements do, unless all
    rows share the reciprocal that it needs.
    H200, areas of 16383x4096 pairs of boxes, each a product of two sides, over others: 147 us corrected.
    """
    divisor = node.inputs[-1]
    is_shared = not isinstance(divisor, TensorView) or all(axis.is_broadcast for axis in divisor.shape)
    return (node.reduced or 0) > (0 if is_shared else FEW_REDUCED)


def compute_dtype(node: Pointwise) -> DataType:
    """The type that a pointwise node computes in."""
    operands = node.tensor_inputs or node.inputs
    return node.op.compute_dtype([v.dtype for v in operands], node.output.dtype)


def _copy(ctx: Context, node: Node, order: int) -> list[Item]:
    """Copies and relabelings: a copy of one element, or of a vector along a vectorized innermost axis."""
    cache, loops = cache_hint(node), ctx.loops.of(node)
    source = node.tensor_inputs[0]
    if node.output.circular is not None:
        return [bulk_copy(ctx, node, order, loops)]
    if is_vector_access(node) and loops[-1].is_real:
        return vector_items(ctx, node, order, loops, cache)
    indices = ctx.indices(node)
    src = ctx.operand(node, 0, indices)
    assert source.dtype is node.output.dtype, f"{node.label} changes the type of {source}"
    dst, work = ctx.result(node.output, indices), work_of(ctx, node, indices)
    if isinstance(node, Copy) and node.held is not None and isinstance(src, k.Ref):
        body = work.statements(moves(ctx, node, indices, work, dst, src, 1, cache))
    else:
        body = work.statements(assignment(ctx, work, dst, src, source.dtype, cache))
    return [item_of(ctx, node, order, loops, body)]


def _indexed(ctx: Context, node: Node, order: int) -> list[Item]:
    """Predicated loads of one element, or of a vector along a vectorized innermost axis."""
    assert isinstance(node, Indexed)
    loops = ctx.loops.of(node)
    if is_vector_access(node) and loops[-1].is_real:
        return vector_items(ctx, node, order, loops, cache_hint(node))
    indices = ctx.indices(node)
    work = work_of(ctx, node, indices)
    named = index_values(ctx, node, node.map.expressions, indices, work.pred)
    src, dst = ctx.operand(node, 0, indices), ctx.result(node.output, indices)
    load = assignment(ctx, padded(ctx, node, indices, work), dst, src, node.output.dtype, cache_hint(node))
    return [item_of(ctx, node, order, loops, work.statements([*named, *load]))]


def _stored(ctx: Context, node: Node, order: int) -> list[Item]:
    """Predicated stores of one element, or of a vector along a vectorized innermost axis."""
    assert isinstance(node, Stored)
    loops = ctx.loops.of(node)
    if is_vector_access(node) and loops[-1].is_real:
        refuse_shifted(node)
        return [vector_copy(ctx, node, order, loops, CacheOp.unspecified)]
    indices = ctx.indices(node)
    work = placed(node, indices, work_of(ctx, node, indices))
    dst, src = ctx.result(node.output, indices), ctx.operand(node, 0, indices)
    body = work.statements(assignment(ctx, work, dst, src, node.output.dtype))
    return [item_of(ctx, node, order, loops, body)]


def _update(ctx: Context, node: Node, order: int) -> list[Item]:
    """Stores or atomic operations, of one element or a vector, where other threads may store, too."""
    assert isinstance(node, Update)
    loops, width = ctx.loops.of(node), 1
    if is_vector_access(node) and loops[-1].is_real:
        refuse_shifted(node)
        loops, width = loops[:-1], as_int(loops[-1].extent) or 1
    lane = symbol("lane", lo=0, hi=width - 1) if width > 1 else None
    vector = () if lane is None else (Loop(const(width), ParallelType.vectorize, 1, lane),)
    indices = ctx.indices(node, (*loops, *vector))
    own = work_of(ctx, node, indices, lane)
    named = index_values(ctx, node, node.map.expressions, indices, own.pred, lane)
    pred = indices.expression(node.map.pred)
    dst, src = ctx.result(node.output, indices), ctx.operand(node, 0, indices)
    staged: list[k.Stmt] = []
    if lane is not None:
        pred = substitute(pred, {lane: 0})
        first = first_lane(dst, lane)
        assert first is not None and divides(width, first.index), f"{node.output} is vectorized along no run"
        dst = first
    if width > 1 or _needs_register(src, dst):
        src, staged = _in_run(ctx, own, src, dst, width, lane)
    scatter = k.Scatter(dst, src, node.op, width, land(own.pred, pred))
    return [item_of(ctx, node, order, loops, own.statements([*staged, *named, scatter]))]


def _needs_register(src: k.Operand, dst: k.Ref) -> bool:
    """Whether an operand is in memory or does not have the type of `dst`."""
    if not isinstance(src, k.Ref):
        return k.operand_dtype(src) is not dst.buffer.dtype
    return src.buffer.space is not k.Space.LOCAL or src.buffer.dtype is not dst.buffer.dtype


def _in_run(
    ctx: Context, work: Work, src: k.Operand, dst: k.Ref, width: int, lane: Symbol | None
) -> tuple[k.Operand, list[k.Stmt]]:
    """Puts the elements of all lanes side by side in registers of the type of `dst`.

    Returns:
        The first of the registers, and the statements that set them.
    """
    first = first_lane(src, lane) if lane is not None and isinstance(src, k.Ref) else None
    if first is not None and not _needs_register(first, dst):
        return first, []
    register = ctx.numbered_register(f"{dst.buffer.name}_", dst.buffer.dtype, width)
    at = k.Ref(register, ZERO if lane is None else lane)
    body = assignment(ctx, work, at, src, k.operand_dtype(src))
    if lane is not None:
        body = [k.For(lane, const(width), tuple(body), unroll=True)]
    return k.Ref(register, ZERO), body


def _choose(ctx: Context, node: Node, order: int) -> list[Item]:
    assert isinstance(node, Choose)
    indices = ctx.indices(node)
    dst, pred = ctx.result(node.output, indices), indices.expression(node.pred)
    dtype = node.output.dtype.compute
    work, where = work_of(ctx, node, indices), ELEMENTWISE["where"]
    operands = [ctx.operand(node, i, indices) for i in range(2)]
    loads, (first, second) = in_registers(ctx, work, operands, where, dtype)
    choice: k.Stmt
    if all(k.operand_dtype(each) is dst.buffer.dtype for each in (first, second)) and _can_fill(second):
        # A copy with a fill chooses without a conversion.
        choice = k.Copy(dst, first, pred=pred, fill=second, fill_is_value=True)
        choice = choice if pred is not TRUE else k.Copy(dst, first)
    else:
        choice = k.Compute(where, dst, (k.IndexValue(pred, DataType.Bool), first, second), dtype)
    body = [*index_values(ctx, node, (node.pred,), indices, work.pred), *loads, choice]
    return [item_of(ctx, node, order, ctx.loops.of(node), work.statements(body))]


def _can_fill(operand: k.Operand) -> bool:
    """Whether the operand can be the fill of a copy."""
    return not isinstance(operand, k.Ref) or operand.buffer.space is k.Space.LOCAL


def _full(ctx: Context, node: Node, order: int) -> list[Item]:
    indices = ctx.indices(node)
    fill, dst = ctx.scalar(node.inputs[0]), ctx.result(node.output, indices)
    work = work_of(ctx, node, indices)
    body = work.statements(assignment(ctx, work, dst, fill, node.inputs[0].dtype))
    return [item_of(ctx, node, order, ctx.loops.of(node), body)]


def _iota(ctx: Context, node: Node, order: int) -> list[Item]:
    indices = ctx.indices(node)
    out = node.output
    dst = ctx.result(out, indices)
    dtype = out.dtype.compute
    along = next((a for a in out.maybe_root if not a.is_broadcast), None)  # None if it has one element
    position = k.IndexValue(ZERO if along is None else indices.of(along), dtype)
    start, step = ctx.scalar(node.inputs[0]), ctx.scalar(node.inputs[1])
    value: k.Operand = position
    statements: list[k.Stmt] = []
    for name, operand, neutral in (("mul", step, 1), ("add", start, 0)):
        if not _is_number(operand, neutral):
            to = dst if name == "add" else k.Ref(ctx.numbered_register(f"{out.name}_{name}", dtype), ZERO)
            statements.append(k.Compute(ELEMENTWISE[name], to, (value, operand), dtype))
            value = to
    if value is not dst:
        cast = ELEMENTWISE["cast"]
        has_type = operand_dtype(value) is out.dtype
        statements.append(k.Copy(dst, value) if has_type else k.Compute(cast, dst, (value,), dtype))
    body = work_of(ctx, node, indices).statements(statements)
    return [item_of(ctx, node, order, ctx.loops.of(node), body)]


def _is_number(operand: k.Operand, value: int) -> bool:
    return isinstance(operand, k.Imm) and operand.value == value


def _random(ctx: Context, node: Node, order: int) -> list[Item]:
    """Random numbers. Elements that use one block of the generator may share its computation.

    Each has the number of the block and its place in the block as operands.
    """
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
    body = work_of(ctx, node, indices).statements([statement])
    return [item_of(ctx, node, order, ctx.loops.of(node), body)]


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
    Piece: _stored,
    Update: _update,
    Full: _full,
    Iota: _iota,
    Random: _random,
    Reduction: _reduction,
    Scan: _scan,
}
