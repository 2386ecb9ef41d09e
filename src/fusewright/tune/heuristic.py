"""Autotuner heuristics: the interface, the list of all heuristics, and their answers for a problem."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

from fusewright.core.errors import RegistrationError, TuneError
from fusewright.core.forks import renew_in_child
from fusewright.schedulers import HeuristicParams
from fusewright.tune.problem import Problem
from fusewright.tune.space import Space

ANY = "any"
# The maximum number of proposals of a heuristic next to params that a search tries.
MOST_NEIGHBORS = 1000


class AutotunerHeuristic:
    """Proposes initial params for some problems. Subclass it, and pass an object to the tuner or register it.

    A problem has `facts` (`tune.facts`), the GPU's `hardware`, and `formula`, the params that the scheduler
    itself would choose. Seeds are often these params with a changed value (`dataclasses.replace`).

    Attributes:
        name: the heuristic's name in records.
        scheduler: the scheduler for whose problems it is asked; "any": all.
    """

    name: str = ""
    scheduler: str = ANY

    def is_eligible(self, problem: Problem) -> bool | str:
        """Whether it applies to this problem on this GPU; a text states why not."""
        return True

    def get_seed_params(self, problem: Problem) -> Any | None:
        """Params to try first; None if there are none. Illegal ones are moved to the nearest legal ones."""
        return None

    def get_neighbors(self, problem: Problem, params: Any) -> Iterable[Any]:
        """Params to try if `params` are among the best, besides those that differ in one field."""
        return ()


class HeuristicRegistry:
    """Heuristics in the order in which they are asked. Several threads may use a registry.

    Attributes:
        current: the heuristics; another tuple after each change.
    """

    def __init__(self, heuristics: Iterable[AutotunerHeuristic] = ()) -> None:
        self.current: tuple[AutotunerHeuristic, ...] = ()
        self._lock = threading.RLock()
        renew_in_child(self)
        for heuristic in heuristics:
            self.add(heuristic)

    def renew(self) -> None:
        """Makes the lock anew, in a child of `fork`."""
        self._lock = threading.RLock()

    def __iter__(self) -> Iterator[AutotunerHeuristic]:
        return iter(self.current)

    def add(self, heuristic: AutotunerHeuristic) -> None:
        """Adds a heuristic after the present ones.

        Raises:
            RegistrationError: it does not extend AutotunerHeuristic, or has no name or the name of another
                one.
        """
        problem = ""
        if not isinstance(heuristic, AutotunerHeuristic):
            problem = f"expected an object of a class that extends AutotunerHeuristic, got {heuristic!r}"
        elif not isinstance(heuristic.name, str) or not heuristic.name:
            problem = f"expected `name` to be a str that is not empty, got {heuristic.name!r}"
        elif heuristic.name in (known.name for known in self.current):
            problem = f"there is one of the name {heuristic.name}"
        if problem:
            raise RegistrationError(what="an autotuner heuristic", problem=problem)
        with self._lock:
            self.current = (*self.current, heuristic)

    def remove(self, name: str) -> None:
        """Removes the heuristic of this name. RegistrationError if there is none."""
        with self._lock:
            left = tuple(heuristic for heuristic in self.current if heuristic.name != name)
            if len(left) == len(self.current):
                names = ", ".join(heuristic.name for heuristic in self.current)
                raise RegistrationError(
                    what=f"the autotuner heuristic {name}", problem=f"there is none; there are {names}"
                )
            self.current = left

    @contextmanager
    def added(self, heuristic: AutotunerHeuristic) -> Iterator[None]:
        """`add`, until the block ends."""
        self.add(heuristic)
        try:
            yield
        finally:
            self.remove(heuristic.name)


@dataclass(frozen=True)
class Asked:
    """The answer of a heuristic, or of the user, for a problem.

    Attributes:
        outcome: "applied", "duplicate" of an earlier seed, "no seed", or "not eligible".
        reason: why it is not eligible, or why the seed was changed to a legal one.
    """

    name: str
    outcome: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.outcome}" + (f" ({self.reason})" if self.reason else "")


@dataclass(frozen=True)
class Seed:
    """Initial params of a search, and their origin."""

    params: Any
    origin: str


@dataclass(frozen=True)
class Seeds:
    """The start of a search: distinct legal params, and all answers."""

    seeds: tuple[Seed, ...]
    asked: tuple[Asked, ...]
    eligible: tuple[AutotunerHeuristic, ...]

    def neighbors(self, problem: Problem, params: Any) -> Iterator[Any]:
        """The proposals of the eligible heuristics next to params. TuneError: one of them failed."""
        for heuristic in self.eligible:
            with _naming(heuristic, "get_neighbors"):
                found = tuple(islice(heuristic.get_neighbors(problem, params), MOST_NEIGHBORS))
                for each in found:
                    if not isinstance(each, type(params)):
                        raise TypeError(f"expected {type(params).__name__}, got {each!r}")
            yield from found


def seeds_of(
    problem: Problem, space: Space, heuristics: Iterable[AutotunerHeuristic], given: Sequence[Any] = ()
) -> Seeds:
    """Asks heuristics for seeds, and adds those that the user gave. Illegal ones become legal ones.

    A seed of the user's that is of another scheduler's class is not eligible.

    Raises:
        TuneError: a heuristic failed, or answered something else than it has to.
    """
    seeds: dict[Any, Seed] = {}
    asked: list[Asked] = []
    eligible: list[AutotunerHeuristic] = []

    def add(params: Any, name: str) -> None:
        found = space.legalize(params)
        outcome = "duplicate" if found.params in seeds else "applied"
        seeds.setdefault(found.params, Seed(found.params, name))
        asked.append(Asked(name, outcome, found.reason and f"legalized: {found.reason}"))

    for heuristic in heuristics:
        if heuristic.scheduler not in (ANY, problem.scheduler):
            continue
        with _naming(heuristic, "is_eligible"):
            answer = heuristic.is_eligible(problem)
            if not isinstance(answer, (bool, str)):
                raise TypeError(f"expected True, False or a reason why not, got {answer!r}")
        if answer is not True:
            asked.append(Asked(heuristic.name, "not eligible", answer if isinstance(answer, str) else ""))
            continue
        eligible.append(heuristic)
        with _naming(heuristic, "get_seed_params"):
            params = heuristic.get_seed_params(problem)
            if params is not None and not isinstance(params, HeuristicParams):
                raise TypeError(f"expected params or None, got {params!r}")
            if params is not None:
                add(params, heuristic.name)
        if params is None:
            asked.append(Asked(heuristic.name, "no seed"))
    kind = type(problem.formula)
    for i, params in enumerate(given):
        name = f"seeds[{i}]"
        if problem.formula is None or isinstance(params, kind):
            add(params, name)
        else:
            reason = f"{type(params).__name__}, where {problem.scheduler} has {kind.__name__}"
            asked.append(Asked(name, "not eligible", reason))
    return Seeds(tuple(seeds.values()), tuple(asked), tuple(eligible))


@contextmanager
def _naming(heuristic: AutotunerHeuristic, step: str) -> Iterator[None]:
    """What a heuristic raises names it."""
    try:
        yield
    except Exception as error:
        raise TuneError(
            f"the autotuner heuristic {heuristic.name} failed in {step}: {type(error).__name__}: {error}"
        ) from error
