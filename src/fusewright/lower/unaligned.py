"""Loads of vectors that may start at any element.

    off = (i + misalignment of x) % 8               # elements beyond an aligned address
    around[0:8]  = x[i - off:+8]                    # the two aligned vectors that x[i:+8] lies in
    around[8:16] = x[i - off + 8:+8] if 0 < off
    a[0:8] = around[off:off+8]
    if some of x[i:+8] exists, but not all of x[i - off:+16]:
      a[k] = x[i + k] if it exists, for all k

The loads of all vectors come before the first use of any, so that they are in flight together. Each vector is
wanted by two neighbouring threads, of which one finds it in the L1 cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusewright.core.enums import CacheOp
from fusewright.core.errors import ScheduleError
from fusewright.ir.node import Node
from fusewright.kernel import ir as k
from fusewright.lower.context import Context
from fusewright.lower.guards import conditions_of, zero
from fusewright.lower.loops import Loop
from fusewright.sym import ZERO, Expr, Le, Lt, Symbol, as_int, const, land, le, lnot, lor, lt, mod, substitute


@dataclass(frozen=True)
class Lanes:
    """Which lanes of a vector a condition holds in.

    Attributes:
        each: the condition, over the symbol of the lane.
        all, some: that it holds in all of them, and that it may hold in one.
    """

    each: Expr
    all: Expr
    some: Expr


def lanes_of(condition: Expr, lane: Symbol, width: int) -> Lanes | None:
    """What holds of the lanes of a vector; None where that cannot be told from the first and the last one.

    A comparison of sums that goes up or down with the lane holds in all of them if it does in both ends.
    """
    every: list[Expr] = []
    some: list[Expr] = []
    for part in sorted(conditions_of(condition), key=lambda e: e.order):
        if lane not in part.free_symbols:
            every.append(part)
            some.append(part)
            continue
        if not _is_monotone(part, lane):
            return None
        first, last = (substitute(part, {lane: const(n)}) for n in (0, width - 1))
        every += [first, last]
        some.append(lor(first, last))
    return Lanes(condition, land(*every), land(*some))


def _is_monotone(condition: Expr, lane: Symbol) -> bool:
    if not isinstance(condition, (Lt, Le)):
        return False
    low, high = condition.args
    moving = [(core, c) for core, c in (high - low).terms if lane in core.free_symbols]
    return len(moving) == 1 and moving[0][0] is lane


@dataclass(frozen=True)
class Source:
    """What a vector of a load is made from.

    Attributes:
        dst, src: the references of the first lane, neighbours from there on.
        pred: under which an element is read.
        fill, fill_is_value: what stands for one that is not, as of `k.Copy`.
    """

    dst: k.Ref
    src: k.Ref
    pred: Expr
    fill: k.Operand | None
    fill_is_value: bool
    width: int
    lane: Symbol
    cache: CacheOp


def unaligned_load(
    ctx: Context, node: Node, source: Source
) -> tuple[list[k.Stmt], list[k.Stmt], list[k.Stmt]]:
    """The statements that load vectors, that choose from them, and that load what they leave out.

    Raises:
        ScheduleError: the elements of a vector that exist are not told from its ends.
    """
    width, dst, src = source.width, source.dst, source.src
    lanes = lanes_of(source.pred, source.lane, width)
    if lanes is None:
        raise ScheduleError(
            f"{node.output.name} is vectorized by {width}, but which of these elements exist is no range: "
            f"{source.pred}",
            hint="leave the axis serial",
        )
    size = as_int(dst.buffer.size)
    assert size is not None and dst.buffer.space is k.Space.LOCAL
    raw = ctx.register_of(f"{dst.buffer.name}_around", dst.buffer.dtype, 2 * size)
    offset = mod(src.index + ctx.misalignment(src.buffer, width), const(width))
    start = src.index - offset
    inside = land(le(ZERO, start), le(start + 2 * width, src.buffer.size))
    there = land(lanes.all, inside)
    fill = source.fill or zero(dst.buffer.dtype)
    if isinstance(fill, k.Imm):
        fill = k.Imm(fill.value, dst.buffer.dtype)

    def vector(number: int, pred: Expr) -> k.Copy:
        to = k.Ref(raw, 2 * dst.index + number * width)
        at = k.Ref(src.buffer, start + number * width)
        return k.Copy(to, at, width, source.cache, pred, fill, source.fill_is_value, covering=True)

    loads: list[k.Stmt] = [vector(0, there), vector(1, land(there, lt(ZERO, offset)))]
    choice: list[k.Stmt] = [k.Window(dst, k.Ref(raw, 2 * dst.index), offset, width)]
    to, at = (k.Ref(ref.buffer, ref.index + source.lane) for ref in (dst, src))
    each = k.Copy(to, at, 1, source.cache, lanes.each, fill, source.fill_is_value)
    if lanes.each is k.TRUE:
        each = k.Copy(to, at, 1, source.cache)
    rest = k.For(source.lane, const(width), (each,), unroll=True)
    missed = lnot(inside if lanes.some is lanes.all else there)
    return loads, choice, [k.If(land(lanes.some, missed), (rest,))]


def own_loops(loops: Sequence[Loop], shared: int) -> tuple[Loop, ...]:
    """Loops that go over the same as `loops`, apart from them inside the outermost `shared`."""
    again = [
        Loop(loop.extent, loop.parallel, loop.padded, loop.place, loop.unroll) if loop.is_real else loop
        for loop in loops[shared:]
    ]
    return (*loops[:shared], *again)
