"""What a scheduler is, what it is told, and how it is asked."""

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
    """The scheduler does not take the fusion, or not at these sizes; the reason is for the user."""

    reason: str

    def __bool__(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Cost:
    """What one kernel costs.

    bytes: that it moves through memory. seconds: an estimate. least_seconds: what a kernel would take that
    moves each byte of its inputs and outputs once, at the speed of a copy.
    """

    bytes: int
    seconds: float
    least_seconds: float


@dataclass(frozen=True, slots=True)
class Proposal:
    """How a scheduler would make one kernel of a fusion for one call.

    A proposal is a promise: `apply` with its params succeeds, and so does lowering what it scheduled.

    Attributes:
        params: what `apply` takes; their `reason` says why.
        estimate: makes the cost, which is asked for where partitions are compared and not otherwise. None:
            the bytes of inputs and outputs, once each, at the speed of a copy.
    """

    params: Any
    estimate: Callable[[], Cost] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of one call of a fusion.

    sizes: the value of every size symbol. strides: elements, one tuple an input in logical order
    (empty for scalars). alignment: bytes that each input's pointer is a multiple of (at most 256).
    index_dtype: Int32 if every offset fits in 32 bits, else Int. stable: size symbols that have had one value
    in all calls so far, this one included; params may take them to be constant, as a call with another
    value then needs at most one more kernel.
    """

    sizes: Mapping[Symbol, int]
    strides: tuple[tuple[int, ...], ...] = ()
    alignment: tuple[int, ...] = ()
    index_dtype: DataType = DataType.Int
    stable: frozenset[Symbol] = frozenset()

    def value(self, extent: Expr) -> int:
        if isinstance(extent, Symbol):
            return self.sizes[extent]  # as most are, and planners ask for dozens a call
        return evaluate(extent, self.sizes)


class Part(Protocol):
    """A part of a graph that a scheduler took: what `propose_redefinition` is shown.

    Attributes:
        graph: the whole graph. nodes: those of it that the part is made of, producers first.
        fusion: the part by itself, as the scheduler accepted it. planner: what it said of that.
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
        name: of this kind of rewrite. None is applied to nodes that one of its name made.
        replace: adds nodes to the graph; returns for each tensor that it computes anew what it became, of the
            same type and sizes.
        reason: why it may be faster, for the user.
    """

    name: str
    replace: Callable[[Fusion], Mapping[TensorView, TensorView]]
    reason: str


#: Knows the structure of one fusion; from the facts of a call and the GPU it derives a proposal. It reads
#: nothing but its arguments.
Planner = Callable[[Facts, HardwareInfo], Proposal | Reject]


class Scheduler(Protocol):
    """Turns a fusion into one kernel: `prepare` decides on the structure, the planner on sizes.

    A scheduler that shares its `params_type` with others may say in `fixed_params`, a dict by field, which
    values it needs.
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
        """The planner of a fusion that this scheduler takes at some sizes at least, or why it does not.

        It analyses the structure once, so that a call with a new size costs arithmetic only. Segmentation
        prepares many candidates and plans few: leave to the first plan what only a plan needs.
        """
        ...

    def apply(self, schedule: Schedule, params: Any) -> None:
        """Schedules through the public primitives of `schedule` only, so that the trace replays.

        Called through the function `apply`, which checks what it can by itself. The params may be ones that a
        user edited, and the fusion may be any: what it cannot do is a UserError, raised before the first
        primitive (`accepted`, and params that do not fit the fusion).
        """
        ...


class BuiltInScheduler:
    """What the schedulers of this package have in common: they print as what makes them."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


Space = TypeVar("Space")


def planner_of(
    make: Callable[[Fusion, Space], Planner], fusion: Fusion, space: Space | str
) -> Planner | Reject:
    """What `make` makes of a fusion and what an analysis found; where that is a reason, the Reject."""
    return Reject(space) if isinstance(space, str) else make(fusion, space)


_PACKAGE = __name__.rpartition(".")[0] + "."


def merges_last(scheduler: Scheduler) -> bool:
    """Whether a scheduler joins what kernels of other schedulers would leave apart, and is asked to only when
    no other merge is possible: its attribute `merges_last`, if it has one.
    """
    return bool(getattr(scheduler, "merges_last", False))


def accepted(scheduler: Scheduler, space: Space | str) -> Space:
    """What an analysis found, or where that is the reason why there is nothing, the RejectedError."""
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
    """`scheduler.prepare(fusion)`, checked. A scheduler of a user's is not asked about what no kernel holds.

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
    """The params that a scheduler chooses for one call, where it is asked for by name.

    Raises:
        RejectedError: it does not take the fusion, or not at these sizes.
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
    """Whether all that decides is this package's own: the scheduler, and what chooses its params."""
    return type(scheduler).__module__.startswith(_PACKAGE) and not heuristics_of(scheduler)


def heuristics_of(scheduler: Scheduler) -> tuple[Callable[..., Any], ...]:
    """The user's heuristics that choose params for it (`schedulers.heuristics`)."""
    return getattr(scheduler, "heuristics", ())


def heuristic_name(heuristic: Callable[..., Any]) -> str:
    """A heuristic's name, as users read it."""
    return getattr(heuristic, "__qualname__", type(heuristic).__qualname__)


def wrong_answer(scheduler: Scheduler, step: str, expected: str, given: object) -> SchedulerError:
    """The error of a scheduler whose method returned something else than it has to."""
    problem = f"expected {expected}, got {given!r}"
    return SchedulerError(scheduler=type_name(scheduler.type), step=step, problem=problem)


def type_name(type_: SchedulerType | str) -> str:
    """A scheduler type's name, as users read it."""
    return type_ if isinstance(type_, str) else type_.name


def rejection_text(type_: SchedulerType | str, reason: str) -> str:
    """As nvFuser says it."""
    return f"Scheduler _{type_name(type_)}_ ***rejected*** because : {reason}"
