"""The legal values of a field, declared beside it. `validate` accepts them, and a `space` enumerates them.

If there are many legal values, a space tries some (`tried`): powers of two, unless the declaration states
others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fusewright.core.declaration import shown
from fusewright.core.dtype import INT64_MAX
from fusewright.core.errors import ParamsError
from fusewright.core.hardware import HardwareInfo

# What 32 bits count: no loop, buffer or grid of a kernel is longer.
MAX_COUNT = 2**31 - 1

#: A number, or one that the GPU decides.
Limit = int | Callable[[HardwareInfo], int]


class Legal(Protocol):
    """The legal values of one field, independent of other fields."""

    def check(self, path: str, value: Any, hardware: HardwareInfo) -> None:
        """Raises ParamsError for any other value. `path` names the field."""

    def values(self, hardware: HardwareInfo) -> Sequence[Any]:
        """Those that a space tries, in ascending order."""
        ...


@dataclass(frozen=True, slots=True)
class PowersOfTwo:
    """1, 2, 4, ... up to a limit. `what` starts the message about other numbers."""

    limit: Limit
    what: str = ""

    def check(self, path: str, value: int, hardware: HardwareInfo) -> None:
        most = limit_of(self.limit, hardware)
        if value < 1 or value & (value - 1):
            expected = f"a power of 2, at most {most}"
            if self.what:
                message = f"`{path}`: {self.what} must be a power of 2"
                raise ParamsError(message, path=path, expected=expected, given=value)
            raise ParamsError(path=path, expected=expected, given=value)
        if value > most:
            raise ParamsError(path=path, expected=f"1 to {most}", given=value)

    def values(self, hardware: HardwareInfo) -> Sequence[int]:
        return _powers(1, limit_of(self.limit, hardware))


@dataclass(frozen=True, slots=True)
class Counts:
    """`low` to `high`, and optionally a value that means that none was chosen."""

    low: int
    high: Limit
    tried: tuple[int, ...] | None = None
    unset: int | None = None

    def check(self, path: str, value: int, hardware: HardwareInfo) -> None:
        high = limit_of(self.high, hardware)
        if value == self.unset or self.low <= value <= high:
            return
        is_low = value < self.low and high >= MAX_COUNT
        expected = f"{self.low} or more" if is_low else f"{self.low} to {high}"
        if self.unset is not None:
            expected += f", or {self.unset}"
        raise ParamsError(path=path, expected=expected, given=value)

    def values(self, hardware: HardwareInfo) -> Sequence[int]:
        high = limit_of(self.high, hardware)
        unset = () if self.unset is None else (self.unset,)
        if self.tried is not None:
            return (*unset, *(n for n in self.tried if n <= high))
        if high >= MAX_COUNT:
            return unset
        return (*unset, *dict.fromkeys((self.low, *_powers(max(1, self.low), high))))


@dataclass(frozen=True, slots=True)
class Among:
    """Only these values. `reason` explains why, if there is only one."""

    members: tuple[Any, ...]
    reason: str = ""

    def check(self, path: str, value: Any, hardware: HardwareInfo) -> None:
        if not any(value == member for member in self.members):
            listed = " or ".join(shown(member) for member in self.members)
            expected = listed + (f" {self.reason}" if self.reason else "")
            raise ParamsError(path=path, expected=expected, given=shown(value))

    def values(self, hardware: HardwareInfo) -> Sequence[Any]:
        return self.members


@dataclass(frozen=True, slots=True)
class Given:
    """Determined by the fusion: a space keeps the value of its base."""

    def check(self, path: str, value: Any, hardware: HardwareInfo) -> None:
        pass

    def values(self, hardware: HardwareInfo) -> Sequence[Any]:
        return ()


@dataclass(frozen=True, slots=True)
class Each:
    """Tuples of legal entries. The fusion determines which, so a space tries none."""

    entry: Legal

    def check(self, path: str, value: tuple[Any, ...], hardware: HardwareInfo) -> None:
        for i, entry in enumerate(value):
            self.entry.check(f"{path}[{i}]", entry, hardware)

    def values(self, hardware: HardwareInfo) -> Sequence[Any]:
        return ()


def powers_of_two(limit: Limit, what: str = "") -> Legal:
    """1, 2, 4, ... up to `limit`. `what`: the field's name in the message about other numbers."""
    return PowersOfTwo(limit, what)


def counts(low: int = 1, high: Limit = MAX_COUNT, tried: Sequence[int] | None = None) -> Legal:
    """`low` to `high`, inclusive.

    Args:
        tried: the values that a space enumerates. None: `low` and powers of two up to `high`.
    """
    return Counts(low, high, None if tried is None else tuple(tried))


def among(*values: Any, reason: str = "") -> Legal:
    """Only these values; `reason` explains why, as in "as threads lie along the columns"."""
    return Among(values, reason)


def each(entry: Legal) -> Legal:
    """Tuples whose entries are legal. A space keeps the value of its base."""
    return Each(entry)


#: The size of a dimension.
SIZE: Legal = counts(1, INT64_MAX)

#: The fusion decides the value, and a space does not vary it.
GIVEN: Legal = Given()


def limit_of(limit: Limit, hardware: HardwareInfo) -> int:
    return limit if isinstance(limit, int) else limit(hardware)


def _powers(low: int, high: int) -> tuple[int, ...]:
    return tuple(1 << n for n in range(high.bit_length()) if low <= 1 << n <= high)
