"""Searches of problems with a journal: seeds, what is refused, replay, faults, and two tuners at once."""

from __future__ import annotations

import json
import os
import sqlite3
from dataclasses import replace
from typing import Any

import pytest

import fusewright.tune.runner as runner
from fusewright import PointwiseParams
from fusewright.core.errors import ParamsError, RegistrationError, TuneError
from fusewright.core.options import Options
from fusewright.core.serialization import from_json
from fusewright.frontend.tuned.problems import load
from fusewright.tune.heuristic import AutotunerHeuristic, HeuristicRegistry, seeds_of
from fusewright.tune.heuristics import SeedTable, default_heuristics
from fusewright.tune.heuristics.seed_table import TableSeed, table_text
from fusewright.tune.journal import Journal, Status, Trial
from fusewright.tune.report import outcomes
from fusewright.tune.space import ParamsSpace
from fusewright.tune.table import measurements_of
from fusewright.tune.tuner import Effort, ProblemSearch, Tuner, _Budget
from fusewright.tune.worker import params_text
from tests.tune import here
from tests.tune.invented import FORMULA, H200, copy_seconds, problem, seconds
from tests.tune.problems import column_sum

OF = problem(4096, 1024)
SPACE = ParamsSpace(FORMULA, H200)


def answer(text: str, origin: str) -> Trial:
    time = seconds(OF, from_json(PointwiseParams, text))
    status = Status.REJECTED if time is None else Status.MEASURED
    return Trial(text, origin, status, time)


def searched(journal: Journal, effort: Effort, copy: float | None = None) -> ProblemSearch:
    seeds = seeds_of(OF, SPACE, default_heuristics())
    search = ProblemSearch(OF, SPACE, seeds, journal, effort, _Budget(effort, 1), True)
    here.drive(search, answer, copy)
    return search


def test_illegal_params_move_to_the_nearest_legal_ones_with_the_reason():
    for wrong, expected in (
        ({"break_point": 0, "flip_grid_binding": True}, {"flip_grid_binding": False}),
        ({"vectorization_factor": 5}, {"vectorization_factor": 4}),
        ({"unroll_factor_inner": 500}, {"unroll_factor_inner": 16}),
        ({"flip_grid_binding": True, "split_grid_y_dim": True}, {}),
    ):
        given = replace(FORMULA, **wrong)
        found = SPACE.legalize(given)
        found.params.validate(H200)
        assert found.reason and all(getattr(found.params, n) == v for n, v in expected.items()), wrong
        assert sum(getattr(found.params, n) != getattr(given, n) for n in wrong) == 1
    assert SPACE.legalize(replace(FORMULA, unroll_factor_inner=3)).reason == ""
    with pytest.raises(ParamsError, match="expected PointwiseParams, got a str"):
        SPACE.legalize("params")


def test_who_was_asked_and_what_came_of_it_is_recorded(tmp_path):
    class Odd(AutotunerHeuristic):
        name = "odd"

        def is_eligible(self, problem):
            return "there is an even number of inputs" if problem.facts.inputs % 2 == 0 else True

    class Same(AutotunerHeuristic):
        name, scheduler = "same", "pointwise"

        def get_seed_params(self, problem):
            return replace(problem.formula, vectorization_factor=3)

    class Failing(AutotunerHeuristic):
        name = "failing"

        def get_seed_params(self, problem):
            raise KeyError("rows")

    registry = HeuristicRegistry([*default_heuristics(), Odd(), Same()])
    found = seeds_of(OF, SPACE, registry, [FORMULA])
    said = {asked.name: str(asked) for asked in found.asked}
    known = ["heuristic", "wide_vectors", "variations", "broadcasts"]
    assert list(said) == [*known, "odd", "same", "seeds[0]"]
    assert said["odd"] == "odd: not eligible (there is an even number of inputs)"
    assert "legalized: " in said["same"] and "duplicate" in said["seeds[0]"]
    with (
        registry.added(Failing()),
        pytest.raises(TuneError, match="failing failed in get_seed_params: KeyError"),
    ):
        seeds_of(OF, SPACE, registry)
    with pytest.raises(RegistrationError, match="there is one of the name same"):
        registry.add(Same())
    with Journal(tmp_path / "j.sqlite", "a") as journal:
        tuned = searched(journal, Effort(2)).ended("")
        assert journal.search(OF.key).asked == [str(asked) for asked in tuned.autotuner_heuristics]


