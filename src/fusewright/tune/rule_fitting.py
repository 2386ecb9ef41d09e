"""Fits rules to measurements greedily: for each change, the problems in which it gains the most.

The effect of a change on each problem is looked up once. A rule selects a prefix or a suffix of the problems
in the order of one feature, and within that a prefix or suffix in the order of another. The selection
maximizes the sum of gains.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, isnan, log, nan, sqrt

import torch

from fusewright.core.errors import ParamsError
from fusewright.runtime.single_thread import SINGLE_THREAD
from fusewright.tune.changes import Change, changes_of, with_changes
from fusewright.tune.rules import Fitted, Rule, features_of, held_out
from fusewright.tune.table import Measurements

# What the rules of one scheduler may be at most: they are read by people.
MOST_RULES = 4
# Logarithms of times: what a rule has to gain on the problems that it holds for, on average, and over all
# problems: measurements differ by 1%, the best of many was lucky, and each further rule is another kernel for
# sizes that had one. With 0.02 and 0.03 rules made held-out problems 1.19 and 1.12 times as slow.
LEAST_GAIN, GAIN_A_RULE = 0.04, 0.003
# What is slower than the formula by more than SLOWER counts so many times, and UNKNOWN is what nobody
# measured; a rule is fitted to nothing that is as slow as WORST_FITTED.
SLOWER, SLOWER_COUNTS, UNKNOWN, WORST_FITTED = 0.01, 6.0, -0.06, 0.03
# In the place of the gain on a problem that no rule may hold for.
FORBIDDEN = -1e3
# Fields that a change has at most, and problems that it has to make faster.
MOST_CHANGED, LEAST_PROPOSERS = 3, 2
# How far beyond the least and the greatest value of each feature of its problems a rule may hold: rules for
# formulas that became others, and for long columns, made problems 1.5 and 40 times as slow. LEAST_FEATURE:
# less than any that is not 0.
AROUND, LEAST_FEATURE = 1.5, 1e-9
# Problems that a rule has to be fitted to: of thousands of changes and ranges some fit few by chance.
LEAST_SUPPORT = 4
# Ranges of one feature, the best ones, that are limited by a second one.
MOST_LIMITED = 40
# Each problem is held out with every so many-th other one of its scheduler.
FOLDS = 8
# Extents go with sizes: no rule says how many threads or blocks there are, but how many times as many.
LAUNCH = "lparams."


def fit(measured: Sequence[Measurements]) -> list[Fitted]:
    """The rules of each scheduler, and GPU, that something was measured for."""
    found: dict[tuple[str, str], list[_Known]] = {}
    for each in measured:
        facts, hardware = each.problem.facts, each.problem.hardware
        formula = each.seconds.get(each.formula)
        if facts is not None and formula is not None:
            known = _Known(each, formula, features_of(facts, hardware, each.formula))
            found.setdefault((each.problem.scheduler, hardware.name), []).append(known)
    with (
        SINGLE_THREAD
    ):  # tensors are small: on a busy machine to wait for other threads took 6,000 times as long
        return [
            _fitted(*names, _Table(known)) for names, known in sorted(found.items(), key=lambda item: item[0])
        ]


def _fitted(scheduler: str, hardware: str, table: _Table) -> Fitted:
    everything = range(len(table.known))
    results = dict.fromkeys(everything, 0.0)
    for fold in range(min(FOLDS, len(everything))):
        held = everything[fold::FOLDS]
        rules = table.rules(scheduler, [i for i in everything if i not in held])
        results.update({i: table.result(i, rules) for i in held})
    worth = held_out(scheduler, hardware, list(results.values()))
    rules = table.rules(scheduler, everything)
    return Fitted(
        scheduler, hardware, worth.held_out, worth.worst, worth.problems, tuple(each.rule for each in rules)
    )


@dataclass(frozen=True)
class _Known:
    """Measurements of a problem whose formula was measured.

    Attributes:
        seconds: the formula's time.
    """

    measured: Measurements
    seconds: float
    features: dict[str, float]

    def gain(self, change: Change) -> float:
        """The change of the logarithm of the time. 0 if the change cannot be made, since the formula is used
        then.

        NaN: not known.
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
class _Choice:
    """Problems for a change.

    Attributes:
        score: the gain beyond the minimum that a rule must gain on each.
    """

    score: float
    change: int
    when: dict[str, tuple[float, float]]


