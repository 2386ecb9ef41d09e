"""Computes positions, and other values that are known to fit, in 32 bits.

    i = (long long)(threadIdx.x + 128 * blockIdx.x)       let at = (threadIdx.x + 128 * blockIdx.x) % 8
    r = i % 8                                             y = x[at]
    n = r < 0 ? r + 8 : r                          ->
    let at = n if 0 <= n < 8 else -1
    y = x[at] if -1 < at else 0

torch's integers have 64 bits, with which the GPU computes in two steps. Sums, products, quotients and
remainders of positions become index expressions. An expression with only one possible value becomes a
constant. An index that is known to be in range is not compared. Registers for values that fit in 32 bits have
32 bits. Integers of fewer bits are also computed in 32 bits if that changes no result, since the GPU would
have to truncate after each step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from functools import partial

from fusewright.core.dtype import DataType
from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.lower.value_ranges import INTEGERS, Ranges, within
from fusewright.ops.elementwise import ELEMENTWISE
from fusewright.sym import Expr, Symbol, as_int, bounds, const, floordiv, mod, substitute, symbol

_INT32 = INTEGERS[DataType.Int32]
_CAST = ELEMENTWISE["cast"]
_WHERE = ELEMENTWISE["where"]
_POSITIONS = frozenset({DataType.Int, DataType.Int32})
_NARROWED = frozenset({DataType.Int, DataType.Int8, DataType.UInt8, DataType.Int16, DataType.UInt16})
#: Operations that give the same result in 32 and 64 bits if operands and result fit in 32.
_ALIKE = frozenset(
    ELEMENTWISE[name]
    for name in (
        "cast", "add", "sub", "mul", "neg", "abs", "relu", "maximum", "minimum", "clamp", "where", "div",
        "mod", "fmod", "remainder", "bitwise_and", "bitwise_or", "bitwise_xor",
        "eq", "ne", "lt", "le", "gt", "ge",
    )
)  # fmt: skip
_SATURATING = frozenset(ELEMENTWISE[name] for name in ("maximum", "minimum", "clamp"))


def narrow_integers(kernel: k.Kernel) -> k.Kernel:
    statements = list(k.walk(kernel.body))
    if not any(_is_of_interest(stmt) for stmt in statements):
        return kernel
    single = {buffer for buffer, count in access.writers(statements).items() if count == 1}
    ranges = Ranges(single, INTEGERS.get(kernel.index_dtype, _INT32))
    body = _Simplifier(ranges).body(kernel.body, {}, {})
    body = _Narrowing(ranges, body).narrowed()
    return kernel if body == kernel.body else k.with_body(kernel, body)


def _is_of_interest(stmt: k.Stmt) -> bool:
    computes = isinstance(stmt, k.Compute) and stmt.dst.buffer.dtype in _NARROWED
    return computes or any(isinstance(operand, k.IndexValue) for operand in access.operands(stmt))


class _Simplifier:
    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges

    def body(
        self, body: tuple[k.Stmt, ...], around: dict[k.Buffer, Expr], renamed: dict[Symbol, Expr]
    ) -> tuple[k.Stmt, ...]:
        """`body` with simpler statements.

        Args:
            around: the positions that registers hold.
            renamed: the expressions that replace symbols of indices.
        """
        positions, renamed = dict(around), dict(renamed)
        result: list[k.Stmt] = []
        for stmt in body:
            if renamed:
                stmt = access.map_expressions(stmt, lambda e: substitute(e, renamed))
                if isinstance(stmt, k.Copy) and stmt.pred is k.TRUE:
                    stmt = dataclasses.replace(stmt, fill=None, fill_is_value=False)
            if isinstance(stmt, k.LetValue):
                named = self._named(stmt, positions, renamed)
                result += [named] if named is not None else []
                continue
            if isinstance(stmt, k.Compute):
                stmt = self._computed(stmt, positions)
            if isinstance(stmt, k.Copy):
                self.ranges.note(stmt)
                self._note_position(stmt, positions)
            result.append(k.with_children(stmt, lambda inner: self.body(inner, positions, renamed)))
        return k.body_of(body, result)

    def _note_position(self, stmt: k.Copy, positions: dict[k.Buffer, Expr]) -> None:
        expr = _position(stmt.src, positions)
        is_single = stmt.dst.buffer in self.ranges.single and access.is_register(stmt.dst.buffer)
        if expr is not None and stmt.pred is k.TRUE and is_single:
            positions[stmt.dst.buffer] = expr

    def _computed(self, stmt: k.Compute, positions: dict[k.Buffer, Expr]) -> k.Compute | k.Copy:
        dtype = stmt.dst.buffer.dtype
        self.ranges.note(stmt)
        found = self.ranges.known.get(stmt.dst.buffer)
        if found is None or dtype not in INTEGERS:
            return stmt
        if found[0] == found[1]:
            value = bool(found[0]) if dtype is DataType.Bool else int(found[0])
            return k.Copy(stmt.dst, k.Imm(value, dtype))
        if dtype is DataType.Bool:
            return stmt
        expr = self._index(stmt, positions)
        if expr is not None and access.is_register(stmt.dst.buffer):
            positions[stmt.dst.buffer] = expr
            return k.Copy(stmt.dst, k.IndexValue(expr, dtype))
        if stmt.op is _WHERE:
            return self._chosen(stmt)
        return stmt

    def _chosen(self, stmt: k.Compute) -> k.Compute:
        """A selection as a cast of the selected operand, if the condition is known."""
        found = self.ranges.of(stmt.args[0])
        if found is None or found[0] != found[1]:
            return stmt
        chosen = stmt.args[1] if found[0] else stmt.args[2]
        return dataclasses.replace(stmt, op=_CAST, args=(chosen,))

    def _index(self, stmt: k.Compute, positions: dict[k.Buffer, Expr]) -> Expr | None:
        """The result as an index expression, if no partial sum of it overflows; else None."""
        args = [_position(arg, positions) for arg in stmt.args]
        exprs = [arg for arg in args if arg is not None]
        if len(exprs) < len(args) or not any(e.free_symbols for e in exprs):
            return None
        rule = _EXPRESSIONS.get(stmt.op.name)
        expr = rule(*exprs) if rule is not None and stmt.dtype in INTEGERS else None
        if expr is None or not self._fits(expr):
            return None
        low, high = bounds(expr)
        assert low is not None and high is not None
        types = (INTEGERS[stmt.dtype], INTEGERS[stmt.dst.buffer.dtype])
        return expr if all(within((low, high), each) for each in types) else None

    def _fits(self, expr: Expr) -> bool:
        """Whether all partial sums of an expression are in the range of an index."""
        total = 0
        for core, coefficient in expr.terms:
            low, high = bounds(core)
            if low is None or high is None:
                return False
            total += max(abs(low), abs(high)) * abs(coefficient)
        return total <= self.ranges.index[1]

    def _named(
        self, stmt: k.LetValue, positions: dict[k.Buffer, Expr], renamed: dict[Symbol, Expr]
    ) -> k.LetValue | None:
        """The statement that names an index value, simplified; None if an expression replaces the name."""
        found = self.ranges.of(stmt.value)
        extent = as_int(stmt.extent)
        if stmt.symbol.lo == 0 or found is None or extent is None or not within(found, (0, extent - 1)):
            return stmt
        expr = _position(stmt.value, positions)
        if expr is not None:
            renamed[stmt.symbol] = expr
            return None
        name = symbol(stmt.symbol.name, lo=0, hi=extent - 1)
        renamed[stmt.symbol] = name
        return dataclasses.replace(stmt, symbol=name)


def _position(operand: k.Operand, positions: dict[k.Buffer, Expr]) -> Expr | None:
    if isinstance(operand, k.Imm) and isinstance(operand.value, int) and operand.dtype is not DataType.Bool:
        return const(operand.value)
    if isinstance(operand, k.IndexValue):
        return operand.expr if operand.dtype in _POSITIONS else None
    return positions.get(operand.buffer) if isinstance(operand, k.Ref) else None


def _divided(operation: Callable[[Expr, Expr], Expr], a: Expr, b: Expr) -> Expr | None:
    """C's quotient or remainder as an index expression. They are equal for operands >= 0."""
    low, divisor = bounds(a)[0], as_int(b)
    if low is None or low < 0 or divisor is None or divisor <= 0:
        return None
    return operation(a, b)


