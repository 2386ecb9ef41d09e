"""Times calls on the GPU, with none of their data in the L2 cache."""

from __future__ import annotations

import fcntl
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import torch

WARM_UP, REPEATS = 5, 30
# Runs after which a call that is clearly slower than the best is not timed any further.
FEW, CLEARLY_SLOWER = 3, 1.5
# A call that takes so long, and so many times as long as a copy of as many bytes, is timed once: kernels that
# were merely slow, 0.3 s a launch, were taken to hang, as all of their runs took more than 5 s.
LONG_SECONDS, HOPELESS = 0.05, 100.0
# Written between runs to push a run's data out of the L2 cache: twice the largest L2 described (B200's 126
# MiB).
FLUSH_BYTES = 256 * 1024 * 1024
# What an idle GPU does until its clocks are up: 20 ms of an H200. Without, searches ended "within 2% of a
# copy" that was 8% faster when it was timed again.
FLUSHES_TO_WAKE = 250
# What the GPU does first wherever runs are timed, so that launches are ahead of it: 2 ms of an H200. Without,
# a third of 7,620 times that were taken beside processes that compile had 0.1 to 20 ms in them during which
# the GPU waited for a launch.
FLUSHES_AHEAD = 25


class Clock:
    """Times calls on a GPU and flushes the L2 cache before each."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device=device)

    def spans(
        self, calls: Sequence[Callable[[], object]], repeats: int, ahead: int = FLUSHES_AHEAD
    ) -> list[list[float]]:
        """Seconds of each run of each call; the calls take turns, so that what drifts meets them all.

        ahead: flushes before the first.
        """
        events: list[list[tuple[torch.cuda.Event, torch.cuda.Event]]] = [[] for _ in calls]
        self._busy(ahead)
        for _ in range(repeats):
            for call, own in zip(calls, events):
                self._flush.zero_()
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                start.record()
                call()
                end.record()
                own.append((start, end))
        torch.cuda.synchronize(self.device)
        return [[start.elapsed_time(end) / 1e3 for start, end in own] for own in events]

    def _busy(self, flushes: int) -> None:
        for _ in range(flushes):
            self._flush.zero_()

    def median_seconds(
        self, call: Callable[[], object], repeats: int = REPEATS, warm_up: int = WARM_UP
    ) -> float:
        """The median of `repeats` runs, on a GPU that is as fast as it gets."""
        self._busy(FLUSHES_TO_WAKE)
        for _ in range(warm_up):
            call()
        [spans] = self.spans([call], repeats)
        return statistics.median(spans)

    def beside(
        self,
        call: Callable[[], object],
        copy: Callable[[], object],
        limit: float,
        repeats: int = REPEATS,
        warm_up: int = WARM_UP,
    ) -> float:
        """The ratio of a call's time to a copy's: both run in turns, so that drift affects both.

        If the fastest of the first few runs is beyond the limit, it is the result: further runs only avoid
        the disturbance of a busy machine. If no disturbance can explain the time of the first run, that run
        alone is the result.
        """
        [[first], [other]] = self.spans([call, copy], 1, ahead=0)  # only what is far too slow matters
        if first > max(LONG_SECONDS, HOPELESS * other):
            return first / other
        for _ in range(warm_up):
            call()
            copy()
        own, others = self.spans([call, copy], FEW)
        if min(own) > limit * min(others):
            return min(own) / min(others)
        own, others = self.spans([call, copy], repeats)
        return statistics.median(own) / statistics.median(others)

    def copy(self, moved: int) -> Callable[[], object]:
        """A device-to-device copy that reads and writes `moved` bytes in all."""
        source = torch.empty(max(1, moved // 2), dtype=torch.int8, device=self.device)
        target = torch.empty_like(source)
        return lambda: target.copy_(source)

    def copy_seconds(self, moved: int) -> float:
        """Time of such a copy."""
        return self.median_seconds(self.copy(moved))


class Turn:
    """Lets one of several processes use the GPU at a time. If a process dies, the others continue.

    Args:
        path: a file that all of them name. None: there is only one process.
    """

    def __init__(self, path: Path | None) -> None:
        self._file = None if path is None else path.open("w")

    @contextmanager
    def taken(self, waiting: Callable[[], AbstractContextManager[None]] = nullcontext) -> Iterator[None]:
        """A block in which no other process runs anything.

        Args:
            waiting: a block in which this process waits for its turn.
        """
        if self._file is None:
            yield
            return
        with waiting():
            fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
