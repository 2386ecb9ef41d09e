"""Tuned calls: `fd.execute(inputs, tune=...)`, `fusewright.tuning(...)` and FUSEWRIGHT_TUNE."""

from __future__ import annotations

import atexit
import logging
import math
import os
import tempfile
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import lru_cache
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar

import torch

from fusewright.core.errors import OptionError, ParamsError, RegistrationError, TuneError
from fusewright.core.forks import renew_in_child
from fusewright.core.options import Options
from fusewright.frontend.definition import FusionDefinition
from fusewright.frontend.inputs import flattened, place_of
from fusewright.frontend.tuned.active_tuning import ACTIVE
from fusewright.frontend.tuned.problems import load, problems_of
from fusewright.runtime.disk_cache import default_directory
from fusewright.runtime.identity import generator_digest
from fusewright.schedulers import HeuristicParams
from fusewright.tune.entry import chosen_entries
from fusewright.tune.heuristic import ANY, AutotunerHeuristic, HeuristicRegistry
from fusewright.tune.heuristics import NearSizes, default_heuristics
from fusewright.tune.journal import Journal
from fusewright.tune.policy import policy_of
from fusewright.tune.problem import Problem
from fusewright.tune.runner import COMPILERS, Runner
from fusewright.tune.table import measurements_of, params_types
from fusewright.tune.tuner import EFFORTS, Effort, Progress, Tuned, Tuner

# Digits of the generator's digest: trials of another generator are not counted.
VERSION_DIGITS = 16

# What a folder for the values of integers is called.
VALUES = "fusewright-values-"
VARIABLE = "FUSEWRIGHT_TUNE"
logger = logging.getLogger("fusewright")

T = TypeVar("T")
Report = Callable[[Sequence[Progress]], None]


def journal_version() -> str:
    """What the trials of this version of Fusewright are marked with."""
    return generator_digest()[:VERSION_DIGITS]


def journal_path() -> Path:
    """FUSEWRIGHT_TUNE_JOURNAL, or a file in the cache directory. TuneError if there is neither."""
    named = os.environ.get("FUSEWRIGHT_TUNE_JOURNAL")
    if named:
        return Path(named)
    cache = Options.from_environment().cache_dir
    folder = Path(cache) if cache else default_directory()
    if folder is None:
        raise TuneError(
            "there is no place for a journal: this user has no home directory",
            hint="name a file in FUSEWRIGHT_TUNE_JOURNAL, or a folder in FUSEWRIGHT_CACHE_DIR",
        )
    return folder / "tuning.sqlite"


def effort_of(given: Any, what: str = "tune") -> Effort:
    """What a user means by "fast", "full", a number of seconds, or an Effort. OptionError for all else.

    what: was given it, for the message.
    """
    if isinstance(given, Effort):
        return given
    if isinstance(given, str) and given in EFFORTS:
        return EFFORTS[given]
    seconds = math.nan
    if isinstance(given, (str, Real)) and not isinstance(given, bool):
        with suppress(ValueError):
            seconds = float(given)
    if 0 < seconds < math.inf:
        return Effort(seconds=seconds)
    names = " or ".join(f'"{name}"' for name in EFFORTS)
    expected = f"{names}, or a finite number of seconds above 0"
    raise OptionError(f"{what}: no effort", expected=expected, given=repr(given))


def _given(kind: Callable[[Any], T], value: Any, name: str, expected: str) -> T:
    """What an argument becomes. OptionError: it cannot."""
    try:
        return kind(value)
    except TypeError:
        raise OptionError(f"tuning: {name}", expected=expected, given=repr(value)) from None


