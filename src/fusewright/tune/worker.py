"""What worker processes do: make kernels, and run them on the GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from fusewright.core.errors import DriverError, ScheduleError, TuneError, UserError
from fusewright.core.options import Options
from fusewright.core.serialization import from_json, to_dict, to_json
from fusewright.core.tracing import Tracer
from fusewright.host import FusionExecutor, PlannedCall, SegmentSchedules
from fusewright.host.planning import PlannedKernel, PlannedKernels
from fusewright.host.signature import ALIGNMENT_BYTES
from fusewright.schedulers import type_name
from fusewright.tune.journal import Race, Status
from fusewright.tune.measure import Clock
from fusewright.tune.pool import Fatal
from fusewright.tune.problem import Problem, TensorLike

# Timed runs of a configuration; of those that race in the end.
TRIAL_REPEATS, RACE_REPEATS = 15, 50


@dataclass(frozen=True)
class Loaded:
    """A problem as something to run.

    Attributes:
        inputs: on the device that was asked for; without memory on "meta".
        check: makes a call, and raises AssertionError if its outputs are not those of the reference.
    """

    executor: FusionExecutor
    inputs: Sequence[Any]
    check: Callable[[Callable[[], Sequence[torch.Tensor]]], None]


#: Makes a problem something to run. A function of a module, as it goes to worker processes.
Load = Callable[[Problem, torch.device], Loaded]


@dataclass(frozen=True)
class Attempt:
    """One configuration to be made, or run. params: as JSON. best: seconds of the best so far."""

    problem: str
    params: str
    origin: str
    best: float | None = None


@dataclass(frozen=True)
class RaceOf:
    """Configurations to be timed in turns. params: as JSON."""

    problem: str
    params: tuple[str, ...]


@dataclass(frozen=True)
class Made:
    """What came of making a kernel, before it runs: COMPILED, REJECTED or FAULT."""

    status: Status
    detail: str = ""
    kernel: str = ""
    resources: Mapping[str, Any] | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Ran:
    """What came of running it: MEASURED, REJECTED, FAULT or WRONG."""

    status: Status
    seconds: float | None = None
    detail: str = ""


class Planned:
    """A problem's kernel before it is made: its heuristic's params, and what becomes of others."""

    def __init__(self, problem: Problem, load: Load, options: Options) -> None:
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

    def make(self, params: str) -> Made:
        """Compiles, to machine code in the disk cache."""
        start, tracer = time.perf_counter(), Tracer()
        try:
            chosen = from_json(self._kernel.segment.scheduler.params_type, params)
            code = self._all.compile(self._kernel, chosen, tracer)
            resources = to_dict(code.resources(tracer))
        except UserError as error:
            return Made(Status.REJECTED, _line(error))
        except Exception as error:
            return Made(Status.FAULT, _line(error))
        return Made(Status.COMPILED, "", code.name, resources, time.perf_counter() - start)


@dataclass(frozen=True)
class Making:
    """Set up in a process that compiles; see `pool.Setup`."""

    problems: Mapping[str, Problem]
    load: Load
    options: Options

    def __call__(self) -> Callable[[Attempt], Made]:
        torch.set_num_threads(1)
        planned: dict[str, Planned] = {}

        def make(attempt: Attempt) -> Made:
            key = attempt.problem
            if key not in planned:
                planned[key] = Planned(self.problems[key], self.load, self.options)
            return planned[key].make(attempt.params)

        return make


class Runner:
    """One problem on a device, whose inputs are made once."""

    def __init__(self, problem: Problem, load: Load, options: Options, clock: Clock) -> None:
        self._problem = problem
        self._clock = clock
        self._options = options
        self._loaded = load(problem, clock.device)
        planned = Planned(problem, load, options)
        self._params_type = planned.kernel.segment.scheduler.params_type

    @cached_property
    def _partition(self) -> PlannedCall:
        return self._loaded.executor.planned(self._loaded.inputs, options=self._options, views=False)

    @cached_property
    def copy_seconds(self) -> float:
        return self._clock.copy_seconds(self._problem.bytes)

    def run(self, attempt: Attempt) -> Ran:
        """Checks the results, then times the kernel."""
        try:
            call = self._call(attempt.params)
            self._loaded.check(call)
        except AssertionError as error:
            return Ran(Status.WRONG, detail=_line(error))
        return Ran(Status.MEASURED, self._clock.median_seconds(call, TRIAL_REPEATS, 2, attempt.best))

    def race(self, params: Sequence[str]) -> Race:
        calls = [self._call(each) for each in params]
        spans = self._clock.spans(calls, RACE_REPEATS)
        medians = {each: sorted(own)[len(own) // 2] for each, own in zip(params, spans)}
        return Race(medians, self.copy_seconds)

    def _call(self, params: str) -> Callable[[], Sequence[torch.Tensor]]:
        chosen = from_json(self._params_type, params)
        schedules = SegmentSchedules(((self._problem.kernel, chosen),), self._partition)
        program = self._loaded.executor.compile(
            self._loaded.inputs, options=self._options, user_schedule=schedules, views=False
        )
        inputs = self._loaded.inputs
        return lambda: program.run(inputs)


@dataclass(frozen=True)
class Running:
    """Set up in the process that runs kernels."""

    problems: Mapping[str, Problem]
    load: Load
    options: Options

    def __call__(self) -> Callable[[Attempt | RaceOf], Ran | Race]:
        clock = Clock(torch.device("cuda", torch.cuda.current_device()))
        runners: dict[str, Runner] = {}

        def runner(key: str) -> Runner:
            if key not in runners:
                runners[key] = Runner(self.problems[key], self.load, self.options, clock)
            return runners[key]

        def run(job: Attempt | RaceOf) -> Ran | Race:
            try:
                if isinstance(job, RaceOf):
                    return runner(job.problem).race(job.params)
                return runner(job.problem).run(job)
            except ScheduleError as error:
                return Ran(Status.REJECTED, detail=_line(error))
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
    """Params as the journal has them: JSON, without what takes no part in their equality."""
    return to_json(replace(params, reason=""))
