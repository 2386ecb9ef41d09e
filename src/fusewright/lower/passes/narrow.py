"""Compares positions with loaded integers in 32 bits, if positions have 32 bits.

    for j:                                              t = s, saturated to [-1, 2^31 - 1]
        i = (long long)(16 * threadIdx.x + j)           b = t - 16 * threadIdx.x
        hit = i == s                             ->     for j: hit = j == b

The GPU would extend a position to 64 bits and compare in two steps, for each element. Positions of 32 bits
are between 0 and 2^31 - 2. So a comparison with an integer outside this range has the same result as one with
the nearest value of the saturated range. Terms of the position that do not depend on unrolled loops move to
the other side, where they are subtracted once for all elements.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from functools import partial

from fusewright.core.dtype import DataType
from fusewright.core.op import ElementwiseOp
from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.lower.passes.registers import Registers
from fusewright.ops.elementwise import ELEMENTWISE
from fusewright.ops.rounding import SATURATED_POSITION
from fusewright.sym import ZERO, Expr, Symbol, as_int, is_nonneg

_COMPARISONS = frozenset(ELEMENTWISE[name] for name in ("eq", "ne", "lt", "le", "gt", "ge"))
_SUB = ELEMENTWISE["sub"]

# The positions that registers hold.
_Positions = dict[k.Buffer, k.IndexValue]


def narrow_comparisons(kernel: k.Kernel) -> k.Kernel:
    statements = list(k.walk(kernel.body))
    compares = any(isinstance(s, k.Compute) and _is_wide_comparison(s) for s in statements)
    if kernel.index_dtype is not DataType.Int32 or not compares:
        return kernel
    pass_ = _Pass(access.writers(statements))
    body = pass_.body(kernel.body, {}, frozenset())
    return pass_.registers.declared(kernel, body)


def _is_wide_comparison(stmt: k.Compute) -> bool:
    return stmt.op in _COMPARISONS and stmt.dtype is DataType.Int


class _Pass:
    """The state of the pass.

    Attributes:
        writers: the number of statements that write each buffer.
        registers: the added registers.
    """

    def __init__(self, writers: Counter[k.Buffer]) -> None:
        self.writers = writers
        self.registers = Registers()

    def body(
        self, body: tuple[k.Stmt, ...], around: _Positions, unrolled: frozenset[Symbol]
    ) -> tuple[k.Stmt, ...]:
        """`body` with narrow comparisons.

        Args:
            around: the positions that registers hold before `body`.
            unrolled: the symbols of unrolled loops around it.
        """
        positions = dict(around)
        result: list[k.Stmt] = []
        for stmt in body:
            if isinstance(stmt, k.Copy) and isinstance(stmt.src, k.IndexValue) and self._is_alone(stmt):
                positions[stmt.dst.buffer] = stmt.src
            if isinstance(stmt, k.Compute) and _is_wide_comparison(stmt):
                result += self._narrowed(stmt, positions, unrolled)
                continue
            symbols = unrolled | {stmt.symbol} if isinstance(stmt, k.For) and stmt.unroll else unrolled
            result.append(k.with_children(stmt, partial(self.body, around=positions, unrolled=symbols)))
        return k.body_of(body, result)

    def _is_alone(self, stmt: k.Copy) -> bool:
        """Whether a statement is the only one that sets a register."""
        buffer = stmt.dst.buffer
        return stmt.pred is k.TRUE and as_int(buffer.size) == 1 and self.writers[buffer] == 1

    def _narrowed(self, stmt: k.Compute, positions: _Positions, unrolled: frozenset[Symbol]) -> list[k.Stmt]:
        args = [_position(arg, positions) for arg in stmt.args]
        found = [arg for arg in args if isinstance(arg, k.IndexValue)]
        if not found or (len(found) == 1 and not is_nonneg(found[0].expr)):
            return [stmt]
        made: list[k.Stmt] = []
        if len(found) == 2:
            narrow: list[k.Operand] = [k.IndexValue(arg.expr, DataType.Int32) for arg in found]
        else:
            narrow = [self._narrow_operand(found[0].expr, arg, unrolled, made) for arg in args]
        return [*made, dataclasses.replace(stmt, args=tuple(narrow), dtype=DataType.Int32)]

    def _narrow_operand(
        self, position: Expr, arg: k.Operand, unrolled: frozenset[Symbol], made: list[k.Stmt]
    ) -> k.Operand:
        """An operand, in 32 bits, of a comparison of `position` with another operand.

        Terms of the position that do not depend on unrolled loops are subtracted from the other operand.
        """
        own = _of_symbols(position, unrolled)
        shared = position - own
        if own is ZERO or shared is ZERO or not is_nonneg(shared):
            own, shared = position, ZERO
        if isinstance(arg, k.IndexValue):
            return k.IndexValue(own, DataType.Int32)
        value = self._register(made, SATURATED_POSITION, DataType.Int, arg)
        if shared is ZERO:
            return value
        return self._register(made, _SUB, DataType.Int32, value, k.IndexValue(shared, DataType.Int32))

    def _register(self, made: list[k.Stmt], op: ElementwiseOp, dtype: DataType, *args: k.Operand) -> k.Ref:
        """A register of 32 bits that a statement added to `made` computes."""
        register = self.registers.new(f"narrow_{len(self.registers) + 1}", DataType.Int32)
        dst = k.Ref(register, ZERO)
        made.append(k.Compute(op, dst, args, dtype))
        return dst


def _of_symbols(expr: Expr, symbols: frozenset[Symbol]) -> Expr:
    """The terms of a sum that are multiples of one of these symbols."""
    terms = (core * factor for core, factor in expr.terms if isinstance(core, Symbol) and core in symbols)
    return sum(terms, ZERO)


def _position(operand: k.Operand, positions: _Positions) -> k.Operand:
    return positions.get(operand.buffer, operand) if isinstance(operand, k.Ref) else operand
