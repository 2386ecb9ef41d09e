"""How each kind of node becomes statements: one rule a node class, registered in RULES."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fusewright.analyze.vectorize import is_shifted, is_shifted_run
from fusewright.core.dtype import DataType
from fusewright.core.enums import CacheOp, MemoryType, ParallelType
from fusewright.core.errors import ScheduleError
from fusewright.core.hardware import MAX_VECTOR_BYTES
from fusewright.core.op import ElementwiseOp
from fusewright.ir.index_map import value_extent, value_of
from fusewright.ir.node import (
    Choose,
    Copy,
    Full,
    Indexed,
    Iota,
    Node,
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
from fusewright.kernel.access import is_at_hand
from fusewright.lower.context import Context
from fusewright.lower.guards import guarded, lanes_of, necessary, zero
from fusewright.lower.indexing import NodeIndices
from fusewright.lower.loops import Item, Loop, cluster_size
from fusewright.lower.partial_vectors import Move, edged_load, edged_store, own_loops, unaligned_load
from fusewright.lower.reductions import reduction_items
from fusewright.lower.rings import elements_of_unit, run_length, whole_units
from fusewright.lower.scans import scan_items
from fusewright.lower.straight_runs import straightened
from fusewright.ops.elementwise import CAST, ELEMENTWISE
from fusewright.ops.random import BLOCK_BYTES
from fusewright.sym import TRUE, ZERO, Expr, Symbol, as_int, const, divides, land, le, lt, substitute, symbol

Rule = Callable[[Context, Node, int], list[Item]]


def node_items(ctx: Context, node: Node, order: int) -> list[Item]:
    """The items of `node`; `order` is its place in the program, of which it may use up to 4 numbers."""
    return RULES[type(node)](ctx, node, order)


def _item(ctx: Context, node: Node, order: int, loops: tuple[Loop, ...], body: Sequence[k.Stmt]) -> Item:
    reads = tuple(v for v in node.inputs if isinstance(v, TensorView) and not ctx.fusion.is_input(v))
    writes = tuple(v for v in node.outputs if isinstance(v, TensorView))
    return Item(loops, body, reads, writes, order)


@dataclass(frozen=True)
class _Work:
    """When the statements of a node run.

    Attributes:
        branch: what they all stand under.
        pred: under which they read memory, beyond `branch`.
        fill: what they read elsewhere; None: a zero.
        fill_is_value: whether what stands for elements that do not exist may reach a result. Of a tensor
            that shows no copies of anything a sum of copies is 0 times whatever is read.
    """

    branch: tuple[Expr, ...]
    pred: Expr
    fill: k.Operand | None
    fill_is_value: bool

    def statements(self, body: Sequence[k.Stmt]) -> list[k.Stmt]:
        return guarded(self.branch, body)

    @property
    def is_pad(self) -> bool:
        """Whether there are values of the program where the predicate does not hold."""
        return self.fill is not None

    def load(
        self, dst: k.Ref, src: k.Operand, width: int = 1, cache: CacheOp = CacheOp.unspecified
    ) -> k.Copy:
        """One access, under the predicate."""
        if self.pred is k.TRUE:
            return k.Copy(dst, src, width, cache)
        dtype = dst.buffer.dtype
        fill = self.fill or zero(dtype)
        if isinstance(fill, k.Imm):
            fill = k.Imm(fill.value, dtype)
        return k.Copy(dst, src, width, cache, self.pred, fill, self.fill_is_value)


def _work(ctx: Context, node: Node, indices: NodeIndices, lane: Expr | None = None) -> _Work:
    """Registers are computed by all threads, from fills where there is nothing to load; memory is written
    where there is an element to write. `lane` is 0 in the conditions.
    """
    own, nonempty = ctx.thread_guards(node, indices), ctx.nonempty_guards(node)
    if lane is not None:
        own = [substitute(guard, {lane: 0}) for guard in own]  # type: ignore[dict-item]
    if node.output.memory is MemoryType.local:
        pred = land(*necessary([*own, *nonempty]))
        return _Work(tuple(ctx.block_guards(node)), pred, None, bool(nonempty))
    return _Work((*ctx.block_guards(node), *own), land(*nonempty), None, bool(nonempty))


def _in_registers(
    ctx: Context, work: _Work, operands: Sequence[k.Operand], op: ElementwiseOp, dtype: DataType
) -> tuple[list[k.Stmt], list[k.Operand]]:
    """Statements that bring operands into registers which must not be read, or divide, everywhere."""
    loads: list[k.Stmt] = []
    values: list[k.Operand] = []
    for position, value in enumerate(operands):
        if isinstance(value, k.Ref) and work.pred is not k.TRUE:
            divisor = op.spelling(dtype).divides and position + 1 == len(operands)
            if divisor or not is_at_hand(value):
                name = f"{value.buffer.name}_{len(ctx.registers)}"
                register = k.Ref(ctx.register(name, value.buffer.dtype, 1), ZERO)
                away = replace(work, fill=k.Imm(1, value.buffer.dtype)) if divisor else work
                loads.append(away.load(register, value))
                value = register
        values.append(value)
    return loads, values


def _pointwise(ctx: Context, node: Node, order: int) -> list[Item]:
    assert isinstance(node, Pointwise)
    indices = ctx.indices(node)
    work, dtype = _work(ctx, node, indices), compute_dtype(node)
    operands = [ctx.operand(node, i, indices) for i in range(len(node.inputs))]
    loads, args = _in_registers(ctx, work, operands, node.op, dtype)
    precise = bool(node.reduced) and node.op.spelling(dtype).precise is not None
    dst = ctx.result(node.output, indices)
    body = work.statements([*loads, k.Compute(node.op, dst, tuple(args), dtype, precise)])
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
    if node.output.circular is not None:
        return [_bulk_copy(ctx, node, order, loops)]
    if is_vector_access(node) and loops[-1].is_real:
        return _vector_items(ctx, node, order, loops, cache)
    indices = ctx.indices(node)
    src = ctx.operand(node, 0, indices)
    assert source.dtype is node.output.dtype, f"{node.label} changes the type of {source}"
    dst, work = ctx.result(node.output, indices), _work(ctx, node, indices)
    if isinstance(node, Copy) and node.held is not None and isinstance(src, k.Ref):
        body = work.statements(_moves(ctx, node, indices, work, dst, src, 1, cache))
    else:
        body = work.statements(_assignment(ctx, work, dst, src, source.dtype, cache))
    return [_item(ctx, node, order, loops, body)]


def _assignment(
    ctx: Context,
    work: _Work,
    dst: k.Ref,
    value: k.Operand,
    dtype: DataType,
    cache: CacheOp = CacheOp.unspecified,
) -> list[k.Stmt]:
    """Stores a value of `dtype`: a copy where `dst` holds that type, else a cast, which has no cache hint."""
    given = value.buffer.dtype if isinstance(value, k.Ref) else dtype
    if given is dst.buffer.dtype:
        return [_move(work, dst, value, 1, cache)]
    if work.is_pad and is_at_hand(value):
        own = k.Ref(ctx.register(f"{dst.buffer.name}_{len(ctx.registers)}", dst.buffer.dtype, 1), ZERO)
        return [k.Compute(CAST, own, (value,), given.compute), work.load(dst, own)]
    loads, args = _in_registers(ctx, work, [value], CAST, given.compute)
    return [*loads, k.Compute(CAST, dst, tuple(args), given.compute)]


def _move(work: _Work, dst: k.Ref, src: k.Operand, width: int, cache: CacheOp) -> k.Copy:
    """One access: what lies in memory, or is padded, is read under the predicate."""
    if work.is_pad or not is_at_hand(src):
        return work.load(dst, src, width, cache)
    return k.Copy(dst, src, width, cache)


def _moves(
    ctx: Context,
    node: Node,
    indices: NodeIndices,
    work: _Work,
    dst: k.Ref,
    src: k.Ref,
    width: int,
    cache: CacheOp,
    lane: Symbol | None = None,
) -> list[k.Stmt]:
    """One access; of what is held in part, one of its memory in those iterations and one in the others."""
    held = node.held if isinstance(node, Copy) else None
    if held is None or held.part is None:
        return [_move(work, dst, src, width, cache)]
    [step] = indices.loops_of(1, [held.loop[held.part.position]])
    near = ctx.operand(node, 1, indices)
    assert isinstance(near, k.Ref)
    if lane is not None:
        near = k.Ref(near.buffer, substitute(near.index, {lane: 0}))
    is_held = lt(step, held.part.steps)
    if is_held is TRUE:
        return [work.load(dst, near, width)]
    elsewhere = replace(work, pred=land(work.pred, le(held.part.steps, step)))
    return [
        _move(elsewhere, dst, src, width, cache),
        k.Copy(dst, near, width, pred=land(work.pred, is_held)),
    ]


def _refuse_shifted(node: Node) -> None:
    """Raises ScheduleError for vectors that may not be whole where an index says where they are stored."""
    if is_shifted(node.output):
        raise ScheduleError(
            f"{node.output.name} is stored by index, in vectors that may not be whole",
            hint="leave the axis that shifted_split made serial",
        )


def is_vector_access(node: Node) -> bool:
    """Whether `node` moves vectors between memories: a copy whose innermost loop is vectorized."""
    kind = node.traits
    if not (kind.move or kind.indexed or kind.placed) or node.tensor_inputs[0].is_cpu:
        return False
    out = node.output
    if not out.loop or out.loop[-1].parallel is not ParallelType.vectorize:
        return False
    return out.memory is not MemoryType.local or node.tensor_inputs[0].memory is not MemoryType.local


def _vector_items(
    ctx: Context, node: Node, order: int, loops: tuple[Loop, ...], cache: CacheOp
) -> list[Item]:
    """A copy of vectors: one move each, but for those that may not be whole or aligned."""
    out = node.output
    if not out.unaligned and not is_shifted(out):
        return [_vector_copy(ctx, node, order, loops, cache)]
    width = _vector_width(out, loops)
    lane = symbol("lane", lo=0, hi=width - 1)
    indices = ctx.indices(node, (*loops[:-1], Loop(loops[-1].extent, ParallelType.vectorize, 1, lane)))
    dst, src = ctx.result(out, indices), ctx.operand(node, 0, indices)
    assert isinstance(src, k.Ref)
    own, nonempty = ctx.thread_guards(node, indices), ctx.nonempty_guards(node)
    work = _Work(tuple(ctx.block_guards(node)), land(*necessary([*own, *nonempty])), None, bool(nonempty))
    named: list[k.Stmt] = []
    if isinstance(node, Indexed):
        named = _index_values(ctx, node, node.map.expressions, indices, work.pred, lane)
        work = _padded(ctx, node, indices, work)
    first_dst, first_src = _first_lane(dst, lane), _first_lane(src, lane)
    straight = None
    if out.unaligned and (first_src is None or lanes_of(work.pred, lane, width) is None):
        straight = straightened([src.index, work.pred], lane, width)
        first_src = _first_lane(k.Ref(src.buffer, straight.expressions[0]), lane)
    if first_dst is None or first_src is None or src.buffer.dtype is not dst.buffer.dtype:
        body = _assignment(ctx, work, dst, src, src.buffer.dtype, cache)
        if dst.buffer.space is not k.Space.LOCAL:
            body = guarded(
                [work.pred], _assignment(ctx, replace(work, pred=TRUE), dst, src, src.buffer.dtype)
            )
        each = k.For(lane, const(width), tuple(body), unroll=True)
        return [_item(ctx, node, order, loops[:-1], work.statements([*named, each]))]
    move = Move(first_dst, first_src, work.pred, work.fill, work.fill_is_value, width, lane, cache)
    if straight is not None:
        move = replace(move, pred=straight.expressions[1], whole=straight.whole, scattered=(src, work.pred))
    if not out.unaligned:
        _check_aligned(node, move)
    if dst.buffer.space is not k.Space.LOCAL:
        return [_item(ctx, node, order, loops[:-1], work.statements(edged_store(move, out)))]
    phases = unaligned_load(ctx, move, out) if out.unaligned else edged_load(move, out)
    if named:  # one body knows the names
        phases = [[*named, *itertools.chain(*phases)]]
    items: list[Item] = []
    for number, body in enumerate(filter(None, phases)):
        around = own_loops(loops[:-1], out.inline_at) if number else loops[:-1]
        items.append(_item(ctx, node, order + number, around, work.statements(body)))
    return items


def _check_aligned(node: Node, move: Move) -> None:
    """Raises ScheduleError unless the vectors of both sides are at multiples of their width."""
    for ref, tensor in ((move.dst, node.output), (move.src, node.tensor_inputs[0])):
        if tensor.memory is not MemoryType.local and not divides(move.width, ref.index):
            raise ScheduleError(
                f"{node.output.name} is vectorized by {move.width}, but its offset in {tensor.name} "
                "is not a multiple of that",
                given=str(ref.index),
                hint="allow_unaligned lets the vectors of a load start at any element",
            )


def _vector_width(out: TensorView, loops: Sequence[Loop]) -> int:
    """The elements of a vector. ScheduleError if they are more than an access can move."""
    width = as_int(loops[-1].extent)
    assert width is not None
    if width * out.dtype.size > MAX_VECTOR_BYTES:
        raise ScheduleError(
            f"{out.name} is vectorized by {width}, more than one access of a thread can move",
            expected=f"at most {MAX_VECTOR_BYTES // out.dtype.size} elements of {out.dtype}",
            given=width,
        )
    return width


def _vector_copy(ctx: Context, node: Node, order: int, loops: tuple[Loop, ...], cache: CacheOp) -> Item:
    out, source = node.output, node.tensor_inputs[0]
    width = _vector_width(out, loops)
    lane = symbol("lane", lo=0, hi=width - 1)
    vector = Loop(loops[-1].extent, ParallelType.vectorize, 1, lane)
    indices = ctx.indices(node, (*loops[:-1], vector))
    dst, src = ctx.result(out, indices), ctx.operand(node, 0, indices)
    assert isinstance(src, k.Ref)
    work = _work(ctx, node, indices, lane)
    first_dst, first_src = _first_lane(dst, lane), _first_lane(src, lane)
    if first_dst is None or (first_src is None and lane in src.index.free_symbols):
        bad = out if first_dst is None else source
        raise ScheduleError(
            f"{out.name} is vectorized by {width}, but its elements are not contiguous in {bad.name}: "
            f"{(dst if first_dst is None else src).index}",
            hint="vectorize the innermost contiguous axis",
        )
    named: list[k.Stmt] = []
    if isinstance(node, Indexed):
        # An index that is the same for all lanes is read for the first.
        named = _index_values(ctx, node, node.map.expressions, indices, work.pred, lane)
        work = _padded(ctx, node, indices, work, lane)
    elif isinstance(node, Stored):
        work = _placed(node, indices, work, lane)
    # One element for all lanes is loaded once and stored to each; elements that change type move one by one.
    statements: list[k.Stmt] = [
        k.For(lane, vector.extent, tuple(_assignment(ctx, work, dst, src, source.dtype, cache)), unroll=True)
    ]
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
            statements = _moves(ctx, node, indices, work, first_dst, first_src, width, cache, lane)
    return _item(ctx, node, order, loops[:-1], work.statements([*named, *statements]))


def _bulk_copy(ctx: Context, node: Node, order: int, loops: tuple[Loop, ...]) -> Item:
    """The copy of the run along the innermost axis, into the stage that the loops around it count."""
    out, source = node.output, node.tensor_inputs[0]
    lane = symbol("lane", lo=0, hi=loops[-1].extent - 1)
    run = Loop(loops[-1].extent, ParallelType.tma, 1, lane)
    indices = ctx.indices(node, (*loops[:-1], run))
    dst, src = ctx.result(out, indices), ctx.operand(node, 0, indices)
    assert isinstance(src, k.Ref)
    # What is made of a dimension by splits ends where the dimension does.
    ends = (lt(indices.of(axis), ctx.domains.extent(out, axis)) for axis in out.maybe_root)
    count = run_length(run, lane, necessary(end for end in ends if lane in end.free_symbols))
    own = (guard for guard in ctx.element_guards(node, indices) if lane not in guard.free_symbols)
    shifted = is_shifted_run(out)
    # Blocks of a cluster have as many stages each, and rows that begin anywhere, of which the last may be
    # beyond the end.
    beyond = [lt(0, count)] if shifted or cluster_size(ctx.dims) > 1 else []
    pred = land(*own, *ctx.nonempty_guards(node), *beyond)
    unit = elements_of_unit(out)
    first_dst, first_src = _first_lane(dst, lane), _first_lane(src, lane)
    if shifted and first_src is not None:
        count = whole_units(count, unit, first_src)
    for first, tensor in ((first_dst, out), (first_src, source)):
        if (
            first is None
            or lane in count.free_symbols
            or not (divides(unit, first.index) and (shifted or divides(unit, count)))
        ):
            at = (
                "its elements are not contiguous"
                if first is None
                else f"element {first.index}, {count} of them"
            )
            raise ScheduleError(
                f"{out.name} is copied in bulk, but not so in {tensor.name}: {at}",
                expected=f"contiguous runs that start, and end, at multiples of {unit} elements",
                hint="merge what is contiguous in memory into the innermost axis, or assume_multiple",
            )
    assert first_dst is not None and first_src is not None
    stages = ctx.buffers.stages[out]
    assert stages.filled is not None
    full = k.Ref(stages.full, stages.slot(stages.filled))
    cache = node.cache if isinstance(node, Copy) else CacheOp.unspecified
    copy = k.BulkCopy(first_dst, first_src, count, full, pred, cache)
    return _item(ctx, node, order, loops[:-1], guarded(ctx.block_guards(node), [copy]))


def _first_lane(ref: k.Ref, lane: Expr) -> k.Ref | None:
    """The reference of lane 0 if the lanes are contiguous from there, else None."""
    first = substitute(ref.index, {lane: 0})  # type: ignore[dict-item]
    return k.Ref(ref.buffer, first) if first + lane is ref.index else None


def _indexed(ctx: Context, node: Node, order: int) -> list[Item]:
    """A predicated load: of a vector along a vectorized innermost axis, else of an element."""
    assert isinstance(node, Indexed)
    loops = ctx.loops.of(node)
    if is_vector_access(node) and loops[-1].is_real:
        return _vector_items(ctx, node, order, loops, CacheOp.unspecified)
    indices = ctx.indices(node)
    work = _work(ctx, node, indices)
    named = _index_values(ctx, node, node.map.expressions, indices, work.pred)
    src, dst = ctx.operand(node, 0, indices), ctx.result(node.output, indices)
    load = _assignment(ctx, _padded(ctx, node, indices, work), dst, src, node.output.dtype)
    return [_item(ctx, node, order, loops, work.statements([*named, *load]))]


def _stored(ctx: Context, node: Node, order: int) -> list[Item]:
    """A predicated store: of a vector along a vectorized innermost axis, else of an element."""
    assert isinstance(node, Stored)
    loops = ctx.loops.of(node)
    if is_vector_access(node) and loops[-1].is_real:
        _refuse_shifted(node)
        return [_vector_copy(ctx, node, order, loops, CacheOp.unspecified)]
    indices = ctx.indices(node)
    work = _placed(node, indices, _work(ctx, node, indices))
    dst, src = ctx.result(node.output, indices), ctx.operand(node, 0, indices)
    body = work.statements(_assignment(ctx, work, dst, src, node.output.dtype))
    return [_item(ctx, node, order, loops, body)]


def _update(ctx: Context, node: Node, order: int) -> list[Item]:
    """A store, or an addition, where others may store or add: of a vector or an element."""
    assert isinstance(node, Update)
    loops, width = ctx.loops.of(node), 1
    if is_vector_access(node) and loops[-1].is_real:
        _refuse_shifted(node)
        loops, width = loops[:-1], as_int(loops[-1].extent) or 1
    lane = symbol("lane", lo=0, hi=width - 1) if width > 1 else None
    vector = () if lane is None else (Loop(const(width), ParallelType.vectorize, 1, lane),)
    indices = ctx.indices(node, (*loops, *vector))
    own = _work(ctx, node, indices, lane)
    named = _index_values(ctx, node, node.map.expressions, indices, own.pred, lane)
    pred = indices.expression(node.map.pred)
    dst, src = ctx.result(node.output, indices), ctx.operand(node, 0, indices)
    staged: list[k.Stmt] = []
    if lane is not None:
        pred = substitute(pred, {lane: 0})
        first = _first_lane(dst, lane)
        assert first is not None and divides(width, first.index), f"{node.output} is vectorized along no run"
        dst = first
    if width > 1 or _is_elsewhere(src, dst):
        src, staged = _in_run(ctx, own, src, dst, width, lane)
    scatter = k.Scatter(dst, src, node.op, width, land(own.pred, pred))
    return [_item(ctx, node, order, loops, own.statements([*staged, *named, scatter]))]


def _is_elsewhere(src: k.Operand, dst: k.Ref) -> bool:
    """Whether an operand is in memory, or of another type than where it goes."""
    if not isinstance(src, k.Ref):
        return k.operand_dtype(src) is not dst.buffer.dtype
    return src.buffer.space is not k.Space.LOCAL or src.buffer.dtype is not dst.buffer.dtype


def _in_run(
    ctx: Context, work: _Work, src: k.Operand, dst: k.Ref, width: int, lane: Symbol | None
) -> tuple[k.Operand, list[k.Stmt]]:
    """The elements of all lanes side by side in registers, of dst's type, and what brings them there."""
    first = _first_lane(src, lane) if lane is not None and isinstance(src, k.Ref) else None
    if first is not None and not _is_elsewhere(first, dst):
        return first, []
    register = ctx.register(f"{dst.buffer.name}_{len(ctx.registers)}", dst.buffer.dtype, width)
    at = k.Ref(register, ZERO if lane is None else lane)
    body = _assignment(ctx, work, at, src, k.operand_dtype(src))
    if lane is not None:
        body = [k.For(lane, const(width), tuple(body), unroll=True)]
    return k.Ref(register, ZERO), body


