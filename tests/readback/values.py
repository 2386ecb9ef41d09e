"""The value of a parsed expression by C++'s rules of types: what a compiler computes, or why it may not.

A value is (type, number). Arithmetic converts its operands as C++ does; what C++ leaves undefined (an integer
that overflows, a division by zero, a literal that no type holds) is an `Undefined`.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Mapping
from typing import Any

from tests.readback.syntax import Expression

Number = bool | int | float | complex
Value = tuple[str, Number]

_BITS = {"bool": 1, "int": 32, "long long": 64}
#: Narrower integers, by their bits and whether they have a sign: what is out of range wraps.
_SHORT = {
    "signed char": (8, True),
    "unsigned char": (8, False),
    "short": (16, True),
    "unsigned short": (16, False),
}
_FLOATS = ("float", "double")


class Undefined(Exception):
    """An expression that C++ gives no value."""


def evaluate(e: Expression, names: Mapping[str, Value]) -> Value:
    """The value of `e`, given those of its names. Undefined, or KeyError for a name without a value."""
    return _EVALUATE[e[0]](e, names)


def _number(type_: str, value: Number) -> Value:
    """A value that must fit its type."""
    if type_ == "unsigned long long":
        return type_, int(value.real) % 2**64
    if type_ in _SHORT:
        bits, signed = _SHORT[type_]
        whole = int(value.real) % 2**bits
        return type_, whole - 2**bits if signed and whole >= 2 ** (bits - 1) else whole
    if type_ in ("int", "long long"):
        limit = 2 ** (_BITS[type_] - 1)
        if not -limit <= value < limit:  # type: ignore[operator]
            raise Undefined(f"{value} overflows {type_}")
        return type_, int(value.real)
    if type_ == "float":
        return type_, ctypes.c_float(float(value.real)).value
    return type_, value


def _common(left: str, right: str) -> str:
    """The usual arithmetic conversions."""
    for type_ in ("double", "float", "unsigned long long", "long long"):
        if type_ in (left, right):
            return type_
    if not {left, right} <= {"int", "bool", *_SHORT}:
        raise Undefined(f"{left} and {right} do not meet in one type")
    return "int"


def _binary(e: Expression, names: Mapping[str, Value]) -> Value:
    operator = e[1]
    if operator in ("&&", "||"):
        left = bool(evaluate(e[2], names)[1])
        if left is (operator == "||"):
            return "bool", left
        return "bool", bool(evaluate(e[3], names)[1])
    (left_type, a), (right_type, b) = evaluate(e[2], names), evaluate(e[3], names)
    type_ = _common(left_type, right_type)
    if operator in _COMPARE:
        return "bool", _COMPARE[operator](a, b)
    if operator in "/%":
        if b == 0 and type_ not in _FLOATS:
            raise Undefined("division by zero")
        if type_ in _FLOATS:
            raise Undefined("no quotients of floats are evaluated")
        # C truncates.
        quotient = abs(int(a)) // abs(int(b)) * (1 if (a < 0) == (b < 0) else -1)  # type: ignore[operator, arg-type]
        return _number(type_, quotient if operator == "/" else a - quotient * b)
    return _number(type_, _ARITHMETIC[operator](a, b))


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "^": lambda a, b: a ^ b,
}


def _unary(e: Expression, names: Mapping[str, Value]) -> Value:
    type_, value = evaluate(e[2], names)
    if e[1] == "!":
        return "bool", not value
    if e[1] not in "+-":
        raise Undefined(f"unary {e[1]}")
    promoted = "int" if type_ == "bool" or type_ in _SHORT else type_
    return _number(promoted, -value if e[1] == "-" else value)


def _cast(e: Expression, names: Mapping[str, Value]) -> Value:
    return converted(evaluate(e[2], names), e[1])


def converted(given: Value, type_: str) -> Value:
    """The value converted to another type, as by a cast."""
    source, value = given
    if source == type_:
        return given
    if type_ == "bool":
        return type_, value != 0
    if source in _FLOATS and type_ in ("int", "long long", "unsigned long long"):
        if not math.isfinite(value.real):
            raise Undefined(f"{value} as {type_}")
        return _number(type_, int(value.real))
    if type_ in (*_BITS, *_SHORT, *_FLOATS, "unsigned long long"):
        return _number(type_, value)
    if type_.startswith("fw::complex<") and source in (*_FLOATS, *_BITS, *_SHORT):
        return type_, complex(converted(given, type_[len("fw::complex<") : -1])[1])
    if type_ == "fw::e2m1_x2" and source == "int" and 0 <= int(value.real) < 256:
        return type_, value  # a byte
    if type_.startswith("fw::") and source == "float":
        return given[0] and type_, value
    raise Undefined(f"{source} as {type_}")


def _construct(e: Expression, names: Mapping[str, Value]) -> Value:
    type_, parts = e[1], [evaluate(part, names) for part in e[2]]
    real = type_[len("fw::complex<") : -1]
    if not type_.startswith("fw::complex<") or len(parts) != 2:
        raise Undefined(f"{type_} of {len(parts)} parts")
    numbers = [float(converted(part, real)[1].real) for part in parts]
    return type_, complex(*numbers)


def _call(e: Expression, names: Mapping[str, Value]) -> Value:
    function, arguments = e[1], [evaluate(argument, names) for argument in e[3]]
    if function in _BY_CONSTANTS:
        divisor, most = e[2]
        [(type_, dividend)] = arguments
        if type_ != "int" or not isinstance(dividend, int) or not 0 <= dividend <= most:
            raise Undefined(f"{dividend} is not in the range of {function}<{divisor}, {most}>")
        return type_, _BY_CONSTANTS[function](dividend, divisor)
    if function not in _FUNCTIONS or e[2]:
        raise Undefined(f"{function} is not evaluated")
    return _FUNCTIONS[function](*arguments)


def _extremum(choose: Callable[[Any, Any], Any]) -> Callable[[Value, Value], Value]:
    def extremum(a: Value, b: Value) -> Value:
        if a[0] != b[0] or a[0] == "bool":
            raise Undefined(f"no overload of min and max for {a[0]} and {b[0]}")
        return a[0], choose(a[1], b[1])

    return extremum


def _floor(of: Callable[[int, int], int]) -> Callable[[Value, Value], Value]:
    def floor(a: Value, b: Value) -> Value:
        if b[1] == 0:
            raise Undefined("division by zero")
        return _number(_common(a[0], b[0]), of(int(a[1].real), int(b[1].real)))

    return floor


#: Quotients by a constant of what is not negative and has a bound.
_BY_CONSTANTS: dict[str, Callable[[int, int], int]] = {
    "fw::constant_quotient": lambda x, divisor: x // divisor,
    "fw::constant_rest": lambda x, divisor: x % divisor,
}
_FUNCTIONS: dict[str, Callable[..., Value]] = {
    "min": _extremum(min),
    "max": _extremum(max),
    "fw::floor_div": _floor(lambda a, b: a // b),
    "fw::floor_mod": _floor(lambda a, b: a % b),
    "__int_as_float": lambda bits: ("float", struct.unpack("<f", struct.pack("<I", bits[1]))[0]),
    "__longlong_as_double": lambda bits: ("double", struct.unpack("<d", struct.pack("<Q", bits[1]))[0]),
}


def _integer(e: Expression, names: Mapping[str, Value]) -> Value:
    _, value, type_ = e
    if type_ == "int" and not value < 2**31:
        # C++ takes it for a long, or an unsigned int: only bits may be written so.
        type_ = "unsigned int" if value < 2**32 else "long"
    if type_ == "long long" and not value < 2**63:
        type_ = "unsigned long long"
    if type_ == "unsigned long long" and not value < 2**64:
        raise Undefined(f"no type holds {value}")
    return type_, value


def _conditional(e: Expression, names: Mapping[str, Value]) -> Value:
    positive, negative = evaluate(e[2], names), evaluate(e[3], names)
    type_ = positive[0] if positive[0] == negative[0] else _common(positive[0], negative[0])
    return converted(positive if evaluate(e[1], names)[1] else negative, type_)


_EVALUATE: dict[str, Callable[[Expression, Mapping[str, Value]], Value]] = {
    "name": lambda e, names: names[e[1]],
    "int": _integer,
    "float": lambda e, names: _number(e[2], e[1]),
    "bool": lambda e, names: ("bool", e[1]),
    "cast": _cast,
    "construct": _construct,
    "call": _call,
    "unary": _unary,
    "binary": _binary,
    "?:": _conditional,
}
