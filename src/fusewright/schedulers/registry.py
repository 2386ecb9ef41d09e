"""Registries: ordered lists of schedulers, with users' heuristics."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import is_dataclass
from typing import Any

from fusewright.core.enums import SchedulerType
from fusewright.core.errors import OptionError, RegistrationError
from fusewright.core.forks import renew_in_child
from fusewright.schedulers.base import Scheduler, heuristics_of, is_built_in, type_name
from fusewright.schedulers.heuristics import Heuristic, TunedScheduler, untuned
from fusewright.schedulers.params import HeuristicParams


class Registry:
    """Schedulers in the order in which they are asked, each with the heuristics that choose its params.

    A definition asks the schedulers that its registry has at the time of the call. Several threads may use a
    registry.

    Attributes:
        current: the schedulers in order; another tuple after each change.
    """

    def __init__(self, schedulers: Iterable[Scheduler] = ()) -> None:
        self.current: tuple[Scheduler, ...] = ()
        self._lock = threading.RLock()
        renew_in_child(self)
        if not isinstance(schedulers, Iterable):
            raise RegistrationError(
                what="a registry", problem=f"expected a list of schedulers, got {schedulers!r:.60}"
            )
        for scheduler in schedulers:
            self._insert(_checked(scheduler), len(self.current))

    def renew(self) -> None:
        """Makes the lock anew, in a child of `fork`."""
        self._lock = threading.RLock()

    def copy(self) -> Registry:
        """A registry of the same schedulers and heuristics; later changes are of one of the two alone."""
        return Registry(self.current)

    def get(self, type_: SchedulerType | str) -> Scheduler:
        """The scheduler of this type, or of the type of this name. OptionError if there is none."""
        return self.current[self._position(type_)]

    def __repr__(self) -> str:
        """Its schedulers in the order in which they are asked, with the heuristics of a user."""
        return f"Registry({', '.join(map(_told, self.current))})"

    def __iter__(self) -> Iterator[Scheduler]:
        return iter(self.current)

    def __len__(self) -> int:
        return len(self.current)

    # ---- schedulers

    def register(
        self, scheduler: Scheduler | Callable[[], Scheduler], before: SchedulerType | str | None = None
    ) -> Scheduler:
        """Adds a scheduler, or an object of a class: first, or just before the one of type `before`.

        Raises:
            RegistrationError: it lacks a scheduler's members, or there is already one of its type.
            OptionError: there is none of type `before`.
        """
        made = _checked(_made(scheduler))
        with self._lock:
            self._insert(made, 0 if before is None else self._position(before))
        return made

    def unregister(self, type_: SchedulerType | str) -> None:
        """Removes the scheduler of this type, with its heuristics. OptionError if there is none."""
        with self._lock:
            position = self._position(type_)
            self.current = (*self.current[:position], *self.current[position + 1 :])

    @contextmanager
    def registered(
        self, scheduler: Scheduler | Callable[[], Scheduler], before: SchedulerType | str | None = None
    ) -> Iterator[Scheduler]:
        """`register`, until the block ends."""
        made = self.register(scheduler, before)
        try:
            yield made
        finally:
            with self._lock:
                self.current = tuple(s for s in self.current if untuned(s) is not untuned(made))

    # ---- heuristics

    def add_heuristic(self, type_: SchedulerType | str, heuristic: Heuristic) -> None:
        """Has `heuristic` choose the params of a scheduler; the one before is its default.

        Raises:
            OptionError: there is no such scheduler. RegistrationError: it cannot be called.
        """
        self._position(type_)
        if not callable(heuristic):
            raise RegistrationError(
                what=f"a heuristic of {type_name(type_)}",
                problem=f"expected a function of (facts, hardware, default), got {heuristic!r}",
            )
        with self._lock:
            position = self._position(type_)
            scheduler = self.current[position]
            self._replace(position, (*heuristics_of(scheduler), heuristic))

    def remove_heuristic(self, type_: SchedulerType | str, heuristic: Heuristic) -> None:
        """Removes the latest registration of a heuristic. RegistrationError if there is none."""
        with self._lock:
            position = self._position(type_)
            left = list(heuristics_of(self.current[position]))
            found = [i for i, known in enumerate(left) if known is heuristic]
            if not found:
                raise RegistrationError(
                    f"{heuristic!r} is no heuristic of the scheduler {type_name(type_)}",
                    expected=f"one of {left}" if left else "one that add_heuristic was given",
                    given=repr(heuristic),
                )
            del left[found[-1]]
            self._replace(position, tuple(left))

    @contextmanager
    def heuristics(self, by_type: Mapping[SchedulerType | str, Heuristic]) -> Iterator[None]:
        """`add_heuristic` for each, until the block ends."""
        if not isinstance(by_type, Mapping):
            expected = "a dict from scheduler types to functions of (facts, hardware, default)"
            raise RegistrationError(what="heuristics", problem=f"expected {expected}, got {by_type!r}")
        with ExitStack() as added:
            for type_, heuristic in by_type.items():
                self.add_heuristic(type_, heuristic)
                added.callback(self._forget_heuristic, type_, heuristic)
            yield

    def _forget_heuristic(self, type_: SchedulerType | str, heuristic: Heuristic) -> None:
        with self._lock:
            for scheduler in self.current:  # the block may have taken it out itself
                if type_name(scheduler.type) == type_name(type_) and heuristic in heuristics_of(scheduler):
                    self.remove_heuristic(type_, heuristic)
                    return

    # ---- positions

    def _position(self, type_: SchedulerType | str) -> int:
        name = type_name(type_) if isinstance(type_, (SchedulerType, str)) else repr(type_)
        for i, scheduler in enumerate(self.current):
            if type_name(scheduler.type) == name:
                return i
        names = ", ".join(type_name(s.type) for s in self.current)
        raise OptionError("unknown scheduler", expected=f"one of {names}", given=name)

    def _insert(self, scheduler: Scheduler, position: int) -> None:
        name = type_name(scheduler.type)
        for known in self.current:
            if type_name(known.type) == name:
                raise RegistrationError(
                    what=f"the scheduler {name}",
                    problem=f"there is one of this type, of class {type(untuned(known)).__qualname__}",
                    hint=f"unregister {name} first, or give the class another `type`",
                )
        self.current = (*self.current[:position], scheduler, *self.current[position:])

    def _replace(self, position: int, heuristics: tuple[Heuristic, ...]) -> None:
        base = untuned(self.current[position])
        made = TunedScheduler(base, heuristics) if heuristics else base
        self.current = (*self.current[:position], made, *self.current[position + 1 :])


def _made(scheduler: Any) -> Any:
    """The scheduler, of a class a new one."""
    if not isinstance(scheduler, type):
        return scheduler
    try:
        return scheduler()
    except Exception as error:
        raise RegistrationError(
            what=f"the class {scheduler.__qualname__}",
            problem=f"it cannot be made without arguments: {type(error).__name__}: {error}",
            hint="register an object of it",
        ) from error


def _checked(scheduler: Any) -> Scheduler:
    """The scheduler. RegistrationError if it lacks what a scheduler has."""
    if is_built_in(scheduler) or heuristics_of(scheduler):
        return scheduler
    for name, (expected, holds) in _MEMBERS.items():
        given = getattr(scheduler, name, None)
        if not holds(given):
            raise RegistrationError(
                what=f"{type(scheduler).__qualname__} as a scheduler",
                problem=f"expected `{name}` to be {expected}, got {given!r}",
            )
    return scheduler


def _is_params(given: Any) -> bool:
    if not (isinstance(given, type) and issubclass(given, HeuristicParams) and is_dataclass(given)):
        return False
    return bool(vars(given)["__dataclass_params__"].frozen)


# What a scheduler has, and how that is told.
_MEMBERS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "type": (
        "its name, a str that is not empty",
        lambda given: isinstance(given, (str, SchedulerType)) and bool(given),
    ),
    "params_type": ("a frozen dataclass that extends HeuristicParams", _is_params),
    "prepare": ("a method (fusion)", callable),
    "apply": ("a method (schedule, params)", callable),
}


def _told(scheduler: Scheduler) -> str:
    """Its name, with the heuristics that were added to it."""
    added = [getattr(heuristic, "__qualname__", repr(heuristic)) for heuristic in heuristics_of(scheduler)]
    return f"{type_name(scheduler.type)} with {', '.join(added)}" if added else type_name(scheduler.type)
