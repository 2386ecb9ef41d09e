"""Serves calls with new sizes from recordings of earlier calls (`recorded_calls`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fusewright.core.errors import ScheduleError
from fusewright.core.tracing import SILENT
from fusewright.host.inputs.binding import Binder, Binding
from fusewright.host.inputs.scalars import checked_scalar
from fusewright.host.kernels.calls import Question
from fusewright.host.kernels.kept_partitions import KeptPartitions
from fusewright.host.kernels.settings import DeviceState, Setting
from fusewright.host.program.plan import StepPlan
from fusewright.host.program.programs import BoundProgram, Chosen, Template
from fusewright.host.reuse.rebinding import Key, Rebinding
from fusewright.host.reuse.recorded_calls import Kind
from fusewright.host.reuse.stable_sizes import StableSizes
from fusewright.schedulers import is_built_in
from fusewright.segment import Call, Exclusions, Partitions, Planned
from fusewright.sym import Symbol


@dataclass(frozen=True, slots=True)
class Decided:
    """The planners' decision for a call, which other calls may reuse.

    Attributes:
        partitions, required: the partitions that were asked, and the exclusions that were required.
        planned: the chosen partition and its proposals.
        own: one step for each segment.
        plans: the steps of the program; segments that share a launch are one step.
    """

    partitions: Partitions
    planned: Planned
    required: Exclusions
    own: Sequence[StepPlan]
    plans: Sequence[StepPlan]

    def is_found_again(self, call: Call) -> bool:
        """Whether another call gets the same partition and the same params.

        It is False if a user's scheduler is asked. Its planner may read more than its arguments, so it must
        be asked at each call.
        """
        if not all(is_built_in(s.scheduler) for s in self.partitions.asked(call, self.required)):
            return False
        found = self.partitions.kept(call, self.required)
        if found is None or found.partition is not self.planned.partition:
            return False
        return all(a.params == b.params for a, b in zip(found.proposals, self.planned.proposals))


class Recall:
    """Finds and records calls of one fusion, by their keys.

    Args:
        question: returns the partition's input for a call, from its setting, binding and stable sizes.
    """

    def __init__(
        self,
        binder: Binder,
        stable_sizes: StableSizes,
        partitions: KeptPartitions,
        question: Callable[[Setting, Binding, None, frozenset[Symbol]], Question],
    ) -> None:
        self._binder = binder
        self._rebinding = Rebinding(binder.fusion, binder)
        self._stable_sizes = stable_sizes
        self._partitions = partitions
        self._question = question

    def find(self, setting: Setting, key: Key, inputs: Sequence[Any]) -> BoundProgram | None:
        """The program of a call that a recording serves; None if none does. Raises if inputs do not fit."""
        split = self._rebinding.split(key)
        if split is None:
            return None
        kind, numbers = split
        known = setting.kinds.find(kind)
        if known is None or not known.recorded:
            return None
        for i, scalar in self._binder.scalars:
            checked_scalar(i, scalar, inputs[i])
        try:
            program = known.find(numbers, self._rebinding, self._stable_sizes)
        except ScheduleError:  # the launch is refused: the call is decided anew
            return None
        if program is not None:
            setting.programs.put(key, program)
        return program

    def note(
        self,
        setting: Setting,
        place: DeviceState,
        key: Key,
        binding: Binding,
        stable: frozenset[Symbol],
        decided: Decided,
        repro: Callable[[], str],
    ) -> None:
        """Notes the decision for a call, so that it may be recorded and serve other calls of its kind."""
        split = self._rebinding.split(key)
        if split is not None:
            kind = setting.kinds.get(split[0], lambda: Kind(binding))
            decide = partial(self._decided_again, setting, place, stable, decided)
            kind.note(split[1], self._rebinding, stable, decide, repro)

    def _decided_again(
        self,
        setting: Setting,
        place: DeviceState,
        stable: frozenset[Symbol],
        decided: Decided,
        binding: Binding,
    ) -> tuple[Template, tuple[Any, ...]] | None:
        """The program and the values to bind it to; None if the call is now decided in another way.

        binding: the call's binding, whose numbers are recorded.
        """
        question = self._question(setting, binding, None, stable)
        memory = question.memory
        if self._partitions.without(question.uncomputed, memory.input_layouts) is not decided.partitions:
            return None
        if not decided.is_found_again(question.call):
            return None
        launches = decided.planned.partition.launches
        plans = place.bundles.joined(decided.own, launches, memory, SILENT)
        if plans != decided.plans:
            return None
        return place.programs.decided(Chosen(plans, question.views, question.empty), binding, memory, SILENT)
