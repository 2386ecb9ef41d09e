"""`fusewright tune` without a GPU: what a journal has is shown and exported."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from fusewright.cli.main import main
from fusewright.cli.tune_progress import progress_line, progress_table
from fusewright.frontend.tuned.tuned_calls import effort_of, journal_version
from fusewright.tune.heuristics import SeedTable
from fusewright.tune.journal import Journal, SearchRecord, Status, Trial
from fusewright.tune.policy import read_policy
from fusewright.tune.recording import recording_text
from fusewright.tune.space import ParamsSpace
from fusewright.tune.tuner import Effort, Progress
from fusewright.tune.worker import Best, params_text
from tests.tune.invented import FORMULA, H200, copy_seconds, measurements, problem, seconds

SVG = "http://www.w3.org/2000/svg"


def test_a_journal_is_shown_and_exported(tmp_path, capsys):
    names = ("j.sqlite", "p.json", "s.json", "r.html", "p.svg")
    path, policy, seeds, report, plot = (tmp_path / n for n in names)
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
    exports += ["--plot", str(plot)]
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
    for drawn in plots:
        ElementTree.fromstring("<svg" + drawn.partition("</svg>")[0] + "</svg>")
    assert "the best so far" in page and " by " in page and "http" not in page.replace(SVG, "")
    ElementTree.parse(plot)
    assert main(["tune", "--show", "--journal", str(path)]) == 0
    out = capsys.readouterr().out
    assert "the time is up" in out and "autotuner heuristics: heuristic: applied" in out
    before = policy.read_text()
    assert main(["tune", "--show", "--journal", str(path), "--export", "/dev/full"]) == 2
    assert "/dev/full cannot be written: No space left" in capsys.readouterr().err
    assert policy.read_text() == before and sorted(each.name for each in tmp_path.iterdir()) == sorted(names)


def test_a_table_of_measurements_is_shown_as_a_journal_is(tmp_path, capsys):
    points = [FORMULA, *(step.params for step in ParamsSpace(FORMULA, H200).steps(FORMULA))]
    table, path, report = measurements(problem(4096, 1024), points), tmp_path / "t.json", tmp_path / "r.html"
    path.write_text(recording_text([table], "invented"))
    assert main(["tune", "--show", "--table", str(path), "--json", "--report", str(report)]) == 0
    [shown] = json.loads(capsys.readouterr().out)
    assert shown["best_seconds"] == pytest.approx(table.best, rel=1e-3)
    assert shown["heuristic_seconds"] == pytest.approx(table.seconds[FORMULA], rel=1e-3)
    assert shown["counts"]["measured"] == len(table.seconds) and "unroll_factor_outer" in report.read_text()


def test_efforts_and_progress_are_what_users_name():
    assert effort_of("fast").configurations == 30 and effort_of("2.5") == effort_of(2.5) == Effort(
        seconds=2.5
    )
    of = problem(4096, 1024)
    copy = copy_seconds(of)
    progress = Progress(of, 5, 1, 2, 3 * copy, Best("", 2 * copy), copy, "step threads +")
    table = progress_table([progress], Effort(30, 5.0), 2.0)
    cells = [next(iter(column.cells)) for column in table.columns]
    assert cells[1:3] == ["5 (2 known)", "1"] and cells[5:] == [
        "50%",
        "step threads +",
        f"at {1.02e6 * copy:.2f} us",
    ]
    assert table.caption == "2 s; ends after 30 configurations a kernel, after 5 s, within 2% of the roofline"
    assert progress_line([progress]) == (
        "tune: 5 tried, 0 of 1 kernels done, the best 1.500x the formula's speed, 50% of the roofline, "
        f"trying step threads + for {of.name}"
    )


@pytest.mark.parametrize(
    ("arguments", "problem_"),
    [
        ([], "which SCRIPT?"),
        (["missing.py"], "there is no script missing.py"),
        (["--show", "--journal", "j"], "there is no journal j"),
        (["s.py", "--table", "t.json"], "can only be shown"),
        (["--effort", "much"], 'expected: "fast" or "full", or a finite number'),
        (["s.py", "--seeds", "t.json"], "t.json cannot be read: No such file"),
        (["s.py", "--seeds", "s.py"], "s.py cannot be read: it is no JSON"),
        (["fails.py"], "fails.py failed in line 2: ZeroDivisionError"),
        (["s.py", "--export", "no/p.json"], "there is no folder"),
        (["s.py", "--plot", "."], "it is a folder"),
    ],
)
def test_what_cannot_be_tuned_is_said(arguments, problem_, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.py").write_text("")
    (tmp_path / "fails.py").write_text("zero = 0\n1 / zero\n")
    assert main(["tune", *arguments]) in (1, 2)
    assert problem_ in capsys.readouterr().err


def test_what_a_script_prints_is_no_part_of_the_json(tmp_path, capsys):
    script = tmp_path / "s.py"
    script.write_text("print('hello')")
    assert main(["tune", str(script), "--json"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and "hello" in said.err and "executed no fusion" in said.err


def test_a_script_has_its_own_arguments(tmp_path, capsys):
    script = tmp_path / "s.py"
    script.write_text("import sys; print(sys.argv[1:])")
    before = list(sys.argv)
    assert main(["tune", str(script), "--effort", "1", "--", "--effort", "large", "--"]) == 2
    assert "['--effort', 'large', '--']" in capsys.readouterr().out
    assert main(["tune", str(script), "--effort", "1"]) == 2
    assert "[]" in capsys.readouterr().out and sys.argv == before
