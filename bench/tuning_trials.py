"""What one GPU tries of the problems of `bench tuning`: searches, samples, what served others, and races."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any

from fusewright import Options
from fusewright.core.errors import ParamsError
from fusewright.core.serialization import from_json
from fusewright.frontend.tuned.problems import load
from fusewright.frontend.tuned.tuned_calls import journal_version
from fusewright.schedulers.params.space import value_at, with_value
from fusewright.tune.changes import Change, changes_of, with_changes
from fusewright.tune.entry import WORTH
from fusewright.tune.heuristic import AutotunerHeuristic
from fusewright.tune.heuristics import default_heuristics
from fusewright.tune.journal import Journal, Race, Trial
from fusewright.tune.model import refusal
from fusewright.tune.policy import Policy
from fusewright.tune.problem import Problem
from fusewright.tune.rule_fitting import LAUNCH
from fusewright.tune.runner import RUNNERS, Runner, finalists
from fusewright.tune.space import ParamsSpace, points_of
from fusewright.tune.sweep import SPACE
from fusewright.tune.tuner import EFFORTS, Effort, ProblemSearch, Tuned, Tuner
from fusewright.tune.worker import Attempt, Best, Planned, RaceOf, params_text

# Configurations of a search from the formula, and of one from plain params; after the first it counts, too.
CONFIGURATIONS, PLAIN_CONFIGURATIONS, FIRST = 30, 60, 8
# A search from the formula ends after so long, as one of `tune="fast"` does.
SEARCH_SECONDS = EFFORTS["fast"].seconds or inf
# Of the time, when searches from the formula, those from plain params, the races of what these found, and
# samples end, and what served other problems. The rest is for races of all. What ends before leaves its time
# to what follows.
SEARCHED, PLAIN_SEARCHED, FINALISTS_RACED, SAMPLED, TRANSFERRED = 0.38, 0.55, 0.58, 0.89, 0.935
# Of each problem, the changes with which others are tried; fields of one.
TRANSFERS, MOST_CHANGED = 2, 3
# A point of a sample that takes so many times as long as the best of its problem is timed three times only.
SAMPLE_SLOWER = 1.15
# Values that follow from the length of a row: plain params have the formula's.
OF_LENGTH = ("lparams", "batches_per_block_inner_reduction", "rows_per_block")
#: The origin of what served other problems, and of what a policy of older measurements chooses.
TRANSFER, POLICY = "transfer", "policy"


@dataclass
class Found:
    """What is known of a problem.

    Attributes:
        formula, plain: params. tuned: by the search from the formula, which took `seconds`; None: the journal
            had some of it.
        from_plain: by the other one.
        sample: a stratified one, as JSON. refused: those of it that the model refuses.
        raced: the best few of each search, in turns, as a search ends.
        learned: what the policy chooses; None: the formula's params.
        shared: what is tried because it serves other sizes.
        again: times in another process. known: all that was tried.
    """

    problem: Problem
    formula: Any
    plain: Any
    sample: list[str]
    refused: frozenset[str]
    tuned: Tuned | None = None
    seconds: float | None = None
    from_plain: Tuned | None = None
    raced: Race | None = None
    learned: Any = None
    shared: list[str] = field(default_factory=list)
    again: Race | None = None
    known: list[Trial] = field(default_factory=list)

    @property
    def measured(self) -> dict[str, float]:
        """Seconds by params, as JSON."""
        return {trial.params: trial.seconds for trial in self.known if trial.seconds is not None}

    def after(self, tuned: Tuned | None, count: int) -> str | None:
        """The best params after so many configurations: those of the best few that won their race."""
        best = [] if tuned is None else finalists(tuned.trials[:count])
        raced = {} if self.raced is None else self.raced.seconds
        return min(best, key=lambda params: raced.get(params, inf), default=None)

    @property
    def finalists(self) -> list[str]:
        """The best few of each search, and of its first few configurations."""
        counts = (self.tuned, FIRST), (self.tuned, CONFIGURATIONS), (self.from_plain, PLAIN_CONFIGURATIONS)
        best = [finalists(tuned.trials[:count]) for tuned, count in counts if tuned is not None]
        return list(dict.fromkeys(chain.from_iterable(best)))

    @property
    def candidates(self) -> list[str]:
        """The formula's params, the best few, and what serves other sizes; those that ran."""
        measured = self.measured
        named = dict.fromkeys([params_text(self.formula), *self.finalists, *self.shared])
        return [params for params in named if params in measured]

    def chosen(self) -> dict[str, str]:
        """Params that are timed again, by who chose them."""
        measured = self.measured
        sampled = [params for params in self.sample if params in measured]
        found = {
            "formula": params_text(self.formula),
            f"after {FIRST}": self.after(self.tuned, FIRST),
            f"after {CONFIGURATIONS}": self.after(self.tuned, CONFIGURATIONS),
            f"plain {PLAIN_CONFIGURATIONS}": self.after(self.from_plain, PLAIN_CONFIGURATIONS),
            "sample": min(sampled, key=measured.__getitem__, default=None),
            "all": min(measured, key=measured.__getitem__, default=None),
            "policy": params_text(self.formula if self.learned is None else self.learned),
        }
        return {who: params for who, params in found.items() if params in measured}


