"""Rows and columns that blocks go over twice, held in part, and rows that are loaded ahead of their turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.kernel import ir as k
from fusewright.schedulers.params import LaunchParams, ReductionParams
from fusewright.schedulers.persistent.inner import InnerPersistentScheduler
from fusewright.schedulers.persistent.outer import OuterPersistentScheduler
from fusewright.sym import FALSE, Const
from tests.integration.tolerance import assert_close
from tests.schedulers import proposals as p
from tests.schedulers.banks import shared_accesses


def _scaled(fd: FusionDefinition) -> None:
    x = fd.define_tensor([-1, -1], contiguity=True)
    fd.add_output(x / fd.ops.max(fd.ops.abs(x), dims=[0, 1]))


def _centered(fd: FusionDefinition) -> None:
    x = fd.define_tensor([-1, -1], contiguity=True)
    fd.add_output(x - fd.ops.mean(x, dims=[0], keepdim=True))


def _normalized(fd: FusionDefinition) -> None:
    """A batch norm: channels between what is reduced, and statistics that are outputs."""
    x = fd.define_tensor([-1, -1, -1], contiguity=True)
    variance, mean = fd.ops.var_mean(x, dims=[0, 2], correction=0, keepdim=True)
    fd.add_output((x - mean) * fd.ops.rsqrt(variance + 1.0))
    fd.add_output(mean)


def _normalized_by_torch(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    variance, mean = torch.var_mean(x, (0, 2), correction=0, keepdim=True)
    return (x - mean) * torch.rsqrt(variance + 1.0), mean


def _softmax_of_columns(fd: FusionDefinition) -> None:
    """By one reduction, which combines the rows that a thread has in flight as a run."""
    x = fd.define_tensor([-1, -1], contiguity=True)
    top, total = (fd.ops.broadcast(each, [True, False]) for each in fd.ops.max_sum_exp(x, 0))
    fd.add_output(fd.ops.exp(x - top) / total)


def _standardized(fd: FusionDefinition) -> None:
    """By Welford's steps, of which a run takes fewer divisions."""
    x = fd.define_tensor([-1, -1], contiguity=True)
    mean, squares, _ = fd.ops.welford(x, [0])
    mean, squares = (fd.ops.broadcast(each, [True, False]) for each in (mean, squares))
    fd.add_output((x - mean) * squares)


def _standardized_by_torch(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(0)) * ((x - x.mean(0)) ** 2).sum(0)


_ROWS = ReductionParams(
    fastest_dim=True,
    persistent_kernel=True,
    project_persistent_buffers=True,
    batches_per_block_inner_reduction=0,
    unroll_factor_inner_reduction=4,
    vectorize_inner_reduction=True,
    unroll_factor_top_of_vectorization=2,
    held_steps=2,
    sweeps_backward=True,
    lparams=LaunchParams(gdimy=2, bdimx=16),
)
_COLUMNS = replace(
    _ROWS,
    fastest_dim=False,
    unroll_factor_inner_reduction=2,
    vectorize_inner_reduction=False,
    unroll_factor_top_of_vectorization=1,
    unroll_factor_iter_dom=4,
    vectorize_iter_dom=True,
    streams_last_sweep=True,
    lparams=LaunchParams(gdimy=3, bdimx=8, bdimy=4),
)
_IN_SHARED = replace(
    _ROWS,
    batches_per_block_inner_reduction=2,
    unroll_factor_top_of_vectorization=1,
    held_steps=0,
    sweeps_backward=False,
    persistent_in_shared_memory=True,
    persistent_blocks=2,
    assumed_reduction_sizes=(3, 64),
    lparams=LaunchParams(gdimy=2, bdimx=12),
)
_RUNS = replace(_COLUMNS, assumed_reduction_sizes=(72,))
_HELD_COLUMNS = replace(
    _COLUMNS,
    batches_per_block_inner_reduction=6,
    held_steps=0,
    sweeps_backward=False,
    streams_last_sweep=False,
    persistent_in_shared_memory=True,
    assumed_reduction_sizes=(48,),
    lparams=LaunchParams(bdimx=8, bdimy=8),
)
_COLUMNS_IN_REGISTERS = replace(
    _HELD_COLUMNS,
    persistent_in_shared_memory=False,
    blocks_per_cluster=2,
    assumed_reduction_sizes=(67,),
)
_COLUMNS_OF_ANY_LENGTH = replace(
    _HELD_COLUMNS,
    persistent_in_shared_memory=False,
    assumed_reduction_sizes=(),
    lparams=LaunchParams(bdimx=8),
)
_CASES: dict[str, tuple[Callable[[FusionDefinition], None], Callable[..., Any], tuple[int, ...], Any]] = {
    "tensor": (_scaled, lambda x: x / x.abs().max(), (37, 28), _ROWS),
    "columns": (_centered, lambda x: x - x.mean(0, keepdim=True), (67, 40), _COLUMNS),
    "runs_down_columns": (_softmax_of_columns, lambda x: x.softmax(0), (72, 40), _RUNS),
    "runs_that_end": (_softmax_of_columns, lambda x: x.softmax(0), (67, 40), _COLUMNS),
    "runs_of_welford": (_standardized, _standardized_by_torch, (72, 40), _RUNS),
    "runs_of_held_columns": (_softmax_of_columns, lambda x: x.softmax(0), (48, 40), _HELD_COLUMNS),
    "runs_in_registers": (_softmax_of_columns, lambda x: x.softmax(0), (67, 40), _COLUMNS_IN_REGISTERS),
    "runs_of_any_length": (_softmax_of_columns, lambda x: x.softmax(0), (67, 40), _COLUMNS_OF_ANY_LENGTH),
    "rows_in_turns": (
        _normalized,
        _normalized_by_torch,
        (3, 5, 64),
        replace(_ROWS, persistent_blocks=2, assumed_reduction_sizes=(3, 64)),
    ),
    "steps_ahead": (
        _softmax_of_columns,
        lambda x: x.softmax(0),
        (67, 40),
        replace(_COLUMNS, prefetches_steps=True),
    ),
    "steps_of_rows_ahead": (
        _normalized,
        _normalized_by_torch,
        (3, 5, 64),
        replace(_ROWS, persistent_blocks=2, prefetches_steps=True),
    ),
    "rows_in_shared_memory": (_normalized, _normalized_by_torch, (3, 5, 64), _IN_SHARED),
    "rows_in_shared_memory_of_clusters": (
        _normalized,
        _normalized_by_torch,
        (3, 5, 64),
        replace(_IN_SHARED, blocks_per_cluster=2, lparams=LaunchParams(bdimx=12)),
    ),
}


