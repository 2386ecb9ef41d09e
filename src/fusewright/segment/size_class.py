"""The partitions of one size class, and for which sizes each of them was chosen, with which params.

A planner takes some fifty microseconds. So its decisions for a few calls are recorded (`core.recorded`): a
call that answers all questions of a recording as the recorded one did has its partition and its params.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from fusewright.core.collector import paused_collector
from fusewright.core.recorded import Holds, Recorder
from fusewright.schedulers.base import Proposal, is_built_in
from fusewright.segment.decision import Planned, accepted
from fusewright.segment.segmented import SegmentedFusion
from fusewright.segment.state import Call

# Partitions that are kept: those of the first calls, as later ones may be rejected by a planner that took the
# sizes before.
MAX_PARTITIONS = 8
# Calls of one kind that are recorded at most, and kinds: a recording takes some milliseconds, and whether it
# holds a microsecond.
MAX_RECORDINGS, MAX_KINDS = 6, 64


@dataclass(slots=True)
class _Recordings:
    """Of calls of one kind.

    Attributes:
        found: what was chosen, with the test of whether it serves a call.
        left: how many more may be made.
        is_due: whether a call was decided without; the next one is recorded.
    """

    found: tuple[tuple[Holds, Planned], ...] = ()
    left: int = MAX_RECORDINGS
    is_due: bool = False


@dataclass(eq=False)
class SizeClass:
    """What is kept of calls whose sizes are alike.

    Safe to use from several threads without a lock: what one of them adds, another may at worst replace.
    """

    partitions: tuple[SegmentedFusion, ...] = ()
    _recordings: dict[Hashable, _Recordings] = field(default_factory=dict)

    def add(self, partition: SegmentedFusion) -> None:
        """Keeps another partition, for sizes that those before do not serve."""
        if len(self.partitions) < MAX_PARTITIONS:
            self.partitions = (*self.partitions, partition)

    def planned(self, call: Call) -> Planned | None:
        """The first partition that all planners accept for a call, if there is one.

        Proposals of a call that may be recorded have no estimates.
        """
        if call.recorded is None:
            return _first(call, self.partitions)
        known = self._recordings.get(call.kind)
        if known is not None:
            for holds, planned in known.found:
                if holds(call.values):
                    call.start(planned.partition.segments)
                    return planned
        partitions = self.partitions
        planned = _first(call, partitions)
        if planned is not None:
            self._record(call, partitions, planned)
        return planned

    def _record(self, call: Call, partitions: Sequence[SegmentedFusion], planned: Planned) -> None:
        """Records the second call, and others that none of the recordings serves."""
        if call.kind not in self._recordings and len(self._recordings) >= MAX_KINDS:
            return
        known = self._recordings.setdefault(call.kind, _Recordings())
        if not known.left:
            return
        if not known.is_due:
            known.is_due = True
            return
        known.left, known.is_due = known.left - 1, False
        with paused_collector():
            holds = _recorded(call, partitions, planned)
        if holds is None:
            known.left = 0
        else:
            proposals = tuple([Proposal(each.params) for each in planned.proposals])
            known.found = (*known.found, (holds, Planned(planned.partition, proposals)))


def _first(call: Call, partitions: Sequence[SegmentedFusion]) -> Planned | None:
    for partition in partitions:
        call.start(partition.segments)
        proposals = accepted(call, partition.segments)
        if proposals is not None:
            return Planned(partition, proposals)
    return None


def _recorded(call: Call, partitions: Sequence[SegmentedFusion], planned: Planned) -> Holds | None:
    """Whether a call is decided as this one was; None where that cannot be told by its numbers.

    Planners of users are asked at each call: they may read more than they are told.
    """
    if not all(is_built_in(segment.scheduler) for each in partitions for segment in each.segments):
        return None
    assert call.recorded is not None
    recorder = Recorder(call.values)
    try:
        again = _first(call.recorded(recorder.numbers), partitions)
        if again is None or again.partition is not planned.partition:
            return None
        same = [a.params == b.params for a, b in zip(again.proposals, planned.proposals)]
        return recorder.compiled() if all(same) else None
    except Exception:  # it does with a number what a recording has no words for
        return None
