"""The sizes of a fusion that were the same in all calls."""

from __future__ import annotations

from collections.abc import Mapping

from fusewright.sym import Symbol

_NONE: frozenset[Symbol] = frozenset()


class StableSizes:
    """The sizes of one fusion that have had one value so far, the value of the first call.

    A size that has changed is never stable again. So a kernel is made for at most one constant value of a
    size, and one more kernel serves all other values. Only calls with a new signature are counted. Several
    threads may use the object without a lock: `setdefault` lets one of two first calls decide, and the set of
    changed sizes only grows.
    """

    def __init__(self) -> None:
        self._first: dict[Symbol, int] = {}
        self._changed: set[Symbol] = set()

    def with_call(self, sizes: Mapping[Symbol, int]) -> frozenset[Symbol]:
        """Counts a call with these sizes; returns the sizes that are stable after it.

        A size of 0 is not stable: a kernel without elements gains nothing, and would divide by the constant
            0.
        """
        first, changed = self._first, self._changed
        if len(changed) == len(first) > 0:
            return _NONE
        for symbol, size in sizes.items():
            if first.setdefault(symbol, size) != size:
                changed.add(symbol)
        return frozenset(symbol for symbol, size in sizes.items() if size and symbol not in changed)

    def are_still(self, stable: frozenset[Symbol]) -> bool:
        """Whether all these sizes are stable after the calls counted so far.

        A size never becomes stable again. So a set of stable sizes that is still stable is still complete.
        """
        return not stable or stable.isdisjoint(self._changed)

    def at(self, sizes: Mapping[Symbol, int]) -> frozenset[Symbol]:
        """The result of `with_call` for a call with these sizes, without counting the call."""
        return frozenset(
            symbol
            for symbol, size in sizes.items()
            if size and symbol not in self._changed and self._first.get(symbol, size) == size
        )
