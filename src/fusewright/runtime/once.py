"""A cache whose values are computed once each, however many threads ask."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class OnceCache(Generic[K, V]):
    """Of the threads that ask for a missing key, one computes its value and the others wait for it.

    A look-up that hits takes no lock. If the computation raises, nothing is kept: the thread that computed
    gets the error, and each thread that waited tries for itself.
    """

    def __init__(self) -> None:
        self._values: dict[K, V] = {}
        #: held by the thread that computes the key's value
        self._running: dict[K, threading.Lock] = {}
        self._lock = threading.Lock()

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
                value = self._values[key] = compute()
                return value
            finally:
                with self._lock:
                    del self._running[key]
                mine.release()

    def forget(self, key: K) -> None:
        """Drops the value of `key`, if it is there."""
        self._values.pop(key, None)
