"""The workbench of a user's `schedule()`: the fusion as defined, or kernels of its automatic partition."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from fusewright.core.errors import ScheduleError
from fusewright.core.hardware import HardwareInfo
from fusewright.frontend.recorded.fusion_schedules import FusionSchedules
from fusewright.frontend.scheduling.params import EditableParams
from fusewright.host import FinishedSchedule, PlannedCall, SegmentSchedules
from fusewright.host.inputs.binding import Binder
from fusewright.host.program.plan import LaunchPlan
from fusewright.ir import Fusion, TensorView
from fusewright.runtime.compiler import chosen_index_type, register_limit_of
from fusewright.schedule import Schedule, call_lines, function_text, tensor_names
from fusewright.schedulers import Facts
from fusewright.schedulers.params import SchedulerHyperParameters
from fusewright.segment import Segment


def _own_names(fusion: Fusion, names: Mapping[str, str]) -> dict[int, str]:
    """Names of the tensors of a fusion that is to be scheduled, by number.

    Those that the definition has a name for are called so: `names` leads from names in the fusion. Others
    were made by rewrites, and are called by what computes them: `exp_1` is the first exp among them.
    """
    found: dict[int, str] = {}
    taken: set[str] = set()
    counts: dict[str, int] = {}
    for tensor in sorted(fusion.tensors(), key=lambda t: t.number):
        name = names.get(tensor.name)
        if name is None or name in taken:
            label = "input" if tensor.definition is None else tensor.definition.label
            stem = re.sub(r"\W", "_", label).lower()
            counts[stem] = counts.get(stem, 0) + 1
            name = f"{stem}_{counts[stem]}"
        taken.add(name)
        found[tensor.number] = name
    return found


def _defined_names(leaf: FusionSchedules) -> dict[int, str]:
    return _own_names(leaf.fusion, {tensor.name: tensor.name for tensor in leaf.fusion.tensors()})


def _states(leaf: FusionSchedules, tensors: Mapping[int, TensorView]) -> dict[int, TensorView]:
    """What the states of a definition are among `tensors`, which have the numbers of its fusion's."""
    return {
        index: tensors[value.number]
        for index, value in enumerate(leaf.state.values)
        if isinstance(value, TensorView) and value.number in tensors
    }


def _defined_states(leaf: FusionSchedules) -> dict[int, TensorView]:
    return _states(leaf, {tensor.number: tensor for tensor in leaf.fusion.tensors()})


def _segment_states(leaf: FusionSchedules, segment: Segment) -> dict[int, TensorView]:
    # A tensor has one number in all copies of the definition's fusion. Rewrites may have removed it.
    alive = set(segment.fusion.tensors())
    tensors = {
        whole.number: own
        for whole, own in segment.to_segment.items()
        if isinstance(whole, TensorView) and isinstance(own, TensorView) and own in alive
    }
    return _states(leaf, tensors)


def _compile_lines(params: Any, register_limit: int | None) -> list[str]:
    """The statement of what the compiler is told beside a schedule; none if that is nothing."""
    index_type = chosen_index_type(params)
    told = [] if index_type is None else [f"index_type={index_type}"]
    told += [] if register_limit is None else [f"maxrregcount={register_limit}"]
    return [f"fd.sched.set_compile_params({', '.join(told)})"] if told else []


def schedule_text(leaf: FusionSchedules, launches: Sequence[LaunchPlan]) -> str:
    """A function `schedule(fd)` that schedules a definition as the kernels of these launches are."""
    parts = [part for launch in launches for part in launch.parts]
    lines: list[str] = []
    for part in sorted(parts, key=lambda part: part.op.segment):
        schedule = part.op.kernel.schedule
        assert schedule is not None, "a part of a launch is one kernel with a schedule of its own"
        if part.segment is None:
            lines += call_lines(schedule.trace(), _defined_names(leaf))
        else:
            names = _own_names(part.segment.fusion, part.segment.names.table)
            lines.append(f"fd.sched.segment({part.segment.index})")
            lines += call_lines(schedule.trace(), names)
        lines += _compile_lines(part.op.kernel.params, part.op.kernel.register_limit)
    return function_text(lines)


