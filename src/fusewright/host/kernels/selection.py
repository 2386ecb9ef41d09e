"""Chooses the partition for a call whose kernels can all be made.

If a kernel that a built-in scheduler proposed cannot be made, this is a bug in Fusewright. It is logged with
a script, and the fusion is partitioned again without the proposal.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from fusewright.core.errors import DriverError, InternalError, ScheduleError, SimulationError
from fusewright.core.tracing import Tracer
from fusewright.host.kernels.finished import SegmentSchedules
from fusewright.schedulers import Proposal, is_built_in, naming, type_name
from fusewright.segment import NO_EXCLUSIONS, Call, Exclusions, Partitions, Planned, Segment

logger = logging.getLogger("fusewright")

Plan = TypeVar("Plan")


class Selection(Generic[Plan]):
    """The kernels of one call.

    Args:
        make: makes the step that computes a segment with the params of a proposal.
        repro: makes a script that reproduces the call, for errors that are bugs.
        required: exclusions that every partition must obey.
        given: the user's schedules of some segments, and their partition. If another segment fails, the new
            partition must contain the user's segments, too.
    """

    def __init__(
        self,
        partitions: Partitions,
        call: Call,
        make: Callable[[Segment, Proposal], Plan],
        repro: Callable[[], str],
        tracer: Tracer,
        required: Exclusions = NO_EXCLUSIONS,
        given: SegmentSchedules | None = None,
    ) -> None:
        self._partitions = partitions
        self._call = call
        self._make = make
        self._repro = repro
        self._tracer = tracer
        self._required = self._required_first = required
        self._given = given
        self._is_given = given is not None
        #: the partition of the latest `plans`; None if that is the partition of the user's schedules
        self.planned: Planned | None = None

    def plans(self) -> tuple[list[Plan], Sequence[Sequence[int]]]:
        """One plan per segment, in order, and the positions of segments that share a launch.

        Raises:
            ScheduleError: another segment failed, and no partition without it has the user's segments.
            NoSchedulerError, RejectedError: no scheduler accepts part of the fusion, at these sizes or at
                all.
            SchedulerError: a registered scheduler failed.
            InternalError: a bug that no other partition avoids.
        """
        while True:
            segments, proposals, launches = self._planned()
            plans = self._plans(segments, proposals)
            if plans is not None:
                return plans, launches

    @property
    def is_first(self) -> bool:
        """Whether the segments are those of the first partition, because none of its kernels failed."""
        return self._required is self._required_first

    def _planned(self) -> tuple[Sequence[Segment], Sequence[Proposal], Sequence[Sequence[int]]]:
        """(segments, their proposals, the positions of the segments of each launch)."""
        given = self._given
        if given is not None and self._is_given:
            self._call.start(given.planned.segments)
            segments = given.planned.segments
            return segments, given.planned.proposals, _apart(segments)
        planned = self.planned = self._partitions.select(self._call, self._tracer, self._required)
        segments = planned.partition.segments
        if given is None:
            return segments, planned.proposals, planned.partition.launches
        if missing := given.missing_in(segments):
            raise ScheduleError(
                f"schedules: segment {missing[0]} is in no partition whose kernels can all be made",
                expected="schedules of segments that stay as they are",
                given=f"a schedule of segment {missing[0]}, beside an automatic kernel that cannot be made",
                hint="without it, or with one of that other segment, the call runs; the log has the fault",
            )
        return segments, planned.proposals, _apart(segments)

    def is_users(self, segment: Segment) -> bool:
        """Whether the user schedules a segment."""
        return self._given is not None and self._given.of(segment) is not None

    def _plans(self, segments: Sequence[Segment], proposals: Sequence[Proposal]) -> list[Plan] | None:
        """One plan per segment; None if one cannot be made, so that another partition must be tried."""
        plans = []
        for segment, proposal in zip(segments, proposals):
            try:
                plans.append(self._make(segment, proposal))
            except Exception as error:
                if self.is_users(segment):
                    raise
                if not is_built_in(segment.scheduler):
                    with naming(segment.scheduler, "apply"):
                        raise error
                if isinstance(error, (DriverError, SimulationError)):
                    raise
                self.report_fault(segment, error)
                return None
        return plans

    def report_fault(self, segment: Segment, error: Exception) -> None:
        """Logs that the proposal for a segment was wrong, and excludes it from later `plans`.

        Raises:
            InternalError: there is no other partition.
        """
        name = type_name(segment.scheduler.type)
        outputs = ", ".join(tensor.name for tensor in segment.outputs)
        problem = f"the {name} scheduler proposed a kernel for {outputs} that cannot be made: {error}"
        excluded = self._partitions.excluding(segment, self._tracer, self._required)
        if excluded is None:
            raise InternalError(problem=problem, repro=self._repro()) from error
        self._required, self._is_given = excluded, False
        fault = InternalError(problem=f"{problem}\nOther kernels are used.", repro=self._repro())
        logger.error("%s", fault, exc_info=error)


def _apart(segments: Sequence[Segment]) -> Sequence[Sequence[int]]:
    """The launches if each segment is launched by itself."""
    return [[i] for i in range(len(segments))]
