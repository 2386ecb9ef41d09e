"""The scheduler protocol: the methods of a scheduler, their arguments, and functions that call them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from fusewright.core.dtype import DataType
from fusewright.core.enums import ParallelType, SchedulerType
from fusewright.core.errors import ParamsError, RejectedError, ScheduleError, SchedulerError
from fusewright.core.hardware import HardwareInfo
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Node
from fusewright.ir.value import TensorView
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.params import HeuristicParams
from fusewright.sym import Expr, Symbol, evaluate


@dataclass(frozen=True, slots=True)
class Reject:
    """The scheduler does not accept the fusion, or not at these sizes. The reason is shown to the user."""

    reason: str

    def __bool__(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one kernel.

    Attributes:
        bytes: the bytes that it moves through memory.
        seconds: an estimate.
        least_seconds: the time of a kernel that moves each byte of its inputs and outputs once, at the speed
            of a copy.
    """

    bytes: int
    seconds: float
    least_seconds: float


@dataclass(frozen=True, slots=True)
class Proposal:
    """How a scheduler would make one kernel of a fusion for one call.

    A proposal is a promise: `apply` succeeds with its params, and so does lowering the result.

    Attributes:
        params: the params for `apply`, with a `reason`.
        estimate: computes the cost; called only if partitions are compared. None: the bytes of inputs and
            outputs, once each, at the speed of a copy.
    """

    params: Any
    estimate: Callable[[], Cost] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about one call of a fusion.

    Attributes:
        sizes: the value of every size symbol.
        strides: in elements, one tuple per input in logical order (empty for scalars).
        alignment: bytes that each input's pointer is a multiple of (at most 256).
        index_dtype: Int32 if every offset fits in 32 bits, else Int.
        stable: size symbols that had one value in all calls so far, including this one. Params may treat them
            as constants, since a call with another value then needs at most one more kernel.
        read_later: the positions of the inputs that later kernels of the program may read, too.
    """

    sizes: Mapping[Symbol, int]
    strides: tuple[tuple[int, ...], ...] = ()
    alignment: tuple[int, ...] = ()
    index_dtype: DataType = DataType.Int
    stable: frozenset[Symbol] = frozenset()
    read_later: frozenset[int] = frozenset()

    def value(self, extent: Expr) -> int:
        if isinstance(extent, Symbol):
            return self.sizes[extent]  # as most are, and planners ask for dozens a call
        return evaluate(extent, self.sizes)


class Part(Protocol):
    """A part of a graph that a scheduler accepted: the argument of `propose_redefinition`.

    Attributes:
        graph: the whole graph.
        nodes: those of its nodes that form the part, producers first.
        fusion: the part by itself, as the scheduler accepted it.
        planner: the planner that the scheduler returned for it.
    """

    @property
    def graph(self) -> Fusion: ...
    @property
    def nodes(self) -> tuple[Node, ...]: ...
    @property
    def fusion(self) -> Fusion: ...
    @property
    def planner(self) -> Planner: ...


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Another way to compute some tensors of a graph.

    Attributes:
        name: the name of this kind of rewrite. It is not applied to nodes that a rewrite of the same name
            made.
        replace: adds nodes to the graph, and returns, for each tensor that it recomputes, the new tensor of
            the same type and sizes.
        reason: why it may be faster, for the user.
    """

    name: str
    replace: Callable[[Fusion], Mapping[TensorView, TensorView]]
    reason: str


#: Knows the structure of one fusion; from the facts of a call and the GPU it derives a proposal. It reads
#: nothing but its arguments.
Planner = Callable[[Facts, HardwareInfo], Proposal | Reject]


