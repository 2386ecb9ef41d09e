"""Frozen dataclasses of plain fields to dicts and JSON, and back with errors that name the path.

The one place that imports msgspec. Enumerations are written by name. Nothing loaded is ever executed.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import re
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from fusewright.core.errors import ParamsError

T = TypeVar("T")

_AT = re.compile(r"^(?P<problem>.*?)(?: - at `(?P<path>.*)`)?$", re.DOTALL)


def to_dict(value: Any) -> dict[str, Any]:
    """A dataclass as nested plain dicts; enumerations by name."""
    return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_dict(value)
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value


def fields_text(value: Any, indent: str = "") -> str:
    """A dataclass for reading: the fields that differ from their defaults, one a line. Else the repr."""
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
    """The dataclass `cls` from a dict; absent fields take their defaults.

    Raises:
        ParamsError: naming the path of the field, what it expects and what it got.
    """
    hints = typing.get_type_hints(cls)
    plain = _read(cls, hints, data, "")
    return plain


def _read(cls: type[T], hints: Mapping[str, Any], data: Any, path: str) -> T:
    if not isinstance(data, Mapping):
        raise ParamsError(
            path=path.rstrip(".") or cls.__name__, expected=f"the fields of {cls.__name__}", given=repr(data)
        )
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    unknown = [name for name in data if name not in fields]
    if unknown:
        raise ParamsError(
            path=f"{path}{unknown[0]}",
            expected=f"one of {', '.join(fields)}",
            given=f"the name {unknown[0]!r}",
        )
    values = {name: _read_value(hints[name], value, f"{path}{name}") for name, value in data.items()}
    return cls(**values)


def _read_value(hint: Any, value: Any, path: str) -> Any:
    if dataclasses.is_dataclass(hint):
        if isinstance(value, hint):  # type: ignore[arg-type]
            return value
        return _read(hint, typing.get_type_hints(hint), value, f"{path}.")  # type: ignore[arg-type]
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    for choice in typing.get_args(hint) if is_union else (hint,):
        if isinstance(choice, type) and issubclass(choice, enum.Enum):
            if isinstance(value, choice):
                return value
            if isinstance(value, str) and value.rpartition(".")[2] in choice.__members__:
                return choice[value.rpartition(".")[2]]
            if isinstance(value, str) or not is_union:
                names = ", ".join(choice.__members__)
                raise ParamsError(path=path, expected=f"one of {names}", given=repr(value))
    try:
        return msgspec.convert(value, hint, strict=True)
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
        data = msgspec.json.decode(text.encode())
    except msgspec.DecodeError as error:
        raise ParamsError(path=cls.__name__, expected="JSON", given=f"{text[:60]!r} ({error})") from None
    return from_dict(cls, data)
