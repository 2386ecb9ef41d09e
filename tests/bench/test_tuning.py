"""The benchmark of searches, from drawn problems to its table, where times are computed."""

from __future__ import annotations

import time

import torch

from bench import tuning
from bench.tuning_problems import drawn, problems
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
    given = list(problems("", tmp_path, torch.device("cpu"), cases))
    start = time.monotonic()
    part = OfGpu(given, 0, 2, tmp_path, 20, lambda share: start + 200 * share)
    with part:
        part.search()
        others = served(part.found)
        part.finish(others, policy_of(map(tuning.measurements, part.found)))
    for each in part.found:
        assert each.tuned.tried >= 30 or "left" in each.tuned.stop, each.tuned.stop
        assert each.from_plain.tried > 1 and params_text(each.plain) in each.measured
        assert {"formula", "after 8", "after 30", "plain 60", "all", "policy"} <= each.chosen().keys()
        assert set(each.again.seconds) == set(each.chosen().values())
        known = {trial.params for trial in each.known}
        assert set(each.sample) <= known
    assert others["pointwise"]
    path = tmp_path / "r.json"
    tuning._print(part.found)
    tuning._record(path, part.found)
    printed = capsys.readouterr().out
    assert "after 30  / all: geometric mean 1.0000" in printed and "of 4" in printed
    for table, each in zip(read_recording(path), part.found, strict=True):
        assert table.plain == each.plain and table.best == min(each.measured.values())


def test_what_fails_in_one_part_is_printed_and_the_others_go_on(capsys):
    done = []

    def do(part: int) -> None:
        if part == 0:
            raise ValueError("of this test")
        done.append(part)

    tuning._side_by_side(do, [0, 1])
    assert done == [1] and "of this test" in capsys.readouterr().err