class TuningSession:
    """Tunes calls; a context manager. Processes start for the first call and serve all.

    Args:
        journal: None: the user's journal (`journal_path`).
        heuristics: in addition to the autotuner's own and the registered ones.
        seeds: initial params.
        report: called with the progress of each kernel of a call.

    Attributes:
        is_interrupted: whether the user interrupted a search.

    Raises:
        RegistrationError: an invalid heuristic, or one for an unknown scheduler.
        ParamsError: an invalid seed.
        OptionError: another invalid argument.
    """

    def __init__(
        self,
        journal: str | Path | None = None,
        heuristics: Iterable[AutotunerHeuristic] = (),
        seeds: Iterable[Any] = (),
        report: Report = lambda progress: None,
    ) -> None:
        self.journal = None if journal is None else _given(Path, journal, "journal", "a path")
        self.results: list[Tuned] = []
        self.is_interrupted = False
        self._heuristics = _given(tuple, heuristics, "heuristics", "a list of autotuner heuristics")
        self._seeds = _given(tuple, seeds, "seeds", "a list of params")
        self._report = report
        self._check()
        self._runner: Runner | None = None
        #: the number of the GPU of the latest call
        self._device = 0
        self._tuned: set[Hashable] = set()
        #: of the calls of a block that share an effort; None: there is no such block
        self._together: list[Problem] | None = None

    def _check(self) -> None:
        HeuristicRegistry(
            (*default_heuristics(), NearSizes(()), *self._heuristics)
        )  # raises for those that are none
        known = (ANY, *params_types())
        for heuristic in self._heuristics:
            if heuristic.scheduler not in known:
                raise RegistrationError(
                    what=f"the autotuner heuristic {heuristic.name}",
                    problem=f"expected a scheduler of {', '.join(known)}, got {heuristic.scheduler!r}",
                )
        for i, seed in enumerate(self._seeds):
            if not isinstance(seed, HeuristicParams):
                raise ParamsError(path=f"seeds[{i}]", expected="the params of a scheduler", given=repr(seed))
        if not callable(self._report):
            raise OptionError("tuning: report", expected="a function of progress", given=repr(self._report))

    def __enter__(self) -> TuningSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the processes. A later call starts new ones."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def tune_call(
        self, fd: FusionDefinition, inputs: Sequence[Any], device: torch.device | None, effort: Effort
    ) -> None:
        """Tunes the kernels of a call, unless such a call was tuned before, and adds the results to the
        policy.

        In a block of `together` they are tuned at its end.
        """
        key = self._key(fd, inputs, device, effort)
        if key in self._tuned:  # by another thread meanwhile
            return
        self._device = place_of(flattened(inputs), device).index or 0
        if self._together is not None:
            self._together += problems_of(fd, inputs, device, self._name(fd), self._values)
        else:
            with tempfile.TemporaryDirectory(prefix=VALUES) as folder:
                self.tune(problems_of(fd, inputs, device, self._name(fd), Path(folder)), effort)
        self._tuned.add(key)

    def has_tuned(
        self, fd: FusionDefinition, inputs: Sequence[Any], device: torch.device | None, effort: Effort
    ) -> bool:
        """Whether such a call was tuned before; for any thread, while another one tunes."""
        return self._key(fd, inputs, device, effort) in self._tuned

    @contextmanager
    def together(self, effort: Effort) -> Iterator[None]:
        """A block whose calls share an effort: they run untuned, and are tuned at its end."""
        if self._together is not None:
            yield
            return
        with tempfile.TemporaryDirectory(prefix=VALUES) as folder:
            self._together, self._values = [], Path(folder)
            try:
                yield
                problems = self._together
            finally:
                self._together = None
            if problems:
                self.tune(problems, effort)

    def tune(self, problems: Sequence[Problem], effort: Effort) -> list[Tuned]:
        """Tunes problems that share an effort, and has the policy know of them. See `Tuner.tune`."""
        distinct = list({problem.key: problem for problem in problems}.values())
        if not distinct:
            return []
        options = replace(Options.from_environment(), policy=None)
        if self._runner is not None and self._runner.device != self._device:
            self.close()
        if self._runner is None:
            on_gpu = torch.cuda.is_available()
            self._runner = Runner(load, options, COMPILERS, on_gpu, keeps_code=True, device=self._device)
        path = self.journal or journal_path()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TuneError(f"the journal {path}: its folder cannot be made: {error}") from None
        with Journal(path, journal_version()) as journal:
            known = chosen_entries(list(measurements_of(journal, "journal")))
            heuristics = (*default_heuristics(), NearSizes(known), *self._heuristics)
            tuner = Tuner(self._runner, journal, load, options, heuristics)
            try:
                found = tuner.tune(distinct, effort, self._seeds, self._report)
            finally:  # also if what was found until then cannot be recorded
                self.is_interrupted |= tuner.is_interrupted
            learned = policy_of(measurements_of(journal, "journal"))
            ACTIVE.learned = learned.over(ACTIVE.given)
        self.results += found
        if tuner.is_interrupted:
            logger.warning("tuning was interrupted: calls have the best so far, and the next are not tuned")
        return found

    @staticmethod
    def _name(fd: FusionDefinition) -> str:
        return f"fusion {fd._complete().id}"

    def _key(
        self, fd: FusionDefinition, inputs: Sequence[Any], device: torch.device | None, effort: Effort
    ) -> Hashable:
        leaf = fd._complete()
        return leaf.id, leaf.executor.signature(inputs), device, effort


