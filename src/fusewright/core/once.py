"""What is computed once: values by key, however many threads ask, and properties of an object."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar, overload

from fusewright.core.forks import renew_in_child

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class cached_property(Generic[V]):
    """A property that an object keeps once it is computed.

    That of functools has a lock for each property of a class before Python 3.12: threads that ask different
    objects wait for each other, and a child of `fork` waits for a thread that it does not have. Here two
    threads may compute a value, of which the first one's is kept and given to both.
    """

    def __init__(self, compute: Callable[[Any], V]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> cached_property[V]: ...

    @overload
    def __get__(self, instance: object, owner: type | None = None) -> V: ...

    def __get__(self, instance: object | None, owner: type | None = None) -> cached_property[V] | V:
        if instance is None:
            return self
        value: V = instance.__dict__.setdefault(self._name, self._compute(instance))
        return value


class OnceCache(Generic[K, V]):
    """Of the threads that ask for a missing key, one computes its value and the others wait for it.

    A look-up that hits takes no lock. If the computation raises, nothing is kept: the thread that computed
    gets the error, and each thread that waited tries for itself.

    Args:
        limit: what is kept at most; when there is more, the value that was kept first goes. None: all are.
        weight: how much of the limit a value takes; None: 1.
    """

    def __init__(self, limit: int | None = None, weight: Callable[[V], int] | None = None) -> None:
        self.limit = limit
        self._weight = weight
        self._total = 0  # of the weights, where there are any
        self._values: dict[K, V] = {}
        #: the value of a key, or None: for look-ups that compute nothing, at every call
        self.find: Callable[[K], V | None] = self._values.get
        #: held by the thread that computes the key's value
        self._running: dict[K, threading.Lock] = {}
        self._lock = threading.Lock()
        renew_in_child(self)

    def renew(self) -> None:
        """In a child of `fork`: discards unfinished computations of the parent's threads, which are repeated
        on demand.
        """
        self._lock = threading.Lock()
        self._running = {}

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: K) -> bool:
        return key in self._values

    def values(self) -> list[V]:
        return list(self._values.values())

    def get(self, key: K, compute: Callable[[], V]) -> V:
        """The value for `key`, computed if it is missing."""
        while True:
            try:
                return self._values[key]
            except KeyError:
                pass
            with self._lock:
                if key in self._values:
                    continue
                running = self._running.get(key)
                if running is None:
                    mine = self._running[key] = threading.Lock()
                    mine.acquire()
            if running is not None:
                with running:
                    continue
            try:
                value = compute()
                self.put(key, value)
                return value
            finally:
                with self._lock:
                    self._running.pop(key, None)
                mine.release()

    def put(self, key: K, value: V) -> None:
        """Keeps a value, in place of the one that there may be."""
        values, limit = self._values, self.limit
        with self._lock:
            if self._weight is not None:
                if key in values:
                    self._total -= self._weight(values[key])
                self._total += self._weight(value)
            values[key] = value
            if limit is not None:
                while (self._total if self._weight is not None else len(values)) > limit and len(values) > 1:
                    self._drop(next(iter(values)))

    def forget(self, key: K) -> None:
        """Drops the value of `key`, if it is there."""
        with self._lock:
            if key in self._values:
                self._drop(key)

    def clear(self) -> None:
        """Drops all values."""
        with self._lock:
            for key in list(self._values):
                self._drop(key)

    def _drop(self, key: K) -> None:
        value = self._values.pop(key)
        if self._weight is not None:
            self._total -= self._weight(value)


class SharedCache(OnceCache[K, V]):
    """A cache that all definitions of the process share. `clear_shared_caches` empties it."""

    def __init__(self, limit: int, weight: Callable[[V], int] | None = None) -> None:
        super().__init__(limit, weight)
        _shared.append(self)


_shared: list[SharedCache[Any, Any]] = []


def clear_shared_caches() -> None:
    """Clears the caches that definitions share. Their current users keep what they use."""
    for cache in _shared:
        cache.clear()
