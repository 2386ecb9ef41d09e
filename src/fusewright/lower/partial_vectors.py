"""Lowers copies of vectors that may be partial or start at any element.

A vector at the edge of a row has lanes outside the row. A load may read the neighbouring elements, which are
then unused. A store may not write them:

    a[0:8] = x[i:+8] if some of it exists, and all lies in the memory of x
    if some of it exists, but not all lies there: a[k] = x[i + k] if it exists, for all k

    y[i:+8] = a[0:8] if all of it exists
    if some of it exists, but not all: y[i + k] = a[k] if it exists, for all k

A load that may start at any element (`TensorView.unaligned`) takes its elements from the two aligned vectors
that contain them:

    off = (i + misalignment of x) % 8
    around[0:8]  = x[i - off:+8]
    around[8:16] = x[i - off + 8:+8] if 0 < off
    a[0:8] = around[off:off+8]

If `off` is known and each aligned vector needs either all of its existing elements or none, each has its own
predicate, and no edges are left.

If an index has divisions, vectors whose elements are adjacent in memory are loaded this way
(`straight_runs`), and the others by element.

All vectors are loaded before the first one is used, so that the loads are in flight together. Two
neighbouring threads need each aligned vector, and one of them finds it in the L1 cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusewright.analyze.vectorize import is_one_run
from fusewright.core.enums import CacheOp
from fusewright.core.errors import ScheduleError
from fusewright.ir.value import TensorView
from fusewright.kernel import ir as k
from fusewright.lower.context import Context
from fusewright.lower.guards import Lanes, conditions_of, guarded, lanes_of, necessary, zero
from fusewright.lower.loops import Loop
from fusewright.sym import (
    FALSE,
    ZERO,
    Expr,
    Symbol,
    as_int,
    const,
    divides,
    is_nonneg,
    land,
    le,
    lnot,
    lor,
    lt,
    mod,
    substitute,
)


@dataclass(frozen=True)
class Scattered:
    """The element of one lane of a vector that may not be contiguous.

    Attributes:
        src: the reference of the element.
        pred: the condition under which it is copied.
        named: statements that name the loaded index values of this lane, which `src` and `pred` use.
    """

    src: k.Ref
    pred: Expr
    named: tuple[k.Stmt, ...] = ()


@dataclass(frozen=True)
class Move:
    """A copy of a vector between memory and registers.

    Attributes:
        dst, src: the references of the first lane; the other lanes follow contiguously.
        pred: the condition under which the element of lane `lane` is copied.
        fill, fill_is_value: the value that a load has for missing elements, as in `k.Copy`.
        width, lane, cache: the number of lanes, the symbol of the lane, and the cache hint.
        whole: the condition that the vector is contiguous in memory. `src` and `pred` are valid if it holds.
        scattered: the elements of a vector that may not be contiguous, for copies one by one.
    """

    dst: k.Ref
    src: k.Ref
    pred: Expr
    fill: k.Operand | None
    fill_is_value: bool
    width: int
    lane: Symbol
    cache: CacheOp
    whole: Expr = k.TRUE
    scattered: Scattered | None = None

    def lanes(self, tensor: TensorView) -> Lanes:
        """The lanes that exist.

        Raises:
            ScheduleError: the existing elements are not determined by the ends of the vector.
        """
        found = lanes_of(self.pred, self.lane, self.width)
        if found is None:
            raise ScheduleError(
                f"{tensor.name} is vectorized by {self.width}, but which of these elements exist is no range",
                given=str(self.pred),
                hint="leave the axis serial",
            )
        return found

    def one_by_one(self, pred: Expr, fill: k.Operand | None) -> k.Stmt:
        """Copies the elements one by one. `pred` is the predicate of each if the vector is contiguous."""
        dst, src = (k.Ref(ref.buffer, ref.index + self.lane) for ref in (self.dst, self.src))
        named: tuple[k.Stmt, ...] = ()
        if self.scattered is not None:
            src, pred, named = self.scattered.src, self.scattered.pred, self.scattered.named
        is_value = self.fill_is_value and fill is not None
        each = k.Copy(dst, src, 1, self.cache, pred, fill if pred is not k.TRUE else None, is_value)
        return k.For(self.lane, const(self.width), (*named, each), unroll=True)


def edged_load(move: Move, tensor: TensorView) -> list[list[k.Stmt]]:
    """The statements that load whole vectors, and those that load vectors across an end of memory by element.

    Raises:
        ScheduleError: see `Move.lanes`.
    """
    lanes, fill, src, width = move.lanes(tensor), _fill(move), move.src, move.width
    if lanes.all is k.TRUE and move.whole is k.TRUE:
        return [[k.Copy(move.dst, src, width, move.cache)]]
    there = land(move.whole, _loaded(move, lanes))
    if src.buffer.space is k.Space.GLOBAL and lanes.all is not k.TRUE:
        there = land(there, _inside(src, width))
    vector = _vector(move, move.dst, src, there, fill, lanes.each)
    return [[vector], _edges(move, lanes, there, fill)]


def _vector(move: Move, dst: k.Ref, src: k.Ref, there: Expr, fill: k.Operand, wanted: Expr) -> k.Copy:
    """A load of a whole vector if `there` holds; else of the fill."""
    covering = k.Covering(move.lane, wanted)
    if there is k.TRUE:
        is_multiple = divides(move.width, src.index)  # else its address is one
        return k.Copy(dst, src, move.width, move.cache, covering=None if is_multiple else covering)
    return k.Copy(dst, src, move.width, move.cache, there, fill, move.fill_is_value, covering)


def _loaded(move: Move, lanes: Lanes) -> Expr:
    """The condition to load a whole vector: some of its lanes exist, or all of them if fills are values."""
    return lanes.all if move.fill_is_value else lanes.some


def _inside(vector: k.Ref, width: int) -> Expr:
    """The condition that `width` elements from the first one of a vector on are in the tensor's memory."""
    return land(le(ZERO, vector.index), le(vector.index + width, vector.buffer.size))


