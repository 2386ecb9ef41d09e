"""Reads a register instead of an array whose elements all have the register's value.

    r = s[0]                                r = s[0]
    for j: a[j] = r                  ->
    for j: b[j] = 1 - a[j]                  b = 1 - r
    for j: y[j] = x[j] / b[j]               for j: y[j] = x[j] / b

A value that is broadcast along the elements of a vector is loaded once. Computation with only such values is
the same in all iterations, so it also runs once. (`invariants` does this if it is in one loop with its
reader.) The CUDA compiler does part of this itself: a step of AdamW has 857 instructions for 8 elements
without this pass, and 778 with it (sm_90a).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from functools import partial

from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.lower.passes.invariants import hoist_invariants
from fusewright.sym import ZERO, const


def read_repeated_registers(kernel: k.Kernel) -> k.Kernel:
    fills = [fill for stmt in k.walk(kernel.body) for fill in _fills(stmt) if _reads_registers(fill)]
    if not fills:  # the first array that is replaced is filled from registers
        return kernel
    # The value may be computed in the loop that fills the array.
    computes = any(isinstance(fill, k.Compute) for fill in fills)
    hoisted = hoist_invariants(kernel) if computes else kernel
    for each in dict.fromkeys((hoisted, kernel)):
        pass_ = _Pass(each)
        body = pass_.body(each.body, frozenset())
        if pass_.computed or (pass_.registers and each is kernel):
            return k.with_body(kernel, pass_.without_arrays(body))
    return kernel


def _reads_registers(fill: k.Copy | k.Compute) -> bool:
    """Whether a statement reads only single registers, no elements of arrays."""
    return all(map(access.is_register, access.read_buffers(fill)))


class _Pass:
    """The state of the pass.

    Attributes:
        writers, readers: the number of statements that write and read each buffer.
        registers: the register that is read instead of each array.
        computed: the new ones of these registers.
    """

    def __init__(self, kernel: k.Kernel) -> None:
        statements = list(k.walk(kernel.body))
        self.writers = access.writers(statements)
        self.readers = access.readers(statements)
        self.registers: dict[k.Buffer, k.Buffer] = {}
        self.computed: dict[k.Buffer, k.Buffer] = {}

    def body(self, body: tuple[k.Stmt, ...], around: frozenset[k.Buffer]) -> tuple[k.Stmt, ...]:
        """`body` with registers read instead of the arrays that are filled with one value in it.

        Args:
            around: registers that have their values before `body` and are not written in it.
        """
        result: list[k.Stmt] = []
        written = set(around)
        for position, stmt in enumerate(body):
            for fill in _fills(stmt):
                if fill.dst.buffer in self.registers:  # found in a loop around this one
                    continue
                # One execution of `body` writes the array and then reads it, and nothing else writes it.
                if self._is_of(fill, written) and self._has_all_uses(fill.dst.buffer, body[position:]):
                    made = self._register_for(fill)
                    result += made
                    written.update(*map(access.written_buffers, made))
            if not k.children(stmt):
                written.update(b for b in access.written_buffers(stmt) if self.writers[b] == 1)
            inside = partial(self.body, around=frozenset(written))
            result.append(self._replaced(k.with_children(stmt, inside)))
        return k.body_of(body, result)

    def _is_of(self, fill: k.Copy | k.Compute, written: Collection[k.Buffer]) -> bool:
        """Whether a statement reads only scalars and `written` registers."""

        def is_written(arg: k.Operand) -> bool:
            if isinstance(arg, k.Ref):
                return access.is_register(arg.buffer) and arg.buffer in written
            return not isinstance(arg, k.IndexValue)

        args = fill.args if isinstance(fill, k.Compute) else (fill.src,)
        return all(is_written(self._operand(arg)) for arg in args)

    def _register_for(self, fill: k.Copy | k.Compute) -> list[k.Stmt]:
        """Chooses the register that is read instead of the array; returns the statements that compute it."""
        array, value = fill.dst.buffer, self._replaced(fill)
        if isinstance(value, k.Copy):
            assert isinstance(value.src, k.Ref)
            self.registers[array] = value.src.buffer
            return []
        assert isinstance(value, k.Compute)
        register = dataclasses.replace(array, size=const(1))
        self.registers[array] = self.computed[array] = register
        return [dataclasses.replace(value, dst=k.Ref(register, ZERO))]

    def _has_all_uses(self, array: k.Buffer, after: Sequence[k.Stmt]) -> bool:
        """Whether only the first statement of `after` writes the array, and all readers follow in `after`.

        Readers must read single elements.
        """
        if self.writers[array] != 1:
            return False
        statements = list(k.walk(tuple(after)))
        users = [s for s in statements if array in (*access.read_buffers(s), *access.written_buffers(s))]
        first, *readers = users
        return (
            array in access.written_buffers(first)
            and access.readers(statements)[array] == self.readers[array]
            and all(isinstance(s, k.Compute) or (isinstance(s, k.Copy) and s.width == 1) for s in readers)
        )

    def _replaced(self, stmt: k.Stmt) -> k.Stmt:
        if isinstance(stmt, k.Compute):
            return dataclasses.replace(stmt, args=tuple(map(self._operand, stmt.args)))
        if isinstance(stmt, k.Copy):
            fill = None if stmt.fill is None else self._operand(stmt.fill)
            return dataclasses.replace(stmt, src=self._operand(stmt.src), fill=fill)
        return stmt

    def _operand(self, operand: k.Operand) -> k.Operand:
        register = self.registers.get(operand.buffer) if isinstance(operand, k.Ref) else None
        return operand if register is None else k.Ref(register, ZERO)

    def without_arrays(self, body: tuple[k.Stmt, ...]) -> tuple[k.Stmt, ...]:
        """The statements without those that fill the arrays, and without loops that become empty."""

        def left(stmt: k.Stmt) -> list[k.Stmt]:
            if isinstance(stmt, k.Alloc) and stmt.buffer in self.computed:
                return [k.Alloc(self.computed[stmt.buffer])]
            made = (access.declared_buffer(stmt), *access.written_buffers(stmt))
            is_emptied = isinstance(stmt, k.NESTING) and not stmt.body
            return [stmt] if self.registers.keys().isdisjoint(made) and not is_emptied else []

        return k.rewritten(body, left)


def _fills(stmt: k.Stmt) -> list[k.Copy | k.Compute]:
    """The statements of an unrolled loop that set elements of arrays in registers."""
    if not (isinstance(stmt, k.For) and stmt.unroll):
        return []
    found: list[k.Copy | k.Compute] = []
    for inner in k.walk(stmt.body):
        if isinstance(inner, k.Copy):
            fills = inner.width == 1 and inner.pred is k.TRUE and isinstance(inner.src, k.Ref)
        elif isinstance(inner, k.Compute):
            fills = not inner.spelling.divides and not access.is_register(inner.dst.buffer)
        else:
            continue
        if fills and inner.dst.buffer.space is k.Space.LOCAL:
            found.append(inner)
    return found
