"""Time of a call on the GPU, with nothing of its data in the L2 cache."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

WARM_UP, REPEATS = 5, 30
# Written between runs to push a run's data out of the L2 cache: twice the largest L2 described (B200's 126
# MiB).
FLUSH_BYTES = 256 * 1024 * 1024


def median_seconds(call: Callable[[], object], device: torch.device) -> float:
    """Median over `REPEATS` runs between CUDA events, the L2 cache flushed before each."""
    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device=device)
    for _ in range(WARM_UP):
        call()
    spans = []
    for _ in range(REPEATS):
        flush.zero_()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        spans.append((start, end))
    torch.cuda.synchronize(device)
    return statistics.median(start.elapsed_time(end) for start, end in spans) / 1e3


def copy_seconds(moved: int, device: torch.device) -> float:
    """Time of a device-to-device copy that reads and writes `moved` bytes in all."""
    source = torch.empty(moved // 2, dtype=torch.int8, device=device)
    target = torch.empty_like(source)
    return median_seconds(lambda: target.copy_(source), device)
