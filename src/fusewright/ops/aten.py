"""The rows of torch's own operators, which torch computes as a whole: one for each overload of ATen.

A row is made when a definition first names its overload. The operator must be pure: it must not write into
arguments or return tensors that may share memory with one.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fusewright.core.dtype import DataType
from fusewright.core.errors import DefinitionError
from fusewright.core.op import LibraryOp

#: What operators may return; numbers, such as the lengths that attention hands back, are dropped.
_RESULTS = frozenset({"Tensor", "int"})


@dataclass(frozen=True, slots=True)
class Operand:
    """Stands for operand `index` of a node among the arguments of an operator."""

    index: int


@dataclass(frozen=True, slots=True)
class AtenResult:
    """What a definition says of a result: `shape` holds numbers and `Operand`s. Null: it is no tensor."""

    dtype: DataType
    shape: tuple[int | Operand, ...]


def named_overload(name: str) -> torch._ops.OpOverload:
    """The operator `name` of ATen, such as "convolution.default". DefinitionError if it does not exist."""
    packet, _, overload = name.partition(".")
    found = None
    if packet.isidentifier() and overload.isidentifier():
        found = getattr(getattr(torch.ops.aten, packet, None), overload, None)
    if not isinstance(found, torch._ops.OpOverload):
        raise DefinitionError(
            problem=f"ATen has no operator {name!r}", hint='"convolution.default": a name and an overload'
        )
    return found


def is_composed(overload: torch._ops.OpOverload) -> bool:
    """Whether an operator is nothing but calls of others, for every device."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), "CompositeImplicitAutograd")


def refusal(overload: torch._ops.OpOverload) -> str | None:
    """Why torch cannot compute this operator within a definition; None: it can."""
    schema = overload._schema
    if schema.is_mutable:
        return "it writes into its arguments"
    if any(result.alias_info is not None for result in schema.returns):
        return "its result is a view of an argument"
    if is_composed(overload):
        return "it is composed of other operators, and may return an argument"
    if not schema.returns or not _RESULTS.issuperset(str(result.type) for result in schema.returns):
        return "its results are not a fixed number of tensors"
    return None


@functools.cache
def aten_row(name: str) -> LibraryOp:
    """The row of an operator. DefinitionError for one that a definition cannot hold."""
    overload = named_overload(name)
    reason = refusal(overload)
    if reason is not None:
        raise DefinitionError(problem=f"torch cannot compute aten.{name} in a definition: {reason}")
    return LibraryOp(
        f"aten.{name}",
        tuple(DataType),
        functools.partial(_function, overload),
        draws=torch.Tag.nondeterministic_seeded in overload.tags,
        strided_rank=sys.maxsize,
        anywhere=True,
        typed=True,
    )


def _function(
    overload: torch._ops.OpOverload, device: str, arguments: Sequence[Any], results: Sequence[AtenResult]
) -> Callable[..., Any]:
    """See `LibraryOp.function`. arguments: one for each of the schema's, those at its end may be missing."""
    names = [argument.name if argument.kwarg_only else None for argument in overload._schema.arguments]
    by_position = [value for value, name in zip(arguments, names) if name is None]
    by_name = [(name, value) for value, name in zip(arguments, names) if name is not None]
    there = [i for i, result in enumerate(results) if result.dtype is not DataType.Null]
    is_one = len(results) == 1

    def compute(*operands: Any) -> Any:
        made = overload(
            *[_filled(value, operands) for value in by_position],
            **{name: _filled(value, operands) for name, value in by_name},
        )
        values = (made,) if is_one else made
        tensors = [_checked(values[i], results[i], operands) for i in there]
        return tensors[0] if len(tensors) == 1 else tensors

    return compute


def _filled(argument: Any, operands: Sequence[Any]) -> Any:
    if isinstance(argument, Operand):
        return operands[argument.index]
    return [_filled(item, operands) for item in argument] if isinstance(argument, tuple) else argument


def _checked(made: Any, stated: AtenResult, operands: Sequence[Any]) -> torch.Tensor:
    """A result, in memory of its own, wherever torch left it. RuntimeError if it is not as stated."""
    shape = tuple([_filled(size, operands) for size in stated.shape])
    if not isinstance(made, torch.Tensor) or made.dtype != stated.dtype.torch or made.shape != shape:
        given = f"{made.dtype} {list(made.shape)}" if isinstance(made, torch.Tensor) else type(made).__name__
        raise RuntimeError(f"the definition states {stated.dtype.torch} {list(shape)}, and it gave {given}")
    # Some operators return an argument where there is nothing to do.
    return made.clone() if any(made is operand for operand in operands) else made
