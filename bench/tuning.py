"""`python -m bench tuning`: how near searches come to the best of a stratified sample, on a GPU.

`--drawn`: the problems are those that bench/tuning_problems.py draws by chance. `--record FILE` writes all
that was measured, for `fusewright tune --show --table FILE` and for tests. Without a GPU a few small kernels
are compiled, and nothing is timed.

Each problem is searched by itself; then points of its space are timed until the time is up. What is reported
is the time after 8, 30 and all configurations of the search, in multiples of the best of all that was timed.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from pathlib import Path

import torch

from bench.tuning_problems import drawn, problems
from fusewright import Options
from fusewright.cli.arguments import positive_count, positive_seconds
from fusewright.frontend.problems import load
from fusewright.tune.document import write_document
from fusewright.tune.heuristics import default_heuristics
from fusewright.tune.journal import Journal, Status
from fusewright.tune.recording import recording_text
from fusewright.tune.runner import COMPILERS, Runner
from fusewright.tune.sweep import Effort as SweepEffort
from fusewright.tune.sweep import sweep_with
from fusewright.tune.table import measurements_of
from fusewright.tune.tuner import Effort, Tuned, Tuner

STEPS = (8, 30)
# Of the time, what searches may take; the rest is the samples'.
SEARCH_SHARE = 0.7


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--configurations", type=positive_count, default=40, help="of each search (default: 40)"
    )
    parser.add_argument("--points", type=positive_count, default=200, help="of each sample (default: 200)")
    parser.add_argument("--seconds", type=positive_seconds, default=80.0, help="in all (default: 80)")
    parser.add_argument("--only", default="", help="problems whose name has this")
    parser.add_argument(
        "--drawn", action="store_true", help="64 problems drawn by chance, not the listed ones"
    )
    parser.add_argument("--record", type=Path, help="a file for all measurements (tune.recording)")


def run(arguments: argparse.Namespace) -> int:
    start = time.monotonic()
    on_gpu = torch.cuda.is_available()
    if not on_gpu:
        print("bench tuning: torch sees no GPU here: kernels of small sizes are compiled, and none is timed")
        if arguments.record is not None:
            print(f"{arguments.record} is not written: there is nothing to record")
            return 1
    device = torch.device("cuda" if on_gpu else "cpu")
    options = Options.from_environment()
    with tempfile.TemporaryDirectory() as folder:
        cases = drawn() if arguments.drawn else None
        given = list(problems(arguments.only, Path(folder), device, cases))
        print(
            f"{len(given)} problems, {COMPILERS} processes compile, {time.monotonic() - start:.0f} s so far"
        )
        with (
            Journal(Path(folder) / "j.sqlite", "bench") as journal,
            Runner(load, options, COMPILERS, on_gpu) as runner,
        ):
            tuner = Tuner(runner, journal, load, options, default_heuristics(), race=False)
            effort = Effort(arguments.configurations, to_roofline=False)
            found: list[tuple[Tuned, float]] = []
            for problem in given:
                before = time.monotonic()
                if before - start > SEARCH_SHARE * arguments.seconds:
                    print(f"no time left for {problem.name}")
                    continue
                [tuned] = tuner.tune([problem], effort)
                found.append((tuned, time.monotonic() - before))
                print(f"{problem.name}: {found[-1][1]:.1f} s", flush=True)
            given = [tuned.problem for tuned, _ in found]
            left = arguments.seconds - (time.monotonic() - start)
            print(f"searched after {time.monotonic() - start:.0f} s", flush=True)
            sweep_with(runner, given, journal, load, SweepEffort(arguments.points, max(0.1, left)), options)
            _print(found, journal)
            if arguments.record is not None:
                name = torch.cuda.get_device_name()
                text = recording_text(list(measurements_of(journal, name)), name)
                write_document(arguments.record, text)
    return 0


def _print(found: list[tuple[Tuned, float]], journal: Journal) -> None:
    print(f"{'problem':26} {'scheduler':17} formula us  best us  copy us |", end="")
    print(" formula  first      8     30    all | search s tried refused sampled  best from, change")
    ratios: dict[str, list[float]] = {}
    for tuned, seconds in found:
        trials = journal.trials(tuned.problem.key)
        measured = [t for t in trials if t.seconds is not None]
        lost = [t for t in trials if t.status not in (Status.MEASURED, Status.COMPILED, Status.REJECTED)]
        for trial in lost:
            print(f"  {trial.status.value}: {trial.detail[:150]!r} {trial.params}")
        if not measured:
            print(f"{tuned.problem.name:26} nothing measured; tried {tuned.tried} in {seconds:.1f} s")
            continue
        best = min(measured, key=lambda t: t.seconds or 0.0)
        assert best.seconds is not None
        first = [at for at in tuned.progression if at is not None]
        cells = {"formula": (tuned.formula_seconds or math.nan) / best.seconds}
        for steps in (2, *STEPS, len(first)):
            at = first[min(steps, len(first)) - 1] if first else math.nan
            cells[f"after {'all' if steps not in (2, *STEPS) else steps}"] = at / best.seconds
        for name, ratio in cells.items():
            ratios.setdefault(name, []).append(ratio)
        refused = sum(t.status is Status.REJECTED for t in trials)
        shown = " ".join(f"{ratio:6.3f}" for ratio in cells.values())
        copy = (tuned.copy_seconds or 0.0) * 1e6
        print(
            f"{tuned.problem.name:26} {tuned.problem.scheduler:17} "
            f"{(tuned.formula_seconds or 0) * 1e6:10.2f} {best.seconds * 1e6:8.2f} {copy:8.2f} |  {shown} | "
            f"{seconds:8.1f} {tuned.tried:5} {refused:7} {len(measured):7}  {best.origin}"
        )
    for name, values in ratios.items():
        mean = math.exp(sum(map(math.log, values)) / len(values))
        print(f"{name:10} geometric mean {mean:.3f}, worst {max(values):.3f}")
