"""Weights of shifted rows, whose vectors start at any element: chosen once for all rows of a block."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.ir import TensorView
from fusewright.kernel import ir as k
from fusewright.schedulers.params import LaunchParams

ROWS, LENGTH, BLOCKS, WIDTH = 20, 523, 8, 8


def _scaled(fd, x, weight):
    """Rows less their mean, times a weight."""
    x = fd.ops.cast(x, dtype=DataType.Float)
    centered = x - fd.ops.mean(x, dims=[1], keepdim=True)
    return fd.ops.cast(centered * fd.ops.cast(weight, dtype=DataType.Float), dtype=DataType.BFloat16)


def _windows_in_loops(body: tuple[k.Stmt, ...], inside: bool = False) -> list[bool]:
    """Of each choice of a vector, whether it is in a loop that is not unrolled."""
    found: list[bool] = []
    for stmt in body:
        if isinstance(stmt, k.Window):
            found.append(inside)
        found += _windows_in_loops(k.children(stmt), inside or (isinstance(stmt, k.For) and not stmt.unroll))
    return found


# Rows that are copied ahead, beside weights that are kept in shared memory.
COPIED_AHEAD = {
    "circular_stages": 2,
    "weights_in_shared_memory": True,
    "persistent_in_shared_memory": True,
    "project_persistent_buffers": True,
}


@pytest.mark.parametrize("changes", [{}, COPIED_AHEAD], ids=["in registers", "in shared memory"])
@pytest.mark.parametrize(("blocks", "in_loop"), [(BLOCKS, False), (BLOCKS - 1, True)])
def test_rows_that_are_shifted_alike_share_the_weights_that_are_chosen(blocks, in_loop, changes):
    x, weight = torch.randn(ROWS, LENGTH).bfloat16(), torch.randn(LENGTH + 3).bfloat16()[3:]
    with FusionDefinition() as fd:
        fd.add_output(_scaled(fd, fd.from_pytorch(x), fd.from_pytorch(weight)))
    fd.execute([x, weight])
    [launch] = fd._last_launches()
    inputs = launch.segment.fusion.inputs
    [position] = [i for i, value in enumerate(inputs) if isinstance(value, TensorView) and value.ndim == 1]
    params = replace(
        launch.op.kernel.params,
        shift_rows=True,
        unaligned_inputs=(position,),
        unroll_factor_inner_reduction=WIDTH,
        vectorize_inner_reduction=True,
        batches_per_block_inner_reduction=1,
        assumed_reduction_sizes=(),
        persistent_blocks=blocks,
        lparams=LaunchParams(bdimx=96, bdimy=1),
        **changes,
    )
    [found] = fd.execute([x, weight], schedules={0: params})
    wide = x.float()
    expected = (wide - wide.mean(1, keepdim=True)) * weight.float()
    torch.testing.assert_close(found, expected.bfloat16(), rtol=1e-2, atol=1e-2)
    assert set(_windows_in_loops(fd._last_kernels()[0].kernel.body)) == {in_loop}