class _Turns(threading.local):
    """Whether this thread is tuning: calls that tuning itself executes are not tuned."""

    is_tuning = False


class _TunedCalls:
    """The tuning of calls in this process. One search runs at a time: other threads wait for it, except for
    calls that were tuned before.

    Attributes:
        session: tunes calls. It closes with the process.
    """

    def __init__(self) -> None:
        self.session = TuningSession()
        self._turns = _Turns()
        self.renew()
        renew_in_child(self)
        atexit.register(self._close)

    def renew(self) -> None:
        """In a child of `fork`."""
        self._lock = threading.RLock()

    def _close(self) -> None:
        self.session.close()

    def tune(
        self, fd: FusionDefinition, inputs: Sequence[Any], device: torch.device | None, given: Any
    ) -> None:
        """Tunes a call that requests it, or every call if all are to be tuned."""
        effort = self._every() if given is None else effort_of(given)
        if effort is None or self._turns.is_tuning or fd._is_scheduled or _is_captured():
            return
        if self.session.has_tuned(fd, inputs, device, effort):
            return
        with self._lock, self._tuning(asked=given is not None):
            self.session.tune_call(fd, inputs, device, effort)

    @contextmanager
    def together(self) -> Iterator[None]:
        """A block whose calls share the effort of one."""
        effort = self._every()
        if effort is None or self._turns.is_tuning:
            yield
            return
        with self._lock, ExitStack() as block:
            block.enter_context(self.session.together(effort))
            yield
            with self._tuning(asked=False):
                block.close()

    def _every(self) -> Effort | None:
        """The effort of each call; None: they are not tuned, or the user has interrupted it."""
        every = ACTIVE.every
        if every is None or self.session.is_interrupted:
            return None
        return every if isinstance(every, Effort) else _effort_of_variable(every)

    @contextmanager
    def _tuning(self, asked: bool) -> Iterator[None]:
        """asked: by the code that is run. Else a call does without, where tuning fails."""
        self._turns.is_tuning = True
        try:
            yield
        except TuneError as error:
            if asked or ACTIVE.every != os.environ.get(VARIABLE):
                raise
            logger.warning("%s: a call is not tuned: %s", VARIABLE, error)
        finally:
            self._turns.is_tuning = False


@lru_cache(maxsize=1)
def _effort_of_variable(text: str) -> Effort:
    """Asked for at each call. OptionError: no effort."""
    return effort_of(text, VARIABLE)


def _is_captured() -> bool:
    """Whether calls become part of a CUDA graph, and nothing else may run."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


_calls = _TunedCalls()
ACTIVE.tune, ACTIVE.together = _calls.tune, _calls.together


@contextmanager
def tuning(
    effort: Any = "fast",
    *,
    journal: str | Path | None = None,
    heuristics: Iterable[AutotunerHeuristic] = (),
    seeds: Iterable[Any] = (),
    report: Report = lambda progress: None,
) -> Iterator[TuningSession]:
    """A block in which each new kind of call is tuned, for all threads.

    Later calls in this process use the results, also outside of the block.

    Args:
        effort: for each call: "fast", "full", seconds, or an Effort.
        journal: the file for all results; by default the user's.
        heuristics, seeds, report: see `TuningSession`.

    Raises:
        OptionError: an invalid effort.
        RegistrationError, ParamsError: an invalid heuristic or seed.
    """
    asked = effort_of(effort, "tuning")
    before, every = _calls.session, ACTIVE.every
    with TuningSession(journal, heuristics, seeds, report) as session:
        _calls.session, ACTIVE.every = session, asked
        try:
            yield session
        finally:
            _calls.session, ACTIVE.every = before, every
