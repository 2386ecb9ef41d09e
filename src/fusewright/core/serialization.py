"""Frozen dataclasses of plain fields to dicts and JSON, and back with errors that name the path.

Only this module imports msgspec. Enumerations are written by name. Loaded data is never executed.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import json
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import msgspec

from fusewright.core.declaration import attributes
from fusewright.core.errors import ParamsError
from fusewright.core.recorded import plain

T = TypeVar("T")

# What a field of an annotated collection holds; a tuple of any length is told from one of a fixed length.
_COLLECTIONS: dict[Any, Callable[[Iterable[Any]], Any]] = {
    list: list,
    set: set,
    frozenset: frozenset,
    Sequence: tuple,
}
_AT = re.compile(r"^(?P<problem>.*?)(?: - at `(?P<path>.*)`)?$", re.DOTALL)


def to_dict(value: Any) -> dict[str, Any]:
    """A dataclass as nested plain dicts and lists; enumerations by name. ParamsError for other objects."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        raise ParamsError(path="to_dict", expected="an object of a class of params", given=repr(value))
    return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_dict(value)
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, (set, frozenset)):
        return sorted((_plain(v) for v in value), key=repr)
    if isinstance(value, Mapping):
        return {_plain(k): _plain(v) for k, v in value.items()}
    return value


def fields_text(value: Any, indent: str = "") -> str:
    """A dataclass as readable text: the fields that differ from their defaults, one per line. Other objects:
    the repr.
    """
    if isinstance(value, enum.Enum):
        return str(value)
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return repr(value)
    name, lines = type(value).__name__, []
    for item in dataclasses.fields(value):
        given = getattr(value, item.name)
        default = item.default if item.default_factory is dataclasses.MISSING else item.default_factory()
        if given != default:
            lines.append(f"{indent}    {item.name}={fields_text(given, indent + '    ')},")
    return "\n".join([f"{name}(", *lines, f"{indent})"]) if lines else f"{name}()"


def from_dict(cls: type[T], data: Mapping[str, Any]) -> T:
    """The dataclass `cls` from a dict, or from JSON's; absent fields take their defaults.

    The annotations of the fields determine how values are read: plain values, enumerations by name,
    dataclasses, and lists, tuples, sets, dicts and unions of these.

    Raises:
        ParamsError: it names the path of the field, the expected value and the given one.
    """
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        raise ParamsError(path="from_dict", expected="a class of params", given=repr(cls))
    return _read_dataclass(cls, data, "")


def _read_dataclass(cls: type[T], data: Any, path: str) -> T:
    if isinstance(data, cls):
        return data
    if not isinstance(data, Mapping):
        raise ParamsError(
            path=path or cls.__name__, expected=f"the fields of {cls.__name__}", given=repr(data)
        )
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    kind: type = cls
    others, hints = attributes(kind), field_hints(kind)
    prefix = f"{path}." if path else ""
    for name in data:
        if name not in fields and name not in others:
            raise unknown_field(kind, name, (*fields, *others), f"{prefix}{name}")
    for name, field in fields.items():
        required = field.default is field.default_factory is dataclasses.MISSING
        if required and name not in data:
            raise ParamsError(path=f"{prefix}{name}", expected="a value", given="none")
    given = {
        name: read(hints[name] if name in fields else others[name].hint, value, f"{prefix}{name}")
        for name, value in data.items()
    }
    try:
        made = cls(**{name: value for name, value in given.items() if name in fields})
    except ParamsError as error:  # of a class that checks what its constructor is given
        if path:
            error.move_into(path)
        raise
    for name, value in given.items():
        if name in others:
            others[name].expect(made, value, f"{prefix}{name}")
    return made


def unknown_field(cls: type, name: object, known: Iterable[str], path: str) -> ParamsError:
    """The error for a name that a class does not have. It suggests nested fields of this name, else similar
    names.
    """
    known = list(known)
    inner = [
        f"{field}.{name}"
        for field, hint in field_hints(cls).items()
        if isinstance(hint, type) and dataclasses.is_dataclass(hint) and name in field_hints(hint)
    ]
    similar = inner or difflib.get_close_matches(str(name), known, n=2)
    meant = f"; did you mean {' or '.join(similar)}?" if similar else ""
    expected = f"one of {', '.join(known)}" if known else "no fields"
    return ParamsError(f"`{path}`: unknown{meant}", path=path, expected=expected, given=f"the name {name!r}")


