"""The loop of a sweep, with processes that stand for those which compile and for the GPU."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fusewright.tune.runner as runner
import fusewright.tune.sweep as loop
from fusewright.core.options import Options
from fusewright.frontend.problems import load
from fusewright.tune.journal import Journal, Race, Status
from fusewright.tune.report import outcomes
from fusewright.tune.worker import Attempt, Made, RaceOf, Ran
from tests.tune import here
from tests.tune.problems import column_sum

POINTS = 2


@dataclass(frozen=True)
class Compiling:
    load: Any
    options: Any

    def __call__(self) -> Callable[[Attempt], Made]:
        return lambda attempt: Made(Status.COMPILED, "", "kernel", {"registers": 32}, 0.1)


@dataclass(frozen=True)
class FaultyGpu:
    """The heuristic's configuration is measured; of others the first hangs, the next end the process."""

    load: Any
    options: Any
    turns: Any
    device: int

    def __call__(self) -> Callable[[Attempt | RaceOf], Ran | Race]:
        def run(job: Attempt | RaceOf) -> Ran | Race:
            if isinstance(job, RaceOf):
                return Race({params: 1.0 + i for i, params in enumerate(job.params)}, 0.5)
            if job.origin != "heuristic":
                hung = Path(job.problem.folder) / "hung"
                if hung.exists():
                    os._exit(1)
                hung.touch()
                time.sleep(60)
            return Ran(Status.MEASURED, 2.0)

        return run


def test_configurations_that_hang_or_crash_are_recorded_once_and_stop_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "Making", Compiling)
    monkeypatch.setattr(runner, "Running", FaultyGpu)
    monkeypatch.setattr(runner, "RUN_SECONDS", 0.5)
    problem = column_sum(tmp_path)
    effort = loop.Effort(POINTS, seed=1, compilers=1)
    with Journal(tmp_path / "j.sqlite", "a") as journal:

        def sweep() -> loop.Progress:
            return loop.sweep(
                [problem], journal, load, effort, Options(), on_gpu=True, report=lambda progress: None
            )

        progress = sweep()
        [found] = outcomes(journal)
        assert progress.done == progress.total == len(found.trials) >= POINTS
        assert {t.status for t in found.trials} == {Status.MEASURED, Status.CRASHED, Status.HUNG}
        lost = [t for t in found.trials if t.status is not Status.MEASURED]
        assert len(lost) >= POINTS - 1 and all("while running: " in t.detail for t in lost)
        assert found.trials[0].origin == "heuristic" and found.heuristic == 1.0
        again = sweep()
        assert again.known == again.total and not again.counts
        assert again.best == {problem.key: 2.0}


def test_a_limit_of_time_begins_nothing_new(tmp_path, monkeypatch):
    here.install(monkeypatch)
    problem = column_sum(tmp_path)
    with Journal(tmp_path / "j.sqlite", "a") as journal:
        effort = loop.Effort(None, seconds=1e-6, compilers=1)
        progress = loop.sweep(
            [problem], journal, load, effort, Options(), on_gpu=False, report=lambda progress: None
        )
        assert progress.done == 0 and journal.trials(problem.key) == []
