"""Loads the pieces of a join to the same registers if most warps have elements of only one piece.

    a[0:8] = x[i:+8] if i < n else 0            r[0:8] = y[i - n:+8] if n <= i
    b[0:8] = y[i - n:+8] if n <= i else 0   ->  r[0:8] = x[i:+8] if i < n
    for j: c[j] = a[j] if i < n else b[j]       for j: c[j] = r[j]

With separate registers for each piece, sixteen pieces take more registers than a thread has. The piece that
is selected first is loaded last: it overwrites only pieces that are not selected. In a warp with elements of
several pieces the loads would wait for each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from fusewright.core.hardware import WARP_SIZE
from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.lower.guards import Conditions, conditions_of, with_pred
from fusewright.lower.passes.exclusive_loads import needed_conditions
from fusewright.lower.passes.loads import is_load
from fusewright.lower.passes.unrolled_load import single_nest
from fusewright.sym import (
    Expr,
    FloorDiv,
    Le,
    Lt,
    Symbol,
    as_int,
    bounds,
    build,
    const,
    divides,
    fold,
    lnot,
    substitute,
)

# Pieces keep separate registers if all of them take at most this many bytes: half the registers of a thread
# on a full SM. (Eight stacked pieces of 16 bytes take 67 us in common registers and 80 us in separate ones on
# an H200.)
MOST_HELD = 64
# Pieces of at least this many elements, or vectors, are long: few warps have elements of two pieces.
LONG_PIECE = 4096


def join_pieces(kernel: k.Kernel) -> k.Kernel:
    statements = list(k.walk(kernel.body))
    if not any(_is_choice(stmt) for stmt in statements):
        return kernel
    needed = needed_conditions(kernel.body)
    joiner = _Joiner(access.writers(statements), access.readers(statements), needed)
    return k.with_body(kernel, joiner.body(kernel.body))


@dataclass(frozen=True, eq=False)
class _Load:
    """A load that is the only statement in the unrolled loops around it.

    Attributes:
        stmt: the outermost loop, or the load if there is none.
        loops: the loops, outermost first.
        copy: the load.
    """

    stmt: k.Stmt
    loops: tuple[k.For, ...]
    copy: k.Copy

    def within(self, loops: Sequence[k.For]) -> k.Copy | None:
        """The load with the symbols of the outermost of these loops; None if the extents differ."""
        if len(self.loops) > len(loops) or any(a.extent is not b.extent for a, b in zip(self.loops, loops)):
            return None
        table = {a.symbol: b.symbol for a, b in zip(self.loops, loops)}
        moved = access.map_expressions(self.copy, lambda e: substitute(e, table))
        assert isinstance(moved, k.Copy)
        return moved


@dataclass(frozen=True, eq=False)
class _Join:
    """A join whose pieces share registers.

    Attributes:
        pieces: the loads of the pieces, in the order in which they are selected.
        joined: the statements that select, and their replacements.
        is_filled: whether there may be positions at which no piece is loaded.
    """

    pieces: tuple[_Load, ...]
    joined: dict[k.Stmt, tuple[k.Stmt, ...]]
    is_filled: bool


@dataclass(frozen=True)
class _Joiner:
    """The state of the pass.

    Attributes:
        writers, readers: the number of statements that write and read each buffer.
        needed: the conditions that hold wherever a buffer's value is needed.
    """

    writers: Counter[k.Buffer]
    readers: Counter[k.Buffer]
    needed: Mapping[k.Buffer, Conditions]

    def body(self, body: tuple[k.Stmt, ...]) -> tuple[k.Stmt, ...]:
        body = k.body_of(body, [k.with_children(stmt, self.body) for stmt in body])
        loads = {
            load.copy.dst.buffer: load for load in _loads(body) if self._is_private(load.copy.dst.buffer)
        }
        if not loads:
            return body
        joins = [join for stmt in body for join in self._joins(stmt, (), loads)]
        if not joins:
            return body
        unused = access.touched_in(body)
        for join in joins:
            body = _joined(body, join)
        unused -= access.touched_in(body)
        return tuple([stmt for stmt in body if not isinstance(stmt, k.Alloc) or stmt.buffer not in unused])

    def _is_private(self, buffer: k.Buffer) -> bool:
        return (
            self.writers[buffer] == self.readers[buffer] == 1
            and buffer.space is k.Space.LOCAL
            and as_int(buffer.size) is not None
        )

    def _joins(
        self, stmt: k.Stmt, loops: tuple[k.For, ...], loads: Mapping[k.Buffer, _Load]
    ) -> Iterator[_Join]:
        if not isinstance(stmt, k.For) or not stmt.unroll:
            return
        loops = (*loops, stmt)
        choices = {each.dst.buffer: each for each in stmt.body if _is_choice(each)}
        inner = {each.fill.buffer for each in choices.values() if isinstance(each.fill, k.Ref)}
        for buffer, choice in choices.items():
            if buffer not in inner:
                found = self._join(choice, loops, choices, loads)
                if found is not None:
                    yield found
        for each in stmt.body:
            yield from self._joins(each, loops, loads)

    def _join(
        self,
        last: k.Copy,
        loops: tuple[k.For, ...],
        choices: Mapping[k.Buffer, k.Copy],
        loads: Mapping[k.Buffer, _Load],
    ) -> _Join | None:
        """The join that ends with the choice `last`, if its pieces may share registers."""
        chosen: list[tuple[k.Ref, Expr | None]] = []
        joined: dict[k.Stmt, tuple[k.Stmt, ...]] = {}
        choice = last
        while True:
            assert isinstance(choice.src, k.Ref) and isinstance(choice.fill, k.Ref)
            chosen.append((choice.src, choice.pred))
            joined[choice] = ()
            following = choices.get(choice.fill.buffer)
            if following is None or following.dst != choice.fill or not self._is_private(choice.fill.buffer):
                break
            choice = following
        chosen.append((choice.fill, None))
        if not all(ref.buffer in loads for ref, _ in chosen):
            return None
        pieces = [loads[ref.buffer] for ref, _ in chosen]
        needed = self.needed.get(last.dst.buffer, Conditions())
        if not _fit(pieces, chosen, loops, needed):
            return None
        joined[last] = (with_pred(replace(last, src=_within(chosen[-1][0], pieces)), k.TRUE),)
        return _Join(tuple(pieces), joined, bool(needed))


def _within(ref: k.Ref, pieces: Sequence[_Load]) -> k.Ref:
    return replace(ref, buffer=pieces[0].copy.dst.buffer)


def _is_choice(stmt: k.Stmt) -> TypeGuard[k.Copy]:
    return (
        isinstance(stmt, k.Copy)
        and stmt.width == 1
        and stmt.pred is not k.TRUE
        and isinstance(stmt.src, k.Ref)
        and isinstance(stmt.fill, k.Ref)
        and stmt.src.buffer.space is stmt.fill.buffer.space is stmt.dst.buffer.space is k.Space.LOCAL
    )


def _loads(body: Sequence[k.Stmt]) -> Iterator[_Load]:
    for outer in body:
        loops, stmt = single_nest(outer)
        if is_load(stmt) and stmt.covering is None:
            yield _Load(outer, loops, stmt)


def _fit(
    pieces: Sequence[_Load],
    chosen: Sequence[tuple[k.Ref, Expr | None]],
    loops: tuple[k.For, ...],
    needed: Conditions,
) -> bool:
    """Whether the pieces may share registers.

    Each piece must be loaded exactly where it is selected and `needed`, and to the same place as the others.
    """
    buffers = dict.fromkeys(piece.copy.dst.buffer for piece in pieces)
    kinds = {(buffer.dtype, buffer.size) for buffer in buffers}
    held = sum((as_int(buffer.size) or 0) * buffer.dtype.size for buffer in buffers)
    if len(buffers) < len(pieces) or len(kinds) > 1 or held <= MOST_HELD:
        return False
    places: set[tuple[Expr, Expr, int]] = set()
    before: list[Expr] = []
    are_long = _are_long([pred for _, pred in chosen[:-1]])
    for piece, (ref, pred) in zip(pieces, chosen):
        load = piece.within(loops)
        if load is None:
            return False
        low, high = bounds(ref.index - load.dst.index)
        if low is None or high is None or low < 0 or high >= load.width:
            return False
        lanes = {loop.symbol for loop in loops[len(piece.loops) :]}
        conditions = frozenset[Expr]() if pred is None else conditions_of(pred)
        if not all((are_long or _is_uniform(c)) and lanes.isdisjoint(c.free_symbols) for c in conditions):
            return False
        # A piece overwrites the pieces that are selected after it, so it may be loaded only where it is
        # selected.
        if not conditions <= conditions_of(load.pred) <= {*conditions, *before, *needed}:
            return False
        places.add((ref.index, load.dst.index, load.width))
        before += [lnot(condition) for condition in conditions] if len(conditions) == 1 else []
    return len(places) == 1


def _are_long(preds: Sequence[Expr | None]) -> bool:
    """Whether the consecutive pieces that these conditions select are long."""
    ends = [as_int(pred.args[1]) if isinstance(pred, Lt) else None for pred in preds]
    along = {pred.args[0] for pred in preds if isinstance(pred, Lt)}
    if len(along) != 1:
        return False
    known = [end for end in ends if end is not None]
    return len(known) == len(preds) and all(b - a >= LONG_PIECE for a, b in zip((0, *known), known))


def _is_uniform(condition: Expr) -> bool:
    """Whether a condition has one value in all threads of a warp, if warps lie along x."""

    def visit(e: Expr, args: tuple[Expr, ...]) -> Expr:
        if isinstance(e, FloorDiv) and (as_int(args[1]) or 1) % WARP_SIZE == 0:
            return const(0)
        if isinstance(e, (Lt, Le)) and _is_of_whole_warps(e):
            return const(0)
        return build(e.kind, args) if args else e

    threads = {k.index_name(axis) for axis in k.THREAD_AXES}
    return not any(symbol.name in threads for symbol in fold(condition, visit, {}).free_symbols)


def _is_of_whole_warps(e: Lt | Le) -> bool:
    """Whether a comparison of a multiple of threadIdx.x has one value in a warp, as `t * 4 < n * 128` has."""
    slack = e.args[1] - e.args[0] - (1 if isinstance(e, Lt) else 0)
    names = [k.index_name(axis) for axis in k.THREAD_AXES]
    moving = [
        (core, factor) for core, factor in slack.terms if {s.name for s in core.free_symbols} & {*names}
    ]
    if len(moving) != 1 or not isinstance(moving[0][0], Symbol) or moving[0][0].name != names[0]:
        return False
    [(thread, factor)] = moving
    warp = WARP_SIZE * abs(factor)
    if not divides(warp, slack - factor * thread - slack.constant):
        return False
    # In a warp the slack is a multiple of `warp` plus a number between these two. Its sign does not change if
    # both have the same quotient by `warp`.
    ends = (slack.constant, slack.constant + factor * (WARP_SIZE - 1))
    return min(ends) // warp == max(ends) // warp


def _joined(body: tuple[k.Stmt, ...], join: _Join) -> tuple[k.Stmt, ...]:
    """`body` with the loads of all pieces at the position of the last of them."""
    positions = {body.index(piece.stmt) for piece in join.pieces}
    between = body[min(positions) : max(positions) + 1]
    if not all(isinstance(stmt, k.Alloc) or _only_loads(stmt) for stmt in between):
        return body
    table = {piece.copy.dst.buffer: join.pieces[0].copy.dst.buffer for piece in join.pieces}
    kept = [stmt for position, stmt in enumerate(body) if position not in positions]
    place = max(positions) + 1 - len(positions)
    first, *others = reversed(join.pieces)
    kept[place:place] = [_to_common(first.stmt, table, join.is_filled)]
    kept[place + 1 : place + 1] = [_to_common(piece.stmt, table) for piece in others]
    return k.rewritten(tuple(kept), lambda stmt: join.joined.get(stmt, (stmt,)))


def _only_loads(stmt: k.Stmt) -> bool:
    return all(isinstance(each, k.For) or is_load(each) for each in k.walk((stmt,)))


def _to_common(load: k.Stmt, table: dict[k.Buffer, k.Buffer], is_filled: bool = False) -> k.Stmt:
    """The load with the common registers as its destination.

    Where there is nothing to load it leaves them unchanged, or fills them if `is_filled`.
    """
    if isinstance(load, k.Copy):
        dst = replace(load.dst, buffer=table[load.dst.buffer])
        if is_filled:
            return replace(load, dst=dst)
        return replace(load, dst=dst, fill=None, fill_is_value=False)
    return k.with_children(load, lambda inner: tuple([_to_common(each, table, is_filled) for each in inner]))
