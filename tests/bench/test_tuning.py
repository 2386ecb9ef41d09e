"""The benchmark of searches, from drawn problems to its table, where times are computed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from bench import tuning, tuning_near, tuning_parts
from bench.__main__ import main
from bench.tuning_parts import FIRST_STEPS, Parts, Share, Step, visible_devices
from bench.tuning_problems import drawn, drawn_near, held_out, problems
from bench.tuning_report import as_dict, print_for_documentation, print_found
from bench.tuning_trials import OfGpu, served
from fusewright.tune.policy import policy_of
from fusewright.tune.recording import read_recording
from fusewright.tune.worker import params_text
from tests.tune import here


def test_problems_are_the_same_for_a_seed():
    assert list(drawn(3)) == list(drawn(3)) != list(drawn(4)) and list(drawn()) == list(drawn(20261122))
    assert len(list(drawn(3))) == 64


def test_a_part_is_searched_sampled_and_timed_again(tmp_path, monkeypatch, capsys):
    here.install(monkeypatch)
    cases = [case for case in drawn(3) if case[0] in ("cube", "sum_inner")]
    start = time.monotonic()
    given = lambda: problems(cases, tmp_path, torch.device("cpu"))  # noqa: E731
    with OfGpu(given, True, 2, tmp_path, tmp_path / "j", 20, lambda share: start + 200 * share) as part:
        for step in FIRST_STEPS:
            getattr(part, step.method)(*step.arguments)
        others = served(part.found)
        part.transfer(others, policy_of(map(tuning.measurements, part.found)))
        part.race()
    for each in part.found:
        assert each.tuned.tried >= 30 or "left" in each.tuned.stop, each.tuned.stop
        assert each.from_plain.tried > 1 and params_text(each.plain) in each.measured
        assert {"formula", "after 8", "after 30", "plain 60", "all", "policy"} <= each.chosen().keys()
        assert set(each.again.seconds) == set(each.chosen().values())
        best = each.after(each.tuned, 30)
        assert each.raced is not None
        assert set(each.raced.seconds) == set(each.finalists) and best in each.finalists[:6]
        lucky = replace(each.raced, seconds={**each.raced.seconds, best: 1e9})
        assert replace(each, raced=lucky).after(each.tuned, 30) != best, "what wins the race counts"
        known = {trial.params for trial in each.known}
        assert set(each.sample) <= known and each.refused < set(each.sample)
    assert all(others.values()) and len(others) == 4
    with OfGpu(given, True, 2, tmp_path, tmp_path / "j", 20, lambda share: start + 300) as again:
        again.prepare()
        again.search(0, 2)
        again.sample(1.0)
    for each, before in zip(again.found, part.found):
        assert len(each.known) == len(before.known), "what a journal has is not tried again"
    assert [each.seconds for each in again.found] == [None] * 4 and again.found[0].tuned is not None
    path = tmp_path / "r.json"
    print_found(part.found)
    print_for_documentation(part.found)
    tuning._record(path, part.found)
    printed = capsys.readouterr().out
    assert "after 30  / all     : geometric mean 1.0000" in printed and "of 4" in printed
    assert "| after 30 | 4 | " in printed and "of 4 problems all was tried" in printed
    found = json.loads(json.dumps(as_dict(part.found)))
    assert {"of": "sample", "to": "all"}.items() <= found["ratios"][-2].items()
    assert [each["sample"]["untried"] for each in found["problems"]] == [0] * 4
    for table, each in zip(read_recording(path), part.found, strict=True):
        assert table.plain == each.plain and table.best == min(each.measured.values())


def test_sizes_near_each_other_are_tuned_and_those_held_out_judge_the_policy(tmp_path, monkeypatch):
    here.install(monkeypatch)
    assert len(list(drawn_near(5))) == 65 and len(held_out(drawn_near(5))) == 26
    cases = [("cube", (64 * rows, 64 * 96), torch.bfloat16) for rows in (40, 44, 48, 52, 56)]
    start = time.monotonic()
    given = lambda: problems(cases, tmp_path, torch.device("cpu"))  # noqa: E731
    with OfGpu(given, True, 2, tmp_path, tmp_path / "j", 20, lambda share: start + 200 * share) as part:
        for step in tuning_near.first_steps(2):
            getattr(part, step.method)(*step.arguments)
        for step in tuning_near.last_steps(part.found):
            getattr(part, step.method)(*step.arguments)
    held = held_out(cases)
    assert len(held) == 2 and all(set(each.again.seconds) == set(each.candidates) for each in part.found)
    tuned, judges = tuning_near.tuned_tables(part.found, held)
    assert (len(tuned), len(judges)) == (3, 2)
    assert all(judge.problem.name in ("cube 2816x6144", "cube 3328x6144") for judge in judges)
    [near] = policy_of(tuned).near
    results = tuning_near.judged(policy_of(tuned), judges)
    assert near.beats_formula and all(each.chosen < each.formula and each.is_known for each in results)
    said = tuning_near.report(part.found, held)
    assert "| held out | 2 | " in said and "timed again beside a copy: 0.0% apart" in said
    assert tuning_near.as_dict(part.found)[0]["name"] == "cube 2560x6144"


@dataclass(frozen=True)
class Faulty(Share):
    """A part that measures nothing. Its process ends at step `ends_at`, and does not end step `race`."""

    ends_at: str = ""

    def __call__(self) -> Callable[[Step], Any]:
        def do(step: Step) -> list[str]:
            if step.method == self.ends_at:
                os._exit(3)
            if step.method == "race":
                time.sleep(1000)
            return [f"problem {self.number}"]

        return do


def test_what_fails_or_hangs_in_one_part_is_lost_and_the_others_go_on(tmp_path, capsys):
    start = time.monotonic()
    shares = [
        Faulty(i, None, (), tmp_path / str(i), tmp_path / f"j{i}", 1, 3, start, 200.0, ends_at)
        for i, ends_at in enumerate(("sample", ""))
    ]
    noted: list[Any] = []
    with Parts(shares, noted.append) as parts:
        parts.run([step for step in FIRST_STEPS if step.method != "search"], start + 100)
        for step in (Step("_note", said="went on"), Step("race")):
            parts.run([step], time.monotonic() + 1)
        found: Any = parts.found
    assert found == noted[-1] == ["problem 0", "problem 1"], "what a part found before is kept"
    printed = capsys.readouterr().out
    assert "GPU 0: made the problems, 1 problems" in printed
    assert "GPU 0 does no more: the process ended with exit code 3" in printed
    assert "GPU 1: went on, 1 problems" in printed and "GPU 0: went on" not in printed
    assert "GPU 1 does no more: its time is up" in printed


def test_a_policy_is_fitted_beside_the_formulas_of_today(monkeypatch):
    monkeypatch.setenv("FUSEWRIGHT_SIM_DEVICE", "h200")
    path = Path(__file__).parents[1] / "tune" / "drawn_20261124_h200.json"
    table = next(t for t in read_recording(path) if t.problem.name == "silu_mul 1347x7232")
    today = tuning.with_todays_formula(table)
    assert today is not None and today.formula in table.seconds and today.seconds == table.seconds
    before = replace(table, formula=min(table.seconds, key=lambda p: p == today.formula))
    assert before.formula != today.formula and tuning.with_todays_formula(before) == today
    unknown = {params: s for params, s in table.seconds.items() if params != today.formula}
    assert tuning.with_todays_formula(replace(table, seconds=unknown)) is None


def test_gpus_are_named_as_the_environment_names_them(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_devices() == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-ab")
    assert visible_devices() == ["3", "GPU-ab"]


def test_the_command_runs_without_a_gpu(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(tuning, "LATE_SECONDS", 100.0)
    monkeypatch.setattr(tuning_parts, "POLL_SECONDS", 0.01)  # each step waits for one
    path = tmp_path / "table.json"
    few = ["--drawn", "3", "--only", "cube", "--points", "2", "--seconds", "5"]
    assert main(["tuning", *few, "--json", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "2 cases, 1 x" in printed and "For docs/tuning.md:" in printed
    assert len(json.loads(path.read_text())["problems"]) == 2
