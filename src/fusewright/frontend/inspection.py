"""What can be asked of a definition: its text, its kernels' text, whether results are right, its scripts."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses import FakeTensorMode

from fusewright.core.errors import ArgumentTypeError, DefinitionError, ExecutionOrderError
from fusewright.core.op import movable
from fusewright.core.options import Options
from fusewright.core.tracing import Tracer
from fusewright.frontend.comparison import check_outputs
from fusewright.frontend.handles import Tensor
from fusewright.frontend.inputs import Device, Inputs, device_named, flattened, place_of
from fusewright.frontend.recorded.fusion_schedules import FusionSchedules
from fusewright.frontend.recorded.fusion_state import FusionState
from fusewright.frontend.recorded.origins import explained
from fusewright.frontend.recorded.printing import (
    cuda_text,
    definition_text,
    made_like,
    repro_script,
    scheduled_text,
)
from fusewright.frontend.recorded.recording import Recorder
from fusewright.frontend.scheduling.user_schedules import BySignature
from fusewright.frontend.scheduling.workbench import schedule_text
from fusewright.frontend.tolerances import output_tolerances
from fusewright.host import AnySchedule, FusionExecutor, SegmentSchedules
from fusewright.host.program.plan import LaunchPlan
from fusewright.host.program.programs import BoundProgram
from fusewright.ir import TensorView
from fusewright.ir.text import fusion_text
from fusewright.ops import describe_argument
from fusewright.ops.evaluate import bind_sizes, evaluate_fusion
from fusewright.runtime.compiled_kernel import CompiledKernel
from fusewright.runtime.random_states import random_states
from fusewright.schedulers import Registry
from fusewright.segment import Separation

if TYPE_CHECKING:
    from fusewright.frontend.definition import FusionDefinition


class Inspected:
    """The questions to a `FusionDefinition`, which none of them changes."""

    if TYPE_CHECKING:  # FusionDefinition's
        _leaf: FusionSchedules | None
        _recorder: Recorder | None
        _registry: Registry | None
        _ran: FusionExecutor | None  # what the last call of this object asked
        _repro_inputs: tuple[list[Any], dict[str, Any]] | None

        _tracer: Tracer
        _complete: Callable[[], FusionSchedules]
        _user_schedule: Callable[..., AnySchedule | None]
        _given_for: Callable[..., SegmentSchedules]

        execute: Callable[..., list[torch.Tensor]]

        @property
        def _is_scheduled(self) -> bool: ...

        @property
        def segments(self) -> list[FusionDefinition]: ...

        def _schedules(self, leaf: FusionSchedules) -> BySignature: ...

        def _signature(
            self, leaf: FusionSchedules, inputs: Inputs, device: torch.device | None
        ) -> Hashable: ...

        @property
        def _options(self) -> Options: ...

    # ---- states and text

    def id(self) -> int | None:
        """The number of this definition in the cache; None before it is complete."""
        return None if self._leaf is None else self._leaf.id

    @property
    def fusion_state(self) -> FusionState:
        """Which value each state index stands for. DefinitionError before the definition is complete."""
        return self._finished().state

    def inputs(self) -> list[int]:
        """The states that are inputs, in order."""
        return list(self.fusion_state.inputs)

    def outputs(self) -> list[int]:
        """The states that are outputs, in the order in which they were added."""
        return list(self.fusion_state.outputs)

    def extents(self) -> list[int]:
        """The indices of the sizes of inputs: negative, one for each dimension of each tensor input."""
        return list(self.fusion_state.extents)

    def fusion_ir(self) -> str:
        """The fusion as text, not scheduled."""
        return fusion_text(self._finished().fusion)

    def _finished(self) -> FusionSchedules:
        self._check_written()
        if self._leaf is None:
            raise DefinitionError(problem="it is not complete")
        return self._leaf

    def _check_written(self) -> None:
        """DefinitionError within the block, or the `definition()`, that writes this definition."""
        if self._recorder is not None:
            raise DefinitionError(
                problem="it is still being written, in its `with` block or its definition()",
                hint="execute it, and ask for its text, after that; what is written so far stays",
            )

    def __repr__(self) -> str:
        if self._leaf is not None:
            return definition_text(self._leaf.records, self._leaf.outcomes, self._leaf.id)
        if self._recorder is not None:
            return definition_text(self._recorder.records, self._recorder.outcomes)
        return definition_text((), ())

    def _program_for(self, inputs: Inputs, override_user_schedule: bool) -> BoundProgram:
        leaf = self._finished()
        self._check_whole()
        arguments = flattened(inputs)
        schedule = None
        if not override_user_schedule:
            schedule = self._schedules(leaf).find(self._signature(leaf, arguments, None))
        executor = leaf.executor_for(self._registry)
        return executor.program_for(arguments, options=self._options, user_schedule=schedule)

    def _check_whole(self) -> None:
        """ExecutionOrderError if `segment` cut the definition."""
        if self.segments:
            raise ExecutionOrderError(
                "the definition runs as segments, whose inputs are others", hint="ask each of fd.segments"
            )

    @explained
    def cuda_code_for(
        self, inputs: Inputs, intrinsic_code: bool = False, *, override_user_schedule: bool = False
    ) -> str:
        """The CUDA text of the kernels that ran for inputs like these.

        With `intrinsic_code`, complete sources that compile as they are. A kernel has names of its own;
        comments tell what they stand for in the definition, for each launch of it.

        Raises:
            ExecutionOrderError: the definition was not executed with such inputs.
        """
        return cuda_text(self._program_for(inputs, override_user_schedule), intrinsic_code)

    def last_cuda_code(self, intrinsic_code: bool = False, *, override_user_schedule: bool = False) -> str:
        """The CUDA text of the kernels that ran last. ExecutionOrderError if none did."""
        return cuda_text(self._last_program(), intrinsic_code)

    @explained
    def scheduled_fusion_ir_for(
        self, inputs: Inputs, tensor_transforms: bool = False, *, override_user_schedule: bool = False
    ) -> str:
        """The scheduled fusions that ran for inputs like these, as text.

        With `tensor_transforms`, also how each tensor's loop axes were made. Raises as `cuda_code_for`.
        """
        return scheduled_text(self._program_for(inputs, override_user_schedule).launches, tensor_transforms)

    def last_scheduled_fusion_ir(
        self, tensor_transforms: bool = False, *, override_user_schedule: bool = False
    ) -> str:
        """The scheduled fusion of each kernel that ran last. ExecutionOrderError if none did."""
        return scheduled_text(self._last_launches(), tensor_transforms)

    @explained
    def schedule_for(self, inputs: Inputs, *, override_user_schedule: bool = False) -> str:
        """The schedules of the kernels that ran for inputs like these, as the text of one `schedule(fd)`.

        It runs as the `schedule` of a definition like this one, with the same kernels. The statements from
        `fd.sched.segment(i)` on are the schedule of kernel i, and may also be given to a call as
        `schedules={i: schedule}`.

        Raises:
            ExecutionOrderError: the definition was not executed with such inputs.
        """
        return schedule_text(self._finished(), self._program_for(inputs, override_user_schedule).launches)

    def last_schedule(self) -> str:
        """`schedule_for` of the inputs that ran last. ExecutionOrderError if none did."""
        if self.segments:
            raise ExecutionOrderError(
                "the definition runs as segments, which are scheduled one by one",
                hint="ask each of fd.segments",
            )
        return schedule_text(self._finished(), self._last_program().launches)

    def _last_kernels(self) -> tuple[CompiledKernel, ...]:
        return tuple(launch.op.kernel for launch in self._last_launches())

    def _last_launches(self) -> tuple[LaunchPlan, ...]:
        if self.segments:
            return tuple(launch for segment in self.segments for launch in segment._last_launches())
        return self._last_program().launches

    def _last_program(self) -> BoundProgram:
        executor = self._ran
        if executor is None and self._leaf is not None:  # an equal definition may have run
            executor = self._leaf.executor_for(self._registry)
        last = None if executor is None else executor.last_program
        if last is None:
            raise ExecutionOrderError("Invalid fusion definition! It has never been executed")
        return last

    @explained
    def why_separate(
        self, a: Tensor | int, b: Tensor | int, inputs: Inputs | None = None, *, device: Device | None = None
    ) -> Separation:
        """Why one kernel does not compute both `a` and `b`, if none does: an answer to print, and data.

        Each is a tensor of this definition, or the place of a segment in launch order. The answer is about
        the automatic schedule for `inputs`, which may be meta or fake tensors: nothing runs. None: those of
        the latest call. It calls tensors what `fusion_ir` calls them.

        Raises:
            ExecutionOrderError: no inputs are given, and the definition was not executed automatically.
            ArgumentTypeError: neither a tensor of this definition nor a number.
            ScheduleError: there is no such segment.
        """
        leaf = self._finished()
        parts = self._part(leaf, a), self._part(leaf, b)
        executor, is_cut = leaf.executor_for(self._registry), bool(self.segments)
        if is_cut:  # nothing is rewritten there, and no output is a view
            executor = FusionExecutor(leaf.fusion, self._registry, as_defined=True)
        return executor.separation(
            None if inputs is None else flattened(inputs),
            parts,
            device=None if device is None else device_named(device),
            options=self._options,
            views=not is_cut,
        )

    def _part(self, leaf: FusionSchedules, part: Any) -> TensorView | int:
        if isinstance(part, Tensor) and part._get_fusion_definition() is self:
            value = leaf.state.values[part.index]
            assert isinstance(value, TensorView)
            return value
        if type(part) is not int:
            raise ArgumentTypeError(
                function="why_separate",
                expected="a tensor of this definition, or the place of a segment",
                given=describe_argument(part),
            )
        return part

    # ---- checking

    def validate(
        self, inputs: Inputs, reference_outputs: Sequence[torch.Tensor] | None = None, **execute_options: Any
    ) -> list[torch.Tensor]:
        """Runs the definition and compares its outputs to `reference_outputs`, or to what torch computes.

        Raises:
            AssertionError: an output differs by more than `getValTolerances` allows.
        """
        kept = [
            movable(x).clone().view(x.dtype) if isinstance(x, torch.Tensor) else x for x in flattened(inputs)
        ]
        device = execute_options.get("device")
        states = random_states(place_of(kept, None if device is None else device_named(device)))
        start = states.position()
        outputs = self.execute(inputs, **execute_options)
        if reference_outputs is None:
            with states.again(start):
                reference_outputs = evaluate_fusion(self._finished().fusion, kept, states.take)
        check_outputs(outputs, reference_outputs, self.getValTolerances(kept))
        return outputs

    @explained
    def validate_with_auto_inferred_outputs(
        self, fusion_outputs: Sequence[torch.Tensor], inputs: Inputs
    ) -> None:
        """Compares outputs of a run to what torch computes, node by node, from the same inputs."""
        expected = evaluate_fusion(self._finished().fusion, flattened(inputs))
        check_outputs(fusion_outputs, expected, self.getValTolerances(inputs))

    @explained
    def getValTolerances(self, inputs: Inputs) -> list[tuple[float, float]]:
        """(absolute, relative) tolerance of each output that is returned, for inputs of these sizes."""
        fusion = self._finished().fusion
        return output_tolerances(fusion, bind_sizes(fusion, flattened(inputs)))

    # ---- scripts

    def repro_script_for(self, inputs: Inputs | None = None) -> str:
        """A script that makes this definition and, with `inputs`, runs it on tensors like them."""
        return self._script(None if inputs is None else flattened(inputs))

    def last_repro_script(self) -> str:
        """The script of the last call that saved its inputs.

        Raises:
            ExecutionOrderError: an AssertionError; there was none.
        """
        if self._repro_inputs is None:
            raise ExecutionOrderError(
                "fd.last_repro_script() cannot provide a repro because "
                "fd.execute(inputs, save_repro_inputs=True) was not executed!"
            )
        return self._script(*self._repro_inputs)

    @property
    def fake_inputs(self) -> list[Any] | None:
        """The inputs of the last call that saved them, as fake tensors and numbers; None: no call did."""
        if self._repro_inputs is None:
            return None
        with FakeTensorMode():
            return [made_like(value) for value in self._repro_inputs[0]]

    def _script(self, inputs: Inputs | None, options: Mapping[str, Any] | None = None) -> str:
        if self._leaf is not None:
            return repro_script(self._leaf.records, self._leaf.outcomes, self._leaf.id, inputs, options)
        recorder = self._recorder
        records, outcomes = (recorder.records, recorder.outcomes) if recorder is not None else ([], [])
        return repro_script(records, outcomes, None, inputs, options)
