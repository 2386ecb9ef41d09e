"""The recorded calls of a schedule: plain data, printed as Python."""

from __future__ import annotations

import itertools
import keyword
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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

    result: the tensor, or the list of tensors, that it returned. siblings: of a tensor that it returned, the
    tensors that one node computes together with it, itself included.
    """

    method: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    result: TensorRef | tuple[TensorRef, ...] | None = None
    siblings: tuple[TensorRef, ...] = ()


def _text(value: Any, name: Callable[[TensorRef], str]) -> str:
    if isinstance(value, Enum):
        # A member that is named like a keyword is also spelled with an underscore.
        return f"{type(value).__name__}.{value.name}{'_' * keyword.iskeyword(value.name)}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_text(k, name)}: {_text(v, name)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_text(item, name) for item in value) + "]"
    if isinstance(value, TensorRef):
        return name(value)
    return repr(value)


def _refs(value: Any) -> Iterator[TensorRef]:
    if isinstance(value, TensorRef):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _refs(item)


# What a primitive makes of `t0` is called `t0_<this>`.
_ROLES = {
    "accumulate_in_registers": "sum",
    "cache_after": "copy",
    "cache_before": "value",
    "cache_fork": "output",
    "recompute": "again",
    "rfactor": "partial",
}


def tensor_names(trace: Iterable[Call], own: Mapping[int, str]) -> dict[int, str]:
    """The name of each tensor of a scheduled fusion, by number.

    Args:
        own: those of the fusion itself. What primitives made is named after what they made it of.
    """
    names = dict(own)
    taken = set(names.values())
    for call in trace:
        source = next(_refs(call.args), None) or next(_refs([v for _, v in call.kwargs]), None)
        if source is None or call.method not in _ROLES:
            continue
        for ref in dict.fromkeys((*_refs(call.result), *call.siblings)):
            if ref.number not in names:
                stem = f"{names[source.number]}_{_ROLES[call.method]}"
                candidates = (stem if i == 1 else f"{stem}_{i}" for i in itertools.count(1))
                names[ref.number] = next(name for name in candidates if name not in taken)
                taken.add(names[ref.number])
    return names


def to_python(trace: Iterable[Call], own: Mapping[int, str] | None = None) -> str:
    """A function `schedule(fd)` that makes the same calls on `fd.sched`.

    What a call made is taken from that call; a tensor of the fusion itself is looked up before its first use.
    So a call can be added or taken away, and the others still mean the tensors that they did.

    Args:
        own: names of the fusion's tensors, by number, which `fd.sched.tensor` knows. None: they are looked up
            by number.
    """
    return function_text(call_lines(trace, own))


def function_text(lines: Sequence[str]) -> str:
    return "\n".join(["def schedule(fd):", *(f"    {line}" for line in lines or ["pass"])]) + "\n"


def call_lines(trace: Iterable[Call], own: Mapping[int, str] | None = None) -> list[str]:
    """The statements of `to_python`."""
    calls = list(trace)
    names = None if own is None else tensor_names(calls, own)

    def name(ref: TensorRef) -> str:
        return str(ref) if names is None else names[ref.number]

    def key(ref: TensorRef) -> str:
        return str(ref.number) if names is None else f'"{names[ref.number]}"'

    used = {ref for call in calls for ref in _refs((*call.args, *(v for _, v in call.kwargs)))}
    known: set[TensorRef] = set()
    lines = []
    for call in calls:
        for ref in _refs((*call.args, *(v for _, v in call.kwargs))):
            if ref not in known:
                known.add(ref)
                lines.append(f"{name(ref)} = fd.sched.tensor({key(ref)})")
        arguments = [_text(a, name) for a in call.args] + [f"{k}={_text(v, name)}" for k, v in call.kwargs]
        lines.append(f"{_target(call.result, name)}fd.sched.{call.method}({', '.join(arguments)})")
        known.update(_refs(call.result))
        others = [name(ref) if ref in used and ref not in known else "_" for ref in call.siblings]
        if any(other != "_" for other in others):
            assert isinstance(call.result, TensorRef)
            lines.append(f"{_unpacked(others)} = fd.sched.siblings({name(call.result)})")
            known.update(call.siblings)
    return lines


def _target(result: TensorRef | tuple[TensorRef, ...] | None, name: Callable[[TensorRef], str]) -> str:
    """What a result is assigned to, or nothing where there is none."""
    if isinstance(result, tuple):
        return f"{_unpacked([name(ref) for ref in result])} = "
    return f"{name(result)} = " if result is not None else ""


def _unpacked(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) > 1 else f"[{', '.join(names)}]"
