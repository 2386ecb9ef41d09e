"""`fd.kernels_for`: the kernels of a call as values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from fusewright.core.options import Options
from fusewright.core.tracing import Tracer
from fusewright.frontend.inputs import Device, Inputs, device_named, flattened, listed
from fusewright.frontend.recorded.fusion_schedules import FusionSchedules
from fusewright.frontend.recorded.origins import explained
from fusewright.frontend.recorded.states import StateKind
from fusewright.frontend.scheduling.workbench import schedule_text
from fusewright.frontend.segments.definitions import GivenSchedules, Segmentation, segment_schedules
from fusewright.host import AnySchedule, SegmentKernel, SegmentKernels, SegmentSchedules
from fusewright.host.inputs.memory_checks import has_no_memory
from fusewright.host.kernels.segment_kernels import Wording
from fusewright.ir import Val
from fusewright.schedulers import Registry

if TYPE_CHECKING:
    from fusewright.frontend.definition import FusionDefinition

#: The state of the definition that is described -> the state that the user knows; None: no such state.
Renamed = Callable[[int], int | None]


class Described:
    """The methods of `FusionDefinition` that describe the kernels of a call."""

    if TYPE_CHECKING:  # FusionDefinition's
        _registry: Registry | None
        _tracer: Tracer
        _segmentation: Segmentation | None
        _check_written: Callable[[], None]
        _complete: Callable[[], FusionSchedules]
        _user_schedule: Callable[..., AnySchedule | None]
        _given_for: Callable[..., SegmentSchedules]

        @property
        def _is_scheduled(self) -> bool: ...

        @property
        def _options(self) -> Options: ...

    @explained
    def kernels_for(
        self,
        inputs: Inputs,
        *,
        device: Device | None = None,
        override_user_schedule: bool = False,
        schedules: GivenSchedules | None = None,
    ) -> SegmentKernels:
        """The kernels that `execute` would run for these inputs, in launch order. Nothing runs.

        Each has the params with their reason, the scheduler's estimate, the schedule, the CUDA text,
        registers, shared memory and occupancy, and its tensors. They print as a table. The text is compiled
        when something needs its machine code, as registers and the table do. After `segment` the
        kernels are those of all segments, with this definition's names for their tensors.

        Args:
            inputs: may be fake tensors, or meta tensors with a `device`. On a machine without a GPU, `"cuda"`
                stands for the simulated GPU.
            device: where the call runs if no input determines it.
            override_user_schedule: use the automatic schedule, even if the user wrote a schedule.
            schedules: as `execute` takes them.

        Raises:
            UserError: inputs that do not fit the definition.
            DeviceError: meta tensors without `device`.
        """
        self._check_written()
        place = None if device is None else device_named(device)
        arguments = flattened(listed(inputs, "kernels_for"))
        segmentation = self._segmentation
        if segmentation is None:
            return self._kernels_for(arguments, place, override_user_schedule, schedules)
        given = {} if schedules is None else segmentation.by_definition(schedules)
        found: list[SegmentKernel] = []

        def describe(
            definition: FusionDefinition, passed: list[Any], device: torch.device | None, views: bool
        ) -> list[torch.Tensor]:
            own = {segmentation.kernel_of[definition]: given[definition]} if definition in given else None
            renamed = segmentation.maps[definition].get
            with segmentation.numbered(definition):
                kernels = definition._kernels_for(passed, device, override_user_schedule, own, views, renamed)
            index = segmentation.definitions.index(definition)
            found.extend(_placed(kernel, index) for kernel in kernels)
            return definition._complete().executor.empty_outputs(passed, device, as_meta=True)

        segmentation.outline(arguments, place, describe)
        parallel = not self._options.disabled("parallel_compile")
        return SegmentKernels(found, parallel, self._tracer)

    @explained
    def _kernels_for(
        self,
        arguments: Sequence[Any],
        place: torch.device | None,
        automatic: bool,
        schedules: GivenSchedules | None,
        views: bool = True,
        renamed: Renamed = lambda state: state,
    ) -> SegmentKernels:
        """Of flat inputs, for a definition that runs as a whole. `views`: whether outputs may be views."""
        leaf = self._complete()
        schedule: AnySchedule | None = None
        if schedules is not None:
            schedule = self._given_for(leaf, segment_schedules(schedules), arguments, place, views)
        elif not automatic and self._is_scheduled:
            no_memory = has_no_memory(arguments)
            schedule = self._user_schedule(leaf, arguments, place, without_memory=no_memory, views=views)

        def name(value: Val) -> str | None:
            own = leaf.state.index.get(value, -1)
            state = renamed(own) if own >= 0 else None
            return None if state is None else f"{StateKind.TENSOR.value}{state}"

        return leaf.executor_for(self._registry).segment_kernels(
            arguments,
            Wording(name, lambda launch: schedule_text(leaf, [launch])),
            device=place,
            options=self._options,
            tracer=self._tracer,
            user_schedule=schedule,
            views=views,
        )


def _placed(kernel: SegmentKernel, index: int) -> SegmentKernel:
    """A kernel of the definition of segment `index`."""
    return replace(kernel, segments=(index,), parts=tuple([_placed(part, index) for part in kernel.parts]))
