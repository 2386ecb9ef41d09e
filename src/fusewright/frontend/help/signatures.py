"""Signatures for users, of methods made from rows and primitives, in the types of the handles."""

from __future__ import annotations

import functools
import inspect
import operator
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

F = typing.TypeVar("F", bound=Callable[..., Any])


def user_type(hint: Any, types_of: Mapping[object, object]) -> Any:
    """`hint` with each type that is a key of `types_of`, at any depth, replaced by its value."""
    if hint in types_of:
        return types_of[hint]
    origin = typing.get_origin(hint)
    if origin is None:
        return hint
    arguments = tuple(user_type(a, types_of) for a in typing.get_args(hint))
    if origin in (typing.Union, types.UnionType):
        return functools.reduce(operator.or_, arguments)
    return origin[arguments]


def user_signature(signature: inspect.Signature, types_of: Mapping[object, object]) -> inspect.Signature:
    """The user's signature for builders or primitives with `signature`: the types that users pass and get."""
    result = user_type(signature.return_annotation, types_of)
    return inspect.Signature(
        [p.replace(annotation=user_type(p.annotation, types_of)) for p in signature.parameters.values()],
        return_annotation=None if result is types.NoneType else result,
    )


def without_first(signature: inspect.Signature) -> inspect.Signature:
    """The signature of a method of its first parameter."""
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def dress(method: F, qualname: str, signature: inspect.Signature, doc: str) -> F:
    """`method(self, *args, **kwargs)` with the name, documentation and parameters that users read."""
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method.__qualname__ = qualname
    method.__name__ = qualname.rpartition(".")[2]
    method.__doc__ = doc
    parameters = [first, *signature.parameters.values()]
    method.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return method
