"""The recorded calls of a schedule: plain data, printed as Python."""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Mapping, Sequence
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
    """One primitive; arguments are plain values, enums, TensorRefs, and tuples or dicts of these.

    result: the tensor, or the list of tensors, that it returned. added: all tensors that it made.
    """

    method: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    result: TensorRef | tuple[TensorRef, ...] | None = None
    added: tuple[TensorRef, ...] = ()


def _text(value: Any) -> str:
    if isinstance(value, Enum):
        # A member that is named like a keyword is also spelled with an underscore.
        return f"{type(value).__name__}.{value.name}{'_' * keyword.iskeyword(value.name)}"
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

    What a call made is taken from that call; a tensor of the fusion itself is looked up by its number before
    its first use. So a call can be added or taken away, and the others still mean the tensors that they did.
    """
    calls = list(trace)
    used = {ref for call in calls for ref in _refs((*call.args, *(v for _, v in call.kwargs)))}
    known: set[TensorRef] = set()
    lines = []
    for call in calls:
        for ref in _refs((*call.args, *(v for _, v in call.kwargs))):
            if ref not in known:
                known.add(ref)
                lines.append(f"    {ref} = s.tensor({ref.number})")
        arguments = [_text(a) for a in call.args] + [f"{k}={_text(v)}" for k, v in call.kwargs]
        lines.append(f"    {_target(call.result)}s.{call.method}({', '.join(arguments)})")
        known.update(_refs(call.result))
        names = [str(ref) if ref in used and ref not in known else "_" for ref in call.added]
        if any(name != "_" for name in names):
            lines.append(f"    {_unpacked(names)} = s.added()")
            known.update(call.added)
    return "\n".join(["def schedule(s):", *(lines or ["    pass"])]) + "\n"


def _target(result: TensorRef | tuple[TensorRef, ...] | None) -> str:
    """What a result is assigned to, or nothing where there is none."""
    if isinstance(result, tuple):
        return f"{_unpacked([str(ref) for ref in result])} = "
    return f"{result} = " if result is not None else ""


def _unpacked(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) > 1 else f"[{', '.join(names)}]"
