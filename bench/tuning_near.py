"""`bench tuning --drawn --near`: what a policy is worth for sizes near those that were tuned.

The problems are several sizes of each of some operations. All are searched, then what made one size of a
kernel faster is tried on its other sizes, and all candidates are timed in turns, once in the processes that
searched and once in others. A policy is fitted to the first times of the problems that are tuned, and to no
params that come from the others; the second times of the others judge it. Then each problem judges what all
others say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from bench.report import markdown_table
from bench.tuning_parts import Step
from bench.tuning_problems import Case, title
from bench.tuning_report import mean
from bench.tuning_trials import SEARCHED, TRANSFER, Found
from fusewright.core.errors import ParamsError
from fusewright.core.serialization import from_json
from fusewright.tune.changes import Change, changes_of, with_changes
from fusewright.tune.policy import Policy, policy_of
from fusewright.tune.table import Measurements
from fusewright.tune.worker import params_text

# Of the time, when searches have raced, when what served other sizes was tried, and when that has raced.
RACED, SHARED, SHARED_RACED = SEARCHED + 0.1, 0.7, 0.85
# The fastest candidates of a size that are tried on the others.
TRIED_ON_OTHERS = 4


def first_steps(slices: int) -> tuple[Step, ...]:
    return (
        Step("prepare", said="made the problems"),
        *(Step("search", (i, slices), f"searched from the formula, {i + 1}/{slices}") for i in range(slices)),
        Step("race_candidates", (RACED,), "timed the best few again"),
    )


def last_steps(found: Sequence[Found]) -> tuple[Step, ...]:
    return (
        Step("transfer", (shared(found), None, SHARED), "tried what served other sizes"),
        Step("race_candidates", (SHARED_RACED,), "timed that again"),
        Step("race_candidates", (1.0, True), "timed all in other processes"),
    )


def kernel_of(found: Found) -> tuple[str, str]:
    facts = found.problem.facts
    return found.problem.scheduler, "" if facts is None else facts.structure


def shared(found: Sequence[Found]) -> dict[str, list[Change]]:
    """By the key of a problem, what made other sizes of its kernel faster."""
    proposed = {each.problem.key: proposals(each) for each in found}
    return {
        each.problem.key: list(
            {
                str(change): change
                for other in found
                if other is not each and kernel_of(other) == kernel_of(each)
                for change in proposed[other.problem.key]
            }.values()
        )
        for each in found
    }


def proposals(found: Found) -> list[Change]:
    """What made a problem faster than the formula's params, of what its own search tried."""
    formula, kind = params_text(found.formula), type(found.formula)
    times = {params: s for params, s in first_times(found).items() if params in found.finalists}
    limit = first_times(found).get(formula, 0.0)
    faster = [params for params in sorted(times, key=times.__getitem__) if times[params] < limit]
    return [
        Change(changes_of(found.formula, from_json(kind, params), found.problem.length))
        for params in faster[:TRIED_ON_OTHERS]
    ]


def first_times(found: Found) -> dict[str, float]:
    """Seconds by params, in turns where they raced."""
    return {**found.measured, **({} if found.raced is None else found.raced.seconds)}


@dataclass(frozen=True)
class Judged:
    """What a policy chose for one problem; times in seconds, of other processes than what it was fitted to.

    params: None: the formula's. is_known: whether what it chose was timed; the formula's time counts else.
    """

    name: str
    params: Any
    is_known: bool
    formula: float
    chosen: float
    best: float


def table_for(found: Found, fitted: Sequence[Found]) -> Measurements:
    """What the fit knows of a problem: what it tried itself, and what others proposed that are fitted to."""
    kind = type(found.formula)
    own = {trial.params for trial in found.known if trial.origin != TRANSFER}
    allowed = {
        str(c): c for other in fitted if kernel_of(other) == kernel_of(found) for c in proposals(other)
    }
    own |= {
        params_text(params) for c in allowed.values() if (params := _changed(found, c.values)) is not None
    }
    times = {params: seconds for params, seconds in first_times(found).items() if params in own}
    return _table(found, {from_json(kind, params): seconds for params, seconds in times.items()})


def judging_table(found: Found) -> Measurements | None:
    """The times of other processes."""
    kind = type(found.formula)
    times = {} if found.again is None else found.again.seconds
    table = _table(found, {from_json(kind, params): seconds for params, seconds in times.items()})
    return table if table.formula in table.seconds else None


def _table(found: Found, seconds: dict[Any, float]) -> Measurements:
    copy = None if found.again is None else found.again.copy_seconds
    made_by = f"one {found.problem.hardware.name}, L2 flushed before each run"
    return Measurements(found.problem, found.formula, seconds, frozenset(), copy, made_by)


