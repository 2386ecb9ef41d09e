"""The journal's results for each problem: the status of its configurations, and the best time beside the
heuristic's.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from fusewright.tune.changes import fields_by_path
from fusewright.tune.journal import FAILED, FORMULA, Journal, Race, Status, Trial
from fusewright.tune.model import roofline
from fusewright.tune.problem import Problem
from fusewright.tune.table import Measurements
from fusewright.tune.worker import params_text


@dataclass(frozen=True)
class Outcome:
    """One problem, with its trials.

    Attributes:
        heuristic, best: seconds, from the race if there was one, else from trials. None: not measured.
        best_params, heuristic_params: as JSON; None: not known.
    """

    problem: Problem
    trials: tuple[Trial, ...]
    race: Race | None
    heuristic_params: str | None
    heuristic: float | None
    best_params: str | None
    best: float | None

    @property
    def counts(self) -> dict[str, int]:
        """Trials by status."""
        return dict(Counter(trial.status.value for trial in self.trials))

    @property
    def speedup(self) -> float | None:
        """Of the best over the heuristic's."""
        return None if self.heuristic is None or self.best is None else self.heuristic / self.best

    @property
    def copy_seconds(self) -> float | None:
        return None if self.race is None else self.race.copy_seconds

    def failures(self) -> list[str]:
        """The failures, one line for all trials that failed in the same way."""
        said = [
            (trial.status.value, trial.detail.partition("\n")[0])
            for trial in self.trials
            if trial.status in FAILED or (trial.status is Status.COMPILED and trial.detail)
        ]
        return [
            f"{self.problem.name}: {count} {status}: {detail}"
            for (status, detail), count in Counter(said).items()
        ]

    def changed(self) -> dict[str, tuple[Any, Any]]:
        """Where the best params differ from the heuristic's: by path, the heuristic's value and theirs."""
        return {} if self.best_params is None else self.changed_by(self.best_params)

    def changed_by(self, params: str) -> dict[str, tuple[Any, Any]]:
        """The same of any params."""
        if self.heuristic_params is None:
            return {}
        old, new = (fields_by_path(json.loads(text)) for text in (self.heuristic_params, params))
        return {path: (old.get(path), new[path]) for path in new if old.get(path) != new[path]}

    def to_dict(self) -> dict[str, Any]:
        return {
            "problem": self.problem.key,
            "name": self.problem.name,
            "scheduler": self.problem.scheduler,
            "hardware": self.problem.hardware.name,
            "bytes": self.problem.bytes,
            "counts": self.counts,
            "failures": self.failures(),
            "heuristic_seconds": self.heuristic,
            "best_seconds": self.best,
            "copy_seconds": self.copy_seconds,
            "speedup": self.speedup,
            "heuristic_params": None if self.heuristic_params is None else json.loads(self.heuristic_params),
            "best_params": None if self.best_params is None else json.loads(self.best_params),
            "changed": {path: list(values) for path, values in self.changed().items()},
        }


def outcomes(journal: Journal, keys: set[str] | None = None) -> list[Outcome]:
    """Of these problems, or all, in the order in which they came to the journal."""
    return [_outcome(p, journal) for p in journal.problems() if keys is None or p.key in keys]


def outcome_of(table: Measurements) -> Outcome:
    """Of a table of measurements, as if it were a journal's."""
    formula = params_text(table.formula)
    trials = tuple(
        table.trial(params, FORMULA if params == table.formula else "table")
        for params in (*table.seconds, *table.refused)
    )
    race = None
    if table.copy_seconds is not None:
        known = {t.params: t.seconds for t in trials if t.seconds is not None}
        race = Race(known, table.copy_seconds)
    return _outcome_with(table.problem, trials, race, formula)


def roofline_of(outcome: Outcome) -> float | None:
    """Seconds that nothing is expected to beat. None: no copy was timed."""
    return roofline(outcome.problem, outcome.copy_seconds)


def _outcome(problem: Problem, journal: Journal) -> Outcome:
    trials = tuple(journal.trials(problem.key))
    chosen = next((t.params for t in trials if t.origin == FORMULA), None)
    return _outcome_with(problem, trials, journal.race(problem.key), chosen)


def _outcome_with(
    problem: Problem, trials: tuple[Trial, ...], race: Race | None, chosen: str | None
) -> Outcome:
    seconds = {t.params: t.seconds for t in trials if t.seconds is not None}
    if race is not None:
        seconds = race.seconds
    best = min(seconds, key=seconds.__getitem__, default=None)
    return Outcome(
        problem,
        trials,
        race,
        chosen,
        None if chosen is None else seconds.get(chosen),
        best,
        None if best is None else seconds[best],
    )
