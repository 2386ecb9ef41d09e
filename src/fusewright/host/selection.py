"""Which kernels serve a call: the partition of a fusion whose proposals hold for the call's sizes.

A partition follows from structure. For given sizes a scheduler may reject a segment, or propose that several
kernels would be faster; and a proposal of a built-in scheduler may prove wrong, which is a fault of
Fusewright. Each excludes the scheduler from the nodes of that segment, and the fusion is partitioned again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from fusewright.core.errors import (
    DriverError,
    InternalError,
    NoSchedulerError,
    RejectedError,
    SimulationError,
)
from fusewright.core.once import OnceCache
from fusewright.core.tracing import Tracer
from fusewright.ir import Fusion, Node
from fusewright.schedulers import Proposal, Registry, Reject, is_built_in, naming, type_name
from fusewright.segment import NO_EXCLUSIONS, Exclusions, Segment, SegmentedFusion, partition

# Partitions of a fusion, by what is excluded. The one that was made first is evicted first.
MAX_PARTITIONS = 64

logger = logging.getLogger("fusewright")

Plan = TypeVar("Plan")


class Partitions:
    """The partitions of one fusion. Safe to use from several threads."""

    def __init__(self, fusion: Fusion, registry: Registry) -> None:
        self._fusion = fusion
        self._registry = registry
        self._made: OnceCache[Exclusions, SegmentedFusion | NoSchedulerError] = OnceCache(MAX_PARTITIONS)

    def find(self, tracer: Tracer, exclusions: Exclusions = NO_EXCLUSIONS) -> SegmentedFusion:
        """The partition without what is excluded. NoSchedulerError if there is none."""
        found = self._find(tracer, exclusions)
        if isinstance(found, NoSchedulerError):
            raise found
        return found

    def unschedulable(self, tracer: Tracer, exclusions: Exclusions) -> frozenset[Node]:
        """The nodes that no scheduler takes where these are excluded; empty if there is a partition."""
        found = self._find(tracer, exclusions)
        return found.nodes if isinstance(found, NoSchedulerError) else frozenset()

    def _find(self, tracer: Tracer, exclusions: Exclusions) -> SegmentedFusion | NoSchedulerError:
        def make() -> SegmentedFusion | NoSchedulerError:
            with tracer.stage("segment"):
                try:
                    return partition(self._fusion, self._registry, tracer, exclusions)
                except NoSchedulerError as error:
                    return error

        return self._made.get(exclusions, make)


class Selection(Generic[Plan]):
    """The kernels of one call.

    Args:
        start: told the segments of each partition before they are planned.
        plan: what the scheduler of a segment proposes for the call.
        make: what computes a segment with the params of a proposal.
        repro: a script that reproduces the call, for faults.
        required: what no partition may do.
    """

    def __init__(
        self,
        partitions: Partitions,
        start: Callable[[Sequence[Segment]], None],
        plan: Callable[[Segment], Proposal | Reject],
        make: Callable[[Segment, Proposal], Plan],
        repro: Callable[[], str],
        tracer: Tracer,
        required: Exclusions = NO_EXCLUSIONS,
    ) -> None:
        self._partitions = partitions
        self._start = start
        self._plan = plan
        self._make = make
        self._repro = repro
        self._tracer = tracer
        #: what cannot be, and what is faster otherwise
        self._required = required
        self._preferred = NO_EXCLUSIONS
        #: scheduler and node: nothing but that scheduler takes the node, so it stays
        self._final: frozenset[tuple[str, Node]] = frozenset()

    def plans(self) -> list[Plan]:
        """One a segment, in order.

        Raises:
            NoSchedulerError, RejectedError: no scheduler takes part of the fusion, at these sizes or at all.
            SchedulerError: a registered scheduler failed.
            InternalError: a fault that no other partition avoids.
        """
        while True:
            segments = self._partitions.find(self._tracer, self._excluded()).segments
            self._start(segments)
            proposals: list[Proposal] = []
            for segment in segments:
                answer = self._plan(segment)
                if isinstance(answer, Reject):
                    error = RejectedError(scheduler=type_name(segment.scheduler.type), reason=answer.reason)
                    if not self._exclude(segment):
                        raise error
                    break
                proposals.append(answer)
            if len(proposals) < len(segments) or self._prefer_splits(segments, proposals):
                continue
            plans = self._plans(segments, proposals)
            if plans is not None:
                return plans

    def _excluded(self) -> Exclusions:
        if self._preferred is NO_EXCLUSIONS:
            return self._required
        return self._required | self._preferred

    def _plans(self, segments: Sequence[Segment], proposals: Sequence[Proposal]) -> list[Plan] | None:
        """The plans, or None where one cannot be made and another partition is to be tried."""
        plans = []
        for segment, proposal in zip(segments, proposals):
            try:
                plans.append(self._make(segment, proposal))
            except Exception as error:
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
        if not self._exclude(segment):
            raise InternalError(problem=problem, repro=self._repro()) from error
        fault = InternalError(problem=f"{problem}\nOther kernels are used.", repro=self._repro())
        logger.error("%s", fault, exc_info=error)

    def _exclude(self, segment: Segment) -> bool:
        """Excludes a segment as it is, with as little else as can be; False if there is no partition then.

        Its scheduler is asked about none of its nodes; if nobody else takes these, about no two of them.
        """
        name, nodes = type_name(segment.scheduler.type), segment.nodes
        options = [self._required.without_nodes(name, nodes)]
        if len(nodes) > 1:
            options.append(self._required.without_merges(name, nodes))
        for option in options:
            if not self._partitions.unschedulable(self._tracer, option):
                self._required, self._preferred = option, NO_EXCLUSIONS
                return True
        return False

    def _prefer_splits(self, segments: Sequence[Segment], proposals: Sequence[Proposal]) -> bool:
        """Excludes the segments that are faster as several kernels; whether that changes the partition.

        All of them are excluded at once, so that a round costs one partition, or one more where nodes prove
        to be final: nothing takes them but the scheduler that would rather not.
        """
        splits = [
            frozenset((type_name(segment.scheduler.type), node) for node in segment.nodes)
            for segment, proposal in zip(segments, proposals)
            if proposal.better_split is not None
        ]
        while wanted := frozenset().union(*(nodes for nodes in splits if self._final.isdisjoint(nodes))):
            preferred = Exclusions(self._preferred.nodes | wanted)
            unschedulable = self._partitions.unschedulable(self._tracer, self._required | preferred)
            if not unschedulable:
                self._preferred = preferred
                return True
            self._final |= frozenset(pair for pair in wanted if pair[1] in unschedulable) or wanted
        return False
