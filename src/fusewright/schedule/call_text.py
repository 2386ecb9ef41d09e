"""One call of a trace as messages show it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from fusewright.schedule.trace import Call, TensorRef


def call_text(call: Call, name: Callable[[TensorRef], str]) -> str:
    """`fd.sched.split(T3, 1, 4)`; `name` says what a tensor is called."""
    arguments = [_text(a, name) for a in call.args]
    arguments += [f"{keyword}={_text(value, name)}" for keyword, value in call.kwargs]
    return f"fd.sched.{call.method}({', '.join(arguments)})"


def _text(value: Any, name: Callable[[TensorRef], str]) -> str:
    if isinstance(value, TensorRef):
        return name(value)
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_text(item, name) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}: {v}" for k, v in value.items()) + "}"
    return repr(value)
