"""Decisions by numbers that are recorded: what a function found for some holds for all that answer alike.

A function that decides by arithmetic is run on `Number`s, which compute and compare as the numbers that they
stand for, and write down each question that was asked of them: whether one is below another, or equal to it,
or which integer it is. Other numbers for which all answers are the same lead the function along the same way
to the same result, so `Recorder.compiled` is all that has to be computed of them.

What else Python does with a number raises TypeError: it has no hash, and is no index. Text shows its value,
which is no question, as nothing is decided by text.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

# Operations that a recording may have: beyond it the function itself is little slower.
MAX_STEPS = 384

#: Whether numbers, in the order of those that were recorded, answer all questions like them.
Holds = Callable[[Sequence[int]], bool]


class RecordingError(Exception):
    """The function asks more than is worth recording."""


class Recorder:
    """What is asked of some numbers.

    Attributes:
        numbers: what the function is to be given in the place of `values`.
    """

    def __init__(self, values: Sequence[int]) -> None:
        self._inputs = [f"a{i}" for i in range(len(values))]
        #: each number that was computed and its text, in order
        self._steps: dict[str, str] = {}
        self._made: dict[str, Number] = {}
        #: by number: of each comparison the constant that implies all others; values that it does not have
        self._bounds: dict[str, dict[str, float]] = {}
        self._unequal: dict[str, dict[float, None]] = {}
        #: comparisons of two numbers
        self._relations: dict[str, tuple[str, str]] = {}
        self.numbers: list[Any] = [Number(self, name, value) for name, value in zip(self._inputs, values)]

    # ---- what numbers tell

    def computed(self, text: str, value: Any) -> Number:
        """The number that `text` computes of others."""
        known = self._made.get(text)
        if known is None:
            if len(self._steps) >= MAX_STEPS:
                raise RecordingError
            name = f"v{len(self._steps)}"
            self._steps[name] = text
            known = self._made[text] = Number(self, name, value)
        return known

    def compared(self, number: Number, symbol: str, other: Any, holds: bool) -> bool:
        """Notes the answer to a comparison."""
        if not holds:
            symbol = _OPPOSITE[symbol]
        if isinstance(other, Number):
            self._relations.setdefault(f"{number.name} {symbol} {other.name}", (number.name, other.name))
        elif symbol == "!=":
            self._unequal.setdefault(number.name, {})[other] = None
        else:
            bounds = self._bounds.setdefault(number.name, {})
            tighter = min if symbol in ("<", "<=") else max
            bounds[symbol] = tighter(bounds.get(symbol, other), other)
        return holds

    # ---- what they told

    def compiled(self) -> Holds:
        """Of other values, whether all answers are the same. Where an operation is undefined they are not."""
        conditions = self._conditions()
        needed = {name for names in conditions.values() for name in names}
        steps = []
        for name, text in reversed(self._steps.items()):
            if name in needed:
                needed.update(_names(text))
                steps.append((name, text))
        lines = [f"{', '.join(self._inputs)}, = values"] if self._inputs else []
        defined = set(self._inputs)
        waiting = dict(conditions)
        for name, text in [("", ""), *reversed(steps)]:
            if name:
                lines.append(f"{name} = {text}")
                defined.add(name)
            for condition in [text for text, names in waiting.items() if defined.issuperset(names)]:
                del waiting[condition]
                lines.append(f"if not ({condition}): return False")
        body = "\n  ".join([*lines, "return True"])
        source = f"def holds(values):\n try:\n  {body}\n except (ArithmeticError, ValueError): return False\n"
        names: dict[str, Any] = dict(vars(math))
        exec(compile(source, "<fusewright recorded decision>", "exec"), names)
        return names["holds"]

    def _conditions(self) -> dict[str, tuple[str, ...]]:
        """The text of each condition, with the numbers that it is about; those that most fail by first."""
        found: dict[str, tuple[str, ...]] = {}
        for name, bounds in self._bounds.items():
            exact = bounds.get("==")
            if exact is not None:
                found[f"{name} == {exact!r}"] = (name,)
                continue
            low, high = _stricter(bounds, ">", ">=", max), _stricter(bounds, "<", "<=", min)
            if low and high:
                found[f"{low[1]!r} {_MIRRORED[low[0]]} {name} {high[0]} {high[1]!r}"] = (name,)
            elif side := low or high:
                found[f"{name} {side[0]} {side[1]!r}"] = (name,)
        for name, values in self._unequal.items():
            bounds = self._bounds.get(name, {})
            left = [each for each in values if _is_within(each, bounds)]
            if left:
                found[" and ".join(f"{name} != {each!r}" for each in left)] = (name,)
        return found | self._relations


# What `Recorder` calls numbers that it is given, and those that are computed.
_NAME = re.compile(r"\b[av]\d+\b")
_OPPOSITE = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}
_MIRRORED = {">": "<", ">=": "<="}
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
}


def _stricter(
    bounds: dict[str, float], strict: str, loose: str, tighter: Callable[..., float]
) -> tuple[str, float] | None:
    """The one of two bounds to one side that implies the other."""
    if strict in bounds and (loose not in bounds or tighter(bounds[strict], bounds[loose]) == bounds[strict]):
        return strict, bounds[strict]
    return (loose, bounds[loose]) if loose in bounds else None


def _is_within(value: float, bounds: dict[str, float]) -> bool:
    """Whether a number with these bounds might have the value."""
    return all(_COMPARISONS[symbol](value, bound) for symbol, bound in bounds.items())


def _names(text: str) -> list[str]:
    """The numbers that a text is computed of."""
    return _NAME.findall(text)


class Number:
    """A number whose questions are recorded."""

    __slots__ = ("recorder", "name", "value")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, recorder: Recorder, name: str, value: Any) -> None:
        self.recorder = recorder
        self.name = name
        self.value = value

    def pinned(self) -> Any:
        """The value, which is a question for it."""
        self.recorder.compared(self, "==", self.value, True)
        return self.value

    def bit_length(self) -> int:
        length: int = self.value.bit_length()
        return int(self.recorder.computed(f"{self.name}.bit_length()", length).pinned())

    def __int__(self) -> int:
        return int(self.recorder.computed(f"int({self.name})", int(self.value)).pinned())

    def __bool__(self) -> bool:
        return not self.recorder.compared(self, "==", 0, self.value == 0)

    def __round__(self) -> Number:
        return self.recorder.computed(f"round({self.name})", round(self.value))

    def __neg__(self) -> Number:
        return self.recorder.computed(f"-{self.name}", -self.value)

    def __abs__(self) -> Number:
        return self.recorder.computed(f"abs({self.name})", abs(self.value))

    def __str__(self) -> str:
        return str(self.value)

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(self.value, spec)


def _operation(symbol: str, compute: Callable[[Any, Any], Any], reflected: bool) -> Callable[..., Any]:
    def method(self: Number, other: Any) -> Any:
        if isinstance(other, Number):
            theirs, text = other.value, other.name
        elif isinstance(other, (int, float)):
            theirs, text = other, f"({other!r})" if other < 0 else repr(other)
        else:
            return NotImplemented
        left, right = (text, self.name) if reflected else (self.name, text)
        values = (theirs, self.value) if reflected else (self.value, theirs)
        return self.recorder.computed(f"{left} {symbol} {right}", compute(*values))

    return method


def _comparison(symbol: str, compare: Callable[[Any, Any], bool]) -> Callable[..., Any]:
    def method(self: Number, other: Any) -> Any:
        if isinstance(other, Number):
            theirs = other.value
        elif isinstance(other, (int, float)):
            theirs = other
        else:
            return NotImplemented
        return self.recorder.compared(self, symbol, other, compare(self.value, theirs))

    return method


for _name, _symbol, _compute in (
    ("add", "+", operator.add),
    ("sub", "-", operator.sub),
    ("mul", "*", operator.mul),
    ("truediv", "/", operator.truediv),
    ("floordiv", "//", operator.floordiv),
    ("mod", "%", operator.mod),
    ("pow", "**", operator.pow),
    ("lshift", "<<", operator.lshift),
    ("rshift", ">>", operator.rshift),
    ("and", "&", operator.and_),
):
    setattr(Number, f"__{_name}__", _operation(_symbol, _compute, reflected=False))
    setattr(Number, f"__r{_name}__", _operation(_symbol, _compute, reflected=True))
for _name, _symbol in (("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="), ("eq", "==")):
    setattr(Number, f"__{_name}__", _comparison(_symbol, _COMPARISONS[_symbol]))


def plain(value: Any) -> Any:
    """A value as others keep it: that of a number, which is a question for it."""
    return value.pinned() if type(value) is Number else value


def gcd(*values: int) -> int:
    """As `math.gcd`, of numbers too."""
    try:
        return math.gcd(*values)
    except TypeError:
        return _of_numbers("gcd", math.gcd, values)


def isqrt(value: int) -> int:
    """As `math.isqrt`, of a number too."""
    try:
        return math.isqrt(value)
    except TypeError:
        return _of_numbers("isqrt", math.isqrt, [value])


def log2(value: float) -> float:
    """As `math.log2`, of a number too."""
    try:
        return math.log2(value)
    except TypeError:
        return _of_numbers("log2", math.log2, [value])


def exp(value: float) -> float:
    """As `math.exp`, of a number too."""
    try:
        return math.exp(value)
    except TypeError:
        return _of_numbers("exp", math.exp, [value])


def _of_numbers(name: str, function: Callable[..., Any], values: Sequence[Any]) -> Any:
    recorder = next(value.recorder for value in values if isinstance(value, Number))
    text = ", ".join(str(value.name) if isinstance(value, Number) else repr(value) for value in values)
    return recorder.computed(f"{name}({text})", function(*map(_value, values)))


def _value(number: Any) -> Any:
    return number.value if isinstance(number, Number) else number
