"""Moves computation per column in front of the loop over rows, for vectors of columns.

    for i: x = load; for j < 8: a = s[j] / n; y[j] = x[j] - a
        ->
    for j < 8: a = s[j] / n; v[j] = a
    for i: x = load; for j < 8: a = v[j]; y[j] = x[j] - a

Values that depend only on a reduction of columns, or on the columns' positions, are inlined into the loops of
their readers. The CUDA compiler leaves a division in the loop if it is correctly rounded or under a guard. It
also leaves sines and cosines. An array of such values, which is also stored as a vector, moves as a whole:

    for i: for j < 8: s[j] = t[j] / n; if i == 0: store s; for j < 8: y[j] = x[j] / s[j]
        ->
    for j < 8: s[j] = t[j] / n
    for i: if i == 0: store s; for j < 8: y[j] = x[j] / s[j]
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

# The fewest slots (`core.op.Spelling`) of an operation that is moved to a register of its own. Cheaper ones
# cost no more than the register.
LEAST_SLOTS = 8
# The most elements of a vector. Each takes a register.
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
    """The state of the pass.

    Attributes:
        writers, readers: the number of statements that write and read each buffer.
        kept: the added registers of values that are computed once.
    """

    def __init__(self, writers: Counter[k.Buffer], readers: Counter[k.Buffer]) -> None:
        self.writers = writers
        self.readers = readers
        self.kept = Registers()

    def body(self, body: tuple[k.Stmt, ...], known: Known) -> tuple[k.Stmt, ...]:
        """`body` with invariant computation in front of its loops.

        Args:
            known: the buffers that have values before `body`.
        """
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
        """`loop` without the computation that is the same in all iterations, which is added to `before`.

        Args:
            there: the buffers that have values before the loop.
        """
        inside = list(k.walk(loop.body))
        bound = {loop.symbol, *access.defined_symbols(inside)}
        usable = set(there) - access.writers(inside).keys()

        def change(body: tuple[k.Stmt, ...]) -> tuple[k.Stmt, ...]:
            changed = [(stmt, changed_statement(stmt)) for stmt in body]
            return k.body_of(body, [s for old, s in changed if k.children(s) or not k.children(old)])

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
        usable: set[k.Buffer],
        bound: Collection[Symbol],
        before: list[k.Stmt],
    ) -> k.For:
        """A loop along a vector without computation that depends only on `usable` buffers.

        The computation is added to `before`, and the arrays that it fills to `usable`. Returns the same loop
        if it fills no array and nothing takes long, or if what is cheap would take registers of its own.
        """
        moved: list[k.Compute | k.Copy] = []
        made: set[k.Buffer] = set()
        for stmt in loop.body:
            if self._is_invariant(stmt, loop.symbol, {*usable, *made}, bound):
                assert isinstance(stmt, (k.Compute, k.Copy))
                moved.append(stmt)
                made.add(stmt.dst.buffer)
        filled = {buffer for buffer in made if not access.is_register(buffer)}
        takes_long, needed = any(map(_takes_long, moved)), self._read_again(moved)
        kept = [s.dst.buffer for s in moved if not _only_copies(s) and s.dst.buffer in needed]
        if not takes_long and (kept or not filled):
            return loop
        usable |= filled
        arrays = {buffer: self._array(buffer, size) for buffer in kept}
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
        """The registers of `moved` that other statements read, and those that copies among these read.

        The copies stay in the loop and are not stored to arrays.
        """
        readers = access.readers(moved)
        made = {stmt.dst.buffer for stmt in moved}
        needed = {buffer for buffer in made if self.readers[buffer] > readers[buffer]}
        needed = set(filter(access.is_register, needed))
        for stmt in reversed(moved):
            if _only_copies(stmt) and stmt.dst.buffer in needed:
                needed.update(filter(access.is_register, access.read_buffers(stmt)))
        return needed

    def _array(self, register: k.Buffer, size: int) -> k.Buffer:
        return self.kept.new(f"{register.name}_once{len(self.kept)}", register.dtype, size)

    def _is_invariant(
        self, stmt: k.Stmt, along: Symbol, usable: Collection[k.Buffer], bound: Collection[Symbol]
    ) -> bool:
        """Whether a statement computes a register, or the element of an array `along` a vector, which it
        alone writes, from invariant operands.

        These are scalars, `usable` registers, and positions that depend on no symbol of `bound` except
        `along`.
        """
        chosen = _chosen_from(stmt)
        args = chosen or access.computed_from(stmt)
        if args is None:
            return False
        assert isinstance(stmt, (k.Compute, k.Copy))
        dst = stmt.dst.buffer
        is_element = dst.space is k.Space.LOCAL and stmt.dst.index is along
        if not (access.is_register(dst) or is_element) or self.writers[dst] != 1:
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
    """The two operands of a selection; None for other statements."""
    if not isinstance(stmt, k.Copy) or stmt.pred is k.TRUE or stmt.fill is None or stmt.width != 1:
        return None
    return stmt.src, stmt.fill


def _only_copies(stmt: k.Stmt) -> bool:
    """Whether a statement is a copy that is not a selection. It costs nothing in the loop."""
    return isinstance(stmt, k.Copy) and _chosen_from(stmt) is None


def _note_all_values(stmt: k.Stmt, known: dict[k.Buffer, Conditions], under: Conditions) -> None:
    """Adds the buffers that a statement and its nested statements set under the conditions `under`."""
    if isinstance(stmt, k.For) and not as_int(stmt.extent):
        return
    if isinstance(stmt, k.If):
        under = under | conditions_of(stmt.cond)
    for child in k.children(stmt):
        _note_all_values(child, known, under)
    if not k.children(stmt):
        note_values(stmt, known, under)
