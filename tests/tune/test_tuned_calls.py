"""Calls that are tuned, with processes and times that are invented: what they find is used."""

from __future__ import annotations

import pytest
import torch

import fusewright
import fusewright.frontend.tuned_calls as tuned_calls
from fusewright import FusionDefinition, OptionError
from fusewright.frontend.active_tuning import ACTIVE
from fusewright.tune.journal import Journal
from tests.tune import here


@pytest.fixture
def timed(tmp_path, monkeypatch):
    """As if there were a GPU that runs blocks of 64 threads fast."""
    here.install(monkeypatch)
    made = tuned_calls.Runner

    def runner(load, options, compilers, on_gpu, keeps_code):
        return made(load, options, 1, True, keeps_code)

    monkeypatch.setattr(tuned_calls, "Runner", runner)
    monkeypatch.setattr(ACTIVE, "learned", None)
    monkeypatch.setattr(tuned_calls, "_session", tuned_calls.TuningSession())
    monkeypatch.setenv("FUSEWRIGHT_TUNE_JOURNAL", str(tmp_path / "j.sqlite"))
    return tmp_path / "j.sqlite"


def test_a_call_of_two_kernels_is_tuned_once_and_both_use_what_was_found(timed):
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        fd.add_output(fd.ops.sum(fd.ops.sum(fd.ops.relu(x), dims=[0]) * 2.0, dims=[0]))
    given = torch.rand(40, 512)
    expected = given.sum() * 2.0
    torch.testing.assert_close(fd.execute([given])[0], expected)
    before = [kernel.params for kernel in fd._ran.last_program.kernels]
    torch.testing.assert_close(fd.execute([given], tune=fusewright.tune.tuner.Effort(24))[0], expected)
    after = [kernel.params for kernel in fd._ran.last_program.kernels]
    results = tuned_calls._session.results
    assert len(after) == len(results) == 2
    for was, now, found in zip(before, after, results):
        assert found.best == now, (now.reason, found.stop)
        assert (was == now) == (found.seconds == found.formula_seconds)
    assert before != after
    assert [type(each.best) for each in results] == [type(params) for params in after]
    assert all(each.autotuner_heuristics[0].name == "heuristic" for each in results)
    with Journal(timed, tuned_calls.journal_version()) as journal:
        count = sum(len(journal.trials(problem.key)) for problem in journal.problems())
        assert count >= 2 * 8
        fd.execute([given], tune=fusewright.tune.tuner.Effort(24))
        assert sum(len(journal.trials(problem.key)) for problem in journal.problems()) == count


def test_a_block_tunes_what_is_new_and_bad_efforts_are_refused(timed):
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.relu(fd.define_tensor(shape=[-1, -1], contiguity=True)))
    with fusewright.tuning(tuned_calls.Effort(4), journal=timed) as session:
        for rows in (8, 8, 16):
            fd.execute([torch.rand(rows, 64)])
    assert len(session.results) == 2
    fd.execute([torch.rand(24, 64)])
    assert len(session.results) == 2 and ACTIVE.every is None
    for effort in ("slow", -1, True, float("nan")):
        with pytest.raises(OptionError, match="tune: no effort"):
            fd.execute([torch.rand(8, 64)], tune=effort)
