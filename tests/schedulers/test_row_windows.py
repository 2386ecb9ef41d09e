"""Rows of a thread that share the loads of their neighbours, and blocks that start while memory is busy."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from fusewright import FusionDefinition
from fusewright.core.dtype import DataType
from fusewright.schedulers.params import PointwiseParams
from fusewright.schedulers.pointwise.blocks import with_fewer_blocks


def stencil(
    shape: Sequence[int], dim: int, taps: int, dtype: torch.dtype
) -> tuple[FusionDefinition, torch.Tensor]:
    """The sum of so many neighbours along a dimension."""
    given = torch.empty(*shape, dtype=dtype)
    with FusionDefinition() as fd:
        x = fd.from_pytorch(given, static_sizes=True)
        total = None
        for i in range(taps):
            start = [i if n == dim else 0 for n in range(len(shape))]
            stop = [i + size - taps + 1 if n == dim else size for n, size in enumerate(shape)]
            part = fd.ops.cast(fd.ops.slice(x, start, stop), dtype=DataType.Float)
            total = part if total is None else total + part
        fd.add_output(total)
    return fd, given


def pointwise(fd: FusionDefinition, given: torch.Tensor) -> PointwiseParams:
    [kernel] = fd.kernels_for([given])
    assert isinstance(kernel.params, PointwiseParams)
    return kernel.params


@pytest.mark.parametrize(
    ("shape", "dim", "taps", "at", "rows"),
    [
        ((4100, 4096), 0, 5, 1, 4),
        ((64, 68, 4096), 1, 3, 2, 4),
        ((4100, 4096), 0, 2, 0, 1),
        ((4096, 4100), 1, 5, 0, 1),
        ((400, 40960), 0, 11, 1, 2),
        ((2052, 40), 0, 5, 0, 1),
    ],
    ids=["rows", "a middle dimension", "two neighbours", "columns", "many neighbours", "rows of few threads"],
)
def test_a_thread_has_rows_that_load_the_same(
    shape: Sequence[int], dim: int, taps: int, at: int, rows: int
) -> None:
    params = pointwise(*stencil(shape, dim, taps, torch.float32))
    assert (params.break_point, params.unroll_factor_outer) == (at, rows)
    assert not params.unaligned_inputs or not at


def test_shared_rows_are_loaded_once(target: torch.device) -> None:
    fd, given = stencil((1028, 8192), 0, 5, torch.bfloat16)
    given = torch.randn(given.shape, device=target).to(given.dtype)
    [made] = fd.execute([given])
    torch.testing.assert_close(made, sum(given[i : i + 1024].float() for i in range(5)))
    assert pointwise(fd, given).unroll_factor_outer == 4


@pytest.mark.parametrize(
    ("blocks", "microseconds", "accesses"),
    [(129_287, 61.7, 2), (131_072, 93.7, 1), (1_000_000, 10, 4), (4_000, 1, 1)],
    ids=["three stencils", "casts of floats", "many", "one wave"],
)
def test_blocks_are_no_more_than_start_while_memory_is_busy(
    blocks: int, microseconds: float, accesses: int
) -> None:
    assert with_fewer_blocks(1, blocks, 2112, microseconds * 1e-6) == accesses
    assert with_fewer_blocks(4, blocks, 2112, microseconds * 1e-6) == 4


def test_stencils_by_element_have_fewer_blocks() -> None:
    """Each thread reads six elements, which are enough bytes in flight."""
    given = [torch.empty(511, 255, 127) for _ in range(3)]
    with FusionDefinition() as fd:
        total = None
        for dim, tensor in enumerate(given):
            x = fd.from_pytorch(tensor, static_sizes=True)
            for steps in (1, -1):
                start, stop = [0, 0, 0], list(tensor.shape)
                start[dim], stop[dim] = max(0, steps), tensor.shape[dim] + min(0, steps)
                pads = [0, 0] * (2 - dim) + [max(0, -steps), max(0, steps)]
                part = fd.ops.pad(fd.ops.slice(x, start, stop), pads)
                total = part if total is None else total + part
        fd.add_output(total)
    [kernel] = fd.kernels_for(given)
    assert (kernel.params.vectorization_factor, kernel.params.unroll_factor_inner) == (1, 2)
