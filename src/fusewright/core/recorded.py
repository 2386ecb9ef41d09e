"""Recorded functions of numbers: a recording is valid for all numbers that give the same answers.

A function that decides by arithmetic runs on `Number`s. These compute and compare like the numbers that they
stand for, and record each question about them: whether one is less than another, equal to it, or which
integer it is. If other numbers give the same answers, the function takes the same path. So
`Recorder.compiled` asks these questions and computes the result as straight-line code.

Any other use of a number raises TypeError: it has no hash and is not an index. Converting it to text is
allowed and is not a question, since nothing is decided by text. A function that does not take recorded
numbers is one step (`asked`, `followed`) or part of the result (`computed`).
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

# Operations that a recording may have: beyond it the function itself is little slower.
MAX_STEPS = 768

#: What the function makes of numbers that answer all questions like those that were recorded; None of others.
Recorded = Callable[[Sequence[int]], Any]
#: The least and the greatest value of a number.
Range = tuple[int, int]

Answer = TypeVar("Answer")


class RecordingError(Exception):
    """The function asks more questions than are worth recording."""


@dataclass(frozen=True, slots=True, eq=False)
class Computed:
    """Part of a result: a call of `function` whose arguments are numbers or contain numbers in tuples."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class Recorder:
    """Records the questions about some numbers.

    Args:
        ranges: by position, a range that contains every number for which the recording is ever used. A
            comparison that the ranges answer is not a question.

    Attributes:
        numbers: the arguments for the function, in place of `values`.
    """

    def __init__(self, values: Sequence[int], ranges: Mapping[int, Range] | None = None) -> None:
        self._inputs = [f"a{i}" for i in range(len(values))]
        self._ranges = {self._inputs[i]: found for i, found in (ranges or {}).items()}
        #: each number that was computed and its text, in order
        self._steps: dict[str, str] = {}
        self._made: dict[str, Number] = {}
        #: by number: of each comparison the constant that implies all others; values that it does not have
        self._bounds: dict[str, dict[str, float]] = {}
        self._unequal: dict[str, dict[float, None]] = {}
        #: comparisons of two numbers, and other questions
        self._relations: dict[str, tuple[str, ...]] = {}
        #: the names in texts of functions and values outside of Python's builtins
        self._globals: dict[str, Any] = dict(vars(math))
        self._global_names: dict[int, str] = {}
        #: how texts compute what is `Computed`, in order, by the object
        self._calls: dict[Computed, tuple[str, str]] = {}
        self.numbers: list[Any] = [Number(self, name, value) for name, value in zip(self._inputs, values)]

    # ---- what numbers tell

    def computed(self, text: str, value: Any) -> Number:
        """The number that the expression `text` computes from others."""
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
            if other is not number:
                self._relations.setdefault(f"{number.name} {symbol} {other.name}", (number.name, other.name))
        elif self._is_known(number.name, symbol, other):
            pass
        elif symbol == "!=":
            self._unequal.setdefault(number.name, {})[other] = None
        else:
            bounds = self._bounds.setdefault(number.name, {})
            tighter = min if symbol in ("<", "<=") else max
            bounds[symbol] = tighter(bounds.get(symbol, other), other)
        return holds

    def range_of(self, number: Number) -> Range | None:
        """The range of a number before any question."""
        return self._ranges.get(number.name)

    def _is_known(self, name: str, symbol: str, other: float) -> bool:
        """Whether all numbers that the recording is asked about answer alike."""
        if name not in self._ranges:
            return False
        low, high = self._ranges[name]
        if symbol == "!=":
            return not low <= other <= high
        if symbol == "==":
            return low == high
        return all(_COMPARISONS[symbol](end, other) for end in (low, high))

    def called(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Number:
        """The result of a function of numbers, as one step."""
        text = f"{self._text(function)}({''.join(f'{self._text(each)}, ' for each in arguments)})"
        return self.computed(text, function(*map(_values_of, arguments)))

    # ---- what they told

    def compiled(self, result: Any = True) -> Recorded:
        """The recorded function. It returns `result` for numbers that give the same answers, and None for
        others.

        If an operation that a question needs is undefined, the answers differ.

        Args:
            result: a value, a number, a `Computed`, or a tuple of these.
        """
        conditions, returned = self._conditions(), self._text(result)
        asked = self._needed(name for names in conditions.values() for name in names)
        calls = list(self._calls.values())
        rest = self._needed(_names(" ".join([returned, *(text for _, text in calls)]))) - asked
        lines, defined = [], set(self._inputs)
        waiting = dict(conditions)
        for name, text in [("", ""), *((n, t) for n, t in self._steps.items() if n in asked)]:
            if name:
                lines.append(f"{name} = {text}")
                defined.add(name)
            for condition in [text for text, names in waiting.items() if defined.issuperset(names)]:
                del waiting[condition]
                lines.append(f"if not ({condition}): return None")
        unpack = f"{', '.join(self._inputs)}, = values" if self._inputs else "pass"
        after = [(name, text) for name, text in self._steps.items() if name in rest]
        source = "\n ".join(
            [
                "def recorded(values):",
                unpack,
                *(["try:", *(f" {line}" for line in lines)] if lines else []),
                *(["except (ArithmeticError, ValueError): return None"] if lines else []),
                *(f"{name} = {text}" for name, text in (*after, *calls)),
                f"return {returned}",
            ]
        )
        exec(compile(source + "\n", "<fusewright recorded decision>", "exec"), self._globals)
        found: Recorded = self._globals["recorded"]
        return found

    def _needed(self, names: Iterable[str]) -> set[str]:
        """The steps that compute these numbers."""
        needed = set(names)
        for name, text in reversed(self._steps.items()):
            if name in needed:
                needed.update(_names(text))
        return needed & self._steps.keys()

    def _text(self, value: Any) -> str:
        """Python that computes a value from the recorded numbers."""
        if isinstance(value, Number):
            return value.name
        if type(value) is tuple:
            return f"({''.join(f'{self._text(each)}, ' for each in value)})"
        if isinstance(value, Computed):
            if value not in self._calls:
                arguments = ", ".join(map(self._text, value.arguments))
                text = f"{self._text(value.function)}({arguments})"
                self._calls[value] = f"c{len(self._calls)}", text
            return self._calls[value][0]
        if type(value) in (int, bool) or value is None:
            return repr(value)
        name = self._global_names.setdefault(id(value), f"g{len(self._global_names)}")
        self._globals[name] = value  # which keeps it, and so its id
        return name

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
# Operations with an integer that leave an integer as it is; the last says whether the number is on the right.
_IDENTITIES = {
    ("+", 0, False),
    ("+", 0, True),
    ("-", 0, False),
    ("*", 1, False),
    ("*", 1, True),
    ("//", 1, False),
}
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
    """A number that records the questions about it."""

    __slots__ = ("recorder", "name", "value")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, recorder: Recorder, name: str, value: Any) -> None:
        self.recorder = recorder
        self.name = name
        self.value = value

    def pinned(self) -> Any:
        """The value; asking for it is a question."""
        self.recorder.compared(self, "==", self.value, True)
        return self.value

    def bit_length(self) -> int:
        length: int = self.value.bit_length()
        known = self.recorder.range_of(self)
        if known is not None and known[0].bit_length() == known[1].bit_length():
            return length
        return int(self.recorder.computed(f"{self.name}.bit_length()", length).pinned())

    def __int__(self) -> int:
        return int(self.recorder.computed(f"int({self.name})", int(self.value)).pinned())

    def __trunc__(self) -> Number:
        """As `math.trunc` gives it: `int`, of which Python makes an integer of its own, is a question."""
        return self.recorder.computed(f"trunc({self.name})", math.trunc(self.value))

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
        if type(other) is int and (symbol, other, reflected) in _IDENTITIES and type(self.value) is int:
            return self
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
    """A plain value: for a number its value, which counts as a question."""
    return value.pinned() if type(value) is Number else value


