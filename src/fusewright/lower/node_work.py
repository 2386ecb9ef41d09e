"""Functions for the rules that lower nodes: the conditions of statements, and accesses to memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fusewright.core.dtype import DataType
from fusewright.core.enums import CacheOp, MemoryType
from fusewright.core.op import ElementwiseOp
from fusewright.ir.index_map import value_extent, value_of
from fusewright.ir.node import Choose, Copy, Indexed, Node, Stored, Update
from fusewright.ir.value import TensorView
from fusewright.kernel import ir as k
from fusewright.kernel.access import is_at_hand
from fusewright.lower.context import Context
from fusewright.lower.guards import guarded, lanes_of, necessary, zero
from fusewright.lower.indexing import NodeIndices
from fusewright.lower.loops import Item, Loop
from fusewright.ops.elementwise import CAST
from fusewright.sym import (
    FALSE,
    TRUE,
    ZERO,
    Expr,
    Symbol,
    as_int,
    const,
    land,
    le,
    lor,
    lt,
    substitute,
    symbol,
)


def item_of(
    ctx: Context,
    node: Node,
    order: int,
    loops: tuple[Loop, ...],
    body: Sequence[k.Stmt],
    reduced: tuple[Loop, ...] = (),
) -> Item:
    reads = tuple(tensor for tensor in node.tensor_inputs if not ctx.fusion.is_input(tensor))
    return Item(loops, body, reads, tuple(node.tensor_outputs), order, reduced)


@dataclass(frozen=True)
class Work:
    """The conditions under which the statements of a node run.

    Attributes:
        branch: the conditions of the branch around all statements.
        pred: the further condition under which they read memory.
        fill: the value that a read has if `pred` does not hold; None: zero.
        fill_is_value: whether fills may reach a result. For example, a sum over a dimension that is expanded
            to size 0 is 0 times the value that is read.
    """

    branch: tuple[Expr, ...]
    pred: Expr
    fill: k.Operand | None
    fill_is_value: bool

    def statements(self, body: Sequence[k.Stmt]) -> list[k.Stmt]:
        return guarded(self.branch, body)

    @property
    def is_pad(self) -> bool:
        """Whether the fill is a value of the program."""
        return self.fill is not None

    def load(
        self, dst: k.Ref, src: k.Operand, width: int = 1, cache: CacheOp = CacheOp.unspecified
    ) -> k.Copy:
        """A copy under the predicate."""
        if self.pred is k.TRUE:
            return k.Copy(dst, src, width, cache)
        dtype = dst.buffer.dtype
        fill = self.fill or zero(dtype)
        if isinstance(fill, k.Imm):
            fill = k.Imm(fill.value, dtype)
        return k.Copy(dst, src, width, cache, self.pred, fill, self.fill_is_value)


def work_of(ctx: Context, node: Node, indices: NodeIndices, lane: Symbol | None = None) -> Work:
    """The conditions of a node's work.

    Registers are computed in all threads, from fills where there is nothing to load. Memory is written only
    where there is an element.

    Args:
        lane: the lane of a vector; the conditions are those of lane 0.
    """
    own, nonempty = ctx.thread_guards(node, indices), ctx.nonempty_guards(node)
    if lane is not None:
        own = [substitute(guard, {lane: 0}) for guard in own]
    if node.output.memory is MemoryType.local:
        pred = land(*necessary([*own, *nonempty]))
        return Work(tuple(ctx.block_guards(node)), pred, None, bool(nonempty))
    return Work((*ctx.block_guards(node), *own), land(*nonempty), None, bool(nonempty))


def in_registers(
    ctx: Context, work: Work, operands: Sequence[k.Operand], op: ElementwiseOp, dtype: DataType
) -> tuple[list[k.Stmt], list[k.Operand]]:
    """Loads operands under the predicate if `op` may not use them where it does not hold.

    These are operands in memory, and divisors, whose fill is 1.

    Returns:
        The loads, and all operands.
    """
    loads: list[k.Stmt] = []
    values: list[k.Operand] = []
    for position, value in enumerate(operands):
        if isinstance(value, k.Ref) and work.pred is not k.TRUE:
            is_divisor = op.spelling(dtype).divides and position + 1 == len(operands)
            if is_divisor or not is_at_hand(value):
                buffer = value.buffer
                register = k.Ref(ctx.numbered_register(f"{buffer.name}_", buffer.dtype), ZERO)
                filled = replace(work, fill=k.Imm(1, buffer.dtype)) if is_divisor else work
                loads.append(filled.load(register, value))
                value = register
        values.append(value)
    return loads, values


def assignment(
    ctx: Context,
    work: Work,
    dst: k.Ref,
    value: k.Operand,
    dtype: DataType,
    cache: CacheOp = CacheOp.unspecified,
) -> list[k.Stmt]:
    """Stores a value of type `dtype`: by a copy if `dst` has the type, else by a cast without cache hint."""
    given = value.buffer.dtype if isinstance(value, k.Ref) else dtype
    if given is dst.buffer.dtype:
        return [_move(work, dst, value, 1, cache)]
    if work.is_pad and is_at_hand(value):
        own = k.Ref(ctx.numbered_register(f"{dst.buffer.name}_", dst.buffer.dtype), ZERO)
        return [k.Compute(CAST, own, (value,), given.compute), work.load(dst, own)]
    loads, args = in_registers(ctx, work, [value], CAST, given.compute)
    return [*loads, k.Compute(CAST, dst, tuple(args), given.compute)]


def _move(work: Work, dst: k.Ref, src: k.Operand, width: int, cache: CacheOp) -> k.Copy:
    """A copy. It is predicated if the source is in memory or padded."""
    if work.is_pad or not is_at_hand(src):
        return work.load(dst, src, width, cache)
    return k.Copy(dst, src, width, cache)


def moves(
    ctx: Context,
    node: Node,
    indices: NodeIndices,
    work: Work,
    dst: k.Ref,
    src: k.Ref,
    width: int,
    cache: CacheOp,
    lane: Symbol | None = None,
) -> list[k.Stmt]:
    """A copy. If part of the source is held (`TensorView.part`), iterations read the held copy or memory.

    The last iteration may read the registers that it was loaded to (`_kept_of_last`).

    Args:
        lane: the lane of a vector of `width` elements, of which `dst` and `src` are the first.
    """
    held = node.held if isinstance(node, Copy) else None
    if held is None or held.part is None:
        return [_move(work, dst, src, width, cache)]
    axis = held.loop[held.part.position]
    [step] = indices.loops_of(1, [axis])
    near = ctx.operand(node, 1, indices)
    assert isinstance(near, k.Ref)
    if lane is not None:
        near = k.Ref(near.buffer, substitute(near.index, {lane: 0}))
    is_held = lt(step, held.part.steps)
    if is_held is TRUE:
        return [work.load(dst, near, width)]
    beyond, last = le(held.part.steps, step), ctx.domains.extent(held, axis) - 1
    kept = _kept_of_last(ctx, node, held)
    away = [beyond] if kept is None else [beyond, lt(step, last)]
    elsewhere = replace(work, pred=land(work.pred, *away))
    statements: list[k.Stmt] = []
    if elsewhere.pred is not FALSE:
        statements.append(_move(elsewhere, dst, src, width, cache))
    statements.append(k.Copy(dst, near, width, pred=land(work.pred, is_held)))
    if kept is not None:
        statements += guarded([beyond, le(last, step)], [copy_registers(kept, dst, width)])
    return statements


def _kept_of_last(ctx: Context, node: Node, held: TensorView) -> k.Buffer | None:
    """The registers that `held` is filled from, if after the loop they still hold what `node` reads in the
    last iteration.

    None if they do not:

    * More than one iteration is not held. (The registers would be in use for long, to save one load of many.)
    * The load goes over the iterations in another order.
    * A loop around the iterations belongs to only one of the two nodes.
    * The registers have room for only a part of an iteration, or hold other elements than those of `node`.
    """
    assert held.definition is not None and held.part is not None
    if as_int(ctx.domains.extent(held, held.loop[held.part.position])) != held.part.steps + 1:
        return None
    [load] = held.definition.tensor_inputs
    assert load.definition is not None
    position, loops = held.part.position, ctx.loops.of(load.definition)
    if load.loop[position].definition.__class__ is not held.loop[position].definition.__class__:
        return None
    if any(a.is_real and a is not b for a, b in zip(loops[:position], ctx.loops.of(node))):
        return None
    stored = [load.loop.index(axis) for axis in ctx.buffers.stored_axes(load)]
    if any(loop.is_real and i not in stored for i, loop in enumerate(loops) if i > position):
        return None
    read = [node.output.loop.index(axis) for axis in ctx.buffers.stored_axes(node.output)]
    return ctx.buffers.of(load) if stored == read else None


def copy_registers(source: k.Buffer, dst: k.Ref, width: int) -> k.Stmt:
    """Copies `width` registers of a buffer to the same places in the buffer of `dst`."""
    if width == 1:
        return k.Copy(dst, k.Ref(source, dst.index))
    element = symbol("e", lo=0, hi=width - 1)
    at = dst.index + element
    return k.For(element, const(width), (k.Copy(k.Ref(dst.buffer, at), k.Ref(source, at)),), unroll=True)


def cache_hint(node: Node) -> CacheOp:
    """The hint for a node's access to global memory; none if the node accesses no global memory."""
    if not isinstance(node, (Copy, Indexed)):
        return CacheOp.unspecified
    memories = (node.tensor_inputs[0].memory, node.output.memory)
    return node.cache if MemoryType.global_ in memories else CacheOp.unspecified


