"""Ranges of the values of registers.

A range is a pair of numbers. None means that nothing is known; a float may then also be NaN. Values computed
from positions and constants have ranges, and so do loaded values of few bits.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from fusewright.core.dtype import Category, DataType
from fusewright.kernel import ir as k
from fusewright.sym import Expr, bounds

Number = int | float
Range = tuple[Number, Number]

#: The relative error of an operation in Float, as a share of its largest operand. It is eight times the
#: rounding error, so it also covers products and sums that a compiler contracts to one operation.
_FLOAT_ERROR = 2.0**-21
_LARGE = 2.0**127  # smaller values are finite in Float
_FLOAT_INTEGERS = 2**24  # Float represents all integers up to this one

#: The ranges of the integer types of registers, and of Bool. UInt64 wraps at 0, so nothing is known about it.
INTEGERS: dict[DataType, tuple[int, int]] = {
    each: (int(each.lowest), int(each.highest))
    for each in DataType
    if (each.is_integral or each.is_bool) and each not in (DataType.UInt64, DataType.Index)
}


def within(inner: Range, outer: Range) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


@dataclass
class Ranges:
    """The known ranges of the registers of a kernel at the current statement.

    Attributes:
        single: buffers that only one statement writes.
        index: the range of an index.
        known: ranges of registers.
    """

    single: Collection[k.Buffer]
    index: Range
    known: dict[k.Buffer, Range] = field(default_factory=dict)

    def of(self, operand: k.Operand) -> Range | None:
        if isinstance(operand, k.Imm):
            value = operand.value
            if isinstance(value, complex) or value != value:
                return None
            if operand.dtype is DataType.Float:
                value = ctypes.c_float(value).value
            return (value, value)
        if isinstance(operand, k.IndexValue):
            return converted_range(self._of_index(operand.expr), operand.dtype)
        if isinstance(operand, k.Ref):
            return self.known.get(operand.buffer) or INTEGERS.get(operand.buffer.dtype)
        return INTEGERS.get(operand.param.dtype)

    def _of_index(self, expr: Expr) -> Range:
        low, high = bounds(expr)
        return (self.index[0] if low is None else low, self.index[1] if high is None else high)

    def note(self, stmt: k.Stmt) -> None:
        """Adds the range of the register that a statement sets."""
        if not isinstance(stmt, (k.Copy, k.Compute)) or stmt.dst.buffer not in self.single:
            return
        if stmt.dst.buffer.space is not k.Space.LOCAL:
            return
        if isinstance(stmt, k.Compute):
            found = converted_range(self.computed(stmt), stmt.dst.buffer.dtype)
        else:
            sources = [stmt.src] if stmt.fill is None else [stmt.src, stmt.fill]
            ranges = [each for each in map(self.of, sources) if each is not None]
            is_known = len(ranges) == len(sources)
            found = (min(r[0] for r in ranges), max(r[1] for r in ranges)) if is_known else None
        if found is not None:
            self.known[stmt.dst.buffer] = found

    def computed(self, stmt: k.Compute) -> Range | None:
        """The range of the result before it is converted to the type of the destination."""
        rule, result = _RULES.get(stmt.op.name), stmt.op.result_of(stmt.dtype)
        types = stmt.op.operand_dtypes(stmt.dtype)
        args = [converted_range(self.of(arg), dtype) for arg, dtype in zip(stmt.args, types)]
        if stmt.op.name == "where" and args[0] is not None and args[0][0] == args[0][1]:
            return args[1] if args[0][0] else args[2]
        operands = [arg for arg in args if arg is not None]
        found = rule(operands) if rule is not None and _applies(stmt.op.name, operands, len(args)) else None
        if found is None:
            return INTEGERS.get(result)
        if result in INTEGERS:
            return found if within(found, INTEGERS[result]) else INTEGERS[result]
        if result.category is not Category.FLOAT:
            return None
        if stmt.op.name in _ROUNDED:
            error = _FLOAT_ERROR * max(abs(end) for ends in (*operands, found) for end in ends)
            found = (found[0] - error, found[1] + error)
        return found if all(abs(end) < _LARGE for end in found) else None


def _applies(name: str, operands: Sequence[Range], count: int) -> bool:
    """Whether the rule of an operation is valid for operands in these ranges.

    Args:
        operands: the ranges of the operands whose range is known.
        count: the number of operands.
    """
    ends = [end for operand in operands for end in operand]
    integral = name in _OF_ANY or all(isinstance(end, int) for end in ends)
    finite = name in _OF_INFINITE or all(map(math.isfinite, ends))
    return len(operands) == count and integral and finite


def converted_range(found: Range | None, dtype: DataType) -> Range | None:
    """The range of values that are converted to a type."""
    if found is None:
        return INTEGERS.get(dtype)
    low, high = found
    if isinstance(low, float) and isinstance(high, float) and dtype.category is Category.FLOAT:
        return found if dtype in (DataType.Float, DataType.Double) else None
    if dtype is DataType.Bool:
        return (1, 1) if low > 0 or high < 0 else (0, 0) if low == high == 0 else (0, 1)
    if dtype in INTEGERS:
        if not (math.isfinite(low) and math.isfinite(high)):
            return INTEGERS[dtype]
        towards_zero = (int(low), int(high))
        return towards_zero if within(towards_zero, INTEGERS[dtype]) else INTEGERS[dtype]
    if dtype not in (DataType.Float, DataType.Double):
        return None
    error = _FLOAT_ERROR * max(abs(low), abs(high))
    is_exact = max(abs(low), abs(high)) <= _FLOAT_INTEGERS and isinstance(low, int) and isinstance(high, int)
    return (float(low), float(high)) if is_exact else (low - error, high + error)


def _products(args: Sequence[Range]) -> Range:
    found = [a * b for a in args[0] for b in args[1]]
    return min(found), max(found)


def _absolute(args: Sequence[Range]) -> Range:
    low, high = args[0]
    least = 0 if low <= 0 <= high else min(abs(low), abs(high))
    return least, max(abs(low), abs(high))


def _rest(args: Sequence[Range]) -> Range | None:
    """The range of C's remainder, which is Python's as well, of values >= 0."""
    (low, high), (least, most) = args
    return (0, min(high, most - 1)) if low >= 0 and least > 0 else None


def _python_rest(args: Sequence[Range]) -> Range | None:
    _, (least, most) = args
    return _rest(args) or ((0, most - 1) if least > 0 else None)


def _quotient(args: Sequence[Range]) -> Range | None:
    (low, high), (least, most) = args
    if all(isinstance(end, int) for ends in args for end in ends):
        return (low // most, high // least) if low >= 0 and least > 0 else None
    if least <= 0 <= most:
        return None
    found = [a / b for a in args[0] for b in args[1]]
    return min(found), max(found)


def _and(args: Sequence[Range]) -> Range | None:
    """The range of a bitwise and: at most the smallest operand that is >= 0."""
    known = [high for low, high in args if low >= 0]
    return (0, min(known)) if known else None


def _shifted_right(args: Sequence[Range]) -> Range | None:
    (low, high), (least, most) = args
    if low < 0 or least < 0 or most > 63:
        return None
    return int(low) >> int(most), int(high) >> int(least)


def _either(args: Sequence[Range]) -> Range:
    _, first, second = args
    return min(first[0], second[0]), max(first[1], second[1])


def _less(a: Range, b: Range, or_equal: bool) -> Range:
    always = a[1] <= b[0] if or_equal else a[1] < b[0]
    never = a[0] > b[1] if or_equal else a[0] >= b[1]
    return (1, 1) if always else (0, 0) if never else (0, 1)


def _equal(args: Sequence[Range]) -> Range:
    a, b = args
    if a[1] < b[0] or b[1] < a[0]:
        return 0, 0
    return (1, 1) if a[0] == a[1] == b[0] == b[1] else (0, 1)


def _not(found: Range) -> Range:
    return 1 - found[1], 1 - found[0]


def _of_truths(args: Sequence[Range]) -> list[Range]:
    return [(int(low > 0 or high < 0), int((low, high) != (0, 0))) for low, high in args]


_RULES: dict[str, Callable[[Sequence[Range]], Range | None]] = {
    "cast": lambda a: a[0],
    "real": lambda a: a[0],
    "add": lambda a: (a[0][0] + a[1][0], a[0][1] + a[1][1]),
    "sub": lambda a: (a[0][0] - a[1][1], a[0][1] - a[1][0]),
    "mul": _products,
    "neg": lambda a: (-a[0][1], -a[0][0]),
    "abs": _absolute,
    "relu": lambda a: (max(a[0][0], 0), max(a[0][1], 0)),
    "maximum": lambda a: (max(a[0][0], a[1][0]), max(a[0][1], a[1][1])),
    "minimum": lambda a: (min(a[0][0], a[1][0]), min(a[0][1], a[1][1])),
    "clamp": lambda a: (min(max(a[0][0], a[1][0]), a[2][0]), min(max(a[0][1], a[1][1]), a[2][1])),
    "floor": lambda a: (math.floor(a[0][0]), math.floor(a[0][1])),
    "ceil": lambda a: (math.ceil(a[0][0]), math.ceil(a[0][1])),
    "round": lambda a: (round(a[0][0]), round(a[0][1])),
    "trunc": lambda a: (math.trunc(a[0][0]), math.trunc(a[0][1])),
    "div": _quotient,
    "truediv": _quotient,
    "mod": _rest,
    "fmod": _rest,
    "remainder": _python_rest,
    "bitwise_and": _and,
    "bitwise_right_shift": _shifted_right,
    "logical_right_shift": _shifted_right,
    "where": _either,
    "lt": lambda a: _less(a[0], a[1], or_equal=False),
    "le": lambda a: _less(a[0], a[1], or_equal=True),
    "gt": lambda a: _less(a[1], a[0], or_equal=False),
    "ge": lambda a: _less(a[1], a[0], or_equal=True),
    "eq": _equal,
    "ne": lambda a: _not(_equal(a)),
    "logical_not": lambda a: _not(_of_truths(a)[0]),
    "logical_and": lambda a: tuple(map(min, *_of_truths(a))),
    "logical_or": lambda a: tuple(map(max, *_of_truths(a))),
}
_ROUNDED = frozenset({"add", "sub", "mul", "div", "truediv"})
_OF_INFINITE = frozenset({"maximum", "minimum", "clamp", "where", "lt", "le", "gt", "ge"})
_OF_ANY = (
    _OF_INFINITE
    | _ROUNDED
    | {"cast", "real", "neg", "abs", "relu", "eq", "ne", "floor", "ceil", "round", "trunc"}
)