def _changed(of: Found | Measurements, fields: Mapping[str, Any]) -> Any | None:
    """The formula's params with other values; None: that cannot be made, and the formula's are used."""
    try:
        return with_changes(of.formula, fields, of.problem.length)
    except ParamsError:
        return None


def judged(policy: Policy, tables: Iterable[Measurements]) -> list[Judged]:
    """What a policy is worth on problems that it does not know."""
    results = []
    for table in tables:
        of, formula = table.problem, table.seconds[table.formula]
        assert of.facts is not None
        found = policy.change(of.scheduler, of.facts, of.hardware, table.formula)
        params = None if found is None else _changed(table, found[0])
        seconds = formula if params is None else table.seconds.get(params)
        known = formula if seconds is None else seconds
        results.append(Judged(of.name, params, seconds is not None, formula, known, table.best))
    return results


def report(found: Sequence[Found], held: Collection[Case]) -> str:
    """Of problems held out the policy's regret beside the formula's, as text and a table."""
    names = {title(*case) for case in held}
    out = [each for each in found if each.problem.name.partition(",")[0] in names]
    tuned = [each for each in found if each not in out]
    policy = policy_of(table_for(each, tuned) for each in tuned)
    rows = [_row("held out", judged(policy, filter(None, map(judging_table, out))))]
    one_by_one = []
    for each in found:
        others = [other for other in found if other is not each and kernel_of(other) == kernel_of(each)]
        own = policy_of(table_for(other, others) for other in others)
        one_by_one += judged(own, filter(None, [judging_table(each)]))
    rows.append(_row("all, one by one, by all others", one_by_one))
    header = (
        "",
        "problems",
        "formula's regret",
        "policy's",
        "worst beside the formula",
        "changed",
        "not timed",
    )
    lines = [markdown_table(header, rows), "", policy.rules_text(), "", _said_of_noise(found)]
    for each in judged(policy, filter(None, map(judging_table, out))):
        lines.append(
            f"{each.name:30} formula {each.formula * 1e6:.2f} us, policy {each.chosen / each.formula:.3f},"
            f" best {each.best / each.formula:.3f}{'' if each.is_known else ' (not timed)'}"
        )
    return "\n".join(lines)


def _row(name: str, results: Sequence[Judged]) -> tuple[Any, ...]:
    if not results:
        return name, 0, "-", "-", "-", 0, 0
    formula = mean(each.formula / each.best for each in results) - 1
    policy = mean(each.chosen / each.best for each in results) - 1
    worst = max(each.chosen / each.formula for each in results)
    changed = sum(each.params is not None for each in results)
    unknown = sum(not each.is_known for each in results)
    return name, len(results), f"{formula:.2%}", f"{policy:.2%}", f"{worst:.3f}", changed, unknown


def _said_of_noise(found: Sequence[Found]) -> str:
    """How much times differ that were taken again: of the formula's params, beside a copy's."""
    both = [(each.raced, each.again, params_text(each.formula)) for each in found]
    ratios = [
        (again.seconds[text] / again.copy_seconds) / (first.seconds[text] / first.copy_seconds)
        for first, again, text in both
        if first is not None and again is not None and text in first.seconds and text in again.seconds
    ]
    if not ratios:
        return "nothing was timed twice"
    apart = [max(ratio, 1 / ratio) - 1 for ratio in ratios]
    said = f"{median(apart):.1%} apart, at most {max(apart):.1%}"
    return f"the formula's params, timed again beside a copy: {said}"


def as_dict(found: Sequence[Found]) -> list[dict[str, Any]]:
    """All that was timed in turns."""
    return [
        {
            "name": each.problem.name,
            "formula": params_text(each.formula),
            "first": None if each.raced is None else each.raced.seconds,
            "first_copy": None if each.raced is None else each.raced.copy_seconds,
            "again": None if each.again is None else each.again.seconds,
            "copy": None if each.again is None else each.again.copy_seconds,
            "own": [trial.params for trial in each.known if trial.origin != TRANSFER],
            "search_seconds": each.seconds,
        }
        for each in found
    ]


def tuned_tables(
    found: Sequence[Found], held: Collection[Case]
) -> tuple[list[Measurements], list[Measurements]]:
    """What is kept: of tuned problems what the fit knows, thinned, and what judges it."""
    names = {title(*case) for case in held}
    out = [each for each in found if each.problem.name.partition(",")[0] in names]
    tuned = [each for each in found if each not in out]
    tables = []
    for each in tuned:
        table = table_for(each, tuned)
        kept = {from_json(type(each.formula), params) for params in each.candidates}
        tables.append(replace(table, seconds={p: s for p, s in table.seconds.items() if p in kept}))
    judges = [table for each in out if (table := judging_table(each)) is not None]
    return [table for table in tables if table.formula in table.seconds], judges