def _placed(node: Stored, indices: NodeIndices, work: _Work, lane: Symbol | None = None) -> _Work:
    """The work of a node that stores where its own predicate holds, too."""
    pred = indices.expression(node.map.pred)
    if lane is not None:
        pred = substitute(pred, {lane: 0})
    return replace(work, branch=(*work.branch, pred))


def _padded(
    ctx: Context, node: Indexed, indices: NodeIndices, work: _Work, lane: Symbol | None = None
) -> _Work:
    """The work of a node that reads its source where its own predicate holds, too, and else the pad."""
    pred = indices.expression(node.map.pred)
    if pred is TRUE:
        return work
    if lane is not None:
        pred = substitute(pred, {lane: 0})
    fill = ctx.scalar(node.fill) if node.fill is not None else zero(node.output.dtype)
    return replace(work, pred=land(work.pred, pred), fill=fill, fill_is_value=True)


def _index_values(
    ctx: Context,
    node: Indexed | Choose | Update,
    expressions: Sequence[Expr],
    indices: NodeIndices,
    pred: Expr,
    lane: Symbol | None = None,
) -> list[k.Stmt]:
    """Names the loaded index values that the node's expressions use, where `pred` holds: those of lane 0 of a
    vector.
    """
    first = 2 if isinstance(node, Choose) else 1  # of the index operands
    used = {s for e in expressions for s in e.free_symbols if value_of(s) is not None}
    found: list[k.Stmt] = []
    for s in sorted(used, key=lambda s: s.name):
        number = value_of(s)
        assert number is not None
        name, extent = indices.value(number, s), ctx.domains.known(value_extent(s))
        read = ctx.operand(node, first + number, indices)
        if lane is not None and isinstance(read, k.Ref):
            read = k.Ref(read.buffer, substitute(read.index, {lane: 0}))
        found.append(k.LetValue(name, read, extent, pred, strict=isinstance(node, Update)))
    return found


