"""The processes of `bench tuning`, one for each GPU: what fails in one is printed, and the others go on.

Each takes its share of the problems through the same steps, and sends what it found after each of them. The
journal of a process can be read meanwhile.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from bench.tuning_problems import Case, problems
from bench.tuning_trials import SAMPLED, Found, OfGpu
from fusewright.core.errors import TuneError
from fusewright.tune.journal import Journal
from fusewright.tune.pool import Pool, wait_for

# Searches from the formula are made in so many steps.
SLICES = 4
POLL_SECONDS = 0.5
# How often what is known is noted while steps go on.
NOTE_SECONDS = 30.0


@dataclass(frozen=True)
class Step:
    """What a process does next: a method of `OfGpu`. said: what is printed when it is done."""

    method: str
    arguments: tuple[Any, ...] = ()
    said: str = ""


#: What parts do without knowing of each other.
FIRST_STEPS = (
    Step("prepare", said="made the problems"),
    *(Step("search", (i, SLICES), f"searched from the formula, {i + 1}/{SLICES}") for i in range(SLICES)),
    Step("search_from_plain", said="searched from plain params"),
    Step("race_finalists", said="timed the best few again"),
    Step("sample", (SAMPLED,), "tried the samples"),
    Step("sample_refused", (SAMPLED,), "tried what the model refuses"),
)


@dataclass(frozen=True)
class Share:
    """What one process is made with (`pool.Setup`).

    Attributes:
        number: of the part. visible: its GPU, as CUDA_VISIBLE_DEVICES names it; None: there is none.
        folder: for files of this run. journal: what was measured, in earlier runs, too.
        start, seconds: by `time.monotonic`, when the benchmark began, and how long it may take.
    """

    number: int
    visible: str | None
    cases: tuple[Case, ...]
    folder: Path
    journal: Path
    compilers: int
    points: int
    start: float
    seconds: float

    def __call__(self) -> Callable[[Step], list[Found]]:
        if self.visible is not None:  # this process and those that it starts see no other one
            os.environ["CUDA_VISIBLE_DEVICES"] = self.visible
        place = torch.device("cpu" if self.visible is None else "cuda")
        self.folder.mkdir(exist_ok=True)
        # What is killed leaves no folders elsewhere.
        tempfile.tempdir = os.environ["TMPDIR"] = str(self.folder)
        of_gpu = OfGpu(
            lambda: problems(self.cases, self.folder, place),
            self.visible is not None,
            self.compilers,
            self.folder,
            self.journal,
            self.points,
            self.until,
        )

        def do(step: Step) -> list[Found]:
            try:
                getattr(of_gpu, step.method)(*step.arguments)
            except Exception:
                traceback.print_exc()
                print(f"GPU {self.number}: {step.method} failed", file=sys.stderr, flush=True)
            return of_gpu.found

        return do

    def until(self, share: float) -> float:
        return self.start + share * self.seconds


@dataclass
class _Part:
    share: Share
    pool: Pool[Step]
    found: list[Found] = field(default_factory=list)
    left: list[Step] = field(default_factory=list)
    is_lost: bool = False

    def lose(self, problem: object) -> None:
        print(f"GPU {self.share.number} does no more: {problem}", flush=True)
        self.is_lost, self.left = True, []
        self.pool.close()

    @property
    def is_busy(self) -> bool:
        return not self.is_lost and bool(self.left or self.pool.pending)


class Parts:
    """The processes; a context manager. How long a step may take, `run` says.

    Args:
        note: called with what is known so far, from time to time.
    """

    def __init__(self, shares: Sequence[Share], note: Callable[[list[Found]], None]) -> None:
        self._parts = [_Part(share, Pool[Step](share, 1, inf)) for share in shares]
        self._note = note
        self._noted = time.monotonic()
        for part in self._parts:
            part.pool.begin()

    def __enter__(self) -> Parts:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for part in self._parts:
            part.pool.close()

    @property
    def found(self) -> list[Found]:
        return [each for part in self._parts for each in part.found]

    def run(self, steps: Sequence[Step], end: float) -> None:
        """All parts do these steps, side by side. Who has not ended by `end` (`time.monotonic`) is lost."""
        for part in self._parts:
            part.left = [] if part.is_lost else list(steps)
        while any(part.is_busy for part in self._parts):
            for part in self._parts:
                if part.is_busy:
                    self._step(part)
                    if time.monotonic() > end:
                        part.lose("its time is up")
            wait_for([part.pool for part in self._parts if part.is_busy], POLL_SECONDS)
            if time.monotonic() > self._noted + NOTE_SECONDS:
                self._refresh()
        self._note(self.found)

    def _step(self, part: _Part) -> None:
        if part.left and not part.pool.pending:
            part.pool.submit(part.left.pop(0))
        try:
            for done in part.pool.step():
                if done.result is None:
                    part.lose(done.problem)
                    return
                part.found = done.result
                spent = time.monotonic() - part.share.start
                print(
                    f"GPU {part.share.number}: {done.job.said}, {len(part.found)} problems, {spent:.0f} s",
                    flush=True,
                )
        except TuneError as error:
            part.lose(error)

    def _refresh(self) -> None:
        """Notes what the journals have."""
        self._noted = time.monotonic()
        for part in self._parts:
            if part.found:
                with suppress(TuneError), Journal(part.share.journal, None) as journal:
                    for each in part.found:
                        each.known = journal.trials(each.problem.key)
        self._note(self.found)


def visible_devices() -> list[str]:
    """The GPUs that this process sees, as CUDA_VISIBLE_DEVICES names them."""
    count = torch.cuda.device_count()
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    return list(map(str, range(count))) if names is None else names.split(",")[:count]