@cache
def field_hints(cls: type) -> Mapping[str, Any]:
    """The types of a dataclass's fields; Any if an annotation has a name that its module lacks."""
    try:
        return typing.get_type_hints(cls)
    except NameError:
        module = vars(sys.modules[cls.__module__])
        return {f.name: _hint(f.type, module) for f in dataclasses.fields(cls)}


def _hint(annotation: Any, names: Mapping[str, Any]) -> Any:
    try:
        return eval(annotation, dict(names)) if isinstance(annotation, str) else annotation
    except NameError:
        return Any


def read(hint: Any, value: Any, path: str) -> Any:
    """The value that the type `hint` describes, from its plain form.

    Raises:
        ParamsError: naming the path, which begins with `path`.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _read_union(arguments, value, path)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _read_dataclass(hint, value, path)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _read_enum(hint, value, path)
    if origin in _COLLECTIONS or (origin is tuple and arguments[1:] == (...,)):
        items = _expect(value, (list, tuple, set, frozenset), "array", path)
        entries = (read(arguments[0], item, f"{path}[{i}]") for i, item in enumerate(items))
        return _COLLECTIONS.get(origin, tuple)(entries)
    if origin is tuple:
        items = _expect(value, (list, tuple), "array", path)
        if len(items) != len(arguments):
            raise ParamsError(path=path, expected=f"array of length {len(arguments)}", given=repr(value))
        return tuple(read(h, item, f"{path}[{i}]") for i, (h, item) in enumerate(zip(arguments, items)))
    if origin in (dict, Mapping):
        items = _expect(value, (Mapping,), "object", path).items()
        key, item = arguments
        return {_read_key(key, k, path): read(item, v, f"{path}[{_key_text(k)}]") for k, v in items}
    return _convert(hint, value, path)


def _read_union(choices: Sequence[Any], value: Any, path: str) -> Any:
    """As the choice that takes the value: its own type, else the first, text last (enumerations are text)."""
    errors = []
    for choice in sorted(choices, key=lambda c: 2 if c is str else type(value) is not c):
        try:
            return read(choice, value, path)
        except ParamsError as error:
            errors.append(error)
    # The one that got furthest into the value knows best; of equals, all that is expected.
    depth = max(len(str(error.facts["path"])) for error in errors)
    deepest = [error for error in errors if len(str(error.facts["path"])) == depth]
    if len(deepest) == 1:
        raise deepest[0]
    expected = " or ".join(dict.fromkeys(str(error.facts["expected"]) for error in deepest))
    raise ParamsError(path=deepest[0].facts["path"], expected=expected, given=deepest[0].facts["given"])


def _read_enum(cls: type[enum.Enum], value: Any, path: str) -> enum.Enum:
    if isinstance(value, cls):
        return value
    name = value.rpartition(".")[2] if isinstance(value, str) else ""
    if name not in cls.__members__:
        raise ParamsError(path=path, expected=f"one of {', '.join(cls.__members__)}", given=repr(value))
    return cls[name]


def _read_key(hint: Any, key: Any, path: str) -> Any:
    """A key of a dict, which JSON has as text, whatever it was."""
    return _convert(hint, key, path, strict=False) if hint in (int, float) else read(hint, key, path)


def _key_text(key: Any) -> str:
    return key.name if isinstance(key, enum.Enum) else str(key)


def _expect(value: Any, kinds: tuple[type, ...], expected: str, path: str) -> Any:
    if not isinstance(value, kinds):
        raise ParamsError(path=path, expected=expected, given=repr(value))
    return value


def _convert(hint: Any, value: Any, path: str, strict: bool = True) -> Any:
    """A value of a plain type, as msgspec checks it."""
    value = plain(value)
    try:
        return msgspec.convert(value, hint, strict=strict)
    except msgspec.ValidationError as error:
        match = _AT.match(str(error))
        problem = match["problem"] if match else str(error)
        inner = (match["path"] or "$")[1:] if match else ""
        expected = problem.removeprefix("Expected ").split(", got ")[0].strip("`")
        raise ParamsError(path=f"{path}{inner}", expected=expected, given=repr(value)) from None


def to_json(value: Any) -> str:
    return json.dumps(to_dict(value), sort_keys=True)


def from_json(cls: type[T], text: str) -> T:
    """As from_dict; ParamsError for text that is no JSON object."""
    try:
        data = json.loads(text)  # which has infinities, as `to_json` writes them
    except (TypeError, ValueError, RecursionError) as error:
        name = getattr(cls, "__name__", repr(cls))
        raise ParamsError(path=name, expected="JSON", given=f"{text!r:.60} ({error})") from None
    return from_dict(cls, data)
