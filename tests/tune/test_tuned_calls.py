"""Calls that are tuned, with processes and times that are invented: what they find is used."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import fusewright
import fusewright.frontend.tuned.tuned_calls as tuned_calls
from fusewright import FusionDefinition, OptionError
from fusewright.core.errors import TuneError
from fusewright.frontend.tuned.active_tuning import ACTIVE
from fusewright.torch_compile import from_fx
from fusewright.tune.journal import Journal, Status, Trial
from fusewright.tune.tuner import OWN_CONFIGURATIONS
from tests.torch_compile.graphs import traced
from tests.tune import here


@pytest.fixture
def timed(tmp_path, monkeypatch):
    """As if there were a GPU that runs blocks of 64 threads fast."""
    here.install(monkeypatch)
    made = tuned_calls.Runner

    def runner(load, options, compilers, on_gpu, keeps_code, device):
        return made(load, options, 1, True, keeps_code, device)

    monkeypatch.setattr(tuned_calls, "Runner", runner)
    monkeypatch.setattr(ACTIVE, "learned", None)
    monkeypatch.setattr(tuned_calls._calls, "session", tuned_calls.TuningSession())
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
    results = tuned_calls._calls.session.results
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


def test_what_torch_calls_is_tuned_and_a_graph_shares_one_effort(timed):
    x = torch.rand(8, 64)

    def function(x):
        return ((x + 1) * 8).to(torch.uint32).to(torch.float32).sum(1)  # definitions have no uint32

    converted = from_fx(traced(function, x))
    assert len(converted.definitions) == 2
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.relu(fd.from_pytorch(x)))
    with fusewright.tuning(tuned_calls.Effort(9), journal=timed) as session:
        for _ in range(2):
            torch.testing.assert_close(converted(x), function(x))
        first, second = session.results
        # Each has a few of its own, the rest is shared, and no more are tried than both have together.
        assert min(first.tried, second.tried) >= OWN_CONFIGURATIONS
        assert first.tried + second.tried <= 2 * 9
        with FlopCounterMode(display=False):  # makes the call one operator of torch, as torch.compile does
            fd.execute([x])
    assert len(session.results) == 3


def test_a_block_tunes_what_is_new_and_bad_efforts_are_refused(timed):
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.relu(fd.define_tensor(shape=[-1, -1], contiguity=True)))
    with fusewright.tuning(tuned_calls.Effort(4), journal=timed) as session:
        for rows in (8, 8, 16):
            fd.execute([torch.rand(rows, 64)])
        with ThreadPoolExecutor(4) as threads:  # one of them tunes, the others wait for it
            made = list(threads.map(lambda rows: fd.execute([torch.rand(rows, 64)]), [32] * 8))
            with tuned_calls._calls._lock:  # as while this thread tunes: a tuned call of another one goes on
                threads.submit(fd.execute, [torch.rand(32, 64)]).result(timeout=100)
    assert len(session.results) == 3 and len(made) == 8
    fd.execute([torch.rand(24, 64)])
    assert len(session.results) == 3 and ACTIVE.every is None
    for effort in ("slow", -1, True, float("nan")):
        with pytest.raises(OptionError, match="tune: no effort"):
            fd.execute([torch.rand(8, 64)], tune=effort)


@pytest.mark.parametrize("can_record", [True, False], ids=["", "full disk"])
def test_an_interrupt_ends_the_tuning_of_all_later_calls(timed, monkeypatch, can_record):
    def interrupt(progress) -> None:
        if not progress[0].stop:
            raise KeyboardInterrupt

    def failing(*_):
        raise TuneError("the disk is full")

    with FusionDefinition() as fd:
        fd.add_output(fd.ops.relu(fd.define_tensor(shape=[-1, -1], contiguity=True)))
    with fusewright.tuning(tuned_calls.Effort(4), journal=timed, report=interrupt) as session:
        with monkeypatch.context() as patch:
            if not can_record:
                patch.setattr(Journal, "add_search", failing)
            with nullcontext() if can_record else pytest.raises(TuneError, match="disk is full"):
                fd.execute([torch.rand(8, 64)])
        fd.execute([torch.rand(16, 64)])
    assert [each.stop for each in session.results] == ["interrupted"] * can_record


SCRIPT = """
import signal
import torch
import an_op
from fusewright import FusionDefinition

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
print("runs")
for rows in (8, 16):
    x = torch.rand(rows, 64)
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.an_op(fd.from_pytorch(x)))
    print(torch.equal(fd.execute([x])[0], x.relu()))
"""
AN_OP = """
import torch
import fusewright
from fusewright.core.dtype import Category
from fusewright.core.op import ElementwiseOp, Rule, Spelling

print("imported")
row = ElementwiseOp("an_op", 1, Rule.FLOAT_UP, {Category.FLOAT: Spelling("fmaxf({0}, 0)", torch.relu)})
fusewright.register_op(row)
"""


def test_a_script_as_it_is_has_its_operations_tuned_until_it_is_interrupted(tmp_path):
    path = tmp_path / "j.sqlite"
    (tmp_path / "an_op.py").write_text(AN_OP)
    (tmp_path / "s.py").write_text(SCRIPT)
    added = {
        "CUDA_VISIBLE_DEVICES": "",  # what is compiled only never ends for want of something faster
        "FUSEWRIGHT_TUNE": "3600",
        "FUSEWRIGHT_TUNE_JOURNAL": str(path),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    process = subprocess.Popen(
        [sys.executable, "s.py"],
        cwd=tmp_path,
        env={**os.environ, **added},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    def trials() -> list[Trial]:
        with Journal(path, tuned_calls.journal_version()) as journal:
            return [trial for problem in journal.problems() for trial in journal.trials(problem.key)]

    while sum(trial.status is Status.COMPILED for trial in trials()) < 3:
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate()
    assert (process.returncode, out.split()) == (0, ["imported", "runs", "True", "True"]), errors
    assert "Traceback" not in errors and "tuning was interrupted" in errors
    assert {trial.status for trial in trials()} <= {Status.COMPILED, Status.REJECTED}
    with Journal(path, None) as journal:
        [problem] = journal.problems()
        assert journal.search(problem.key).stop == "interrupted"
