"""Rows of any length: vectors begin at aligned addresses, shifted by where each row begins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.schedulers import LaunchParams

# A few elements beside the shortest row that is shifted; two of weights; rows that shared memory holds.
ROWS = [(5, 517), (3, 1031), (2, 40003)]


def _norm(fd: FusionDefinition, x: Any, w: Any) -> Any:
    x = fd.ops.cast(x, DataType.Float)
    variance, mean = fd.ops.var_mean(x, dims=[1], correction=0, keepdim=True)
    return fd.ops.cast((x - mean) * fd.ops.rsqrt(variance + 1e-5) * w, DataType.BFloat16)


@pytest.mark.parametrize("shape", ROWS)
def test_rows_of_any_length_are_loaded_and_stored_in_vectors(shape: tuple[int, int]) -> None:
    x, w = torch.randn(*shape).bfloat16(), torch.randn(shape[0], 1)
    with FusionDefinition() as fd:
        fd.add_output(_norm(fd, fd.from_pytorch(x), fd.from_pytorch(w)))
    [y] = fd.execute([x, w])
    expected = torch.nn.functional.layer_norm(x.float(), shape[1:]) * w
    torch.testing.assert_close(y, expected.bfloat16(), rtol=2e-2, atol=2e-2)
    [kernel] = fd.kernels_for([x, w])
    assert kernel.params.shift_rows and kernel.params.unroll_factor_inner_reduction == 8


@pytest.mark.parametrize(("by_warp", "sizes", "cluster"), [(True, (1003,), 1), (False, (), 2)])
def test_rows_of_any_length_are_copied_ahead(by_warp: bool, sizes: tuple[int, ...], cluster: int) -> None:
    """Each row from its aligned start on, with elements of its neighbours; the last ends with the tensor."""
    x, w = torch.randn(5, 1003).bfloat16(), torch.randn(5, 1)
    with FusionDefinition() as fd:
        fd.add_output(_norm(fd, fd.from_pytorch(x), fd.from_pytorch(w)))
    params = replace(
        fd.kernels_for([x, w])[0].params,
        project_persistent_buffers=True,
        persistent_in_shared_memory=True,
        batches_per_block_inner_reduction=1,
        lparams=LaunchParams(bdimx=32),
        assumed_reduction_sizes=sizes,
        circular_stages=5,
        warp_specialized=by_warp,
        persistent_blocks=3,
        blocks_per_cluster=cluster,
    )
    [kernel] = fd.kernels_for([x, w], schedules={0: params})
    assert "fw::load<8>" in kernel.cuda_text and "fw::load_or<8>" in kernel.cuda_text  # whole chunks, others
    [y] = fd.execute([x, w], schedules={0: params})
    expected = torch.nn.functional.layer_norm(x.float(), (1003,)) * w
    torch.testing.assert_close(y, expected.bfloat16(), rtol=2e-2, atol=2e-2)
