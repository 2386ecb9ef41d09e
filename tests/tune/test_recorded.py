"""What an H200 measured drives searches, races, policies and reports without one.

`drawn_h200.json` has the problems that bench/tuning_problems.py draws: params of a search, of one from plain
params, changes that served others, and of a stratified sample of what is legal; the best of each were timed
again, in turns. Times of more than three times the formula's are left out: a host that was busy made most of
them. Every other one of these problems served to make the autotuner's own heuristics; to those in files
`drawn_SEED_h200.json` only its variations were fitted, too, and each draw judged by what the others gave.
`recorded_h200.json` has those that are listed there, with the formula's params, what differs in a few fields,
and the best. `near_h200.json` has what `bench tuning --near` fitted a policy to, 13 kernels at three sizes
each, and `near_held_out_h200.json` the times of two further sizes of each, taken in other processes.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import exp, log
from pathlib import Path

import pytest

from bench.tuning_near import judged
from fusewright.core.errors import TuneError
from fusewright.core.serialization import from_json
from fusewright.schedulers import default_registry, type_name
from fusewright.schedulers.params.launch import UNSET
from fusewright.tune.changes import with_changes
from fusewright.tune.heuristic import Seed, Seeds, seeds_of
from fusewright.tune.heuristics import default_heuristics
from fusewright.tune.journal import Journal, Race
from fusewright.tune.model import refusal
from fusewright.tune.policy import policy_of
from fusewright.tune.recording import read_recording, recording_text
from fusewright.tune.search import LEAST_RAN, Search
from fusewright.tune.space import ParamsSpace
from fusewright.tune.table import Measurements
from fusewright.tune.tuner import Effort, ProblemSearch, _Budget
from tests.tune import here
from tests.tune.table_space import TableSpace

LISTED, DRAWN = (Path(__file__).parent / name for name in ("recorded_h200.json", "drawn_h200.json"))
NEWER = sorted(Path(__file__).parent.glob("drawn_*_h200.json"))
FIXED = {type_name(each.type): getattr(each, "fixed_params", {}) for each in default_registry()}
# Searches are made of one in so many of the problems that were held out: all of them take some seconds.
EACH = 6
# Kernels that are made while others are measured.
AHEAD = 4


@cache
def tables(path: Path = DRAWN) -> tuple[Measurements, ...]:
    return tuple(read_recording(path))


def held_out() -> tuple[Measurements, ...]:
    """With the others the autotuner's own heuristics were made."""
    return tables()[1::2] + newer()


def newer() -> tuple[Measurements, ...]:
    return tuple(table for path in NEWER for table in tables(path))


def space_of(table: Measurements) -> TableSpace:
    of = table.problem
    own = ParamsSpace(table.formula, of.hardware, FIXED[of.scheduler], of.length)
    return TableSpace([*table.seconds, *table.refused], own)


def searched(table: Measurements, count: int, only: object = None) -> list[float]:
    """The best time after each configuration, in multiples of the best of the table."""
    of, space = replace(table.problem, formula=table.formula), space_of(table)
    seeds = seeds_of(of, space, default_heuristics())
    if only is not None:
        seeds = Seeds((Seed(only, "plain"),), (), seeds.eligible)
    search = Search(space, seeds, lambda params: seeds.neighbors(of, params))
    waiting, found = [], []
    while len(found) < count:
        candidate = search.ask()
        if candidate is not None:
            waiting.append(candidate.params)
            if len(waiting) < AHEAD:
                continue
        if not waiting:
            break
        params = waiting.pop(0)
        seconds = None if refusal(of, params) else table.seconds.get(params)
        search.tell(params, seconds)
        if seconds is not None:
            found.append(search.best[1] / table.best)
    return found


def mean(values: list[float]) -> float:
    return exp(sum(map(log, values)) / len(values))


def test_searches_come_near_the_best_of_all_that_was_measured():
    assert len(tables()) >= 60
    found = [searched(table, 30) for table in held_out()[::EACH]]
    after = {count: [each[min(count, len(each)) - 1] for each in found] for count in (8, 30)}
    assert mean(after[8]) < 1.03 and mean(after[30]) < 1.01 and max(after[30]) < 1.1, after


def test_a_search_without_a_limit_ends_where_nothing_that_is_left_is_expected_to_be_faster():
    large = [table for table in held_out() if len(table.seconds) > LEAST_RAN]
    found = [searched(table, len(table.seconds)) for table in large[1 :: 4 * EACH]]
    ran = [len(each) for each in found]
    # Where schedulers refuse most params, what was asked counts.
    assert max(ran) < 110 and sum(count >= LEAST_RAN for count in ran) > 0.9 * len(ran), ran
    assert mean([each[-1] for each in found]) < 1.01, [each[-1] for each in found]


