"""The recorded calls of a schedule: plain data, printed as Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any


@dataclass(frozen=True, slots=True)
class TensorRef:
    """A tensor by its number, which is the same in every copy of a fusion."""

    number: int

    def __str__(self) -> str:
        return f"t{self.number}"


@dataclass(frozen=True, slots=True)
class Call:
    """One primitive; arguments are plain values, enums, TensorRefs, and tuples or dicts of these."""

    method: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    result: TensorRef | None = None


def _text(value: Any) -> str:
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_text(k)}: {_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_text, value)) + "]"
    if isinstance(value, TensorRef):
        return str(value)
    return repr(value)


def _refs(value: Any) -> Iterable[TensorRef]:
    if isinstance(value, TensorRef):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _refs(item)


def to_python(trace: Iterable[Call]) -> str:
    """A function `schedule(s)` that makes the same calls on a `Schedule` of the same fusion.

    A tensor that no call returned is looked up by its number before its first use, when it exists.
    """
    known: set[TensorRef] = set()
    lines = []
    for call in trace:
        for ref in _refs((*call.args, *(v for _, v in call.kwargs))):
            if ref not in known:
                known.add(ref)
                lines.append(f"    {ref} = s.tensor({ref.number})")
        arguments = [_text(a) for a in call.args] + [f"{k}={_text(v)}" for k, v in call.kwargs]
        target = ""
        if call.result is not None:
            known.add(call.result)
            target = f"{call.result} = "
        lines.append(f"    {target}s.{call.method}({', '.join(arguments)})")
    return "\n".join(["def schedule(s):", *(lines or ["    pass"])]) + "\n"
