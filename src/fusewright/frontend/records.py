"""Records: what a definition says, as hashable values.

A definition is a sequence of `Record`s. An argument is a `Ref` to a state (a tensor, scalar or vector that
the definition made before), a `Literal`, or a tuple of arguments. Two definitions with equal records are one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from fusewright.core.dtype import DataType, from_torch
from fusewright.ops import DEFINERS, OPS, OpDef

__all__ = ["ROWS", "Arg", "Literal", "Record", "Ref", "decode", "encode", "from_plain", "to_plain"]

ROWS: Mapping[str, OpDef] = {**DEFINERS, **OPS}
"""Everything that can be recorded, by name."""


class Ref(NamedTuple):
    """A state of the definition, by its number."""

    state: int


class Literal(NamedTuple):
    """A plain value with its type, so that 1, 1.0 and True differ.

    Floats are held as hexadecimal text: -0.0 differs from 0.0, and NaN equals itself.
    """

    kind: type
    value: Any


Arg = Ref | Literal | tuple[Any, ...]


class Record(NamedTuple):
    """One call: the row's name, and one argument for each of its parameters."""

    op: str
    args: tuple[Arg, ...]

    @property
    def row(self) -> OpDef:
        return ROWS[self.op]


def encode(value: Any, ref: Callable[[Any], Ref | None]) -> Arg:
    """An argument as it is recorded. `ref` gives the state that a handle stands for, None for anything else.

    Raises:
        TypeError: a value that cannot be part of a definition.
    """
    kind = type(value)
    if kind in _EXACT:
        return Literal(kind, value)
    if kind is float:
        return Literal(float, value.hex())
    found = ref(value)
    if found is not None:
        return found
    if isinstance(value, (list, tuple)):
        return tuple([encode(item, ref) for item in value])
    if isinstance(value, torch.dtype):
        return Literal(DataType, from_torch(value))
    if isinstance(value, complex):
        return Literal(complex, (value.real.hex(), value.imag.hex()))
    for base in (int, float):  # subclasses, as numpy's float64
        if isinstance(value, base):
            return encode(base(value), ref)
    raise TypeError(f"a {kind.__name__} cannot be part of a definition")


_EXACT = frozenset({bool, int, str, type(None), DataType})


def decode(arg: Arg, states: Sequence[Any]) -> Any:
    """The value that a builder takes for `arg`."""
    if isinstance(arg, Ref):
        return states[arg.state]
    if isinstance(arg, Literal):
        if arg.kind is float:
            return float.fromhex(arg.value)
        if arg.kind is complex:
            return complex(*map(float.fromhex, arg.value))
        return arg.value
    return [decode(item, states) for item in arg]


# ---- plain data, for files ---------------------------------------------------------------------------------

_KINDS: Mapping[str, type] = {k.__name__: k for k in (bool, int, float, complex, str, type(None), DataType)}


def to_plain(record: Record) -> list[Any]:
    """The record as lists, dicts, strings and numbers only."""
    return [record.op, [_plain(arg) for arg in record.args]]


def _plain(arg: Arg) -> Any:
    if isinstance(arg, Ref):
        return {"ref": arg.state}
    if isinstance(arg, Literal):
        return {arg.kind.__name__: arg.value.name if arg.kind is DataType else arg.value}
    return [_plain(item) for item in arg]


def from_plain(data: Sequence[Any]) -> Record:
    """The record that `to_plain` turned into `data`. ValueError or KeyError if it is none."""
    op, args = data
    if op not in ROWS:
        raise ValueError(f"there is no operation named {op!r}")
    return Record(op, tuple(_arg(item) for item in args))


def _arg(data: Any) -> Arg:
    if isinstance(data, list):
        return tuple(_arg(item) for item in data)
    ((name, value),) = data.items()
    if name == "ref":
        return Ref(int(value))
    kind = _KINDS[name]
    if kind is DataType:
        value = DataType[value]
    return Literal(kind, tuple(value) if kind is complex else value)
