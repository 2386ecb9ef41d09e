"""The automatic schedulers in `fd.sched`: queries, and application.

Each query has two forms: about the schedule being written, and, as in nvFuser's direct front end, about a
definition and inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast, overload

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
from fusewright.frontend.inputs import Inputs, flattened, listed
from fusewright.frontend.recorded.origins import explained
from fusewright.frontend.scheduling.params import EditableParams, GivenFields
from fusewright.frontend.scheduling.workbench import UserSchedule, Workbench
from fusewright.runtime.compiler import index_dtype_of
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
    from fusewright.frontend.methods import EditablePointwiseParams, EditableReductionParams, HeuristicMethods
else:
    HeuristicMethods = object

AnyType = SchedulerType | str


class AutomaticOperators(HeuristicMethods):
    """The methods of `fd.sched` about automatic schedulers."""

    if TYPE_CHECKING:  # SchedOperators'
        _fd: FusionDefinition

        def _open(self) -> UserSchedule: ...

    def _explain(self, error: FusewrightError) -> None:
        self._fd._explain(error)

    def _registry(self) -> Registry:
        own = self._fd._registry
        return own if own is not None else default_registry()

    def _scheduler(self, scheduler_type: AnyType) -> Scheduler:
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

    # ---- a definition and inputs

    def _is_direct(self, function: str, fusion: Any, scheduler_type: object, inputs: object) -> bool:
        """Whether a call names this definition, and then a type and inputs too.

        Raises:
            DefinitionError: another definition. ArgumentTypeError: only some of the arguments.
        """
        if fusion is self._fd:
            if scheduler_type is None or inputs is None:
                raise ArgumentTypeError(
                    function=function, expected="(fusion, scheduler_type, inputs)", given="fewer arguments"
                )
            return True
        if getattr(fusion, "sched", self) is not self:
            raise DefinitionError(f"{function}: another definition", hint="ask the `sched` of that one")
        return False

    @contextmanager
    def _asking(self, function: str, inputs: Any) -> Iterator[None]:
        """A schedule of the definition for these inputs is open within, and forgotten afterwards."""
        fd = self._fd
        if fd._leaf is None:
            raise DefinitionError("Attempting to use a SchedOperators Op prior to definition!")
        with fd._writing:
            before, asked = fd._open_schedule, fd._schedule_for(flattened(listed(inputs, function)), None)
            fd._open_schedule = asked
            try:
                yield
            finally:
                fd._open_schedule = before

    @overload
    def can_schedule(self, scheduler_type: AnyType) -> tuple[bool, str]: ...
    @overload
    def can_schedule(
        self, fusion: FusionDefinition, scheduler_type: AnyType, inputs: Inputs
    ) -> tuple[bool, str]: ...
    @explained  # type: ignore[misc]  # the type may come first
    def can_schedule(
        self, fusion: Any = None, scheduler_type: AnyType | None = None, inputs: Inputs | None = None
    ) -> tuple[bool, str]:
        """Whether a scheduler takes the fusion for these inputs and, if not, why not.

        `(scheduler_type)`: what is being scheduled. `(fusion, scheduler_type, inputs)`: this definition.
        """
        if self._is_direct("can_schedule", fusion, scheduler_type, inputs):
            with self._asking("can_schedule", inputs):
                return self.can_schedule(cast(AnyType, scheduler_type))
        scheduler_type = fusion if scheduler_type is None else scheduler_type
        bench = self._open().current
        try:
            self._params(bench, self._scheduler(scheduler_type))
        except RejectedError as error:
            return False, rejection_text(scheduler_type, str(error.facts["reason"]))
        return True, ""

    @overload
    def find_compatible_schedulers(self) -> list[AnyType]: ...
    @overload
    def find_compatible_schedulers(self, fusion: FusionDefinition, inputs: Inputs) -> list[AnyType]: ...
    @explained
    def find_compatible_schedulers(self, fusion: Any = None, inputs: Inputs | None = None) -> list[AnyType]:
        """The types of all schedulers that take the fusion for these inputs, the preferred first.

        `()`: what is being scheduled. `(fusion, inputs)`: this definition.
        """
        if self._is_direct("find_compatible_schedulers", fusion, (), inputs):
            with self._asking("find_compatible_schedulers", inputs):
                return self.find_compatible_schedulers()
        self._open()
        return [s.type for s in self._registry() if self.can_schedule(s.type)[0]]

    if not TYPE_CHECKING:  # HeuristicMethods'

        @explained
        def compute_heuristics(
            self, fusion: Any = None, scheduler_type: AnyType | None = None, inputs: Inputs | None = None
        ) -> EditableParams:
            """The params that a scheduler chooses for these inputs, open to changes.

            `(scheduler_type)`: for what is being scheduled; `schedule()` applies them. `(fusion,
            scheduler_type, inputs)`: for this definition.

            Raises:
                RejectedError: the scheduler does not take the fusion.
                ScheduleError: there are params already.
            """
            if self._is_direct("compute_heuristics", fusion, scheduler_type, inputs):
                with self._asking("compute_heuristics", inputs):
                    return self._computed(scheduler_type)
            return self._computed(fusion if scheduler_type is None else scheduler_type)

    def _computed(self, scheduler_type: AnyType) -> EditableParams:
        bench = self._open().current
        if bench.editing is not None:
            raise ScheduleError("heuristics were computed for this schedule already")
        params = self._params(bench, self._scheduler(scheduler_type))
        bench.editing = EditableParams(params, self._open().hardware)
        return bench.editing

    def compute_pointwise_heuristics(self) -> EditablePointwiseParams:
        """`compute_heuristics` of the pointwise scheduler."""
        return self.compute_heuristics(SchedulerType.pointwise)

    def compute_reduction_heuristics(self) -> EditableReductionParams:
        """`compute_heuristics` of the reduction scheduler."""
        return self.compute_heuristics(SchedulerType.reduction)

    def compute_matmul_heuristics(self) -> EditableParams:
        return self._computed(SchedulerType.matmul)

    def schedule_hyperparameters(self) -> EditableParams:
        """What schedulers of reductions along rows and along columns are asked for, open to changes.

        A value that was not changed asks nothing. They are checked when a scheduler is.
        """
        return self._open().current.asked

    def _params(self, bench: Workbench, scheduler: Scheduler) -> Any:
        hardware = self._open().hardware
        params = propose(scheduler, bench.fusion, bench.facts, hardware)
        if isinstance(params, InnerOuterParams):
            return bench.asked.freeze().applied_to(params)
        return params

    @overload
    def schedule(self, heuristic: Any = None) -> None: ...
    @overload
    def schedule(self, fusion: FusionDefinition, scheduler_type: AnyType, inputs: Inputs) -> Any: ...
    @overload
    def schedule(self, fusion: FusionDefinition, scheduler_type: AnyType, heuristic_params: Any) -> None: ...
    @explained  # type: ignore[misc]  # what the arguments are called tells the forms apart
    def schedule(
        self,
        heuristic: Any = None,
        scheduler_type: AnyType | None = None,
        inputs: Any = None,
        *,
        fusion: Any = None,
        heuristic_params: Any = None,
    ) -> Any:
        """Schedules automatically, as `heuristic` says.

        `(fusion, scheduler_type, heuristic_params)` applies these params to what is being scheduled.
        `(fusion, scheduler_type, inputs)` returns the params that the scheduler chooses and applies; where
        nothing is being scheduled, calls of the definition with such inputs run that from now on.

        Args:
            heuristic: a scheduler's type; params, frozen or from compute_heuristics; a dict of params with
                the entry "scheduler", its type's name, in which fields may be left out; or None for what
                compute_heuristics returned.

        Raises:
            RejectedError: the scheduler does not take the fusion. ParamsError: a dict that fits no params, or
                params that do not fit the inputs.
        """
        fusion = heuristic if fusion is None else fusion
        given = inputs if heuristic_params is None else heuristic_params
        if not self._is_direct("schedule", fusion, scheduler_type, given):
            return self._apply(heuristic)
        assert scheduler_type is not None
        if isinstance(given, (HeuristicParams, EditableParams, Mapping)):
            self._open()
            expected = self._scheduler(scheduler_type).params_type
            params = given.freeze() if isinstance(given, EditableParams) else given
            if not isinstance(params, (expected, Mapping)):
                raise ParamsError(path="heuristic_params", expected=expected.__name__, given=repr(params))
            return self._apply(
                {"scheduler": scheduler_type, **params} if isinstance(params, Mapping) else params
            )
        if self._fd._open_schedule is not None:
            self._apply(scheduler_type)
            return self._open().current.params
        self._fd._setup_schedule(given, overwrite_existing_schedule=True)
        self._fd._write(lambda: self._apply(scheduler_type))
        params = self._open().current.params
        self._fd._finalize_schedule(given)
        return params

    def _apply(self, heuristic: Any) -> None:
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
        """Sets compiler options for the kernel, which are not part of its schedule; they replace those of the
        params.

        Args:
            index_type: of the kernel's indices, Int or Int32; None: the narrowest that a call allows.
            maxrregcount: the maximum number of registers per thread; 0 or 255: no limit.

        Raises:
            ParamsError: not an index type, too narrow an index type, or not a number of registers.
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
