"""Loads the aligned vectors that contain several unaligned vectors of a thread once.

    a_around[0:16] = x[i - n:+16];  a[0:8] = a_around[n:+8]
    b_around[0:16] = x[i + 2 - m:+16];  b[0:8] = b_around[m:+8]

becomes, since the second vector starts two elements after the first,

    around[0:24] = x[i - n:+24]
    near[0:16] = around[n:+16]
    a[k] = near[k];  b[k] = near[k + 2]

Differences and stencils read neighbours of an element by such vectors. Separately, each vector takes two
loads and a shift by a distance that is known only at run time. Together they take three loads, of which the
last is rarely needed, and one such shift. If one vector is not contiguous in memory, all of them are loaded
by element.

Vectors with a constant shift stay separate, since the shift costs little and each vector then has its own
predicates. (Four neighbours in 16384 x 4096 bfloat16 with reflected ends take 87 us separately on an H200.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.lower.guards import conditions_of, zero
from fusewright.lower.passes.loads import is_load
from fusewright.lower.passes.registers import Registers
from fusewright.lower.passes.unrolled_load import common_symbols, nested_in
from fusewright.sym import (
    TRUE,
    ZERO,
    Expr,
    as_int,
    const,
    land,
    le,
    lnot,
    lor,
    lt,
    substitute,
    symbol,
)


def share_windows(kernel: k.Kernel) -> k.Kernel:
    if sum(isinstance(stmt, k.Window) for stmt in k.walk(kernel.body)) < 2:
        return kernel
    written = {buffer for buffer in access.writers(k.walk(kernel.body)) if buffer.space is k.Space.GLOBAL}
    sharing = _Sharing(written)
    body = sharing.body(kernel.body)
    unused = sharing.unused
    kept = k.rewritten(body, lambda s: [] if isinstance(s, k.Alloc) and s.buffer in unused else [s])
    return sharing.registers.declared(kernel, kept)


@dataclasses.dataclass(frozen=True)
class _Leaf:
    """A statement in unrolled loops, and the position in the body of the outermost loop."""

    stmt: k.Stmt
    loops: tuple[k.For, ...]
    position: int

    def common(self, expr: Expr) -> Expr:
        """An expression of the leaf in common symbols (`common_symbols`)."""
        return substitute(expr, common_symbols(self.loops))

    def own(self, expr: Expr) -> Expr:
        """An expression in common symbols, in the leaf's own symbols."""
        return substitute(expr, {common: own for own, common in common_symbols(self.loops).items()})

    def around(self, body: Sequence[k.Stmt]) -> list[k.Stmt]:
        """The leaf's loops with other statements in them."""
        return list(nested_in(self.loops, tuple(body)))


@dataclasses.dataclass(frozen=True)
class _Vector:
    """A load of an unaligned vector.

    The properties that are expressions use common symbols (`_Leaf.common`).

    Attributes:
        loads: the loads of the two aligned vectors that contain it.
        window: the statement that selects it from them.
        edge: the statement that loads its elements one by one under some condition, or None.
    """

    loads: tuple[_Leaf, _Leaf]
    window: _Leaf
    edge: _Leaf | None

    @property
    def first(self) -> k.Copy:
        copy = self.loads[0].stmt
        assert isinstance(copy, k.Copy)
        return copy

    @property
    def source(self) -> k.Ref:
        src = self.first.src
        assert isinstance(src, k.Ref)
        return src

    @property
    def chosen(self) -> k.Window:
        window = self.window.stmt
        assert isinstance(window, k.Window)
        return window

    @property
    def start(self) -> Expr:
        """The index of its first element in memory."""
        return self.loads[0].common(self.source.index) + self.offset

    @property
    def offset(self) -> Expr:
        return self.window.common(self.chosen.offset)

    @property
    def place(self) -> Expr:
        return self.window.common(self.chosen.dst.index)

    @property
    def pred(self) -> Expr:
        return self.loads[0].common(self.first.pred)

    @property
    def begins_anywhere(self) -> bool:
        """Whether its offset is known only at run time, and both aligned vectors are loaded if either is."""
        if as_int(self.offset) is not None:
            return False
        second = self.loads[1].stmt
        assert isinstance(second, k.Copy)
        return self.loads[1].common(second.pred) is land(self.pred, lt(ZERO, self.offset))

    @property
    def begins(self) -> Expr:
        """The condition that the first aligned vector begins in the tensor's memory."""
        return le(ZERO, self.start - self.offset)

    @property
    def ends(self) -> Expr:
        """The condition that the second aligned vector ends in the tensor's memory."""
        return le(self.start - self.offset + 2 * self.first.width, self.source.buffer.size)

    @property
    def wanted(self) -> Expr:
        """The condition that the element of a lane of the first aligned vector is used."""
        covering = self.first.covering
        return TRUE if covering is None else self.loads[0].common(covering.wanted)

    def key(self) -> tuple[object, ...]:
        """The properties that are equal for vectors that can be loaded together."""
        first = self.first
        extents = tuple(loop.extent for loop in self.window.loops)
        return self.source.buffer, first.width, first.cache, first.fill, first.fill_is_value, extents


