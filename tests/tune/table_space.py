"""Points of a table of measurements as a space: a search of them measures nothing."""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import partial
from typing import Any

from fusewright.schedulers import HeuristicParams
from fusewright.schedulers.params.space import value_at
from fusewright.tune.space import Legalized, ParamsSpace, Step, distance, values_beyond

# Fields in which points differ that lie beside each other.
FEW_FIELDS = 3


class TableSpace:
    """The points of a table, those among them that were refused.

    Args:
        space: that they are of.
        beside: of those that differ from a point in a few fields, how many are named beside it.
    """

    def __init__(self, points: Iterable[HeuristicParams], space: ParamsSpace, beside: int = 6) -> None:
        self._places = {point: self._place(space, point) for point in points}
        self._points = list(self._places)
        self._space = space
        self._beside = beside

    def legalize(self, params: HeuristicParams) -> Legalized:
        found = self._space.legalize(params)
        if found.params in self._places:
            return found
        own = self._place(self._space, found.params)
        return Legalized(min(self._points, key=partial(self._apart, own)), "the table has no such point")

    def steps(self, params: HeuristicParams) -> list[Step]:
        """Along each axis the next points on both sides, then the nearest of those that differ in a few."""
        own, found = self._place(self._space, params), dict[tuple[str, int], tuple[float, Step]]()
        others = []
        for point, place in self._places.items():
            moved = [i for i, (one, other) in enumerate(zip(own, place)) if one != other]
            if not 0 < len(moved) <= FEW_FIELDS:
                continue
            apart = sum(distance(own[i], place[i]) for i in moved)
            axis = self._space.axes[moved[0]]
            if len(moved) > 1 and self._space.moved(params, axis, place[moved[0]]) != point:
                paths = " ".join(".".join(self._space.axes[i].path) for i in moved)
                others.append((apart, Step(paths, 1, point)))
                continue
            values, path = list(axis.values(params)), ".".join(axis.path)
            direction = 1 if place[moved[0]] in values_beyond(values, own[moved[0]], 1) else -1
            if (path, direction) not in found or apart < found[path, direction][0]:
                found[path, direction] = apart, Step(path, direction, point)
        others.sort(key=lambda each: each[0])
        return [step for _, step in [*found.values(), *others[: self._beside]]]

    def draw(self, source: random.Random) -> HeuristicParams | None:
        return source.choice(self._points)

    def _apart(self, own: list[Any], other: HeuristicParams) -> float:
        return sum(distance(a, b) for a, b in zip(own, self._places[other]) if a != b)

    @staticmethod
    def _place(space: ParamsSpace, params: HeuristicParams) -> list[Any]:
        return [value_at(params, axis.path) for axis in space.axes]
