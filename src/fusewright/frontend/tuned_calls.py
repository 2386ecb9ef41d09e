"""Calls that are tuned: `fd.execute(inputs, tune=...)`, `fusewright.tuning(...)` and FUSEWRIGHT_TUNE."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from fusewright.core.errors import OptionError
from fusewright.core.options import Options
from fusewright.frontend.active_tuning import ACTIVE
from fusewright.frontend.definition import FusionDefinition
from fusewright.frontend.problems import load, problems_of
from fusewright.runtime.disk_cache import default_directory
from fusewright.runtime.identity import generator_digest
from fusewright.schedulers import default_registry, type_name
from fusewright.tune.heuristic import AutotunerHeuristic
from fusewright.tune.heuristics import default_heuristics
from fusewright.tune.journal import Journal
from fusewright.tune.policy import policy_of
from fusewright.tune.problem import Problem
from fusewright.tune.runner import COMPILERS, Runner
from fusewright.tune.table import recorded
from fusewright.tune.tuner import EFFORTS, Effort, Progress, Tuned, Tuner

__all__ = ["TuningSession", "effort_of", "journal_version", "params_types", "tuning"]

# Digits of the generator's digest: trials of another generator are not counted.
VERSION_DIGITS = 16

Report = Callable[[Sequence[Progress]], None]


def journal_version() -> str:
    """What the trials of this version of Fusewright are marked with."""
    return generator_digest()[:VERSION_DIGITS]


def journal_path() -> Path:
    """FUSEWRIGHT_TUNE_JOURNAL, or a file in the cache directory."""
    named = os.environ.get("FUSEWRIGHT_TUNE_JOURNAL")
    if named:
        return Path(named)
    cache = Options.from_environment().cache_dir
    return (Path(cache) if cache else default_directory()) / "tuning.sqlite"


def effort_of(given: Any) -> Effort:
    """What a user means by "fast", "full", a number of seconds, or an Effort. OptionError for all else."""
    if isinstance(given, Effort):
        return given
    if isinstance(given, str) and given in EFFORTS:
        return EFFORTS[given]
    seconds = given
    if isinstance(given, str):
        try:
            seconds = float(given)
        except ValueError:
            seconds = None
    if isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and 0 < seconds < float("inf"):
        return Effort(seconds=float(seconds))
    names = " or ".join(f'"{name}"' for name in EFFORTS)
    raise OptionError("tune: no effort", expected=f"{names}, or seconds above 0", given=repr(given))


def params_types() -> dict[str, type]:
    """The class of the params of each scheduler, by name."""
    return {type_name(each.type): each.params_type for each in default_registry()}


class TuningSession:
    """Tunes calls; a context manager. Processes are started for the first one, and serve all.

    Args:
        journal: None: that of the user (`journal_path`).
        heuristics: besides the autotuner's own and those that were registered.
        seeds: params to begin with.
        report: called with the progress of each kernel of a call.
    """

    def __init__(
        self,
        journal: Path | None = None,
        heuristics: Iterable[AutotunerHeuristic] = (),
        seeds: Sequence[Any] = (),
        report: Report = lambda progress: None,
    ) -> None:
        self.journal = journal
        self.results: list[Tuned] = []
        self._heuristics = tuple(heuristics)
        self._seeds = tuple(seeds)
        self._report = report
        self._runner: Runner | None = None
        self._tuned: set[Hashable] = set()

    def __enter__(self) -> TuningSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the processes. A later call starts new ones."""
        if self._runner is not None:
            self._runner.__exit__(None, None, None)
            self._runner = None

    def tune_call(
        self, fd: FusionDefinition, inputs: Sequence[Any], device: torch.device | None, given: Any
    ) -> None:
        """Tunes the kernels of a call, unless such a call was tuned before, and has the policy know of it."""
        effort = effort_of(given)
        key = self._key(fd, inputs, device, effort)
        if key in self._tuned:
            return
        with tempfile.TemporaryDirectory(prefix="fusewright-values-") as folder:
            self.tune(problems_of(fd, inputs, device, "fusion", Path(folder)), effort)
        self._tuned.add(key)

    def tune(self, problems: Sequence[Problem], effort: Effort) -> list[Tuned]:
        """Tunes problems that share an effort, and has the policy know of them. See `Tuner.tune`."""
        options = replace(Options.from_environment(), policy=None)
        if self._runner is None:
            self._runner = Runner(load, options, COMPILERS, torch.cuda.is_available(), keeps_code=True)
        path = self.journal or journal_path()
        path.parent.mkdir(parents=True, exist_ok=True)
        with Journal(path, journal_version()) as journal:
            heuristics = (*default_heuristics(), *self._heuristics)
            tuner = Tuner(self._runner, journal, load, options, heuristics)
            found = tuner.tune(problems, effort, self._seeds, self._report)
            ACTIVE.learned = policy_of(recorded(journal, params_types(), "journal"))
        self.results += found
        return found

    def _key(
        self, fd: FusionDefinition, inputs: Sequence[Any], device: torch.device | None, effort: Effort
    ) -> Hashable:
        leaf = fd._complete()
        return leaf.id, leaf.executor.signature(inputs), device, effort


_session = TuningSession()


def _tune(fd: FusionDefinition, inputs: Sequence[Any], device: torch.device | None, given: Any) -> None:
    session = _session
    tune, every = ACTIVE.tune, ACTIVE.every
    ACTIVE.tune, ACTIVE.every = None, None  # what tuning itself executes is not tuned
    try:
        session.tune_call(fd, inputs, device, given)
    finally:
        ACTIVE.tune, ACTIVE.every = tune, every


ACTIVE.tune = _tune


@contextmanager
def tuning(
    effort: Any = "fast",
    *,
    journal: str | Path | None = None,
    heuristics: Iterable[AutotunerHeuristic] = (),
    seeds: Sequence[Any] = (),
    report: Report = lambda progress: None,
) -> Iterator[TuningSession]:
    """A block in which each call is tuned that is unlike those before it; for all threads.

    What was found is used from then on, in this process, by calls outside of the block, too.

    Args:
        effort: for each call: "fast", "full", seconds, or an Effort.
        journal: the file that remembers; by default the user's.
        heuristics, seeds, report: see `TuningSession`.

    Raises:
        OptionError: no effort.
    """
    global _session
    effort_of(effort)
    before, every = _session, ACTIVE.every
    with TuningSession(None if journal is None else Path(journal), heuristics, seeds, report) as session:
        _session, ACTIVE.every = session, effort
        try:
            yield session
        finally:
            _session, ACTIVE.every = before, every
