"""Scans by given params: steps that are loaded while the one before is scanned."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.schedulers.params import LaunchParams, ScanParams
from tests.integration.tolerance import assert_close

_ROWS = ScanParams(
    fastest_dim=True,
    vectorization_factor=4,
    unroll_factor=2,
    prefetches_steps=True,
    lparams=LaunchParams(bdimx=8, bdimy=2),
)
_COLUMNS = ScanParams(
    fastest_dim=False,
    vectorization_factor=4,
    unroll_factor=3,
    prefetches_steps=True,
    lparams=LaunchParams(bdimx=8, bdimy=4),
)
# Blocks that share rows, and columns.
_SHARED_ROWS = replace(_ROWS, lparams=LaunchParams(gdimy=3, bdimx=8, bdimy=2))
_SHARED_COLUMNS = replace(_COLUMNS, lparams=LaunchParams(gdimy=3, bdimx=8, bdimy=4))


@pytest.mark.parametrize("dtype", [DataType.Float, DataType.BFloat16])
@pytest.mark.parametrize(
    "params, dim, shape",
    [
        (_ROWS, 1, (5, 200)),
        (_ROWS, 1, (3, 40)),
        (_COLUMNS, 0, (67, 40)),
        (_COLUMNS, 0, (9, 40)),
        (_SHARED_ROWS, 1, (5, 1004)),
        (_SHARED_ROWS, 1, (3, 40)),
        (_SHARED_COLUMNS, 0, (167, 40)),
        (_SHARED_COLUMNS, 0, (9, 40)),
    ],
)
def test_steps_that_are_loaded_ahead(
    params: ScanParams, dim: int, shape: tuple[int, int], dtype: DataType
) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True, dtype=dtype)
        weight = fd.define_tensor([-1, -1], contiguity=True, dtype=dtype)
        fd.add_output(
            fd.ops.cumsum(fd.ops.cast(x, DataType.Float) * fd.ops.cast(weight, DataType.Float), dim)
        )
    inputs = [torch.randn(shape).to(dtype.torch) for _ in range(2)]
    [out] = fd.execute(inputs, schedules={0: params})
    x, weight = (each.double() for each in inputs)
    assert_close(out, (x * weight).cumsum(dim), shape[dim])
    [kernel] = fd._last_kernels()
    assert "_next[" in kernel.source.text


@pytest.mark.parametrize(("dtype", "threads", "vectors"), [(torch.bool, 256, 4), (torch.float32, 256, 2)])
def test_threads_have_more_vectors_of_two_elements(dtype: torch.dtype, threads: int, vectors: int) -> None:
    """Sums of bools are Int, of which a vector has two."""
    given = torch.ones(8192, 2048, dtype=dtype)
    with FusionDefinition() as fd:
        x = fd.from_pytorch(given, static_sizes=True)
        wide = DataType.Int if dtype is torch.bool else DataType.Float
        fd.add_output(fd.ops.cumsum(fd.ops.cast(x, wide), 1))
    params = fd.kernels_for([given])[0].params
    assert isinstance(params, ScanParams)
    assert (params.lparams.bdimx, params.unroll_factor) == (threads, vectors)
