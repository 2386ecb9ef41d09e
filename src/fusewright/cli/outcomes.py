"""The final table of a sweep or a search: one row per kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from fusewright.tune.journal import Status
from fusewright.tune.report import Outcome

NUMBERS = ("tried", "measured", "formula us", "best us", "copy us", "faster")


def show_outcomes(
    console: Console, found: Sequence[Outcome], stopped: Mapping[str, str] | None = None
) -> None:
    """Prints what was found. `stopped`: why the search of each problem ended, by its key."""
    table = Table(box=None, pad_edge=False)
    for name in ("kernel", "scheduler"):
        table.add_column(name)
    for name in NUMBERS:
        table.add_column(name, justify="right")
    for name in ("stopped", "the best has")[stopped is None :]:
        table.add_column(name, overflow="fold")
    for outcome in found:
        times = (outcome.heuristic, outcome.best, outcome.copy_seconds)
        table.add_row(
            outcome.problem.name,
            outcome.problem.scheduler,
            str(len(outcome.trials)),
            str(outcome.counts.get(Status.MEASURED.value, 0)),
            *("" if seconds is None else f"{seconds * 1e6:.2f}" for seconds in times),
            "" if outcome.speedup is None else f"{outcome.speedup:.3f}x",
            *([] if stopped is None else [stopped.get(outcome.problem.key, "")]),
            ", ".join(f"{path}: {old} -> {new}" for path, (old, new) in outcome.changed().items()),
        )
    console.print(table)
    for outcome in found:
        for line in outcome.failures():
            console.print(line, soft_wrap=True, markup=False)
