"""`fd.sched`: the scheduling primitives on the handles of a definition, and the automatic schedulers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch

from fusewright.core.enums import SchedulerType
from fusewright.core.errors import DefinitionError, RejectedError, ScheduleError
from fusewright.core.hardware import HardwareInfo
from fusewright.frontend.fusion_schedules import FusionSchedules
from fusewright.frontend.handles import USER_TYPES, Tensor
from fusewright.frontend.params import EditableParams
from fusewright.frontend.primitives import Primitive
from fusewright.frontend.signatures import dress, user_signature
from fusewright.frontend.states import State, StateKind
from fusewright.frontend.unknown import unknown_method
from fusewright.host.binding import Binder
from fusewright.ir import TensorView
from fusewright.ir.text import scheduled_text
from fusewright.runtime.compiler import index_dtype_of
from fusewright.schedule import Schedule
from fusewright.schedulers import (
    Facts,
    Registry,
    Reject,
    Scheduler,
    apply,
    default_registry,
    prepare,
    propose,
    rejection_text,
    type_name,
)

if TYPE_CHECKING:
    from fusewright.frontend.definition import FusionDefinition
    from fusewright.frontend.methods import (
        EditablePointwiseParams,
        EditableReductionParams,
        SchedulingMethods,
    )
else:  # made below
    SchedulingMethods = object

__all__ = ["SchedOperators", "UserSchedule"]

#: Names of nvFuser's -> the primitives that they are.
OTHER_NAMES: Mapping[str, str] = {"reduction_factor": "rfactor"}

NOT_DEFINED = "User schedule is not defined."


class UserSchedule:
    """A schedule that a user is writing for one signature of inputs.

    `schedule` is the workbench, `params` what an automatic scheduler applied to it, if one did. States
    beyond the definition's are tensors that primitives made.
    """

    def __init__(
        self,
        leaf: FusionSchedules,
        inputs: Sequence[Any],
        device: torch.device | None,
        hardware: HardwareInfo,
    ) -> None:
        self.leaf = leaf
        self.schedule = Schedule(leaf.fusion)
        self.hardware = hardware
        self.params: Any = None
        self.editing: EditableParams | None = None
        self._indices: dict[TensorView, int] = {}
        self._tensors: dict[int, TensorView] = {}
        for index, value in enumerate(leaf.state.values):
            if isinstance(value, TensorView) and value in self.schedule.map:
                copy = self.schedule.map[value]
                assert isinstance(copy, TensorView)
                self._tensors[index] = copy
                self._indices.setdefault(copy, index)
        self._next = len(leaf.state.values)
        binding = Binder(leaf.fusion).describe(inputs, device)
        self.facts = Facts(binding.sizes, binding.strides, binding.alignment, binding.index_dtype)

    def tensor(self, index: int) -> TensorView:
        """The workbench's tensor for a state. ScheduleError for one that no output depends on."""
        if index not in self._tensors:
            raise ScheduleError(f"state {index} is no tensor that an output of this fusion depends on")
        return self._tensors[index]

    def index_of(self, tensor: TensorView) -> int:
        """The state of a workbench tensor, a new one if it had none."""
        if tensor not in self._indices:
            self._indices[tensor] = self._next
            self._tensors[self._next] = tensor
            self._next += 1
        return self._indices[tensor]


