"""A user's finished schedules, which replace automatic ones in a call."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from fusewright.core.errors import ParamsError, ScheduleError
from fusewright.core.once import cached_property
from fusewright.host.kernels.calls import Question
from fusewright.host.program.views import Views
from fusewright.ir import Fusion, TensorView
from fusewright.schedule import Schedule
from fusewright.schedulers import Facts, HeuristicParams, type_name
from fusewright.segment import Planned, Segment


class FinishedSchedule:
    """A schedule of a whole fusion that does not change any more. Compared by identity.

    Args:
        params: the params that an automatic scheduler applied to it at the user's request, if one did. The
            compiler reads the index type and the register limit from them.

    Attributes:
        text: the printed primitives, which can be replayed. Schedules of one fusion with equal text are
            lowered to the same kernel.
        key: the text, and the part of the params that the compiler reads. Schedules with equal keys are
            compiled to the same kernel.
    """

    def __init__(self, schedule: Schedule, params: Any = None) -> None:
        self.schedule = schedule
        self.params = params
        cparams = params.cparams if isinstance(params, HeuristicParams) else None
        self.text = schedule.to_python()
        self.key: Hashable = self.text, cparams


class PlannedCall:
    """The automatic partition of one call, parts of which a user may schedule.

    Attributes:
        segments, proposals: the segments, and the scheduler's proposal for each.
        facts: a function that returns the facts about a segment in this call.
        uncomputed: the outputs that no segment computes: views of inputs, and outputs without elements.
    """

    def __init__(self, planned: Planned, question: Question) -> None:
        self.segments = planned.partition.segments
        self.proposals = planned.proposals
        self.facts: Callable[[Segment], Facts] = question.call.facts
        self.uncomputed = question.uncomputed

    def outputs_in(self, question: Question) -> tuple[Views, tuple[TensorView, ...]]:
        """The views and the empty outputs of `question`, without those that these segments compute.

        question: the partition's input for a later call that uses this partition.
        """
        views = {output: view for output, view in question.views.items() if output in self.uncomputed}
        return views, tuple([output for output in question.empty if output in self.uncomputed])

    def check_kernel(self, index: int) -> None:
        """Raises ScheduleError if no kernel computes a segment with this index."""
        if not 0 <= index < len(self.segments) or self.segments[index].evaluated is not None:
            raise no_kernel(index, len(self.segments))


def no_kernel(index: int, count: int) -> ScheduleError:
    """The error for a schedule of a segment that does not exist, or that torch computes."""
    return ScheduleError(
        f"schedules: segment {index} is none that a kernel computes",
        expected=f"the number of one of {count} segments in launch order",
        given=index,
    )


def check_one_kernel(fusion: Fusion) -> None:
    """Raises ScheduleError for a fusion that no kernel can compute as a whole."""
    for node in fusion.ordered_nodes():
        if node.traits.whole or node.traits.updates:
            reason = "torch computes" if node.traits.whole else "several kernels compute"
            raise ScheduleError(
                f"{reason} {node.label}, so no schedule of one kernel holds it",
                hint="fd.sched.segment(i) schedules one kernel of the automatic partition",
            )


def check_params(segment: Segment, params: Any) -> None:
    """Raises ParamsError for params of another scheduler than the segment's."""
    if not isinstance(params, segment.scheduler.params_type):
        raise ParamsError(
            path=f"schedules[{segment.index}]",
            expected=f"{segment.scheduler.params_type.__name__}, of the scheduler "
            f"{type_name(segment.scheduler.type)}, or a function that schedules it with fd.sched",
            given=type(params).__name__,
        )


@dataclass(frozen=True, eq=False)
class SegmentSchedules:
    """User schedules of some segments of a call; the others are automatic. Compared by identity.

    Attributes:
        by_index: pairs of a segment's position in launch order and its schedule, or params of its scheduler.
        planned: the partition that contains these segments.
    """

    by_index: tuple[tuple[int, FinishedSchedule | Any], ...]
    planned: PlannedCall

    def check(self) -> None:
        """Raises ScheduleError if a kernel does not compute each of these segments."""
        for index, _ in self.by_index:
            self.planned.check_kernel(index)

    def of(self, segment: Segment) -> FinishedSchedule | Any | None:
        """The user's schedule or params of a segment; None if it is scheduled automatically.

        The segment may belong to another partition than `planned`.
        """
        return self._by_segment.get(_identity(segment))

    def missing_in(self, segments: Iterable[Segment]) -> list[int]:
        """The positions of the user's segments that are not among `segments`."""
        there = set(map(_identity, segments))
        return [i for i, _ in self.by_index if _identity(self.planned.segments[i]) not in there]

    @cached_property
    def _by_segment(self) -> dict[Hashable, FinishedSchedule | Any]:
        return {_identity(self.planned.segments[index]): own for index, own in self.by_index}


def _identity(segment: Segment) -> Hashable:
    """A key that is equal for segments that do the same computation on the same values."""
    return segment.text, segment.inputs, segment.outputs


#: A user's schedule of the whole fusion, or schedules of some of its segments.
AnySchedule = FinishedSchedule | SegmentSchedules
