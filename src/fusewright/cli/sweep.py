"""`fusewright sweep`: its arguments, the problems of a script, progress, and the final table."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import torch
from rich.console import Console

from fusewright.cli.arguments import check_targets, count_to, positive_seconds
from fusewright.cli.outcomes import show_outcomes
from fusewright.cli.script_problems import check_script, script_problems
from fusewright.core.errors import TuneError
from fusewright.core.options import Options
from fusewright.frontend.tuned.problems import load
from fusewright.frontend.tuned.tuned_calls import journal_version
from fusewright.tune.journal import FAILED, Journal, Status
from fusewright.tune.plot import svg
from fusewright.tune.report import outcomes
from fusewright.tune.sweep import SweepEffort, SweepProgress, sweep

DESCRIPTION = """
Run SCRIPT, and try other params for each kernel of the fusions that it executes: its legal space or a sample
of it, compiled in parallel and run on the GPU with the L2 flushed. Without a GPU kernels are compiled only.
Every result goes to a journal at once; a sweep that was interrupted goes on where it was.
"""
DEFAULT_POINTS = 100
MAX_POINTS = 1_000_000  # a sample is drawn before the first is compiled; --all takes any space
MAX_JOBS = 1024  # more than hosts have cores
LINE_SECONDS = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "script", metavar="SCRIPT", type=Path, nargs="?", help="executes the fusions; its arguments: -- ARG.."
    )
    parser.add_argument(
        "--journal", metavar="FILE", type=Path, default=Path("sweep.sqlite"), help="default: sweep.sqlite"
    )
    parser.add_argument("--plot", metavar="FILE", type=Path, help="draw all times, as SVG")
    many = parser.add_mutually_exclusive_group()
    many.add_argument(
        "--points",
        metavar="N",
        type=count_to(MAX_POINTS),
        default=DEFAULT_POINTS,
        help=f"a stratified sample of each kernel's space (default: {DEFAULT_POINTS})",
    )
    many.add_argument("--all", action="store_true", help="the whole space of each kernel")
    parser.add_argument(
        "--seconds", metavar="S", type=positive_seconds, help="begin nothing new after so long"
    )
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="of the sample (default: 0)")
    parser.add_argument("--jobs", metavar="N", type=count_to(MAX_JOBS), help="processes that compile")
    parser.add_argument("--show", action="store_true", help="run nothing: print what the journal has")


def sweep_command(console: Console, parsed: argparse.Namespace) -> None:
    """Raises TuneError for a script or a journal that cannot be used."""
    _check_files(parsed)
    keys: set[str] | None = None
    with Journal(parsed.journal, None if parsed.show else journal_version()) as journal:
        if not parsed.show:
            keys = _sweep(parsed, journal)
        found = outcomes(journal, keys)
    if parsed.plot is not None:
        try:
            parsed.plot.write_text(svg(found), encoding="utf-8")
        except OSError as error:
            raise TuneError(f"--plot: {parsed.plot} cannot be written: {error}") from None
    if parsed.json:
        print(json.dumps([outcome.to_dict() for outcome in found], indent=2))
    else:
        show_outcomes(console, found)


def _check_files(parsed: argparse.Namespace) -> None:
    check_targets(parsed.plot)
    if parsed.show:
        if not parsed.journal.exists():
            raise TuneError(f"there is no journal {parsed.journal}", hint="--journal names another file")
    else:
        check_script(parsed.script)


def _sweep(parsed: argparse.Namespace, journal: Journal) -> set[str]:
    on_gpu = torch.cuda.is_available()
    effort = SweepEffort(None if parsed.all else parsed.points, parsed.seconds, parsed.seed)
    if parsed.jobs is not None:
        effort = SweepEffort(effort.points, effort.seconds, effort.seed, parsed.jobs)
    with tempfile.TemporaryDirectory(prefix="fusewright-values-") as folder:
        problems = script_problems(parsed.script, parsed.script_arguments, Path(folder), "sweep", parsed.json)
        print(f"sweep: {len(problems)} kernels of {parsed.script}", file=sys.stderr, flush=True)
        options = Options.from_environment()
        line = _Line()
        try:
            sweep(problems, journal, load, effort, options, on_gpu=on_gpu, report=line.show)
        except KeyboardInterrupt:
            print("\nsweep: interrupted; run it again to go on", file=sys.stderr)
        line.end()
    return {problem.key for problem in problems}


class _Line:
    """Progress on one line of a terminal; in a file, a line now and then."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._last = -LINE_SECONDS
        self._text = ""

    def show(self, progress: SweepProgress) -> None:
        now = time.monotonic() - self._start
        of = "" if progress.total is None else f" of {progress.total}"
        lost = sum(n for status, n in progress.counts.items() if status in FAILED)
        gains = [
            progress.heuristic[key] / best for key, best in progress.best.items() if key in progress.heuristic
        ]
        gain = f", best up to {max(gains):.2f}x the heuristic's" if gains else ""
        refused = progress.counts[Status.REJECTED]
        self._text = (
            f"sweep: {progress.done}{of} tried ({progress.known} known, {refused} rejected, {lost} failed)"
            f"{gain}, {now:.0f} s"
        )
        if sys.stderr.isatty():
            print(f"\r\x1b[K{self._text}", end="", file=sys.stderr, flush=True)
        elif now - self._last >= LINE_SECONDS:
            self._last = now
            print(self._text, file=sys.stderr, flush=True)

    def end(self) -> None:
        print(f"\r\x1b[K{self._text}" if sys.stderr.isatty() else self._text, file=sys.stderr, flush=True)
