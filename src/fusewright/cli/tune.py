"""`fusewright tune`: its arguments, progress, the final table, and exports."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from fusewright.cli.arguments import check_targets
from fusewright.cli.outcomes import show_outcomes
from fusewright.cli.script_problems import check_script, script_problems
from fusewright.cli.tune_progress import Display
from fusewright.core.errors import TuneError
from fusewright.frontend.tuned.active_tuning import ACTIVE
from fusewright.frontend.tuned.tuned_calls import TuningSession, effort_of, journal_path, journal_version
from fusewright.tune.document import write_document
from fusewright.tune.heuristics import SeedTable
from fusewright.tune.heuristics.seed_table import read_table, seeds_from, table_text
from fusewright.tune.html import page
from fusewright.tune.journal import Journal, SearchRecord
from fusewright.tune.plot import svg
from fusewright.tune.policy import Policy, policy_of
from fusewright.tune.recording import read_recording
from fusewright.tune.report import Outcome, outcome_of, outcomes
from fusewright.tune.table import measurements_of
from fusewright.tune.tuner import Effort

DESCRIPTION = """
Run SCRIPT, and search for better params for each kernel of the fusions that it executes: heuristics name the
first, then what lies beside the best is tried. Every result goes to a journal at once, and none is tried
again.
"""

# What to do with what was found, said where a search ends.
NEXT = "--export FILE writes what was learned as a policy, which FUSEWRIGHT_POLICY=FILE uses"
# What a heuristic said, in the table of the end: of those that had nothing to say the report tells.
SILENT = ("not eligible", "no seed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "script", metavar="SCRIPT", type=Path, nargs="?", help="executes the fusions; its arguments: -- ARG.."
    )
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
    parser.add_argument(
        "--table", metavar="FILE", type=Path, help="with --show: a table of measurements, not a journal"
    )
    parser.add_argument("--export", metavar="FILE", type=Path, help="write the policy, for FUSEWRIGHT_POLICY")
    parser.add_argument(
        "--export-seeds", metavar="FILE", type=Path, help="write the best as a table of seeds"
    )
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="of what is drawn (default: 0)")
    parser.add_argument("--plot", metavar="FILE", type=Path, help="write all times as SVG")
    parser.add_argument("--report", metavar="FILE", type=Path, help="write an HTML report with plots")


def tune_command(console: Console, parsed: argparse.Namespace) -> None:
    """Raises TuneError for a script, a journal or a file that cannot be used; OptionError for the effort."""
    effort = replace(effort_of(parsed.effort, "--effort"), seed=parsed.seed)
    path = parsed.journal or journal_path()
    check_targets(parsed.export, parsed.export_seeds, parsed.report, parsed.plot)
    if parsed.table is not None and not parsed.show:
        raise TuneError("a table of measurements can only be shown", hint="--show --table FILE")
    keys = None if parsed.show else _search(parsed, path, effort)
    known = _of_journal(path, keys) if parsed.table is None else _of_table(parsed.table)
    found, searches, policy = known.found, known.searches, known.policy
    problem: TuneError | None = None
    for target, text in (
        (parsed.export, policy.text),
        (parsed.export_seeds, lambda: table_text(seeds_from(policy.entries))),
        (parsed.report, lambda: page(found, searches, policy)),
        (parsed.plot, lambda: svg(found)),
    ):
        try:
            if target is not None:
                write_document(target, text())
        except TuneError as error:  # what was found is shown first
            problem = problem or error
    for each in known.unreadable if parsed.show else ():
        print(f"tune: {path}: a problem cannot be read: {each}", file=sys.stderr)
    measured = any(outcome.best for outcome in found)
    if parsed.json:
        print(json.dumps([_described(outcome, searches[outcome.problem.key]) for outcome in found], indent=2))
    else:
        _print(console, known)
        if measured and keys is not None and parsed.export is None:
            console.print(f"{path} has all that was measured; {NEXT}", soft_wrap=True, markup=False)
    if problem is not None:
        raise problem


@dataclass(frozen=True)
class _Known:
    """What is shown: outcomes, the searches that led to them, and what can be learned from them."""

    found: Sequence[Outcome]
    searches: Mapping[str, SearchRecord | None]
    policy: Policy
    unreadable: Sequence[str] = ()


def _of_journal(path: Path, keys: set[str] | None) -> _Known:
    """keys: of the problems that were searched; None: nothing was, and all are shown."""
    if keys is None and not path.exists():
        raise TuneError(f"there is no journal {path}", hint="--journal names another file")
    with Journal(path, None if keys is None else journal_version()) as journal:
        found = outcomes(journal, keys)
        searches = {outcome.problem.key: journal.search(outcome.problem.key) for outcome in found}
        policy = policy_of(measurements_of(journal, str(path)))
        return _Known(found, searches, policy, journal.unreadable)


def _of_table(path: Path) -> _Known:
    tables = read_recording(path)
    found = [outcome_of(table) for table in tables]
    return _Known(found, {outcome.problem.key: None for outcome in found}, policy_of(tables))


def _print(console: Console, known: _Known) -> None:
    _show(console, known.found, known.searches)
    if known.policy.rules_text():
        console.print(known.policy.rules_text(), markup=False, soft_wrap=True)
    if not (torch.cuda.is_available() or any(outcome.best for outcome in known.found)):
        console.print(
            "Nothing was measured: without a GPU kernels are compiled and not timed.", soft_wrap=True
        )


def _search(parsed: argparse.Namespace, journal: Path, effort: Effort) -> set[str]:
    """Searches for the params of a script's kernels; returns the keys of the problems."""
    check_script(parsed.script)
    for table in parsed.seeds:
        read_table(table)
    ACTIVE.every = None  # the kernels share one effort in the end
    with tempfile.TemporaryDirectory(prefix="fusewright-values-") as folder:
        problems = script_problems(parsed.script, parsed.script_arguments, Path(folder), "tune", parsed.json)
        heuristics = [SeedTable(each) for each in parsed.seeds]  # the script may have registered schedulers
        with Display(effort) as display, TuningSession(journal, heuristics, report=display.show) as session:
            session.tune(problems, effort)
    return {problem.key for problem in problems}


def _described(outcome: Outcome, search: Any) -> dict[str, Any]:
    more = {} if search is None else {"stop": search.stop, "autotuner_heuristics": search.asked}
    return {**outcome.to_dict(), **more}


def _show(console: Console, found: Sequence[Outcome], searches: Mapping[str, SearchRecord | None]) -> None:
    show_outcomes(console, found, {key: "" if each is None else each.stop for key, each in searches.items()})
    for outcome in found:
        search = searches[outcome.problem.key]
        if search is not None:
            asked = "; ".join(said for said in search.asked if not any(each in said for each in SILENT))
            console.print(
                f"{outcome.problem.name}: autotuner heuristics: {asked}", soft_wrap=True, markup=False
            )
