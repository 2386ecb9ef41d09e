"""The loop that tries configurations. They are compiled in parallel, ahead of the one that runs, and
recorded.

The next configurations come from sources, one per problem: a sweep has a list of points, and a search decides
from earlier results. The source that takes the most time and was tried the least is asked first.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from fusewright.core.forks import renew_in_child
from fusewright.core.options import Options
from fusewright.runtime.disk_cache import default_directory
from fusewright.tune.journal import Journal, Race, Status, Trial
from fusewright.tune.pool import Done, Pool, wait_for
from fusewright.tune.problem import Problem
from fusewright.tune.worker import Attempt, Best, Load, Made, Making, RaceOf, Ran, Running

# A kernel that takes longer to compile would be no use; what takes longer before it runs hangs.
COMPILE_SECONDS, RUN_SECONDS = 60.0, 20.0
# What runs may end within so long after the time is up.
GRACE_SECONDS = 1.0
# A compilation is abandoned after so many seconds of processor time, which other programs do not affect, if
# it also takes so many times the median of those before it for its problem. Of 370 kernels that ran on an
# H200 and were within 3% of the best, none took more than 0.5 s or 3.9 times the median. Of all compilations
# of searches, 1 in 25 exceeds the limits, and these took 37% of the time.
LATE_SECONDS, LATE_TIMES, LATE_KNOWN = 1.0, 5.0, 3
# Processes that run kernels: one times its kernel, which takes 20 ms, while the next one is made ready to.
RUNNERS = 3
# The best of the trials of a problem that race in the end, beside the formula's. (Searches of recorded
# problems whose trials are 3% off, and races 1%, end at 1.021 of the best with one, 1.012 with three, 1.010
# with five.)
FINALISTS = 5
# Compilations ahead, for each process that compiles.
AHEAD = 2
POLL_SECONDS = 0.2
#: Processes that compile, where nobody says how many.
COMPILERS = max(1, (os.cpu_count() or 2) - 1)


class Source(Protocol):
    """A source of configurations to try for one problem."""

    @property
    def problem(self) -> Problem: ...
    @property
    def best(self) -> Best | None:
        """The fastest so far."""
        ...

    @property
    def priority(self) -> float:
        """Sources of higher priority are asked first."""
        ...

    @property
    def is_patient(self) -> bool:
        """Whether it waits for kernels that take long to compile."""
        ...

    def ask(self) -> Attempt | None:
        """The next configuration to try; None if there is none, or none before more results are known."""
        ...

    def refusal(self, resources: Mapping[str, Any]) -> str:
        """Why machine code with these resources should not run; "" if it should."""
        ...

    def tell(self, trial: Trial, copy_seconds: float | None) -> None:
        """Receives the result of an attempt. copy_seconds: of a copy of the same number of bytes, if
        measured.
        """
        ...


class Runner:
    """Processes that compile and processes that run kernels; a context manager. They serve one set of sources
    at a time.

    Args:
        load: converts problems to something to run, in these processes.
        on_gpu: whether kernels run; else they are only compiled.
        device: the number of the GPU that they run on.
        keeps_code: whether machine code is stored in the disk cache. Thousands of kernels that are never used
            again would evict others from it.
    """

    def __init__(
        self,
        load: Load,
        options: Options,
        compilers: int,
        on_gpu: bool,
        keeps_code: bool = False,
        device: int = 0,
    ) -> None:
        self.on_gpu = on_gpu
        self.device = device
        self.compilers = compilers
        self._load = load
        self._options = options
        self._keeps_code = keeps_code
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Forgets the processes; called in a child of `fork`, whose parent continues to use them."""
        self._folder = ""
        self._made: dict[tuple[str, str], Made] = {}
        #: by problem, the time of the copy of its bytes beside which its kernels are timed
        self._copy_seconds: dict[str, float] = {}
        #: by problem, what its kernels took of a processor to be made
        self._seconds: dict[str, list[float]] = {}
        self._sources: dict[str, Source] = {}

    def _begin(self) -> None:
        """Makes what starts processes, unless it is there."""
        if self._folder:
            return
        self._folder = tempfile.mkdtemp(prefix="fusewright-tune-")
        own = self._options if self._keeps_code else replace(self._options, cache_dir=self._folder)
        self._making = Pool[Attempt](Making(self._load, own), self.compilers, COMPILE_SECONDS)
        running = Running(self._load, own, _turns_folder() or Path(self._folder), self.device)
        self._running = Pool[Any](running, min(RUNNERS, self.compilers), RUN_SECONDS)

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the processes. A later search has others."""
        if self._folder:
            self._making.close()
            self._running.close()
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = ""

    def begin(self) -> None:
        """Starts the processes, before there is anything to try."""
        self._begin()
        self._making.begin()
        if self.on_gpu:
            self._running.begin()

    def await_start(self) -> None:
        """Until all processes that `begin` started are ready: a search that begins before has only some."""
        pools: list[Pool[Any]] = [self._making, self._running]
        while any(pool.is_starting for pool in pools):
            for pool in pools:
                for _ in pool.step():
                    pass  # nobody has a job
            wait_for(pools, POLL_SECONDS)

    def run(
        self, sources: Sequence[Source], seconds: float | None, report: Callable[[], None] = lambda: None
    ) -> None:
        """Asks sources until none has more to try, or until the time is up.

        Then nothing new starts, and running compilations are abandoned.

        Args:
            seconds: from when the processes are ready; None: no limit.
            report: called whenever a job has ended.

        Raises:
            TuneError: no processes can be started; or an error of a source.
        """
        self._begin()
        self._sources = {source.problem.key: source for source in sources}
        end: float | None = None
        try:
            while True:
                if end is None and seconds is not None and self._is_ready:
                    end = time.monotonic() + seconds
                if not self._step(end, report):
                    return
        finally:
            self._making.disown()
            self._running.abandon()
            self._made.clear()
            self._seconds.clear()

    @property
    def _is_ready(self) -> bool:
        return self._making.is_ready and (self._running.is_ready or not self.on_gpu)

    def _step(self, end: float | None, report: Callable[[], None]) -> bool:
        is_over = end is not None and time.monotonic() >= end
        if is_over:
            self._making.disown()
            self._running.forget_waiting()
            if end is not None and time.monotonic() > end + GRACE_SECONDS:
                self._running.abandon()
        else:
            self._submit()
        if not (self._making.pending or self._running.pending):
            return False
        ended = [*map(self._after_making, self._making.step()), *map(self._leave, self._late())]
        ended += map(self._after_running, self._running.step())
        if ended:
            report()
        else:
            wait_for([self._making, self._running], POLL_SECONDS)
        return True

    def _submit(self) -> None:
        while self._making.pending < AHEAD * self.compilers:
            for source in sorted(self._sources.values(), key=lambda source: -source.priority):
                attempt = source.ask()
                if attempt is not None:
                    self._making.submit(attempt)
                    if self.on_gpu:
                        self._running.begin()
                    break
            else:
                return

    def _late(self) -> list[Attempt]:
        """What compiles for longer than anybody waits."""
        late = []
        for attempt, seconds in self._making.begun:
            key = attempt.problem.key
            known = self._seconds.get(key, ())
            if seconds > LATE_SECONDS and len(known) >= LATE_KNOWN and not self._sources[key].is_patient:
                late += [attempt] if seconds > LATE_TIMES * median(known) else []
        return late

    def _leave(self, attempt: Attempt) -> None:
        self._making.disown([attempt])
        why = "it takes much longer to compile than others"
        self._told(attempt, Made(Status.REJECTED, why), Ran(Status.REJECTED, detail=why))

    def _after_making(self, done: Done[Attempt]) -> None:
        made, attempt = done.result, done.job
        if made is None:
            status = Status.HUNG if done.hung else Status.FAULT
            made = Made(status, f"while compiling: {done.problem}")
        if made.seconds is not None:
            self._seconds.setdefault(attempt.problem.key, []).append(made.seconds)
        if made.status is Status.COMPILED:
            refusal = self._sources[attempt.problem.key].refusal(made.resources or {})
            if refusal:
                made = replace(made, status=Status.REJECTED, detail=refusal)
        if made.status is Status.COMPILED and self.on_gpu:
            self._made[attempt.problem.key, attempt.params] = made
            key = attempt.problem.key
            best, copy = self._sources[key].best, self._copy_seconds.get(key)
            self._running.submit(replace(attempt, best=best, copy_seconds=copy, lowered=made.lowered))
        else:
            self._told(attempt, made, Ran(made.status, detail=made.detail))

    def _after_running(self, done: Done[Attempt]) -> None:
        ran = done.result
        if ran is None:
            ran = Ran(Status.HUNG if done.hung else Status.CRASHED, detail=f"while running: {done.problem}")
        self._told(done.job, self._made.pop((done.job.problem.key, done.job.params)), ran)

    def _told(self, attempt: Attempt, made: Made, ran: Ran) -> None:
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
        if ran.copy_seconds is not None:
            self._copy_seconds.setdefault(attempt.problem.key, ran.copy_seconds)
        self._sources[attempt.problem.key].tell(trial, ran.copy_seconds)

    def race(
        self, races: Sequence[RaceOf], record: Callable[[Problem, Race], None], seconds: float | None = None
    ) -> None:
        """Times configurations of problems in turns: of many trials the fastest was lucky, too.

        seconds: after which no further one is timed; None: no limit.
        """
        self._begin()
        for race in races:
            self._running.submit(race)
        end = inf if seconds is None else time.monotonic() + seconds
        try:
            while self._running.pending and time.monotonic() < end:
                for done in self._running.step():
                    if isinstance(done.result, Race):
                        record(done.job.problem, done.result)
                wait_for([self._running], POLL_SECONDS)
        finally:
            self._running.abandon()


def final_race(problem: Problem, journal: Journal, formula: str) -> RaceOf | None:
    """The race of a problem's best trials with the formula's params; None: it has already raced, or nothing
    ran.
    """
    trials = journal.trials(problem.key)
    raced = journal.race(problem.key)
    best = finalists(trials)
    if not best or (raced is not None and best[0] in raced.seconds):
        return None
    first = [t.params for t in trials if t.params == formula and t.seconds is not None]
    return RaceOf(problem, tuple(dict.fromkeys([*first, *best])))


def finalists(trials: Sequence[Trial]) -> list[str]:
    """The params of the fastest few, the fastest first."""
    ran = [trial for trial in trials if trial.seconds is not None]
    return [trial.params for trial in sorted(ran, key=lambda trial: trial.seconds or 0)[:FINALISTS]]


def _turns_folder() -> Path | None:
    """Where all tuners of a user take turns; None: nothing can be written there."""
    folder = default_directory()
    if folder is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None
