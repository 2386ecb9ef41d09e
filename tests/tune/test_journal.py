"""The journal, and what is made of it: a recorded one needs no GPU."""

from __future__ import annotations

import json
import sqlite3
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from fusewright.core.errors import TuneError
from fusewright.tune import journal as module
from fusewright.tune.journal import Journal, Race, SearchRecord, Status, Trial
from fusewright.tune.plot import svg
from fusewright.tune.report import outcomes
from tests.tune.problems import column_sum


def params(width: int) -> str:
    return json.dumps({"lparams": {"bdimx": 32 * width}, "width": width})


@pytest.fixture
def problem(tmp_path):
    return column_sum(tmp_path)


def test_the_last_trial_of_the_same_params_and_version_counts(tmp_path, problem):
    path = tmp_path / "j.sqlite"
    with Journal(path, "a") as one, Journal(path, "a") as two:
        one.add_problem(problem)
        two.add_problem(problem)
        one.add_trial(problem.key, Trial(params(1), "heuristic", Status.COMPILED))
        two.add_trial(problem.key, Trial(params(2), "space", Status.CRASHED, detail="lost"))
        two.add_trial(problem.key, Trial(params(1), "heuristic", Status.MEASURED, 2e-5))
        assert one.problems() == [problem.from_dict(problem.to_dict())]
        assert [(t.params, t.status) for t in one.trials(problem.key)] == [
            (params(1), Status.MEASURED),
            (params(2), Status.CRASHED),
        ]
    with Journal(path, "b") as other:
        assert other.trials(problem.key) == []
    path.chmod(0o444)
    with Journal(path, None) as read:
        assert read.version == "a" and len(read.trials(problem.key)) == 2


def test_an_interrupt_between_any_two_steps_of_a_write_leaves_a_journal_that_can_be_written(
    tmp_path, problem
):
    def add_a_trial(journal, steps):
        """Interrupted before the step of that number. Whether it was."""

        def trace(frame, event, _):
            nonlocal steps
            frame.f_trace_opcodes = frame.f_code.co_filename == module.__file__
            steps -= event == "opcode"
            if event == "opcode" and steps < 0:
                raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        sys._getframe().f_trace_opcodes = True  # Python 3.12 traces none unless a frame asked for them before
        sys.settrace(trace)
        try:
            journal.add_trial(problem.key, Trial(params(1), "heuristic", Status.COMPILED))
            return False
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)

    path, steps = tmp_path / "j.sqlite", 0
    with Journal(path, "a") as journal, Journal(path, "a") as other:
        journal.add_problem(problem)
        while add_a_trial(journal, steps):
            steps += 1
            journal.add_search(problem.key, SearchRecord([], "interrupted", steps, 0))
            other.add_search(problem.key, SearchRecord([], "interrupted", steps, 1))  # no lock was left
            assert journal.search(problem.key).tried == steps
    assert steps > 50


def test_report_and_plot_of_a_recorded_journal(tmp_path, problem):
    times = {1: 20e-6, 2: 15e-6, 4: 14e-6, 8: 500e-6}
    with Journal(tmp_path / "j.sqlite", "a") as journal:
        journal.add_problem(problem)
        for width, seconds in times.items():
            origin = "heuristic" if width == 1 else "space"
            journal.add_trial(problem.key, Trial(params(width), origin, Status.MEASURED, seconds))
        journal.add_trial(problem.key, Trial(params(16), "space", Status.HUNG, detail="took longer"))
        [before] = outcomes(journal)
        assert before.best_params == params(4) and before.speedup == pytest.approx(20 / 14)
        # Timed in turns, another one is the best.
        journal.add_race(problem.key, Race({params(1): 20e-6, params(2): 14e-6, params(4): 16e-6}, 12e-6))
        [found] = outcomes(journal)
    assert (found.best_params, found.heuristic, found.copy_seconds) == (params(2), 20e-6, 12e-6)
    assert found.changed() == {"lparams.bdimx": (32, 64), "width": (1, 2)}
    assert found.counts == {"measured": 4, "hung": 1}
    assert json.loads(json.dumps(found.to_dict()))["best_params"]["width"] == 2
    drawn = ElementTree.fromstring(svg([found, found, found]))
    assert len(drawn.findall(".//{*}circle")) == 3 * len(times)
    assert "copy of as many bytes 12.00 us" in [text.text for text in drawn.findall(".//{*}text")]


def test_files_that_are_no_journal_are_refused_by_name(tmp_path):
    text, foreign, old = (tmp_path / name for name in ("text", "foreign", "old"))
    text.write_text("no database" * 100)
    with sqlite3.connect(foreign) as db:
        db.execute("CREATE TABLE t (x)")
    Journal(old, "a").close()
    with sqlite3.connect(old) as db:
        db.execute("PRAGMA user_version = 99")
    for path, problem in (
        (text, "text: file is not a database"),
        (foreign, "no journal"),
        (old, "another version"),
        (tmp_path / "no" / "folder", "unable to open"),
    ):
        with pytest.raises(TuneError, match=problem):
            Journal(path, "a")