def test_a_search_stops_at_the_roofline_or_the_limit_and_refuses_by_model(tmp_path):
    with Journal(tmp_path / "j.sqlite", "a") as journal:
        few = searched(journal, Effort(24), copy_seconds(OF))
        assert few.progress.stop == "as many configurations as were allowed" and few.progress.tried == 24
        trials = journal.trials(OF.key)
        assert any(t.detail.startswith("model: ") for t in trials if t.status is Status.REJECTED)
    with Journal(tmp_path / "k.sqlite", "a") as journal:
        # As if a copy took as long as what the search finds: nothing more is to be gained.
        close = searched(journal, Effort(200), few.best.seconds)
        assert "roofline" in close.progress.stop and close.progress.tried < 200


def test_problems_keep_to_what_they_share_and_each_has_a_few_of_its_own():
    budget, begun = _Budget(Effort(10), 3), [0, 0, 0]
    for i in (0, 1, 2):  # the first takes all that is shared
        while budget.allows(begun[i]):
            budget.spend(begun[i], begun[i] + 1)
            begun[i] += 1
    assert begun == [8 + 6, 8, 8] and sum(begun) == 30
    budget.spend(begun[0], begun[0] - 1)  # one was refused
    assert budget.allows(begun[1])


def test_a_search_ends_where_all_configurations_fail(tmp_path):
    def failing(text: str, origin: str) -> Trial:
        return Trial(text, origin, Status.FAULT, detail="no such operation")

    with Journal(tmp_path / "j.sqlite", "a") as journal:
        seeds, effort = seeds_of(OF, SPACE, default_heuristics()), Effort(100)
        search = ProblemSearch(OF, SPACE, seeds, journal, effort, _Budget(effort, 1), True)
        here.drive(search, failing, None)
        tuned = search.ended("")
    assert tuned.stop == "all of 8 configurations failed: no such operation" and tuned.tried == 8
    assert tuned.best == FORMULA and tuned.seconds is None


def test_a_search_that_was_killed_goes_on_where_it_was_and_two_share_what_they_know(tmp_path):
    path = tmp_path / "j.sqlite"
    child = os.fork()
    if child == 0:  # dies in the middle, with a transaction under way
        count = 0

        def dying(text: str, origin: str) -> Trial:
            nonlocal count
            count += 1
            if count == 12:
                journal._connection.execute("BEGIN IMMEDIATE")
                os.kill(os.getpid(), 9)
            return answer(text, origin)

        journal = Journal(path, "a")
        seeds = seeds_of(OF, SPACE, default_heuristics())
        effort = Effort(30)
        here.drive(ProblemSearch(OF, SPACE, seeds, journal, effort, _Budget(effort, 1), True), dying, None)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 9
    with Journal(path, "a") as journal, Journal(path, "a") as other:
        left = [t for t in journal.trials(OF.key) if not t.detail.startswith("model")]
        assert len(left) == 11
        resumed = searched(journal, Effort(30))
        assert resumed.progress.known >= 11 and resumed.progress.tried == 30
        replayed = searched(other, Effort(30))
        assert replayed.progress.known == len(journal.trials(OF.key))
        assert replayed.best == resumed.best