class Listed:
    """Params of one problem, in order, as a source of attempts; those that were tried are left out."""

    is_patient = True

    def __init__(self, problem: Problem, origin: str, texts: Iterable[str], journal: Journal) -> None:
        self.problem = problem
        self.best: Best | None = None
        known = journal.ended(problem.key, on_gpu=True)
        for trial in known.values():
            self._note(trial)
        self._origin, self._journal = origin, journal
        self._texts = iter([text for text in dict.fromkeys(texts) if text not in known])
        self._asked = 0

    @property
    def priority(self) -> float:
        """One of each problem, again and again: what a limit of time leaves is as much of each."""
        return -self._asked

    def ask(self) -> Attempt | None:
        self._asked += 1
        text = next(self._texts, None)
        return None if text is None else Attempt(self.problem, text, self._origin, slower=SAMPLE_SLOWER)

    def refusal(self, resources: Mapping[str, Any]) -> str:
        return ""

    def tell(self, trial: Trial, copy_seconds: float | None) -> None:
        self._journal.add_trial(self.problem.key, trial)
        self._note(trial)

    def _note(self, trial: Trial) -> None:
        if trial.seconds is not None and (self.best is None or trial.seconds < self.best.seconds):
            self.best = Best(trial.params, trial.seconds)


class OfGpu:
    """The problems of one GPU, from searches to races, each step by itself; a context manager.

    Args:
        problems: makes them.
        on_gpu: whether kernels run; else they are compiled only.
        journal: what it has is not tried again.
        until: when a share of the time is over, by `time.monotonic`.
    """

    def __init__(
        self,
        problems: Callable[[], Iterable[Problem]],
        on_gpu: bool,
        compilers: int,
        folder: Path,
        journal: Path,
        points: int,
        until: Callable[[float], float],
    ) -> None:
        self.found: list[Found] = []
        self._problems, self._points, self._until = problems, points, until
        self._options = replace(Options.from_environment(), cache_dir=str(folder / "kernels"))
        self._spaces: dict[str, ParamsSpace] = {}
        runner = partial(Runner, load, self._options, on_gpu=on_gpu)
        self._runner = runner(compilers=compilers, keeps_code=True)
        # Winners are timed again by processes that timed nothing before.
        self._again = runner(compilers=RUNNERS, keeps_code=True)
        self._journal = Journal(journal, journal_version())
        self._runner.begin()

    def __enter__(self) -> OfGpu:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.close()
        self._again.close()
        self._journal.__exit__(kind, error, trace)

    # ---- the steps, in order

    def prepare(self) -> None:
        """What is to be tried, while processes start."""
        for problem in self._problems():
            found, self._spaces[problem.key] = _found(problem, self._options, self._points)
            self.found.append(found)
        self._runner.await_start()

    def search(self, first: int, each: int) -> None:
        """From the formula, each problem alone; of so many problems the one at `first`."""
        tuner = Tuner(self._runner, self._journal, load, self._options, default_heuristics(), race=False)
        for found in self.found[first::each]:
            before = time.monotonic()
            if (left := self._until(SEARCHED) - before) > 0:
                effort = Effort(CONFIGURATIONS, min(left, SEARCH_SECONDS), to_roofline=False)
                is_new = not self._journal.trials(found.problem.key)
                [found.tuned] = tuner.tune([found.problem], effort)
                found.seconds = time.monotonic() - before if is_new else None
        self._note()

    def search_from_plain(self) -> None:
        """From plain params, all problems at once."""
        searches: list[tuple[Found, ProblemSearch]] = []
        for each in self.found:
            heuristics = [Plain(each.plain), *map(NeighborsOnly, default_heuristics())]
            tuner = Tuner(self._runner, self._journal, load, self._options, heuristics, race=False)
            effort = Effort(PLAIN_CONFIGURATIONS, to_roofline=False)
            searches.append((each, tuner.search(each.problem, effort)))
        left = max(0.1, self._until(PLAIN_SEARCHED) - time.monotonic())
        self._runner.run([search for _, search in searches], left)
        for each, search in searches:
            each.from_plain = search.ended("the time is up")
        self._note()

    def race_finalists(self) -> None:
        """The best few of each search, in the processes that searched: the fastest of many was lucky."""
        self._race(self._runner, "raced", lambda each: each.finalists, FINALISTS_RACED)

    def sample(self, share: float) -> None:
        """Points of the samples that nothing is known against, until so much of the time is over."""
        self._try(share, SPACE, lambda each: [text for text in each.sample if text not in each.refused])

    def sample_refused(self, share: float) -> None:
        """Those that the model refuses: they take long to compile."""
        self._try(share, SPACE, lambda each: [text for text in each.sample if text in each.refused])

    def transfer(
        self, others: Mapping[str, Sequence[Change]], policy: Policy | None, share: float = TRANSFERRED
    ) -> None:
        """What a policy chooses, and what served other problems.

        others: changes of the formula's params to try, by the key of a problem.
        """
        if self._again.on_gpu:
            self._again.begin()
        for each in self.found:
            each.learned = None if policy is None else self._learned(each, policy)
            each.shared = _texts(self._changed(each, others))
        self._try(share, POLICY, lambda each: _texts([each.learned]))
        self._try(share, TRANSFER, lambda each: each.shared)

    def race(self) -> None:
        """What was chosen, in turns with a copy, in other processes."""
        self._runner.close()
        self._race(self._again, "again", lambda each: each.chosen().values(), 1.0)

    def race_candidates(self, share: float, again: bool = False) -> None:
        """All candidates in turns with a copy, in the processes that searched, or in others."""
        if again:
            self._runner.close()
        runner, name = (self._again, "again") if again else (self._runner, "raced")
        self._race(runner, name, lambda each: each.candidates, share)

    # ---- what they are made of

    def _race(
        self, runner: Runner, name: str, params: Callable[[Found], Iterable[str]], share: float
    ) -> None:
        """name: of the attribute that gets the times."""
        by_key = {each.problem.key: each for each in self.found}

        def note(problem: Problem, race: Race) -> None:
            setattr(by_key[problem.key], name, race)

        races = [
            RaceOf(each.problem, tuple(dict.fromkeys(own))) for each in self.found if (own := params(each))
        ]
        runner.race(races, note, max(1.0, self._until(share) - time.monotonic()))

    def _try(self, share: float, origin: str, texts: Callable[[Found], Iterable[str]]) -> None:
        sources = [Listed(each.problem, origin, texts(each), self._journal) for each in self.found]
        if (left := self._until(share) - time.monotonic()) > 0:
            self._runner.run(sources, left)
        self._note()

    def _note(self) -> None:
        for each in self.found:
            each.known = self._journal.trials(each.problem.key)

    def _changed(self, each: Found, others: Mapping[str, Sequence[Change]]) -> Iterator[Any]:
        """The formula's params with each of the changes, where that is legal."""
        for change in others.get(each.problem.key, ()):
            try:
                fields = change.fields(each.formula)
            except ParamsError:
                continue
            params = self._with(each, fields)
            if params is not None:
                yield params

    def _learned(self, each: Found, policy: Policy) -> Any | None:
        """What a policy chooses; None: the formula's params."""
        problem = each.problem
        assert problem.facts is not None
        found = policy.change(problem.scheduler, problem.facts, problem.hardware, each.formula)
        return None if found is None else self._with(each, found[0])

    def _with(self, each: Found, fields: Mapping[str, Any]) -> Any | None:
        """The formula's params with other values, where that is legal."""
        try:
            params = with_changes(each.formula, fields, each.problem.length)
        except ParamsError:
            return None
        return params if self._spaces[each.problem.key].is_legal(params) else None


