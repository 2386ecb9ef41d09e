"""Times on the GPU: medians of `triton.testing.do_bench`, which flushes the L2 cache before each run."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import TypeVar

import torch

MICROSECONDS = 1e3  # in a millisecond, which is what do_bench counts in
WARMUP_MS, REPEAT_MS = 20.0, 80.0
SHORT_WARMUP_MS, SHORT_REPEAT_MS = 4.0, 16.0
#: Even, since every other turn goes backward.
TURNS = 4
# Largest tensor that copies are cut from: as many bytes as the largest operation reads and writes.
COPY_ELEMENTS = 1 << 30
Call = Callable[[], object]
Name = TypeVar("Name")


def median_us(call: Call, warmup_ms: float = WARMUP_MS, repeat_ms: float = REPEAT_MS) -> float:
    """Median time on the GPU of a call, L2 flushed before each."""
    return statistics.median(_times(call, warmup_ms, repeat_ms)) * MICROSECONDS


def short_median_us(call: Call) -> float:
    """The same in a fifth of the time, and less exact: for many cells of which none is reported alone."""
    return median_us(call, SHORT_WARMUP_MS, SHORT_REPEAT_MS)


def medians_us(
    calls: Mapping[Name, Call], warmup_ms: float = WARMUP_MS, repeat_ms: float = REPEAT_MS
) -> dict[Name, float]:
    """Median times of calls that are compared; `warmup_ms` and `repeat_ms` are for each in all.

    They are timed in turns, every other turn backward: what ran before decides clocks and where memory lies,
    so the first of several calls of a few microseconds seems slower than the last.
    """
    times: dict[Name, list[float]] = {name: [] for name in calls}
    for turn in range(TURNS):
        for name in list(calls) if turn % 2 == 0 else reversed(list(calls)):
            times[name] += _times(calls[name], warmup_ms / TURNS, repeat_ms / TURNS)
    return {name: statistics.median(found) * MICROSECONDS for name, found in times.items()}


def short_medians_us(calls: Mapping[Name, Call]) -> dict[Name, float]:
    """The same in a fifth of the time."""
    return medians_us(calls, SHORT_WARMUP_MS, SHORT_REPEAT_MS)


def _times(call: Call, warmup_ms: float, repeat_ms: float) -> list[float]:
    from triton.testing import do_bench  # noqa: PLC0415 - comes with torch for GPUs only

    found: list[float] = do_bench(call, warmup=warmup_ms, rep=repeat_ms, return_mode="all")
    return found


class Copies:
    """Device-to-device copies by the bytes that they read and write in all, and their times."""

    def __init__(self, device: torch.device, median: Callable[[Call], float] = median_us) -> None:
        self._median = median
        self._source = torch.empty(COPY_ELEMENTS, device=device, dtype=torch.bfloat16).normal_()
        self._target = torch.empty_like(self._source)
        self._times: dict[int, float] = {}

    def call(self, moved: int) -> Call:
        whole, rest = divmod(max(1, moved // (2 * self._source.element_size())), COPY_ELEMENTS)
        source, target = self._source[:rest], self._target[:rest]

        def copy() -> None:
            for _ in range(whole):
                self._target.copy_(self._source)
            if rest:
                target.copy_(source)

        return copy

    def microseconds(self, moved: int) -> float:
        """Timed once for each number of bytes."""
        if moved not in self._times:
            self._times[moved] = self._median(self.call(moved))
        return self._times[moved]
