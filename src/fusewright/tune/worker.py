"""The work of worker processes: they compile kernels and run them on the GPU."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import torch

from fusewright.core.errors import DriverError, ScheduleError, TuneError, UserError
from fusewright.core.once import cached_property
from fusewright.core.options import Options
from fusewright.core.serialization import from_json, to_dict, to_json
from fusewright.core.tracing import Tracer
from fusewright.host import FusionExecutor, PlannedCall, SegmentSchedules
from fusewright.host.inputs.signature import ALIGNMENT_BYTES
from fusewright.host.kernels.planning import PlannedKernel, PlannedKernels
from fusewright.schedulers import type_name
from fusewright.tune.facts import facts_of
from fusewright.tune.journal import Race, Status
from fusewright.tune.measure import CLEARLY_SLOWER, Clock, Turn
from fusewright.tune.problem import Problem, TensorLike
from fusewright.tune.process import Fatal, untimed

# Timed runs of a configuration; of those that race in the end.
TRIAL_REPEATS, RACE_REPEATS = 15, 50
# Runs of either before the first that counts.
WARM_UP = 2
# A kernel that is not checked and timed within so long hangs: 30 passes over all memory take less.
TURN_SECONDS = 5.0
# The fraction of the GPU's memory that a process may use for inputs and results that it keeps for later
# configurations: half of the memory for three processes. They take about so many times the bytes of a call,
# some in double.
KEPT_SHARE, KEPT_TIMES = 1 / 6, 6
# The niceness of processes that compile, relative to those that time kernels. If a launch waits for a
# processor, the GPU's clock continues: kernels were recorded as 60 times slower than they are.
NICENESS = 10


@dataclass(frozen=True)
class Loaded:
    """A problem in runnable form.

    Attributes:
        inputs: on the requested device; without memory on "meta".
        check: makes a call, and raises AssertionError if its outputs differ from the reference.
    """

    executor: FusionExecutor
    inputs: Sequence[Any]
    check: Callable[[Callable[[], Sequence[torch.Tensor]]], None]


#: Makes a problem something to run. A function of a module, as it goes to worker processes.
Load = Callable[[Problem, torch.device], Loaded]


@dataclass(frozen=True)
class Best:
    """The fastest configuration so far.

    Attributes:
        params: as JSON.
    """

    params: str
    seconds: float


@dataclass(frozen=True)
class Attempt:
    """One configuration to make or run.

    Attributes:
        params: as JSON.
        best: the best so far; a configuration that is clearly slower is not timed to the end.
        copy_seconds: of a copy of the same number of bytes, beside which others were timed; None: this is the
            first.
        slower: the ratio to the best from which a configuration is clearly slower.
        lowered: as in `Made`, once it is made.
    """

    problem: Problem
    params: str
    origin: str
    best: Best | None = None
    copy_seconds: float | None = None
    slower: float = CLEARLY_SLOWER
    lowered: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True)
class RaceOf:
    """Configurations to time in turns.

    Attributes:
        params: as JSON.
    """

    problem: Problem
    params: tuple[str, ...]


@dataclass(frozen=True)
class Made:
    """The result of making a kernel, before it runs: COMPILED, REJECTED or FAULT.

    Attributes:
        seconds: processor time.
        lowered: the kernel, so that the process that runs it need not lower it again.
    """

    status: Status
    detail: str = ""
    kernel: str = ""
    resources: Mapping[str, Any] | None = None
    seconds: float | None = None
    lowered: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Ran:
    """The result of running it: MEASURED, REJECTED, FAULT or WRONG.

    Attributes:
        seconds: of a launch, computed from its ratio to a copy's time.
        copy_seconds: of a copy of the same number of bytes.
    """

    status: Status
    seconds: float | None = None
    detail: str = ""
    copy_seconds: float | None = None


class Planned:
    """A problem's kernel before it is made: its heuristic's params, and the kernels for other params."""

    def __init__(self, problem: Problem, load: Load, options: Options) -> None:
        self._problem = problem
        loaded = load(problem, torch.device("meta"))
        device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
        executor = loaded.executor
        alignment = [x.alignment if isinstance(x, TensorLike) else ALIGNMENT_BYTES for x in problem.inputs]
        self._all = PlannedKernels(
            executor.fusion, executor.registry, loaded.inputs, device, problem.hardware, options, alignment
        )
        found = {kernel.index: kernel for kernel in self._all.kernels}
        planned = {i: type_name(kernel.segment.scheduler.type) for i, kernel in found.items()}
        if planned.get(problem.kernel) != problem.scheduler:
            raise TuneError(
                f"{problem.name} becomes other kernels in a worker process than in the script",
                expected=f"kernel {problem.kernel} of the scheduler {problem.scheduler}",
                given=planned,
            )
        self._kernel = found[problem.kernel]

    @property
    def kernel(self) -> PlannedKernel:
        return self._kernel

    @property
    def heuristic(self) -> Any:
        """The params that the heuristic chose."""
        return self._kernel.proposal.params

    @property
    def fixed_params(self) -> Mapping[str, Any]:
        """The values that the scheduler needs of params which it shares with others."""
        return getattr(self._kernel.segment.scheduler, "fixed_params", {})

    def described(self) -> Problem:
        """The problem with the facts that heuristics read."""
        facts = self._problem.facts
        if facts is None:  # of an older journal
            facts = facts_of(self._kernel.segment, self._kernel.facts, self._problem.hardware)
        return replace(self._problem, facts=facts, formula=replace(self.heuristic, reason=""))

    def make(self, params: str) -> Made:
        """Compiles, to machine code in the disk cache."""
        start, tracer = time.process_time(), Tracer()
        try:
            chosen = from_json(self._kernel.segment.scheduler.params_type, params)
            code, shape = self._all.compile(self._kernel, chosen, tracer)
            resources = to_dict(code.resources(tracer))
            if shape is not None:
                held = code.occupancy(shape.threads, shape.shared_bytes, self._problem.hardware)
                resources.update(threads=shape.threads, shared=shape.shared_bytes, blocks_per_sm=held.blocks)
            lowered = self._lowered(chosen)
        except UserError as error:
            return Made(Status.REJECTED, _line(error))
        except Exception as error:
            return Made(Status.FAULT, _line(error))
        return Made(Status.COMPILED, "", code.name, resources, time.process_time() - start, lowered)

    def _lowered(self, params: Any) -> bytes | None:
        """None: what a user's scheduler has in its params does not go to other processes."""
        try:
            return self._all.lowered(self._kernel, params)
        except (pickle.PicklingError, TypeError, AttributeError):
            return None

    def adopt(self, lowered: bytes) -> None:
        """Has this process use a kernel that another one lowered."""
        self._all.adopt(self._kernel, lowered)