class Workbench:
    """One kernel that is being scheduled: the whole fusion as defined, or a segment.

    Attributes:
        fusion: the fusion to schedule.
        schedule: the scheduled copy.
        facts: the facts about the call that heuristics may read.
        params: the params that an automatic scheduler applied, if one did, with the compiler settings.
        editing: the result of compute_heuristics.
        asked: the scheduler whose choice it is.
        tensors: maps states of the definition to tensors in the scheduled copy.
        index: the inverse of `tensors`.

    Args:
        states: maps states of the definition to values in `fusion`.
        names: of its tensors, by number.
    """

    def __init__(
        self, fusion: Fusion, facts: Facts, states: Mapping[int, TensorView], names: Mapping[int, str]
    ) -> None:
        self.fusion = fusion
        self.facts = facts
        self.schedule = Schedule(fusion)
        self.params: Any = None
        self.editing: EditableParams | None = None
        self.asked = EditableParams(SchedulerHyperParameters())
        self._own_names = names
        copies = {t.number: t for t in self.schedule.tensors()}
        self.tensors = {i: copies[t.number] for i, t in states.items()}
        self.index: dict[TensorView, int] = {}
        for i, tensor in self.tensors.items():
            self.index.setdefault(tensor, i)

    def names(self) -> dict[int, str]:
        """The name of each tensor by number, including those that primitives made."""
        return tensor_names(self.schedule.trace(), self._own_names)

    def tensor(self, name: str | int) -> TensorView:
        """The tensor of a name, or of a number in the scheduled fusion. ScheduleError if there is none."""
        if isinstance(name, int):
            return self.schedule.tensor(name)
        names = self.names()
        for number, own in names.items():
            if own == name:
                return self.schedule.tensor(number)
        raise ScheduleError(
            "tensor: there is none of this name", expected=f"one of {', '.join(names.values())}", given=name
        )

    def lines(self) -> list[str]:
        told = _compile_lines(self.params, register_limit_of(self.params))
        return [*call_lines(self.schedule.trace(), self._own_names), *told]

    def finished(self) -> FinishedSchedule:
        return FinishedSchedule(self.schedule, self.params)


class UserSchedule:
    """The schedule that a user is writing for one signature of inputs.

    `fd.sched` acts on `current`: the whole definition as one kernel or, after `segment(i)`, the i-th kernel
    of the automatic partition. States beyond the definition's are tensors that primitives made.

    Args:
        planned: makes the automatic partition for these inputs.
    """

    def __init__(
        self,
        leaf: FusionSchedules,
        inputs: Sequence[Any],
        device: torch.device | None,
        hardware: HardwareInfo,
        planned: Callable[[], PlannedCall],
    ) -> None:
        self.leaf = leaf
        self.hardware = hardware
        self._make_plan = planned
        self.planned: PlannedCall | None = None
        binding = Binder(leaf.fusion).describe(inputs, device)
        facts = Facts(binding.sizes, binding.strides, binding.alignment, binding.index_dtype)
        self._whole = Workbench(leaf.fusion, facts, _defined_states(leaf), _defined_names(leaf))
        self._segments: dict[int, Workbench] = {}
        self._only: int | None = None
        self.current = self._whole
        self._states: dict[TensorView, int] = {}
        self._made: dict[int, TensorView] = {}

    def segment(self, index: int) -> None:
        """Schedules the i-th kernel of the automatic partition from now on.

        Raises:
            ScheduleError: there is no such kernel, or the whole definition was scheduled already.
        """
        if self._only not in (None, index):
            raise ScheduleError("segment: this schedules another one", expected=str(self._only), given=index)
        if self._whole.schedule.trace():
            raise ScheduleError(
                "segment: the definition was scheduled as one kernel before",
                hint="call segment(i) before the first primitive",
            )
        if self.planned is None:
            self.planned = self._make_plan()
        if index not in self._segments:
            self.planned.check_kernel(index)
            segment = self.planned.segments[index]
            self._segments[index] = Workbench(
                segment.fusion,
                self.planned.facts(segment),
                _segment_states(self.leaf, segment),
                _own_names(segment.fusion, segment.names.table),
            )
        self.current = self._segments[index]

    def schedule_only(self, index: int) -> None:
        """Opens one segment; no other may be scheduled."""
        self.segment(index)
        self._only = index

    def tensor(self, index: int) -> TensorView:
        """The tensor of a state in the current schedule.

        ScheduleError for one that no output depends on, or that another kernel or none computes.
        """
        found = self._made.get(index) or self.current.tensors.get(index)
        if found is not None:
            return found
        if self.current is self._whole:
            raise ScheduleError(f"state {index} is no tensor that an output of this fusion depends on")
        raise ScheduleError(
            f"T{index} is no tensor of this segment",
            expected=f"one of {', '.join(self.current.names().values())}",
            given=f"T{index}",
            hint="automatic kernels move changes of shape to loads and stores, so some tensors are not there",
        )

    def index_of(self, tensor: TensorView) -> int:
        """The state of a scheduled tensor, a new one if it had none."""
        own = self.current.index.get(tensor)
        if own is not None:
            return own
        if tensor not in self._states:
            index = len(self.leaf.state.values) + len(self._states)
            self._states[tensor] = index
            self._made[index] = tensor
        return self._states[tensor]

    def to_python(self) -> str:
        """What was scheduled so far, as a function of the definition."""
        if not self._segments:
            return function_text(self._whole.lines())
        lines = []
        for index, bench in sorted(self._segments.items()):
            lines += [f"fd.sched.segment({index})", *bench.lines()]
        return function_text(lines)

    def finished(self) -> FinishedSchedule | SegmentSchedules:
        """The schedules of a call that replace automatic ones."""
        if self.planned is None or not self._segments:
            return self._whole.finished()
        given = tuple((index, bench.finished()) for index, bench in sorted(self._segments.items()))
        return SegmentSchedules(given, self.planned)
