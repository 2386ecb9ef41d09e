"""The table of ATen operators: for each overload, the function that records it in a definition.

A row is a function of a `Recording` and of arguments named as in the operator's schema ("x" for the first).
It returns handles where the operator returns tensors; `Recording` converts them to torch's types. A row
raises `NotRecordable` for calls that it leaves to torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import torch

if TYPE_CHECKING:
    from fusewright.torch_compile.recording import Recording

Overload = torch._ops.OpOverload

#: Arguments about the layout of a result, which a definition decides by itself.
PLACEMENT = frozenset({"layout", "device", "pin_memory", "non_blocking", "memory_format"})


class NotRecordable(Exception):
    """An operator with these arguments has no operation here; the text says why."""


def bound_arguments(overload: Overload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The argument of each of the schema's parameters, by name and in its order, with defaults filled in."""
    schema = overload._schema.arguments
    bound = dict(zip((a.name for a in schema), args))
    return {a.name: bound.get(a.name, kwargs.get(a.name, a.default_value)) for a in schema}


@dataclass(frozen=True, slots=True)
class Row:
    """Records one overload.

    Attributes:
        record: takes a recording, and by name the arguments that it reads.
        takes: their names; "x" is the schema's first.
        ignores_rest: whether the others make no difference; else they must have their defaults.
    """

    name: str
    record: Callable[..., Any]
    takes: frozenset[str]
    ignores_rest: bool = False

    def apply(self, recording: Recording, overload: Overload, values: dict[str, Any]) -> Any:
        """The result for arguments by the schema's names. NotRecordable: torch has to compute it."""
        defaults = {a.name: a.default_value for a in overload._schema.arguments}
        first = next(iter(values), "")
        taken: dict[str, Any] = {}
        for name, value in values.items():
            key = "x" if name == first and name not in self.takes else name
            if key in self.takes:
                taken[key] = value
            elif not (self.ignores_rest or name in PLACEMENT or value == defaults[name]):
                raise NotRecordable(f"{name}={value}")
        return self.record(recording, **taken)


ROWS: dict[str, Row] = {}
"""All rows, by the name of the overload: "aten.add.Tensor"."""

_Record = TypeVar("_Record", bound=Callable[..., Any])


def add_row(name: str, record: Callable[..., Any], takes: frozenset[str], ignores_rest: bool = False) -> None:
    """Adds a row if this version of torch has the overload and the row does not exist.

    Some "prims" exist only once a part of torch is imported, so these have a row in any case.
    """
    namespace, packet, overload = name.split(".")
    found = getattr(getattr(getattr(torch.ops, namespace), packet, None), overload, None)
    if found is not None or namespace == "prims":
        ROWS.setdefault(name, Row(name, record, takes, ignores_rest))


def row(*names: str) -> Callable[[_Record], _Record]:
    """Registers a function as the row of these overloads of ATen, or of "prims"."""

    def decorate(record: _Record) -> _Record:
        parameters = list(inspect.signature(record).parameters.values())[1:]
        takes = frozenset(p.name for p in parameters if p.kind is not inspect.Parameter.VAR_KEYWORD)
        for name in names:
            qualified = name if name.startswith("prims.") else f"aten.{name}"
            add_row(qualified, record, takes, len(takes) < len(parameters))
        return record

    return decorate