def first_lane(ref: k.Ref, lane: Symbol) -> k.Ref | None:
    """The reference of lane 0 if the lanes are contiguous, else None."""
    first = substitute(ref.index, {lane: 0})
    return k.Ref(ref.buffer, first) if first + lane is ref.index else None


def placed(node: Stored, indices: NodeIndices, work: Work, lane: Symbol | None = None) -> Work:
    """The work of a node that stores only where its predicate holds, too."""
    pred = indices.expression(node.map.pred)
    if lane is not None:
        pred = substitute(pred, {lane: 0})
    return replace(work, branch=(*work.branch, pred))


def padded(ctx: Context, node: Indexed, indices: NodeIndices, work: Work, lane: Symbol | None = None) -> Work:
    """The work of a node that reads its source where its predicate holds, too, and the pad elsewhere."""
    pred = indices.expression(node.map.pred)
    if pred is TRUE:
        return work
    if lane is not None:
        pred = substitute(pred, {lane: 0})
    fill = ctx.scalar(node.fill) if node.fill is not None else zero(node.output.dtype)
    return replace(work, pred=land(work.pred, pred), fill=fill, fill_is_value=True)


def index_values(
    ctx: Context,
    node: Indexed | Choose | Update,
    expressions: Sequence[Expr],
    indices: NodeIndices,
    pred: Expr,
    lane: Symbol | None = None,
) -> list[k.Stmt]:
    """Names the loaded index values that the node's expressions use, where `pred` holds.

    Values in memory are loaded to registers first. The lanes of a vector share a value that is the same for
    all lanes that exist. If values differ, the name stands for a lane that exists: lane 0 of whole vectors
    (see `values_of_lanes`).
    """
    first = 2 if isinstance(node, Choose) else 1  # the position of the first index operand
    used = {s for e in expressions for s in e.free_symbols if value_of(s) is not None}
    found: list[k.Stmt] = []
    for s in sorted(used, key=lambda s: s.name):
        number = value_of(s)
        assert number is not None
        name, extent = indices.value(number, s), ctx.domains.known(value_extent(s))
        read = ctx.operand(node, first + number, indices)
        lanes = [(read, pred)]
        if lane is not None and isinstance(read, k.Ref) and lane in read.index.free_symbols:
            lanes = [
                (k.Ref(read.buffer, substitute(read.index, at)), own) for at, own in _some_lanes(pred, lane)
            ]
        read, own = lanes[0]
        if isinstance(read, k.Ref) and not (is_at_hand(read) and len(lanes) == 1):
            held = k.Ref(ctx.numbered_register(f"{read.buffer.name}_", read.buffer.dtype), ZERO)
            found.append(Work((), own, None, False).load(held, read))
            for other, own in lanes[1:]:
                found += guarded([own], [k.Copy(held, other)])
            read = held
        exists = pred if lane is None else _in_some_lane(pred, lane)
        found.append(k.LetValue(name, read, extent, exists, strict=isinstance(node, Update)))
    return found


