"""Rows that are computed from what other rows read, too: a block holds its part of each such input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from fusewright.schedulers import LaunchParams, ReductionParams
from tests.schedulers import proposals as p

HELD = ReductionParams(
    fastest_dim=True,
    persistent_kernel=True,
    project_persistent_buffers=True,
    unroll_factor_inner_reduction=4,
    vectorize_inner_reduction=True,
    batches_per_block_inner_reduction=2,
    pad_inner_reduction_to_warp=True,
    lparams=LaunchParams(bdimy=1),
)
SHARED = replace(HELD, persistent_in_shared_memory=True)
COLUMNS = ReductionParams(
    persistent_kernel=True,
    project_persistent_buffers=True,
    batches_per_block_inner_reduction=8,
    unroll_factor_iter_dom=4,
    vectorize_iter_dom=True,
    lparams=LaunchParams(bdimx=2),
)
SHARED_COLUMNS = replace(COLUMNS, persistent_in_shared_memory=True)


def luminance_and_difference(x: torch.Tensor) -> torch.Tensor:
    a, b = x[:, 0].float(), x[:, 1].float()
    both = torch.stack([a + b, a - b], 1)
    return both - both.mean((2, 3), keepdim=True)


def columns(x: torch.Tensor) -> torch.Tensor:
    a, b = x[:, 0].float(), x[:, 1].float()
    both = torch.stack([a + b, a - b], 1)
    return both - both.amax(2, keepdim=True)


def beside_the_row_before(x: torch.Tensor) -> torch.Tensor:
    """Every element is read with its neighbour, in one space: two loads of one input."""
    y = x.float() + torch.nn.functional.pad(x.float(), (1, 0))[..., :-1]
    return y - y.mean((2, 3), keepdim=True)


@pytest.mark.parametrize(
    "params",
    [
        HELD,
        replace(HELD, lparams=LaunchParams(bdimy=2)),
        replace(HELD, unroll_factor_iter_dom=2),
        replace(HELD, blocks_per_cluster=2),
        replace(HELD, project_persistent_buffers=False),
        SHARED,
        replace(SHARED, lparams=LaunchParams(bdimy=4)),
        replace(SHARED, unroll_factor_iter_dom=2),
        replace(SHARED, blocks_per_cluster=2),
        replace(HELD, batches_per_block_inner_reduction=0, lparams=LaunchParams(bdimx=32)),
    ],
    ids=[
        "registers",
        "two rows a block",
        "two rows a thread",
        "clusters",
        "values",
        "shared memory",
        "shared memory, four rows",
        "shared memory, two rows a thread",
        "shared memory of clusters",
        "swept",
    ],
)
@pytest.mark.parametrize("function", [luminance_and_difference, beside_the_row_before])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rows(
    function: Callable[[torch.Tensor], torch.Tensor],
    params: ReductionParams,
    dtype: torch.dtype,
    target: torch.device,
) -> None:
    x = torch.randn(3, 2, 7, 24, generator=torch.Generator().manual_seed(1)).to(dtype).to(target)
    fd = p.definition(function, torch.empty(x.shape, dtype=dtype, device="meta"))
    [result] = fd.execute([x], schedules={0: params})
    torch.testing.assert_close(result.cpu(), function(x.cpu()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "params",
    [COLUMNS, SHARED_COLUMNS, replace(SHARED_COLUMNS, blocks_per_cluster=2)],
    ids=["", "shared", "two"],
)
def test_columns(params: ReductionParams, target: torch.device) -> None:
    x = torch.randn(3, 2, 21, 12, generator=torch.Generator().manual_seed(1)).to(target)
    fd = p.definition(columns, torch.empty(x.shape, device="meta"))
    [result] = fd.execute([x], schedules={0: params})
    torch.testing.assert_close(result.cpu(), columns(x.cpu()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [128, 256, 512])
def test_registers_hold_no_more_than_they_have_room_for(size: int) -> None:
    """What each of several sums reads counts for all of them: 64 vectors of two inputs would spill."""
    x = torch.empty(32 * (512 // size) ** 2, 2, size, size, device="meta")
    [kernel] = p.definition(luminance_and_difference, x).kernels_for([x], device="cuda")
    params = kernel.params
    assert isinstance(params, ReductionParams) and params.holds_batches
    loads = 2 if params.project_persistent_buffers else 1
    assert params.persistent_in_shared_memory or params.elements_held * loads <= 64


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_three_channels_are_one_legal_kernel(dtype: torch.dtype) -> None:
    def transferred(x: torch.Tensor) -> torch.Tensor:
        r, g, b = (x[..., i].float() for i in range(3))
        mixed = torch.stack([r + g, g - b, r + g + b], -1)
        return mixed - mixed.mean((1, 2), keepdim=True)

    x = torch.empty(32, 512, 512, 3, dtype=dtype, device="meta")
    for kernel in p.definition(transferred, x).kernels_for([x], device="cuda"):
        kernel.params.validate(p.H200)