class _Table:
    """The effect of each change on each problem of a scheduler."""

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
        self._weights = _weights(self._gains)
        names = sorted({name for each in known for name in each.features})
        values = [[each.features.get(name, nan) for each in known] for name in names]
        self._features = {
            name: own
            for name, own in zip(names, torch.tensor(values, dtype=torch.float64))
            if len({value for value in own.tolist() if value == value}) > 1
        }

    def result(self, problem: int, rules: Sequence[_Fit]) -> float:
        """The logarithm of the time with rules, in multiples of the formula's; of unknown changes 0."""
        known = self.known[problem]
        fitted = next((each for each in rules if each.rule.holds(known.features)), None)
        gain = 0.0 if fitted is None else float(self._gains[fitted.change, problem])
        return -gain if gain == gain else 0.0

    def rules(self, scheduler: str, problems: Sequence[int]) -> list[_Fit]:
        """The rule with the largest total gain, then the next one for the problems that it does not apply to,
        and so on.
        """
        rules: list[_Fit] = []
        left = list(problems)
        while len(left) >= LEAST_SUPPORT and len(rules) < MOST_RULES:
            best = self._best(left, problems)
            if best is None:
                break
            limits = Rule(scheduler, best.when, self._changes[best.change], 1.0, 0)
            own = [i for i in left if limits.holds(self.known[i].features)]
            measured = [i for i in own if not isnan(self._gains[best.change, i])]
            gain = float(self._gains[best.change, measured].sum())
            if gain < GAIN_A_RULE * len(problems):
                break
            around = _around([self.known[i].features for i in measured])
            speedup = exp(gain / len(measured))
            rule = Rule(scheduler, best.when, limits.change, speedup, len(measured), around)
            rules.append(_Fit(rule, best.change))
            left = [i for i in left if i not in own]
        return rules

    def _best(self, left: Sequence[int], problems: Sequence[int]) -> _Choice | None:
        """The best change for all, for one range of a feature, or for one of two features."""
        among = set(problems)
        rows = [n for n, own in enumerate(self._proposers) if len(own & among) >= LEAST_PROPOSERS]
        if not rows:
            return None
        score, row = self._weights[rows][:, list(left)].sum(1).max(0)
        found = [_Choice(float(score), rows[int(row)], {})]
        ranges = sorted(self._ranges(left, rows, {}), key=lambda each: -each.score)
        found += ranges[:1]
        for first in ranges[:MOST_LIMITED]:
            [name] = first.when
            low, high = first.when[name]
            own = [i for i in left if low <= self.known[i].features.get(name, nan) < high]
            found += self._ranges(own, [first.change], first.when)
        best = max(found, key=lambda each: each.score)
        return best if best.score > 0 else None

    def _ranges(
        self, own: Sequence[int], rows: Sequence[int], within: Mapping[str, tuple[float, float]]
    ) -> Iterator[_Choice]:
        """Of each feature and change the first of the problems, or the last, that gain most.

        rows: of the changes. within: limits that these problems are within already.
        """
        among, weights = torch.tensor(own, dtype=torch.int64), self._weights[rows]
        for name, values in self._features.items():
            here = among[~values[among].isnan()]
            if name in within or len(here) < LEAST_SUPPORT:
                continue
            in_order, order = values[here].sort(stable=True)
            ordered = in_order.tolist()  # an element of a tensor takes a microsecond
            least, most = _beyond(ordered[0], ordered[-1])
            at = [i for i in range(1, len(ordered)) if ordered[i] > ordered[i - 1]]
            sums = weights[:, here[order]].cumsum(1)
            for is_low in (True, False):
                cuts = [i for i in at if (i if is_low else len(ordered) - i) >= LEAST_SUPPORT]
                if not cuts:
                    continue
                before = sums[:, [i - 1 for i in cuts]]
                scores, columns = (before if is_low else sums[:, -1:] - before).max(1)
                for row, score, column in zip(rows, scores.tolist(), columns.tolist()):
                    if score > 0:
                        cut = cuts[column]
                        between = _between(ordered[cut - 1], ordered[cut])
                        limits = (least, between) if is_low else (between, most)
                        yield _Choice(score, row, {**within, name: limits})


def _weights(gains: torch.Tensor) -> torch.Tensor:
    """What each gain counts, beyond what a rule has to gain."""
    counted = torch.where(gains < -SLOWER, SLOWER_COUNTS * gains, gains)
    counted = torch.where(gains.isnan(), UNKNOWN, counted) - LEAST_GAIN
    return torch.where(gains < -WORST_FITTED, FORBIDDEN, counted)


def _between(low: float, high: float) -> float:
    """The middle of two values of a feature, of their logarithms if they have any."""
    return sqrt(low * high) if low > 0 else (low + high) / 2


def _beyond(low: float, high: float) -> tuple[float, float]:
    """Somewhat more than a range."""
    return (
        min(low / AROUND, low * AROUND) - LEAST_FEATURE,
        max(high / AROUND, high * AROUND) + LEAST_FEATURE,
    )


def _around(features: Sequence[Mapping[str, float]]) -> dict[str, tuple[float, float]]:
    """By name the range of a feature that all have, and somewhat more."""
    names = [name for name in features[0] if all(name in each for each in features)]
    values = {name: [each[name] for each in features] for name in names}
    return {name: _beyond(min(own), max(own)) for name, own in values.items()}
