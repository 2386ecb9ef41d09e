"""Moves computation that is the same for all rows of a vector of columns in front of the loop over the rows.

    for i: x = load; for j < 8: a = s[j] / n; y[j] = x[j] - a
        ->
    for j < 8: a = s[j] / n; v[j] = a
    for i: x = load; for j < 8: a = v[j]; y[j] = x[j] - a

Values that depend only on a reduction of columns, or on the columns' positions, are inlined into the loops of
their readers. The CUDA compiler leaves a division there if it is correctly rounded or under a guard, and it
leaves a sine or cosine.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Sequence
from functools import partial

from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.lower.guards import Conditions, conditions_of
from fusewright.lower.passes.invariants import Known, known_inside, note_values
from fusewright.lower.passes.registers import Registers
from fusewright.sym import ZERO, Symbol, as_int

# Slots (`core.op.Spelling`) of what is moved at least: an addition costs no more than its register.
LEAST_SLOTS = 8
# Elements of a vector at most: each takes a register.
MOST_ELEMENTS = 16


def hoist_vector_invariants(kernel: k.Kernel) -> k.Kernel:
    statements = list(k.walk(kernel.body))
    if not any(map(_takes_long, statements)):
        return kernel
    hoister = _Hoister(access.writers(statements), access.readers(statements))
    return hoister.kept.declared(kernel, hoister.body(kernel.body, {}))


def _takes_long(stmt: k.Stmt) -> bool:
    return isinstance(stmt, k.Compute) and stmt.op.spelling(stmt.dtype).slots >= LEAST_SLOTS


class _Hoister:
    """Attributes:
    writers, readers: how many statements write and read each buffer.
    kept: the buffers that were added, of what is computed once.
    """

    def __init__(self, writers: Counter[k.Buffer], readers: Counter[k.Buffer]) -> None:
        self.writers = writers
        self.readers = readers
        self.kept = Registers()

    def body(self, body: tuple[k.Stmt, ...], known: Known) -> tuple[k.Stmt, ...]:
        """`body` with what is moved before its loops; `known` is written before it."""
        known = dict(known)
        result: list[k.Stmt] = []
        for stmt in body:
            if isinstance(stmt, k.For) and as_int(stmt.extent) != 1:
                before: list[k.Stmt] = []
                there = {buffer for buffer, conditions in known.items() if not conditions}
                stmt = self._without(stmt, there, before)
                result += before
            stmt = k.with_children(stmt, partial(self.body, known=known_inside(stmt, known)))
            result.append(stmt)
            _note_all_values(stmt, known, frozenset())
        return k.body_of(body, result)

    def _without(self, loop: k.For, there: Collection[k.Buffer], before: list[k.Stmt]) -> k.For:
        """`loop` without what is the same in all of its iterations, which is added to `before`."""
        inside = list(k.walk(loop.body))
        bound = {loop.symbol, *access.defined_symbols(inside)}
        usable = set(there) - access.writers(inside).keys()

        def change(body: tuple[k.Stmt, ...]) -> tuple[k.Stmt, ...]:
            return k.body_of(body, [changed_statement(stmt) for stmt in body])

        def changed_statement(stmt: k.Stmt) -> k.Stmt:
            size = as_int(stmt.extent) if isinstance(stmt, k.For) else None
            if isinstance(stmt, k.For) and stmt.unroll and size is not None and 1 < size <= MOST_ELEMENTS:
                vector = self._vector(stmt, size, usable, bound, before)
                if vector is not stmt:
                    return vector
            return k.with_children(stmt, change) if k.children(stmt) else stmt

        return k.with_body(loop, change(loop.body))

    def _vector(
        self,
        loop: k.For,
        size: int,
        usable: Collection[k.Buffer],
        bound: Collection[Symbol],
        before: list[k.Stmt],
    ) -> k.For:
        """A loop along a vector without what it computes of `usable` buffers alone."""
        moved: list[k.Compute | k.Copy] = []
        made: set[k.Buffer] = set()
        for stmt in loop.body:
            if self._is_invariant(stmt, loop.symbol, {*usable, *made}, bound):
                assert isinstance(stmt, (k.Compute, k.Copy))
                moved.append(stmt)
                made.add(stmt.dst.buffer)
        if not any(map(_takes_long, moved)):
            return loop
        needed = self._read_again(moved)
        arrays = {
            stmt.dst.buffer: self._array(stmt.dst.buffer, size)
            for stmt in moved
            if not _only_copies(stmt) and stmt.dst.buffer in needed
        }
        index = loop.symbol
        stored = [k.Copy(k.Ref(array, index), k.Ref(own, ZERO)) for own, array in arrays.items()]
        before.append(dataclasses.replace(loop, body=(*moved, *stored)))
        rest: list[k.Stmt] = []
        for each in loop.body:
            if each not in moved:
                rest.append(each)
            elif each.dst.buffer in arrays:
                rest.append(k.Copy(each.dst, k.Ref(arrays[each.dst.buffer], index)))
            elif _only_copies(each) and each.dst.buffer in needed:
                rest.append(each)
        return dataclasses.replace(loop, body=tuple(rest))

    def _read_again(self, moved: Sequence[k.Compute | k.Copy]) -> set[k.Buffer]:
        """What others than `moved` read of these, and what the copies read that stay for them."""
        readers = access.readers(moved)
        made = {stmt.dst.buffer for stmt in moved}
        needed = {buffer for buffer in made if self.readers[buffer] > readers[buffer]}
        for stmt in reversed(moved):
            if _only_copies(stmt) and stmt.dst.buffer in needed:
                needed |= access.readers((stmt,)).keys()
        return needed

    def _array(self, register: k.Buffer, size: int) -> k.Buffer:
        return self.kept.new(f"{register.name}_once{len(self.kept)}", register.dtype, size)

    def _is_invariant(
        self, stmt: k.Stmt, along: Symbol, usable: Collection[k.Buffer], bound: Collection[Symbol]
    ) -> bool:
        """Whether a statement computes one register, which no other does, from scalars, `usable` registers
        and positions.
        """
        chosen = _chosen_from(stmt)
        args = chosen or access.computed_from(stmt)
        if args is None:
            return False
        [dst] = access.written_buffers(stmt)
        if not access.is_register(dst) or self.writers[dst] != 1:
            return False
        others = {symbol for symbol in bound if symbol is not along}
        if chosen and isinstance(stmt, k.Copy) and not others.isdisjoint(stmt.pred.free_symbols):
            return False
        for arg in args:
            if isinstance(arg, k.Ref):
                is_known = arg.buffer.space is k.Space.LOCAL and arg.buffer in usable
                if not is_known or not others.isdisjoint(arg.index.free_symbols):
                    return False
            elif isinstance(arg, k.IndexValue) and not others.isdisjoint(arg.expr.free_symbols):
                return False
        return True


def _chosen_from(stmt: k.Stmt) -> tuple[k.Operand, ...] | None:
    """The two operands of a statement that copies one or the other, by position; None for others."""
    if not isinstance(stmt, k.Copy) or stmt.pred is k.TRUE or stmt.fill is None or stmt.width != 1:
        return None
    return stmt.src, stmt.fill


def _only_copies(stmt: k.Stmt) -> bool:
    """Whether a statement copies one operand always, so that it may as well stay."""
    return isinstance(stmt, k.Copy) and _chosen_from(stmt) is None


def _note_all_values(stmt: k.Stmt, known: dict[k.Buffer, Conditions], under: Conditions) -> None:
    """Adds the buffers that a statement, or one inside it, gives values where the conditions `under` hold."""
    if isinstance(stmt, k.For) and not as_int(stmt.extent):
        return
    if isinstance(stmt, k.If):
        under = under | conditions_of(stmt.cond)
    for child in k.children(stmt):
        _note_all_values(child, known, under)
    if not k.children(stmt):
        note_values(stmt, known, under)
