"""Attributes of a dataclass that are no fields: what follows from the fields, and what is not available.

Both are read like fields. Where fields are assigned or read from a dict, such an attribute may be given the
value that it has anyway; any other value is an error that says why.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Generic, TypeVar, overload

from fusewright.core.errors import ParamsError

T = TypeVar("T")


class Derived(Generic[T]):
    """An attribute that follows from fields, which `deciding` names."""

    def __init__(self, compute: Callable[[Any], T], deciding: tuple[str, ...]) -> None:
        self.compute, self.deciding = compute, deciding
        self.__doc__ = compute.__doc__

    @property
    def hint(self) -> Any:
        return typing.get_type_hints(self.compute)["return"]

    @overload
    def __get__(self, instance: None, owner: type) -> Derived[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Derived[T] | T:
        return self if instance is None else self.compute(instance)

    def expect(self, instance: object, value: object, path: str) -> None:
        """Raises ParamsError unless `value` is the one that follows."""
        actual = self.compute(instance)
        if value != actual:
            expected = f"{shown(actual)} as it follows from {' and '.join(self.deciding)}"
            raise ParamsError(path=path, expected=expected, given=shown(value))


class Unavailable(Generic[T]):
    """An attribute of the reference's interface that has one value here, for a reason."""

    def __init__(self, value: T, reason: str) -> None:
        self.value, self.reason = value, reason

    @property
    def hint(self) -> Any:
        return type(self.value)

    @overload
    def __get__(self, instance: None, owner: type) -> Unavailable[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Unavailable[T] | T:
        return self if instance is None else self.value

    def expect(self, instance: object, value: object, path: str) -> None:
        """Raises ParamsError for any other value. Needs no instance."""
        if value != self.value:
            raise ParamsError(path=path, expected=f"{shown(self.value)} {self.reason}", given=shown(value))


def derived(*deciding: str) -> Callable[[Callable[[Any], T]], Derived[T]]:
    """Makes a method an attribute that follows from the fields `deciding`, which errors name."""
    return lambda compute: Derived(compute, deciding)


def unavailable(value: T, reason: str) -> Unavailable[T]:
    """`reason` completes "expected {value} ...", as in "as no scheduler does that yet"."""
    return Unavailable(value, reason)


@cache
def attributes(cls: type) -> Mapping[str, Derived[Any] | Unavailable[Any]]:
    """The attributes of a class that are no fields, by name."""
    found: dict[str, Derived[Any] | Unavailable[Any]] = {}
    for base in reversed(cls.__mro__):
        for name, value in vars(base).items():
            if isinstance(value, (Derived, Unavailable)):
                found[name] = value
            else:
                found.pop(name, None)
    return found


def shown(value: object) -> str:
    """A value for a message: an enumeration by its name alone, text quoted."""
    name = getattr(value, "name", None)
    return name if isinstance(name, str) else repr(value)
