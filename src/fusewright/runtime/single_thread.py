"""Keeps torch to one thread while a small launch is simulated."""

from __future__ import annotations

import threading

import torch

from fusewright.core.forks import renew_in_child


class SingleThread:
    """A context in which torch uses only the calling thread. Afterwards it uses as many threads as before.

    The number of threads is a setting of the process of which each thread has a copy. So the number to
    restore is the one before the first of the contexts that are open at the same time, and each thread
    restores its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        renew_in_child(self)
        self._open = 0
        self._before = 1

    def renew(self) -> None:
        """Makes the lock anew, in a child of `fork`."""
        self._lock = threading.Lock()
        self._open = 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._open:
                self._before = torch.get_num_threads()
            self._open += 1
            torch.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._open = max(0, self._open - 1)
            torch.set_num_threads(self._before)


#: The one of the process, as the setting is the process's.
SINGLE_THREAD = SingleThread()