def _product(a: Expr, b: Expr) -> Expr | None:
    return a * b if as_int(a) is not None or as_int(b) is not None else None


_EXPRESSIONS: dict[str, Callable[..., Expr | None]] = {
    "cast": lambda a: a,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "neg": lambda a: -a,
    "mul": _product,
    "div": partial(_divided, floordiv),
    "mod": partial(_divided, mod),
    "fmod": partial(_divided, mod),
    "remainder": partial(_divided, mod),
}


# ---- registers of 32 bits ----------------------------------------------------------------------------------


class _Narrowing:
    """Replaces registers by registers of 32 bits.

    Attributes:
        narrow: the register of 32 bits that replaces each register.
    """

    def __init__(self, ranges: Ranges, body: tuple[k.Stmt, ...]) -> None:
        self._ranges = ranges
        self._body = body
        self.narrow = {
            buffer: dataclasses.replace(buffer, dtype=DataType.Int32)
            for buffer, found in ranges.known.items()
            if buffer.dtype in _NARROWED and within(found, _INT32)
        }

    def narrowed(self) -> tuple[k.Stmt, ...]:
        statements = list(k.walk(self._body))
        count = -1
        while count != len(self.narrow):
            count = len(self.narrow)
            for stmt in statements:
                for buffer in self._excluded(stmt):
                    self.narrow.pop(buffer, None)
        return k.rewritten(self._body, lambda stmt: [self._statement(stmt)])

    def _excluded(self, stmt: k.Stmt) -> Iterable[k.Buffer]:
        """The registers whose type a statement depends on."""
        if isinstance(stmt, (k.Alloc, k.LetValue)):
            return ()
        if isinstance(stmt, k.Compute):
            if stmt.dst.buffer.dtype is DataType.Int:
                return ()
            # A conversion to a narrower type truncates values that do not fit.
            made, dst = self._ranges.computed(stmt), stmt.dst.buffer
            fits = made is not None and within(made, INTEGERS.get(dst.dtype, made))
            return () if fits else (dst,)
        if isinstance(stmt, k.Copy):
            refs = [ref.buffer for ref in (stmt.dst, stmt.src, stmt.fill) if isinstance(ref, k.Ref)]
            return () if all(buffer in self.narrow for buffer in refs) else refs
        return (*access.read_buffers(stmt), *access.written_buffers(stmt))

    def _statement(self, stmt: k.Stmt) -> k.Stmt:
        computes = stmt.dtype if isinstance(stmt, k.Compute) else None
        in_32 = isinstance(stmt, k.Compute) and computes is DataType.Int and self._may_be_short(stmt)
        if isinstance(stmt, k.Copy) and stmt.dst.buffer in self.narrow:
            fill = None if stmt.fill is None else _short(stmt.fill)
            stmt = dataclasses.replace(stmt, src=_short(stmt.src), fill=fill)
        if not self.narrow.keys().isdisjoint(
            (*access.read_buffers(stmt), *access.written_buffers(stmt), access.declared_buffer(stmt))
        ):
            stmt = access.map_buffers(stmt, self.narrow)
        if in_32:
            assert isinstance(stmt, k.Compute)
            stmt = dataclasses.replace(stmt, dtype=DataType.Int32, args=tuple(map(_short, stmt.args)))
        return stmt

    def _may_be_short(self, stmt: k.Compute) -> bool:
        """Whether an operation on integers of 64 bits gives the same result in 32 bits."""
        if stmt.op not in _ALIKE or (made := self._ranges.computed(stmt)) is None:
            return False
        saturates = stmt.op in _SATURATING
        args = [self._ranges.of(arg) for arg in stmt.args if not (saturates and isinstance(arg, k.Imm))]
        return within(made, _INT32) and all(each is not None and within(each, _INT32) for each in args)


def _short(operand: k.Operand) -> k.Operand:
    """An operand in 32 bits. A constant that does not fit becomes the nearest one that does."""
    if isinstance(operand, k.IndexValue):
        return k.IndexValue(operand.expr, DataType.Int32)
    if isinstance(operand, k.Imm) and operand.dtype is not DataType.Bool:
        assert isinstance(operand.value, int)
        return k.Imm(min(max(operand.value, _INT32[0]), _INT32[1]), DataType.Int32)
    return operand
