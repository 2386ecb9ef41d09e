"""The loop of a sweep, with stand-ins for the processes that compile and for the GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fusewright.tune.runner as runner
import fusewright.tune.sweep as loop
from fusewright.core.options import Options
from fusewright.frontend.tuned.problems import load
from fusewright.tune.journal import Journal, Status
from fusewright.tune.pool import Done
from fusewright.tune.report import outcomes
from fusewright.tune.worker import Ran
from tests.tune import here
from tests.tune.problems import column_sum

POINTS = 2


class LosingPool(here.Pool):
    """Configurations that are not the heuristic's are lost with their process: one hangs, others end it.

    `test_pool` has what processes do.
    """

    def step(self) -> list[Done[Any]]:
        return [self._lost(done) for done in super().step()]

    def _lost(self, done: Done[Any]) -> Done[Any]:
        if not isinstance(done.result, Ran) or done.job.origin == "heuristic":
            return done
        hung = Path(done.job.problem.folder) / "hung"
        is_first = not hung.exists()
        hung.touch()
        return Done(done.job, problem="it was lost", hung=is_first)


def test_configurations_that_hang_or_crash_are_recorded_once_and_stop_nothing(tmp_path, monkeypatch):
    here.install(monkeypatch)
    monkeypatch.setattr(runner, "Pool", LosingPool)
    problem = column_sum(tmp_path)
    effort = loop.SweepEffort(POINTS, seed=1, compilers=1)
    with Journal(tmp_path / "j.sqlite", "a") as journal:

        def sweep() -> loop.SweepProgress:
            return loop.sweep(
                [problem], journal, load, effort, Options(), on_gpu=True, report=lambda progress: None
            )

        progress = sweep()
        [found] = outcomes(journal)
        assert progress.done == progress.total == len(found.trials) >= POINTS
        assert {t.status for t in found.trials} == {Status.MEASURED, Status.CRASHED, Status.HUNG}
        lost = [t for t in found.trials if t.status is not Status.MEASURED]
        assert len(lost) >= POINTS - 1 and all("while running: " in t.detail for t in lost)
        assert found.trials[0].origin == "heuristic" and found.heuristic is not None
        again = sweep()
        assert again.known == again.total and not again.counts
        assert again.best == progress.best


def test_a_limit_of_time_begins_nothing_new(tmp_path, monkeypatch):
    here.install(monkeypatch)
    problem = column_sum(tmp_path)
    with Journal(tmp_path / "j.sqlite", "a") as journal:
        effort = loop.SweepEffort(None, seconds=1e-9, compilers=1)
        progress = loop.sweep(
            [problem], journal, load, effort, Options(), on_gpu=False, report=lambda progress: None
        )
        assert progress.done == 0 and journal.trials(problem.key) == []