class NeighborsOnly(AutotunerHeuristic):
    """Another heuristic without its seed."""

    def __init__(self, other: AutotunerHeuristic) -> None:
        self.name, self.scheduler = other.name, other.scheduler
        self.is_eligible = other.is_eligible  # type: ignore[method-assign]
        self.get_neighbors = other.get_neighbors  # type: ignore[method-assign]


class Plain(AutotunerHeuristic):
    """The only seed of a search."""

    name = "plain"

    def __init__(self, params: Any) -> None:
        self._params = params

    def get_seed_params(self, problem: Problem) -> Any:
        return self._params


def _found(problem: Problem, options: Options, points: int) -> tuple[Found, ParamsSpace]:
    planned = Planned(problem, load, options)
    described = planned.described()
    space = ParamsSpace(planned.heuristic, problem.hardware, planned.fixed_params, described.length)
    sample = {params_text(params): params for params in points_of(space, points, 0)}
    refused = frozenset(text for text, params in sample.items() if refusal(described, params))
    return Found(problem, described.formula, plain_params(space), list(sample), refused), space


def plain_params(space: ParamsSpace) -> Any:
    """Params that use nothing that makes kernels fast, as far as that is legal."""
    plain = space.base
    defaults = type(plain)()
    for axis in space.axes:
        value = value_at(defaults, axis.path)
        if axis.path[0] not in OF_LENGTH and value in axis.values(plain):
            plain = with_value(plain, axis.path, value)
    return space.legalize(plain).params


