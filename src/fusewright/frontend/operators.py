"""`fd.ops`: one method for each row of the table of operations."""

from __future__ import annotations

import difflib
import inspect
import textwrap
from collections.abc import Callable, Iterable
from types import MethodType
from typing import TYPE_CHECKING, Any

from fusewright.core.errors import UnknownOpError
from fusewright.frontend.recipes import RECIPES
from fusewright.ops import OPS, REGISTERED, OpDef

if TYPE_CHECKING:
    from fusewright.frontend.definition import FusionDefinition

__all__ = ["Operators"]


# How alike two names are, as difflib measures it, where one is taken for the other misspelled.
TYPO = 0.8


def unknown_method(owner: str, name: str, known: Iterable[str]) -> UnknownOpError:
    """The error for a method that `owner` lacks, with those of `known` that are spelled like it."""
    similar = difflib.get_close_matches(name.lower(), list(known), n=3, cutoff=TYPO)
    hint = f"did you mean {' or '.join(similar)}?" if similar else f"dir({owner}) lists what there is"
    return UnknownOpError(name=f"{owner}.{name}", hint=hint)


def unknown_operation(name: str, asked: str) -> UnknownOpError:
    """The error for an operation that was asked for as `asked`, and is none.

    It says how to write it, if it is one of torch's that can be written, else which names are similar.
    """
    recipe = RECIPES.get(name)
    if recipe is None:
        return unknown_method("fd.ops", name, OPS)
    return UnknownOpError(name=asked, hint=f"write it as\n{textwrap.indent(recipe, ' ' * 4)}")


class Operators:
    """The operations of a definition, made from `fusewright.ops.OPS`: the methods of operations that
    users register, when they are asked for.
    """

    __slots__ = ("_fd",)

    def __init__(self, fd: FusionDefinition) -> None:
        self._fd = fd

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., Any]: ...

    else:

        def __getattr__(self, name: str) -> Any:
            row = OPS.get(name)  # one that a user registered
            if row is None:
                raise unknown_operation(name, f"fd.ops.{name}")
            return MethodType(_method(row), self)

    def __dir__(self) -> list[str]:
        return list(OPS)


def _method(row: OpDef) -> Callable[..., Any]:
    def method(self: Operators, *args: Any, **kwargs: Any) -> Any:
        return self._fd._record(row, args, kwargs)

    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method.__name__ = row.name
    method.__qualname__ = f"Operators.{row.name}"
    method.__doc__ = row.doc
    method.__signature__ = row.signature.replace(  # type: ignore[attr-defined]
        parameters=[first, *row.signature.parameters.values()]
    )
    return method


for _row in OPS.values():
    if _row.key in REGISTERED:
        continue
    setattr(Operators, _row.name, _method(_row))
