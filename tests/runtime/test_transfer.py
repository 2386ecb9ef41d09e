"""Kernels that one process lowered and another one runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import fusewright.runtime.compiler as compiler
from fusewright import FusionCache, FusionDefinition
from fusewright.core.errors import InternalError
from fusewright.core.options import Options
from fusewright.core.tracing import SILENT
from fusewright.frontend.tuned.problems import load, problems_of
from fusewright.kernel.text import kernel_text
from fusewright.ops.every_row import _rows, rows_by_name
from fusewright.runtime.disk_cache import DiskCache
from fusewright.runtime.transfer import kernel_from, kernel_to_bytes
from fusewright.tune.journal import Status
from fusewright.tune.problem import Problem
from fusewright.tune.worker import Attempt, Planned, Runner, params_text
from tests.tune.problems import CountingClock

OPTIONS = Options()
Define = Callable[[FusionDefinition, Any], Any]


def of(define: Define, x: torch.Tensor, folder: Path) -> Problem:
    with FusionDefinition() as fd:
        fd.add_output(define(fd, fd.from_pytorch(x)))
    [problem] = problems_of(fd, [x], None, "p", folder)
    return problem


DEFINITIONS: dict[str, Define] = {
    "rows": lambda fd, x: fd.ops.softmax(x, -1),
    "statistics": lambda fd, x: fd.ops.var(x, dims=[1], correction=0, keepdim=False),
    "random": lambda fd, x: fd.ops.dropout(x, 0.5)[0],
    "approximate": lambda fd, x: fd.ops.gelu(fd.ops.tanh(x)),
    "columns": lambda fd, x: fd.ops.sum(x, dims=[0]),
}


@pytest.mark.parametrize("name", DEFINITIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_kernel_is_the_same_after_it_went_to_another_process(name, dtype, tmp_path):
    torch.manual_seed(0)
    problem = of(DEFINITIONS[name], torch.randn(24, 72).to(dtype), tmp_path)
    planned = Planned(problem, load, OPTIONS)
    kernel = planned._all._kernel(planned.kernel, planned.heuristic, SILENT)
    content = kernel_to_bytes(kernel)
    made = kernel_from(content, lambda: DiskCache(None))
    assert kernel_text(made.kernel) == kernel_text(kernel.kernel) and made.full_text == kernel.full_text
    assert made.schedule is None and made.arguments == kernel.arguments and made.params == kernel.params
    limited = made.with_register_limit(64)  # printed anew
    assert limited.full_text == kernel.with_register_limit(64).full_text


@pytest.mark.parametrize("limit", [255, 64])
def test_what_was_lowered_elsewhere_runs_without_being_lowered_again(limit, tmp_path, monkeypatch):
    problem = of(DEFINITIONS["rows"], torch.randn(24, 72), tmp_path)
    planned = Planned(problem, load, OPTIONS)
    params = planned.heuristic
    params = replace(params, cparams=replace(params.cparams, maxrregcount=limit))
    made = planned.make(params_text(params))
    assert made.status is Status.COMPILED and made.lowered is not None

    def runner() -> Runner:
        FusionCache.reset()
        monkeypatch.setattr(compiler, "_kernels", type(compiler._kernels)(1000, lambda entry: 1))
        return Runner(problem, load, OPTIONS, CountingClock())

    def lower(*arguments: object) -> None:
        raise AssertionError("lowered again")

    monkeypatch.setattr(compiler, "_lowered", lower)
    attempt = Attempt(problem, params_text(params), "heuristic", lowered=made.lowered)
    assert runner().run(attempt).status is Status.MEASURED
    with pytest.raises(InternalError, match="AssertionError: lowered again"):
        runner().run(replace(attempt, lowered=None))


def test_a_kernel_with_params_that_do_not_go_to_other_processes_stays(tmp_path, monkeypatch):
    problem = of(DEFINITIONS["columns"], torch.randn(24, 72), tmp_path)
    planned = Planned(problem, load, OPTIONS)
    kernel = replace(planned._all._kernel(planned.kernel, planned.heuristic, SILENT), params=lambda: None)
    monkeypatch.setattr(planned._all, "lowered", lambda *given: kernel_to_bytes(kernel))
    made = planned.make(params_text(planned.heuristic))
    assert made.status is Status.COMPILED and made.lowered is None


def test_rows_have_names_of_their_own():
    assert len({id(row) for row in _rows()}) == len(rows_by_name())
