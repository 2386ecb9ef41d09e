"""A sweep: many points of the spaces of several problems, whatever their results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fusewright.core.options import Options
from fusewright.tune.journal import FORMULA, Journal, Status, Trial
from fusewright.tune.problem import Problem
from fusewright.tune.runner import COMPILERS, Runner, final_race
from fusewright.tune.space import ParamsSpace, points_of
from fusewright.tune.worker import Attempt, Best, Load, Planned, RaceOf, params_text

#: The origin of trials of other params than the scheduler's.
SPACE = "space"


@dataclass(frozen=True)
class SweepEffort:
    """The effort of a sweep.

    Attributes:
        points: the size of the stratified sample of each problem's space; None: all points.
        seconds: after this time nothing new starts; None: no limit.
        seed: of the sample.
        compilers: the number of processes that compile.
    """

    points: int | None
    seconds: float | None = None
    seed: int = 0
    compilers: int = COMPILERS


@dataclass
class SweepProgress:
    """The progress of a sweep, for observers.

    Attributes:
        total: the number of configurations, if known.
        known: those that the journal had before.
        best: seconds, by the key of a problem.
        heuristic: the same for the heuristic's params.
    """

    total: int | None
    known: int = 0
    counts: Counter[Status] = field(default_factory=Counter)
    best: dict[str, float] = field(default_factory=dict)
    heuristic: dict[str, float] = field(default_factory=dict)

    @property
    def done(self) -> int:
        return self.known + sum(self.counts.values())


def sweep(
    problems: Sequence[Problem],
    journal: Journal,
    load: Load,
    effort: SweepEffort,
    options: Options,
    *,
    on_gpu: bool,
    report: Callable[[SweepProgress], None],
) -> SweepProgress:
    """Tries params of each problem's space that the journal does not know, the heuristic's first.

    Interrupting loses what is being tried, and nothing else.

    Args:
        on_gpu: whether kernels run; else they are compiled only.

    Raises:
        TuneError: the journal cannot be written, or no processes started.
    """
    progress = SweepProgress(None if effort.points is None else 0)
    with Runner(load, options, effort.compilers, on_gpu) as runner:
        swept = [
            _Swept(problem, Planned(problem, load, options), journal, effort, on_gpu, progress)
            for problem in {problem.key: problem for problem in problems}.values()
        ]
        report(progress)
        runner.run(swept, effort.seconds, lambda: report(progress))
        if on_gpu:
            races = [race for each in swept if (race := each.race()) is not None]
            runner.race(races, lambda problem, race: journal.add_race(problem.key, race))
    return progress


class _Swept:
    """The configurations of a problem that the journal does not have; those that it has are counted."""

    is_patient = True

    def __init__(
        self,
        problem: Problem,
        planned: Planned,
        journal: Journal,
        effort: SweepEffort,
        on_gpu: bool,
        progress: SweepProgress,
    ) -> None:
        self.problem = problem
        self.best: Best | None = None
        self._journal, self._progress = journal, progress
        self._tried = 0
        journal.add_problem(problem)
        base = planned.heuristic
        space = ParamsSpace(base, problem.hardware, planned.fixed_params, problem.length)
        points = points_of(space, effort.points, effort.seed)
        self._heuristic = params_text(base)
        texts = dict.fromkeys([self._heuristic])
        if effort.points is not None:
            texts.update(dict.fromkeys(map(params_text, points)))
        known = journal.ended(problem.key, on_gpu)
        for trial in known.values():
            self._note(trial)
        if progress.total is not None:
            progress.total += len(texts)
            progress.known += len(known.keys() & texts.keys())
        # All of a space that is not listed comes last: where a sample is, there are none left.
        self._attempts = self._fresh(texts, map(params_text, points), known)

    def _fresh(
        self, texts: dict[str, None], more: Iterator[str], known: dict[str, Trial]
    ) -> Iterator[Attempt]:
        for text in texts:
            if text not in known:
                yield Attempt(self.problem, text, FORMULA if text == self._heuristic else SPACE)
        for text in more:
            if text != self._heuristic and text not in known:
                yield Attempt(self.problem, text, SPACE)

    @property
    def priority(self) -> float:
        """Problems take turns, so that a time limit leaves about the same number of trials for each."""
        return -self._tried

    def ask(self) -> Attempt | None:
        self._tried += 1
        return next(self._attempts, None)

    def refusal(self, resources: Mapping[str, Any]) -> str:
        """A sweep runs every kernel, whatever its resources."""
        return ""

    def tell(self, trial: Trial, copy_seconds: float | None) -> None:
        self._journal.add_trial(self.problem.key, trial)
        self._progress.counts[trial.status] += 1
        self._note(trial)

    def _note(self, trial: Trial) -> None:
        if trial.seconds is None:
            return
        if self.best is None or trial.seconds < self.best.seconds:
            self.best = Best(trial.params, trial.seconds)
            self._progress.best[self.problem.key] = trial.seconds
        if trial.params == self._heuristic:
            self._progress.heuristic[self.problem.key] = trial.seconds

    def race(self) -> RaceOf | None:
        return final_race(self.problem, self._journal, self._heuristic)