class Scheduler(Protocol):
    """Turns a fusion into one kernel: `prepare` decides by structure, the planner by sizes.

    A scheduler that shares its `params_type` with others may declare the values that it needs in
    `fixed_params`, a dict by field.
    """

    @property
    def params_type(self) -> Any:
        """The class of its params: a frozen dataclass that extends `HeuristicParams`."""
        ...

    @property
    def type(self) -> SchedulerType | str:
        """Tells it from others; a third party's may be any string."""
        ...

    def prepare(self, fusion: Fusion) -> Planner | Reject:
        """The planner of a fusion that this scheduler accepts at some sizes at least, or the reason why it
        does not.

        It analyses the structure once, so that a call with a new size costs only arithmetic. Segmentation
        prepares many candidates and plans few, so defer analyses that only a plan needs to the first plan.
        """
        ...

    def apply(self, schedule: Schedule, params: Any) -> None:
        """Schedules only through the public primitives of `schedule`, so that the trace replays.

        It is called through the function `apply`, which makes the general checks. A user may have edited the
        params, and the fusion may be any. If it cannot schedule the fusion, it raises a UserError before the
        first primitive (`accepted`, and params that do not fit the fusion).
        """
        ...


class BuiltInScheduler:
    """The base of the schedulers of this package. Its repr is the expression that makes it."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


Space = TypeVar("Space")


def planner_of(
    make: Callable[[Fusion, Space], Planner], fusion: Fusion, space: Space | str
) -> Planner | Reject:
    """`make` applied to a fusion and the result of an analysis, or a Reject if that result is a reason."""
    return Reject(space) if isinstance(space, str) else make(fusion, space)


_PACKAGE = __name__.rpartition(".")[0] + "."


def merges_last(scheduler: Scheduler) -> bool:
    """Whether a scheduler joins nodes that other schedulers would leave in several kernels, so that it is
    asked only when no other merge is possible: its attribute `merges_last`, if it has one.
    """
    return bool(getattr(scheduler, "merges_last", False))


def launches_apart(scheduler: Scheduler) -> bool:
    """Whether kernels of a scheduler share launches with each other alone: its attribute `launches_apart`, if
    it has one.
    """
    return bool(getattr(scheduler, "launches_apart", False))


def accepted(scheduler: Scheduler, space: Space | str) -> Space:
    """The result of an analysis, or a RejectedError if it is a reason."""
    if isinstance(space, str):
        raise RejectedError(scheduler=type_name(scheduler.type), reason=space)
    return space


def apply(scheduler: Scheduler, schedule: Schedule, params: Any, hardware: HardwareInfo) -> None:
    """`scheduler.apply(schedule, params)`, after the checks that all schedulers need.

    Raises:
        ParamsError: params of another scheduler, or that nothing can be scheduled with on this GPU.
        RejectedError: a fusion that the scheduler does not take.
        ScheduleError: loops that were cut up or bound already.
        SchedulerError: a registered scheduler failed.
    """
    _check_start(scheduler, schedule, params)
    if isinstance(params, HeuristicParams):
        for name, value in getattr(scheduler, "fixed_params", {}).items():
            params.expect(name, value)
        params.validate(hardware)
    try:
        scheduler.apply(schedule, params)
    except (ParamsError, RejectedError):
        raise
    except Exception as error:
        with naming(scheduler, "apply"):
            raise error


def _check_start(scheduler: Scheduler, schedule: Schedule, params: Any) -> None:
    if not isinstance(params, scheduler.params_type):
        raise ParamsError(
            path="params", expected=scheduler.params_type.__name__, given=f"a {type(params).__name__}"
        )
    for tensor in schedule.fusion.tensors():
        is_bound = any(axis.parallel is not ParallelType.serial for axis in tensor.loop)
        if (
            is_bound
            or tensor.inline_at
            or tensor.loop != list(tensor.maybe_root if tensor.is_placed else tensor.logical)
        ):
            raise ScheduleError(
                f"the scheduler {type_name(scheduler.type)} starts from loops that nothing has changed",
                given=str(tensor),
                hint="call it once, and before other primitives",
            )


def prepare(scheduler: Scheduler, fusion: Fusion) -> Planner | Reject:
    """`scheduler.prepare(fusion)`, checked. A user's scheduler is not asked about nodes that no kernel can
    have.

    Raises:
        SchedulerError: a registered scheduler failed, or returned something else.
    """
    if not is_built_in(scheduler) and scheduler.type is not SchedulerType.expr_eval:
        whole = next((node for node in fusion.nodes if node.traits.whole), None)
        if whole is not None:
            return Reject(f"torch computes {whole.label}")
    with naming(scheduler, "prepare"):
        answer = scheduler.prepare(fusion)
    if not isinstance(answer, Reject) and (isinstance(answer, type) or not callable(answer)):
        raise wrong_answer(scheduler, "prepare", "a planner or Reject", answer)
    return answer


def plan(scheduler: Scheduler, planner: Planner, facts: Facts, hardware: HardwareInfo) -> Proposal | Reject:
    """`planner(facts, hardware)`, checked as `prepare` is: a proposal has params that the scheduler takes."""
    try:  # not `naming`, whose cost shows in a call with a new size
        answer = planner(facts, hardware)
    except Exception as error:
        with naming(scheduler, "planner"):
            raise error
    if not isinstance(answer, (Proposal, Reject)):
        raise wrong_answer(scheduler, "planner", "Proposal or Reject", answer)
    if isinstance(answer, Proposal) and not is_built_in(scheduler):
        if not isinstance(answer.params, scheduler.params_type):
            raise wrong_answer(
                scheduler, "planner", f"params of type {scheduler.params_type.__name__}", answer.params
            )
        with naming(scheduler, "planner"):
            answer.params.validate(hardware)
    return answer


def propose(scheduler: Scheduler, fusion: Fusion, facts: Facts, hardware: HardwareInfo) -> Any:
    """The params that a scheduler chooses for one call, if it is requested by name.

    Raises:
        RejectedError: it does not accept the fusion, or not at these sizes.
    """
    planner = prepare(scheduler, fusion)
    answer = planner if isinstance(planner, Reject) else plan(scheduler, planner, facts, hardware)
    if isinstance(answer, Reject):
        raise RejectedError(scheduler=type_name(scheduler.type), reason=answer.reason)
    return answer.params


@contextmanager
def naming(scheduler: Scheduler, step: str) -> Iterator[None]:
    """What a scheduler that is not built in raises names it: a SchedulerError, from the error itself."""
    try:
        yield
    except SchedulerError:
        raise
    except Exception as error:
        if is_built_in(scheduler):
            raise
        problem = f"{type(error).__name__}: {error}"
        if step == "apply" and (by := heuristics_of(scheduler)):
            step = f"apply, with params of the heuristic {', '.join(map(heuristic_name, by))}"
        raise SchedulerError(scheduler=type_name(scheduler.type), step=step, problem=problem) from error


def is_built_in(scheduler: Scheduler) -> bool:
    """Whether only this package decides: the scheduler, and the choice of its params, are built in."""
    return type(scheduler).__module__.startswith(_PACKAGE) and not heuristics_of(scheduler)


def heuristics_of(scheduler: Scheduler) -> tuple[Callable[..., Any], ...]:
    """The user's heuristics that choose params for it (`schedulers.heuristics`)."""
    return getattr(scheduler, "heuristics", ())


def heuristic_name(heuristic: Callable[..., Any]) -> str:
    """A heuristic's name, as users read it."""
    return getattr(heuristic, "__qualname__", type(heuristic).__qualname__)


def wrong_answer(scheduler: Scheduler, step: str, expected: str, given: object) -> SchedulerError:
    """The error for a scheduler whose method returned an invalid result."""
    problem = f"expected {expected}, got {given!r}"
    return SchedulerError(scheduler=type_name(scheduler.type), step=step, problem=problem)


def type_name(type_: SchedulerType | str) -> str:
    """A scheduler type's name, as users read it."""
    return type_ if isinstance(type_, str) else type_.name


def rejection_text(type_: SchedulerType | str, reason: str) -> str:
    """The rejection in nvFuser's words."""
    return f"Scheduler _{type_name(type_)}_ ***rejected*** because : {reason}"
