"""Every kind of schedule runs under the sanitizer, and what becomes of a process is told apart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from bench.lane_arrivals import lanes_arrive
from bench.operation import Inputs
from bench.sanitize import CASES, FOUND, WRONG, Case, inside, operation_of, outcome, schedules
from fusewright import FusionCache, UserError
from fusewright.core.once import clear_shared_caches
from fusewright.kernel import ir as k

CASE = CASES[0]
COUNTS = '{"kernels": 3, "refused": 1, "errors": 0}'


def kinds(kernel: Any) -> Iterator[str]:
    """What is special about the schedule of a kernel, as its params and its statements say."""
    params, body = kernel.params, kernel.kernel.kernel
    yield kernel.scheduler
    for field in (
        "circular_stages",
        "warp_specialized",
        "staged_vector",
        "shift_rows",
        "unaligned_inputs",
        "picked_inputs",
        "tiles_in_shared_memory",
    ):
        if getattr(params, field, None):
            yield field
    if getattr(params, "persistent_in_shared_memory", False):
        yield "in shared memory"
    if getattr(params, "loads_ahead", False):
        yield "loads_ahead"
    launch = getattr(params, "lparams", None)
    if launch is not None and launch.bdimz > 1:
        yield f"{kernel.scheduler} of threads z"
    if kernel.scheduler == "pointwise" and launch is not None and launch.bdimy > 1:
        yield "pointwise tiles"
    if body.cluster > 1:
        yield f"{kernel.scheduler} of clusters"
    for stmt in k.walk(body.body):
        if isinstance(stmt, k.GridReduce):
            yield "all-reduce" if stmt.is_last is None else "last block"
        elif isinstance(stmt, k.GridReduces | k.GridBarrier | k.GridScan):
            yield type(stmt).__name__


def test_every_kind_of_schedule_is_covered() -> None:
    found: set[str] = set()
    for case in CASES:
        inputs = operation_of(case).inputs(case.shape, Inputs(torch.device("cpu")))
        fd = operation_of(case).definition(inputs)
        for schedule in schedules(case, fd, inputs, points=0, seed=0):
            try:
                kernels = fd.kernels_for(inputs, schedules=schedule or None)
            except UserError:
                continue
            for kernel in kernels:
                found.update(kinds(kernel) if not kernel.parts else ("several at once",))
    assert found >= {
        *("pointwise", "transpose", "reduction", "inner_persistent", "outer_persistent", "scan"),
        *("inner_outer", "inner_outer_persistent", "inner_persistent of clusters"),
        *("outer_persistent of clusters", "in shared memory", "circular_stages", "warp_specialized"),
        *("staged_vector", "shift_rows", "unaligned_inputs", "all-reduce", "last block", "GridReduces"),
        *("tiles_in_shared_memory", "loads_ahead", "outer_persistent of threads z", "pointwise tiles"),
        *("GridBarrier", "GridScan", "several at once", "picked_inputs"),
    }


@pytest.mark.parametrize(
    ("code", "lines", "said", "errors"),
    [
        (0, [COUNTS], "clean", 0),
        (None, ["========= COMPUTE-SANITIZER"], "did not end", 0),
        (FOUND, ["========= Invalid read", "=========     at kernel+0x10", COUNTS], "found", 1),
        (WRONG, ['{"kernels": 3, "refused": 0, "errors": 2}'], "wrong", 2),
        (0, ['{"kernels": 0, "refused": 4, "errors": 0}'], "exit status 0", 0),
        (1, ["ImportError"], "exit status 1", 0),
    ],
)
def test_what_became_of_a_process(code: int | None, lines: list[str], said: str, errors: int) -> None:
    row, report = outcome("memcheck", CASE, code, lines)
    assert (row["outcome"], row["errors"]) == (said, errors)
    assert report or said in ("clean", "wrong")


def test_a_case_names_its_size() -> None:
    assert Case("softmax", (3, 70)).name == "softmax 3x70"


def test_one_kernel_stores_two_pieces() -> None:
    [case] = [case for case in CASES if case.operation == "beside_mean"]
    inputs = operation_of(case).inputs(case.shape, Inputs(torch.device("cpu")))
    [kernel] = operation_of(case).definition(inputs).kernels_for(inputs)
    assert sum(tensor.is_written for tensor in kernel.tensors) == 2


def test_clusters_that_a_tool_does_not_follow_are_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    case = Case("softmax", (3, 4096), ({"blocks_per_cluster": 4, "lparams": {"bdimx": -1}},))
    for blocks, kernels in ((11, 1), (12, 2)):
        assert inside(case, points=0, seed=0, followed=(2, blocks)) == 0
        counts = json.loads(capsys.readouterr().out)
        assert counts == {"kernels": kernels, "refused": 0, "skipped": 2 - kernels, "errors": 0}


def test_under_racecheck_each_lane_arrives_for_itself() -> None:
    [case] = [case for case in CASES if case.name == "softmax 9x2048"]
    ring = next(edit for edit in case.edits if edit.get("warp_specialized"))
    inputs = operation_of(case).inputs(case.shape, Inputs(torch.device("cpu")))

    def text() -> str:
        FusionCache.reset()
        clear_shared_caches()
        [kernel] = operation_of(case).definition(inputs).kernels_for(inputs, schedules={0: ring})
        return kernel.kernel.full_text

    as_it_is = text()
    with lanes_arrive():
        by_lanes = text()
    assert "fw::arrive_by_warp(" in as_it_is
    assert "init_mbarriers(T0_copy_empty, 3, 4)" in as_it_is
    expected = as_it_is.replace("fw::arrive_by_warp(&T0", "fw::arrive(&T0")
    assert by_lanes == expected.replace("(T0_copy_empty, 3, 4)", "(T0_copy_empty, 3, 128)")