class _Sharing:
    """The state of the pass.

    Attributes:
        written: the global memory that the kernel writes.
        registers: the registers that hold the aligned vectors of several vectors.
        unused: the registers that held the aligned vectors of one vector.
    """

    def __init__(self, written: set[k.Buffer]) -> None:
        self.written = written
        self.registers = Registers()
        self.unused: set[k.Buffer] = set()

    def body(self, body: tuple[k.Stmt, ...]) -> tuple[k.Stmt, ...]:
        """`body` and its nested bodies, with neighbouring vectors loaded together."""
        made: dict[int, list[k.Stmt]] = {}
        for together in _groups(_vectors(body, self.written)):
            if not _is_named_later(body, together):
                made |= self._shared(together)
        result: list[k.Stmt] = []
        for position, stmt in enumerate(body):
            result += made.get(position, [k.with_children(stmt, self.body)])
        return k.body_of(body, result)

    def _shared(self, vectors: Sequence[_Vector]) -> dict[int, list[k.Stmt]]:
        """The statements that replace those of the vectors, by position in the body.

        Args:
            vectors: the vectors in memory order.
        """
        base = vectors[0]
        width, count = base.first.width, as_int(base.chosen.dst.buffer.size)
        assert count is not None
        dtype, name = base.chosen.dst.buffer.dtype, base.source.buffer.name
        around = self.registers.new(f"{name}_around{len(self.registers)}", dtype, 3 * count)
        near = self.registers.new(f"{name}_near{len(self.registers)}", dtype, 2 * count)
        pred = _are_there(vectors)
        self.unused.update(vector.first.dst.buffer for vector in vectors)
        loading = min((v.loads[0] for v in vectors), key=lambda leaf: leaf.position)
        choosing = min((v.window for v in vectors), key=lambda leaf: leaf.position)
        made = {leaf.position: list[k.Stmt]() for v in vectors for leaf in (*v.loads, v.window)}
        made[loading.position] = loading.around(_loads(vectors, pred, around))
        windows = [
            k.Window(
                k.Ref(near, choosing.own(2 * base.place) + number * width),
                k.Ref(around, choosing.own(3 * base.place) + number * width),
                choosing.own(base.offset),
                width,
            )
            for number in range(2)
        ]
        made[choosing.position] = choosing.around(windows)
        for vector in vectors:
            window, lane = vector.window, symbol("lane", lo=0, hi=width - 1)
            at = window.own(2 * base.place + (vector.start - base.start)) + lane
            dst = k.Ref(vector.chosen.dst.buffer, vector.chosen.dst.index + lane)
            chosen = k.For(lane, const(width), (k.Copy(dst, k.Ref(near, at)),), unroll=True)
            made[window.position] += window.around([chosen])
            for position, edge in _edge(vector, pred):
                made.setdefault(position, []).extend(edge)
        return made


def _are_there(vectors: Sequence[_Vector]) -> Expr:
    """The condition that all vectors are loaded as a whole and their aligned vectors are in memory."""
    base, last = vectors[0], vectors[-1]
    others = (conditions_of(v.pred) - conditions_of(land(v.begins, v.ends)) for v in vectors)
    rest = sorted(set().union(*others), key=lambda e: e.order)
    return land(*rest, base.begins, last.ends)


def _loads(vectors: Sequence[_Vector], pred: Expr, around: k.Buffer) -> list[k.Stmt]:
    """The loads of the three aligned vectors, for the loops of the first load."""
    base, last = vectors[0], vectors[-1]
    first, width = base.first, base.first.width
    leaf = min((v.loads[0] for v in vectors), key=lambda leaf: leaf.position)
    lane = symbol("lane", lo=0, hi=width - 1)
    start = base.start - base.offset
    reach = base.offset + (last.start - base.start)
    loads: list[k.Stmt] = []
    for number in range(3):
        wanted = lor(*(_wanted(v, lane + number * width + start - (v.start - v.offset)) for v in vectors))
        there = pred if number < 2 else land(pred, lt(width, reach))
        dst = k.Ref(around, leaf.own(3 * base.place) + number * width)
        src = k.Ref(base.source.buffer, leaf.own(start + number * width))
        covering = k.Covering(lane, leaf.own(wanted))
        fill = None if there is TRUE else first.fill or zero(first.dst.buffer.dtype)
        loads.append(
            dataclasses.replace(first, dst=dst, src=src, pred=leaf.own(there), fill=fill, covering=covering)
        )
    return loads