def asked(function: Callable[..., Answer], *arguments: Any) -> Answer:
    """The answer of a function about numbers, which it takes one by one or as tuples; recorded as one
    question.
    """
    recorder = _recorder_of(arguments)
    if recorder is None:
        return function(*arguments)
    answer: Answer = recorder.called(function, arguments).pinned()
    return answer


def followed(function: Callable[..., tuple[int, ...]], *arguments: Any) -> tuple[int, ...]:
    """The numbers that a function returns, if the function does not accept recorded numbers.

    It takes numbers one by one or as tuples, and always returns the same count.
    """
    recorder = _recorder_of(arguments)
    if recorder is None:
        return function(*arguments)
    found = recorder.called(function, arguments)
    made: Any = [recorder.computed(f"{found.name}[{i}]", value) for i, value in enumerate(found.value)]
    return tuple(made)


def computed(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a function; a `Computed` if recorded numbers are among the arguments or in tuples."""
    return function(*arguments) if _recorder_of(arguments) is None else Computed(function, arguments)


def _recorder_of(arguments: Iterable[Any]) -> Recorder | None:
    for argument in arguments:
        if type(argument) is Number:
            return argument.recorder
        if type(argument) is Computed:
            return _recorder_of(argument.arguments)
        if type(argument) is tuple and (found := _recorder_of(argument)) is not None:
            return found
    return None


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


def _values_of(argument: Any) -> Any:
    return tuple(map(_value, argument)) if type(argument) is tuple else _value(argument)
