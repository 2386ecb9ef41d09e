"""What a user schedules of a definition: it belongs to the definition object that asked for it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from fusewright.core.errors import ExecutionOrderError, MissingDefinitionError
from fusewright.core.once import OnceCache
from fusewright.core.options import Options
from fusewright.frontend.fusion_schedules import MAX_SIGNATURES, FusionSchedules
from fusewright.frontend.inputs import Inputs, flattened, place_of
from fusewright.frontend.scheduling import UserSchedule
from fusewright.host import FinishedSchedule
from fusewright.host.binding import Binder
from fusewright.host.calls import hardware_for

__all__ = ["Scheduled"]

#: Schedules by the signature of the inputs that they are for.
BySignature = OnceCache[Hashable, FinishedSchedule]


class Scheduled:
    """The schedules of a `FusionDefinition`, by the signature of inputs.

    They are this object's: an equal definition with another `schedule()` gets that other one, and one without
    is scheduled automatically. A `schedule` that is assigned replaces the one before, with all that it made.
    """

    #: nvFuser's rule instead: a schedule serves all equal definitions, whoever wrote it first
    shares_schedules: ClassVar[bool] = False

    if TYPE_CHECKING:  # FusionDefinition's
        _leaf: FusionSchedules | None
        _options: Options
        _complete: Callable[[], FusionSchedules]

        _writing: Any

    def _begin_schedules(self) -> None:
        self._open_schedule: UserSchedule | None = None
        self._in_schedule = False
        #: the `schedule` that the schedules are of, and these
        self._own_schedules: tuple[object, BySignature] | None = None

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
        own = self._own_schedules
        if own is None or own[0] is not written_by:
            with self._writing:
                own = self._own_schedules
                if own is None or own[0] is not written_by:
                    own = self._own_schedules = written_by, OnceCache(MAX_SIGNATURES)
        return own[1]

    @property
    def _is_scheduled(self) -> bool:
        """Whether calls may run what the user scheduled."""
        own = self._own_schedules
        return self._has_schedule or self.shares_schedules or (own is not None and len(own[1]) > 0)

    @property
    def _has_schedule(self) -> bool:
        """Whether `schedule` was overridden or assigned."""
        return "schedule" in self.__dict__ or type(self).schedule is not Scheduled.schedule

    def _user_schedule(
        self,
        leaf: FusionSchedules,
        inputs: Inputs,
        device: torch.device | None,
        rebuild: bool = False,
        without_memory: bool = False,
    ) -> FinishedSchedule | None:
        """The user's schedule for these inputs, written now if there is a `schedule()` and none yet.

        `without_memory`: whether there are inputs that have no signature because they have no memory.
        """
        schedules = self._schedules(leaf)
        key = self._signature(leaf, inputs, device)
        found = schedules.find(key)
        fits = key is not None or without_memory
        if fits and self._has_schedule and (found is None or rebuild):
            with self._writing:
                found = schedules.find(key)
                if found is None or rebuild:
                    found = self._write_schedule(schedules, inputs, device)
        return found

    def _write_schedule(
        self, schedules: BySignature, inputs: Inputs, device: torch.device | None
    ) -> FinishedSchedule:
        if self._in_schedule:
            raise ExecutionOrderError("schedule(): it executes the definition that it schedules")
        self._setup_schedule(inputs, overwrite_existing_schedule=True, device=device)
        self._in_schedule = True
        try:
            self.schedule()
        except BaseException:
            self._open_schedule = None
            raise
        finally:
            self._in_schedule = False
        return self._keep_schedule(schedules, inputs, device)

    def _signature(self, leaf: FusionSchedules, inputs: Inputs, device: torch.device | None) -> Hashable:
        """Of flat inputs; see `FusionSchedules.signature`."""
        return leaf.signature(inputs, device, self._options.sim_device)

    def _setup_schedule(
        self,
        inputs: Inputs,
        overwrite_existing_schedule: bool = False,
        device: torch.device | None = None,
    ) -> None:
        """Opens a schedule for inputs like these: `sched` acts on it until `_finalize_schedule`."""
        leaf = self._complete()
        arguments = flattened(inputs)
        if self._exist_schedule(arguments, device) and not overwrite_existing_schedule:
            warnings.warn(
                "A user schedule exists for these inputs already, and is written anew", stacklevel=2
            )
        hardware = hardware_for(place_of(arguments, device), self._options)
        self._open_schedule = UserSchedule(leaf, arguments, device, hardware)

    def _finalize_schedule(self, inputs: Inputs, device: torch.device | None = None) -> None:
        """Keeps the open schedule for inputs like these."""
        self._keep_schedule(self._schedules(self._complete()), inputs, device)

    def _keep_schedule(
        self, schedules: BySignature, inputs: Inputs, device: torch.device | None
    ) -> FinishedSchedule:
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
        finished = leaf.user_schedule(user.schedule, user.params)
        if signature is not None:
            schedules.put(signature, finished)
        return finished

    def _exist_schedule(self, inputs: Inputs, device: torch.device | None = None) -> bool:
        """Whether the user has scheduled this definition for inputs like these."""
        leaf = self._leaf
        if leaf is None:
            return False
        return self._signature(leaf, flattened(inputs), device) in self._schedules(leaf)
