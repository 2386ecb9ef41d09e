"""Normalizations down columns in short rows of memory, a few side by side: one kernel, whole stretches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch

from fusewright import ParamsError
from fusewright.schedule import Schedule, replay
from fusewright.schedulers import LaunchParams, OuterPersistentScheduler, ReductionParams, apply
from tests.lower.running import run
from tests.schedulers import proposals as p
from tests.schedulers.test_outer_persistent import inputs_of, masked_columns, params_of
from tests.segment.test_few_elements import definition

Tensor = torch.Tensor


def shares(x: Tensor) -> Tensor:
    return torch.softmax(x.float(), 1).to(x.dtype)


def normed(x: Tensor) -> Tensor:
    variance, mean = torch.var_mean(x.float(), 1, correction=0, keepdim=True)
    return ((x.float() - mean) * torch.rsqrt(variance + 1e-5)).to(x.dtype)


SHAPES = [
    (4096, 64, 2),
    (4096, 64, 4),
    (1024, 1000, 4),
    (512, 4096, 2),
    (2048, 64, 12),
    (512, 1024, 12),
    (64, 4096, 12),
    (1024, 300, 33),
    (1024, 77, 3),
]


@pytest.mark.parametrize("function", [shares, normed], ids=lambda function: function.__name__)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.sampled(0.5)
def test_one_kernel_reads_each_element_once(
    function: Callable[[Tensor], Tensor], shape: Sequence[int]
) -> None:
    x = torch.empty(shape, dtype=torch.bfloat16, device="meta")
    [kernel] = definition(function, x).kernels_for([x], device="cuda")
    assert kernel.scheduler == "outer_persistent"
    assert kernel.bytes_read + kernel.bytes_written == 4 * x.numel()
    launch, width = kernel.params.lparams, kernel.params.unroll_factor_iter_dom
    assert launch.bdimx * width == shape[-1], "a tile is as wide as a row"
    # Neighbouring threads, and those of the next rows, fill sectors at least.
    assert launch.bdimx * launch.bdimy * width * 2 >= 32


@pytest.mark.parametrize("length", [3, 8, 16, 24])
@pytest.mark.parametrize("columns", [2, 4, 8])
@pytest.mark.sampled(0.5)
def test_columns_of_few_rows(length: int, columns: int) -> None:
    """Threads hold whole ones as long as these are in a few lines, else go through stretches of memory."""
    x = torch.empty((1 << 26) // (length * columns), length, columns, dtype=torch.bfloat16, device="meta")
    [kernel] = definition(shares, x).kernels_for([x], device="cuda")
    tiles = max(1, kernel.params.lparams.bdimz)
    assert (tiles > 1) == (length * columns * 2 > 64)
    in_flight = kernel.params.batches_per_block_inner_reduction * kernel.params.unroll_factor_iter_dom * 2
    assert in_flight >= min(16, length * columns * 2)


@pytest.mark.parametrize("function", [shares, normed], ids=lambda function: function.__name__)
@pytest.mark.parametrize(
    "shape", [(37, 64, 2), (5, 50, 4), (3, 1000, 4), (7, 200, 6), (3, 99, 5), (40, 21, 4)], ids=str
)
@pytest.mark.sampled(0.5)
def test_values(function: Callable[[Tensor], Tensor], shape: Sequence[int], target: torch.device) -> None:
    x = torch.randn(shape, device=target)
    made = definition(function, x)
    assert [kernel.scheduler for kernel in made.kernels_for([x])] == ["outer_persistent"]
    torch.testing.assert_close(made.execute([x])[0], function(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("down, tiles", [(8, 4), (24, 2), (-1, 3)])
def test_several_tiles_of_a_block(down: int, tiles: int) -> None:
    """The last block has fewer."""
    shape = (13, 3 * abs(down) - 1, 4)
    params = params_of(2, down, shared=down == 24)
    params = replace(params, lparams=LaunchParams(bdimx=2, bdimy=down, bdimz=tiles))
    fusion, inputs = masked_columns((1,), 3), inputs_of(*shape)
    schedule = Schedule(fusion)
    apply(OuterPersistentScheduler(), schedule, params, p.H200)
    (result,) = run(schedule, inputs)
    x, y, mask = (each.double() for each in inputs)
    kept = x * mask
    expected = kept - y * (kept * y).sum(1, keepdim=True) - kept.sum(1, keepdim=True)
    torch.testing.assert_close(result.double(), expected, rtol=1e-4, atol=1e-4)
    assert replay(fusion, schedule.trace()).to_python() == schedule.to_python()


def test_tiles_are_of_blocks_that_hold_columns() -> None:
    """And of those whose threads go along memory; none of these sweeps columns, or has lanes down them."""
    lanes = ReductionParams(lanes_down_columns=True, lparams=LaunchParams(bdimx=32, bdimy=8, bdimz=4))
    sweeps = ReductionParams(
        persistent_kernel=True,
        project_persistent_buffers=True,
        batches_per_block_inner_reduction=0,
        lparams=LaunchParams(bdimx=32, bdimy=8, bdimz=4),
    )
    for params in (lanes, sweeps):
        with pytest.raises(
            ParamsError, match=r"`lparams\.bdimz`: expected -1, as nothing is bound to it, got 4"
        ):
            params.validate(p.H200)


@pytest.mark.parametrize("columns", [1, 2, 4, 8])
@pytest.mark.sampled(0.5)
def test_threads_down_a_column_reduce_by_lanes(columns: int) -> None:
    for length in (65, 129, 257, 600):
        x = torch.empty(4096, length, columns, device="meta")
        [kernel] = definition(shares, x).kernels_for([x], device="cuda")
        launch = kernel.params.lparams
        threads = launch.bdimx * launch.bdimy
        is_part = threads < 32 and launch.bdimy & (launch.bdimy - 1) == 0
        assert kernel.params.fastest_dim or threads % 32 == 0 or is_part, (length, launch)