def _wanted(vector: _Vector, beyond: Expr) -> Expr:
    covering = vector.first.covering
    return TRUE if covering is None else substitute(vector.wanted, {covering.lane: beyond})


def _edge(vector: _Vector, pred: Expr) -> Iterator[tuple[int, list[k.Stmt]]]:
    """Yields the loads by element for vectors that are not loaded together, with their position."""
    edge, window, first = vector.edge, vector.window, vector.first
    if edge is not None:
        assert isinstance(edge.stmt, k.If)
        yield edge.position, edge.around([dataclasses.replace(edge.stmt, cond=lnot(edge.own(pred)))])
    elif pred is not vector.pred:
        lane = symbol("lane", lo=0, hi=first.width - 1)
        dst = k.Ref(vector.chosen.dst.buffer, vector.chosen.dst.index + lane)
        src = k.Ref(vector.source.buffer, window.own(vector.start) + lane)
        wanted = window.own(_wanted(vector, lane + vector.offset))
        fill = None if wanted is TRUE else first.fill or zero(first.dst.buffer.dtype)
        is_value = first.fill_is_value and first.fill is not None
        each = k.For(
            lane, const(first.width), (k.Copy(dst, src, 1, first.cache, wanted, fill, is_value),), unroll=True
        )
        yield window.position, window.around([k.If(lnot(window.own(pred)), (each,))])


def _vectors(body: Sequence[k.Stmt], written: set[k.Buffer]) -> list[_Vector]:
    """The unaligned vectors that statements of the body load."""
    loads: dict[k.Buffer, list[_Leaf]] = {}
    edges: dict[k.Buffer, list[_Leaf]] = {}
    windows: list[_Leaf] = []
    for position, stmt in enumerate(body):
        leaves = list(_leaves(stmt, (), position))
        if len(leaves) == 1 and isinstance(leaves[0].stmt, k.Window):
            windows += leaves
        elif all(is_load(leaf.stmt) for leaf in leaves):
            for leaf in leaves:
                assert isinstance(leaf.stmt, k.Copy)
                loads.setdefault(leaf.stmt.dst.buffer, []).append(leaf)
        elif len(leaves) == 1 and isinstance(leaves[0].stmt, k.If):
            for buffer in access.written_in(leaves[0].stmt.body):
                edges.setdefault(buffer, []).append(leaves[0])
    found: list[_Vector] = []
    for window in windows:
        assert isinstance(window.stmt, k.Window)
        own, edge = loads.get(window.stmt.src.buffer, []), edges.get(window.stmt.dst.buffer, [])
        if len(own) == 2 and len(edge) <= 1 and len(own[0].loops) == len(window.loops):
            vector = _Vector((own[0], own[1]), window, edge[0] if edge else None)
            if vector.source.buffer not in written and vector.begins_anywhere:
                found.append(vector)
    return found


def _leaves(stmt: k.Stmt, loops: tuple[k.For, ...], position: int) -> Iterator[_Leaf]:
    if isinstance(stmt, k.For) and stmt.unroll:
        for inner in stmt.body:
            yield from _leaves(inner, (*loops, stmt), position)
    else:
        yield _Leaf(stmt, loops, position)


def _groups(vectors: Sequence[_Vector]) -> Iterator[list[_Vector]]:
    """Yields groups of vectors that three aligned vectors contain, in memory order.

    Groups of which all vectors start at the same element are left out.
    """
    by_key: dict[tuple[object, ...], list[_Vector]] = {}
    for vector in vectors:
        by_key.setdefault(vector.key(), []).append(vector)
    for rest in by_key.values():
        while rest:
            distances = [(as_int(vector.start - rest[0].start), vector) for vector in rest]
            near = sorted(((n, v) for n, v in distances if n is not None), key=lambda pair: pair[0])
            together = [v for n, v in near if n - near[0][0] <= v.first.width]
            if together[0].start is not together[-1].start:
                yield together
            rest = [vector for vector in rest if vector not in together]


def _is_named_later(body: Sequence[k.Stmt], vectors: Sequence[_Vector]) -> bool:
    """Whether the loads depend on a symbol that is defined between the first and the last of them."""
    places = [leaf.position for vector in vectors for leaf in vector.loads]
    named = access.defined_symbols(k.walk(body[min(places) : max(places) + 1]))
    used = (e for v in vectors for e in (v.start, v.offset, v.pred, v.wanted))
    return not named.isdisjoint(symbol for e in used for symbol in e.free_symbols)
