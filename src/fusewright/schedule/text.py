"""The calls of a schedule as Python, and the names of tensors in it."""

from __future__ import annotations

import itertools
import keyword
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from fusewright.schedule.trace import Call, TensorRef


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


#: What a primitive makes of T0 is called T0_<this>.
ROLES = {
    "accumulate_in_registers": "sum",
    "cache_after": "copy",
    "cache_before": "value",
    "cache_fork": "output",
    "recompute": "again",
    "rfactor": "partial",
    "hold_part": "held",
}


def call_text(call: Call, name: Callable[[TensorRef], str]) -> str:
    """`fd.sched.split(T3, 1, 4)`; `name` returns the name of a tensor."""
    arguments = [_text(a, name) for a in call.args] + [f"{k}={_text(v, name)}" for k, v in call.kwargs]
    return f"fd.sched.{call.method}({', '.join(arguments)})"


def tensor_names(trace: Iterable[Call], own: Mapping[int, str]) -> dict[int, str]:
    """The name of each tensor of a scheduled fusion, by number.

    Args:
        own: the names of the fusion's own tensors. A tensor that a primitive made is named after its source.
    """
    names = dict(own)
    taken = set(names.values())
    for call in trace:
        source = next(_refs(call.args), None) or next(_refs([v for _, v in call.kwargs]), None)
        if source is None or call.method not in ROLES:
            continue
        for ref in dict.fromkeys((*_refs(call.result), *call.added)):
            if ref.number not in names:
                stem = f"{names[source.number]}_{ROLES[call.method]}"
                candidates = (stem if i == 1 else f"{stem}{i}" for i in itertools.count(1))
                names[ref.number] = next(name for name in candidates if name not in taken)
                taken.add(names[ref.number])
    return names


def to_python(trace: Iterable[Call], own: Mapping[int, str] | None = None) -> str:
    """A function `schedule(fd)` that makes the same calls on `fd.sched`.

    A tensor that a call made is taken from that call; a tensor of the fusion itself is looked up before its
    first use. So calls can be added or removed without changing which tensors the others refer to.

    Args:
        own: names of the fusion's tensors, by number, which `fd.sched.tensor` accepts. None: they are looked
            up by number.
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
        lines.append(f"{_target(call.result, name)}{call_text(call, name)}")
        known.update(_refs(call.result))
        # What else a primitive makes is computed together with what it returns.
        others = [name(ref) if ref in used and ref not in known else "_" for ref in call.added]
        if any(other != "_" for other in others):
            assert isinstance(call.result, TensorRef)
            lines.append(f"{_unpacked(others)} = fd.sched.siblings({name(call.result)})")
            known.update(call.added)
    return lines


def _target(result: TensorRef | tuple[TensorRef, ...] | None, name: Callable[[TensorRef], str]) -> str:
    """What a result is assigned to, or nothing where there is none."""
    if isinstance(result, tuple):
        return f"{_unpacked([name(ref) for ref in result])} = "
    return f"{name(result)} = " if result is not None else ""


def _unpacked(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) > 1 else f"[{', '.join(names)}]"
