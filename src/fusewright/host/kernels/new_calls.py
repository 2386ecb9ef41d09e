"""Calls that no program is bound to yet: chooses and compiles the kernels that serve them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from fusewright.core.tracing import Tracer
from fusewright.host.inputs.binding import Binding
from fusewright.host.inputs.memory import Memory, check_room
from fusewright.host.kernels.calls import Question
from fusewright.host.kernels.finished import AnySchedule, SegmentSchedules
from fusewright.host.kernels.kept_partitions import KeptPartitions
from fusewright.host.kernels.learned_params import LearnedParams
from fusewright.host.kernels.recall import Decided
from fusewright.host.kernels.selection import Selection
from fusewright.host.kernels.settings import DeviceState, Setting
from fusewright.host.kernels.steps import Steps
from fusewright.host.program.plan import LaunchError, StepPlan
from fusewright.host.program.programs import Chosen
from fusewright.ir import Fusion
from fusewright.schedulers import Proposal, is_built_in, naming
from fusewright.segment import Segment
from fusewright.sym import Symbol

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class NewCall:
    """The facts about a call when its kernels are made.

    Attributes:
        setting, place: the state shared by its options, and by the device that it runs on.
        schedule: the user's schedule. None: all kernels are scheduled automatically.
        binding, memory: the call's sizes and scalars, and the layouts of its tensors.
        stable: the sizes that kernels may have as constants.
        repro: makes a script that reproduces the call, for errors that are bugs.
        tracer: traces the compilation.
    """

    setting: Setting
    place: DeviceState
    schedule: AnySchedule | None
    binding: Binding
    memory: Memory
    stable: frozenset[Symbol]
    repro: Callable[[], str]
    tracer: Tracer

    def steps(self, fusion: Fusion) -> Steps:
        return Steps(fusion, self.setting, self.place, self.binding, self.tracer)


def served(
    fusion: Fusion,
    call: NewCall,
    schedules: SegmentSchedules | None,
    kept: KeptPartitions,
    question: Question,
    use: Callable[[Chosen], Result],
    note: Callable[[Decided], None] | None,
) -> Result:
    """Chooses the steps that serve a call and returns the result of `use` on them.

    If `use` raises a LaunchError, other steps are chosen, unless the user asked for these.

    Args:
        schedules: the user's schedules of some segments; the others are scheduled automatically.
        question: the partition's input.
        note: called with the decision for the call, if later calls may reuse it.
    """
    steps, place, memory = call.steps(fusion), call.place, call.memory
    learned = LearnedParams(call.setting.options.policy, question.call)
    proposals: dict[Segment, Proposal] = {}

    def make(segment: Segment, proposal: Proposal) -> StepPlan:
        own = None if schedules is None else schedules.of(segment)
        if own is not None:
            return steps.scheduled(segment, own)
        proposals[segment] = proposal
        return learned.made(segment, proposal, steps.of)

    views, empty, uncomputed = question.views, question.empty, question.uncomputed
    if schedules is not None:
        schedules.check()
        (views, empty), uncomputed = schedules.planned.outputs_in(question), schedules.planned.uncomputed
    partitions = kept.without(uncomputed, memory.input_layouts)
    required = question.required
    selection = Selection(partitions, question.call, make, call.repro, call.tracer, required, schedules)
    while True:
        own, launches = selection.plans()
        plans = place.bundles.joined(own, launches, memory, call.tracer)
        try:
            result = use(Chosen(plans, views, empty, proposals))
            if note is not None and selection.is_first and selection.planned is not None:
                note(Decided(partitions, selection.planned, required, own, plans))
            return result
        except LaunchError as error:
            segment, cause = error.launch.segment, error.cause
            assert segment is not None
            if learned.distrust(segment, cause):
                continue
            if selection.is_users(segment):
                raise cause from None
            if not is_built_in(segment.scheduler):
                with naming(segment.scheduler, "apply"):
                    raise cause from None
            check_room(segment.outputs, memory, place.target.hardware)
            selection.report_fault(segment, cause)
