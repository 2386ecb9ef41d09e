"""The table of all calls of a definition: one `OpDef` per method of `fd.ops`.

A builder is a function that takes a `Fusion` first and appends nodes to it. The decorator `op` makes its row:
the method's signature, its argument checks, its docstring, its record and its printed form all come from the
function's own signature.
"""

from __future__ import annotations

import functools
import inspect
import operator
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fusewright.core.dtype import DataType
from fusewright.core.errors import ArgumentTypeError, RegistrationError
from fusewright.ir import Fusion, Scalar, TensorView


class ScalarVector(tuple[Scalar, ...]):
    """Several scalars that a user holds by one handle."""

    __slots__ = ()


# What builders declare their parameters as. Each has a row in `KINDS`, which checks values of it.
ScalarLike = Scalar | bool | int | float | complex
Operand = TensorView | Scalar | bool | int | float | complex
Shape = ScalarVector | Sequence[int | Scalar]
Dims = int | Sequence[int]
Contiguity = bool | Sequence[bool | None]
Values = int | Sequence[int | Scalar]

Result = TensorView | Scalar | ScalarVector | tuple[Any, ...] | list[Any] | None

_INT64 = range(-(1 << 63), 1 << 63)


def _is_int(value: object) -> bool:
    return type(value) is int and value in _INT64


def _is_number(value: object) -> bool:
    return type(value) in (bool, float, complex) or _is_int(value)


def _sequence_of(accepts: Callable[[object], bool]) -> Callable[[object], bool]:
    def check(value: object) -> bool:
        return isinstance(value, (list, tuple)) and all(map(accepts, value))

    return check


_is_ints = _sequence_of(_is_int)
_is_extents = _sequence_of(lambda v: isinstance(v, Scalar) or _is_int(v))
_is_flags = _sequence_of(lambda v: v is None or isinstance(v, bool))


def _is_arguments(value: object) -> bool:
    """What an operator of torch may be given, lists of it included."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_arguments, value))
    return value is None or _is_number(value) or isinstance(value, (TensorView, Scalar, str, DataType))


@dataclass(frozen=True, slots=True)
class Kind:
    """What an argument may be. `is_operand`: a value of the fusion, printed without its keyword."""

    text: str
    accepts: Callable[[object], bool]
    is_operand: bool = False
    is_shape: bool = False


KINDS: Mapping[object, Kind] = {
    TensorView: Kind("Tensor", lambda v: isinstance(v, TensorView), is_operand=True),
    Operand: Kind(
        "Tensor, Scalar or number",
        lambda v: isinstance(v, (TensorView, Scalar)) or _is_number(v),
        is_operand=True,
    ),
    ScalarLike: Kind("Scalar or number", lambda v: isinstance(v, Scalar) or _is_number(v)),
    ScalarVector: Kind("Vector", lambda v: isinstance(v, ScalarVector), is_operand=True),
    Shape: Kind("Vector or list of ints and Scalars", _is_extents, is_shape=True),
    Dims: Kind("int or list of ints", lambda v: _is_int(v) or _is_ints(v)),
    Values: Kind("int, or list of ints and Scalars", lambda v: _is_int(v) or _is_extents(v), is_operand=True),
    Contiguity: Kind("bool or list of bools", lambda v: isinstance(v, bool) or _is_flags(v)),
    Sequence[TensorView]: Kind(
        "list of Tensors", _sequence_of(lambda v: isinstance(v, TensorView)), is_operand=True
    ),
    Sequence[object]: Kind("list of Tensors, Scalars, plain values and lists of these", _is_arguments),
    Sequence[Shape]: Kind("list of shapes", _sequence_of(_is_extents)),
    Sequence[DataType]: Kind("list of DataTypes", _sequence_of(lambda v: isinstance(v, DataType))),
    Sequence[Sequence[int]]: Kind("list of lists of ints", _sequence_of(_is_ints)),
    Sequence[int]: Kind("list of ints", _is_ints),
    Sequence[bool]: Kind("list of bools", _sequence_of(lambda v: isinstance(v, bool))),
    int: Kind("int", _is_int),
    bool: Kind("bool", lambda v: isinstance(v, bool)),
    str: Kind("str", lambda v: type(v) is str),
    DataType: Kind("DataType", lambda v: isinstance(v, DataType)),
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of an operation. `default` is `inspect.Parameter.empty` where it must be given."""

    name: str
    kind: Kind
    default: Any
    positional_only: bool
    optional: bool

    @property
    def by_keyword(self) -> bool:
        """Whether it is printed as `name=value`."""
        return not (self.positional_only or self.kind.is_operand)

    def accepts(self, value: object) -> bool:
        return (value is None and self.optional) or self.kind.accepts(value)


