"""The default registry, for definitions without a registry of their own, and how users extend it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeVar, overload

from fusewright.core.enums import SchedulerType
from fusewright.schedulers.base import Scheduler
from fusewright.schedulers.expr_eval import ExprEvalScheduler
from fusewright.schedulers.heuristics import Heuristic
from fusewright.schedulers.inner_outer.persistent import InnerOuterPersistentScheduler
from fusewright.schedulers.inner_outer.scheduler import InnerOuterScheduler
from fusewright.schedulers.persistent.inner import InnerPersistentScheduler
from fusewright.schedulers.persistent.outer import OuterPersistentScheduler
from fusewright.schedulers.pointwise.scheduler import PointwiseScheduler
from fusewright.schedulers.reduction.scheduler import ReductionScheduler
from fusewright.schedulers.registry import Registry
from fusewright.schedulers.scan.scheduler import ScanScheduler
from fusewright.schedulers.transpose.scheduler import TransposeScheduler

Plugin = TypeVar("Plugin", bound=type)
Chosen = TypeVar("Chosen", bound=Heuristic)

_DEFAULT = Registry(
    [
        ReductionScheduler(),
        InnerOuterScheduler(),
        TransposeScheduler(),
        PointwiseScheduler(),
        InnerPersistentScheduler(),
        OuterPersistentScheduler(),
        InnerOuterPersistentScheduler(),
        ExprEvalScheduler(),
        ScanScheduler(),
    ]
)


def default_registry() -> Registry:
    """The registry of the process: the built-in schedulers in order of priority, and those that users add.

    A definition without a registry of its own asks the schedulers that this one has at the time of the call.
    `default_registry().copy()` is the start of a separate registry.
    """
    return _DEFAULT


@overload
def register_scheduler(scheduler: Plugin) -> Plugin: ...
@overload
def register_scheduler(*, before: SchedulerType | str | None = None) -> Callable[[Plugin], Plugin]: ...
def register_scheduler(scheduler: Any = None, *, before: SchedulerType | str | None = None) -> Any:
    """A decorator of classes: adds a scheduler of this class to the default registry (`Registry.register`).

    Args:
        before: the scheduler that is asked next; None: it is asked first of all.
    """

    if before is not None:
        _DEFAULT.get(before)  # what cannot be is refused where it is written

    def register(cls: Any) -> Any:
        _DEFAULT.register(cls, before)
        return cls

    return register if scheduler is None else register(scheduler)


def unregister_scheduler(type_: SchedulerType | str) -> None:
    """Removes the scheduler of this type from the default registry. OptionError if there is none."""
    _DEFAULT.unregister(type_)


def registered_scheduler(
    scheduler: Scheduler | Callable[[], Scheduler], before: SchedulerType | str | None = None
) -> AbstractContextManager[Scheduler]:
    """A block in which the default registry has this scheduler, too; for all threads."""
    return _DEFAULT.registered(scheduler, before)


def heuristic(type_: SchedulerType | str) -> Callable[[Chosen], Chosen]:
    """A decorator of functions `(facts, hardware, default)`, which then choose a scheduler's params.

    `default(facts, hardware)` returns the choice without the function. The function returns params, or a dict
    of changes to the default's (`schedulers.heuristics`).

    Raises:
        OptionError: there is no such scheduler.
    """
    _DEFAULT.get(type_)

    def add(function: Chosen) -> Chosen:
        _DEFAULT.add_heuristic(type_, function)
        return function

    return add


def remove_heuristic(type_: SchedulerType | str, function: Heuristic) -> None:
    """Removes a heuristic from the default registry. RegistrationError if this scheduler does not have it."""
    _DEFAULT.remove_heuristic(type_, function)


def heuristics(by_type: Mapping[SchedulerType | str, Heuristic]) -> AbstractContextManager[None]:
    """A block in which these functions choose params in the default registry; for all threads."""
    return _DEFAULT.heuristics(by_type)
