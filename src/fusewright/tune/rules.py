"""Rules that change the formula's params, with their gains; `rule_fitting` makes them.

A rule is a change, and limits of dimensionless features within which it applies. Rules are fitted by their
gain over the formula on the problems that they apply to. Then each problem in turn is left out, the rules are
fitted to the others, and their effect on the problem is its held-out result. The rules of a scheduler are
used only if these results beat the formula.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, inf, log
from typing import Any

from fusewright.core.errors import ParamsError
from fusewright.core.hardware import HardwareInfo
from fusewright.core.serialization import to_dict
from fusewright.tune.changes import Change, fields_by_path
from fusewright.tune.facts import WIDEST_ACCESS, ProblemFacts

# Bytes of a line of the L2 cache; of a page of the memory's rows.
LINE_BYTES, PAGE_BYTES = 128, 16384
# Before the path of a field of the formula's params, in the name of a feature. Fields that are none: sizes,
# and what the compiler is told.
CHOSEN, NOT_CHOSEN = "the formula's ", ("assumed_", "cparams.")
# How much slower than the formula a problem may become that was held out.
WORST_HELD_OUT = 1.05
# Held-out problems that rules have to be judged by, at least: one that made none of 8 slower took 1.10 times
# the formula's time for the next.
LEAST_JUDGES = 12
# Of the results of neighbours' params, the mean that is needed: they are of few problems, and times differ
# by so much.
LEAST_HELD_OUT = 0.01


def features_of(facts: ProblemFacts, hardware: HardwareInfo, formula: Any = None) -> dict[str, float]:
    """The quantities that rules may depend on: dimensionless numbers, which mean the same on other GPUs, and
    the formula's choices.
    """
    return {
        **_features_of_facts(facts, hardware),
        **({} if formula is None else _features_of_params(formula)),
    }


def _features_of_params(params: Any) -> dict[str, float]:
    """Numbers as they are, 0 and 1 for flags, and of lists how many they have; sizes are facts."""
    found: dict[str, float] = {}
    for path, value in fields_by_path(to_dict(params)).items():
        if path.startswith(NOT_CHOSEN):
            continue
        if isinstance(value, int):
            found[CHOSEN + path] = float(value)
        elif isinstance(value, (list, tuple)):
            found[CHOSEN + path] = float(len(value))
    return found


def _features_of_facts(facts: ProblemFacts, hardware: HardwareInfo) -> dict[str, float]:
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
        found["stride / element"] = 1.0 if facts.reduction.is_inner else float(rows)
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
    """A change of the formula's params, and where it applies.

    Attributes:
        when: by the name of a feature, an inclusive lower and an exclusive upper limit.
        within: the same for all features, around those of the problems that it was fitted to: its effect on
            other problems, or on params of another formula, is not known.
        gain: the mean speedup of the problems that it was fitted to.
        problems: the number of these.
    """

    scheduler: str
    when: dict[str, tuple[float, float]]
    change: Change
    gain: float
    problems: int
    within: dict[str, tuple[float, float]] = field(default_factory=dict)

    def holds(self, features: Mapping[str, float]) -> bool:
        """Whether it is for a problem with these features."""
        limits = (*self.when.items(), *self.within.items())
        return all(name in features and low <= features[name] < high for name, (low, high) in limits)

    def __str__(self) -> str:
        limits = " and ".join(f"{low:.4g} <= {name} < {high:.4g}" for name, (low, high) in self.when.items())
        around = [item for item in self.within.items() if not item[0].startswith(CHOSEN)]
        within = ", ".join(f"{name} {low:.2g} to {high:.2g}" for name, (low, high) in around)
        known = f"{self.gain:.3f}x on {self.problems} problems" + (f"; only for {within}" if within else "")
        return f"if {limits or 'always'}: {self.change}  # {known}"


@dataclass(frozen=True)
class HeldOut:
    """The effect of a way to choose params on held-out problems.

    Attributes:
        hardware: the GPU of the measurement; the result is valid only for it.
        held_out: the geometric mean of the speedups over the formula.
        worst: the smallest of these speedups.
        problems: the number of problems.
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
        """Whether they beat the formula on enough problems. The average gain says little, since most problems
        have no rule.
        """
        is_judged = self.problems >= LEAST_JUDGES
        gains = self.held_out > 1 and 1 / self.worst <= WORST_HELD_OUT
        return bool(self.rules) and is_judged and gains
