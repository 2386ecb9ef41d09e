"""`fusewright tune` without a GPU: what a journal has is shown and exported."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree

import pytest

from fusewright.cli.main import main
from fusewright.cli.tune import progress_table
from fusewright.frontend.tuned_calls import effort_of, journal_version
from fusewright.tune.heuristics import SeedTable
from fusewright.tune.journal import Journal, SearchRecord, Status, Trial
from fusewright.tune.policy import read_policy
from fusewright.tune.space import ParamsSpace
from fusewright.tune.tuner import Effort, Progress
from fusewright.tune.worker import Best, params_text
from tests.tune.invented import FORMULA, H200, copy_seconds, problem, seconds


def test_a_journal_is_shown_and_exported(tmp_path, capsys):
    path, policy, seeds, report = (tmp_path / n for n in ("j.sqlite", "p.json", "s.json", "r.html"))
    of = problem(4096, 1024)
    with Journal(path, journal_version()) as journal:
        journal.add_problem(of)
        for params in [FORMULA, *(step.params for step in ParamsSpace(FORMULA, H200).steps(FORMULA))]:
            time = seconds(of, params)
            status = Status.REJECTED if time is None else Status.MEASURED
            origin = "heuristic" if params == FORMULA else "step"
            journal.add_trial(of.key, Trial(params_text(params), origin, status, time))
        journal.add_search(of.key, SearchRecord(["heuristic: applied"], "the time is up", 10, 1))
    exports = ["--export", str(policy), "--export-seeds", str(seeds), "--report", str(report)]
    assert main(["tune", "--show", "--journal", str(path), "--json", *exports]) == 0
    [shown] = json.loads(capsys.readouterr().out)
    assert shown["stop"] == "the time is up" and shown["autotuner_heuristics"] == ["heuristic: applied"]
    assert shown["best_seconds"] < shown["heuristic_seconds"]
    [entry] = read_policy(policy).entries
    [seed] = SeedTable(seeds).seeds
    assert entry.change and seed.matches(of) and not seed.matches(problem(64, 64))
    page = report.read_text()
    plots = page.split("<svg")[1:]
    assert len(plots) > 5 and "unroll_factor_outer" in page and "the time is up" in page
    ElementTree.fromstring("<svg" + plots[-1].partition("</svg>")[0] + "</svg>")
    assert main(["tune", "--show", "--journal", str(path)]) == 0
    assert "the time is up" in capsys.readouterr().out


def test_efforts_and_progress_are_what_users_name():
    assert effort_of("fast").configurations == 30 and effort_of("2.5") == effort_of(2.5) == Effort(
        seconds=2.5
    )
    of = problem(4096, 1024)
    table = progress_table(
        [Progress(of, 5, 1, best=Best("", 2 * copy_seconds(of)), copy_seconds=copy_seconds(of))]
    )
    assert "50%" in list(table.columns[5].cells)


@pytest.mark.parametrize(
    ("arguments", "problem_"),
    [
        ([], "which SCRIPT?"),
        (["missing.py"], "there is no script missing.py"),
        (["--show", "--journal", "j"], "there is no journal j"),
        (["--effort", "much"], 'expected: "fast" or "full", or a finite number'),
        (["s.py", "--seeds", "t.json"], "t.json cannot be read"),
    ],
)
def test_what_cannot_be_tuned_is_said(arguments, problem_, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.py").write_text("")
    assert main(["tune", *arguments]) in (1, 2)
    assert problem_ in capsys.readouterr().err
