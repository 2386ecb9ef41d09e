"""The loop of a sweep: params of several problems are compiled side by side, run one by one, and recorded."""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fusewright.core.options import Options
from fusewright.tune.journal import Journal, Race, Status, Trial
from fusewright.tune.pool import Done, Pool, wait_for
from fusewright.tune.problem import Problem
from fusewright.tune.worker import Attempt, Load, Made, Making, Planned, RaceOf, Ran, Running, params_text

# A kernel that takes longer to compile would be no use; one that runs longer hangs.
COMPILE_SECONDS, RUN_SECONDS = 60.0, 20.0
# The best of the trials that race in the end, beside the heuristic's.
FINALISTS = 3
# Compilations ahead, for each process that compiles.
AHEAD = 2
POLL_SECONDS = 0.2
#: In results of trials: which of them say what a kernel is worth.
HEURISTIC, SPACE = "heuristic", "space"


@dataclass(frozen=True)
class Effort:
    """How much to try.

    Attributes:
        points: of each problem's space, a stratified sample; None: all.
        seconds: after which nothing new is begun; None: no limit.
        seed: of the sample.
        compilers: processes that compile.
    """

    points: int | None
    seconds: float | None = None
    seed: int = 0
    compilers: int = max(1, (os.cpu_count() or 2) - 1)


@dataclass
class Progress:
    """What a sweep has done so far, for whoever watches.

    Attributes:
        total: configurations, where it is known how many there are.
        known: those that the journal had before.
        best: seconds, by the key of a problem. heuristic: likewise.
    """

    total: int | None
    known: int = 0
    counts: Counter[Status] = field(default_factory=Counter)
    best: dict[str, float] = field(default_factory=dict)
    heuristic: dict[str, float] = field(default_factory=dict)

    @property
    def done(self) -> int:
        return self.known + sum(self.counts.values())


def sweep(
    problems: Sequence[Problem],
    journal: Journal,
    load: Load,
    effort: Effort,
    options: Options,
    *,
    on_gpu: bool,
    report: Callable[[Progress], None],
) -> Progress:
    """Tries params of each problem's space that the journal does not know, the heuristic's first.

    Interrupting loses what is being tried, and nothing else.

    Args:
        on_gpu: whether kernels run; else they are compiled only.

    Raises:
        TuneError: the journal cannot be written, or no processes started.
    """
    with tempfile.TemporaryDirectory(prefix="fusewright-sweep-") as cubins:
        # Thousands of kernels that nobody asks for again would push others out of the disk cache.
        own = replace(options, cache_dir=cubins)
        by_key = {problem.key: problem for problem in problems}
        making = Pool[Attempt](Making(by_key, load, own), effort.compilers, COMPILE_SECONDS)
        running = Pool[Any](Running(by_key, load, own), 1, RUN_SECONDS)
        with making, running:
            return _Sweep(by_key, journal, load, effort, own, making, running, on_gpu, report).run()


