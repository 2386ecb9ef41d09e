"""`fd.sched`: the scheduling primitives on the handles of a definition, and the automatic schedulers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from fusewright.core.dtype import DataType
from fusewright.core.enums import SchedulerType
from fusewright.core.errors import (
    ArgumentTypeError,
    DefinitionError,
    FusewrightError,
    ParamsError,
    RejectedError,
    ScheduleError,
)
from fusewright.core.hardware import MAX_REGISTERS_PER_THREAD
from fusewright.frontend.handles import USER_TYPES, Tensor
from fusewright.frontend.origins import explained
from fusewright.frontend.params import EditableParams, GivenFields
from fusewright.frontend.primitives import Primitive
from fusewright.frontend.signatures import dress, user_signature
from fusewright.frontend.states import State, StateKind
from fusewright.frontend.unknown import unknown_method
from fusewright.frontend.workbench import UserSchedule, Workbench
from fusewright.ir import TensorView
from fusewright.ir.text import scheduled_text
from fusewright.ops import describe_argument
from fusewright.runtime.compiler import index_dtype_of
from fusewright.schedule import Schedule
from fusewright.schedulers import (
    CompileParams,
    HeuristicParams,
    InnerOuterParams,
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

__all__ = ["SchedOperators"]

#: Names of nvFuser's -> the primitives that they are.
OTHER_NAMES: Mapping[str, str] = {"reduction_factor": "rfactor"}

NOT_DEFINED = "User schedule is not defined."


class SchedOperators(SchedulingMethods):
    """Primitives act on the schedule that is being written; see `Schedule` for what each does.

    Valid only inside `schedule()`, or between `_setup_schedule` and `_finalize_schedule`.
    """

    def __init__(self, fd: FusionDefinition) -> None:
        self._fd = fd

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise unknown_method("fd.sched", name, (n for n in dir(self) if not n.startswith("_")))

    def _explain(self, error: FusewrightError) -> None:
        self._fd._explain(error)

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
        return [self._handle(tensor) for tensor in self._open().current.schedule.tensors()]

    def tensor(self, name: str | int) -> Tensor:
        """A tensor by its name in `to_python`, or by its number in a kernel's text.

        Raises:
            ScheduleError: there is no such tensor in what is being scheduled.
        """
        if not isinstance(name, (str, int)) or isinstance(name, bool):
            raise ArgumentTypeError(
                function="tensor", expected="name: str or int", given=describe_argument(name)
            )
        return self._handle(self._open().current.tensor(name))

    def siblings(self, tensor: Tensor) -> list[Tensor]:
        """The tensors that are computed together with this one, itself included: those of Welford."""
        user = self._open()
        return [self._handle(t) for t in user.current.schedule.siblings(self._unwrapped(tensor))]

    def segment(self, index: int) -> None:
        """Schedules kernel `index` of the automatic partition from now on, in launch order.

        Before the first such call the whole definition is scheduled, as it was defined, as one kernel.
        After it, the primitives act on that kernel's part, in the form that automatic schedulers see: its
        views are moved to loads and stores. Kernels that are not scheduled so are scheduled automatically.

        Raises:
            ScheduleError: there is no such kernel, or torch computes it.
        """
        if type(index) is not int:
            raise ArgumentTypeError(function="segment", expected="index: int", given=describe_argument(index))
        self._open().segment(index)

    def is_reduction(self, tensor: Tensor) -> bool:
        """Whether computing the tensor, no input, reduces an axis."""
        return self._open().current.schedule.is_reduction(self._unwrapped(tensor))

    def to_string(self, tensor: Tensor) -> str:
        """The tensor with its loop axes."""
        return str(self._unwrapped(tensor))

    def user_schedule_ir(self) -> str:
        """The scheduled fusion as text."""
        if self._fd._open_schedule is None:
            return NOT_DEFINED
        return scheduled_text(self._fd._open_schedule.current.schedule.fusion)

    def to_python(self) -> str:
        """What is scheduled so far, as the text of a function `schedule(fd)` that does the same."""
        return self._open().to_python()

    # ---- automatic schedulers

    def _registry(self) -> Registry:
        own = self._fd._registry
        return own if own is not None else default_registry()

    def _scheduler(self, scheduler_type: SchedulerType | str) -> Scheduler:
        """The scheduler of a type.

        Raises:
            RejectedError: nvFuser has it, and Fusewright does not. OptionError: there is none of this name.
        """
        registry = self._registry()
        user = self._open()
        user.current.asked.freeze().validate(user.hardware)
        if isinstance(scheduler_type, SchedulerType) and scheduler_type not in [s.type for s in registry]:
            raise RejectedError(scheduler=scheduler_type.name, reason="there is no such scheduler (yet)")
        return registry.get(scheduler_type)

    def can_schedule(self, scheduler_type: SchedulerType | str) -> tuple[bool, str]:
        """Whether a scheduler takes the fusion for these inputs and, if not, why not."""
        bench = self._open().current
        try:
            self._params(bench, self._scheduler(scheduler_type))
        except RejectedError as error:
            return False, rejection_text(scheduler_type, str(error.facts["reason"]))
        return True, ""

    def find_compatible_schedulers(self) -> list[SchedulerType | str]:
        """The types of all schedulers that take the fusion for these inputs, the preferred first."""
        self._open()
        return [s.type for s in self._registry() if self.can_schedule(s.type)[0]]

    def compute_heuristics(self, scheduler_type: SchedulerType | str) -> EditableParams:
        """The params that a scheduler chooses for these inputs, open to changes; `schedule()` applies them.

        Raises:
            RejectedError: the scheduler does not take the fusion. ScheduleError: there are params already.
        """
        bench = self._open().current
        if bench.editing is not None:
            raise ScheduleError("heuristics were computed for this schedule already")
        params = self._params(bench, self._scheduler(scheduler_type))
        bench.editing = EditableParams(params, self._open().hardware)
        return bench.editing

    def compute_pointwise_heuristics(self) -> EditablePointwiseParams:
        """`compute_heuristics` of the pointwise scheduler."""
        return cast("EditablePointwiseParams", self.compute_heuristics(SchedulerType.pointwise))

    def compute_reduction_heuristics(self) -> EditableReductionParams:
        """`compute_heuristics` of the reduction scheduler."""
        return cast("EditableReductionParams", self.compute_heuristics(SchedulerType.reduction))

    def compute_matmul_heuristics(self) -> EditableParams:
        return self.compute_heuristics(SchedulerType.matmul)

    def schedule_hyperparameters(self) -> EditableParams:
        """What schedulers of reductions along rows and along columns are asked for, open to changes.

        A value that was not changed asks nothing. They are checked when a scheduler is.
        """
        return self._open().current.asked

    def _params(self, bench: Workbench, scheduler: Scheduler) -> Any:
        hardware = self._open().hardware
        params = propose(scheduler, bench.fusion, bench.facts, hardware)
        if isinstance(params, InnerOuterParams):
            return bench.asked.freeze().applied_to(params, hardware)
        return params

    def schedule(self, heuristic: Any = None) -> None:
        """Schedules automatically, as `heuristic` says.

        Args:
            heuristic: a scheduler's type; params, frozen or from compute_heuristics; a dict of params with
                the entry "scheduler", its type's name, in which fields may be left out; or None for what
                compute_heuristics returned.

        Raises:
            RejectedError: the scheduler does not take the fusion. ParamsError: a dict that fits no params, or
                params that do not fit the inputs.
        """
        bench = self._open().current
        if heuristic is None:
            if bench.editing is None:
                raise ScheduleError(
                    "schedule(): there are no computed heuristics to apply",
                    hint="call compute_heuristics(type) first, or pass a scheduler's type or params",
                )
            heuristic = bench.editing
        if isinstance(heuristic, EditableParams):
            heuristic = heuristic.freeze()
        if isinstance(heuristic, (SchedulerType, str)):
            scheduler = self._scheduler(heuristic)
            params = self._params(bench, scheduler)
        elif isinstance(heuristic, Mapping):
            scheduler, params = self._from_dict(bench, heuristic)
        else:
            scheduler = self._scheduler_of(bench, type(heuristic))
            params = heuristic
        index_dtype_of(params, bench.facts.index_dtype)
        apply(scheduler, bench.schedule, params, self._open().hardware)
        bench.params = params

    def set_compile_params(
        self, index_type: DataType | None = None, maxrregcount: int = MAX_REGISTERS_PER_THREAD
    ) -> None:
        """Says how the kernel is compiled, which is no part of its schedule; instead of what params said.

        Args:
            index_type: of the kernel's indices, Int or Int32; None: the narrowest that a call allows.
            maxrregcount: registers that a thread may use at most; 0 or 255: as many as there are.

        Raises:
            ParamsError: no such index type, too narrow a one, or no number of registers.
        """
        user = self._open()
        bench = user.current
        try:
            cparams = CompileParams(index_type=index_type, maxrregcount=maxrregcount)
            cparams.validate(user.hardware)
        except ParamsError as error:
            error.move_into("cparams")
            raise
        params = bench.params if bench.params is not None else HeuristicParams()
        params = replace(params, cparams=cparams)
        index_dtype_of(params, bench.facts.index_dtype)
        bench.params = params

    def _from_dict(self, bench: Workbench, data: Mapping[str, Any]) -> tuple[Scheduler, Any]:
        """The scheduler that a dict names, and what it chooses with the dict's fields put in its place."""
        name = data.get("scheduler")
        if name is None:
            raise ScheduleError(
                'schedule(): a dict of params needs the entry "scheduler"',
                expected="the name of a scheduler's type, as reduction",
                given=f"the entries {', '.join(map(str, data)) or 'of an empty dict'}",
            )
        scheduler = self._registry().get(name)
        proposed = self._params(bench, scheduler)
        return scheduler, GivenFields(data).put_into(proposed, scheduler, self._open().hardware)

    def _scheduler_of(self, bench: Workbench, params_type: type) -> Scheduler:
        candidates = [s for s in self._registry() if s.params_type is params_type]
        if not candidates:
            raise ScheduleError(f"schedule(): no scheduler has params of type {params_type.__name__}")
        answers = [(s, prepare(s, bench.fusion)) for s in candidates]
        for scheduler, answer in answers:
            if not isinstance(answer, Reject):
                return scheduler
        scheduler, answer = answers[0]
        assert isinstance(answer, Reject)
        raise RejectedError(scheduler=type_name(scheduler.type), reason=answer.reason)


def _method(name: str, primitive_name: str) -> Callable[..., Any]:
    primitive = Primitive.of(primitive_name)

    @explained
    def call(self: SchedOperators, *args: Any, **kwargs: Any) -> Any:
        arguments = [self._unwrapped(a) for a in args]
        keywords = {k: self._unwrapped(v) for k, v in kwargs.items()}
        return self._wrapped(primitive(self._open().current.schedule, arguments, keywords))

    signature = user_signature(primitive.typed_signature, USER_TYPES)
    return dress(call, f"SchedOperators.{name}", signature, primitive.doc)


for _name in Schedule.PRIMITIVES:
    setattr(SchedOperators, _name, _method(_name, _name))
for _name, _primitive in OTHER_NAMES.items():
    setattr(SchedOperators, _name, _method(_name, _primitive))
