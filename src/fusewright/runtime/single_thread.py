"""Keeps torch to one thread while a small launch is simulated."""

from __future__ import annotations

import threading

import torch

from fusewright.core.forks import renew_in_child


class SingleThread:
    """Within it, torch works in the calling thread alone; after it, with as many threads as before.

    The number of threads is a setting of the process that each thread holds a copy of. So the number to go
    back to is that before the first of the blocks that are open at a time, and each thread restores its own.
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
