"""Loads the pieces of a join to the same registers if each warp has elements of only one piece.

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
from fusewright.lower.guards import conditions_of, with_pred
from fusewright.lower.passes.loads import is_load
from fusewright.sym import Expr, FloorDiv, as_int, bounds, build, const, fold, lnot, substitute

# Bytes of all pieces in registers up to which each may have its own: half of what a thread has where an SM is
# full (an H200: eight pieces of 16 bytes that are stacked take 67 us in common registers, 80 in their own).
MOST_HELD = 64


def join_pieces(kernel: k.Kernel) -> k.Kernel:
    statements = list(k.walk(kernel.body))
    if not any(_is_choice(stmt) for stmt in statements):
        return kernel
    joiner = _Joiner(access.writers(statements), access.readers(statements))
    return k.with_body(kernel, joiner.body(kernel.body))


@dataclass(frozen=True, eq=False)
class _Load:
    """A load with nothing else in the loops around it."""

    stmt: k.Stmt
    loops: tuple[k.For, ...]
    copy: k.Copy

    def within(self, loops: Sequence[k.For]) -> k.Copy | None:
        """The load as if in the outermost of these loops; None if they do not go through as many."""
        if len(self.loops) > len(loops) or any(a.extent is not b.extent for a, b in zip(self.loops, loops)):
            return None
        table = {a.symbol: b.symbol for a, b in zip(self.loops, loops)}
        moved = access.map_expressions(self.copy, lambda e: substitute(e, table))
        assert isinstance(moved, k.Copy)
        return moved


@dataclass(frozen=True, eq=False)
class _Join:
    """Attributes:
    pieces: the first that is chosen first. joined: statements that choose, by what replaces them.
    """

    pieces: tuple[_Load, ...]
    joined: dict[k.Stmt, tuple[k.Stmt, ...]]


@dataclass(frozen=True)
class _Joiner:
    """How many statements write and read each buffer."""

    writers: Counter[k.Buffer]
    readers: Counter[k.Buffer]

    def body(self, body: tuple[k.Stmt, ...]) -> tuple[k.Stmt, ...]:
        body = k.body_of(body, [k.with_children(stmt, self.body) for stmt in body])
        loads = {
            load.copy.dst.buffer: load for load in _loads(body) if self._is_private(load.copy.dst.buffer)
        }
        if not loads:
            return body
        joins = [join for stmt in body for join in self._joins(stmt, (), loads)]
        for join in joins:
            body = _joined(body, join)
        if joins:
            used = access.touched_in(body)
            body = tuple([stmt for stmt in body if not isinstance(stmt, k.Alloc) or stmt.buffer in used])
        return body

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
        """The join whose value `last` chooses, if its pieces may be in the same registers."""
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
        if not _fit(pieces, chosen, loops):
            return None
        joined[last] = (with_pred(replace(last, src=_within(chosen[-1][0], pieces)), k.TRUE),)
        return _Join(tuple(pieces), joined)


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
        loops: list[k.For] = []
        stmt = outer
        while isinstance(stmt, k.For) and stmt.unroll and len(stmt.body) == 1:
            loops.append(stmt)
            [stmt] = stmt.body
        if is_load(stmt) and stmt.covering is None:
            yield _Load(outer, tuple(loops), stmt)


def _fit(
    pieces: Sequence[_Load], chosen: Sequence[tuple[k.Ref, Expr | None]], loops: tuple[k.For, ...]
) -> bool:
    """Whether each piece is loaded wherever it is chosen, to the place where the others are."""
    buffers = dict.fromkeys(piece.copy.dst.buffer for piece in pieces)
    alike = {(buffer.dtype, buffer.size) for buffer in buffers}
    held = sum((as_int(buffer.size) or 0) * buffer.dtype.size for buffer in buffers)
    if len(buffers) < len(pieces) or len(alike) > 1 or held <= MOST_HELD:
        return False
    places: set[tuple[Expr, Expr, int]] = set()
    before: list[Expr] = []
    for piece, (ref, pred) in zip(pieces, chosen):
        load = piece.within(loops)
        if load is None:
            return False
        low, high = bounds(ref.index - load.dst.index)
        if low is None or high is None or low < 0 or high >= load.width:
            return False
        lanes = {loop.symbol for loop in loops[len(piece.loops) :]}
        conditions = frozenset[Expr]() if pred is None else conditions_of(pred)
        if not all(_is_uniform(c) and lanes.isdisjoint(c.free_symbols) for c in conditions):
            return False
        # Loaded where it is chosen; and only there, as it overwrites what would be chosen after it.
        if not conditions <= conditions_of(load.pred) <= {*conditions, *before}:
            return False
        places.add((ref.index, load.dst.index, load.width))
        before += [lnot(condition) for condition in conditions] if len(conditions) == 1 else []
    return len(places) == 1


def _is_uniform(condition: Expr) -> bool:
    """Whether all threads of a warp agree, of a block whose warps lie along x."""

    def visit(e: Expr, args: tuple[Expr, ...]) -> Expr:
        if isinstance(e, FloorDiv) and (as_int(args[1]) or 1) % WARP_SIZE == 0:
            return const(0)
        return build(e.kind, args) if args else e

    threads = {k.index_name(axis) for axis in k.THREAD_AXES}
    return not any(symbol.name in threads for symbol in fold(condition, visit, {}).free_symbols)


def _joined(body: tuple[k.Stmt, ...], join: _Join) -> tuple[k.Stmt, ...]:
    """`body` with the loads of the pieces in the place of the last of them."""
    positions = {body.index(piece.stmt) for piece in join.pieces}
    between = body[min(positions) : max(positions) + 1]
    if not all(isinstance(stmt, k.Alloc) or _only_loads(stmt) for stmt in between):
        return body
    table = {piece.copy.dst.buffer: join.pieces[0].copy.dst.buffer for piece in join.pieces}
    kept = [stmt for position, stmt in enumerate(body) if position not in positions]
    place = max(positions) + 1 - len(positions)
    kept[place:place] = [_to_common(piece.stmt, table) for piece in reversed(join.pieces)]
    return k.rewritten(tuple(kept), lambda stmt: join.joined.get(stmt, (stmt,)))


def _only_loads(stmt: k.Stmt) -> bool:
    return all(isinstance(each, k.For) or is_load(each) for each in k.walk((stmt,)))


def _to_common(load: k.Stmt, table: dict[k.Buffer, k.Buffer]) -> k.Stmt:
    """The load to the registers of all pieces, which it leaves as they are where there is nothing to load."""
    if isinstance(load, k.Copy):
        dst = replace(load.dst, buffer=table[load.dst.buffer])
        return replace(load, dst=dst, fill=None, fill_is_value=False)
    return k.with_children(load, lambda inner: tuple([_to_common(each, table) for each in inner]))