#: A hint where a Python bool is no operand.
EQUALITY = "`==` asks if two handles are the same one; fd.ops.eq and fd.ops.ne compare values"

Arrange = Callable[[list[Any]], None]
_MISSING = inspect.Parameter.empty


@dataclass(frozen=True, slots=True, eq=False)
class OpDef:
    """One operation: how its method is called, and what builds it.

    `build(fusion, *values)` takes one value a parameter: `TensorView`, `Scalar`, `ScalarVector`, or a plain
    Python value. `signature` says what it returns, too. `aliases` are other names of parameters. `arrange`
    rewrites the bound values in place, for overloads that one signature cannot tell; `overloads` states
    these for type checkers: the names of the parameters that one takes, and its result. `positional`
    parameters need no keyword; the rest do. `key` is what records of calls hold: the name, but for operations
    that users register, of which another may have had the name before.
    """

    name: str
    key: str
    parameters: tuple[Parameter, ...]
    signature: inspect.Signature
    build: Callable[..., Any]
    doc: str
    aliases: Mapping[str, str]
    arrange: Arrange | None
    index: Mapping[str, int]
    positional: int
    overloads: Mapping[tuple[str, ...], object]

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """One value a parameter, defaults filled in. ArgumentTypeError if the call does not fit."""
        parameters = self.parameters
        if len(args) > self.positional:
            raise self.mismatch(args, kwargs)
        values = list(args)
        values += [p.default for p in parameters[len(args) :]]
        for name, value in kwargs.items():
            position = self.index.get(self.aliases.get(name, name))
            if position is None or position < len(args) or parameters[position].positional_only:
                raise self.mismatch(args, kwargs)
            values[position] = value
        if any(value is _MISSING for value in values[len(args) :]):
            raise self.mismatch(args, kwargs)
        if self.arrange is not None:
            self.arrange(values)
        return values

    def check(self, values: Sequence[Any]) -> None:
        """Raises ArgumentTypeError if a bound value is of a type that its parameter does not take."""
        for parameter, value in zip(self.parameters, values):
            if not parameter.accepts(value):
                hint = f"{parameter.name} must be {parameter.kind.text}, not {describe_argument(value)}"
                if isinstance(value, bool) and parameter.kind.is_operand:
                    hint += f"; {EQUALITY}"
                raise self.mismatch(values, {}, hint)

    def mismatch(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], hint: str | None = None
    ) -> ArgumentTypeError:
        """The error of a call whose arguments do not fit."""
        given = [describe_argument(a) for a in args]
        given += [f"{k}: {describe_argument(v)}" for k, v in kwargs.items()]
        expected = ", ".join(
            f"{p.name}: {p.kind.text}"
            + ("" if p.default is _MISSING else f" = {getattr(p.default, 'name', p.default)}")
            for p in self.parameters
        )
        return ArgumentTypeError(
            function=self.name, expected=f"({expected})", given=f"({', '.join(given)})", hint=hint
        )


# What users call the values that builders take.
_USER_NAMES: Mapping[type, str] = {TensorView: "Tensor", ScalarVector: "Vector", type(None): "None"}


# Lists in lists are described to this depth: a list may hold itself.
MAX_DESCRIBED_NESTING = 3


def describe_argument(value: object, nesting: int = 0) -> str:
    """What kind of argument a value is, for messages: `Tensor`, `torch.Tensor`, `list of float`."""
    if isinstance(value, (list, tuple, set, frozenset)) and not isinstance(value, ScalarVector):
        if nesting == MAX_DESCRIBED_NESTING:
            return type(value).__name__
        kinds = " and ".join(dict.fromkeys(describe_argument(item, nesting + 1) for item in value))
        return f"{type(value).__name__} of {kinds}" if kinds else f"empty {type(value).__name__}"
    if type(value) is int and not _is_int(value):
        return "int of more than 64 bits"
    kind = type(value)
    if kind in _USER_NAMES:
        return _USER_NAMES[kind]
    package = kind.__module__.partition(".")[0]
    return kind.__qualname__ if package in ("builtins", "fusewright") else f"{package}.{kind.__qualname__}"


