"""Protection of forked children from locks that threads of the parent hold, since the child lacks these
threads.

Objects with locks register with `renew_in_child`. Libraries have locks that cannot be renewed; calls into
them go through a `ForkGate`, and `fork` waits until none is in progress.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Renewable(Protocol):
    """An object with locks."""

    def renew(self) -> None:
        """Replaces its locks, and discards unfinished work of other threads; called in a child of `fork`."""
        ...


_owners: weakref.WeakSet[Renewable] = weakref.WeakSet()


def renew_in_child(owner: Renewable) -> None:
    """Calls `owner.renew()` in each child of `fork`, as long as `owner` lives."""
    _owners.add(owner)


def _renew_all() -> None:
    for owner in list(_owners):
        owner.renew()


class ForkGate:
    """Calls that `fork` waits for. Any number may run at a time, but none while a fork is in progress."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._inside = 0
        self._forking = 0
        os.register_at_fork(before=self._close, after_in_parent=self._open, after_in_child=self._renew)

    @contextmanager
    def passage(self) -> Iterator[None]:
        """The calling thread is inside meanwhile; it must not fork."""
        with self._changed:
            # Those who want to fork come first, or a stream of calls would hold them up forever.
            self._changed.wait_for(lambda: not self._forking)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def _close(self) -> None:
        with self._changed:
            self._forking += 1
            self._changed.wait_for(lambda: not self._inside)

    def _open(self) -> None:
        with self._changed:
            self._forking -= 1
            self._changed.notify_all()

    def _renew(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._inside = self._forking = 0


os.register_at_fork(after_in_child=_renew_all)
