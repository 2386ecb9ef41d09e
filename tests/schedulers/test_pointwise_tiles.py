"""Blocks of the pointwise scheduler that are tiles of rows and columns."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fusewright import FusionDefinition
from fusewright.core.errors import ParamsError
from tests.segment.test_few_elements import definition


def _swapped(x: torch.Tensor) -> FusionDefinition:
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.permute(fd.ops.mul(fd.from_pytorch(x), 2.0), [1, 0, 2]))
    return fd


@pytest.mark.parametrize("unroll", [1, 2])
@pytest.mark.parametrize("threads", [(4, 8), (2, 32), (32, 1)])
def test_a_tile_of_threads(threads: tuple[int, int], unroll: int, target: torch.device) -> None:
    x = torch.randn(19, 37, 8, device=target)
    fd = _swapped(x)
    [kernel] = fd.kernels_for([x])
    params = replace(
        kernel.params,
        break_point=1,
        assumed_sizes=(),
        vectorization_factor=4,
        unroll_factor_inner=1,
        unroll_factor_outer=unroll,
        lparams=replace(kernel.params.lparams, bdimx=threads[0], bdimy=threads[1]),
    )
    [out] = fd.execute([x], schedules={0: params})
    assert torch.equal(out, (x * 2).permute(1, 0, 2))


def test_threads_along_rows_need_rows(target: torch.device) -> None:
    x = torch.randn(19, 37, 8, device=target)
    fd = _swapped(x)
    [kernel] = fd.kernels_for([x])
    flat = replace(kernel.params, break_point=0, assumed_sizes=(), unroll_factor_outer=1)
    with pytest.raises(ParamsError, match="bdimy"):
        fd.execute([x], schedules={0: replace(flat, lparams=replace(flat.lparams, bdimy=4))})


@pytest.mark.parametrize(
    ("run", "gap", "width"), [(2, 0, 2), (3, 0, 1), (7, 0, 1), (4, 1, 1), (6, 0, 2), (8, 0, 4)]
)
def test_short_runs_are_tiled_in_the_vectors_that_they_have(run: int, gap: int, width: int) -> None:
    """By element where there are none, instead of vectors through several runs."""
    x = torch.empty(4096, 256, run + gap, device="meta")[..., :run]
    fd = definition(lambda x: (x * 2).transpose(0, 1).contiguous(), x)
    [kernel] = fd.kernels_for([x], device="cuda")
    params = kernel.params
    assert (params.vectorization_factor, params.vectorized_dim, params.unaligned_inputs) == (width, -1, ())
    assert params.break_point == 1 and params.lparams.bdimy == 16
    estimate = kernel.proposal.seconds
    assert estimate < 1.6 * kernel.proposal.least_seconds


@pytest.mark.parametrize(("rows", "in_flight"), [(70, 1), (4096, 4)])
def test_threads_have_several_rows_only_where_all_have_some(rows: int, in_flight: int) -> None:
    x = torch.empty(rows, 256, 7, device="meta")
    fd = definition(lambda x: (x * 2).transpose(0, 1).contiguous(), x)
    [kernel] = fd.kernels_for([x], device="cuda")
    assert kernel.params.lparams.bdimy == 16 and kernel.params.unroll_factor_outer == in_flight


@pytest.mark.parametrize(("run", "gap"), [(3, 0), (7, 0), (4, 1)])
def test_what_tiles_by_element_compute(run: int, gap: int, target: torch.device) -> None:
    x = torch.randn(70, 45, run + gap, device=target)[..., :run]
    fd = _swapped(x)
    assert fd.kernels_for([x])[0].params.lparams.bdimy == 16
    assert torch.equal(fd.execute([x])[0], (x * 2).permute(1, 0, 2))