class SchedOperators(SchedulingMethods):
    """Primitives act on the schedule that is being written; see `Schedule` for what each does.

    Valid only inside `schedule()`, or between `_setup_schedule` and `_finalize_schedule`.
    """

    def __init__(self, fd: FusionDefinition) -> None:
        self._fd = fd

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise unknown_method("fd.sched", name, (n for n in dir(self) if not n.startswith("_")))

    def _open(self) -> UserSchedule:
        """The schedule that is being written. DefinitionError if there is none."""
        if self._fd._leaf is None:
            raise DefinitionError("Attempting to use a SchedOperators Op prior to definition!")
        if self._fd._open_schedule is None:
            raise DefinitionError(
                "Attempting to use a SchedOperators Op outside of a schedule!",
                hint="call it in schedule(), or between _setup_schedule and _finalize_schedule",
            )
        return self._fd._open_schedule

    def _handle(self, tensor: TensorView) -> Tensor:
        state = State(StateKind.TENSOR, tensor.dtype, tensor.ndim)
        return Tensor(self._fd, self._open().index_of(tensor), state)

    def _unwrapped(self, value: Any) -> Any:
        """Arguments with handles replaced by the tensors of the workbench."""
        if isinstance(value, Tensor):
            if value._fd is not self._fd:
                raise DefinitionError(f"{value!r} belongs to another definition")
            return self._open().tensor(value.index)
        if isinstance(value, (list, tuple, set, frozenset)):
            return type(value)(self._unwrapped(item) for item in value)
        return value

    def _wrapped(self, result: Any) -> Any:
        """A primitive's result with handles for its tensors."""
        if isinstance(result, list):
            return [self._wrapped(item) for item in result]
        return self._handle(result) if isinstance(result, TensorView) else result

    # ---- looking

    def tensors(self) -> list[Tensor]:
        """All tensors of the fusion, those inside composite operations included."""
        return [self._handle(tensor) for tensor in self._open().schedule.tensors()]

    def is_reduction(self, tensor: Tensor) -> bool:
        """Whether computing the tensor, no input, reduces an axis."""
        return self._open().schedule.is_reduction(self._unwrapped(tensor))

    def to_string(self, tensor: Tensor) -> str:
        """The tensor with its loop axes."""
        return str(self._unwrapped(tensor))

    def user_schedule_ir(self) -> str:
        """The scheduled fusion as text."""
        if self._fd._open_schedule is None:
            return NOT_DEFINED
        return scheduled_text(self._fd._open_schedule.schedule.fusion)

    # ---- automatic schedulers

    def _registry(self) -> Registry:
        own = self._fd._registry
        return own if own is not None else default_registry()

    def can_schedule(self, scheduler_type: SchedulerType | str) -> tuple[bool, str]:
        """Whether a scheduler takes the fusion and, if not, why not."""
        user = self._open()
        registry = self._registry()
        if isinstance(scheduler_type, SchedulerType) and scheduler_type not in [s.type for s in registry]:
            return False, rejection_text(scheduler_type, "there is no such scheduler (yet)")
        scheduler = registry.get(scheduler_type)
        answer = prepare(scheduler, user.leaf.fusion)
        return (
            (False, rejection_text(scheduler.type, answer.reason))
            if isinstance(answer, Reject)
            else (True, "")
        )

    def find_compatible_schedulers(self) -> list[SchedulerType | str]:
        """The types of all schedulers that take the fusion, the preferred first."""
        user = self._open()
        return [s.type for s in self._registry() if not isinstance(prepare(s, user.leaf.fusion), Reject)]

    def compute_heuristics(self, scheduler_type: SchedulerType | str) -> EditableParams:
        """The params that a scheduler chooses for these inputs, open to changes; `schedule()` applies them.

        Raises:
            RejectedError: the scheduler does not take the fusion. ScheduleError: there are params already.
        """
        user = self._open()
        if user.editing is not None:
            raise ScheduleError("heuristics were computed for this schedule already")
        user.editing = EditableParams(self._params(user, self._registry().get(scheduler_type)), user.hardware)
        return user.editing

    def compute_pointwise_heuristics(self) -> EditablePointwiseParams:
        """`compute_heuristics` of the pointwise scheduler."""
        return cast("EditablePointwiseParams", self.compute_heuristics(SchedulerType.pointwise))

    def compute_reduction_heuristics(self) -> EditableReductionParams:
        """`compute_heuristics` of the reduction scheduler."""
        return cast("EditableReductionParams", self.compute_heuristics(SchedulerType.reduction))

    def _params(self, user: UserSchedule, scheduler: Scheduler) -> Any:
        return propose(scheduler, user.leaf.fusion, user.facts, user.hardware)

    def schedule(self, heuristic: Any = None) -> None:
        """Schedules automatically, as `heuristic` says.

        Args:
            heuristic: a scheduler's type; params, frozen or from compute_heuristics; a dict of params with
                the entry "scheduler", its type's name; or None for what compute_heuristics returned.

        Raises:
            RejectedError: the scheduler does not take the fusion. ParamsError: a dict that fits no params, or
                params that do not fit the inputs.
        """
        user = self._open()
        if heuristic is None:
            if user.editing is None:
                raise ScheduleError(
                    "schedule(): there are no computed heuristics to apply",
                    hint="call compute_heuristics(type) first, or pass a scheduler's type or params",
                )
            heuristic = user.editing
        if isinstance(heuristic, EditableParams):
            heuristic = heuristic.freeze()
        if isinstance(heuristic, (SchedulerType, str)):
            scheduler = self._registry().get(heuristic)
            params = self._params(user, scheduler)
        elif isinstance(heuristic, Mapping):
            scheduler, params = self._from_dict(user, heuristic)
        else:
            scheduler = self._scheduler_of(user, type(heuristic))
            params = heuristic
        index_dtype_of(params, user.facts.index_dtype)
        apply(scheduler, user.schedule, params, user.hardware)
        user.params = params

    def _from_dict(self, user: UserSchedule, data: Mapping[str, Any]) -> tuple[Scheduler, Any]:
        """The scheduler that a dict names, and what it chooses with the dict's fields put in its place."""
        fields = dict(data)
        name = fields.pop("scheduler", None)
        if name is None:
            raise ScheduleError(
                'schedule(): a dict of params needs the entry "scheduler"',
                expected="the name of a scheduler's type, as reduction",
                given=f"the entries {', '.join(map(str, data)) or 'of an empty dict'}",
            )
        scheduler = self._registry().get(name)
        editable = EditableParams(self._params(user, scheduler), user.hardware)
        editable.update(fields)
        return scheduler, editable.freeze()

    def _scheduler_of(self, user: UserSchedule, params_type: type) -> Scheduler:
        candidates = [s for s in self._registry() if s.params_type is params_type]
        if not candidates:
            raise ScheduleError(f"schedule(): no scheduler has params of type {params_type.__name__}")
        answers = [(s, prepare(s, user.leaf.fusion)) for s in candidates]
        for scheduler, answer in answers:
            if not isinstance(answer, Reject):
                return scheduler
        scheduler, answer = answers[0]
        assert isinstance(answer, Reject)
        raise RejectedError(scheduler=type_name(scheduler.type), reason=answer.reason)


def _method(name: str, primitive_name: str) -> Callable[..., Any]:
    primitive = Primitive.of(primitive_name)

    def call(self: SchedOperators, *args: Any, **kwargs: Any) -> Any:
        arguments = [self._unwrapped(a) for a in args]
        keywords = {k: self._unwrapped(v) for k, v in kwargs.items()}
        return self._wrapped(primitive(self._open().schedule, arguments, keywords))

    signature = user_signature(primitive.typed_signature, USER_TYPES)
    return dress(call, f"SchedOperators.{name}", signature, primitive.doc)


for _name in Schedule.PRIMITIVES:
    setattr(SchedOperators, _name, _method(_name, _name))
for _name, _primitive in OTHER_NAMES.items():
    setattr(SchedOperators, _name, _method(_name, _primitive))