def test_tuners_of_several_processes_write_one_journal_at_once_and_no_row_is_lost(tmp_path):
    path, origins = tmp_path / "j.sqlite", ["first", "second", "third"]
    children = []
    waiting, starting = os.pipe()
    for origin in origins:
        children.append(os.fork())
        if children[-1] == 0:
            status = 1
            try:
                os.close(starting)
                os.read(waiting, 1)  # until the parent closes its end
                with Journal(path, "a") as journal:
                    for i in range(40):
                        journal.add_trial(origin, Trial(json.dumps({"i": i}), origin, Status.MEASURED, 1.0))
                    searched(journal, Effort(20)).ended("")
                status = 0
            finally:
                os._exit(status)
    os.close(starting)
    os.close(waiting)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    with Journal(path, "a") as journal:
        assert [len(journal.trials(origin)) for origin in origins] == [40, 40, 40]
        known = journal.trials(OF.key)
        assert searched(journal, Effort(20)).progress.known == len(known) >= 20
        assert len(journal.problems()) == 1 and journal.search(OF.key).tried == 20


def test_a_journal_that_a_killed_process_left_in_the_middle_of_writing_is_read(tmp_path):
    path = tmp_path / "j.sqlite"
    with Journal(path, "a") as journal:
        searched(journal, Effort(4))
        count = len(journal.trials(OF.key))
    child = os.fork()
    if child == 0:
        db = sqlite3.connect(path, isolation_level=None)
        db.execute("PRAGMA cache_size = 2")  # so that rows are in the file before the transaction ends
        db.execute("BEGIN")
        db.executemany("UPDATE trials SET detail = ?", [("x" * 9999,)] * 9)
        os.kill(os.getpid(), 9)
    os.waitpid(child, 0)
    assert path.with_name("j.sqlite-journal").exists()
    with Journal(path, None) as journal:
        trials = journal.trials(OF.key)
    assert len(trials) == count and all(len(trial.detail) < 9999 for trial in trials)


def test_rows_that_cannot_be_read_are_left_out(tmp_path):
    path = tmp_path / "j.sqlite"
    with Journal(path, "a") as journal:
        searched(journal, Effort(9)).ended("")
        count = len(journal.trials(OF.key))
        db = journal._connection
        for change in (
            "status = 'odd'", "seconds = -1", "seconds = 'much'", "seconds = 9e999", "params = '['",
            "params = '3'", "resources = ']'",
        ):  # fmt: skip
            db.execute(
                "INSERT INTO trials SELECT NULL, problem, '{\"n\": ' || id || '}', origin, 'measured', 1.0, "
                "detail, kernel, '{}', 1, version, created FROM trials ORDER BY id DESC LIMIT 1"
            )
            db.execute(f"UPDATE trials SET {change} WHERE id = (SELECT MAX(id) FROM trials)")
        for facts in ("[", "{}", "3", json.dumps({**OF.to_dict(), "hardware": {"name": "another"}})):
            db.execute("INSERT INTO problems VALUES (?, ?, 0)", (facts[:9], facts))
        for seconds in ("[", "3", '{"a": "b"}', '{"a": 1}'):
            db.execute("INSERT INTO races VALUES (NULL, ?, ?, -1, 'a', 0)", (OF.key, seconds))
        db.execute("INSERT INTO searches VALUES (NULL, ?, '[', '', 1, 1, 'a', 0)", (OF.key,))
    with Journal(path, None) as journal:
        assert [each.key for each in journal.problems()] == [OF.key] and len(journal.unreadable) == 4
        assert len(journal.trials(OF.key)) == count
        assert journal.race(OF.key) is None and journal.search(OF.key) is None
        [outcome] = outcomes(journal)
        [table] = measurements_of(journal, "invented", {"pointwise": PointwiseParams})
    assert outcome.to_dict()["speedup"] and len(table.seconds) == 9