def _some_lanes(pred: Expr, lane: Symbol) -> list[tuple[dict[Symbol, int], Expr]]:
    """Lanes of a vector of which at least one exists, if any does, each with the condition that it exists."""
    assert isinstance(lane.hi, int)
    count = lane.hi + 1 if lane in pred.free_symbols else 1
    return [({lane: n}, substitute(pred, {lane: n})) for n in range(count)]


def _in_some_lane(pred: Expr, lane: Symbol) -> Expr:
    """The condition that `pred` holds in at least one lane of a vector."""
    if lane not in pred.free_symbols:
        return pred
    assert isinstance(lane.hi, int)
    lanes = lanes_of(pred, lane, lane.hi + 1)
    return lor(*(own for _, own in _some_lanes(pred, lane))) if lanes is None else lanes.some


def values_of_lanes(
    ctx: Context, node: Indexed, indices: NodeIndices, pred: Expr, lane: Symbol
) -> tuple[tuple[k.Stmt, ...], dict[Symbol, Expr | int]]:
    """Names the index values of each lane of a vector, if the lanes have different values.

    Returns:
        The statements, which belong in a loop over the lanes, and a map from the names that `index_values`
        gives to lane 0's values to the new names. Both are empty if all lanes have the same values.
    """
    used = {s for e in node.map.expressions for s in e.free_symbols if value_of(s) is not None}
    reads = [ctx.operand(node, 1 + number, indices) for s in used if (number := value_of(s)) is not None]
    if not any(isinstance(read, k.Ref) and lane in read.index.free_symbols for read in reads):
        return (), {}
    named = index_values(ctx, node, node.map.expressions, indices, pred)
    names: dict[Symbol, Expr | int] = {}
    made: list[k.Stmt] = []
    for stmt in named:
        if isinstance(stmt, k.LetValue):
            own = symbol(f"{stmt.symbol.name}_lane", lo=stmt.symbol.lo, hi=stmt.symbol.hi)
            names[stmt.symbol] = own
            stmt = replace(stmt, symbol=own)
        made.append(stmt)
    return tuple(made), names
