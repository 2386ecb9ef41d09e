"""The legal points of a params class: all combinations of what its fields declare that are valid.

`tune.space` moves along the same axes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import islice
from typing import Any, TypeVar

from fusewright.core.errors import ParamsError
from fusewright.core.hardware import HardwareInfo
from fusewright.schedulers.params.decision import Decision, Field, fields_of
from fusewright.schedulers.params.launch import EXTENTS, CompileParams, LaunchChoice, LaunchParams

P = TypeVar("P", bound=Decision)

# Draws for each point of a sample, before the points are enumerated instead: `validate` refuses some draws.
DRAWS_PER_POINT = 30


@dataclass(frozen=True, slots=True)
class Axis:
    """One direction of the space: a field, possibly of a nested object, by its path.

    Attributes:
        values: takes params whose earlier axes are decided, and returns the values to try.
    """

    path: tuple[str, ...]
    values: Callable[[Any], Sequence[Any]]


def space(base: P, hardware: HardwareInfo, points: int | None, seed: int) -> Iterator[P]:
    """See `HeuristicParams.space`."""
    axes = list(axes_of(base, hardware))
    if points is None:
        return _all(base, axes, hardware)
    sample = _sample(base, axes, hardware, points, seed)
    if len(sample) == points:
        return iter(sample)
    found = list(islice(_all(base, axes, hardware), points + 1))
    return islice(dict.fromkeys([*sample, *found] if len(found) > points else found), points)


def _all(base: P, axes: Sequence[Axis], hardware: HardwareInfo) -> Iterator[P]:
    if not axes:
        if is_valid(base, hardware):
            yield base
        return
    first, *rest = axes
    for value in first.values(base):
        yield from _all(with_value(base, first.path, value), rest, hardware)


def _sample(base: P, axes: Sequence[Axis], hardware: HardwareInfo, points: int, seed: int) -> list[P]:
    """Latin hypercubes: of `points` draws, each goes to another of `points` equal parts of every axis."""
    source, found = random.Random(seed), dict[P, None]()
    for _ in range(DRAWS_PER_POINT):
        columns = [source.sample(range(points), points) for _ in axes]
        for position in range(points):
            places = [(column[position] + source.random()) / points for column in columns]
            params = drawn(base, axes, _at(places))
            if params not in found and is_valid(params, hardware):
                found[params] = None
                if len(found) == points:
                    return list(found)
    return list(found)


def _at(places: Sequence[float]) -> Callable[[Sequence[Any]], Any]:
    """Chooses one value after another by where it stands in all of its axis: from 0 to below 1."""
    following = iter(places)
    return lambda values: values[int(next(following) * len(values))]


def drawn(base: P, axes: Sequence[Axis], choose: Callable[[Sequence[Any]], Any]) -> P:
    """The params with a value for each axis of those that they have, given the earlier ones; they may be
    invalid.

    Args:
        choose: chooses one of an axis' values. They have the field's type, so nothing is checked: that would
            take ten times as long as everything else.
    """
    params = _unshared(base)
    for axis in axes:
        *parts, name = axis.path
        object.__setattr__(reduce(getattr, parts, params), name, choose(axis.values(params)))
    return params


def _unshared(params: P) -> P:
    """A copy whose fields may be assigned, as may those of its parts."""
    copied = object.__new__(type(params))
    for field in fields_of(type(params)):
        value = getattr(params, field.name)
        object.__setattr__(copied, field.name, _unshared(value) if isinstance(value, Decision) else value)
    return copied


def axes_of(base: Decision, hardware: HardwareInfo) -> Iterator[Axis]:
    """The directions of a space: the fields of an object and of what it nests.

    Launches come last: they depend on all others.
    """
    launches: list[Axis] = []
    for field in fields_of(type(base)):
        value = getattr(base, field.name)
        if isinstance(field.choice, LaunchChoice):
            launches.extend(_launch_axis(field.choice, field.name, name, value, hardware) for name in EXTENTS)
        elif isinstance(value, Decision):
            if not isinstance(value, CompileParams):
                yield from (_nested(field.name, axis) for axis in axes_of(value, hardware))
        elif field.legal is not None:
            yield Axis((field.name,), _values_of(field, value, hardware))
    yield from launches


def _values_of(field: Field, own: Any, hardware: HardwareInfo) -> Callable[[Any], Sequence[Any]]:
    legal, when = field.legal, field.choice.when
    assert legal is not None
    tried = tuple(legal.values(hardware))
    values = tried if own in tried else (own, *tried)
    return lambda params: values if when is None or when.holds(params) else (field.default,)


def _launch_axis(
    declared: LaunchChoice, field: str, name: str, base: LaunchParams, hardware: HardwareInfo
) -> Axis:
    own = getattr(base, name)
    return Axis((field, name), lambda params: declared.values(name, params, hardware, own))


def _nested(name: str, axis: Axis) -> Axis:
    return Axis((name, *axis.path), lambda params: axis.values(getattr(params, name)))


def value_at(params: Any, path: tuple[str, ...]) -> Any:
    """What params have at a path."""
    return reduce(getattr, path, params)


def with_value(params: P, path: tuple[str, ...], value: Any) -> P:
    """The params with another value at a path. ParamsError for one of a wrong type."""
    name, *rest = path
    current = getattr(params, name)
    if rest:
        value = with_value(current, tuple(rest), value)
    return params if value is current else replace(params, **{name: value})  # type: ignore[type-var]


def is_valid(params: Decision, hardware: HardwareInfo) -> bool:
    """Whether `validate` accepts the params."""
    try:
        params.validate(hardware)
    except ParamsError:
        return False
    return True
