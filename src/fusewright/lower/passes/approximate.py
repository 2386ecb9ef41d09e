"""Computes values that are rounded to a narrower type anyway with fewer instructions.

    a = x - m                               a = x - m
    b = exp(a)                              b = 2^(a * log2(e))
    for j: y[j] = bfloat16(b / s)    ->     r = 1 / s
                                            for j: y[j] = bfloat16(b * r)

    t = tanh(u); a = 1 + t                  p = 1 / (1 + 2^(u * -2 log2(e))); a = 2 * p
    h = 0.5 * x; y = bfloat16(h * a)        y = bfloat16(x * p)

Exponentials, 1 + tanh, 1 + erf, 1 - tanh^2, sigmoid, silu, expm1, log, log1p, sqrt, tanh and powers become a
few instructions around one or two special functions of the GPU. Sines and cosines become a polynomial. Many
quotients with one divisor become products with its reciprocal. A kernel without reductions computes with the
results of rows at each element; this computation is then no longer correctly rounded.

Rounding to a half, a bfloat16 or eight bits changes a value by up to 2^-12, 2^-9 or 2^-5. These
approximations are off by 2^-17 at most, or by 2^-15 for powers that no half can represent (`ops.approximate`,
docs/accuracy.md). The result must be rounded before it reaches memory, an integer, a comparison, an angle or
a wider type. No result in Float becomes less accurate, except logarithms of sums of exponentials. There, the
error of 2^(x c) is that of one more rounding of x. So the error of the logarithm is that of one more rounding
of the x of the largest terms.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from fusewright.core.dtype import DataType
from fusewright.core.op import ElementwiseOp
from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.lower.passes.registers import Registers
from fusewright.ops.approximate import (
    ALONE,
    ANY_POW,
    EXP2_OF_PRODUCT,
    HALF_ERFC,
    LOGISTIC2,
    PERIODIC,
    POW,
    ROUNDED_TYPES,
    TANH,
    has_cheap_power,
)
from fusewright.ops.elementwise import ELEMENTWISE, QUOTIENTS
from fusewright.ops.reductions import SUM
from fusewright.sym import ZERO, as_int

#: At least this many quotients with one divisor are replaced by products with its reciprocal.
MIN_QUOTIENTS = 4

_LOG2_E = math.log2(math.e)
_LEAST_NORMAL = 2.0**-126
_REDUCING = (k.Combine, k.BlockReduce, k.ClusterReduce, k.GridReduce)
_ADD, _SUB, _MUL, _EXP, _LOG, _TANH, _ERF, _SIGMOID, _RECIPROCAL = (
    ELEMENTWISE[name] for name in ("add", "sub", "mul", "exp", "log", "tanh", "erf", "sigmoid", "reciprocal")
)
_POW = ELEMENTWISE["pow"]
#: Odd functions f: the row for (1 + f(x)) / 2, and the factor of x in it.
_OF_TANH = (LOGISTIC2, -2 * _LOG2_E)
_HALVES = {_TANH: _OF_TANH, TANH: _OF_TANH, _ERF: (HALF_ERFC, -1.0)}
_FUNCTIONS = frozenset({_EXP, _ERF, _SIGMOID, _POW, *ALONE, *QUOTIENTS})


def approximate(kernel: k.Kernel) -> k.Kernel:
    statements = list(k.walk(kernel.body))
    if not any(isinstance(s, k.Compute) and s.op in _FUNCTIONS for s in statements):
        return kernel
    if not any(b.dtype in ROUNDED_TYPES for s in statements for b in access.written_buffers(s)):
        return kernel
    pass_ = _Pass(_exact_buffers(statements), any(isinstance(s, _REDUCING) for s in statements))
    body = pass_.body(kernel.body, ())
    if body is kernel.body:
        return kernel
    changed = pass_.registers.declared(kernel, body)
    return k.with_body(changed, _without_unread(changed.body))


def _exact_buffers(statements: Sequence[k.Stmt]) -> set[k.Buffer]:
    """The buffers whose values must not be approximated.

    Their values reach memory, a decision, an angle or another type without being rounded. This excludes
    exponentials in a sum whose logarithm is exact.
    """
    exact: set[k.Buffer] = set()
    summed: set[k.Buffer] = set()  # the terms of the sums that are operands of exact logarithms
    size = -1
    while size != len(exact) + len(summed):
        size = len(exact) + len(summed)
        for stmt in reversed(statements):
            read = access.read_buffers(stmt)
            if _is_exact(stmt, exact):
                (summed if _computes(stmt, _LOG) else exact).update(read)
            elif not summed.isdisjoint(written := access.written_buffers(stmt)):
                if isinstance(stmt, (k.Copy, k.Init)) or (isinstance(stmt, _REDUCING) and stmt.op is SUM):
                    summed.update(read)
                else:
                    exact.update(read if _computes(stmt, _EXP) else (*written, *read))
    return exact


def _computes(stmt: k.Stmt, op: ElementwiseOp) -> bool:
    return isinstance(stmt, k.Compute) and stmt.op is op


def _is_exact(stmt: k.Stmt, exact: set[k.Buffer]) -> bool:
    if isinstance(stmt, k.Compute) and stmt.op in PERIODIC:
        return True
    return isinstance(stmt, k.LetValue) or any(
        buffer.dtype not in ROUNDED_TYPES
        and (buffer in exact or buffer.space is k.Space.GLOBAL or buffer.dtype is not DataType.Float)
        for buffer in access.written_buffers(stmt)
    )


class _Definitions:
    """The statements that computed the present values of registers."""

    def __init__(self) -> None:
        self._made: dict[k.Ref, k.Compute] = {}

    def note(self, stmt: k.Stmt) -> None:
        """Removes the statements whose result or operands `stmt` overwrites, and adds `stmt`."""
        written = {buffer for inner in k.walk((stmt,)) for buffer in access.written_buffers(inner)}
        obsolete = [
            ref
            for ref, made in self._made.items()
            if ref.buffer in written or not written.isdisjoint(access.read_buffers(made))
        ]
        for ref in obsolete:
            del self._made[ref]
        is_new = isinstance(stmt, k.Compute) and stmt.dst.buffer not in access.read_buffers(stmt)
        if isinstance(stmt, k.Compute) and is_new and stmt.dtype is stmt.dst.buffer.dtype is DataType.Float:
            self._made[stmt.dst] = stmt

    def of(self, operand: k.Operand, op: ElementwiseOp) -> tuple[k.Operand, ...] | None:
        """The operands of the statement that computed `operand`, if its operation is `op`."""
        made = self._made.get(operand) if isinstance(operand, k.Ref) else None
        return made.args if made is not None and made.op is op else None

    def scaled(self, operand: k.Operand) -> tuple[float, k.Operand]:
        """(c, x) such that the operand is c x."""
        for constant, other in _both_orders(self.of(operand, _MUL)):
            if (value := _constant(constant)) is not None and _constant(other) is None:
                return value, other
        return 1.0, operand

    def register_of(self, op: ElementwiseOp, args: tuple[k.Operand, ...]) -> k.Ref | None:
        """A register that holds op(args)."""
        return next((ref for ref, made in self._made.items() if made.op is op and made.args == args), None)


def _both_orders(args: tuple[k.Operand, ...] | None) -> Sequence[tuple[k.Operand, k.Operand]]:
    return ((args[0], args[1]), (args[1], args[0])) if args is not None else ()


def _number(value: float) -> k.Imm:
    return k.Imm(value, DataType.Float)


def _is_power_of_two(value: float) -> bool:
    return value > 0 and math.frexp(value)[0] == 0.5


def _constant(operand: k.Operand) -> float | None:
    return float(operand.value.real) if isinstance(operand, k.Imm) else None


class _Around:
    """A loop around statements.

    Attributes:
        iterations: the number of iterations; MIN_QUOTIENTS if it is unknown.
        varying: the buffers whose values may differ between iterations. A buffer that takes the same sequence
            of values in each iteration, as along a vector of columns, is not varying.
    """

    def __init__(self, loop: k.For) -> None:
        self.iterations = as_int(loop.extent) or MIN_QUOTIENTS
        self._index = loop.symbol
        statements = list(k.walk(loop.body))
        writers = access.writers(statements)
        self.varying = set(writers)
        for stmt in statements:
            if self._is_same(stmt) and all(writers[b] == 1 for b in access.written_buffers(stmt)):
                self.varying.difference_update(access.written_buffers(stmt))

    def _is_same(self, stmt: k.Stmt) -> bool:
        """Whether `hoist_invariants` will find that each iteration computes the same."""
        operands = access.computed_from(stmt)
        if operands is None or not any(isinstance(each, (k.Ref, k.ScalarRef)) for each in operands):
            return False
        return all(
            ref.buffer.space is k.Space.LOCAL
            and ref.buffer not in self.varying
            and self._index not in ref.index.free_symbols
            for ref in operands
            if isinstance(ref, k.Ref)
        )


def _without_unread(body: tuple[k.Stmt, ...]) -> tuple[k.Stmt, ...]:
    """`body` without computation of registers that nothing reads."""
    read = access.read_in(body)
    unread = {
        stmt.dst.buffer
        for stmt in k.walk(body)
        if isinstance(stmt, k.Compute) and access.is_register(stmt.dst.buffer) and stmt.dst.buffer not in read
    }

    def left(stmt: k.Stmt) -> list[k.Stmt]:
        touched = (access.declared_buffer(stmt), *access.written_buffers(stmt))
        return [stmt] if unread.isdisjoint(touched) else []

    return _without_unread(k.rewritten(body, left)) if unread else body


class _Pass:
    """The state of the pass.

    Attributes:
        exact: the buffers whose values must not change.
        reduces: whether the kernel reduces, so that it computes with the results of rows once per row.
        scaled: the registers that hold a power of two times a value that the pass introduced.
        registers: the added registers.
    """

    def __init__(self, exact: set[k.Buffer], reduces: bool) -> None:
        self.exact = exact
        self.reduces = reduces
        self.scaled: set[k.Ref] = set()
        self.registers = Registers()

    def body(self, body: tuple[k.Stmt, ...], around: tuple[_Around, ...]) -> tuple[k.Stmt, ...]:
        """`body` with cheaper statements.

        Args:
            around: the loops around `body`.
        """
        known = _Definitions()
        result: list[k.Stmt] = []
        for stmt in body:
            made: list[k.Stmt] = [stmt]
            if isinstance(stmt, k.For):
                made = [k.with_body(stmt, self.body(stmt.body, (*around, _Around(stmt))))]
            elif isinstance(stmt, (k.If, k.Bind)):
                made = [k.with_body(stmt, self.body(stmt.body, around))]
            elif isinstance(stmt, k.Compute) and self._may_change(stmt):
                if stmt.precise and not self.reduces:
                    stmt = dataclasses.replace(stmt, precise=False)
                made = self._function(stmt, known) or self._quotient(stmt, around) or [stmt]
            result += made
            for each in made:
                known.note(each)
        return k.body_of(body, result)

    def _may_change(self, stmt: k.Compute) -> bool:
        dst = stmt.dst.buffer
        return stmt.dtype is DataType.Float and (dst.dtype in ROUNDED_TYPES or dst not in self.exact)

    def _register(self, made: list[k.Stmt], op: ElementwiseOp, *args: k.Operand) -> k.Ref:
        """A register that a statement added to `made` computes."""
        register = self.registers.new(f"approximate_{len(self.registers) + 1}", DataType.Float)
        ref = k.Ref(register, ZERO)
        made.append(k.Compute(op, ref, args, DataType.Float))
        return ref

    def _function(self, stmt: k.Compute, known: _Definitions) -> list[k.Stmt] | None:
        """Cheaper statements for a function, or for an expression of tanh or erf; None if there are none."""
        made: list[k.Stmt] = []
        if stmt.op in (_EXP, _SIGMOID):
            factor, x = known.scaled(stmt.args[0])
            row, sign = (EXP2_OF_PRODUCT, 1) if stmt.op is _EXP else (LOGISTIC2, -1)
            return [dataclasses.replace(stmt, op=row, args=(x, _number(sign * _LOG2_E * factor)))]
        if stmt.op in ALONE:
            return [dataclasses.replace(stmt, op=ALONE[stmt.op])]
        if stmt.op is _POW:
            exponent = _constant(stmt.args[1])
            if exponent is None:
                # Powers of a constant are few. They are often subtracted from 1, as in the bias correction of
                # moving means, which would magnify the error.
                is_of_constant = _constant(stmt.args[0]) is not None
                return None if is_of_constant else [dataclasses.replace(stmt, op=ANY_POW)]
            return [dataclasses.replace(stmt, op=POW)] if has_cheap_power(exponent) else None
        if stmt.op is _ADD:
            for one, curve in _both_orders(stmt.args):
                if _constant(one) == 1 and (half := self._half(made, known, curve, 1)) is not None:
                    return self._scaled_by(2, half, stmt, made)
        if stmt.op is _SUB and _constant(stmt.args[0]) == 1:
            if (half := self._half(made, known, stmt.args[1], -1)) is not None:
                return self._scaled_by(2, half, stmt, made)
            # With p = (1 + t) / 2: 1 - t^2 = (1 + t) (1 - t) = 4 (p - p^2).
            square = known.of(stmt.args[1], _MUL)
            if square is not None and square[0] == square[1]:
                p = self._half(made, known, square[0], 1)
                if p is not None:
                    rest = self._register(made, _SUB, p, self._register(made, _MUL, p, p))
                    return self._scaled_by(4, rest, stmt, made)
        if stmt.op is _MUL:
            return self._product(stmt, known)
        return None

    def _half(self, made: list[k.Stmt], known: _Definitions, curve: k.Operand, sign: int) -> k.Ref | None:
        """(1 + sign * curve) / 2 if `curve` is a function of `_HALVES`, else None."""
        for op, (row, scale) in _HALVES.items():
            found = known.of(curve, op)
            if found is not None:
                factor, x = known.scaled(found[0])
                args = (x, _number(sign * scale * factor))
                return known.register_of(row, args) or self._register(made, row, *args)
        return None

    def _scaled_by(self, factor: float, half: k.Ref, stmt: k.Compute, made: list[k.Stmt]) -> list[k.Stmt]:
        self.scaled.add(stmt.dst)
        return [*made, dataclasses.replace(stmt, op=_MUL, args=(_number(factor), half))]

    def _product(self, stmt: k.Compute, known: _Definitions) -> list[k.Stmt] | None:
        """(a x) (b y) as (a b) (x y) for powers of two a and b, which is exact, if that is cheaper."""
        one, other = stmt.args
        if _constant(one) is not None or _constant(other) is not None:
            if _constant(one) is None:
                one, other = other, one
            a, (b, y) = _constant(one) or 0.0, known.scaled(other)
            if b == 1 or not (_is_power_of_two(a) and _is_power_of_two(b)):
                return None
            if a * b == 1 and stmt.dst.buffer.dtype is DataType.Float:
                return [k.Copy(stmt.dst, y)]
            return [dataclasses.replace(stmt, args=(_number(a * b), y))]
        (a, x), (b, y) = known.scaled(one), known.scaled(other)
        if not (_is_power_of_two(a) and _is_power_of_two(b)):
            return None
        made: list[k.Stmt] = []
        if a != 1 and b != 1:
            left = x if a * b == 1 else self._register(made, _MUL, _number(a * b), x)
            return [*made, dataclasses.replace(stmt, args=(left, y))]
        if not {one, other}.isdisjoint(self.scaled):
            # The factor that the pass introduced moves on until it meets its inverse.
            self.scaled.add(stmt.dst)
            product = self._register(made, _MUL, x, y)
            return [*made, dataclasses.replace(stmt, args=(_number(a * b), product))]
        return None

    def _quotient(self, stmt: k.Compute, around: tuple[_Around, ...]) -> list[k.Stmt] | None:
        """The product with the divisor's reciprocal, if enough quotients have this divisor; else None."""
        if stmt.op not in QUOTIENTS or stmt.precise:
            return None
        divisor = stmt.args[1]
        number = _constant(divisor)
        if number is not None:
            if not _LEAST_NORMAL <= abs(number) <= 1 / _LEAST_NORMAL:
                return None
            return [dataclasses.replace(stmt, op=_MUL, args=(stmt.args[0], _number(1 / number)))]
        if not isinstance(divisor, (k.Ref, k.ScalarRef)):
            return None
        if isinstance(divisor, k.Ref) and not access.is_register(divisor.buffer):
            return None
        shared = (
            loop for loop in around if isinstance(divisor, k.ScalarRef) or divisor.buffer not in loop.varying
        )
        quotients = math.prod(loop.iterations for loop in shared)
        if quotients < MIN_QUOTIENTS:
            return None
        made: list[k.Stmt] = []
        reciprocal = self._register(made, _RECIPROCAL, divisor)
        return [*made, dataclasses.replace(stmt, op=_MUL, args=(stmt.args[0], reciprocal))]
