"""Policies: what calls without tuning use, fitted to invented times and checked on problems held out."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from fusewright import FusionDefinition
from fusewright.core.errors import TuneError
from fusewright.core.hardware import DESCRIBED
from fusewright.frontend.active_tuning import ACTIVE
from fusewright.frontend.problems import load, problems_of
from fusewright.tune.entry import Entry
from fusewright.tune.policy import Policy, policy_of, read_policy
from fusewright.tune.rules import Rule, features_of
from fusewright.tune.space import ParamsSpace, points_of
from fusewright.tune.table import with_differences
from fusewright.tune.worker import Planned
from tests.tune.invented import FORMULA, H200, measurements, problem, seconds

SIZES = [(64, 512), (256, 1024), (1024, 1024), (512, 8192)]
SIZES += [(8192, 2048), (16384, 2048), (8192, 8192), (20000, 5000)]
HELD_OUT = [(128, 768), (700, 3000), (12000, 3000), (30000, 3000)]


def tables(sizes):
    space = ParamsSpace(FORMULA, H200)
    points = [FORMULA, *(step.params for step in space.steps(FORMULA)), *points_of(space, 60, 0)]
    return [measurements(problem(*size), points) for size in sizes]


def test_rules_beat_the_formula_on_problems_that_were_held_out_and_are_read_back(tmp_path):
    policy = policy_of(tables(SIZES))
    [fitted] = policy.rules
    assert fitted.is_used and fitted.held_out > 1.01 and fitted.worst > 1 / 1.05, policy.rules_text()
    assert "pointwise: used; 8 problems, each held out once" in policy.rules_text()
    path = tmp_path / "p.json"
    path.write_text(policy.text())
    again = read_policy(path)
    assert again == policy and again.version == policy.version and again.rules == policy.rules
    for table in tables(HELD_OUT):
        facts = replace(table.problem.facts, structure="another")
        change, why = again.change("pointwise", facts, H200) or ({}, "rule: if ")
        assert why.startswith("rule: if ")
        assert seconds(table.problem, with_differences(FORMULA, change)) <= 1.05 * table.seconds[FORMULA]


def test_rules_that_do_not_prove_themselves_are_not_used():
    one = policy_of(tables(SIZES[:1]))
    assert not one.rules[0].is_used and "not used" in one.rules_text()
    features = features_of(problem(64, 512).facts, H200)
    assert Rule("pointwise", {"bytes / L2": (0.0, 1e9)}, {}, 1.0, 2).holds(features)
    assert not Rule("pointwise", {"rows / SMs": (0.0, 1e9)}, {}, 1.0, 2).holds(features)


def definition(x: torch.Tensor):
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.relu(fd.from_pytorch(x)) + 1.0)
    return fd


def test_calls_use_what_was_learned_for_equal_and_near_sizes_and_the_formula_elsewhere(tmp_path, monkeypatch):
    x = torch.rand(64, 96)
    fd = definition(x)
    [of] = problems_of(fd, [x], None, "relu", tmp_path)
    facts = Planned(of, load, fd._given_options).described().facts
    assert facts == of.facts
    entry = Entry("relu 64 x 96", "pointwise", DESCRIBED["h200"].name, facts, {"lparams.bdimx": 32}, 1.1)
    monkeypatch.setattr(ACTIVE, "learned", Policy((entry,)))

    def threads(rows: int) -> tuple[int, str]:
        y = torch.rand(rows, 96) - 0.5
        [made] = fd.execute([y])
        assert torch.equal(made, torch.relu(y) + 1.0)
        [kernel] = fd._ran.last_program.kernels
        params = kernel.params
        return params.lparams.bdimx, params.reason

    assert threads(64)[0] == 32 and "measured for relu 64 x 96" in threads(64)[1]
    assert threads(72)[0] == 32  # near
    assert threads(640)[0] != 32
    # What the scheduler does not take is logged, and its own params serve.
    monkeypatch.setattr(ACTIVE, "learned", Policy((replace(entry, change={"break_point": 3}),)))
    assert threads(64)[0] != 32
    monkeypatch.setattr(ACTIVE, "learned", None)
    assert threads(64)[0] != 32


@pytest.mark.parametrize(
    ("text", "problem_"),
    [
        ("", "cannot be read"),
        ("{}", "is no policy"),
        ('{"format": "fusewright-policy", "version": 2}', "is no policy"),
        ('{"format": "fusewright-policy", "version": 1, "rules": 1}', 'a list "rules"'),
        (
            '{"format": "fusewright-policy", "version": 1, "rules": [], "entries": [{"name": 1}]}',
            r"entries\[0\]",
        ),
    ],
)
def test_a_file_that_is_no_policy_is_refused_by_name(tmp_path, text, problem_):
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(TuneError, match=problem_) as error:
        read_policy(path)
    assert "p.json" in str(error.value)
    assert json.loads(Policy().text())["version"] == 1
