"""Measurements of problems, which drive searches, policies and reports without a GPU."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fusewright.core.errors import ParamsError
from fusewright.core.serialization import from_dict
from fusewright.schedulers import default_registry, type_name
from fusewright.tune.journal import FORMULA, Journal, Status, Trial
from fusewright.tune.problem import Problem
from fusewright.tune.worker import params_text


@dataclass(frozen=True)
class Measurements:
    """The known results for the params of one problem.

    Attributes:
        formula: the params that the scheduler chooses.
        seconds: of params that ran.
        refused: params that were rejected.
        copy_seconds: of a copy of the same number of bytes; None: not measured.
        made_by: the origin of the times, such as "H200" or "cost model".
        plain: params that use no optimizations, as far as that is legal; None: not known.
    """

    problem: Problem
    formula: Any
    seconds: Mapping[Any, float]
    refused: frozenset[Any]
    copy_seconds: float | None
    made_by: str
    plain: Any = None

    @property
    def best(self) -> float:
        return min(self.seconds.values())

    def trial(self, params: Any, origin: str) -> Trial:
        """The result of params; params that the table does not have count as rejected."""
        text, seconds = params_text(params), self.seconds.get(params)
        if seconds is None:
            known = "refused" if params in self.refused else "not in the table"
            return Trial(text, origin, Status.REJECTED, detail=f"{known} ({self.made_by})")
        return Trial(text, origin, Status.MEASURED, seconds)


def measurements_of(
    journal: Journal, made_by: str, types: Mapping[str, type] | None = None
) -> Iterator[Measurements]:
    """The problems of a journal of which something was measured, and the formula's params are known.

    types: the class of the params of each scheduler; None: of those that are registered.
    """
    types = params_types() if types is None else types
    for problem in journal.problems():
        trials = journal.trials(problem.key)
        formula = next((t.params for t in trials if t.origin == FORMULA), None)
        kind = types.get(problem.scheduler)
        if formula is None or kind is None:
            continue
        read: dict[str, Any] = {}
        for trial in trials:
            with suppress(ParamsError):  # of a class that was another then
                read[trial.params] = from_dict(kind, json.loads(trial.params))
        trials = [trial for trial in trials if trial.params in read]
        race = journal.race(problem.key)
        raced = {} if race is None else race.seconds  # many times, in turns: what was only lucky shows
        seconds = {read[t.params]: raced.get(t.params, t.seconds) for t in trials if t.seconds is not None}
        if seconds and formula in read:
            yield Measurements(
                problem,
                read[formula],
                seconds,
                frozenset(read[t.params] for t in trials if t.status is Status.REJECTED),
                None if race is None else race.copy_seconds,
                made_by,
            )


def params_types() -> dict[str, type]:
    """The class of the params of each scheduler that is registered, by name."""
    return {type_name(each.type): each.params_type for each in default_registry()}
