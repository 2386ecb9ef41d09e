"""Measurements of problems: what drives searches, policies and reports without a GPU."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from fusewright.core.errors import ParamsError
from fusewright.core.serialization import from_dict, to_dict
from fusewright.schedulers import HeuristicParams, default_registry, type_name
from fusewright.schedulers.params import Decision
from fusewright.tune.journal import Journal, Status, Trial
from fusewright.tune.problem import Problem
from fusewright.tune.runner import Source
from fusewright.tune.worker import params_text


@dataclass(frozen=True)
class Measurements:
    """What is known of the params of one problem.

    Attributes:
        formula: the params that the scheduler chooses.
        seconds: by params, those that ran. refused: those that did not.
        copy_seconds: of as many bytes; None: not measured.
        made_by: how the times came about, as in "H200" or "cost model".
        plain: params that use none of what makes kernels fast, as far as that is legal; None: not known.
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
        """What became of params; those that the table does not have are refused."""
        text, seconds = params_text(params), self.seconds.get(params)
        if seconds is None:
            known = "refused" if params in self.refused else "not in the table"
            return Trial(text, origin, Status.REJECTED, detail=f"{known} ({self.made_by})")
        return Trial(text, origin, Status.MEASURED, seconds)


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
    own: dict[str, Any] = {"reason": ""} if isinstance(base, HeuristicParams) else {}
    nested: dict[str, dict[str, Any]] = {}
    for path, value in changes.items():
        name, dot, rest = path.partition(".")
        if dot:
            nested.setdefault(name, {})[rest] = value
        else:
            own[name] = value
    for name, inside in nested.items():
        part = getattr(base, name, None)
        if not isinstance(part, Decision):
            path = f"{name}.{next(iter(inside))}"
            expected = f"a field of {type(base).__name__}"
            raise ParamsError(path=path, expected=expected, given=f"the path {path!r}")
        try:
            own[name] = with_differences(part, inside)
        except ParamsError as error:
            error.move_into(name)
            raise
    return replace(base, **own)


def with_changes(base: Any, changes: Mapping[str, Any], length: int | None) -> Any:
    """The same with as many threads as rows, or columns, of this length take. None: nothing is reduced."""
    changed = with_differences(base, changes)
    return changed if length is None else changed.for_length(length)


def changes_of(base: Any, params: Any, length: int | None) -> dict[str, Any]:
    """The differences that do not follow from others and the length: what `with_changes` makes params of."""
    changes = differences(base, params)
    for path in [path for path in changes if path.startswith("lparams.")]:
        others = {name: value for name, value in changes.items() if name != path}
        if with_changes(base, others, length) == params:
            return others
    return changes


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