def test_a_full_disk_loses_nothing_that_was_recorded(tmp_path):
    path = tmp_path / "j.sqlite"
    with Journal(path, "a") as journal:
        pages = journal._connection.execute("PRAGMA page_count").fetchone()[0]
        journal._connection.execute(f"PRAGMA max_page_count = {pages + 4}")
        with pytest.raises(TuneError, match=r"j\.sqlite: database or disk is full"):
            searched(journal, Effort(60))
        before = len(journal.trials(OF.key))
    with Journal(path, "a") as journal:
        assert before == len(journal.trials(OF.key)) > 5
        assert searched(journal, Effort(before + 5)).progress.tried == before + 5


def test_a_journal_of_an_older_version_gets_what_it_lacks(tmp_path):
    path = tmp_path / "j.sqlite"
    with Journal(path, "a") as journal:
        searched(journal, Effort(4))
        count = len(journal.trials(OF.key))
        journal._connection.execute("DROP TABLE searches")
        journal._connection.execute("PRAGMA user_version = 1")
    with Journal(path, None) as journal:
        assert journal.search(OF.key) is None and len(journal.trials(OF.key)) == count
    with Journal(path, "a") as journal:
        searched(journal, Effort(4)).ended("")
        assert journal.search(OF.key).stop and len(journal.trials(OF.key)) == count


def test_a_table_of_seeds_is_written_matched_and_checked(tmp_path):
    path = tmp_path / "seeds.json"
    entry = TableSeed("pointwise", {"unroll_factor_outer": 4}, {"bytes": (0, 1e9)}, why="a row, broadcast")
    path.write_text(table_text((entry,)))
    table = SeedTable(path)
    assert table.seeds == (entry,) and table.get_seed_params(OF).unroll_factor_outer == 4
    assert table.is_eligible(replace(OF, scheduler="scan")) == "no entry matches"
    for text, problem_ in (
        ("{", "cannot be read"),
        ("[]", "is no table of seeds"),
        ('{"format": "fusewright-seeds", "version": 9}', "is no table of seeds"),
        ('{"format": "fusewright-seeds", "version": 1, "seeds": 3}', 'a list "seeds"'),
        (json.dumps({**json.loads(path.read_text()), "seeds": [{"scheduler": 3}]}), r"seeds\[0\]: .*params"),
        (table_text((replace(entry, when={"row": (0, 1)}),)), r"seeds\[0\]: .*when.row"),
        (table_text((replace(entry, when={"bytes": (2, 1)}),)), "least and greatest"),
        (table_text((replace(entry, when={"bytes": (0, float("nan"))}),)), "NaN is no number"),
        (table_text((replace(entry, scheduler="pointwize"),)), "pointwise or .*'pointwize'"),
        (table_text((replace(entry, params={"unroll": 4}),)), "unroll.*unknown"),
        (table_text((replace(entry, params={"break_point": "1"}),)), "break_point.*int"),
    ):
        bad = tmp_path / "bad.json"
        bad.write_text(text)
        with pytest.raises(TuneError, match=f"(?s)bad.json.*{problem_}|{problem_}.*bad.json"):
            SeedTable(bad)


def test_an_interrupted_search_returns_the_best_so_far(tmp_path, monkeypatch):
    here.install(monkeypatch)

    def interrupted(progress) -> None:
        if progress[0].tried >= 5 and not progress[0].stop:
            raise KeyboardInterrupt

    with Journal(tmp_path / "j.sqlite", "a") as journal, runner.Runner(load, Options(), 1, True) as processes:
        tuner = Tuner(processes, journal, load, Options(), default_heuristics())
        [tuned] = tuner.tune([column_sum(tmp_path)], Effort(50), report=interrupted)
    assert tuned.stop == "interrupted" and 5 <= tuned.tried < 50
    assert tuned.seconds == min(trial.seconds for trial in tuned.trials if trial.seconds is not None)


