"""`fusewright tune`: its arguments, progress, the table in the end, and what is exported."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from fusewright.cli.script_problems import script_problems
from fusewright.core.errors import TuneError
from fusewright.frontend.tuned_calls import (
    TuningSession,
    effort_of,
    journal_path,
    journal_version,
)
from fusewright.tune.document import write_document
from fusewright.tune.heuristics import SeedTable
from fusewright.tune.heuristics.seed_table import seeds_from, table_text
from fusewright.tune.html import page
from fusewright.tune.journal import Journal
from fusewright.tune.policy import policy_of
from fusewright.tune.report import Outcome, outcomes
from fusewright.tune.table import params_types, recorded
from fusewright.tune.tuner import Progress

DESCRIPTION = """
Run SCRIPT, and search for better params for each kernel of the fusions that it executes: heuristics name the
first, then what lies beside the best is tried. Every result goes to a journal at once, and none is tried
again.
"""
LINE_SECONDS = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("script", metavar="SCRIPT", type=Path, nargs="?", help="executes the fusions")
    parser.add_argument(
        "--effort", default="fast", help='"fast", "full", or seconds for all kernels (default: fast)'
    )
    parser.add_argument(
        "--journal", metavar="FILE", type=Path, help="default: FUSEWRIGHT_TUNE_JOURNAL, or one in the cache"
    )
    parser.add_argument(
        "--seeds",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="a table of seeds to begin with",
    )
    parser.add_argument("--show", action="store_true", help="search nothing: print what the journal has")
    parser.add_argument("--export", metavar="FILE", type=Path, help="write the policy, for FUSEWRIGHT_POLICY")
    parser.add_argument(
        "--export-seeds", metavar="FILE", type=Path, help="write the best as a table of seeds"
    )
    parser.add_argument("--report", metavar="FILE", type=Path, help="write an HTML report with plots")


def tune_command(console: Console, parsed: argparse.Namespace) -> None:
    """Raises TuneError for a script, a journal or a file that cannot be used; OptionError for the effort."""
    effort = effort_of(parsed.effort)
    path = parsed.journal or journal_path()
    keys: set[str] | None = None
    if not parsed.show:
        if parsed.script is None or not parsed.script.is_file():
            given = "" if parsed.script is None else f"there is no script {parsed.script}"
            raise TuneError(given or "which SCRIPT?", hint="or --show, for what a journal has")
        heuristics = [SeedTable(each) for each in parsed.seeds]
        with (
            tempfile.TemporaryDirectory(prefix="fusewright-values-") as folder,
            _Display() as display,
            TuningSession(path, heuristics, report=display.show) as session,
        ):
            problems = script_problems(parsed.script, Path(folder), "tune")
            if not problems:
                raise TuneError(f"{parsed.script} executed no fusion that has a kernel with params")
            session.tune(problems, effort)
        keys = {problem.key for problem in problems}
    elif not path.exists():
        raise TuneError(f"there is no journal {path}", hint="--journal names another file")
    with Journal(path, None if parsed.show else journal_version()) as journal:
        found = outcomes(journal, keys)
        unreadable = journal.unreadable
        searches = {outcome.problem.key: journal.search(outcome.problem.key) for outcome in found}
        policy = policy_of(recorded(journal, params_types(), str(path)))
    for target, text in (
        (parsed.export, policy.text),
        (parsed.export_seeds, lambda: table_text(seeds_from(policy.entries))),
        (parsed.report, lambda: page(found, searches, policy)),
    ):
        if target is not None:
            write_document(target, text())
    for each in unreadable if parsed.show else ():
        print(f"tune: {path}: a problem cannot be read: {each}", file=sys.stderr)
    if parsed.json:
        print(json.dumps([_described(outcome, searches[outcome.problem.key]) for outcome in found], indent=2))
    else:
        _show(console, found, searches)
        console.print(policy.rules_text(), markup=False, soft_wrap=True)


def _described(outcome: Outcome, search: Any) -> dict[str, Any]:
    more = {} if search is None else {"stop": search.stop, "autotuner_heuristics": search.asked}
    return {**outcome.to_dict(), **more}


def _show(console: Console, found: Sequence[Outcome], searches: dict[str, Any]) -> None:
    table = Table(box=None, pad_edge=False)
    for name in (
        "kernel",
        "scheduler",
        "tried",
        "formula us",
        "best us",
        "copy us",
        "stopped",
        "the best has",
    ):
        table.add_column(name, justify="right" if name.endswith("us") else "left", overflow="fold")
    for outcome in found:
        search = searches[outcome.problem.key]
        times = outcome.heuristic, outcome.best, outcome.copy_seconds
        table.add_row(
            outcome.problem.name,
            outcome.problem.scheduler,
            str(len(outcome.trials)),
            *("" if seconds is None else f"{seconds * 1e6:.2f}" for seconds in times),
            "" if search is None else search.stop,
            ", ".join(f"{path}: {old} -> {new}" for path, (old, new) in outcome.changed().items()),
        )
    console.print(table)
    for outcome in found:
        for line in outcome.failures():
            console.print(line, soft_wrap=True, markup=False)


class _Display(AbstractContextManager["_Display"]):
    """Progress: on a terminal a table that changes, else a line now and then."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._live = Live(console=self._console, transient=True) if self._console.is_terminal else None
        self._last = time.monotonic()

    def __enter__(self) -> _Display:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, progress: Sequence[Progress]) -> None:
        if self._live is not None:
            self._live.update(progress_table(progress))
        elif time.monotonic() - self._last > LINE_SECONDS:
            self._last = time.monotonic()
            tried = sum(each.tried for each in progress)
            ended = sum(bool(each.stop) for each in progress)
            print(
                f"tune: {tried} tried, {ended} of {len(progress)} kernels done", file=sys.stderr, flush=True
            )


def progress_table(progress: Sequence[Progress]) -> Table:
    """Of each kernel the best, how near that is to the roofline, what is tried, and why it stops."""
    table = Table(box=None, pad_edge=False)
    for name in ("kernel", "tried", "refused", "formula us", "best us", "of roofline", "trying", "stops"):
        table.add_column(name, overflow="ellipsis", no_wrap=True)
    for each in progress:
        formula = "" if each.formula_seconds is None else f"{each.formula_seconds * 1e6:.2f}"
        best = "" if each.best is None else f"{each.best.seconds * 1e6:.2f}"
        share = "" if each.fraction is None else f"{each.fraction:.0%}"
        cells = (each.problem.name, str(each.tried), str(each.refused), formula, best, share)
        table.add_row(*cells, "" if each.stop else each.trying, each.stop)
    return table