@dataclass(frozen=True)
class Making:
    """The setup of a process that compiles; see `pool.Setup`."""

    load: Load
    options: Options

    def __call__(self) -> Callable[[Attempt], Made]:
        os.nice(NICENESS)
        torch.set_num_threads(1)
        planned: dict[str, Planned] = {}

        def make(attempt: Attempt) -> Made:
            key = attempt.problem.key
            if key not in planned:
                planned[key] = Planned(attempt.problem, self.load, self.options)
            return planned[key].make(attempt.params)

        return make


class Runner:
    """One problem on a device, whose inputs are made once."""

    def __init__(
        self, problem: Problem, load: Load, options: Options, clock: Clock, turn: Turn | None = None
    ) -> None:
        self._problem = problem
        self.bytes = problem.bytes
        self._turn = turn or Turn(None)
        self._clock = clock
        self._options = options
        self._loaded = load(problem, clock.device)
        self._planned = Planned(problem, load, options)
        self._params_type = self._planned.kernel.segment.scheduler.params_type

    @cached_property
    def _partition(self) -> PlannedCall:
        return self._loaded.executor.planned(self._loaded.inputs, options=self._options, views=False)

    @cached_property
    def _copy(self) -> Callable[[], object]:
        return self._clock.copy(self._problem.bytes)

    @cached_property
    def copy_seconds(self) -> float:
        return self._clock.median_seconds(self._copy)

    def run(self, attempt: Attempt) -> Ran:
        """Checks the results, then times the kernel, in turns with a copy of the same number of bytes.

        All kernels of a problem are timed beside the same copy. If they were timed beside the best so far,
        each lucky time would become the reference for later ones: after 30 configurations the drift was a
        third.
        """
        call = self._call(attempt.params, attempt.lowered)
        with self._turn.taken(partial(untimed, TURN_SECONDS)):
            try:
                self._loaded.check(call)
            except AssertionError as error:
                return Ran(Status.WRONG, detail=_line(error))
            copy_seconds = attempt.copy_seconds or self.copy_seconds
            limit = inf if attempt.best is None else attempt.slower * attempt.best.seconds / copy_seconds
            ratio = self._clock.beside(call, self._copy, limit, TRIAL_REPEATS, WARM_UP)
            return Ran(Status.MEASURED, ratio * copy_seconds, copy_seconds=copy_seconds)

    def race(self, params: Sequence[str]) -> Race:
        calls = [self._call(each) for each in params]
        with self._turn.taken(partial(untimed, TURN_SECONDS)):
            for call in calls:
                call()
            spans = self._clock.spans([*calls, self._copy], RACE_REPEATS)
            *medians, copy = [sorted(own)[len(own) // 2] for own in spans]
            return Race(dict(zip(params, medians)), copy)

    def _call(self, params: str, lowered: bytes | None = None) -> Callable[[], Sequence[torch.Tensor]]:
        if lowered is not None:
            self._planned.adopt(lowered)
        chosen = from_json(self._params_type, params)
        schedules = SegmentSchedules(((self._problem.kernel, chosen),), self._partition)
        program = self._loaded.executor.compile(
            self._loaded.inputs, options=self._options, user_schedule=schedules, views=False
        )
        inputs = self._loaded.inputs
        return lambda: program.run(inputs)


@dataclass(frozen=True)
class Running:
    """The setup of processes that run kernels: one uses the GPU at a time, while the others prepare the next
    kernels.

    Attributes:
        turns: a folder of files for taking turns, one for each GPU.
        device: the number of their GPU.
    """

    load: Load
    options: Options
    turns: Path
    device: int = 0

    def __call__(self) -> Callable[[Attempt | RaceOf], Ran | Race]:
        torch.set_num_threads(1)
        torch.cuda.set_device(self.device)
        turn = Turn(self.turns / f"turns-{torch.cuda.get_device_properties(self.device).uuid}")
        with turn.taken(untimed):
            clock = Clock(torch.device("cuda", self.device))
        runners: dict[str, Runner] = {}
        most = KEPT_SHARE / KEPT_TIMES * torch.cuda.get_device_properties(self.device).total_memory

        def runner(problem: Problem) -> Runner:
            if problem.key not in runners:
                while runners and sum(each.bytes for each in runners.values()) + problem.bytes > most:
                    del runners[next(iter(runners))]
                with turn.taken(untimed):
                    runners[problem.key] = Runner(problem, self.load, self.options, clock, turn)
            return runners[problem.key]

        def done(job: Attempt | RaceOf) -> Ran | Race:
            if isinstance(job, RaceOf):
                return runner(job.problem).race(job.params)
            return runner(job.problem).run(job)

        def run(job: Attempt | RaceOf) -> Ran | Race:
            try:
                try:
                    return done(job)
                except torch.OutOfMemoryError:  # other problems' inputs may be what is too much
                    runners.clear()
                    torch.cuda.empty_cache()
                return done(job)
            except ScheduleError as error:
                return Ran(Status.REJECTED, detail=_line(error))
            except torch.OutOfMemoryError as error:  # of other programs, perhaps: it may be tried again
                return Ran(Status.COMPILED, detail=_line(error))
            except Exception as error:
                _raise_if_lost(error)
                refused = isinstance(error, (UserError, DriverError))
                return Ran(Status.REJECTED if refused else Status.FAULT, detail=_line(error))

        return run


def _raise_if_lost(error: Exception) -> None:
    """Fatal where the GPU takes no more work of this process."""
    try:
        torch.cuda.synchronize()
    except Exception:
        raise Fatal(_line(error)) from error


def _line(error: Exception) -> str:
    if isinstance(error, UserError):
        error.location = None  # where a worker process calls from
    return f"{type(error).__name__}: {error}"


def params_text(params: Any) -> str:
    """Params as in the journal: JSON, without the parts that do not take part in their equality."""
    return to_json(replace(params, reason=""))
