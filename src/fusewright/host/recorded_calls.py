"""What serves calls of one fusion whose sizes are new, but that are decided as calls before them were.

Planners take some fifty microseconds a kernel. So the decisions for a few calls are recorded
(`core.recorded`): a call that answers all questions of a recording as the recorded one did has the same
partition, with the same params, and so the same steps.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from fusewright.core.collector import paused_collector
from fusewright.core.once import OnceCache
from fusewright.core.recorded import Holds, Recorder
from fusewright.host.binding import Binding
from fusewright.host.calls import Question, call_of
from fusewright.host.layout import Layouts, size_value
from fusewright.host.memory import Memory
from fusewright.host.plan import StepPlan
from fusewright.ir import Fusion, TensorView
from fusewright.schedulers import is_built_in
from fusewright.segment import Call, Partitions, Planned, SegmentedFusion
from fusewright.sym import Symbol

# Calls of one kind that are recorded at most, and kinds: a recording takes some milliseconds, and whether it
# holds a microsecond.
MAX_RECORDINGS, MAX_KINDS = 8, 256


@dataclass(frozen=True, slots=True)
class Served:
    """What serves the calls of a recording.

    Attributes:
        plans: of each segment by itself. partition: these segments, and which of them are one launch.
    """

    plans: Sequence[StepPlan]
    partition: SegmentedFusion


@dataclass(slots=True)
class _Recordings:
    """Of calls of one kind.

    Attributes:
        found: what serves a call, with the test of whether it does.
        left: how many more may be made.
        is_due: whether a call was decided without; the next one is recorded.
    """

    found: tuple[tuple[Holds, Served], ...] = ()
    left: int = MAX_RECORDINGS
    is_due: bool = False


class RecordedCalls:
    """Those of one fusion with the same options, on one device.

    Safe to use from several threads without a lock: what one of them adds, another may at worst replace.
    """

    def __init__(self) -> None:
        self._kinds: OnceCache[Hashable, _Recordings] = OnceCache(MAX_KINDS)

    def find(self, partitions: Partitions, binding: Binding, stable: frozenset[Symbol]) -> Served | None:
        """What serves a call that is decided as a recorded one was."""
        known = self._kinds.find(_kind(partitions, binding, stable))
        if known is None or not known.found:
            return None
        numbers = _numbers(binding)
        for holds, served in known.found:
            if holds(numbers):
                return served
        return None

    def note(self, recording: Recording, plans: Sequence[StepPlan]) -> None:
        """Records the second call of its kind that comes here, and later each second one."""
        kind = _kind(recording.partitions, recording.binding, recording.stable)
        known = self._kinds.get(kind, _Recordings)
        if not known.left:
            return
        if not known.is_due:
            known.is_due = True
            return
        known.left, known.is_due = known.left - 1, False
        with paused_collector():
            holds = recording.compiled()
        if holds is None:
            known.left = 0
        else:
            known.found = (*known.found, (holds, Served(tuple(plans), recording.planned.partition)))


def _kind(partitions: Partitions, binding: Binding, stable: frozenset[Symbol]) -> Hashable:
    """What planners are told of a call beside numbers, and about how large its sizes are: as those of other
    magnitudes are decided otherwise, few recordings have to be tried.
    """
    magnitudes = tuple([size.bit_length() for size in binding.sizes.values()])
    return partitions, binding.index_dtype, binding.alignment, stable, magnitudes


def _numbers(binding: Binding) -> list[int]:
    """The numbers that planners are told: sizes and strides."""
    return [*binding.sizes.values(), *[stride for own in binding.strides for stride in own]]


@dataclass(frozen=True, slots=True)
class Recording:
    """A call that was decided by planners.

    Attributes:
        partitions, question: what was asked, and about what. planned: the answer.
        layouts: of the fusion.
    """

    fusion: Fusion
    partitions: Partitions
    question: Question
    binding: Binding
    stable: frozenset[Symbol]
    planned: Planned
    layouts: Layouts

    def compiled(self) -> Holds | None:
        """Whether a call is decided as this one was; None where its numbers do not tell.

        Planners of users are asked at each call: they may read more than they are told.
        """
        call, required = self.question.call, self.question.required
        if not all(is_built_in(segment.scheduler) for segment in self.partitions.asked(call, required)):
            return None
        recorder = Recorder(_numbers(self.binding))
        try:
            found = self.partitions.kept(self._with(recorder.numbers), required)
            if found is None or found.partition is not self.planned.partition:
                return None
            same = [a.params == b.params for a, b in zip(found.proposals, self.planned.proposals)]
            return recorder.compiled() if all(same) else None
        except Exception:  # a planner does with a number what there are no words for
            return None

    def _with(self, numbers: Sequence[int]) -> Call:
        """The call with other sizes and strides."""
        call, layouts = self.question.call, self.question.memory.input_layouts
        binding = _with_numbers(self.fusion, self.binding, numbers, self.stable)
        memory = Memory(self.fusion, binding, self.layouts, layouts)
        return call_of(self.fusion, binding, memory, self.stable, call.hardware, call.horizontal)


def _with_numbers(
    fusion: Fusion, binding: Binding, numbers: Sequence[int], stable: frozenset[Symbol]
) -> Binding:
    """A binding of the same kind of inputs with other sizes and strides.

    What is known of all calls of the kind stays: sizes that are stable, and strides of 0 and 1, which say how
    an input lies.
    """
    left = iter(numbers)
    sizes = {symbol: next(left) for symbol in binding.sizes}
    sizes.update({symbol: binding.sizes[symbol] for symbol in stable})
    shapes = [
        tuple([size_value(axis.visible_extent, sizes) for axis in value.shape])
        if isinstance(value, TensorView)
        else ()
        for value in fusion.inputs
    ]
    strides = [
        tuple([own if own <= 1 and number == own else number for own, number in zip(each, left)])
        for each in binding.strides
    ]
    return replace(binding, sizes=sizes, shapes=tuple(shapes), strides=tuple(strides))
