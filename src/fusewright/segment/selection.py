"""The partitions of a fusion, cached for calls of the same size class."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import TypeVar

from fusewright.core.collector import paused_collector
from fusewright.core.forks import renew_in_child
from fusewright.core.tracing import Tracer
from fusewright.ir import Fusion
from fusewright.schedulers.registry import Registry
from fusewright.segment.decision import Decision, Planned, accepted
from fusewright.segment.draft import Draft
from fusewright.segment.exclusions import NO_EXCLUSIONS, Exclusions
from fusewright.segment.layouts import InputLayout
from fusewright.segment.partition import by_structure
from fusewright.segment.rejection import without_fault
from fusewright.segment.segmented import Segment, SegmentedFusion
from fusewright.segment.state import Call

# The most cached size classes, and partitions of each class. A class has several partitions if a planner
# rejects the sizes of a later call.
MAX_CLASSES, MAX_OF_A_CLASS = 256, 8
Answer = TypeVar("Answer")


class Partitions:
    """The partitions of one fusion. Several threads may use them.

    A call of a cached size class only asks each planner once.

    Args:
        layouts: the layouts of inputs in these calls that differ from the definition's.
    """

    def __init__(self, fusion: Fusion, registry: Registry, layouts: tuple[InputLayout, ...] = ()) -> None:
        self._fusion = fusion
        self._layouts = layouts
        self._registry = registry
        self._draft: Draft | None = None
        self._classes: dict[tuple[Hashable, ...], tuple[SegmentedFusion, ...]] = {}
        self._structural: SegmentedFusion | None = None
        self._lock = threading.RLock()
        renew_in_child(self)

    def renew(self) -> None:
        """After a `fork`: discards in the child what a thread of the parent may have been changing."""
        self._lock = threading.RLock()
        self._draft = None

    def structural(self, tracer: Tracer) -> SegmentedFusion:
        """The partition by structure, for any sizes.

        Raises:
            NoSchedulerError: no scheduler accepts some nodes.
        """
        with self._lock:
            if self._structural is None:
                with tracer.stage("segment"):
                    draft = self._current_draft(tracer)
                    self._structural = by_structure(draft, NO_EXCLUSIONS)
            return self._structural

    def select(self, call: Call, tracer: Tracer, required: Exclusions = NO_EXCLUSIONS) -> Planned:
        """The partition for a call, with these exclusions.

        Raises:
            NoSchedulerError: no scheduler accepts some nodes.
            RejectedError: none accepts them at these sizes.
            SchedulerError: a registered scheduler failed.
        """
        with tracer.stage("heuristic"):
            planned = self.kept(call, required)
        if planned is not None:
            return planned
        key = _key(call, required)
        with self._lock, paused_collector(), tracer.stage("segment"):
            draft = self._current_draft(tracer)
            planned = Decision(draft, call, draft.translated(required)).run()
            known = self._classes.get(key, ())
            if len(known) < MAX_OF_A_CLASS:
                if not known and len(self._classes) >= MAX_CLASSES:
                    del self._classes[next(iter(self._classes))]
                self._classes[key] = (*known, planned.partition)
        tracer.dump("segments", lambda: f"{planned.partition}\n{planned.partition.log()}")
        return planned

    def kept(self, call: Call, required: Exclusions) -> Planned | None:
        """The first cached partition of the call's size class that all planners accept, or None."""
        for partition in self._classes.get(_key(call, required), ()):
            call.start(partition.segments)
            proposals = accepted(call, partition.segments)
            if proposals is not None:
                return Planned(partition, proposals)
        return None

    def asked(self, call: Call, required: Exclusions) -> list[Segment]:
        """The segments whose planners `kept` may ask."""
        return [s for partition in self._classes.get(_key(call, required), ()) for s in partition.segments]

    def ask(
        self,
        call: Call,
        tracer: Tracer,
        required: Exclusions,
        question: Callable[[Draft, SegmentedFusion], Answer],
    ) -> Answer:
        """Calls `question` with the draft and the partition for a call, and returns its answer.

        Raises:
            NoSchedulerError, RejectedError, SchedulerError: as `select`.
        """
        partition = self.select(call, tracer, required).partition
        with self._lock:
            draft = self._current_draft(tracer)
            if all(node in draft.position for segment in partition.segments for node in segment.nodes):
                call.start(partition.segments)
                return question(draft, partition)
            # The partition has nodes of rewrites, which have been undone. The search is repeated to make the
            # graph again; questions are rare.
            with Decision(draft, call, draft.translated(required)).made() as again:
                return question(draft, again.partition)

    def excluding(self, segment: Segment, tracer: Tracer, required: Exclusions) -> Exclusions | None:
        """Exclusions, as few as possible, with which a segment that failed is not made again.

        None if there is no partition with them.
        """
        with self._lock, tracer.stage("segment"):
            draft = self._current_draft(tracer)
            return without_fault(draft, segment, draft.translated(required))

    def as_defined(self, segments: Sequence[Segment]) -> tuple[Segment, ...]:
        """The segments in terms of the definition: with its nodes, and inputs in its order.

        The segments must have no nodes that a rewrite made.
        """
        with self._lock:
            assert self._draft is not None
            own = self._draft.defined_nodes()
        place = {value: i for i, value in enumerate(self._fusion.inputs)}
        found = []
        for segment in segments:
            inputs = tuple(sorted(segment.inputs, key=lambda value: place.get(value, len(place))))
            nodes = tuple([own.get(node, node) for node in segment.nodes])
            found.append(replace(segment, nodes=nodes, inputs=inputs))
        return tuple(found)

    def _current_draft(self, tracer: Tracer) -> Draft:
        if self._draft is None:
            self._draft = Draft(self._fusion, self._registry, tracer, self._layouts)
        return self._draft


def _key(call: Call, required: Exclusions) -> tuple[Hashable, ...]:
    """The cache key: calls with equal keys share their partitions."""
    return call.size_class, call.horizontal, required
