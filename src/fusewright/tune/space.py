"""The legal params of a problem: its points, the neighbours of a point, and the nearest legal one."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import log2
from typing import Any, Protocol

from fusewright.core.errors import ParamsError
from fusewright.core.hardware import HardwareInfo
from fusewright.core.once import cached_property
from fusewright.schedulers import HeuristicParams
from fusewright.schedulers.params.space import Axis, axes_of, drawn, is_valid, value_at, with_value

# Random points that are drawn before one is taken to be hard to find.
DRAWS = 100
# Axes that `legalize` moves along at once before it gives up.
MOST_MOVED = 2


@dataclass(frozen=True)
class Legalized:
    """Params made legal.

    Attributes:
        reason: why they differ from the given params; "" if they do not.
    """

    params: Any
    reason: str = ""


@dataclass(frozen=True)
class Step:
    """A step from one point to another.

    Attributes:
        path: the field, or fields, that it changes.
        direction: -1 to a smaller value, 1 to a greater one.
    """

    path: str
    direction: int
    params: Any


class Space(Protocol):
    """The points that a search visits."""

    def legalize(self, params: Any) -> Legalized:
        """The nearest legal params. TuneError or ParamsError if there are none."""
        ...

    def steps(self, params: Any) -> Sequence[Step]:
        """The neighbours of params."""
        ...

    def draw(self, source: random.Random) -> Any | None:
        """Random legal params; None if none are found."""
        ...


class ParamsSpace:
    """All legal params of a class.

    Args:
        base: has the values that the fusion determines (`HeuristicParams.space`).
        fixed: values that the scheduler needs (`Scheduler.fixed_params`).
        length: of the rows, or columns, that a kernel may hold; params have the number of threads that it
            needs.
    """

    def __init__(
        self,
        base: HeuristicParams,
        hardware: HardwareInfo,
        fixed: Mapping[str, Any] | None = None,
        length: int | None = None,
    ) -> None:
        self.base = replace(base, reason="")
        self.hardware = hardware
        self._fixed = dict(fixed or {})
        self._length = length

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """The directions in which points differ."""
        return tuple(a for a in axes_of(self.base, self.hardware) if a.path[0] not in self._fixed)

    def is_legal(self, params: HeuristicParams) -> bool:
        """Whether a scheduler may be asked for them."""
        has_fixed = all(getattr(params, name) == value for name, value in self._fixed.items())
        return has_fixed and is_valid(params, self.hardware)

    def legalize(self, params: HeuristicParams) -> Legalized:
        """The nearest legal params, with the reason why these are not.

        Values that are illegal by themselves move to the nearest legal one; then one field, or two, move as
        few steps as make the whole legal; else they are those of the base.

        Raises:
            ParamsError: params of another class.
        """
        if not isinstance(params, type(self.base)):
            raise ParamsError(
                path="params", expected=type(self.base).__name__, given=f"a {type(params).__name__}"
            )
        given, params = replace(params, reason=""), self.fitted(replace(params, reason=""))
        problem = self._problem(params)
        if not problem:
            reason = "" if params == given else f"as many threads as {self._length} elements take"
            return Legalized(params, reason)
        fixed = self._repaired(params)
        found = fixed if self.is_legal(fixed) else self._nearest(fixed)
        return Legalized(self.base if found is None else found, problem)

    def steps(self, params: HeuristicParams) -> list[Step]:
        """Along each axis the next legal values on both sides, with dependent fields repaired."""
        found: list[Step] = []
        seen = {params}
        for axis in self.axes:
            values = list(axis.values(params))
            own = value_at(params, axis.path)
            for direction in (-1, 1):
                for value in values_beyond(values, own, direction):
                    moved = self.moved(params, axis, value)
                    if moved not in seen and self.is_legal(moved):
                        seen.add(moved)
                        found.append(Step(".".join(axis.path), direction, moved))
                        break
        return found

    def moved(self, params: HeuristicParams, axis: Axis, value: Any) -> HeuristicParams:
        """Params with another value along an axis, with dependent fields repaired; they may be illegal."""
        return self._repaired(with_value(params, axis.path, value), keep=axis.path)

    def draw(self, source: random.Random) -> HeuristicParams | None:
        for _ in range(DRAWS):
            params = self.fitted(drawn(self.base, self.axes, source.choice))
            if self.is_legal(params):
                return params
        return None

    def _problem(self, params: HeuristicParams) -> str:
        """Why params are not legal; "" where they are."""
        try:
            for name, value in self._fixed.items():
                params.expect(name, value)
            params.validate(self.hardware)
        except ParamsError as error:
            return str(error).partition("\n")[0]
        return ""

    def _repaired(self, params: HeuristicParams, keep: tuple[str, ...] = ()) -> HeuristicParams:
        """Each value that the axis does not have, given those before, is the nearest one that it has.

        A legal value between those that a space tries stays.
        """
        for name, value in self._fixed.items():
            params = with_value(params, (name,), value)
        for axis in self.axes:
            values = axis.values(params)
            own = value_at(params, axis.path)
            if axis.path == keep or own in values:
                continue
            nearest = min(values, key=lambda value: distance(value, own))
            low, high = _range(values)
            if not (low is not None and high is not None and _is_number(own) and low <= own <= high):
                params = with_value(params, axis.path, nearest)
        return self.fitted(params)

    def fitted(self, params: HeuristicParams) -> HeuristicParams:
        """The same with the number of threads for the length, if they state a number."""
        return params if self._length is None else params.for_length(self._length)

    def _nearest(self, params: HeuristicParams) -> HeuristicParams | None:
        """The legal params that the fewest steps along one axis, or two, lead to."""
        moves: list[tuple[float, tuple[str, ...], Any]] = []
        for axis in self.axes:
            own = value_at(params, axis.path)
            moves += [
                (distance(value, own), axis.path, value) for value in axis.values(params) if value != own
            ]
        moves.sort(key=lambda move: move[0])
        for count in range(1, MOST_MOVED + 1):
            for several in sorted(combinations(moves, count), key=lambda ms: sum(m[0] for m in ms)):
                moved = params
                for _, path, value in several:
                    moved = with_value(moved, path, value)
                moved = self.fitted(moved)
                if self.is_legal(moved):
                    return moved
        return None


def values_beyond(values: Sequence[Any], own: Any, direction: int) -> Iterator[Any]:
    """The values on one side of one's own, the nearest first."""
    if own in values and not _is_number(own):
        at = values.index(own)
        yield from values[at + 1 :] if direction > 0 else values[:at][::-1]
    elif _is_number(own):
        side = [value for value in values if _is_number(value) and (value > own) == (direction > 0)]
        yield from sorted(side, key=lambda value: abs(value - own))


def distance(one: Any, other: Any) -> float:
    """Of two values of a field: numbers are as far apart as their logarithms."""
    if one == other:
        return 0.0
    if _is_number(one) and _is_number(other) and min(one, other) >= 0:
        return abs(log2(one + 1) - log2(other + 1))
    return 1.0


def _range(values: Sequence[Any]) -> tuple[Any, Any]:
    numbers = [value for value in values if _is_number(value)]
    return (min(numbers), max(numbers)) if len(numbers) > 1 else (None, None)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def points_of(space: ParamsSpace, count: int | None, seed: int) -> Iterator[Any]:
    """A stratified sample of a space, or None: all of it. What is the same for its length comes once."""
    seen: set[Any] = set()
    for point in type(space.base).space(space.hardware, base=space.base, points=count, seed=seed):
        fitted = space.fitted(point)
        if fitted not in seen and (fitted == point or space.is_legal(fitted)):
            seen.add(fitted)
            yield fitted
