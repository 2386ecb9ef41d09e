"""The autotuner: searches of several problems that share one effort, a journal and the worker processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from fusewright.core.errors import OptionError, ParamsError
from fusewright.core.options import Options
from fusewright.core.serialization import from_json
from fusewright.tune.heuristic import Asked, AutotunerHeuristic, Seeds, seeds_of
from fusewright.tune.journal import FAILED, Journal, SearchRecord, Status, Trial
from fusewright.tune.model import refusal, refusal_of_code, roofline
from fusewright.tune.problem import Problem
from fusewright.tune.runner import Runner, final_race
from fusewright.tune.search import CLOSE, STEP, Candidate, Search, is_at_roofline
from fusewright.tune.space import ParamsSpace
from fusewright.tune.worker import Attempt, Best, Load, Planned, RaceOf, params_text

#: Why a search ended that the user interrupted.
INTERRUPTED = "interrupted"
# Configurations that fail before a search ends of which none runs.
MOST_FAILED = 8
# Of an effort in configurations, what each problem has for itself: others share the rest.
OWN_CONFIGURATIONS = 8


@dataclass(frozen=True)
class Effort:
    """The effort of a tuner.

    Attributes:
        configurations: the number to compile per problem, on average; None: no limit.
        seconds: for all problems, once processes are ready; nothing new starts after it. None: no limit.
        seed: of the random draws.
        to_roofline: whether a search ends when nothing faster is expected.
    """

    configurations: int | None = None
    seconds: float | None = None
    seed: int = 0
    to_roofline: bool = True

    def __post_init__(self) -> None:
        for name, value, kinds in (
            ("configurations", self.configurations, int),
            ("seconds", self.seconds, (int, float)),
        ):
            is_number = isinstance(value, kinds) and not isinstance(value, bool)
            if value is not None and not (is_number and 0 < value < inf):
                expected = "a whole number above 0" if kinds is int else "a finite number above 0"
                raise OptionError(f"Effort: {name}", expected=f"{expected}, or None", given=repr(value))
        if not isinstance(self.seed, int):
            raise OptionError("Effort: seed", expected="an int", given=repr(self.seed))

    def __str__(self) -> str:
        """What ends it."""
        limits = [
            "" if self.configurations is None else f"after {self.configurations} configurations a kernel",
            "" if self.seconds is None else f"after {self.seconds:g} s",
            f"within {CLOSE - 1:.0%} of the roofline" if self.to_roofline else "",
        ]
        return ", ".join(filter(None, limits)) or "with the space"


#: What users name efforts by. A fast one ends within 5 s, with what runs when its time is up.
EFFORTS: Mapping[str, Effort] = {
    "fast": Effort(configurations=30, seconds=4.5),
    "full": Effort(configurations=500, seconds=120.0),
}


@dataclass
class Progress:
    """The progress of a search, for observers.

    Attributes:
        tried: the number of configurations that were compiled.
        refused: the number of configurations that were rejected.
        known: of both, those that the journal had.
        trying: the origin of the latest question.
        stop: why it ended, or why it will.
    """

    problem: Problem
    tried: int = 0
    refused: int = 0
    known: int = 0
    formula_seconds: float | None = None
    best: Best | None = None
    copy_seconds: float | None = None
    trying: str = ""
    stop: str = ""

    @property
    def roofline(self) -> float | None:
        return roofline(self.problem, self.copy_seconds)

    @property
    def fraction(self) -> float | None:
        """The fraction of the roofline that the best params reach."""
        limit = self.roofline
        return None if limit is None or self.best is None else limit / self.best.seconds


@dataclass(frozen=True)
class Tuned:
    """The result of a search.

    Attributes:
        best: the fastest params; the formula's if nothing was measured.
        seconds, formula_seconds, copy_seconds: None: not measured.
        stop: why it ended.
        autotuner_heuristics: the heuristics that were asked, and their results.
        trials: the configurations that were compiled, in order.
    """

    problem: Problem
    best: Any
    seconds: float | None
    formula_seconds: float | None
    copy_seconds: float | None
    tried: int
    stop: str
    autotuner_heuristics: tuple[Asked, ...]
    trials: tuple[Trial, ...] = field(default=(), repr=False)


class Tuner:
    """Searches for params.

    Args:
        runner: processes that compile and measure; the next search uses them again.
        load: converts problems to something to run, in this process.
        heuristics: asked for seeds.
        race: whether the best are timed again in turns.

    Attributes:
        is_interrupted: whether the user interrupted a search.
    """

    def __init__(
        self,
        runner: Runner,
        journal: Journal,
        load: Load,
        options: Options,
        heuristics: Iterable[AutotunerHeuristic],
        race: bool = True,
    ) -> None:
        self._runner = runner
        self._journal = journal
        self._load = load
        self._options = options
        self._heuristics = heuristics
        self._races = race and runner.on_gpu
        self.is_interrupted = False

    def tune(
        self,
        problems: Sequence[Problem],
        effort: Effort,
        seeds: Sequence[Any] = (),
        report: Callable[[Sequence[Progress]], None] = lambda progress: None,
    ) -> list[Tuned]:
        """Searches for the params of problems, and records all in the journal, at once.

        What the journal knows is not tried again. Interrupting returns the best so far.

        Args:
            seeds: params to begin with, of the problems whose scheduler has params of their class.

        Raises:
            TuneError: a heuristic fails, the journal cannot be written, or no processes started.
        """
        budget = _Budget(effort, len(problems))
        searches = [self.search(problem, effort, seeds, budget) for problem in problems]
        progress = [each.progress for each in searches]
        try:
            self._runner.run(searches, effort.seconds, lambda: report(progress))
            if self._races:
                races = [race for each in searches if (race := each.race()) is not None]
                self._runner.race(races, lambda problem, race: self._journal.add_race(problem.key, race))
            reason = "the time is up"
        except KeyboardInterrupt:
            reason = INTERRUPTED
            self.is_interrupted = True
        found = [each.ended(reason) for each in searches]
        report(progress)
        return found

    def search(
        self, problem: Problem, effort: Effort, seeds: Sequence[Any] = (), budget: _Budget | None = None
    ) -> ProblemSearch:
        """The search of one problem, which can run with others (`Runner.run`). budget: the shared budget."""
        planned = Planned(problem, self._load, self._options)
        described = planned.described()
        space = ParamsSpace(planned.heuristic, problem.hardware, planned.fixed_params, described.length)
        found = seeds_of(described, space, self._heuristics, seeds)
        own = budget or _Budget(effort, 1)
        return ProblemSearch(described, space, found, self._journal, effort, own, self._runner.on_gpu)


class _Budget:
    """Configurations that several searches share: each has a few of its own, and the others go to whichever
    search asks.
    """

    def __init__(self, effort: Effort, searches: int) -> None:
        self._own = min(OWN_CONFIGURATIONS, effort.configurations or OWN_CONFIGURATIONS)
        most = effort.configurations
        self._shared = None if most is None else (most - self._own) * searches

    def allows(self, begun: int) -> bool:
        """Whether a search that has started so many configurations may start another."""
        return self._shared is None or begun < self._own or self._shared > 0

    def spend(self, before: int, after: int) -> None:
        """Updates the number of started configurations. It decreases if a started one turned out to cost
        nothing.
        """
        if self._shared is not None:
            self._shared -= max(0, after - self._own) - max(0, before - self._own)


class ProblemSearch:
    """The search of one problem as a source of attempts (`runner.Source`); it records and replays."""

    def __init__(
        self,
        problem: Problem,
        space: ParamsSpace,
        seeds: Seeds,
        journal: Journal,
        effort: Effort,
        budget: _Budget,
        on_gpu: bool,
    ) -> None:
        self.problem = replace(problem, formula=None)  # what goes to other processes
        self.progress = Progress(problem)
        self._seeds, self._journal, self._effort, self._budget = seeds, journal, effort, budget
        self._search = Search(space, seeds, lambda params: seeds.neighbors(problem, params), effort.seed)
        self._formula = problem.formula
        self._formula_text = params_text(problem.formula)
        self._begun = 0
        self._failed, self._failure = 0, ""
        self._waiting: dict[str, Any] = {}
        self._trials: list[Trial] = []
        journal.add_problem(self.problem)
        raced = journal.race(problem.key)
        self._known = journal.ended(problem.key, on_gpu)
        if raced is not None:
            self.progress.copy_seconds = raced.copy_seconds

    # ---- a source of attempts

    is_patient = False

    @property
    def best(self) -> Best | None:
        return self.progress.best

    @property
    def priority(self) -> float:
        """What takes the most time, and was tried the least, comes first."""
        best, facts = self.best, self.problem.facts
        seconds = best.seconds if best is not None else 0.0
        if best is None and facts is not None:
            seconds = facts.bytes / (self.problem.hardware.memory_bandwidth_gbs * 1e9)
        return seconds / (self._begun + 1)

    def ask(self) -> Attempt | None:
        while not self._is_over():
            candidate = self._search.ask()
            if candidate is None:
                if self._search.is_exhausted:
                    self.progress.stop = "every legal point near the best was tried"
                elif self._search.is_hopeless:
                    self.progress.stop = "nothing that is left is expected to be faster"
                return None
            text = params_text(candidate.params)
            known = self._known.get(text)
            if known is not None:
                self.progress.known += 1
                if known.status is not Status.REJECTED:
                    self._begin()
                self._count(known)
                self._note(candidate.params, known)
                continue
            problem = refusal(self.progress.problem, candidate.params)
            if problem:
                trial = Trial(text, candidate.origin, Status.REJECTED, detail=f"model: {problem}")
                self._journal.add_trial(self.problem.key, trial)
                self.progress.refused += 1
                self._note(candidate.params, trial)
                continue
            return self._attempt(candidate, text)
        return None

    def _begin(self, count: int = 1) -> None:
        self._budget.spend(self._begun, self._begun + count)
        self._begun += count

    def _attempt(self, candidate: Candidate, text: str) -> Attempt:
        self._begin()
        self._waiting[text] = candidate.params
        step = f" {candidate.path} {'+-'[candidate.direction < 0]}" if candidate.origin == STEP else ""
        self.progress.trying = candidate.origin + step
        return Attempt(self.problem, text, candidate.origin)

    def _is_over(self) -> bool:
        progress = self.progress
        best = progress.best
        if best is not None and self._effort.to_roofline and is_at_roofline(best.seconds, progress.roofline):
            progress.stop = f"the best is within {CLOSE - 1:.0%} of the roofline"
        elif not self._budget.allows(self._begun):
            progress.stop = "as many configurations as were allowed"
        elif self._failed >= MOST_FAILED and self._failed == progress.tried:
            progress.stop = f"all of {self._failed} configurations failed: {self._failure}"
        return bool(progress.stop)

    def refusal(self, resources: Mapping[str, Any]) -> str:
        return refusal_of_code(resources)

    def tell(self, trial: Trial, copy_seconds: float | None) -> None:
        self._journal.add_trial(self.problem.key, trial)
        if copy_seconds is not None:
            known = self.progress.copy_seconds  # by another process, perhaps while something disturbed it
            self.progress.copy_seconds = copy_seconds if known is None else min(known, copy_seconds)
        params = self._waiting.pop(trial.params)
        if trial.status is Status.REJECTED:  # it cost little: another one may be tried
            self._begin(-1)
        self._count(trial)
        self._note(params, trial)

    def _count(self, trial: Trial) -> None:
        if trial.status is Status.REJECTED:
            self.progress.refused += 1
            return
        self.progress.tried += 1
        if trial.status in FAILED:
            self._failed += 1
            self._failure = trial.detail.partition("\n")[0]

    def _note(self, params: Any, trial: Trial) -> None:
        self._search.tell(params, trial.seconds)
        progress = self.progress
        if trial.seconds is not None:
            if trial.params == self._formula_text:
                progress.formula_seconds = trial.seconds
            if progress.best is None or trial.seconds < progress.best.seconds:
                progress.best = Best(trial.params, trial.seconds)
        if trial.status is not Status.REJECTED:
            self._trials.append(trial)

    # ---- the end

    def race(self) -> RaceOf | None:
        return final_race(self.problem, self._journal, self._formula_text)

    def ended(self, reason: str) -> Tuned:
        """What was found; it is recorded, too."""
        progress = self.progress
        progress.stop = progress.stop or reason
        seconds: dict[str, float] = (
            {} if progress.best is None else {progress.best.params: progress.best.seconds}
        )
        raced = self._journal.race(self.problem.key)
        if raced is not None and progress.best is not None and progress.best.params in raced.seconds:
            seconds, progress.copy_seconds = raced.seconds, raced.copy_seconds
            progress.formula_seconds = seconds.get(self._formula_text, progress.formula_seconds)
        best, text = self._formula, min(seconds, key=seconds.__getitem__, default=None)
        if text is not None:
            try:
                best = from_json(type(self._formula), text)
            except ParamsError:  # of a journal that other code wrote
                text = None
        record = SearchRecord(
            [str(asked) for asked in self._seeds.asked], progress.stop, progress.tried, progress.refused
        )
        self._journal.add_search(self.problem.key, record)
        return Tuned(
            self.problem,
            best,
            None if text is None else seconds[text],
            progress.formula_seconds,
            progress.copy_seconds,
            progress.tried,
            progress.stop,
            self._seeds.asked,
            tuple(self._trials),
        )
