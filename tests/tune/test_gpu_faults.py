"""Kernels that hang or fault on a GPU end their process, which is replaced; all others are measured."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
import torch

import fusewright
from fusewright import FusionDefinition
from fusewright.core.options import Options
from fusewright.core.serialization import from_json
from fusewright.cuda.printer import print_kernel
from fusewright.frontend.tuned.problems import load, problems_of
from fusewright.runtime import compiled_kernel
from fusewright.schedulers import PointwiseParams
from fusewright.tune.heuristics import default_heuristics
from fusewright.tune.journal import Journal, Status
from fusewright.tune.problem import Problem
from fusewright.tune.runner import Runner
from fusewright.tune.tuner import Effort, Tuner
from fusewright.tune.worker import Loaded, Planned

# The last is the formula's.
THREADS = (64, 256, 32, 512, 128)


@pytest.fixture
def faulty(monkeypatch):
    # The operation's text is more than an expression, which is all that tests read back.
    monkeypatch.setattr(compiled_kernel, "print_kernel", print_kernel)
    module = import_module("tests.tune.faulty_op")
    yield module
    fusewright.unregister_op(module.NAME)


def made_of(x: torch.Tensor, folder: Path) -> Problem:
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.faulty(fd.from_pytorch(x)) + 1.0)
    [problem] = problems_of(fd, [x], None, "faulty", folder)
    return problem


@pytest.mark.gpu
def test_kernels_that_hang_or_fault_are_lost_alone(tmp_path, faulty):
    of = made_of(torch.rand(4096, 1024, device="cuda"), tmp_path)
    formula = Planned(of, load, Options()).heuristic
    seeds = [replace(formula, lparams=replace(formula.lparams, bdimx=threads)) for threads in THREADS]
    effort = Effort(configurations=len(THREADS), to_roofline=False)
    with Journal(tmp_path / "j.sqlite", "a") as journal, Runner(load, Options(), 4, True) as processes:
        tuner = Tuner(processes, journal, load, Options(), list(default_heuristics())[:1])
        [tuned] = tuner.tune([of], effort, seeds)
        [again] = tuner.tune([of], effort, seeds)
        trials = journal.trials(of.key)
    became = {
        from_json(PointwiseParams, t.params).lparams.bdimx: t
        for t in trials
        if t.status is not Status.REJECTED
    }
    assert {n: became[n].status for n in THREADS} == {
        faulty.HANGS: Status.HUNG,
        faulty.FAULTS: Status.CRASHED,
        **dict.fromkeys((128, 256, 512), Status.MEASURED),
    }
    assert became[faulty.HANGS].detail == "while running: took longer than 5 s"
    assert "illegal" in became[faulty.FAULTS].detail.lower()
    assert tuned.seconds is not None and tuned.best.lparams.bdimx not in (faulty.HANGS, faulty.FAULTS)
    assert (again.best, again.tried) == (tuned.best, tuned.tried)
    assert float(torch.ones(8, device="cuda").sum()) == 8.0


def load_without_memory(problem: Problem, device: torch.device) -> Loaded:
    if device.type == "cuda":
        raise torch.OutOfMemoryError("of this test")
    return load(problem, device)


@pytest.mark.gpu
def test_what_there_is_no_memory_for_is_tried_again(tmp_path):
    x = torch.rand(512, 1024, device="cuda")
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.relu(fd.from_pytorch(x)))
    [of] = problems_of(fd, [x], None, "relu", tmp_path)
    heuristics, effort = list(default_heuristics())[:1], Effort(configurations=1, to_roofline=False)
    for loads, status in ((load_without_memory, Status.COMPILED), (load, Status.MEASURED)):
        with Journal(tmp_path / "j.sqlite", "a") as journal, Runner(loads, Options(), 1, True) as processes:
            Tuner(processes, journal, load, Options(), heuristics).tune([of], effort)
            [trial] = journal.trials(of.key)
        assert trial.status is status, trial
