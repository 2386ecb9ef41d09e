"""Attributes of a dataclass that are not fields: values derived from fields, and unavailable options.

Both are read like fields. An assignment or a dict may give such an attribute the value that it already has;
any other value is an error that states the reason.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Generic, TypeVar, overload

from fusewright.core.errors import ParamsError

T = TypeVar("T")


class Derived(Generic[T]):
    """An attribute computed from the fields named in `deciding`."""

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
        """Raises ParamsError unless `value` is the derived value."""
        actual = self.compute(instance)
        if value != actual:
            expected = f"{shown(actual)} as it follows from {' and '.join(self.deciding)}"
            raise ParamsError(path=path, expected=expected, given=shown(value))


class Unavailable(Generic[T]):
    """An attribute of nvFuser's interface that supports only one value here, for the stated reason."""

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
    """Turns a method into an attribute computed from the fields `deciding`, which errors name."""
    return lambda compute: Derived(compute, deciding)


def unavailable(value: T, reason: str) -> Unavailable[T]:
    """`reason` completes "expected {value} ...", as in "as no scheduler does that yet"."""
    return Unavailable(value, reason)


@cache
def attributes(cls: type) -> Mapping[str, Derived[Any] | Unavailable[Any]]:
    """The derived and unavailable attributes of a class, by name."""
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
