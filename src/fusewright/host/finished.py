"""A user's schedules once they are finished: what a call is given in place of automatic ones."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from fusewright.core.errors import ScheduleError
from fusewright.ir import TensorView
from fusewright.schedule import Schedule
from fusewright.schedulers import Facts, HeuristicParams
from fusewright.segment import Planned, Segment


class FinishedSchedule:
    """A schedule of a whole fusion that nobody changes any more. Compared by identity.

    Args:
        params: what an automatic scheduler applied to it at the user's request, if one did; the compiler
            takes the index type and the limit of registers from there.

    Attributes:
        key: equal for schedules of one fusion that make the same kernel: the printed primitives, which
            replay, and what of the params the compiler reads.
    """

    def __init__(self, schedule: Schedule, params: Any = None) -> None:
        self.schedule = schedule
        self.params = params
        cparams = params.cparams if isinstance(params, HeuristicParams) else None
        self.key: Hashable = schedule.to_python(), cparams


class PlannedCall:
    """The automatic partition of one call: what a user may schedule a part of.

    Attributes:
        proposals: one a segment. viewed: the outputs that no segment computes, as they are views of inputs.
    """

    def __init__(
        self, planned: Planned, facts: Callable[[Segment], Facts], viewed: frozenset[TensorView]
    ) -> None:
        self.segments = planned.partition.segments
        self.proposals = planned.proposals
        self.facts = facts
        self.viewed = viewed

    def check_kernel(self, index: int) -> None:
        """ScheduleError if `index` is the place of no segment that a kernel computes."""
        if not 0 <= index < len(self.segments) or self.segments[index].evaluated is not None:
            raise ScheduleError(
                f"schedules: segment {index} is none that a kernel computes",
                expected=f"the number of one of {len(self.segments)} segments in launch order",
                given=index,
            )


@dataclass(frozen=True, slots=True, eq=False)
class SegmentSchedules:
    """How some segments of a call are scheduled; the others are automatic. Compared by identity.

    Attributes:
        by_index: the place of a segment in launch order and, for it, a schedule or params of its scheduler.
        planned: what the segments are those of.
    """

    by_index: tuple[tuple[int, FinishedSchedule | Any], ...]
    planned: PlannedCall
