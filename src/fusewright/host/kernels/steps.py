"""Makes the steps of a call, one for each segment: the launch of a compiled kernel, or torch's evaluation."""

from __future__ import annotations

from typing import Any

from fusewright.core.collector import paused_collector
from fusewright.core.errors import ParamsError
from fusewright.core.tracing import Tracer
from fusewright.host.inputs.binding import Binding
from fusewright.host.kernels.finished import FinishedSchedule, check_one_kernel, check_params
from fusewright.host.kernels.settings import DeviceState, Setting
from fusewright.host.program.evaluation import EvaluatePlan
from fusewright.host.program.ir import Evaluate, LaunchKernel
from fusewright.host.program.plan import LaunchPlan, StepPlan
from fusewright.ir import Fusion
from fusewright.runtime.arguments import slot_values
from fusewright.runtime.compiled_kernel import CompiledKernel
from fusewright.runtime.compiler import chosen_index_type, index_dtype_of, register_limit_of
from fusewright.segment import Segment


class Steps:
    """Makes the steps of one call of `fusion`, or finds those of an earlier call."""

    def __init__(
        self, fusion: Fusion, setting: Setting, place: DeviceState, binding: Binding, tracer: Tracer
    ) -> None:
        self._fusion = fusion
        self._setting = setting
        self._place = place
        self._binding = binding
        self._tracer = tracer

    def of(self, segment: Segment, params: Any) -> StepPlan:
        """The step that computes a segment with these params.

        Raises:
            ParamsError: the index type of the params is too narrow for the call.
        """
        place = self._place
        node = segment.evaluated
        if node is not None:
            op = Evaluate(segment.index, node, segment.operands, segment.results, segment.outputs)
            return place.evaluations.get(segment, lambda: EvaluatePlan(op, segment, place.target))
        index_dtype = index_dtype_of(params, self._binding.index_dtype)
        key = segment, params, index_dtype
        known = place.launches.find(key)
        if known is not None:
            return known

        def make() -> LaunchPlan:
            with segment.names.in_errors(), paused_collector():
                kernel = self._setting.compiler.compile(
                    segment.fusion,
                    segment.scheduler,
                    params,
                    place.target.hardware,
                    index_dtype,
                    tracer=self._tracer,
                    text=segment.text,
                    names=str(segment.names) if self._tracer.dumps_compilation else "",
                )
            values = (*segment.inputs, *segment.outputs)
            op = LaunchKernel(segment.index, kernel, values, segment.outputs, segment.bases)
            return LaunchPlan(op, segment, place.target)

        return place.launches.get(key, make)

    def scheduled(self, segment: Segment, own: FinishedSchedule | Any) -> StepPlan:
        """The step that computes a segment with the user's schedule or params.

        Raises:
            ParamsError: the params belong to another scheduler, or cannot be applied.
        """
        if isinstance(own, FinishedSchedule):
            return self._launch(own, segment)
        check_params(segment, own)
        try:
            return self.of(segment, own)
        except ParamsError as error:
            error.move_into(f"schedules[{segment.index}]")
            raise

    def of_user(self, schedule: FinishedSchedule) -> LaunchPlan:
        """The launch of a user's schedule of the whole fusion. Equal schedules share their kernel.

        Raises:
            ScheduleError: no kernel can compute the fusion as a whole.
        """
        check_one_kernel(self._fusion)
        return self._launch(schedule, None)

    def _launch(self, schedule: FinishedSchedule, segment: Segment | None) -> LaunchPlan:
        """The launch of a user's schedule. `segment`: what it computes. None: the whole fusion."""
        setting, place, tracer = self._setting, self._place, self._tracer
        index_dtype = index_dtype_of(schedule.params, self._binding.index_dtype)
        hardware = place.target.hardware

        def compile_() -> CompiledKernel:
            return setting.compiler.compile_schedule(
                schedule.schedule, hardware, index_dtype, params=schedule.params, tracer=tracer
            )

        def make() -> LaunchPlan:
            text = segment.text if segment is not None else None
            # The kernel's printed schedule contains the index type that the params name, so it is in the key.
            chosen = chosen_index_type(schedule.params)
            key = text, schedule.text, chosen, index_dtype, hardware
            general = setting.user_kernels.get(key, compile_)
            kernel = general.with_register_limit(register_limit_of(schedule.params), tracer)
            if segment is None:
                outputs = tuple(t for t in self._fusion.output_tensors() if t.definition is not None)
                op = LaunchKernel(0, kernel, slot_values(self._fusion), outputs)
            else:
                values = (*segment.inputs, *segment.outputs)
                op = LaunchKernel(segment.index, kernel, values, segment.outputs, segment.bases)
            return LaunchPlan(op, segment, place.target)

        return place.launches.get((segment, schedule.key, index_dtype), make)