def edged_store(move: Move, tensor: TensorView) -> list[k.Stmt]:
    """The statements that store a vector, or its existing elements.

    Raises:
        ScheduleError: see `Move.lanes`.
    """
    lanes, dst = move.lanes(tensor), move.dst
    whole = k.Copy(dst, move.src, move.width, move.cache)
    moved = lanes.all
    if dst.buffer.space is k.Space.SHARED and is_one_run(tensor) and _ends_inside(dst, move.width):
        # Lanes that do not exist store meaningless values, like fills, if there is memory to read them from.
        is_input = move.src.buffer.space is k.Space.GLOBAL
        moved = land(lanes.some, _inside(move.src, move.width)) if is_input else lanes.some
    return [*guarded([moved], [whole]), *_edges(move, lanes, moved, None)]


def _ends_inside(vector: k.Ref, width: int) -> bool:
    """Whether `width` elements from the first one of a vector on are known to be in the buffer."""
    return is_nonneg(vector.index) and is_nonneg(vector.buffer.size - vector.index - width)


def unaligned_load(ctx: Context, move: Move, tensor: TensorView) -> list[list[k.Stmt]]:
    """The statements that load aligned vectors, that select from them, and that load the remaining elements.

    Raises:
        ScheduleError: see `Move.lanes`.
    """
    width, dst, src = move.width, move.dst, move.src
    lanes, fill = move.lanes(tensor), _fill(move)
    size = as_int(dst.buffer.size)
    assert size is not None and dst.buffer.space is k.Space.LOCAL
    raw = ctx.numbered_register(f"{dst.buffer.name}_around", dst.buffer.dtype, 2 * size)
    offset = mod(src.index + ctx.misalignment(src.buffer, width), const(width))
    if offset is ZERO:
        return edged_load(move, tensor)
    start = src.index - offset
    there = land(move.whole, _loaded(move, lanes), _inside(k.Ref(src.buffer, start), 2 * width))
    apart = _parts(move, lanes, as_int(offset))

    def vector(number: int, pred: Expr) -> k.Copy:
        to = k.Ref(raw, 2 * dst.index + number * width)
        at = k.Ref(src.buffer, start + number * width)
        wanted = substitute(lanes.each, {move.lane: move.lane + number * width - offset})
        return _vector(move, to, at, pred, fill, wanted)

    choice: list[k.Stmt] = [k.Window(dst, k.Ref(raw, 2 * dst.index), offset, width)]
    if apart is not None:
        # Several vectors may need the same aligned vector. Without the condition `move.whole` these loads are
        # equal, so `lower.passes.equal_loads` merges them.
        inside = [_ends_inside(k.Ref(src.buffer, start + n * width), width) for n in range(len(apart))]
        loads: list[k.Stmt] = [
            vector(n, part if inside[n] else land(move.whole, part)) for n, part in enumerate(apart)
        ]
        scattered = guarded([lnot(move.whole)], [move.one_by_one(lanes.each, fill)])
        return [loads, choice, [] if move.whole is k.TRUE else scattered]
    loads = [vector(0, there), vector(1, land(there, lt(ZERO, offset)))]
    return [loads, choice, _edges(move, lanes, there, fill)]


def _parts(move: Move, lanes: Lanes, offset: int | None) -> list[Expr] | None:
    """The conditions to load each of the two aligned vectors that contain a vector.

    The vector starts at element `offset` of the first. None if an aligned vector may exist in part.
    """
    width, size = move.width, move.src.buffer.size
    # If the width divides the size, an aligned vector with one element of the tensor is in its memory.
    if offset is None or not divides(width, size):
        return None
    parts: list[Expr] = []
    for numbers in (range(width - offset), range(width - offset, width)):
        each = {land(*necessary(_at(lanes.each, move.lane, number))) for number in numbers}
        if len(each) > 1:
            return None
        parts += each
    return parts


def _at(condition: Expr, lane: Symbol, number: int) -> list[Expr]:
    conditions = sorted(conditions_of(condition), key=lambda e: e.order)
    return [substitute(each, {lane: const(number)}) for each in conditions]


def _edges(move: Move, lanes: Lanes, moved: Expr, fill: k.Operand | None) -> list[k.Stmt]:
    """Copies the existing elements of vectors that are not copied as a whole.

    Args:
        moved: the condition under which a vector is copied as a whole.
    """
    whole = conditions_of(move.whole)
    missing = land(*(conditions_of(moved) - conditions_of(lanes.some) - whole))
    cond = lor(lnot(move.whole), land(lanes.some, lnot(missing)))
    return [] if cond is FALSE else [k.If(cond, (move.one_by_one(lanes.each, fill),))]


def _fill(move: Move) -> k.Operand:
    fill = move.fill or zero(move.dst.buffer.dtype)
    return k.Imm(fill.value, move.dst.buffer.dtype) if isinstance(fill, k.Imm) else fill


def misalignments(ctx: Context) -> list[k.Stmt]:
    """Names the misalignments of addresses that the kernel uses (`Context.misalignment`)."""
    return [k.LetMisalignment(s, buffer, width) for (buffer, width), s in ctx.misalignments.items()]


def own_loops(loops: Sequence[Loop], shared: int) -> tuple[Loop, ...]:
    """Copies of the loops inside the outermost `shared` ones, so that statements in them are separate."""
    again = [
        Loop(loop.extent, loop.parallel, loop.padded, loop.place, loop.unroll) if loop.is_real else loop
        for loop in loops[shared:]
    ]
    return (*loops[:shared], *again)
