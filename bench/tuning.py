"""`python -m bench tuning`: how near searches come to the best of a stratified sample, on a GPU.

Each problem is searched by itself from the formula's params, then all are searched from plain ones, and then
stratified samples of what is legal are tried until most of the time is up. What served other problems comes
next, and in the end other processes time what was chosen again, in turns with a copy. A problem is one GPU's,
of as many as there are: each has a process with workers of its own (bench/tuning_parts.py).

`--drawn [SEED]`: the problems are those that bench/tuning_problems.py draws by chance; with `--near` several
sizes of each of some operations, of which a part is held out (bench/tuning_near.py). `--record FILE` writes
what was measured, now and then and in the end, for `fusewright tune --show --table FILE` and for tests.
`--policy-of FILE..`: tables of older measurements, whose policy is judged by these problems; of tables, the
problems count whose formula of today was measured. `--json FILE` writes the table and what follows from it.
`--journals FOLDER` keeps all trials there: another run with as many GPUs and the same problems goes on from
them, so that two short runs try what a long one does. Without a GPU a few small kernels are compiled, and
nothing is timed.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from bench import tuning_near
from bench.tuning_parts import FIRST_STEPS, SLICES, Parts, Share, Step, visible_devices
from bench.tuning_problems import SEED, Case, cases, held_out, title
from bench.tuning_report import as_dict, copy_seconds, print_for_documentation, print_found
from bench.tuning_trials import SAMPLED, Found, served
from fusewright import Options
from fusewright.cli.arguments import positive_count, positive_seconds
from fusewright.core.errors import TuneError
from fusewright.core.serialization import from_json
from fusewright.frontend.tuned.problems import load
from fusewright.tune.document import write_document
from fusewright.tune.journal import Status
from fusewright.tune.policy import Policy, policy_of
from fusewright.tune.recording import read_recording, recording_text
from fusewright.tune.sweep import SPACE
from fusewright.tune.table import Measurements
from fusewright.tune.worker import Planned

# Of a sample, the points that a recording keeps: those that are not much slower than the best, and so many.
NEAR_BEST, KEPT = 1.1, 20
# A process that is so late with its steps is not waited for.
LATE_SECONDS = 20.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--points", type=positive_count, default=500, help="of each sample (default: 500)")
    parser.add_argument("--seconds", type=positive_seconds, default=80.0, help="in all (default: 80)")
    parser.add_argument("--only", default="", help="problems whose name has this")
    parser.add_argument(
        "--drawn",
        type=int,
        nargs="?",
        const=SEED,
        metavar="SEED",
        help="64 problems drawn by chance, not the listed ones",
    )
    parser.add_argument(
        "--near",
        action="store_true",
        help="of those that are drawn: several sizes of each of some operations",
    )
    parser.add_argument("--record", type=Path, help="a file for what was measured (tune.recording)")
    parser.add_argument(
        "--journals", type=Path, metavar="FOLDER", help="keep what is tried there, and go on from it"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the table there")
    parser.add_argument(
        "--policy-of", type=Path, nargs="+", default=[], metavar="FILE", help="tables to fit a policy to"
    )


def run(arguments: argparse.Namespace) -> int:
    start = time.monotonic()
    visible = visible_devices()
    if not visible:
        print("bench tuning: torch sees no GPU here: kernels of small sizes are compiled, and none is timed")
        if arguments.record is not None:
            print(f"{arguments.record} is not written: there is nothing to record")
            return 1
    drawn = list(
        cases(SEED if arguments.near and arguments.drawn is None else arguments.drawn, arguments.near)
    )
    given = [case for case in drawn if arguments.only in title(*case)]
    count = max(1, len(visible))
    compilers = max(1, (os.cpu_count() or 2) // count - 1)
    print(f"{len(given)} cases, {count} x {compilers} processes compile", flush=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        kept: Path = arguments.journals or Path(folder)
        kept.mkdir(parents=True, exist_ok=True)
        shares = [
            Share(
                i,
                visible[i] if visible else None,
                tuple(given[i::count]),
                Path(folder) / str(i),
                kept / f"journal-{i}-of-{count}.sqlite",
                compilers,
                arguments.points,
                start,
                arguments.seconds,
            )
            for i in range(count)
        ]
        found = _near(shares, given, arguments) if arguments.near else _measured(shares, arguments)
    if visible and found and not arguments.near:
        print(policy_of(map(measurements, found)).rules_text())
    return 0


def _measured(shares: Sequence[Share], arguments: argparse.Namespace) -> list[Found]:
    """Takes all parts through all steps; prints and writes what was found after samples, and at the end."""
    until = shares[0].until
    with Parts(shares, lambda found: _record(arguments.record, found)) as parts:
        policy = _policy(arguments.policy_of)
        parts.run(FIRST_STEPS, until(SAMPLED) + LATE_SECONDS)
        print_found(parts.found)
        last = (
            Step("transfer", (served(parts.found), policy), "tried what served others"),
            Step("race", said="timed again"),
        )
        parts.run(last, until(1.0) + LATE_SECONDS)
        found = parts.found
    print("\nTimed again:", flush=True)
    print_found(found)
    if arguments.json is not None:
        write_document(arguments.json, json.dumps(as_dict(found), indent=1) + "\n")
    print_for_documentation(found)
    return found


def _near(shares: Sequence[Share], given: Sequence[Case], arguments: argparse.Namespace) -> list[Found]:
    """The same for sizes near each other, of which some are held out."""
    until, held = shares[0].until, held_out(given)
    with Parts(shares, lambda found: _record_near(arguments, found, held)) as parts:
        parts.run(tuning_near.first_steps(SLICES), until(tuning_near.RACED) + LATE_SECONDS)
        parts.run(tuning_near.last_steps(parts.found), until(1.0) + LATE_SECONDS)
        found = parts.found
    print(tuning_near.report(found, held), flush=True)
    return found


def _record_near(arguments: argparse.Namespace, found: Sequence[Found], held: Sequence[Case]) -> None:
    """Two tables: of what is tuned, and beside it ("NAME.held_out.json") of what is held out."""
    if arguments.json is not None:
        write_document(arguments.json, json.dumps(tuning_near.as_dict(found)) + "\n")
    tables = tuning_near.tuned_tables(found, held)
    if arguments.record is not None:
        paths = arguments.record, arguments.record.with_suffix(".held_out.json")
        for path, own in zip(paths, tables):
            if own:
                write_document(path, recording_text(own, own[0].made_by))


def _policy(paths: Sequence[Path]) -> Policy | None:
    tables = [table for path in paths for table in read_recording(path)]
    return policy_of(filter(None, map(with_todays_formula, tables))) if tables else None


def with_todays_formula(table: Measurements) -> Measurements | None:
    """Measurements beside the params that the scheduler chooses now; None: those were not measured.

    Most of what older tables teach, formulas have learned since.
    """
    try:
        formula = Planned(table.problem, load, Options.from_environment()).described().formula
    except TuneError:  # a definition becomes other kernels than it did then
        return None
    return replace(table, formula=formula) if formula in table.seconds else None


# ---- what is kept


def measurements(found: Found) -> Measurements:
    """Of a problem, what was measured; times in turns count more than those of trials."""
    kind = type(found.formula)
    times = {**found.measured, **({} if found.again is None else found.again.seconds)}
    refused = {trial.params for trial in found.known if trial.status is Status.REJECTED}
    return Measurements(
        found.problem,
        found.formula,
        {from_json(kind, params): seconds for params, seconds in times.items()},
        frozenset(from_json(kind, params) for params in refused),
        copy_seconds(found),
        f"one {found.problem.hardware.name}, {date.today()}, L2 flushed before each run",
        found.plain,
    )


def _record(path: Path | None, found: Iterable[Found]) -> None:
    if path is None:
        return
    tables = [_thinned(each) for each in found if each.measured]
    if tables:
        write_document(path, recording_text(tables, tables[0].made_by))


def _thinned(found: Found) -> Measurements:
    """Without most points of the sample: all that is refused, and most of what is slow."""
    kind, table = type(found.formula), measurements(found)
    sampled = {from_json(kind, t.params): t for t in found.known if t.origin == SPACE}
    slow = [p for p in table.seconds if p in sampled and table.seconds[p] > NEAR_BEST * table.best]
    left_out = {*slow} - {*slow[:: max(1, len(slow) // KEPT)]}
    seconds: Mapping[Any, float] = {p: s for p, s in table.seconds.items() if p not in left_out}
    return replace(table, seconds=seconds, refused=table.refused - sampled.keys())
