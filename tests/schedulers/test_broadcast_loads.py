"""Inputs that fewer dimensions than the result's index, which come from the caches."""

from __future__ import annotations

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.schedulers.params.launch import UNSET


def _standardized(x: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor) -> FusionDefinition:
    """Of rows of bfloat16, by statistics of type float of each column."""
    with FusionDefinition() as fd:
        shape = [1, 1, x.shape[-1]]
        given, *columns = (fd.from_pytorch(tensor) for tensor in (x, mean, scale))
        middle, factor = (fd.ops.broadcast_in_dim(each, shape, [2]) for each in columns)
        result = fd.ops.mul(fd.ops.sub(fd.ops.cast(given, dtype=DataType.Float), middle), factor)
        fd.add_output(fd.ops.cast(result, dtype=DataType.BFloat16))
    return fd


@pytest.mark.parametrize("start, width", [(0, 8), (2, 2)], ids=["aligned", "8 bytes"])
def test_a_vector_of_wider_elements_is_several_accesses(start: int, width: int, target: torch.device) -> None:
    x = torch.randn(5, 7, 64, device=target).to(torch.bfloat16)
    mean, scale = (torch.randn(64 + start, device=target)[start:] for _ in range(2))
    fd = _standardized(x, mean, scale)
    [kernel] = fd.kernels_for([x, mean, scale])
    assert (kernel.params.vectorization_factor, kernel.params.vectorized_dim) == (width, -1)
    [out] = fd.execute([x, mean, scale])
    assert torch.equal(out, ((x.float() - mean) * scale).to(torch.bfloat16))


def test_an_index_for_each_row_asks_for_no_tiles(target: torch.device) -> None:
    """Its elements are neighbours down the rows, but all columns of a row share one."""
    x, at = torch.randn(40, 256, device=target).to(torch.bfloat16), torch.arange(32, device=target).flip(0)
    with FusionDefinition() as fd:
        table, index = fd.from_pytorch(x), fd.from_pytorch(at)
        fd.add_output(fd.ops.mul(fd.ops.index_select(table, index, dim=0), 2.0))
    [kernel] = fd.kernels_for([x, at])
    assert kernel.params.lparams.bdimy == UNSET
    [out] = fd.execute([x, at])
    assert torch.equal(out, (x[at] * 2).to(out.dtype))
