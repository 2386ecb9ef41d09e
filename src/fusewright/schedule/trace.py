"""The recorded calls of a schedule: plain data."""

from __future__ import annotations

from dataclasses import dataclass
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

    Attributes:
        result: the tensor, or the list of tensors, that it returned.
        added: all tensors that it made.
    """

    method: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    result: TensorRef | tuple[TensorRef, ...] | None = None
    added: tuple[TensorRef, ...] = ()