class OneIsSlow(here.Pool):
    """The sixth kernel that is made takes 9 s."""

    def __init__(self, setup: Any, count: int, seconds: float) -> None:
        super().__init__(setup, count, seconds)
        self._number = 0 if isinstance(setup, here.Compiling) else -1000
        self._slow: list[Any] = []

    def submit(self, job: Any) -> None:
        self._number += 1
        (self._slow if self._number == 6 else self._waiting).append(job)

    @property
    def pending(self) -> int:
        return len(self._waiting) + len(self._slow)

    @property
    def begun(self) -> list[tuple[Any, float]]:
        return [(job, 9.0) for job in self._slow]

    def disown(self, jobs: Any = None) -> None:
        self._slow = []


def test_nobody_waits_for_a_kernel_that_takes_long_to_compile(tmp_path, monkeypatch):
    here.install(monkeypatch)
    monkeypatch.setattr(runner, "Pool", OneIsSlow)
    with Journal(tmp_path / "j.sqlite", "a") as journal, runner.Runner(load, Options(), 1, True) as processes:
        tuner = Tuner(processes, journal, load, Options(), default_heuristics())
        of = column_sum(tmp_path)
        [tuned] = tuner.tune([of], Effort(20, to_roofline=False))
        left = [t for t in journal.trials(of.key) if "much longer to compile" in t.detail]
    assert tuned.tried == 20 and len(left) == 1 and left[0].status is Status.REJECTED


def test_all_kernels_of_a_problem_are_timed_beside_one_copy(tmp_path, monkeypatch):
    here.install(monkeypatch)
    given = []

    class Noting(here.Timing):
        def __call__(self) -> Any:
            time = super().__call__()

            def run(job: Any) -> Any:
                given.append(job.copy_seconds)
                return time(job)

            return run

    monkeypatch.setattr(runner, "Running", Noting)
    with Journal(tmp_path / "j.sqlite", "a") as journal, runner.Runner(load, Options(), 1, True) as processes:
        tuner = Tuner(processes, journal, load, Options(), default_heuristics(), race=False)
        for count in (10, 14):
            tuner.tune([column_sum(tmp_path)], Effort(count, to_roofline=False))
    assert given[0] is None and set(given[len(given) // 2 :]) == {1e-3}


def test_the_best_of_a_tuned_problem_races_with_the_formula(tmp_path, monkeypatch):
    here.install(monkeypatch)
    with Journal(tmp_path / "j.sqlite", "a") as journal, runner.Runner(load, Options(), 1, True) as processes:
        tuner = Tuner(processes, journal, load, Options(), default_heuristics())
        shown = []
        of = column_sum(tmp_path)
        [tuned] = tuner.tune([of], Effort(10), report=lambda progress: shown.append(progress[0].trying))
        race = journal.race(of.key)
        assert params_text(tuned.best) == min(race.seconds, key=race.seconds.__getitem__)
        assert tuned.formula_seconds is not None and tuned.copy_seconds == 0.5 and tuned.tried == 10
        assert len(tuned.trials) == 10 and any(shown)


def test_searches_of_several_problems_are_the_same_for_a_seed_and_a_journal(tmp_path, monkeypatch):
    here.install(monkeypatch)
    problems = [column_sum(tmp_path), column_sum(tmp_path, 40, 256)]

    def tried(name: str, seed: int) -> list[list[tuple[str, str]]]:
        with Journal(tmp_path / name, "a") as journal, runner.Runner(load, Options(), 2, True) as processes:
            tuner = Tuner(processes, journal, load, Options(), default_heuristics())
            best = [tuned.best for tuned in tuner.tune(problems, Effort(12, seed=seed, to_roofline=False))]
            again = [tuned.best for tuned in tuner.tune(problems, Effort(12, seed=seed, to_roofline=False))]
            assert again == best
            return [[(t.params, t.origin) for t in journal.trials(of.key)] for of in problems]

    first = tried("a", 1)
    assert first == tried("b", 1) and first != tried("c", 2) and sum(map(len, first)) >= 24
