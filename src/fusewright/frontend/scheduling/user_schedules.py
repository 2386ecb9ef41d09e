"""A user's schedules of a definition. They belong to the definition object that asked for them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from fusewright.core.errors import ArgumentTypeError, ExecutionOrderError, MissingDefinitionError, warn_user
from fusewright.core.once import OnceCache
from fusewright.core.options import Options
from fusewright.core.tracing import Tracer
from fusewright.frontend.help.callbacks import called
from fusewright.frontend.inputs import Inputs, flattened, place_of
from fusewright.frontend.recorded.fusion_schedules import MAX_SIGNATURES, FusionSchedules
from fusewright.frontend.recorded.origins import explained
from fusewright.frontend.scheduling.early_schedule import EarlySchedule
from fusewright.frontend.scheduling.operators import SchedOperators
from fusewright.frontend.scheduling.params import GivenFields
from fusewright.frontend.scheduling.workbench import UserSchedule
from fusewright.host import AnySchedule, FinishedSchedule, PlannedCall, SegmentSchedules
from fusewright.host.inputs.binding import Binder
from fusewright.host.kernels.calls import hardware_for
from fusewright.ops import describe_argument
from fusewright.schedulers import Registry, Scheduler, default_registry

# Calls that were given schedules for some of their segments, kept for each definition object. The entry that
# was kept first is evicted first.
MAX_GIVEN = 1024

#: Schedules by the signature of the inputs that they are for.
BySignature = OnceCache[Hashable, AnySchedule]
#: For segments of a call, params of their schedulers, fields of such params, or functions of the
#: definition, which use its `sched`.
GivenSegments = tuple[tuple[int, Any], ...]


class Scheduled:
    """The schedules of a `FusionDefinition`, by the signature of inputs.

    They belong to this object: an equal definition with another `schedule()` has other schedules, and one
    without is scheduled automatically. Assigning a `schedule` replaces the previous one and everything that
    it made. After a change of schedulers or heuristics, the schedule is written anew.
    """

    #: nvFuser's rule instead: a schedule serves all equal definitions, whoever wrote it first
    shares_schedules: ClassVar[bool] = False

    if TYPE_CHECKING:  # FusionDefinition's
        _leaf: FusionSchedules | None
        _registry: Registry | None
        sched: SchedOperators
        _tracer: Tracer
        _complete: Callable[[], FusionSchedules]

        _writing: Any

        @property
        def _options(self) -> Options: ...

    def _begin_schedules(self) -> None:
        self._open_schedule: UserSchedule | None = None
        #: what tensors were told while the definition was written
        self._early = EarlySchedule()
        self._in_schedule = False
        #: the schedules, after the `schedule` that wrote them and the schedulers that it asked
        self._own_schedules: tuple[object, object, BySignature] | None = None
        #: what calls were given for some of their segments
        self._given_schedules: OnceCache[Hashable, SegmentSchedules] = OnceCache(MAX_GIVEN)

    if TYPE_CHECKING:
        #: what a subclass may override, or a caller assign, to schedule the computation with `self.sched`
        schedule: Callable[[], None]
    else:

        def schedule(self) -> None:
            """What a subclass may override, or a caller assign, to schedule it with `self.sched`."""
            raise MissingDefinitionError(problem="this definition has no schedule()")

    def _schedules(self, leaf: FusionSchedules) -> BySignature:
        """The schedules that serve this definition."""
        if self.shares_schedules:
            return leaf.shared
        written_by = self.__dict__.get("schedule") or type(self).schedule
        asked = self._schedulers() if self._has_schedule else None
        own = self._own_schedules
        if own is None or own[0] is not written_by or own[1] != asked:
            with self._writing:
                own = self._own_schedules
                if own is None or own[0] is not written_by or own[1] != asked:
                    own = self._own_schedules = written_by, asked, OnceCache(MAX_SIGNATURES)
        return own[2]

    def _schedulers(self) -> tuple[Scheduler, ...]:
        """The schedulers that `sched` asks now."""
        return (self._registry if self._registry is not None else default_registry()).current

    @property
    def _is_scheduled(self) -> bool:
        """Whether calls may run what the user scheduled."""
        own = self._own_schedules
        return self._has_schedule or self.shares_schedules or (own is not None and len(own[2]) > 0)

    @property
    def _has_schedule(self) -> bool:
        """Whether the definition says how it is scheduled: in its `schedule`, or while it was written."""
        return self._overrides_schedule or bool(self._early.calls)

    @property
    def _overrides_schedule(self) -> bool:
        return "schedule" in self.__dict__ or type(self).schedule is not Scheduled.schedule

    def _user_schedule(
        self,
        leaf: FusionSchedules,
        inputs: Inputs,
        device: torch.device | None,
        rebuild: bool = False,
        without_memory: bool = False,
        views: bool = True,
    ) -> AnySchedule | None:
        """The user's schedule for these inputs, written now if there is a `schedule()` and none yet.

        `without_memory`: whether there are inputs that have no signature because they have no memory.
        `views`: whether outputs of the call may be views of inputs.
        """
        schedules = self._schedules(leaf)
        key = self._signature(leaf, inputs, device)

        def known() -> AnySchedule | None:
            found = schedules.find(key)
            # What is to be computed here was a view where the kernels were scheduled.
            is_other = isinstance(found, SegmentSchedules) and found.planned.uncomputed and not views
            return None if is_other or (rebuild and self._has_schedule) else found

        found = known()
        fits = key is not None or without_memory
        if found is None and fits and self._has_schedule:
            with self._writing:
                found = known()
                if found is None:
                    found = self._write_schedule(schedules, inputs, device, views)
        return found

    def _write_schedule(
        self, schedules: BySignature, inputs: Inputs, device: torch.device | None, views: bool
    ) -> AnySchedule:
        self._open(inputs, device, views)
        self._write(self._run_schedule)
        return self._keep_schedule(schedules, inputs, device)

    def _run_schedule(self) -> None:
        self._early.run(self.sched)
        if self._overrides_schedule:
            if not callable(self.schedule):
                raise ArgumentTypeError(
                    function="fd.schedule", expected="a function", given=describe_argument(self.schedule)
                )
            called("fd.schedule", self.schedule)

    def _write(self, schedule: Callable[[], object]) -> None:
        """Lets `schedule` act on the open schedule, which an error closes."""
        self._in_schedule = True
        try:
            schedule()
        except BaseException:
            self._open_schedule = None
            raise
        finally:
            self._in_schedule = False

    def _given_for(
        self,
        leaf: FusionSchedules,
        given: GivenSegments,
        inputs: Inputs,
        device: torch.device | None,
        views: bool = True,
    ) -> SegmentSchedules:
        """What the user gives for some segments of this call, written now if such a call was not given it.

        Raises:
            ScheduleError: there is no such segment.
        """
        signature = self._signature(leaf, inputs, device)
        if signature is None:  # of inputs without memory, or that do not fit
            with self._writing:
                return self._written(given, inputs, device, views)
        key = given, signature, views, self._schedulers()
        found = self._given_schedules.find(key)
        if found is None:
            with self._writing:
                found = self._given_schedules.get(key, lambda: self._written(given, inputs, device, views))
        return found

    def _written(
        self, given: GivenSegments, inputs: Inputs, device: torch.device | None, views: bool
    ) -> SegmentSchedules:
        planned: PlannedCall | None = None
        schedules: list[tuple[int, Any]] = []
        for index, value in given:
            if callable(value):
                user = self._open(inputs, device, views)
                user.planned = planned
                user.schedule_only(index)
                self._write(partial(called, f"schedules[{index}]", value, fd=self))
                planned, self._open_schedule = user.planned, None
                value = user.current.finished()
            elif isinstance(value, GivenFields):
                planned = planned or self._planned_call(inputs, device, views)
                planned.check_kernel(index)
                hardware = hardware_for(place_of(inputs, device), self._options)
                proposed, scheduler = planned.proposals[index].params, planned.segments[index].scheduler
                value = value.put_into(proposed, scheduler, hardware)
            schedules.append((index, value))
        if planned is None:
            planned = self._planned_call(inputs, device, views)
        return SegmentSchedules(tuple(schedules), planned)

    def _planned_call(self, inputs: Inputs, device: torch.device | None, views: bool) -> PlannedCall:
        executor = self._complete().executor_for(self._registry)
        return executor.planned(
            inputs, device=device, options=self._options, tracer=self._tracer, views=views
        )

    def _signature(self, leaf: FusionSchedules, inputs: Inputs, device: torch.device | None) -> Hashable:
        """Of flat inputs; see `FusionSchedules.signature`."""
        return leaf.signature(inputs, device, self._options.sim_device)

    @explained
    def _setup_schedule(
        self, inputs: Inputs, overwrite_existing_schedule: bool = False, device: torch.device | None = None
    ) -> None:
        """Opens a schedule for inputs like these: `sched` acts on it until `_finalize_schedule`."""
        arguments = flattened(inputs)
        if self._exist_schedule(arguments, device) and not overwrite_existing_schedule:
            warn_user("A user schedule exists for these inputs already, and is written anew")
        self._open(arguments, device)

    def _open(self, inputs: Inputs, device: torch.device | None, views: bool = True) -> UserSchedule:
        """Opens a schedule for flat inputs."""
        if self._in_schedule:
            raise ExecutionOrderError("schedule(): it executes the definition that it schedules")
        self._open_schedule = self._schedule_for(inputs, device, views)
        return self._open_schedule

    def _schedule_for(self, inputs: Inputs, device: torch.device | None, views: bool = True) -> UserSchedule:
        """A schedule for flat inputs, of which nothing is written yet."""
        hardware = hardware_for(place_of(inputs, device), self._options)
        planned = partial(self._planned_call, inputs, device, views)
        return UserSchedule(self._complete(), inputs, device, hardware, planned)

    @explained
    def _finalize_schedule(self, inputs: Inputs, device: torch.device | None = None) -> None:
        """Keeps the open schedule for inputs like these."""
        self._keep_schedule(self._schedules(self._complete()), inputs, device)

    def _keep_schedule(
        self, schedules: BySignature, inputs: Inputs, device: torch.device | None
    ) -> AnySchedule:
        if self._open_schedule is None:
            raise ExecutionOrderError(
                "_finalize_schedule: there is no open schedule; call _setup_schedule first"
            )
        leaf, arguments = self._complete(), flattened(inputs)
        signature = self._signature(leaf, arguments, device)
        if signature is None:
            binder = Binder(leaf.fusion)
            binder.describe(binder.flatten(arguments), device)  # raises what does not fit
        user, self._open_schedule = self._open_schedule, None
        finished = user.finished()
        if isinstance(finished, FinishedSchedule):
            finished = leaf.user_schedule(finished)
        if signature is not None:
            schedules.put(signature, finished)
        return finished

    def _exist_schedule(self, inputs: Inputs, device: torch.device | None = None) -> bool:
        """Whether the user has scheduled this definition for inputs like these."""
        leaf = self._leaf
        if leaf is None:
            return False
        return self._signature(leaf, flattened(inputs), device) in self._schedules(leaf)
