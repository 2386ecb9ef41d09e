"""Rows and columns that blocks go over twice, held in part, and rows that are loaded ahead of their turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import pytest
import torch

from fusewright import FusionDefinition
from fusewright.schedulers.inner_persistent import InnerPersistentScheduler
from fusewright.schedulers.outer_persistent import OuterPersistentScheduler
from fusewright.schedulers.params import LaunchParams, ReductionParams
from tests.integration.tolerance import assert_close
from tests.schedulers import proposals as p


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
_AHEAD = replace(
    _ROWS,
    batches_per_block_inner_reduction=2,
    unroll_factor_top_of_vectorization=1,
    held_steps=0,
    sweeps_backward=False,
    persistent_in_shared_memory=True,
    persistent_blocks=2,
    prefetches_rows=True,
    assumed_reduction_sizes=(3, 64),
    lparams=LaunchParams(gdimy=2, bdimx=12),
)
_CASES: dict[str, tuple[Callable[[FusionDefinition], None], Callable[..., Any], tuple[int, ...], Any]] = {
    "tensor": (_scaled, lambda x: x / x.abs().max(), (37, 28), _ROWS),
    "columns": (_centered, lambda x: x - x.mean(0, keepdim=True), (67, 40), _COLUMNS),
    "rows_in_turns": (
        _normalized,
        _normalized_by_torch,
        (3, 5, 64),
        replace(_ROWS, persistent_blocks=2, assumed_reduction_sizes=(3, 64)),
    ),
    "rows_ahead": (_normalized, _normalized_by_torch, (3, 5, 64), _AHEAD),
    "rows_ahead_in_clusters": (
        _normalized,
        _normalized_by_torch,
        (3, 5, 64),
        replace(_AHEAD, blocks_per_cluster=2, lparams=LaunchParams(bdimx=12)),
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


@pytest.mark.parametrize("case", _CASES)
def test_kernels_of_params_that_read_again_or_ahead(case: str) -> None:
    define, reference, shape, params = _CASES[case]
    with FusionDefinition() as fd:
        define(fd)
    inputs = [torch.randn(shape)]
    fd._setup_schedule(inputs, overwrite_existing_schedule=True)
    fd.sched.schedule(params)
    fd._finalize_schedule(inputs)
    expected = reference(inputs[0].double())
    outputs = fd.execute(inputs)
    for out, each in zip(outputs, expected if isinstance(expected, tuple) else (expected,), strict=True):
        assert_close(out, each, inputs[0].numel())
