"""Records: a definition as hashable values.

A definition is a sequence of `Record`s. An argument is a `Ref` to a state (a tensor, scalar or vector that
the definition made before), a `Literal`, or a tuple of arguments. Definitions with equal records are equal.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from fusewright.core.dtype import DataType, dtype_of_python_type, from_torch
from fusewright.core.errors import DefinitionError
from fusewright.ops import DEFINERS, OPS, REGISTERED, OpDef

ROWS: Mapping[str, OpDef] = ChainMap(DEFINERS, OPS)
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
    """One call: the row's key, and one argument for each of its parameters."""

    op: str
    args: tuple[Arg, ...]

    @property
    def row(self) -> OpDef:
        row = REGISTERED.get(self.op)  # a definition outlives the registration of its operations
        return ROWS[self.op] if row is None else row


# A shape is a list of numbers; what is nested more deeply is no argument.
MAX_NESTING = 4


def encode(value: Any, ref: Callable[[Any], Ref | None], nesting: int = 0) -> Arg:
    """An argument as it is recorded. `ref` gives the state that a handle stands for, None for anything else.

    Scalars of numpy are the numbers that they hold. torch's dtypes, and Python's types of numbers, are the
    DataType of such values: `float` is Double, as torch has it too.

    Raises:
        TypeError: a value that cannot be part of a definition. DtypeError: a torch dtype that cannot.
    """
    if nesting > MAX_NESTING:
        raise TypeError("lists nested so deeply cannot be part of a definition")
    kind = type(value)
    if kind in _EXACT:
        return Literal(kind, value)
    if kind is float:
        return Literal(float, value.hex())
    found = ref(value)
    if found is not None:
        return found
    if isinstance(value, (list, tuple)):
        return tuple([encode(item, ref, nesting + 1) for item in value])
    if isinstance(value, torch.dtype):
        return Literal(DataType, from_torch(value))
    if kind is type and value in _PYTHON_TYPES:
        return Literal(DataType, dtype_of_python_type(value))
    if isinstance(value, np.generic) and (number := number_of(value)) is not value:
        return encode(number, ref)
    if isinstance(value, complex):
        return Literal(complex, (value.real.hex(), value.imag.hex()))
    for base in (int, float):  # subclasses, as numpy's float64
        if isinstance(value, base):
            return encode(base(value), ref)
    raise TypeError(f"a {kind.__name__} cannot be part of a definition")


_EXACT = frozenset({bool, int, str, type(None), DataType})
_PYTHON_TYPES = (bool, int, float, complex)
# The kind of a numpy dtype -> what makes a Python number of its scalars.
_NUMBERS: Mapping[str, type] = {"b": bool, "i": int, "u": int, "f": float, "c": complex}


def number_of(scalar: np.generic) -> Any:
    """The number that a scalar of numpy holds; itself if it holds none."""
    kind = _NUMBERS.get(scalar.dtype.kind)
    return scalar if kind is None else kind(scalar)


def decode(arg: Arg, states: Sequence[Any]) -> Any:
    """The value that a builder takes for `arg`. DefinitionError for a state that is not there."""
    if isinstance(arg, Ref):
        value = states[arg.state] if 0 <= arg.state < len(states) else None
        if value is None:
            raise DefinitionError(problem=f"state {arg.state} of {len(states)} has no value to refer to")
        return value
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
    return [record.row.name, [_plain(arg) for arg in record.args]]


def _plain(arg: Arg) -> Any:
    if isinstance(arg, Ref):
        return {"ref": arg.state}
    if isinstance(arg, Literal):
        return {arg.kind.__name__: arg.value.name if arg.kind is DataType else arg.value}
    return [_plain(item) for item in arg]


def from_plain(data: Any) -> Record:
    """The record that `to_plain` turned into `data`. ValueError, which says why, if it is none."""
    if not isinstance(data, list) or len(data) != 2 or not isinstance(data[1], list):
        raise ValueError(f"a record is a name and a list of arguments, not {data!r:.60}")
    op, args = data
    if not isinstance(op, str) or op not in ROWS:
        raise ValueError(f"there is no operation named {op!r:.60}")
    expected = len(ROWS[op].parameters)
    if len(args) != expected:
        raise ValueError(f"{op} takes {expected} arguments, not {len(args)}")
    return Record(ROWS[op].key, tuple([_arg(item) for item in args]))


def _arg(data: Any, nesting: int = 0) -> Arg:
    if isinstance(data, list):
        if nesting > MAX_NESTING:
            raise ValueError("its arguments are nested too deeply")
        return tuple([_arg(item, nesting + 1) for item in data])
    if isinstance(data, dict) and len(data) == 1:
        ((name, value),) = data.items()
        if name == "ref" and type(value) is int:
            return Ref(value)
        read = _READERS.get(name)
        if read is not None:
            return Literal(_KINDS[name], read(value))
    raise ValueError(f"{data!r:.60} is no argument")


def _float_text(value: Any) -> str:
    """Hexadecimal text of a float, as `float.hex` writes it: equal floats make equal records."""
    try:
        return float.fromhex(value).hex()
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{value!r:.60} is no float in hexadecimal") from None


def _complex_texts(value: Any) -> tuple[str, str]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"{value!r:.60} is no complex number")
    return _float_text(value[0]), _float_text(value[1])


def _exactly(kind: type) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise ValueError(f"{value!r:.60} is no {kind.__name__}")
        return value

    return read


def _dtype_named(name: Any) -> DataType:
    if not isinstance(name, str) or name not in DataType.__members__:
        raise ValueError(f"there is no data type named {name!r:.60}")
    return DataType[name]


# What is written for a literal of each kind -> the value that it holds; ValueError for anything else.
_READERS: Mapping[str, Callable[[Any], Any]] = {
    **{kind.__name__: _exactly(kind) for kind in (bool, int, str, type(None))},
    "float": _float_text,
    "complex": _complex_texts,
    "DataType": _dtype_named,
}
