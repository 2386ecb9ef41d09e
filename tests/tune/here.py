"""Processes of a search that are none: what they would do is done here, with times that are invented."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import fusewright.tune.runner as runner
from fusewright.tune.journal import Race, Status, Trial
from fusewright.tune.pool import Done
from fusewright.tune.runner import Source
from fusewright.tune.worker import Made, RaceOf, Ran


class Pool:
    """Does the jobs of a pool in this process."""

    connections = ()
    is_ready, is_starting = True, False

    def __class_getitem__(cls, kind: Any) -> Any:
        return cls

    def __init__(self, setup: Any, count: int, seconds: float) -> None:
        self._work = setup()
        self._waiting: list[Any] = []

    def close(self) -> None:
        pass

    def submit(self, job: Any) -> None:
        self._waiting.append(job)

    @property
    def pending(self) -> int:
        return len(self._waiting)

    @property
    def begun(self) -> list[tuple[Any, float]]:
        return []

    def step(self) -> list[Done[Any]]:
        jobs, self._waiting = self._waiting, []
        return [Done(job, self._work(job)) for job in jobs]

    def abandon(self) -> None:
        self._waiting = []

    forget_waiting = begin = disown = abandon


class Compiling:
    def __init__(self, load: Any, options: Any) -> None:
        pass

    def __call__(self) -> Callable[[Any], Made]:
        return lambda attempt: Made(Status.COMPILED, "", "kernel", {"registers": 32, "spill_stores": 0}, 0.1)


class Timing:
    """Blocks of 64 threads are the fastest. Those of joined rows are slow: they may have more threads."""

    def __init__(self, load: Any, options: Any, turns: Any, device: int) -> None:
        pass

    def __call__(self) -> Callable[[Any], Ran | Race]:
        def seconds(text: str) -> float:
            params = json.loads(text)
            launch, slower = params["lparams"], 8 * (params.get("joined_rows", 1) > 1)
            return 1 + slower + abs(math.log2(max(1, launch["bdimx"]) * max(1, launch["bdimy"]) / 64))

        def run(job: Any) -> Ran | Race:
            if isinstance(job, RaceOf):
                return Race({text: seconds(text) for text in job.params}, 0.5)
            return Ran(Status.MEASURED, seconds(job.params), "", 1e-3)

        return run


def drive(source: Source, answer: Callable[[str, str], Trial], copy_seconds: float | None) -> None:
    """Answers all that a source asks, at once. answer: of params as JSON, and their origin."""
    while (attempt := source.ask()) is not None:
        source.tell(answer(attempt.params, attempt.origin), copy_seconds)


def install(monkeypatch: Any) -> None:
    for name, stand_in in (("Pool", Pool), ("Making", Compiling), ("Running", Timing)):
        monkeypatch.setattr(runner, name, stand_in)
    monkeypatch.setattr(runner, "POLL_SECONDS", 0.0)
