"""`python -m bench tuning`: how near searches come to the best of a stratified sample, on a GPU.

Each problem is searched by itself from the formula's params, then all are searched from plain ones, and then
stratified samples of what is legal are tried until most of the time is up. What served other problems comes
next, and in the end other processes time what was chosen again, in turns with a copy. A problem is one GPU's,
of as many as there are.

`--drawn [SEED]`: the problems are those that bench/tuning_problems.py draws by chance. `--record FILE` writes
what was measured, for `fusewright tune --show --table FILE` and for tests. `--policy-of FILE..`: tables of
older measurements, whose policy is judged by these problems. Without a GPU a few small kernels are compiled,
and nothing is timed.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bench.tuning_problems import SEED, drawn, problems
from bench.tuning_trials import CONFIGURATIONS, FIRST, PLAIN_CONFIGURATIONS, Found, OfGpu, served
from fusewright.cli.arguments import positive_count, positive_seconds
from fusewright.core.serialization import from_json
from fusewright.tune.document import write_document
from fusewright.tune.journal import FAILED, Status
from fusewright.tune.policy import Policy, policy_of
from fusewright.tune.recording import read_recording, recording_text
from fusewright.tune.sweep import SPACE
from fusewright.tune.table import Measurements

# Of a sample, the points that a recording keeps: those that are not much slower than the best, and so many.
NEAR_BEST, KEPT = 1.1, 20
#: Who chose params, in the order of the table.
CHOSEN = ("formula", f"after {FIRST}", f"after {CONFIGURATIONS}", f"plain {PLAIN_CONFIGURATIONS}", "policy")


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
    parser.add_argument("--record", type=Path, help="a file for what was measured (tune.recording)")
    parser.add_argument(
        "--policy-of", type=Path, nargs="+", default=[], metavar="FILE", help="tables to fit a policy to"
    )


def run(arguments: argparse.Namespace) -> int:
    start = time.monotonic()
    gpus = torch.cuda.device_count()
    if not gpus:
        print("bench tuning: torch sees no GPU here: kernels of small sizes are compiled, and none is timed")
        if arguments.record is not None:
            print(f"{arguments.record} is not written: there is nothing to record")
            return 1
    shares = max(1, gpus)
    compilers = max(1, (os.cpu_count() or 2) // shares - 1)
    policy = _policy(arguments.policy_of)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        cases = None if arguments.drawn is None else drawn(arguments.drawn)
        place = torch.device("cuda" if gpus else "cpu")
        given = list(problems(arguments.only, Path(folder), place, cases))
        print(f"{len(given)} problems, {shares} x {compilers} processes compile, {_since(start)}", flush=True)

        def until(share: float) -> float:
            return start + share * float(arguments.seconds)

        make = partial(OfGpu, compilers=compilers, folder=Path(folder), points=arguments.points, until=until)
        parts = [
            stack.enter_context(make(given[i::shares], device=i if gpus else None)) for i in range(shares)
        ]
        _side_by_side(OfGpu.search, parts)
        found = [each for part in parts for each in part.found]
        print(f"searched and sampled after {_since(start)}", flush=True)
        _record(arguments.record, found)
        _print(found)
        others = served(found)
        _side_by_side(lambda part: part.finish(others, policy), parts)
        print(f"\nTimed again after {_since(start)}:", flush=True)
        _record(arguments.record, found)
        _print(found)
    if gpus:
        print(policy_of(map(measurements, found)).rules_text())
    return 0


def _side_by_side(do: Callable[[OfGpu], None], parts: Sequence[OfGpu]) -> None:
    """All parts at once. What fails in one is printed: the others go on."""
    with ThreadPoolExecutor(len(parts)) as threads:
        for each in [threads.submit(do, part) for part in parts]:
            try:
                each.result()
            except Exception:
                traceback.print_exc()


def _since(start: float) -> str:
    return f"{time.monotonic() - start:.0f} s"


def _policy(paths: Sequence[Path]) -> Policy | None:
    tables = [table for path in paths for table in read_recording(path)]
    return policy_of(tables) if tables else None


# ---- what is kept


def measurements(found: Found) -> Measurements:
    """Of a problem, what was measured; times in turns count more than those of trials."""
    kind = type(found.formula)
    times = {**found.measured, **({} if found.again is None else found.again.seconds)}
    refused = {trial.params for trial in found.known if trial.status is Status.REJECTED}
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return Measurements(
        found.problem,
        found.formula,
        {from_json(kind, params): seconds for params, seconds in times.items()},
        frozenset(from_json(kind, params) for params in refused),
        _copy_seconds(found),
        f"one {name}, {date.today()}, L2 flushed before each run",
        found.plain,
    )


def _record(path: Path | None, found: Iterable[Found]) -> None:
    tables = [_thinned(each) for each in found if each.measured]
    if path is not None and tables:
        write_document(path, recording_text(tables, tables[0].made_by))


def _thinned(found: Found) -> Measurements:
    """Without most points of the sample: all that is refused, and most of what is slow."""
    kind, table = type(found.formula), measurements(found)
    sampled = {from_json(kind, t.params): t for t in found.known if t.origin == SPACE}
    slow = [p for p in table.seconds if p in sampled and table.seconds[p] > NEAR_BEST * table.best]
    left_out = {*slow} - {*slow[:: max(1, len(slow) // KEPT)]}
    seconds: Mapping[Any, float] = {p: s for p, s in table.seconds.items() if p not in left_out}
    return replace(table, seconds=seconds, refused=table.refused - sampled.keys())


def _copy_seconds(found: Found) -> float | None:
    if found.again is not None:
        return found.again.copy_seconds
    return None if found.tuned is None else found.tuned.copy_seconds


# ---- the table


def _print(found: Sequence[Found]) -> None:
    """Of each problem the times, in microseconds; then what they are in multiples of the best."""
    heads = " ".join(f"{who:>8}" for who in (*CHOSEN, "sample", "all", "copy"))
    print(f"{'problem':30} {'scheduler':22} {heads} | {'search s':>8} tried sampled   ran refused")
    for each in found:
        failed = [trial for trial in each.known if trial.status in FAILED]
        for trial in failed:
            print(f"  {trial.status.value}: {trial.detail[:150]!r} {trial.params}")
        times, copy = _times(each), _copy_seconds(each)
        cells = [times.get(who) for who in (*CHOSEN, "sample", "all")] + [copy]
        known = {trial.params: trial for trial in each.known}
        sampled = [known[params] for params in each.sample if params in known]
        refused = sum(trial.status is Status.REJECTED for trial in sampled)
        ran = sum(trial.seconds is not None for trial in sampled)
        shown = " ".join(f"{'-' if cell is None else f'{cell * 1e6:.2f}':>8}" for cell in cells)
        tried = 0 if each.tuned is None else each.tuned.tried
        print(
            f"{each.problem.name:30} {each.problem.scheduler:22} {shown} | {each.seconds:8.1f} {tried:5} "
            f"{len(sampled):3}/{len(each.sample):3} {ran:5} {refused:7}"
        )
    for mark in ("sample", "all"):
        for who in CHOSEN:
            _print_ratios(found, who, mark)
    _print_ratios(found, "policy", "formula")
    seconds = [each.seconds for each in found if each.tuned is not None]
    of_pointwise = [each.seconds for each in found if each.problem.scheduler == "pointwise" and each.tuned]
    print(f"a search took at most {max(seconds, default=0):.1f} s", end="")
    print(f", of pointwise problems {max(of_pointwise, default=0):.1f} s", flush=True)


def _times(found: Found) -> dict[str, float]:
    """By who chose params, their time: in turns with the others', where that was measured."""
    measured = found.measured if found.again is None else found.again.seconds
    return {who: measured[params] for who, params in found.chosen().items() if params in measured}


def _print_ratios(found: Iterable[Found], who: str, mark: str) -> None:
    ratios = {
        each.problem.name: times[who] / times[mark]
        for each in found
        if who in (times := _times(each)) and mark in times
    }
    if not ratios:
        return
    mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
    worst = max(ratios, key=ratios.__getitem__)
    print(
        f"{who:9} / {'best of the ' * (mark == 'sample') + mark}: geometric mean {mean:.4f}, "
        f"worst {ratios[worst]:.3f} ({worst}), of {len(ratios)}"
    )
