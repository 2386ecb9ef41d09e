"""Policies: what calls without tuning use, fitted to invented times and checked on problems held out."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
import torch

from fusewright import FusionDefinition
from fusewright.core.errors import ParamsError, TuneError
from fusewright.core.hardware import DESCRIBED
from fusewright.core.options import Options
from fusewright.core.serialization import to_dict
from fusewright.frontend.tuned.active_tuning import ACTIVE, ActiveTuning
from fusewright.frontend.tuned.problems import load, problems_of
from fusewright.schedulers import LaunchParams, PointwiseParams
from fusewright.tune.changes import Change, differences, with_differences
from fusewright.tune.entry import Entry
from fusewright.tune.heuristic import seeds_of
from fusewright.tune.heuristics import NearSizes
from fusewright.tune.near import NearChange
from fusewright.tune.policy import Policy, policy_of, read_policy
from fusewright.tune.rules import LEAST_JUDGES, Fitted, HeldOut, Rule, features_of
from fusewright.tune.space import ParamsSpace, points_of
from fusewright.tune.table import Measurements
from fusewright.tune.worker import Planned
from tests.tune.invented import FORMULA, H200, measurements, problem, seconds

SIZES = [(64, 512), (256, 1024), (1024, 1024), (512, 8192)]
SIZES += [(8192, 2048), (16384, 2048), (8192, 8192), (20000, 5000)]
SIZES += [(128, 2048), (2048, 512), (10000, 4000), (25000, 2000)]
HELD_OUT = [(128, 768), (700, 3000), (12000, 3000), (30000, 3000)]


def tables(sizes):
    space = ParamsSpace(FORMULA, H200)
    points = [FORMULA, *(step.params for step in space.steps(FORMULA)), *points_of(space, 60, 0)]
    return [measurements(problem(*size), points) for size in sizes]


def test_rules_beat_the_formula_on_problems_that_were_held_out_and_are_read_back(tmp_path):
    policy = policy_of(tables(SIZES))
    [fitted] = policy.rules
    assert fitted.is_used and fitted.held_out > 1.01 and fitted.worst > 1 / 1.05, policy.rules_text()
    assert "pointwise on NVIDIA H200: used; 12 problems, each held out once" in policy.rules_text()
    path = tmp_path / "p.json"
    path.write_text(policy.text())
    again = read_policy(path)
    assert again == policy and again.version == policy.version and again.rules == policy.rules
    for table in tables(HELD_OUT):
        facts = replace(table.problem.facts, structure="another")
        change, why = again.change("pointwise", facts, H200, FORMULA) or ({}, "rule: if ")
        assert why.startswith("rule: if ")
        assert again.change("pointwise", facts, replace(H200, name="another"), FORMULA) is None
        assert seconds(table.problem, with_differences(FORMULA, change)) <= 1.05 * table.seconds[FORMULA]


def test_rules_of_many_problems_are_fitted_at_once():
    """Each problem is held out, and each change, feature and range is looked at: that takes no seconds."""
    sizes = [(64 * (i + 1) ** 2, 512 * (1 + i % 5)) for i in range(24)]
    start = time.process_time()
    [fitted] = policy_of(tables(sizes)).rules
    assert fitted.is_used and fitted.problems == 24 and time.process_time() - start < 20


def test_rules_that_do_not_prove_themselves_are_not_used():
    one = policy_of(tables(SIZES[:1]))
    assert not one.rules[0].is_used and "not used" in one.rules_text()
    rule = Rule("pointwise", {}, Change({"unroll_factor_outer": 4}), 1.2, LEAST_JUDGES)
    fitted = Fitted("pointwise", H200.name, 1.1, 1.0, LEAST_JUDGES, (rule,))
    assert fitted.is_used and not replace(fitted, problems=LEAST_JUDGES - 1).is_used
    features = features_of(problem(64, 512).facts, H200)
    assert Rule("pointwise", {"bytes / L2": (0.0, 1e9)}, Change({}), 1.0, 2).holds(features)
    assert not Rule("pointwise", {"rows / SMs": (0.0, 1e9)}, Change({}), 1.0, 2).holds(features)


def test_a_rule_changes_numbers_by_factors_and_holds_near_what_it_was_fitted_to(tmp_path):
    change = Change({"unroll_factor_outer": 4}, {"lparams.bdimx": 0.5})
    assert Change.of(FORMULA, change.fields(FORMULA)) == Change(
        {}, {"unroll_factor_outer": 4, **change.factors}
    )
    assert change.fields(FORMULA) == {"unroll_factor_outer": 4, "lparams.bdimx": 64}
    one = replace(FORMULA, lparams=replace(FORMULA.lparams, bdimx=1))
    with pytest.raises(ParamsError, match=r"lparams\.bdimx.*multiplied by 0\.5, got 1"):
        change.fields(one)
    rule = Rule("pointwise", {"bytes / L2": (0.0, 1.0)}, change, 1.1, 3, {"rows / SMs": (1.0, 2.0)})
    assert rule.holds({"bytes / L2": 0.5, "rows / SMs": 1.5})
    for unlike in ({"bytes / L2": 0.5, "rows / SMs": 2.0}, {"bytes / L2": 0.5}):
        assert not rule.holds(unlike)
    assert str(rule) == (
        "if 0 <= bytes / L2 < 1: unroll_factor_outer = 4, lparams.bdimx *= 0.5  "
        "# 1.100x on 3 problems; only for rows / SMs 1 to 2"
    )
    fitted = Fitted("pointwise", H200.name, 1.1, 1.0, LEAST_JUDGES, (rule,))
    policy, facts = Policy(rules=(fitted,)), problem(64, 512).facts
    path = tmp_path / "p.json"
    path.write_text(policy.text())
    assert read_policy(path) == policy
    everywhere = Policy(rules=(replace(fitted, rules=(replace(rule, within={}),)),))
    assert everywhere.change("pointwise", facts, H200, FORMULA)[0] == change.fields(FORMULA)
    assert (
        everywhere.change("pointwise", facts, H200, one)
        is policy.change("pointwise", facts, H200, one)
        is None
    )
    path.write_text(policy.text().replace('"lparams.bdimx"', '"lparams.x"'))
    with pytest.raises(TuneError, match=r"(?s)rules\[0\]\.rules\[0\].*lparams\.x"):
        read_policy(path)


def test_a_rule_holds_for_formulas_like_those_that_it_was_fitted_to():
    """Rules for formulas that became others made problems 1.5 times as slow."""
    [fitted] = policy_of(tables(SIZES)).rules
    assert fitted.is_used
    facts = [table.problem.facts for table in tables(SIZES)]
    served = [rule for rule in fitted.rules if any(rule.holds(features_of(f, H200, FORMULA)) for f in facts)]
    assert served == list(fitted.rules)
    features = features_of(facts[0], H200, FORMULA)
    assert features["the formula's lparams.bdimx"] == 128 and features["the formula's shift_rows"] == 0
    assert not any("assumed" in name for name in features)
    unlike = replace(FORMULA, shift_rows=True, vectorization_factor=2)
    assert not any(rule.holds(features_of(f, H200, unlike)) for rule in fitted.rules for f in facts)
    assert all("the formula's" not in str(rule).partition("only for")[2] for rule in fitted.rules)


def definition(x: torch.Tensor):
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.relu(fd.from_pytorch(x)) + 1.0)
    return fd


def test_calls_use_what_was_learned_for_equal_and_near_sizes_and_the_formula_elsewhere(
    tmp_path, monkeypatch, caplog
):
    x = torch.rand(64, 96)
    fd = definition(x)
    [of] = problems_of(fd, [x], None, "relu", tmp_path)
    described = Planned(of, load, fd._given_options).described()
    facts = described.facts
    assert facts == of.facts
    measured = replace(
        PointwiseParams(), lparams=LaunchParams(bdimx=32), vectorization_factor=2, break_point=0
    )
    entry = Entry(
        "relu 64 x 96",
        "pointwise",
        DESCRIBED["h200"].name,
        facts,
        to_dict(measured),
        {"lparams.bdimx": 32},
        1.1,
        differences(measured, described.formula),
        NearChange({"lparams.bdimx": 32}, (1.1, 1.2)),
    )
    near = HeldOut("pointwise", entry.hardware, 1.1, 1.0, 2)
    monkeypatch.setattr(ACTIVE, "learned", Policy((entry,), near=(near,)))

    def run(rows: int) -> PointwiseParams:
        y = torch.rand(rows, 96) - 0.5
        [made] = fd.execute([y])
        assert torch.equal(made, torch.relu(y) + 1.0)
        [kernel] = fd._ran.last_program.kernels
        return kernel.params

    def threads(rows: int) -> int:
        return run(rows).lparams.bdimx

    # The params that were measured, not their change of a formula that may be another one since.
    assert run(64) == measured and "measured for relu 64 x 96" in run(64).reason
    assert threads(72) == 32 and run(72).vectorization_factor == 4  # near
    assert threads(640) != 32
    for unproved in ((), (replace(near, worst=0.9),), (replace(near, hardware="another"),)):
        monkeypatch.setattr(ACTIVE, "learned", Policy((entry,), near=unproved))
        assert threads(72) != 32 and threads(64) == 32
    # What the scheduler does not take is logged, as is what there is no longer, and its own params serve.
    for change in ({"break_point": 3}, {"lparams": {"bdimx": 4096}}, {"no_field": 1}):
        policy = Policy((replace(entry, params={**entry.params, **change}),))
        monkeypatch.setattr(ACTIVE, "learned", policy)
        caplog.clear()
        assert threads(64) != 32 and "params of the policy cannot be used" in caplog.text
    monkeypatch.setattr(ACTIVE, "learned", None)
    assert threads(64) != 32


START = '{"format": "fusewright-policy", "version": 7,'
WRITTEN_ENTRY = Entry(
    "f", "pointwise", "GPU", problem(64, 512).facts, to_dict(FORMULA), {"lparams.bdimx": 32}, 1.1, {}
)
WRITTEN = Policy(
    (WRITTEN_ENTRY,),
    near=(HeldOut("pointwise", "GPU", 1.1, 1.0, 2),),
).text()


@pytest.mark.parametrize(
    ("text", "problem_"),
    [
        ("", "cannot be read"),
        ("{}", "is no policy"),
        ('{"format": "fusewright-policy", "version": 1}', "export it again"),
        (f'{START} "rules": 1}}', 'a list "rules"'),
        (f'{START} "entries": [{{"name": 1}}]}}', r"entries\[0\]"),
        (f'{START} "rules": [], "rules": []}}', '"rules" stands twice'),
        (f'{START} "near": [{{"held_out": NaN}}]}}', "NaN is no number"),
        (f'{START} "near": [{{"held_out": 1e999}}]}}', "1e999 is no number"),
        ("[" * 10**5, "cannot be read"),
        (WRITTEN[: len(WRITTEN) // 2], "cannot be read"),
        (WRITTEN.replace('"held_out": 1.1', '"held_out": 0'), r"near\[0\].*held_out.*above 0"),
        (WRITTEN.replace('"lparams.bdimx": 32', '"lparams.x": 32'), r"entries\[0\].*lparams.x.*bdimx"),
        (WRITTEN.replace('"lparams.bdimx": 32', '"break_point.x": 32'), r"entries\[0\].*break_point.x"),
        (WRITTEN.replace('"bdimx": 128', '"bdimx": "128"'), r"entries\[0\], params.*lparams.bdimx.*int"),
        (WRITTEN.replace('"flip_grid', '"flip_grids'), r"entries\[0\], params.*flip_grids"),
        (WRITTEN.replace('"lparams.bdimx": 32', '"lparams.bdimx": "32"'), r"entries\[0\].*bdimx.*int"),
    ],
)
def test_a_file_that_is_no_policy_is_refused_by_name(tmp_path, text, problem_):
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(TuneError, match=f"(?s){problem_}") as error:
        read_policy(path)
    assert "p.json" in str(error.value)
    path.write_text(WRITTEN)
    assert read_policy(path).text() == WRITTEN


def test_a_kernel_has_as_few_params_as_serve_its_sizes():
    """Of three sizes each is fastest with params of its own; two are served as well by one."""
    points = [replace(FORMULA, unroll_factor_outer=n) for n in (2, 3, 4)]
    times = {64: (9.0, 9.05, 10.0), 128: (9.05, 9.0, 10.0), 256: (10.0, 10.0, 9.0)}
    tables = []
    for rows, row in times.items():
        of = problem(rows, 512)
        assert of.facts is not None
        of = replace(of, facts=replace(of.facts, structure="one"))
        seconds_ = dict(zip((FORMULA, *points), (10.5, *row)))
        tables.append(Measurements(of, FORMULA, seconds_, frozenset(), None, "invented"))
    changes = [entry.change["unroll_factor_outer"] for entry in policy_of(tables).entries]
    assert changes == [2, 2, 4]


NEAR_TIMES = {1000: (10.0, 9.2, 9.0), 1100: (10.0, 9.3, 10.0), 1200: (10.0, 9.2, 10.0)}


@pytest.mark.parametrize(
    ("times", "unroll"),
    [
        (NEAR_TIMES, 2),  # 3 is the fastest of one size, 2 is faster of all
        ({**NEAR_TIMES, 1200: (10.0, 10.3, 10.0)}, None),  # one size is slower
        ({**NEAR_TIMES, 1200: (10.0, 9.99, 10.0)}, 2),  # ... or as fast
        ({rows: (10.0, 9.95, 9.0 if rows == 1000 else 10.0) for rows in NEAR_TIMES}, None),
        ({rows * i: row for i, (rows, row) in enumerate(NEAR_TIMES.items(), 1)}, None),  # far apart
    ],
)
def test_near_sizes_share_a_change_that_several_gained_by(times, unroll):
    points = [replace(FORMULA, unroll_factor_outer=n) for n in (2, 3)]
    known = []
    for rows, row in times.items():
        of = problem(rows, 512)
        assert of.facts is not None
        of = replace(of, facts=replace(of.facts, structure="one"))
        known.append(Measurements(of, FORMULA, dict(zip((FORMULA, *points), row)), frozenset(), None, ""))
    policy = policy_of(known)
    assert {each.near and each.near.fields["unroll_factor_outer"] for each in policy.entries} == {unroll}
    close, away = problem(1050, 512).facts, problem(1900, 512).facts
    assert close is not None
    assert away is not None
    facts = replace(close, structure="one")
    expected = {"unroll_factor_outer": 2}
    [near] = policy.near or [HeldOut("pointwise", H200.name, 1.0, 1.0, 1)]
    chosen = policy.change("pointwise", facts, H200, FORMULA)
    assert (chosen and chosen[0]) == (expected if unroll and near.worst > 1.05 else None)
    if chosen:
        assert "near 1000x512: unroll_factor_outer = 2  # 1.087x, 1.075x, 1.087x" in policy.rules_text()
        unlike = replace(FORMULA, vectorization_factor=2)
        assert policy.change("pointwise", facts, H200, unlike) is None, "the formula chose something else"
        wider = replace(FORMULA, lparams=replace(FORMULA.lparams, bdimx=256))
        assert policy.change("pointwise", facts, H200, wider) is not None, "extents follow from sizes"
        far = replace(away, structure="one")
        assert policy.change("pointwise", far, H200, FORMULA) is None


def test_a_policy_of_a_read_only_file_is_the_default_and_what_is_learned_goes_over_it(tmp_path, monkeypatch):
    path = tmp_path / "p.json"
    path.write_text(WRITTEN)
    path.chmod(0o444)
    monkeypatch.setenv("FUSEWRIGHT_POLICY", str(path))
    active, own = ActiveTuning(), Options()
    given = active.options(own)
    assert given.policy == read_policy(path) and given != own and given == ActiveTuning().options(own)
    [entry] = given.policy.entries
    other = replace(entry, facts=replace(entry.facts, segment="another"), change={"unroll_factor_outer": 2})
    active.learned = Policy((replace(entry, change={}), other)).over(active.given)
    assert [each.change for each in active.learned.entries] == [{}, other.change]
    assert active.learned.near == given.policy.near and active.options(own) != given


def test_what_was_best_for_near_sizes_is_a_seed():
    of = problem(512, 512)
    assert of.facts is not None
    entry = replace(WRITTEN_ENTRY, hardware=of.hardware.name, facts=replace(of.facts, segment="another"))
    seeds = seeds_of(of, ParamsSpace(FORMULA, H200), [NearSizes([entry])])
    assert [each.params.lparams.bdimx for each in seeds.seeds] == [32]
    neighbors = NearSizes([entry, replace(entry, change={"unroll_factor_outer": 2})]).get_neighbors
    assert [each.unroll_factor_outer for each in neighbors(replace(of, formula=FORMULA), FORMULA)] == [1, 2]
    for unlike in (replace(entry, hardware="GPU"), replace(entry, facts=problem(2**16, 512).facts)):
        [asked] = seeds_of(of, ParamsSpace(FORMULA, H200), [NearSizes([unlike])]).asked
        assert str(asked) == "near_sizes: not eligible (no other sizes of this kernel were tuned)"