class _Sweep:
    def __init__(
        self,
        problems: dict[str, Problem],
        journal: Journal,
        load: Load,
        effort: Effort,
        options: Options,
        making: Pool[Attempt],
        running: Pool[Any],
        on_gpu: bool,
        report: Callable[[Progress], None],
    ) -> None:
        self._journal = journal
        self._effort = effort
        self._making = making
        self._running = running
        self._on_gpu = on_gpu
        self._report = report
        self._made: dict[tuple[str, str], Made] = {}
        self._end = None if effort.seconds is None else time.monotonic() + effort.seconds
        total = None if effort.points is None else 0
        self._progress = Progress(total)
        self._heuristic: dict[str, str] = {}
        self._tried: set[str] = set()
        self._spaces: list[Iterator[Attempt]] = []
        self._keys = list(problems)
        for key, problem in problems.items():
            journal.add_problem(problem)
            self._spaces.append(self._attempts(key, Planned(problem, load, options), problem))

    def _attempts(self, key: str, planned: Planned, problem: Problem) -> Iterator[Attempt]:
        """The configurations of a problem that the journal does not know; those that it does are counted."""
        base, effort = planned.heuristic, self._effort
        points = type(base).space(problem.hardware, base=base, points=effort.points, seed=effort.seed)
        self._heuristic[key] = params_text(base)
        texts = dict.fromkeys([self._heuristic[key]])
        if effort.points is not None:
            texts.update(dict.fromkeys(map(params_text, points)))
        known = {t.params: t for t in self._journal.trials(key) if self._counts_as_known(t)}
        for trial in known.values():
            self._note(key, trial)
        if effort.points is not None:
            assert self._progress.total is not None
            self._progress.total += len(texts)
            self._progress.known += len(known.keys() & texts.keys())
        return self._fresh(key, texts, points, known)

    def _fresh(
        self, key: str, texts: dict[str, None], points: Iterator[Any], known: dict[str, Trial]
    ) -> Iterator[Attempt]:
        heuristic = self._heuristic[key]
        for text in texts:
            if text not in known:
                yield Attempt(key, text, HEURISTIC if text == heuristic else SPACE)
        for params in points:  # all of a space that is not listed: where a sample is, there are none left
            text = params_text(params)
            if text != heuristic and text not in known:
                yield Attempt(key, text, SPACE)

    def _counts_as_known(self, trial: Trial) -> bool:
        return trial.status is not Status.COMPILED or not self._on_gpu

    def run(self) -> Progress:
        self._report(self._progress)
        self._try_all()
        if self._on_gpu:
            self._race()
        return self._progress

    def _try_all(self) -> None:
        attempts = _in_turns(self._spaces)
        exhausted = False
        while not exhausted or self._making.pending or self._running.pending:
            if self._end is not None and time.monotonic() > self._end:
                exhausted = True
                self._making.abandon()  # what compiles for long
                self._running.forget_waiting()
            while not exhausted and self._making.pending < AHEAD * self._effort.compilers:
                attempt = next(attempts, None)
                if attempt is None:
                    exhausted = True
                else:
                    self._making.submit(attempt)
            ended = [*map(self._after_making, self._making.step())]
            ended += map(self._after_running, self._running.step())
            if ended:
                self._report(self._progress)
            else:
                wait_for([self._making, self._running], POLL_SECONDS)

    def _after_making(self, done: Done[Attempt]) -> None:
        made = done.result
        if made is None:
            status = Status.HUNG if done.hung else Status.FAULT
            made = Made(status, f"while compiling: {done.problem}")
        self._made[done.job.problem, done.job.params] = made
        if made.status is Status.COMPILED and self._on_gpu:
            self._running.submit(replace(done.job, best=self._progress.best.get(done.job.problem)))
        else:
            self._record(done.job, made, Ran(made.status, detail=made.detail))

    def _after_running(self, done: Done[Attempt]) -> None:
        ran = done.result
        if ran is None:
            ran = Ran(Status.HUNG if done.hung else Status.CRASHED, detail=f"while running: {done.problem}")
        self._record(done.job, self._made[done.job.problem, done.job.params], ran)

    def _record(self, attempt: Attempt, made: Made, ran: Ran) -> None:
        trial = Trial(
            attempt.params,
            attempt.origin,
            ran.status,
            ran.seconds,
            ran.detail,
            made.kernel,
            dict(made.resources or {}),
            made.seconds,
        )
        self._journal.add_trial(attempt.problem, trial)
        self._tried.add(attempt.problem)
        self._progress.counts[trial.status] += 1
        self._note(attempt.problem, trial)

    def _note(self, key: str, trial: Trial) -> None:
        if trial.seconds is None:
            return
        best = self._progress.best
        best[key] = min(trial.seconds, best.get(key, trial.seconds))
        if trial.params == self._heuristic[key]:
            self._progress.heuristic[key] = trial.seconds

    # ---- the best beside the heuristic's

    def _race(self) -> None:
        """Times the best in turns with the heuristic's: of many trials the fastest was lucky, too."""
        for key in self._keys:
            trials = [t for t in self._journal.trials(key) if t.seconds is not None]
            if self._journal.race(key) is not None and key not in self._tried:
                continue
            best = sorted(trials, key=lambda trial: trial.seconds or 0)[:FINALISTS]
            heuristic = [t.params for t in trials if t.params == self._heuristic[key]]
            if best:
                racing = dict.fromkeys([*heuristic, *(trial.params for trial in best)])
                self._running.submit(RaceOf(key, tuple(racing)))
        while self._running.pending:
            for done in self._running.step():
                if isinstance(done.result, Race):
                    self._journal.add_race(done.job.problem, done.result)
            wait_for([self._running], POLL_SECONDS)


def _in_turns(attempts: Sequence[Iterator[Attempt]]) -> Iterator[Attempt]:
    """One of each, again and again: what a limit of time leaves is as much of each."""
    waiting = list(attempts)
    while waiting:
        for each in list(waiting):
            attempt = next(each, None)
            if attempt is None:
                waiting.remove(each)
            else:
                yield attempt