OPS: dict[str, OpDef] = {}
"""Every operation by name, in the order of definition. Filled while `fusewright.ops` is imported."""


def by_position(build: Callable[..., Any], signature: inspect.Signature) -> Callable[..., Any]:
    """`build` as a function that takes its keyword-only parameters by position too."""
    names = [p.name for p in signature.parameters.values() if p.kind is inspect.Parameter.KEYWORD_ONLY]
    if not names:
        return build

    def build_by_position(fusion: Fusion, *values: Any) -> Any:
        first = len(values) - len(names)
        return build(fusion, *values[:first], **dict(zip(names, values[first:])))

    return build_by_position


_Builder = typing.TypeVar("_Builder", bound=Callable[..., Any])


def _without_none(hint: Any) -> tuple[object, bool]:
    """An annotation as the keys of KINDS are written, and whether it allows None besides."""
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return hint, False
    members = tuple(a for a in typing.get_args(hint) if a is not type(None))
    return functools.reduce(operator.or_, members), len(members) < len(typing.get_args(hint))


def _parameter(name: str, hint: object, default: Any, positional_only: bool) -> Parameter:
    hint, optional = _without_none(hint)
    return Parameter(name, KINDS[hint], default, positional_only, optional)


def register(
    table: dict[str, OpDef],
    name: str,
    signature: inspect.Signature,
    build: Callable[..., Any],
    doc: str,
    aliases: Mapping[str, str] | None = None,
    arrange: Arrange | None = None,
    overloads: Mapping[tuple[str, ...], object] | None = None,
    key: str | None = None,
) -> OpDef:
    """Adds a row to `table`. The annotations of `signature` are keys of `KINDS`, or optional ones."""
    parameters = tuple(
        _parameter(p.name, p.annotation, p.default, p.kind is inspect.Parameter.POSITIONAL_ONLY)
        for p in signature.parameters.values()
    )
    index = {p.name: i for i, p in enumerate(parameters)}
    by_keyword = sum(p.kind is inspect.Parameter.KEYWORD_ONLY for p in signature.parameters.values())
    positional = len(parameters) - by_keyword
    row = OpDef(
        name,
        key or name,
        parameters,
        signature,
        build,
        doc,
        aliases or {},
        arrange,
        index,
        positional,
        overloads or {},
    )
    table[name] = row
    return row


def op(
    table: dict[str, OpDef] = OPS,
    *,
    name: str | None = None,
    aliases: Mapping[str, str] | None = None,
    arrange: Arrange | None = None,
    overloads: Mapping[tuple[str, ...], object] | None = None,
) -> Callable[[_Builder], _Builder]:
    """Registers a builder under its own name, or `name`; its first parameter is the `Fusion`."""

    def decorate(build: _Builder) -> _Builder:
        signature, name_ = builder_signature(build), name or builder_name(build)
        build_ = by_position(build, signature)
        register(table, name_, signature, build_, doc_of(build), aliases, arrange, overloads)
        return build

    return decorate


def builder_name(build: Callable[..., Any]) -> str:
    """What the method is called that a builder makes: one named like a keyword ends in an underscore."""
    return build.__name__.rstrip("_")


def doc_of(build: Callable[..., Any]) -> str:
    return inspect.cleandoc(build.__doc__ or "")


def builder_signature(build: Callable[..., Any]) -> inspect.Signature:
    """The method's signature: a builder's without the `Fusion`, which comes first.

    Raises:
        RegistrationError: a parameter that no argument can be given for.
    """
    hints = typing.get_type_hints(build)
    declared = list(inspect.signature(build).parameters.values())
    what = f"the operation {builder_name(build)}"
    if not declared or hints.get(declared[0].name) is not Fusion:
        raise RegistrationError(what=what, problem="its first parameter has to be annotated as a Fusion")
    for parameter in declared[1:]:
        hint, _ = _without_none(hints.get(parameter.name))
        if hint not in KINDS or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            expected = ", ".join(sorted(getattr(kind, "__name__", str(kind)) for kind in KINDS))
            raise RegistrationError(
                what=what, problem=f"`{parameter}` is annotated as none of {expected}", hint="see KINDS"
            )
    if "return" not in hints:
        raise RegistrationError(
            what=what, problem="its result has to be annotated: as a TensorView, or a Val"
        )
    parameters = [p.replace(annotation=hints[p.name]) for p in declared[1:]]
    return inspect.Signature(parameters, return_annotation=hints["return"])