def _choose(ctx: Context, node: Node, order: int) -> list[Item]:
    assert isinstance(node, Choose)
    indices = ctx.indices(node)
    dst, pred = ctx.result(node.output, indices), indices.expression(node.pred)
    dtype = node.output.dtype.compute
    work, where = _work(ctx, node, indices), ELEMENTWISE["where"]
    operands = [ctx.operand(node, i, indices) for i in range(2)]
    loads, (first, second) = _in_registers(ctx, work, operands, where, dtype)
    choice: k.Stmt
    if all(k.operand_dtype(each) is dst.buffer.dtype for each in (first, second)) and _can_fill(second):
        choice = k.Copy(dst, first, pred=pred, fill=second, fill_is_value=True)  # nothing is converted
        choice = choice if pred is not TRUE else k.Copy(dst, first)
    else:
        choice = k.Compute(where, dst, (k.IndexValue(pred, DataType.Bool), first, second), dtype)
    body = [*_index_values(ctx, node, (node.pred,), indices, work.pred), *loads, choice]
    return [_item(ctx, node, order, ctx.loops.of(node), work.statements(body))]


def _can_fill(operand: k.Operand) -> bool:
    """Whether a copy can take the operand where its source does not count."""
    return not isinstance(operand, k.Ref) or operand.buffer.space is k.Space.LOCAL


