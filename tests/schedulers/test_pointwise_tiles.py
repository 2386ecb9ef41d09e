"""Blocks of the pointwise scheduler that are tiles of rows and columns."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fusewright import FusionDefinition
from fusewright.core.errors import ParamsError


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