def test_searches_come_near_it_where_the_only_seed_uses_nothing_that_makes_kernels_fast():
    found = [searched(t, 60, t.plain) for t in held_out()[2 :: 4 * EACH] if t.plain in t.seconds]
    last = [each[-1] for each in found]
    assert mean([each[0] for each in found]) > 1.5, "the seed is slow"
    assert mean(last) < 1.02, last


def test_policies_serve_problems_that_were_held_out_and_no_shape_is_slower():
    """Half of all problems, and half of those that are drawn, by what the others taught."""
    listed, drawn = tables(LISTED), tables() + tuple(t for t in newer() if t.formula in t.seconds)
    known = listed + drawn
    regrets = []
    for fitted_to, held in (
        (known[0::2], known[1::2]),
        (listed + drawn[1::2], drawn[0::2]),
    ):
        policy = policy_of(fitted_to)
        ratios, unknown = [], 0
        for table in held:
            of, formula = table.problem, table.seconds[table.formula]
            chosen = policy.change(of.scheduler, of.facts, of.hardware, table.formula)
            params = table.formula if chosen is None else with_changes(table.formula, chosen[0], of.length)
            unknown += params not in table.seconds
            seconds = table.seconds.get(params, formula)
            ratios.append(seconds / formula)
            regrets.append((seconds / table.best, formula / table.best))
        assert max(ratios) <= 1.05 and unknown < 0.1 * len(held), ratios
        assert "each held out once" in policy.rules_text()
    assert mean([policy for policy, _ in regrets]) < mean([formula for _, formula in regrets])


def test_a_policy_of_near_sizes_beats_the_formula_on_sizes_that_were_held_out():
    fitted_to, held = (tables(Path(__file__).parent / f"near{of}_h200.json") for of in ("", "_held_out"))
    assert not {table.problem.key for table in fitted_to} & {table.problem.key for table in held}
    policy = policy_of(fitted_to)
    results = judged(policy, held)
    assert len(results) == 26 and all(each.is_known for each in results)
    assert max(each.chosen / each.formula for each in results) <= 1.05
    formula, chosen = (
        mean([getattr(each, of) / each.best for each in results]) for of in ("formula", "chosen")
    )
    assert chosen < formula / 1.005
    assert "changes by near sizes of reduction on NVIDIA H200: used" in policy.rules_text()


def test_no_step_is_to_params_that_mean_the_same():
    """The blocks that share a row: left open by the formula, or one."""
    table = next(table for table in tables() if table.problem.scheduler == "inner_persistent")
    assert table.formula.lparams.gdimy == UNSET
    of = table.problem
    space = ParamsSpace(table.formula, of.hardware, FIXED[of.scheduler], of.length)
    extents = {step.params.lparams.gdimy for step in space.steps(table.formula)}
    assert UNSET in extents and 1 not in extents


def test_a_search_with_a_journal_races_what_it_found_and_stops_with_a_reason(tmp_path):
    table = next(table for table in tables() if table.problem.name == "add_relu 13553x2240")
    of = replace(table.problem, formula=table.formula)
    seeds, effort = seeds_of(of, space_of(table), default_heuristics()), Effort(200)
    with Journal(tmp_path / "j.sqlite", "a") as journal:
        search = ProblemSearch(of, space_of(table), seeds, journal, effort, _Budget(effort, 1), True)
        here.drive(
            search,
            lambda text, origin: table.trial(from_json(type(table.formula), text), origin),
            table.copy_seconds,
        )
        race = search.race()
        kind = type(table.formula)
        journal.add_race(of.key, Race({p: table.seconds[from_json(kind, p)] for p in race.params}, 1.0))
        tuned = search.ended("")
    assert tuned.stop == "the best is within 2% of the roofline"
    assert tuned.seconds <= tuned.formula_seconds and tuned.seconds <= 1.02 * table.copy_seconds


def test_a_recording_is_read_as_it_was_written_and_another_file_is_refused(tmp_path):
    some = tables()[:3]
    path = tmp_path / "r.json"
    path.write_text(recording_text(some, some[0].made_by))
    for table, again in zip(some, read_recording(path), strict=True):
        assert again.seconds.keys() == table.seconds.keys() and again.refused == table.refused
        assert again.problem == table.problem and again.plain == table.plain
        assert all(abs(again.seconds[p] / s - 1) < 1e-3 for p, s in table.seconds.items())
    path.write_text(path.read_text().replace('"fields": ["', '"fields": ["x', 1))
    with pytest.raises(TuneError, match=r"r\.json cannot be read: ParamsError"):
        read_recording(path)