def _full(ctx: Context, node: Node, order: int) -> list[Item]:
    indices = ctx.indices(node)
    fill, dst = ctx.scalar(node.inputs[0]), ctx.result(node.output, indices)
    work = _work(ctx, node, indices)
    body = work.statements(_assignment(ctx, work, dst, fill, node.inputs[0].dtype))
    return [_item(ctx, node, order, ctx.loops.of(node), body)]


def _iota(ctx: Context, node: Node, order: int) -> list[Item]:
    indices = ctx.indices(node)
    out = node.output
    dst = ctx.result(out, indices)
    dtype = out.dtype.compute
    along = next((a for a in out.maybe_root if not a.is_broadcast), None)  # None: of one element
    position = k.IndexValue(ZERO if along is None else indices.of(along), dtype)
    start, step = ctx.scalar(node.inputs[0]), ctx.scalar(node.inputs[1])
    statements: list[k.Stmt] = [
        k.Compute(ELEMENTWISE["mul"], dst, (position, step), dtype),
        k.Compute(ELEMENTWISE["add"], dst, (dst, start), dtype),
    ]
    if dtype is out.dtype and _is_number(step, 1) and _is_number(start, 0):
        statements = [k.Copy(dst, position)]
    body = _work(ctx, node, indices).statements(statements)
    return [_item(ctx, node, order, ctx.loops.of(node), body)]


def _is_number(operand: k.Operand, value: int) -> bool:
    return isinstance(operand, k.Imm) and operand.value == value


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
    body = _work(ctx, node, indices).statements([statement])
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
    Update: _update,
    Full: _full,
    Iota: _iota,
    Random: _random,
    Reduction: _reduction,
    Scan: _scan,
}
