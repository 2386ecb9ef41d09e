"""Pauses Python's cyclic collector while a graph is compiled.

Compiling makes many objects that live until it ends, and the collector goes through all of them again and
again: a third of the time of a chain of 1,600 operations. What is garbage by then is collected afterwards.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fusewright.core.forks import renew_in_child


class _Pauses:
    """How many compilations are under way in all threads, and whether the collector was on before them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._was_on = False
        renew_in_child(self)

    def renew(self) -> None:
        """In a child of `fork`: the threads that would have ended the pauses are not there."""
        self._lock = threading.Lock()
        if self._count and self._was_on:
            gc.enable()
        self._count = 0

    def begin(self) -> None:
        with self._lock:
            if self._count == 0:
                self._was_on = gc.isenabled()
                gc.disable()
            self._count += 1

    def end(self) -> None:
        with self._lock:
            # A child of `fork` began none of what it ends.
            self._count = max(0, self._count - 1)
            if self._count == 0 and self._was_on:
                gc.enable()


_pauses = _Pauses()


@contextmanager
def paused_collector() -> Iterator[None]:
    """Within, nothing is collected but by count of references. Several threads may be within."""
    _pauses.begin()
    try:
        yield
    finally:
        _pauses.end()