def served(found: Iterable[Found]) -> dict[str, list[Change]]:
    """By the key of a problem, the changes that made those of its scheduler fastest; the first one of each
    problem comes first.
    """
    found = list(found)
    ranked: dict[str, dict[str, tuple[int, Change]]] = {}
    for each in found:
        known = ranked.setdefault(each.problem.scheduler, {})
        for rank, change in enumerate(_gains(each)):
            name = str(change)
            known[name] = min(known.get(name, (rank, change)), (rank, change), key=lambda own: own[0])
    changes = {
        scheduler: [change for _, change in sorted(known.values(), key=lambda own: own[0])]
        for scheduler, known in ranked.items()
    }
    return {each.problem.key: changes[each.problem.scheduler] for each in found}


def _gains(each: Found) -> list[Change]:
    """The changes of few fields that gain most on a problem, and mean something to others."""
    measured, kind, found = each.measured, type(each.formula), list[Change]()
    formula = measured.get(params_text(each.formula), 0.0)
    for text in sorted(measured, key=measured.__getitem__):
        if measured[text] >= WORTH * formula or len(found) == TRANSFERS:
            break
        fields = changes_of(each.formula, from_json(kind, text), each.problem.length)
        change = Change.of(each.formula, fields)
        if 0 < len(fields) <= MOST_CHANGED and not any(path.startswith(LAUNCH) for path in change.values):
            found.append(change)
    return found


def _texts(params: Iterable[Any]) -> list[str]:
    return [params_text(each) for each in params if each is not None]
