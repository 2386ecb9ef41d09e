"""Rules that say what to change in the formula's params, fitted to measurements and checked on others.

A rule is a change and limits of dimensionless features within which it holds. Rules are fitted by what they
gain over the formula on the problems that they hold for. Then each problem in turn is left out, the rules are
fitted to the others, and what they would have done to it is its held-out result. The rules of a scheduler are
used only where these results beat the formula.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, inf, log
from typing import Any

from fusewright.core.errors import ParamsError
from fusewright.core.hardware import HardwareInfo
from fusewright.tune.facts import WIDEST_ACCESS, ProblemFacts
from fusewright.tune.table import Measurements, differences, with_differences

# Bytes of a line of the L2 cache; of a page of the memory's rows.
LINE_BYTES, PAGE_BYTES = 128, 16384
# What the rules of one scheduler may be at most: they are read by people.
MOST_RULES = 4
# Logarithms of times: what a rule has to gain on the problems that it holds for, on average, and over all
# problems: each further rule is another kernel for sizes that had one.
LEAST_GAIN, GAIN_A_RULE = 0.005, 0.003
# How much slower than the formula a rule may make a problem that it is fitted to; one that was held out.
WORST_FITTED, WORST_HELD_OUT = 1.01, 1.05
# Of the held-out results, the mean that is needed.
LEAST_HELD_OUT = 0.002
# Fields that a change has at most, and how near the best of a problem it has to be.
MOST_CHANGED, NEAR_BEST = 2, 1.02
# How far beyond the least and the greatest value of a feature that was measured a rule may hold.
BEYOND = 2.0
# Problems that a rule has to be fitted to.
LEAST_SUPPORT = 2


def features_of(facts: ProblemFacts, hardware: HardwareInfo) -> dict[str, float]:
    """What rules may depend on: numbers without dimension, which mean the same on other GPUs."""
    bandwidth, speed = hardware.memory_bandwidth_gbs * 1e9, hardware.float_tflops * 1e12
    found = {
        "bytes / L2": facts.bytes / hardware.l2_bytes,
        "vectors / threads": facts.points
        * facts.element_bytes
        / (WIDEST_ACCESS * hardware.sm_count * hardware.max_threads_per_sm),
        "arithmetic / traffic": facts.slots / speed / (facts.bytes / bandwidth),
        "broadcasts / inputs": facts.broadcasts / max(1, facts.inputs),
        "element / access": facts.element_bytes / WIDEST_ACCESS,
    }
    if facts.reduction is not None:
        rows, length = facts.reduction.rows, facts.reduction.length
        found["rows / SMs"] = rows / hardware.sm_count
        found["length / (vectors of a warp)"] = (
            length * facts.element_bytes / (WIDEST_ACCESS * hardware.warp_size)
        )
        found["length / its greatest power of two"] = length / max(1, length & -length)
    if facts.transpose is not None:
        found["size 1 / line"] = facts.transpose.size1 * facts.element_bytes / LINE_BYTES
        found["size 2 / line"] = facts.transpose.size2 * facts.element_bytes / LINE_BYTES
        found["stride / page"] = facts.transpose.stride / PAGE_BYTES
    return found


@dataclass(frozen=True)
class Rule:
    """What to change in the formula's params, and where.

    Attributes:
        when: by the name of a feature, the least value and the one below which it has to be.
        change: values by the path of a field.
        gain: of the problems that it was fitted to, the mean speedup. problems: how many these are.
    """

    scheduler: str
    when: dict[str, tuple[float, float]]
    change: dict[str, Any]
    gain: float
    problems: int

    def holds(self, features: Mapping[str, float]) -> bool:
        return all(
            name in features and low <= features[name] < high for name, (low, high) in self.when.items()
        )

    def __str__(self) -> str:
        limits = " and ".join(f"{low:.4g} <= {name} < {high:.4g}" for name, (low, high) in self.when.items())
        changes = ", ".join(f"{path} = {json.dumps(value)}" for path, value in self.change.items())
        return f"if {limits or 'always'}: {changes}  # {self.gain:.3f}x on {self.problems} problems"


@dataclass(frozen=True)
class HeldOut:
    """What a way to choose params was worth on problems that were held out.

    Attributes:
        hardware: that they were measured on, and nothing is known of others.
        held_out: the geometric mean of how many times as fast as the formula's these were. worst: of these
            the least. problems: how many there were.
    """

    scheduler: str
    hardware: str
    held_out: float
    worst: float
    problems: int

    def __post_init__(self) -> None:
        for name, value in (("held_out", self.held_out), ("worst", self.worst)):
            if not 0 < value < inf:
                raise ParamsError(path=name, expected="a number above 0", given=value)

    @property
    def beats_formula(self) -> bool:
        return log(self.held_out) >= LEAST_HELD_OUT and 1 / self.worst <= WORST_HELD_OUT

    def text(self) -> str:
        return (
            f"{self.problems} problems, each held out once: {self.held_out:.3f}x the formula's speed, "
            f"at worst {self.worst:.3f}x"
        )


def held_out(scheduler: str, hardware: str, results: Sequence[float]) -> HeldOut:
    """results: of each problem the logarithm of its time, in multiples of the formula's."""
    mean = exp(-sum(results) / len(results))
    return HeldOut(scheduler, hardware, mean, exp(-max(results)), len(results))


