"""Converts between floats and integers that are known to be small by additions, in an eighth of the time.

    a = float(byte)                                 a = (byte + 2^23 * 1.5 as a float) - 2^23 * 1.5
    b = round(a * 0.3)                              b = (a * 0.3 + 2^23 * 1.5) - 2^23 * 1.5
    c = max(b, 3)                          ->       c = max(b, 3)
    y = int8(c)                                     y = int8(bits of c + 2^23 * 1.5)

    b = round(x)                                    c = clamp(x, -128, 127)
    c = clamp(b, -128, 127)                ->       y = c == c ? int8(bits of c + 2^23 * 1.5) : 0
    y = int8(c)

The sum rounds to the nearest integer, half to even. So what is rounded and limited to whole numbers is
limited first, and rounded as it is converted. It may be NaN, of which a conversion to up to 32 bits makes 0.

An H200 does 17 such conversions per cycle and SM, and 120 additions. Bytes that are scaled, added and rounded
take 70 us there, while a copy takes 54. A float that is converted to an integer this way loses the sign of
its zero.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import TypeGuard

from fusewright.core.dtype import DataType
from fusewright.core.op import ElementwiseOp
from fusewright.kernel import access
from fusewright.kernel import ir as k
from fusewright.kernel.operands import operand_dtype
from fusewright.lower.value_ranges import INTEGERS, Range, Ranges, within
from fusewright.ops.elementwise import ELEMENTWISE
from fusewright.ops.rounding import (
    FLOAT_OF_SMALL,
    INTEGER_BELOW,
    LARGEST_SMALL,
    NEAREST_INTEGER,
    NEAREST_INTEGER_OR_0,
    NEAREST_WHOLE,
)

_SMALL = (-LARGEST_SMALL, LARGEST_SMALL - 1)
_CAST, _ROUND, _CLAMP = ELEMENTWISE["cast"], ELEMENTWISE["round"], ELEMENTWISE["clamp"]
_LIMITING = frozenset(ELEMENTWISE[name] for name in ("clamp", "maximum", "minimum"))
_WHOLE = frozenset(ELEMENTWISE[name] for name in ("round", "floor", "ceil", "trunc"))
#: Of whole numbers, these are whole.
_KEEPING_WHOLE = _LIMITING | {ELEMENTWISE[name] for name in ("add", "sub", "mul", "neg", "abs")}
#: The integer types that the GPU converts to floats slowly. Unsigned types are not slow.
_SIGNED = frozenset({DataType.Int8, DataType.Int16})


def convert_small_numbers(kernel: k.Kernel) -> k.Kernel:
    statements = list(k.walk(kernel.body))
    if not any(isinstance(s, k.Compute) and s.op is _CAST and _is_slow(s) for s in statements):
        return kernel
    index = INTEGERS.get(kernel.index_dtype, INTEGERS[DataType.Int32])
    return k.with_body(kernel, _Pass(statements, index).body(kernel.body))


def _is_slow(stmt: k.Compute) -> bool:
    """Whether a cast between a float and an integer takes a slow instruction."""
    target = stmt.dst.buffer.dtype
    if stmt.dtype is DataType.Float:
        return target.is_integral
    return target is DataType.Float and operand_dtype(stmt.args[0]) in _SIGNED


class _Pass:
    """The state of the pass.

    Attributes:
        uses: what is known of registers wherever they are set and read.
    """

    def __init__(self, statements: Sequence[k.Stmt], index: Range) -> None:
        single = {buffer for buffer, count in access.writers(statements).items() if count == 1}
        self._ranges = Ranges(single, index)
        self.uses = _Uses(statements)

    def body(self, body: tuple[k.Stmt, ...]) -> tuple[k.Stmt, ...]:
        result: list[k.Stmt] = []
        for stmt in body:
            self._ranges.note(stmt)
            if isinstance(stmt, k.Compute):
                stmt = self._converted(stmt)
            result.append(k.with_children(stmt, self.body))
        return k.body_of(body, result)

    def _converted(self, stmt: k.Compute) -> k.Compute | k.Copy:
        arg, rounds = stmt.args[0], stmt.op is _ROUND and stmt.dtype is DataType.Float
        if rounds and stmt.dst.buffer in self.uses.rounded_late and operand_dtype(arg) is DataType.Float:
            return k.Copy(stmt.dst, arg)
        if not rounds and not (stmt.op is _CAST and _is_slow(stmt)):
            return stmt
        found = self._ranges.of(arg)
        is_small = found is not None and within(found, _SMALL)
        op = None
        if rounds:
            op = NEAREST_WHOLE if is_small and stmt.dst.buffer in self.uses.integers else None
        elif stmt.dtype is not DataType.Float:
            op = FLOAT_OF_SMALL if is_small else None
        elif self.uses.is_whole_if_rounded(arg):
            op = self._nearest_integer(arg, found, stmt.dst.buffer.dtype)
        elif found is not None and is_small and found[0] >= 0:
            op = INTEGER_BELOW
        return stmt if op is None else dataclasses.replace(stmt, op=op)

    def _nearest_integer(self, arg: k.Operand, found: Range | None, dtype: DataType) -> ElementwiseOp | None:
        """The conversion of a number without a fraction, or of one that it rounds, to this integer type; None
        if it may be large, or gives another value than the GPU's conversion of what is below 0 or NaN.
        """
        if found is not None and within(found, _SMALL):
            return NEAREST_INTEGER if found[0] >= 0 or dtype is not DataType.UInt64 else None
        is_limited = isinstance(arg, k.Ref) and arg.buffer in self.uses.limited
        return NEAREST_INTEGER_OR_0 if is_limited and dtype.size <= DataType.Int32.size else None


class _Uses:
    """Which registers have the same property wherever they are set and read.

    Attributes:
        integers: only casts to integers read them, perhaps after limiting.
        whole: they are floats without fractions.
        limited: only clamps to small numbers set them: these clamps. A value may be NaN.
        rounded_late: numbers that are rounded and then only limited to small whole numbers, and what is
            limited so, if only casts to integers of up to 32 bits read it. The casts may round instead.
    """

    def __init__(self, statements: Sequence[k.Stmt]) -> None:
        self._set_by: dict[k.Buffer, list[k.Stmt]] = defaultdict(list)
        self._read_by: dict[k.Buffer, list[k.Stmt]] = defaultdict(list)
        for stmt in statements:
            for buffer in set(access.written_buffers(stmt)):
                self._set_by[buffer].append(stmt)
            for buffer in set(access.read_buffers(stmt)):
                self._read_by[buffer].append(stmt)
        registers = {
            buffer
            for buffer in self._set_by
            if buffer.space is k.Space.LOCAL and buffer.dtype is DataType.Float
        }
        self._beside = {buffer: self._in_statements_of(buffer) for buffer in registers}
        self.integers = self._without_others(
            registers,
            lambda buffer, left: all(_casts(s) or _limits(s, into=left) for s in self._read_by[buffer]),
        )
        self.whole = self._without_others(
            registers, lambda buffer, left: all(_sets_whole(s, left) for s in self._set_by[buffer])
        )
        clamps = {buffer: list(filter(_clamps, self._set_by[buffer])) for buffer in registers}
        self.limited = {
            buffer: own for buffer, own in clamps.items() if len(own) == len(self._set_by[buffer])
        }
        self.rounded_late = self._without_others(registers, self._is_rounded_late)

    def _in_statements_of(self, buffer: k.Buffer) -> set[k.Buffer]:
        """The buffers of all statements that set or read this one."""
        statements = (*self._set_by[buffer], *self._read_by[buffer])
        return {each for s in statements for each in (*access.written_buffers(s), *access.read_buffers(s))}

    def _without_others(
        self, buffers: set[k.Buffer], holds: Callable[[k.Buffer, set[k.Buffer]], bool]
    ) -> set[k.Buffer]:
        """The largest part of `buffers` for each of which `holds`, given that part."""
        kept, left = set(buffers), list(buffers)
        while left:
            buffer = left.pop()
            if buffer in kept and not holds(buffer, kept):
                kept.remove(buffer)
                left += self._beside[buffer]
        return kept

    def _is_rounded_late(self, buffer: k.Buffer, late: set[k.Buffer]) -> bool:
        read_by = self._read_by[buffer]
        if all(_computes(s, _ROUND) for s in self._set_by[buffer]):
            return all(_clamps(s) and s.dst.buffer in late for s in read_by)
        if buffer not in self.limited or not all(map(_casts_to_few_bits, read_by)):
            return False
        return all(
            isinstance(s.args[0], k.Ref) and s.args[0].buffer in late and all(map(_is_whole, s.args[1:]))
            for s in self.limited[buffer]
        )

    def is_whole_if_rounded(self, operand: k.Operand) -> bool:
        """Whether a cast that rounds gives what one that cuts off a fraction does, or is to round."""
        if isinstance(operand, k.Ref):
            return operand.buffer in self.whole or operand.buffer in self.rounded_late
        return _is_whole(operand)


def _computes(stmt: k.Stmt, op: ElementwiseOp) -> TypeGuard[k.Compute]:
    return isinstance(stmt, k.Compute) and stmt.op is op and stmt.dtype is DataType.Float


def _casts(stmt: k.Stmt) -> bool:
    """Whether a statement converts a float to an integer."""
    return _computes(stmt, _CAST) and stmt.dst.buffer.dtype.is_integral


def _casts_to_few_bits(stmt: k.Stmt) -> bool:
    return _casts(stmt) and all(b.dtype.size <= DataType.Int32.size for b in access.written_buffers(stmt))


def _clamps(stmt: k.Stmt) -> TypeGuard[k.Compute]:
    """Whether a statement limits a value to small numbers."""
    if not _computes(stmt, _CLAMP):
        return False
    low, high = map(_number, stmt.args[1:])
    return low is not None and high is not None and low <= high and within((low, high), _SMALL)


def _limits(stmt: k.Stmt, into: Collection[k.Buffer]) -> bool:
    return isinstance(stmt, k.Compute) and stmt.op in _LIMITING and stmt.dst.buffer in into


def _sets_whole(stmt: k.Stmt, whole: Collection[k.Buffer]) -> bool:
    """Whether a statement gives a register a number without a fraction, if those in `whole` have none."""
    if not isinstance(stmt, k.Compute):
        return False
    if stmt.op in _WHOLE:
        return True
    if stmt.op is _CAST:
        return operand_dtype(stmt.args[0]).is_integral
    return stmt.op in _KEEPING_WHOLE and all(
        each.buffer in whole if isinstance(each, k.Ref) else _is_whole(each) for each in stmt.args
    )


def _is_whole(operand: k.Operand) -> bool:
    number = _number(operand)
    return number is not None and number.is_integer()


def _number(operand: k.Operand) -> float | None:
    """The value of a literal real number."""
    if isinstance(operand, k.Imm) and isinstance(operand.value, (int, float)):
        return float(operand.value)
    return None
