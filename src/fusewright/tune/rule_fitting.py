"""Fits rules to measurements: of each change the range of a feature in which it gains most, greedily.

What a change does to each problem is looked up once. A range is then the first of the problems, or the last,
in the order of a feature, whose gains have the greatest sum, for all changes at once; limits on both sides
fit by chance more often. Problems that a change makes slow, or of which nobody knows, are in none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, exp, log
from typing import Any

import torch

from fusewright.core.errors import ParamsError
from fusewright.core.serialization import to_dict
from fusewright.runtime.single_thread import SINGLE_THREAD
from fusewright.tune.changes import Change, changes_of, fields_by_path, with_changes
from fusewright.tune.rules import Fitted, Rule, features_of, held_out, values_replaced
from fusewright.tune.table import Measurements

# What the rules of one scheduler may be at most: they are read by people.
MOST_RULES = 4
# Logarithms of times: what a rule has to gain on the problems that it holds for, on average, and over all
# problems: measurements differ by 1%, the best of many was lucky, and each further rule is another kernel for
# sizes that had one. With 0.015 rules made a held-out problem 1.17 times as slow, with 0.03 one 1.10 times.
LEAST_GAIN, GAIN_A_RULE = 0.04, 0.003
# How much slower than the formula a rule may make a problem that it is fitted to.
WORST_FITTED = 1.01
# Fields that a change has at most, and problems that it has to make faster.
MOST_CHANGED, LEAST_PROPOSERS = 3, 2
# How far beyond the least and the greatest value of a feature that was measured a rule may hold.
BEYOND = 2.0
# The same of the features that it does not ask for: a rule for long columns made short ones 40 times as slow
# as the formula does. LEAST_FEATURE: less than any that is not 0.
AROUND, LEAST_FEATURE = 4.0, 1e-9
# Problems that a rule has to be fitted to, and which share of the scheduler's: of thousands of changes and
# ranges some fit few problems by chance.
LEAST_SUPPORT, SHARE = 3, 0.12
# Extents go with sizes: no rule says how many threads or blocks there are, but how many times as many.
LAUNCH = "lparams."
# In the place of the gain on a problem that no rule may hold for.
FORBIDDEN = -1e9


def fit(measured: Sequence[Measurements]) -> list[Fitted]:
    """The rules of each scheduler, and GPU, that something was measured for."""
    found: dict[tuple[str, str], list[_Known]] = {}
    for each in measured:
        facts, hardware = each.problem.facts, each.problem.hardware
        formula = each.seconds.get(each.formula)
        if facts is not None and formula is not None:
            fields = fields_by_path(to_dict(each.formula))
            known = _Known(each, formula, features_of(facts, hardware), fields)
            found.setdefault((each.problem.scheduler, hardware.name), []).append(known)
    with (
        SINGLE_THREAD
    ):  # tensors are small: on a busy machine to wait for other threads took 6,000 times as long
        return [
            _fitted(*names, _Table(known)) for names, known in sorted(found.items(), key=lambda item: item[0])
        ]


def _fitted(scheduler: str, hardware: str, table: _Table) -> Fitted:
    count = len(table.known)
    support = max(LEAST_SUPPORT, ceil(count * SHARE))
    results = []
    for i in range(count):
        others = [j for j in range(count) if j != i]
        results.append(table.result(i, table.rules(scheduler, others, support - 1)))
    worth = held_out(scheduler, hardware, results)
    rules = tuple(fitted.rule for fitted in table.rules(scheduler, range(count), support))
    return Fitted(scheduler, hardware, worth.held_out, worth.worst, worth.problems, rules)


@dataclass(frozen=True)
class _Known:
    """Measurements of a problem whose formula was measured. seconds: its. fields: of its params, by path."""

    measured: Measurements
    seconds: float
    features: dict[str, float]
    fields: dict[str, Any]

    def gain(self, change: Change) -> float:
        """Of the logarithm of the time. 0 where the change cannot be made, as the formula is used then.

        NaN: nobody knows.
        """
        table = self.measured
        try:
            params = with_changes(table.formula, change.fields(table.formula), table.problem.length)
        except ParamsError:
            return 0.0
        seconds = table.seconds.get(params)
        if seconds is not None:
            return -log(seconds / self.seconds)
        return 0.0 if params in table.refused else float("nan")

    def improvements(self) -> Iterator[Change]:
        """Changes of few fields that are faster than the formula, as values and as factors."""
        table = self.measured
        for params, seconds in table.seconds.items():
            if seconds >= self.seconds:
                continue
            fields = changes_of(table.formula, params, table.problem.length)
            if 0 < len(fields) <= MOST_CHANGED:
                change = Change.of(table.formula, fields)
                if not any(path.startswith(LAUNCH) for path in change.values):
                    yield change
                if change.factors and not any(path.startswith(LAUNCH) for path in fields):
                    yield Change(fields)


@dataclass(frozen=True)
class _Fit:
    """A rule, and the number of its change."""

    rule: Rule
    change: int


@dataclass(frozen=True)
class _Interval:
    """Of the problems in the order of a feature. score: gains beyond what a rule has to gain on each."""

    score: float
    change: int
    when: dict[str, tuple[float, float]]


class _Table:
    """What each change does to each problem of a scheduler."""

    def __init__(self, known: Sequence[_Known]) -> None:
        self.known = known
        changes: dict[str, tuple[Change, set[int]]] = {}
        for i, each in enumerate(known):
            for change in each.improvements():
                changes.setdefault(str(change), (change, set()))[1].add(i)
        proposed = [each for each in changes.values() if len(each[1]) >= LEAST_PROPOSERS]
        self._changes = [change for change, _ in proposed]
        self._proposers = [proposers for _, proposers in proposed]
        gains = [[each.gain(change) for each in known] for change in self._changes]
        self._gains = torch.tensor(gains, dtype=torch.float64).reshape(len(gains), len(known))
        is_bad = ~(self._gains >= -log(WORST_FITTED))  # unknown ones, too
        self._weights = torch.where(is_bad, FORBIDDEN, self._gains - LEAST_GAIN)

    def result(self, problem: int, rules: Sequence[_Fit]) -> float:
        """The logarithm of the time with rules, in multiples of the formula's; of unknown changes 0."""
        known = self.known[problem]
        fitted = next((each for each in rules if each.rule.holds(known.features, known.fields)), None)
        gain = 0.0 if fitted is None else float(self._gains[fitted.change, problem])
        return -gain if gain == gain else 0.0

    def rules(self, scheduler: str, problems: Sequence[int], support: int) -> list[_Fit]:
        """The rule that gains most in all, then the next one for what it does not hold for, and so on.

        support: problems that each is fitted to at least; where one is held out that is one less.
        """
        rules: list[_Fit] = []
        left = list(problems)
        while len(left) >= support and len(rules) < MOST_RULES:
            best = self._best(left, support)
            if best is None:
                break
            rule = Rule(scheduler, best.when, self._changes[best.change], 1.0, 0)
            own = [i for i in left if rule.holds(self.known[i].features, {})]
            gain = float(self._gains[best.change, own].sum())
            if gain < GAIN_A_RULE * len(problems):
                break
            around = _around([self.known[i].features for i in own])
            replaces = values_replaced(rule.change, [self.known[i].fields for i in own])
            rule = Rule(scheduler, best.when, rule.change, exp(gain / len(own)), len(own), around, replaces)
            rules.append(_Fit(rule, best.change))
            left = [i for i in left if i not in own]
        return rules

    def _best(self, left: Sequence[int], support: int) -> _Interval | None:
        """The best change for one range of a feature, or for all."""
        proposed = [n for n, proposers in enumerate(self._proposers) if not proposers.isdisjoint(left)]
        if not proposed:
            return None
        weights = self._weights[proposed]
        score, row = weights[:, list(left)].sum(1).max(0)
        best = _Interval(float(score), proposed[int(row)], {})
        for name in sorted({name for i in left for name in self.known[i].features}):
            own = [i for i in left if self.known[i].features.get(name, 0.0) > 0]
            found = self._best_range(name, own, weights, support) if len(own) >= support else None
            if found is not None and found.score > best.score:
                best = _Interval(found.score, proposed[found.change], found.when)
        return best if best.score >= 0 else None

    def _best_range(
        self, name: str, own: Sequence[int], weights: torch.Tensor, support: int
    ) -> _Interval | None:
        """The best range of one feature. change: the row of weights."""
        values = sorted({self.known[i].features[name] for i in own})
        place = {value: i for i, value in enumerate(values)}
        member = torch.zeros(len(own), len(values), dtype=torch.float64)
        for row, i in enumerate(own):
            member[row, place[self.known[i].features[name]]] = 1
        score, first, last = _greatest_sums(weights[:, list(own)] @ member, member.sum(0), support)
        best = int(score.argmax())
        if not score[best] > FORBIDDEN / 2:
            return None
        middle = [(low * high) ** 0.5 for low, high in pairwise(values)]
        between = [values[0] / BEYOND, *middle, values[-1] * BEYOND]
        when = {name: (between[int(first[best])], between[int(last[best]) + 1])}
        return _Interval(float(score[best]), best, when)


def _around(features: Sequence[Mapping[str, float]]) -> dict[str, tuple[float, float]]:
    """By name the range of a feature that all have, and somewhat more."""
    names = [name for name in features[0] if all(name in each for each in features)]
    values = {name: [each[name] for each in features] for name in names}
    return {name: (min(own) / AROUND, max(own) * AROUND + LEAST_FEATURE) for name, own in values.items()}


def _greatest_sums(
    weights: torch.Tensor, counts: torch.Tensor, support: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of each row the greatest sum of its first columns or of its last ones: that, and which they are.

    counts: of problems in a column; a range has `support` at least. Without one the sum is -inf.
    """
    sums, problems = weights.cumsum(1), counts.cumsum(0)
    low = torch.where(problems >= support, sums, -torch.inf)
    after, left = sums[:, -1:] - sums + weights, problems[-1] - problems + counts
    high = torch.where(left >= support, after, -torch.inf)
    (low_sum, last), (high_sum, first) = low.max(1), high.max(1)
    is_low = low_sum >= high_sum
    greatest = torch.where(is_low, low_sum, high_sum)
    return greatest, torch.where(is_low, 0, first), torch.where(is_low, last, len(counts) - 1)