@dataclass(frozen=True)
class Fitted(HeldOut):
    """The rules of one scheduler on one GPU."""

    rules: tuple[Rule, ...] = ()

    @property
    def is_used(self) -> bool:
        return bool(self.rules) and self.beats_formula


def fit(measured: Sequence[Measurements]) -> list[Fitted]:
    """The rules of each scheduler, and GPU, that something was measured for."""
    found: dict[tuple[str, str], list[_Known]] = {}
    for each in measured:
        facts, hardware = each.problem.facts, each.problem.hardware
        formula = each.seconds.get(each.formula)
        if facts is not None and formula is not None:
            known = _Known(each, formula, features_of(facts, hardware))
            found.setdefault((each.problem.scheduler, hardware.name), []).append(known)
    return [_fitted(*names, known) for names, known in sorted(found.items(), key=lambda item: item[0])]


def _fitted(scheduler: str, hardware: str, known: Sequence[_Known]) -> Fitted:
    results = []
    for i, left_out in enumerate(known):
        others = [each for j, each in enumerate(known) if j != i]
        results.append(left_out.after(_rules(scheduler, others)))
    worth = held_out(scheduler, hardware, results)
    return Fitted(scheduler, hardware, worth.held_out, worth.worst, worth.problems, _rules(scheduler, known))


@dataclass(frozen=True)
class _Known:
    """Measurements of a problem whose formula was measured. seconds: its."""

    measured: Measurements
    seconds: float
    features: dict[str, float]

    def result(self, change: Mapping[str, Any]) -> float | None:
        """The logarithm of the time with a change, in multiples of the formula's.

        0 where the change cannot be made, as the formula is used then. None: nobody knows.
        """
        try:
            params = with_differences(self.measured.formula, change)
        except ParamsError:
            return 0.0
        seconds = self.measured.seconds.get(params)
        if seconds is not None:
            return log(seconds / self.seconds)
        return 0.0 if params in self.measured.refused else None

    def after(self, rules: Sequence[Rule]) -> float:
        """The logarithm of the time with rules, in multiples of the formula's; of unknown changes 0."""
        rule = next((rule for rule in rules if rule.holds(self.features)), None)
        return 0.0 if rule is None else self.result(rule.change) or 0.0


def _rules(scheduler: str, known: Sequence[_Known]) -> tuple[Rule, ...]:
    """The rule that gains most in all, then the next one for what it does not hold for, and so on."""
    rules: list[Rule] = []
    left = list(known)
    while left and len(rules) < MOST_RULES:
        best: tuple[float, Rule] | None = None
        for change in _changes(left):
            for rule, total in _guarded(scheduler, change, left):
                if best is None or total > best[0]:
                    best = total, rule
        if best is None or best[0] < GAIN_A_RULE * len(known):
            break
        rules.append(best[1])
        left = [each for each in left if not best[1].holds(each.features)]
    return tuple(rules)


def _changes(known: Sequence[_Known]) -> Iterator[dict[str, Any]]:
    """Of each problem those near its best, in few fields."""
    seen: set[str] = set()
    for each in known:
        best = each.measured.best
        for params, seconds in each.measured.seconds.items():
            if seconds > NEAR_BEST * best or seconds >= each.seconds:
                continue
            change = differences(each.measured.formula, params)
            text = json.dumps(change, sort_keys=True)
            if 0 < len(change) <= MOST_CHANGED and text not in seen:
                seen.add(text)
                yield change


def _guarded(scheduler: str, change: dict[str, Any], known: Sequence[_Known]) -> Iterator[tuple[Rule, float]]:
    """The change with each pair of limits of one feature, or none, where it makes no problem slow.

    With what it gains in all. Limits lie between the values of problems.
    """
    results = [(each, found) for each in known if (found := each.result(change)) is not None]
    names = {name for each, _ in results for name in each.features}
    guards: list[dict[str, tuple[float, float]]] = [{}]
    for name in sorted(names):
        values = sorted({each.features[name] for each, _ in results if name in each.features} - {0.0})
        if not values:
            continue
        middle = [(low * high) ** 0.5 for low, high in pairwise(values)]
        between = [values[0] / BEYOND, *middle, values[-1] * BEYOND]
        guards += [{name: (low, high)} for i, low in enumerate(between) for high in between[i + 1 :]]
    for guard in guards:
        rule = Rule(scheduler, guard, change, 1.0, 0)
        own = [found for each, found in results if rule.holds(each.features)]
        gain = -sum(own)
        if (
            len(own) >= LEAST_SUPPORT
            and gain >= LEAST_GAIN * len(own)
            and max(own) <= log(WORST_FITTED)
            and all(each.result(change) is not None for each in known if rule.holds(each.features))
        ):
            yield Rule(scheduler, guard, change, exp(gain / len(own)), len(own)), gain
