"""Measurements as text, a problem a line: what drives searches, policies and reports without a GPU."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from fusewright.core.errors import FusewrightError, ParamsError, TuneError
from fusewright.core.serialization import from_dict, to_dict
from fusewright.schedulers import default_registry, type_name
from fusewright.tune.journal import Journal, Status, Trial
from fusewright.tune.problem import Problem
from fusewright.tune.runner import Source
from fusewright.tune.worker import params_text

# Digits of a time in microseconds.
DIGITS = 3


@dataclass(frozen=True)
class Measurements:
    """What is known of the params of one problem.

    Attributes:
        formula: the params that the scheduler chooses.
        seconds: by params, those that ran. refused: those that did not.
        copy_seconds: of as many bytes; None: not measured.
        made_by: how the times came about, as in "H200" or "cost model".
    """

    problem: Problem
    formula: Any
    seconds: Mapping[Any, float]
    refused: frozenset[Any]
    copy_seconds: float | None
    made_by: str

    @property
    def best(self) -> float:
        return min(self.seconds.values())

    def trial(self, params: Any, origin: str) -> Trial:
        """What became of params; those that the table does not have are refused."""
        text, seconds = params_text(params), self.seconds.get(params)
        if seconds is None:
            known = "refused" if params in self.refused else "not in the table"
            return Trial(text, origin, Status.REJECTED, detail=f"{known} ({self.made_by})")
        return Trial(text, origin, Status.MEASURED, seconds)

    def line(self) -> str:
        """As one line of JSON: params as the fields in which they differ from the formula's."""
        entries = [
            [differences(self.formula, params), round(seconds * 1e6, DIGITS)]
            for params, seconds in self.seconds.items()
        ]
        entries += [
            [change, None]
            for change in sorted((differences(self.formula, params) for params in self.refused), key=str)
        ]
        data = {
            "made_by": self.made_by,
            "copy_us": None if self.copy_seconds is None else round(self.copy_seconds * 1e6, DIGITS),
            "problem": self.problem.to_dict(),
            "formula": to_dict(self.formula),
            "trials": entries,
        }
        return json.dumps(data, separators=(",", ":"))


def measurements_of(line: str, params_types: Mapping[str, type]) -> Measurements:
    """What `Measurements.line` says.

    Args:
        params_types: by the name of a scheduler.

    Raises:
        TuneError: a line that is no such thing.
    """
    try:
        data = json.loads(line)
        problem = Problem.from_dict(data["problem"])
        kind = params_types[problem.scheduler]
        formula: Any = from_dict(kind, data["formula"])
        seconds: dict[Any, float] = {}
        refused: list[Any] = []
        for change, microseconds in data["trials"]:
            params = with_differences(formula, change)
            if microseconds is None:
                refused.append(params)
            else:
                seconds[params] = microseconds / 1e6
        copy = data["copy_us"]
        return Measurements(
            problem,
            formula,
            seconds,
            frozenset(refused),
            None if copy is None else copy / 1e6,
            data["made_by"],
        )
    except (ValueError, KeyError, TypeError, FusewrightError) as error:
        raise TuneError(
            f"a table of measurements cannot be read: {type(error).__name__}: {error}", given=line[:60]
        ) from None


def recorded(journal: Journal, params_types: Mapping[str, type], made_by: str) -> Iterator[Measurements]:
    """The problems of a journal of which something was measured, and the formula's params are known."""
    for problem in journal.problems():
        trials = journal.trials(problem.key)
        formula = next((t.params for t in trials if t.origin == "heuristic"), None)
        kind = params_types.get(problem.scheduler)
        if formula is None or kind is None:
            continue
        read: dict[str, Any] = {}
        for trial in trials:
            with suppress(ParamsError):  # of a class that was another then
                read[trial.params] = from_dict(kind, json.loads(trial.params))
        trials = [trial for trial in trials if trial.params in read]
        race = journal.race(problem.key)
        seconds = {read[t.params]: t.seconds for t in trials if t.seconds is not None}
        if seconds and formula in read:
            yield Measurements(
                problem,
                read[formula],
                seconds,
                frozenset(read[t.params] for t in trials if t.status is Status.REJECTED),
                None if race is None else race.copy_seconds,
                made_by,
            )


def differences(base: Any, params: Any) -> dict[str, Any]:
    """The fields in which params differ from others, by path."""
    old, new = _flat(to_dict(base)), _flat(to_dict(params))
    return {path: value for path, value in new.items() if path != "reason" and old.get(path) != value}


def with_differences(base: Any, changes: Mapping[str, Any]) -> Any:
    """The params that differ so. ParamsError for fields or values that there are not."""
    data = to_dict(replace(base, reason=""))
    for path, value in changes.items():
        *outer, name = path.split(".")
        inside: Any = data
        for each in outer:
            inside = inside.get(each) if isinstance(inside, dict) else None
        if not isinstance(inside, dict):
            raise ParamsError(
                path=path, expected=f"a field of {type(base).__name__}", given=f"the path {path!r}"
            )
        inside[name] = value
    return from_dict(type(base), data)


def params_types() -> dict[str, type]:
    """The class of the params of each scheduler that is registered, by name."""
    return {type_name(each.type): each.params_type for each in default_registry()}


def check_changes(scheduler: str, changes: Mapping[str, Any]) -> None:
    """Raises ParamsError for changes that the params of a scheduler cannot have, if it is registered."""
    kind = params_types().get(scheduler)
    if kind is not None:
        with_differences(kind(), changes)


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, own in value.items():
        if isinstance(own, dict):
            found.update(_flat(own, f"{prefix}{name}."))
        else:
            found[prefix + name] = own
    return found


def drive(source: Source, answer: Callable[[str, str], Trial], copy_seconds: float | None) -> None:
    """Answers all that a source asks, at once. answer: of params as JSON, and their origin."""
    while (attempt := source.ask()) is not None:
        source.tell(answer(attempt.params, attempt.origin), copy_seconds)
