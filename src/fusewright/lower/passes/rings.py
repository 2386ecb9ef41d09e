"""Fills rings ahead of their readers, by a separate warp or by a thread of the block.

    for k:                              a warp:                          the others:
        for c: start x[k*C + c]         for k, c:                        for k:
        for c: a += x[k*C + c]    ->        wait until it is empty           for c:
        for c: y = x[k*C + c] - a           start x[k*C + c]                     wait until it is full
                                            arrive: it is full                   a += x[k*C + c]
                                                                             for c:
                                                                                 y = x[k*C + c] - a
                                                                                 fence; arrive: it is empty

Without a separate warp, one thread starts the first copies before the loops, and a further copy whenever a
stage is no longer read. Loops around copies and loops around reads count the stages in the same way. So the
number of a stage determines its slot and how often the slot was filled before.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fusewright.core.errors import ScheduleError
from fusewright.core.hardware import WARP_GROUP, WARP_SIZE
from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.sym import (
    Expr,
    Symbol,
    as_int,
    const,
    eq,
    land,
    lnot,
    lt,
    minimum,
    product,
    substitute,
    symbol,
)

# The names of the roles.
_COMPUTE, _LOAD = "compute", "load"


def fill_rings(kernel: k.Kernel) -> k.Kernel:
    if not kernel.rings:
        return kernel
    declared, work = _parted(kernel.body)
    copies = _copies(work)
    work = _without_copies(work)
    before: list[k.Stmt] = []
    for ring in kernel.rings:
        nest = _Nest.of(ring, copies)
        if ring.axis is None:
            before += nest.first(kernel)
        work = _Reader(kernel, ring, nest, _loop_symbols(work)).body(work, ())
    body = (*declared, *before, *work)
    loading = [ring for ring in kernel.rings if ring.axis is not None]
    kernel = dataclasses.replace(kernel, body=body, rings=())
    return _with_roles(kernel, len(declared), loading, copies) if loading else kernel


def _parted(body: tuple[k.Stmt, ...]) -> tuple[tuple[k.Stmt, ...], tuple[k.Stmt, ...]]:
    """The declarations, names and mbarrier initialisations of a body, and the rest, which roles divide."""
    count = max(i for i, s in enumerate(body) if isinstance(s, (k.Alloc, k.InitMbarriers))) + 1
    before = (k.Alloc, k.InitMbarriers, k.Let, k.LetMisalignment)
    declared = tuple(stmt for stmt in body[:count] if isinstance(stmt, before))
    loaded = tuple(stmt for stmt in body[:count] if not isinstance(stmt, before))
    return declared, (*loaded, *body[count:])


# ---- the copies --------------------------------------------------------------------------------------------


def _copies(body: Iterable[k.Stmt]) -> tuple[k.Stmt, ...]:
    """The bulk copies with the loops and conditions around them."""
    result: list[k.Stmt] = []
    for stmt in body:
        if isinstance(stmt, k.BulkCopy):
            result.append(stmt)
        elif any(isinstance(inner, k.BulkCopy) for inner in k.walk(k.children(stmt))):
            result.append(k.with_children(stmt, _copies))
    return tuple(result)


def _without_copies(body: tuple[k.Stmt, ...]) -> tuple[k.Stmt, ...]:
    def left(stmt: k.Stmt) -> list[k.Stmt]:
        is_emptied = isinstance(stmt, k.NESTING) and not stmt.body
        return [] if is_emptied or isinstance(stmt, k.BulkCopy) else [stmt]

    return k.rewritten(body, left)


@dataclass(frozen=True)
class _Nest:
    """How the stages of a ring are filled.

    Attributes:
        loops: the loops that count the stages, outermost first.
        inside: the statements that fill one stage.
    """

    ring: k.Ring
    loops: tuple[k.For, ...]
    inside: tuple[k.Stmt, ...]

    @staticmethod
    def of(ring: k.Ring, copies: tuple[k.Stmt, ...]) -> _Nest:
        loops: list[k.For] = []
        body = _of_ring(copies, ring)
        while len(body) == 1 and isinstance(body[0], k.For) and body[0].symbol in ring.filled.free_symbols:
            loops.append(body[0])
            body = body[0].body
        return _Nest(ring, tuple(loops), body)

    @property
    def count(self) -> Expr:
        """The number of stages that a block fills in all."""
        return product(loop.extent for loop in self.loops)

    def filling(self, number: Expr, emptied: Expr) -> list[k.Stmt]:
        """The statements with which a thread fills stage `number` after stage `emptied` has been read."""
        ring, left = self.ring, number
        values: dict[Symbol, Expr] = {}
        for loop in reversed(self.loops[1:]):
            values[loop.symbol] = left % loop.extent
            left = left // loop.extent
        if self.loops:
            values[self.loops[0].symbol] = left
        return [
            _emptied(ring, emptied),
            *_substituted(self.inside, values),
            k.Arrive(k.Ref(ring.full, number % ring.stages)),
        ]

    def first(self, kernel: k.Kernel) -> list[k.Stmt]:
        """The statements that fill the first stages before the loops."""
        count = minimum(self.ring.ahead, self.count)
        i = symbol(f"{self.ring.buffer.name}_first", lo=0, hi=self.ring.ahead - 1)
        body = self.filling(i, i - self.ring.stages)[1:]  # without the wait: the stages are empty
        return [k.If(_first_thread(kernel), (k.For(i, count, tuple(body)),))]


def _emptied(ring: k.Ring, number: Expr) -> k.Wait:
    """Waits until stage `number` is no longer read. A negative number needs no wait."""
    return k.Wait(k.Ref(ring.empty, number % ring.stages), number // ring.stages)


def _of_ring(body: Sequence[k.Stmt], ring: k.Ring) -> tuple[k.Stmt, ...]:
    """The copies of one ring, with the loops and conditions around them."""
    result: list[k.Stmt] = []
    for stmt in body:
        if isinstance(stmt, k.BulkCopy):
            result += [stmt] if stmt.dst.buffer is ring.buffer else []
        else:
            inner = _of_ring(k.children(stmt), ring)
            result += [k.with_children(stmt, lambda _, inner=inner: inner)] if inner else []  # type: ignore[misc]
    return tuple(result)


def _substituted(body: Sequence[k.Stmt], values: dict[Symbol, Expr]) -> tuple[k.Stmt, ...]:
    def change(stmt: k.Stmt) -> list[k.Stmt]:
        return [access.map_expressions(stmt, lambda e: substitute(e, values))]

    return k.rewritten(tuple(body), change)


def _first_thread(kernel: k.Kernel) -> Expr:
    several = (p for p, extent in zip(k.THREAD_AXES, kernel.block) if as_int(extent) != 1)
    extents = dict(zip(k.THREAD_AXES, kernel.block))
    return land(*(eq(k.index_symbol(p, extents[p]), 0) for p in several))


# ---- the reads ---------------------------------------------------------------------------------------------


@dataclass
class _Reader:
    """Makes the readers of a ring wait for its stages and release them after the last use.

    Attributes:
        kernel, ring, nest: the kernel, the ring, and how it is filled.
        symbols: the symbols of all loops.
    """

    kernel: k.Kernel
    ring: k.Ring
    nest: _Nest
    symbols: frozenset[Symbol]

    def body(self, body: tuple[k.Stmt, ...], loops: tuple[k.For, ...]) -> tuple[k.Stmt, ...]:
        """`body`, inside `loops`, with waits and releases around the statements that read the ring."""
        here = self._number(loops)
        readers = [i for i, stmt in enumerate(body) if self._reads(stmt)]
        if not readers:
            return body
        if here is not None:
            return self._in_stage(body, here, readers[0], readers[-1], wait=True, release=True)
        result = list(body)
        groups = [(i, stmt) for i, stmt in enumerate(body) if i in readers]
        if all(isinstance(s, k.For) and self._number((*loops, s)) is not None for _, s in groups):
            self._check_alike(groups, loops)
            for i, stmt in groups:
                assert isinstance(stmt, k.For)
                inner = stmt.body
                reading = [j for j, s in enumerate(inner) if self._reads(s)]
                number = self._number((*loops, stmt))
                assert number is not None
                result[i] = k.with_body(
                    stmt,
                    self._in_stage(
                        inner, number, reading[0], reading[-1], wait=i == readers[0], release=i == readers[-1]
                    ),
                )
            return k.body_of(body, result)
        for i, stmt in groups:
            around = (*loops, stmt) if isinstance(stmt, k.For) else loops
            result[i] = k.with_children(stmt, lambda inner, around=around: self.body(inner, around))  # type: ignore[misc]
        return k.body_of(body, result)

    def _reads(self, stmt: k.Stmt) -> bool:
        return any(self.ring.buffer in access.read_buffers(s) for s in k.walk((stmt,)))

    def _number(self, loops: tuple[k.For, ...]) -> Expr | None:
        """The number of the stage that is read inside `loops` if the innermost one counts it, else None."""
        known = {loop.symbol for loop in loops}
        for number in self.ring.read:
            counting = number.free_symbols & self.symbols
            if counting <= known and (not loops or loops[-1].symbol in counting):
                return number
        return None

    def _check_alike(self, groups: Sequence[tuple[int, k.Stmt]], loops: tuple[k.For, ...]) -> None:
        """Raises ScheduleError unless all loops of a body read the same stages in the same order."""
        first = groups[0][1]
        assert isinstance(first, k.For)
        wanted = self._number((*loops, first))
        for _, stmt in groups[1:]:
            assert isinstance(stmt, k.For)
            number = self._number((*loops, stmt))
            assert number is not None
            if (
                stmt.extent is not first.extent
                or substitute(number, {stmt.symbol: first.symbol}) is not wanted
            ):
                raise ScheduleError(
                    f"{self.ring.buffer.name} is read in loops over other stages: {number} and {wanted}",
                    hint="split and order the loops of all its readers alike",
                )

    def _in_stage(
        self, body: tuple[k.Stmt, ...], number: Expr, first: int, last: int, *, wait: bool, release: bool
    ) -> tuple[k.Stmt, ...]:
        """`body`, in which statements `first` to `last` read a stage.

        Args:
            wait: whether to wait for the stage before the first of these.
            release: whether to release the stage after the last of these.
        """
        ring = self.ring
        result = list(body)
        before = body[last - 1] if last > first else None
        if release and before is not None and self._reads(before) and _are_either(before, body[last]):
            for place in (last - 1, last):
                result[place] = k.with_children(body[place], lambda inner: self._released(inner, number))
        elif release:
            result = list(self._released(body, number))
        if wait:
            result.insert(first, k.Wait(k.Ref(ring.full, number % ring.stages), number // ring.stages))
        return tuple(result)

    def _released(self, body: tuple[k.Stmt, ...], number: Expr) -> tuple[k.Stmt, ...]:
        """`body` with the release of a stage after the last statement that reads it."""
        ring = self.ring
        last = max(i for i, stmt in enumerate(body) if self._reads(stmt))
        done = k.Arrive(k.Ref(ring.empty, number % ring.stages), by_warp=True)
        return (*body[: last + 1], k.ProxyFence(), done, *self._next(number), *body[last + 1 :])

    def _next(self, number: Expr) -> list[k.Stmt]:
        """The statements with which a thread of the block fills a further stage, if no separate warp does."""
        if self.ring.axis is not None:
            return []
        ahead = number + self.ring.ahead
        cond = land(_first_thread(self.kernel), lt(ahead, self.nest.count))
        return [k.If(cond, tuple(self.nest.filling(ahead, ahead - self.ring.stages)))]


def _are_either(one: k.Stmt, other: k.Stmt) -> bool:
    """Whether exactly one of two branches is executed, the same one in all threads."""
    if not isinstance(one, k.If) or not isinstance(other, k.If) or other.cond is not lnot(one.cond):
        return False
    return all(symbol.name not in map(k.index_name, k.THREAD_AXES) for symbol in one.cond.free_symbols)


# ---- roles -------------------------------------------------------------------------------------------------


def _with_roles(
    kernel: k.Kernel, declared: int, rings: Sequence[k.Ring], copies: tuple[k.Stmt, ...]
) -> k.Kernel:
    """The kernel with a role that computes, and a role of additional threads that fills the rings."""
    axis, registers = rings[0].axis, rings[0].registers
    assert axis is not None
    if any((ring.axis, ring.registers) != (axis, registers) for ring in rings):
        raise ScheduleError(
            "circular buffers are filled by different warps",
            expected="one parallel_type and num_registers for all",
            given=", ".join(ring.buffer.name for ring in rings),
        )
    place = k.THREAD_AXES.index(axis)
    count, inner = as_int(kernel.block[place]), as_int(product(kernel.block[:place]))
    needed = WARP_SIZE if registers is None else WARP_GROUP
    if count is None or inner is None or any(as_int(extent) != 1 for extent in kernel.block[place + 1 :]):
        raise ScheduleError(
            f"a warp beyond those along {axis.name} loads {rings[0].buffer.name}",
            expected="a block of constant extents, with one thread along the axes after that",
            given=", ".join(map(str, kernel.block)),
        )
    if count * inner % needed or (needed % inner and inner % needed):
        raise ScheduleError(
            f"a warp beyond those along {axis.name} loads {rings[0].buffer.name}",
            expected=f"a block of a multiple of {needed} threads",
            given=f"{count * inner}",
        )
    more = max(1, needed // inner)
    load, compute = registers or (0, 0)
    thread = land(
        eq(symbol(k.index_name(axis), lo=0, hi=count + more - 1), count),
        *(eq(k.index_symbol(p, e), 0) for p, e in zip(k.THREAD_AXES[:place], kernel.block) if as_int(e) != 1),
    )
    filling = k.If(thread, _fused(_filled(copies, rings, (), _loop_symbols(copies))))
    roles = k.Roles(
        (
            k.Role(_COMPUTE, axis, 0, count, kernel.body[declared:], compute),
            k.Role(_LOAD, axis, count, more, (filling,), load),
        )
    )
    block = list(kernel.block)
    block[place] = const(count + more)
    threads = kernel.max_threads and kernel.max_threads // count * (count + more)
    return dataclasses.replace(
        kernel,
        body=(*kernel.body[:declared], roles),
        block=(block[0], block[1], block[2]),
        max_threads=threads,
    )


def _filled(
    body: Sequence[k.Stmt], rings: Sequence[k.Ring], loops: tuple[Symbol, ...], symbols: frozenset[Symbol]
) -> tuple[k.Stmt, ...]:
    """The copies with waits and arrivals: each stage is filled as soon as it is empty."""
    result: list[k.Stmt] = []
    for ring in rings:
        own = _of_ring(body, ring)
        if not own:
            continue
        if (ring.filled.free_symbols & symbols) <= set(loops):
            number = ring.filled
            result += [
                _emptied(ring, number - (ring.ahead + 1)),
                *own,
                k.Arrive(k.Ref(ring.full, number % ring.stages)),
            ]
            continue
        for stmt in own:
            around = (*loops, stmt.symbol) if isinstance(stmt, k.For) else loops
            result.append(
                k.with_children(stmt, lambda inner, r=ring, a=around: _filled(inner, [r], a, symbols))  # type: ignore[misc]
            )
    return tuple(result)


def _loop_symbols(body: Sequence[k.Stmt]) -> frozenset[Symbol]:
    return frozenset(stmt.symbol for stmt in k.walk(tuple(body)) if isinstance(stmt, k.For))


def _fused(body: tuple[k.Stmt, ...]) -> tuple[k.Stmt, ...]:
    """`body` with consecutive loops of equal extents merged, so that stages are filled as they are read."""
    result: list[k.Stmt] = []
    for stmt in body:
        last = result[-1] if result else None
        if isinstance(stmt, k.For) and isinstance(last, k.For) and stmt.extent is last.extent:
            inner = _substituted(stmt.body, {stmt.symbol: last.symbol})
            result[-1] = k.with_body(last, (*last.body, *inner))
        else:
            result.append(stmt)
    return tuple(k.with_children(stmt, _fused) for stmt in result)
