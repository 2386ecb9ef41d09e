"""The progress display of `fusewright tune`: a table on a terminal, else an occasional line."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager

from rich.console import Console
from rich.live import Live
from rich.table import Table

from fusewright.tune.search import CLOSE
from fusewright.tune.tuner import Effort, Progress

LINE_SECONDS = 10.0


class Display(AbstractContextManager["Display"]):
    """Shows the progress of searches on standard error.

    effort: that they share.
    """

    def __init__(self, effort: Effort) -> None:
        self._effort = effort
        self._console = Console(stderr=True)
        self._live = Live(console=self._console, transient=True) if self._console.is_terminal else None
        self._start = self._last = time.monotonic()

    def __enter__(self) -> Display:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, progress: Sequence[Progress]) -> None:
        now = time.monotonic()
        if self._live is not None:
            self._live.update(progress_table(progress, self._effort, now - self._start))
        elif now - self._last > LINE_SECONDS:
            self._last = now
            print(progress_line(progress), file=sys.stderr, flush=True)


def progress_table(progress: Sequence[Progress], effort: Effort, seconds: float) -> Table:
    """Of each kernel the best, how near that is to the roofline, what is tried, and why it stops."""
    table = Table(box=None, pad_edge=False, caption=f"{seconds:.0f} s; ends {effort}", caption_justify="left")
    for name in ("kernel", "tried", "refused", "formula us", "best us", "of roofline", "trying", "stops"):
        table.add_column(name, overflow="ellipsis", no_wrap=True)
    for each in progress:
        formula = "" if each.formula_seconds is None else f"{each.formula_seconds * 1e6:.2f}"
        best = "" if each.best is None else f"{each.best.seconds * 1e6:.2f}"
        share = "" if each.fraction is None else f"{each.fraction:.0%}"
        known = f" ({each.known} known)" if each.known else ""
        limit = each.roofline
        stops = each.stop or ("" if limit is None else f"at {CLOSE * limit * 1e6:.2f} us")
        cells = (each.problem.name, f"{each.tried}{known}", str(each.refused), formula, best, share)
        table.add_row(*cells, "" if each.stop else each.trying, stops)
    return table


def progress_line(progress: Sequence[Progress]) -> str:
    """The same of all kernels in a line."""
    tried, ended = sum(each.tried for each in progress), sum(bool(each.stop) for each in progress)
    parts = [f"tune: {tried} tried, {ended} of {len(progress)} kernels done"]
    gains = [
        each.formula_seconds / each.best.seconds
        for each in progress
        if each.best is not None and each.formula_seconds is not None
    ]
    shares = [each.fraction for each in progress if each.fraction is not None]
    if gains:
        parts.append(f"the best {_mean(gains):.3f}x the formula's speed")
    if shares:
        parts.append(f"{_mean(shares):.0%} of the roofline")
    trying = next((each for each in progress if each.trying and not each.stop), None)
    if trying is not None:
        parts.append(f"trying {trying.trying} for {trying.problem.name}")
    return ", ".join(parts)


def _mean(ratios: Sequence[float]) -> float:
    """The geometric one."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))
