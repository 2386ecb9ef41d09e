"""Worker processes that may hang or die. Only their current job is lost then."""

from __future__ import annotations

import contextlib
import math
import signal
import subprocess
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from fusewright.core.errors import TuneError
from fusewright.tune.process import Setup, processor_seconds, start

Job = TypeVar("Job")
# Imports, and a context on the GPU.
START_SECONDS = 180.0
STOP_SECONDS = 2.0
# In a row, of processes that did no job: something is wrong with all of them.
MAX_FAILED_STARTS = 3


@dataclass(frozen=True, slots=True)
class Done(Generic[Job]):
    """A job that ended.

    Attributes:
        result: the returned value; None if `problem` says why there is none.
        problem: "" if the job succeeded.
        hung: whether it was stopped because it took too long.
    """

    job: Job
    result: Any = None
    problem: str = ""
    hung: bool = False


class _Worker(Generic[Job]):
    """One process and its state.

    Attributes:
        job: its current job; None while it starts or waits.
        begun: when the job started, by the process' `processor_seconds`.
        is_disowned: whether nobody waits for the job.
    """

    def __init__(self, setup: Setup) -> None:
        self.process, self.connection = start(setup)
        self.job: Job | None = None
        self.begun = 0.0
        self.is_disowned = False
        self.ready = False
        self.allow(START_SECONDS)

    def allow(self, seconds: float) -> None:
        """From now on."""
        self.seconds, self.deadline = seconds, time.monotonic() + seconds

    def give(self, job: Job, seconds: float) -> None:
        self.job, self.begun, self.is_disowned = job, self.processor_seconds, False
        self.allow(seconds)
        self.connection.send(job)

    @property
    def processor_seconds(self) -> float:
        return processor_seconds(self.process.pid)

    @property
    def is_idle(self) -> bool:
        return self.ready and self.job is None

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for its job."""
        return self.job is not None and not self.is_disowned

    @property
    def ending(self) -> str:
        """How a process ended that closed its connection."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_SECONDS)
        code = self.process.returncode
        if code is not None and code < 0:
            return f"the process was ended by {_signal_name(-code)}"
        return f"the process ended with exit code {code}"

    def stop(self) -> None:
        self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # the driver has to end its kernel first
            self.process.wait(STOP_SECONDS)
        self.connection.close()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Pool(Generic[Job]):
    """Runs jobs in several processes, one job per process at a time; a context manager.

    Args:
        setup: picklable; called once in each process.
        seconds: the time limit of a job.
    """

    def __init__(self, setup: Setup, count: int, seconds: float) -> None:
        self._setup = setup
        self._count = count
        self._seconds = seconds
        self._waiting: deque[Job] = deque()
        self._workers: list[_Worker[Job]] = []
        self._failed_starts = 0

    def __enter__(self) -> Pool[Job]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the processes. Jobs that come later have others."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.stop()
        self._workers.clear()

    def begin(self) -> None:
        """Starts processes before there are jobs for them."""
        while len(self._workers) < self._count:
            self._workers.append(_Worker(self._setup))

    @property
    def is_ready(self) -> bool:
        """Whether a process has been set up."""
        return any(worker.ready for worker in self._workers)

    @property
    def is_starting(self) -> bool:
        """Whether a process is being set up."""
        return not all(worker.ready for worker in self._workers)

    def submit(self, job: Job) -> None:
        self._waiting.append(job)

    def abandon(self) -> None:
        """Forgets all jobs, and ends the processes that have begun one."""
        self.forget_waiting()
        for worker in [worker for worker in self._workers if worker.job is not None]:
            self._workers.remove(worker)
            worker.stop()

    def disown(self, jobs: Iterable[Job] | None = None) -> None:
        """Nobody waits for these jobs any more; None: for any. Processes that have begun one go on with it,
        and do others then: to start one anew takes as long as many jobs.
        """
        if jobs is None:
            self.forget_waiting()
        disowned = None if jobs is None else {id(job) for job in jobs}
        for worker in self._workers:
            worker.is_disowned |= disowned is None or id(worker.job) in disowned

    def forget_waiting(self) -> None:
        """Forgets the jobs that nobody has begun."""
        self._waiting.clear()

    @property
    def pending(self) -> int:
        """Jobs that have not ended, and that somebody waits for."""
        return len(self._waiting) + sum(worker.is_awaited for worker in self._workers)

    @property
    def begun(self) -> list[tuple[Job, float]]:
        """What processes do that somebody waits for, and for how many seconds of a processor they have.

        Other programs make these no more.
        """
        awaited = [worker for worker in self._workers if worker.is_awaited]
        return [(w.job, w.processor_seconds - w.begun) for w in awaited if w.job is not None]

    @property
    def connections(self) -> list[Connection]:
        """What there is to wait for."""
        return [worker.connection for worker in self._workers]

    def step(self) -> Iterator[Done[Job]]:
        """Hands out jobs, and yields those that ended, without waiting.

        Raises:
            TuneError: processes cannot be started.
        """
        yield from self._collect()
        while len(self._workers) < min(self._count, self.pending):
            self._workers.append(_Worker(self._setup))
        for worker in self._workers:
            if worker.is_idle and self._waiting:
                job = self._waiting.popleft()
                try:
                    worker.give(job, self._seconds)
                except OSError:  # it died meanwhile
                    worker.job = None
                    self._waiting.appendleft(job)

    def _collect(self) -> Iterator[Done[Job]]:
        for worker in list(self._workers):
            ended = self._ended(worker)
            if ended is not None:
                yield ended

    def _ended(self, worker: _Worker[Job]) -> Done[Job] | None:
        try:
            if worker.connection.poll():
                kind, content = worker.connection.recv()
                return self._received(worker, kind, content)
        except (EOFError, OSError):
            return self._lost(worker, worker.ending)
        if not worker.is_idle and time.monotonic() > worker.deadline:
            return self._lost(worker, f"took longer than {worker.seconds:g} s", hung=True)
        return None

    def _received(self, worker: _Worker[Job], kind: str, content: Any) -> Done[Job] | None:
        if kind == "ready":
            worker.ready, self._failed_starts = True, 0
            return None
        if kind in ("waits", "goes on"):
            worker.allow(math.inf if kind == "waits" else content or self._seconds)
            return None
        if kind == "unable":
            self._workers.remove(worker)
            raise TuneError(f"a worker process cannot start: {content}")
        is_awaited, job, worker.job = worker.is_awaited, worker.job, None
        assert job is not None
        if kind == "fatal":
            self._workers.remove(worker)
            worker.stop()
        if not is_awaited:
            return None
        return Done(job, result=content) if kind == "done" else Done(job, problem=content)

    def _lost(self, worker: _Worker[Job], problem: str, hung: bool = False) -> Done[Job] | None:
        self._workers.remove(worker)
        worker.stop()
        if worker.job is not None:
            return Done(worker.job, problem=problem, hung=hung) if worker.is_awaited else None
        self._failed_starts += not worker.ready
        if self._failed_starts >= MAX_FAILED_STARTS:
            raise TuneError(f"worker processes cannot start: {problem}")
        return None


def wait_for(pools: list[Pool[Any]], seconds: float) -> None:
    """Until a process has something to say, or for so long."""
    connections = [connection for pool in pools for connection in pool.connections]
    if connections:
        wait(connections, seconds)
    else:
        time.sleep(seconds)
