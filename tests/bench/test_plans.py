"""Kernels that are planned without a GPU: what faults and differences a run reports."""

from __future__ import annotations

import argparse
import json
import logging
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch._subclasses import FakeTensorMode

from bench import plans
from bench.drawn import ALL_LAYOUTS, MIXED, drawn_cases
from bench.drawn_reductions import FEW_ELEMENTS, reduction_cases
from bench.operation import Inputs
from bench.operations import selected
from fusewright.core.errors import InternalError


def _run(output: Path, *given: str) -> int:
    parser = argparse.ArgumentParser()
    plans.add_arguments(parser)
    return plans.run(parser.parse_args([*given, "--output", str(output)]))


def test_kernels_are_compared_with_those_of_an_earlier_run(tmp_path, capsys):
    cases = ["--only", "mish,sum_last", "--drawn", "1", "--count", "4"]
    assert _run(tmp_path / "a", *cases) == 0
    found = json.loads((tmp_path / "a.json").read_text())
    assert len(found["kernels"]) == 4 and all(found["kernels"].values()) and not found["faults"]
    assert _run(tmp_path / "b", *cases, "--against", str(tmp_path / "a.json")) == 0
    name = next(iter(found["kernels"]))
    found["kernels"][name] = ["another"]
    (tmp_path / "a.json").write_text(json.dumps(found))
    assert _run(tmp_path / "b", *cases, "--against", str(tmp_path / "a.json")) == 1
    assert f"1 of 4 cases have other kernels: {name}" in capsys.readouterr().out


@pytest.mark.faults
def test_faults_are_reported_whether_they_are_logged_or_raised(tmp_path, capsys, monkeypatch):
    def faulty(operation, shape):
        if operation.name.startswith("mish"):
            raise InternalError(problem="no kernel", repro="")
        logging.getLogger("fusewright").error("internal error: another kernel")
        return []

    monkeypatch.setattr(plans, "made_kernels", faulty)
    assert _run(tmp_path / "a", "--only", "mish,sum_last") == 1
    faults = json.loads((tmp_path / "a.json").read_text())["faults"]
    assert sorted(text.partition(":")[0] for text in faults.values()) == ["InternalError", "internal error"]
    assert "2 faults" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("guard", "iterations", "block", "is_fault"),
    [
        ("threadIdx_x == 0 && threadIdx_y == 0", 64, (16, 16, 1), True),
        ("threadIdx_x == 0", 64, (128, 1, 1), True),
        ("threadIdx_x == 0", 64, (16, 16, 1), False),  # by the threads along y
        ("threadIdx_x == 0", 4, (128, 1, 1), False),
    ],
)
def test_loops_of_one_thread_are_faults(guard, iterations, block, is_fault):
    text = f"if ({guard}) {{\n  for (int j = 0; j < {iterations}; ++j) {{\n"
    kernel = SimpleNamespace(name="sum", cuda_text=text, launch=SimpleNamespace(block=block))
    found = plans.loop_of_one_thread(kernel)
    assert found == (f"sum: one thread of a block goes through {iterations} iterations" if is_fault else None)


def test_mixed_layouts_keep_sizes_and_are_the_same_for_a_seed():
    operations = selected(["outer_sum", "sum_12"], plans.CATALOGUE)
    plain = {each.name: each for each in operations}
    found = []
    with FakeTensorMode():
        for _ in range(2):
            for case, shape in drawn_cases(3, 12, operations, ALL_LAYOUTS):
                inputs = case.inputs(shape, Inputs(torch.device("cpu")))
                usual = plain[case.name.partition(" ")[0]].inputs(shape, Inputs(torch.device("cpu")))
                assert [t.shape for t in inputs] == [t.shape for t in usual]
                found.append((case.name, *((t.stride(), t.storage_offset()) for t in inputs)))
    assert found[:12] == found[12:] and any(f" {MIXED}" in name for name, *_ in found)


def test_random_reductions_are_planned_and_those_of_few_elements_are_right(tmp_path, target):
    assert _run(tmp_path / "a", "--reductions", "11", "--count", "6") == 0
    for case, shape in reduction_cases(11, 12, FEW_ELEMENTS):
        inputs = case.inputs(shape, Inputs(target))
        case.check(shape, inputs, case.definition(inputs).execute(inputs))
