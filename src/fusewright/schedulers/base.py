"""What a scheduler is, what it is told, and how one is registered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from fusewright.core.dtype import DataType
from fusewright.core.enums import ParallelType, SchedulerType
from fusewright.core.errors import OptionError, ParamsError, RejectedError, ScheduleError
from fusewright.core.hardware import HardwareInfo
from fusewright.ir.fusion import Fusion
from fusewright.schedule.schedule import Schedule
from fusewright.sym import Expr, Symbol, evaluate


@dataclass(frozen=True, slots=True)
class Accept:
    """The scheduler takes the fusion."""

    def __bool__(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Reject:
    """The scheduler does not take the fusion, and why, as the user reads it."""

    reason: str

    def __bool__(self) -> bool:
        return False


Verdict = Accept | Reject


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of one call of a fusion.

    sizes: the value of every size symbol. strides: elements, one tuple an input in logical order
    (empty for scalars). alignment: bytes that each input's pointer is a multiple of (at most 256).
    index_dtype: Int32 if every offset fits in 32 bits, else Int.
    """

    sizes: Mapping[Symbol, int]
    strides: tuple[tuple[int, ...], ...] = ()
    alignment: tuple[int, ...] = ()
    index_dtype: DataType = DataType.Int

    def value(self, extent: Expr) -> int:
        return evaluate(extent, self.sizes)


@dataclass(frozen=True, slots=True)
class Declined:
    """A heuristic's answer where several kernels are quicker at these sizes; `params` would work."""

    params: Any
    reason: str


#: What a scheduler knows of one fusion's structure, as a function: the facts of a call, and the GPU that it
#: runs on, give the params, whose `reason` says why, or `Declined`. It reads nothing but its arguments.
Heuristic = Callable[[Facts, HardwareInfo], Any]


class Scheduler(Protocol):
    """Turns a fusion into one kernel. Structure decides `can_schedule`; sizes decide the heuristic."""

    params_type: Any

    @property
    def type(self) -> SchedulerType | str:
        """Tells it from others; a third party's may be any string."""
        ...

    def can_schedule(self, fusion: Fusion) -> Verdict:
        """Whether this scheduler can make one kernel of `fusion`, whatever the sizes."""
        ...

    def prepare(self, fusion: Fusion) -> Heuristic:
        """The heuristic of a fusion that it takes: looks at the structure once, so that a call with a new
        size costs arithmetic only.
        """
        ...

    def apply(self, schedule: Schedule, params: Any) -> None:
        """Schedules through the public primitives of `schedule` only, so that the trace replays.

        Users call it as well, with params that they edited and on any fusion: what it cannot do is a
        UserError, raised before the first primitive (`check_start`, `accepted`, and what params may not be).
        """
        ...


Space = TypeVar("Space")


def accepted(scheduler: Scheduler, space: Space | str) -> Space:
    """What an analysis found, or where that is the reason why there is nothing, the RejectedError."""
    if isinstance(space, str):
        raise RejectedError(scheduler=type_name(scheduler.type), reason=space)
    return space


def check_start(scheduler: Scheduler, schedule: Schedule, params: Any) -> None:
    """What every `apply` relies on.

    Raises:
        ParamsError: params of another scheduler. ScheduleError: loops that were cut up or bound already.
    """
    if not isinstance(params, scheduler.params_type):
        raise ParamsError(
            path="params", expected=scheduler.params_type.__name__, given=f"a {type(params).__name__}"
        )
    for tensor in schedule.fusion.tensors():
        is_bound = any(axis.parallel is not ParallelType.serial for axis in tensor.loop)
        if is_bound or tensor.inline_at or tensor.loop != list(tensor.logical):
            raise ScheduleError(
                f"the scheduler {type_name(scheduler.type)} starts from loops that nothing has changed",
                given=str(tensor),
                hint="call it once, and before other primitives",
            )


def propose(scheduler: Scheduler, fusion: Fusion, facts: Facts, hardware: HardwareInfo) -> Any:
    """The params that a scheduler chooses for one call, where it is asked for by name."""
    answer = scheduler.prepare(fusion)(facts, hardware)
    return answer.params if isinstance(answer, Declined) else answer


@dataclass
class Registry:
    """Schedulers in the order in which they are asked."""

    schedulers: list[Scheduler] = field(default_factory=list)

    def register(self, scheduler: Scheduler, before: SchedulerType | str | None = None) -> None:
        """Adds a scheduler: first of all, or just before the one of type `before`."""
        position = 0 if before is None else self.schedulers.index(self.get(before))
        self.schedulers.insert(position, scheduler)

    def get(self, type_: SchedulerType | str) -> Scheduler:
        """The scheduler of this type, or of the type of this name. OptionError if there is none."""
        name = type_name(type_)
        for scheduler in self.schedulers:
            if type_name(scheduler.type) == name:
                return scheduler
        names = ", ".join(type_name(s.type) for s in self.schedulers)
        raise OptionError("unknown scheduler", expected=f"one of {names}", given=name)

    def __iter__(self) -> Iterator[Scheduler]:
        return iter(self.schedulers)

    def __len__(self) -> int:
        return len(self.schedulers)


def type_name(type_: SchedulerType | str) -> str:
    """A scheduler type's name, as users read it."""
    return type_ if isinstance(type_, str) else type_.name


def rejection_text(type_: SchedulerType | str, reason: str) -> str:
    """The sentence of api.md 6.4."""
    return f"Scheduler _{type_name(type_)}_ ***rejected*** because : {reason}"


def first_accepting(registry: Iterable[Scheduler], fusion: Fusion) -> tuple[Scheduler | None, list[str]]:
    """The first scheduler that takes `fusion`, and the rejections before it."""
    reasons = []
    for scheduler in registry:
        verdict = scheduler.can_schedule(fusion)
        if isinstance(verdict, Reject):
            reasons.append(rejection_text(scheduler.type, verdict.reason))
        else:
            return scheduler, reasons
    return None, reasons
