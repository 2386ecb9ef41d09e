"""Which params to try next: seeds, then steps from the best few, and sometimes any legal params.

The search has an ask-and-tell interface. A question depends on the answers to all but the last LAG questions
before it, so kernels can be compiled ahead, and the order of answers does not matter: the same answers lead
to the same questions. Steps along fields that have gained so far are tried first.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import inf, log, sqrt
from typing import Any

from fusewright.tune.heuristic import Seeds
from fusewright.tune.space import Space

# Questions that are asked before their answers are needed: so many kernels compile at a time. Searches of
# recorded tables find as much with 8 as with 16.
LAG = 12
# The best points whose neighbours are tried.
PARENTS = 5
# After the seeds, one of so many questions is about a random legal point: few of these get close to what
# steps find.
RANDOM_EVERY = 10
# What a point that was refused counts as, as a logarithm of times.
REFUSED = 0.3
# What a step that was never tried may bring, as a logarithm of times: more than most do.
HOPE = 0.1
#: Origins of what is neither a heuristic's seed nor the user's.
STEP, NAMED, RANDOM = "step", "neighbor", "random"
# Of the best time that the roofline may be below, for a search to end.
CLOSE = 1.02
# A search continues after so many configurations have run, or so many were asked for, only if the expected
# remaining gain is at least this logarithm of a ratio of times. Before that, little is known about the gain
# of steps.
LEAST_HOPED, LEAST_RAN, LEAST_ASKED = 0.003, 60, 120


@dataclass(frozen=True)
class Candidate:
    """Params to try.

    Attributes:
        origin: who proposed them.
        path, direction: of a step, see `space.Step`.
    """

    params: Any
    origin: str
    path: str = ""
    direction: int = 0
    parent: Any = None


@dataclass
class _Gain:
    """The gain of steps along one field in one direction.

    Attributes:
        total: the sum of logarithms of ratios of times.
        count: the number of steps.
    """

    total: float = 0.0
    count: int = 0

    @property
    def expected(self) -> float:
        """The expected logarithm of the ratio of times; negative if faster, lower if less is known."""
        return self.total / (self.count + 1) - HOPE / sqrt(self.count + 1)


class Search:
    """One problem's search. It is deterministic for a seed and the answers.

    Args:
        neighbors: params that heuristics propose next to given ones.
        seed: of the random draws.

    Attributes:
        asked: the number of questions.
        best: the fastest params so far, and their seconds; None: none ran.
        is_exhausted: whether all points near the best were tried.
        is_hopeless: whether no remaining point is expected to be faster, by the bound from the gains of
            similar steps.
    """

    def __init__(
        self, space: Space, seeds: Seeds, neighbors: Callable[[Any], Iterable[Any]], seed: int = 0
    ) -> None:
        self._space = space
        self._neighbors = neighbors
        self._source = random.Random(seed)
        self._seeds = iter([Candidate(each.params, each.origin) for each in seeds.seeds])
        self._questions: list[Candidate] = []
        self._seen: set[Any] = set()
        self._answers: dict[Any, float | None] = {}
        self._beside: dict[Any, list[Candidate]] = {}
        self._after_seeds = 0
        self.best: tuple[Any, float] | None = None
        self.is_exhausted = False
        self.is_hopeless = False

    @property
    def asked(self) -> int:
        return len(self._questions)

    def ask(self) -> Candidate | None:
        """Params to try; None if none are left (`is_exhausted`), or none before more results are told."""
        found = next(self._seeds, None)
        if found is None:
            known = self._questions[: max(0, len(self._questions) - LAG)]
            if any(each.params not in self._answers for each in known):
                return None
            found, is_hopeless = self._next(known)
            is_over = len(self._answers) == len(self._questions)
            if found is None and is_over:  # the last answers may change that
                found, is_hopeless = self._next(self._questions)
            if found is None:
                self.is_hopeless, self.is_exhausted = is_over and is_hopeless, is_over and not is_hopeless
                return None
        self._questions.append(found)
        self._seen.add(found.params)
        return found

    def tell(self, params: Any, seconds: float | None) -> None:
        """Receives the result of params that were asked for. None: they were rejected, or failed."""
        self._answers[params] = seconds
        if seconds is not None and (self.best is None or seconds < self.best[1]):
            self.best = params, seconds

    # ---- what comes next

    def _next(self, known: list[Candidate]) -> tuple[Candidate | None, bool]:
        """The next question; None, and whether that is for lack of hope."""
        times = {each.params: self._answers[each.params] for each in known}
        ran = sorted((seconds, i) for i, each in enumerate(known) if (seconds := times[each.params]))
        best = [known[i].params for _, i in ran[:PARENTS]]
        if not best:  # nothing ran yet: what was asked first is as good as any
            best = [each.params for each in self._questions[:1]]
        gains = self._gains(known, times)
        fallback = times.get(best[0]) if best else None
        choices = list(self._choices(best, times, gains, fallback))
        expected = min((expected for (expected, _), _ in choices), default=inf)
        if ran:
            expected = min(expected, log(ran[0][0]) + gains.get((RANDOM, 1), _Gain()).expected)
            knows = len(ran) >= LEAST_RAN or len(known) >= LEAST_ASKED
            if knows and expected > log(ran[0][0]) - LEAST_HOPED:
                return None, True
        self._after_seeds += 1
        found = self._drawn() if self._after_seeds % RANDOM_EVERY == 0 or not choices else None
        if found is None and choices:
            found = min(choices, key=lambda choice: choice[0])[1]
        return found, False

    def _choices(
        self,
        parents: list[Any],
        times: dict[Any, float | None],
        gains: dict[tuple[str, int], _Gain],
        fallback: float | None,
    ) -> Iterator[tuple[tuple[float, int], Candidate]]:
        """The neighbours of parents that were not tried, with what time is expected of each."""
        order = 0
        for parent in parents:
            seconds = times.get(parent) or fallback or 1.0
            for candidate in self._neighbors_of(parent):
                order += 1
                if candidate.params not in self._seen:
                    gain = gains.get((candidate.path, candidate.direction), _Gain())
                    yield (log(seconds) + gain.expected, order), candidate

    def _neighbors_of(self, parent: Any) -> list[Candidate]:
        found = self._beside.get(parent)
        if found is None:
            named = [self._space.legalize(params).params for params in self._neighbors(parent)]
            found = [Candidate(params, NAMED, NAMED, 1, parent) for params in dict.fromkeys(named)]
            steps = self._space.steps(parent)
            found += [Candidate(s.params, STEP, s.path, s.direction, parent) for s in steps]
            self._beside[parent] = found
        return found

    def _gains(self, known: list[Candidate], times: dict[Any, float | None]) -> dict[tuple[str, int], _Gain]:
        gains: dict[tuple[str, int], _Gain] = {}
        best = min((seconds for seconds in times.values() if seconds), default=None)
        for each in known:
            before = times.get(each.parent) if each.parent is not None else None
            if each.origin == RANDOM:
                before = best
            if before is None:
                continue
            after = times[each.params]
            gain = gains.setdefault((each.path, each.direction), _Gain())
            gain.total += REFUSED if after is None else log(after / before)
            gain.count += 1
        return gains

    def _drawn(self) -> Candidate | None:
        """Any legal point that was not tried; None where drawing finds none."""
        for _ in range(PARENTS * LAG):
            params = self._space.draw(self._source)
            if params is not None and params not in self._seen:
                return Candidate(params, RANDOM, RANDOM, 1)
        return None


def is_at_roofline(seconds: float, limit: float | None) -> bool:
    """Whether nothing that is worth the search can be faster."""
    return limit is not None and seconds <= CLOSE * limit
