"""Between which numbers the values of registers lie.

A range is a pair of numbers; None says that nothing is known, which for floats includes that one may be no
number. What is computed with positions and constants has ranges, and so has what is loaded as few bits.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence

from fusewright.core.dtype import Category, DataType
from fusewright.kernel import ir as k
from fusewright.sym import bounds

Number = int | float
Range = tuple[Number, Number]

#: By how much the result of an operation in Float may be off, as a share of its largest operand: eight times
#: its rounding, so that products and sums that a compiler makes one operation are within it, too.
_FLOAT_ERROR = 2.0**-21
_LARGE = 2.0**127  # what is below it is finite in Float
_FLOAT_INTEGERS = 2**24  # up to which Float has all integers

INTEGERS = {
    DataType.Bool: (0, 1),
    DataType.Int8: (-(2**7), 2**7 - 1),
    DataType.UInt8: (0, 2**8 - 1),
    DataType.Int16: (-(2**15), 2**15 - 1),
    DataType.UInt16: (0, 2**16 - 1),
    DataType.Int32: (-(2**31), 2**31 - 1),
    DataType.Int: (-(2**63), 2**63 - 1),
}


def within(inner: Range, outer: Range) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def range_of_operand(operand: k.Operand, known: dict[k.Buffer, Range]) -> Range | None:
    if isinstance(operand, k.Imm):
        value = operand.value
        if isinstance(value, complex) or value != value:
            return None
        if operand.dtype is DataType.Float:
            value = ctypes.c_float(value).value
        return (value, value)
    if isinstance(operand, k.IndexValue):
        low, high = bounds(operand.expr)
        return None if low is None or high is None else converted_range((low, high), operand.dtype)
    if isinstance(operand, k.Ref):
        return known.get(operand.buffer) or INTEGERS.get(operand.buffer.dtype)
    return INTEGERS.get(operand.param.dtype)


def computed_range(stmt: k.Compute, known: dict[k.Buffer, Range]) -> Range | None:
    """Of the result, before it is converted to the type of the destination."""
    rule = _RULES.get(stmt.op.name)
    args = [
        converted_range(range_of_operand(arg, known), dtype)
        for arg, dtype in zip(stmt.args, stmt.op.operand_dtypes(stmt.dtype))
    ]
    result = stmt.op.result_of(stmt.dtype)
    if stmt.op.name == "where" and args[0] is not None and args[0][0] == args[0][1]:
        return args[1] if args[0][0] else args[2]
    if rule is None or any(arg is None for arg in args):
        return INTEGERS.get(result)
    operands = [arg for arg in args if arg is not None]
    ends = [end for arg in operands for end in arg]
    if stmt.op.name not in _OF_ANY and not all(isinstance(end, int) for end in ends):
        return INTEGERS.get(result)
    if stmt.op.name not in _OF_INFINITE and not all(map(math.isfinite, ends)):
        return INTEGERS.get(result)
    found = rule(operands)
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


def converted_range(found: Range | None, dtype: DataType) -> Range | None:
    """Of values in this range that are converted to a type."""
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
    """Of C's remainder, and Python's, of what is not negative."""
    (low, high), (least, most) = args
    return (0, min(high, most - 1)) if low >= 0 and least > 0 else None


def _python_rest(args: Sequence[Range]) -> Range | None:
    _, (least, most) = args
    return _rest(args) or ((0, most - 1) if least > 0 else None)


def _quotient(args: Sequence[Range]) -> Range | None:
    (low, high), (least, most) = args
    return (low // most, high // least) if low >= 0 and least > 0 else None


def _and(args: Sequence[Range]) -> Range | None:
    """Bits of a number that is not negative are no more than that."""
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
    "clamp": lambda a: (
        min(max(a[0][0], a[1][0]), a[2][0]),
        min(max(a[0][1], a[1][1]), a[2][1]),
    ),
    "floor": lambda a: (math.floor(a[0][0]), math.floor(a[0][1])),
    "ceil": lambda a: (math.ceil(a[0][0]), math.ceil(a[0][1])),
    "trunc": lambda a: (math.trunc(a[0][0]), math.trunc(a[0][1])),
    "div": lambda a: _quotient(a) if all(isinstance(e, int) for ends in a for e in ends) else None,
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
_ROUNDED = frozenset({"add", "sub", "mul"})
_OF_INFINITE = frozenset({"maximum", "minimum", "clamp", "where", "lt", "le", "gt", "ge"})
_OF_ANY = (
    _OF_INFINITE | _ROUNDED | {"cast", "real", "neg", "abs", "relu", "eq", "ne", "floor", "ceil", "trunc"}
)