@pytest.mark.parametrize("shape", [(16384, 4096), (1000, 1024), (40, 262144)])
def test_proposed_blocks_are_resident_at_once(shape: tuple[int, int]) -> None:
    """What is held is as much as fits; of what is not the last part is read first."""
    whole = p.built(lambda f: p.softmax_of(f, [0, 1]))
    columns = p.built(lambda f: p.softmax_of(f, [0]))
    for scheduler, fusion in ((InnerPersistentScheduler(), whole), (OuterPersistentScheduler(), columns)):
        params, launch = p.propose(scheduler, fusion, p.facts_of(fusion, [shape]))
        if params.holds_batches:
            continue
        assert params.sweeps_backward == (prod(shape) > 2**24) and params.held_steps
        blocks, an_sm = prod(launch.grid), p.H200.shared_memory_per_sm
        resident = an_sm // (launch.shared_bytes + p.H200.shared_memory_reserved)
        assert blocks <= p.H200.sm_count * min(resident, 1024 // launch.threads)


def _scheduled(case: str, inputs: list[torch.Tensor]) -> FusionDefinition:
    """The definition as it is written: what is planned may have Welford's results from sums."""
    define, _, _, params = _CASES[case]
    with FusionDefinition() as fd:
        define(fd)
    fd._setup_schedule(inputs, overwrite_existing_schedule=True)
    fd.sched.schedule(params)
    fd._finalize_schedule(inputs)
    return fd


@pytest.mark.parametrize("case", _CASES)
def test_kernels_of_params_that_read_again_or_hold(case: str) -> None:
    _, reference, shape, _ = _CASES[case]
    inputs = [torch.randn(shape)]
    fd = _scheduled(case, inputs)
    expected = reference(inputs[0].double())
    outputs = fd.execute(inputs)
    for out, each in zip(outputs, expected if isinstance(expected, tuple) else (expected,), strict=True):
        assert_close(out, each, inputs[0].numel())


@pytest.mark.parametrize("backward", [False, True])
def test_statistics_of_wider_elements_than_what_is_normalized(backward: bool) -> None:
    """A batch norm of 16 bits, whose vectors two accesses store of a float: of any length, read backward."""
    with FusionDefinition() as fd:
        x = fd.ops.cast(fd.define_tensor([-1, -1, -1], True, DataType.BFloat16), DataType.Float)
        variance, mean = fd.ops.var_mean(x, dims=[0, 2], correction=0, keepdim=True)
        fd.add_output(fd.ops.cast((x - mean) * fd.ops.rsqrt(variance + 1.0), DataType.BFloat16))
        fd.add_output(mean)
        fd.add_output(variance)
    params = replace(_ROWS, unroll_factor_inner_reduction=8, persistent_blocks=2, sweeps_backward=backward)
    x = torch.randn(8, 5, 64).bfloat16()
    y, mean, variance = fd.execute([x], schedules={0: params})
    expected, expected_mean = _normalized_by_torch(x.double())
    assert_close(y, expected.bfloat16(), x.numel())
    assert_close(mean, expected_mean, x.numel())
    assert_close(variance, x.double().var((0, 2), correction=0, keepdim=True), x.numel())


@pytest.mark.parametrize("case", ["runs_down_columns", "runs_of_welford", "runs_of_held_columns"])
def test_rows_in_flight_are_combined_as_a_run(case: str) -> None:
    inputs = [torch.randn(_CASES[case][2])]
    [kernel] = _scheduled(case, inputs).kernels_for(inputs)
    combined = [s for s in k.walk(kernel.kernel.kernel.body) if isinstance(s, k.Combine)]
    assert {s.width for s in combined} == {2}


def test_lanes_access_neighbours_of_what_is_held_of_columns() -> None:
    with FusionDefinition() as fd:
        _centered(fd)
    params = replace(_RUNS, held_steps=2, lparams=replace(_RUNS.lparams, bdimx=32))
    [kernel] = fd.kernels_for([torch.randn(72, 128)], schedules={0: params})
    accesses = shared_accesses(kernel.kernel.kernel)
    assert any("held" in text for text, _ in accesses)
    assert {text: ways for text, ways in accesses if ways > 1} == {}


@pytest.mark.parametrize("held", [3, 4])
def test_registers_keep_what_the_last_step_loads(held: int) -> None:
    """Of five steps, four that are held leave nothing to load again; three leave two."""
    with FusionDefinition() as fd:
        _scaled(fd)
    params = replace(_ROWS, held_steps=held, assumed_reduction_sizes=(37 * 28,))
    x = torch.randn(37, 28)
    [kernel] = fd.kernels_for([x], schedules={0: params})
    statements = list(k.walk(kernel.kernel.kernel.body))
    [reduced] = [i for i, stmt in enumerate(statements) if isinstance(stmt, k.GridReduce)]
    again = [stmt for stmt in statements[reduced:] if _loads_from_global(stmt)]
    assert len(again) == 2 * (4 - held)
    [out] = fd.execute([x], schedules={0: params})
    assert_close(out, x.double() / x.double().abs().max(), x.numel())


def test_sums_that_do_not_depend_on_each_other_share_a_sweep() -> None:
    """The gradient of a centered column, from means that another kernel computed: each input is read twice,
    and a thread has one mean for each of its columns, not for each step.
    """
    with FusionDefinition() as fd:
        grad, x = (fd.define_tensor([-1, -1], contiguity=True) for _ in range(2))
        mean = fd.ops.segment_set(fd.ops.mean(x, dims=[0], keepdim=True))
        normal = x - mean
        of_bias = fd.ops.sum(grad, dims=[0], keepdim=True)
        of_weight = fd.ops.sum(grad * normal, dims=[0], keepdim=True)
        fd.add_output(grad - of_bias - normal * of_weight)
    inputs = [torch.randn(67, 40), torch.randn(67, 40)]
    params = replace(_COLUMNS, held_steps=0, assumed_reduction_sizes=(67,))
    kernels = fd.kernels_for(inputs, schedules={1: params})
    kernel = kernels[1].kernel.kernel
    reads: dict[str, int] = {}
    for stmt in k.walk(kernel.body):
        if _loads_from_global(stmt):
            reads[stmt.src.buffer.name] = reads.get(stmt.src.buffer.name, 0) + 1
    registers = [
        s.buffer.size
        for s in k.walk(kernel.body)
        if isinstance(s, k.Alloc) and s.buffer.space is k.Space.LOCAL
    ]
    # A vector's 4 columns, of the 2 rows at a time that one is loaded for.
    assert max(size.value for size in registers if isinstance(size, Const)) == 8
    # The steps of each sweep, and the last one, of which a part is rows.
    assert set(reads.values()) == {1, 4}
    [out] = fd.execute(inputs, schedules={1: params})
    grad, normal = inputs[0].double(), inputs[1].double() - inputs[1].double().mean(0)
    assert_close(out, grad - grad.sum(0) - normal * (grad * normal).sum(0), 67 * 67)


def _loads_from_global(stmt: k.Stmt) -> bool:
    if not isinstance(stmt, k.Copy) or not isinstance(stmt.src, k.Ref) or stmt.pred is FALSE:
        return False
    return stmt.src.buffer.space is k.Space.GLOBAL
