"""Vectors that lie near one another, each from any element on: their aligned vectors are loaded once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from fusewright import FusionDefinition, PointwiseParams
from fusewright.cuda.nvrtc import NvrtcOptions, compile_cubin
from fusewright.host.executor import FusionExecutor
from tests.integration.tolerance import assert_close

BF16, F32, I8 = torch.bfloat16, torch.float32, torch.int8


def near(given: torch.Tensor, steps: Sequence[int], rows: int = 1) -> FusionDefinition:
    """The neighbours at these distances along a row, and in so many rows, each times its number, in all."""
    height, width = given.shape[0] - rows + 1, given.shape[1] - max(steps)
    with FusionDefinition() as fd:
        x = fd.from_pytorch(given, static_sizes=True)
        parts = [
            fd.ops.slice(x, [row, step], [row + height, step + width])
            for row in range(rows)
            for step in steps
        ]
        total = parts[0]
        for number, part in enumerate(parts[1:], 2):
            total = total + part * number
        fd.add_output(fd.ops.cast(total, x.dtype))
    return fd


def expected(given: torch.Tensor, steps: Sequence[int], rows: int = 1) -> torch.Tensor:
    height, width = given.shape[0] - rows + 1, given.shape[1] - max(steps)
    wide = given.double()
    parts = [wide[r : r + height, s : s + width] for r in range(rows) for s in steps]
    return sum(part * number for number, part in enumerate(parts, 1))  # type: ignore[return-value]


def some(rows: int, columns: int, dtype: torch.dtype, beyond: int = 0) -> torch.Tensor:
    """Small integers that begin so many elements beyond an aligned address."""
    made = torch.randint(-2, 3, (rows * columns + beyond,)).to(dtype)
    return made[beyond:].view(rows, columns)


def vectors(fd: FusionDefinition, given: torch.Tensor, width: int, unroll: int) -> PointwiseParams:
    params = fd.kernels_for([given])[0].params
    assert isinstance(params, PointwiseParams)
    return replace(
        params,
        vectorization_factor=width,
        unroll_factor_inner=unroll,
        unaligned_inputs=(0,),
        keeps_aligned=False,
        shift_rows=False,
        vectorized_dim=-1,
    )


def texts(fd: FusionDefinition, given: torch.Tensor, params: PointwiseParams) -> str:
    return fd.kernels_for([given], schedules={0: params})[0].cuda_text


@pytest.mark.parametrize("beyond", [0, 1, 3])
@pytest.mark.parametrize("unroll", [1, 2])
@pytest.mark.parametrize(
    ("dtype", "width", "steps"),
    [(BF16, 8, (0, 1, 2)), (BF16, 4, (1, 0, 4)), (F32, 4, (0, 3)), (I8, 16, (2, 1)), (BF16, 8, (0, 8, 1))],
    ids=str,
)
@pytest.mark.sampled(0.5)
def test_neighbours(dtype: torch.dtype, width: int, steps: Sequence[int], unroll: int, beyond: int) -> None:
    """The first and the last vectors have no aligned ones around them in the tensor's memory."""
    given = some(5, 4 * width + max(steps), dtype, beyond)
    fd = near(given, steps)
    params = vectors(fd, given, width, unroll)
    (made,) = fd.execute([given], schedules={0: params})
    assert_close(made, expected(given, steps))
    text = texts(fd, given, params)
    assert len(re.findall(r"fw::load", text)) == 3 * unroll
    assert len(re.findall(r"fw::window", text)) == 2


def test_rows_are_apart() -> None:
    given = some(7, 34, BF16)
    fd = near(given, (0, 1, 2), rows=3)
    params = vectors(fd, given, 8, 1)
    (made,) = fd.execute([given], schedules={0: params})
    assert_close(made, expected(given, (0, 1, 2), 3))
    assert len(re.findall(r"fw::load", texts(fd, given, params))) == 3 * 3


@pytest.mark.parametrize("columns", [34, 37])
def test_vectors_across_the_ends_of_rows(columns: int) -> None:
    """These are loaded by element, all that would be loaded together."""
    given = some(9, columns, BF16)
    fd = near(given, (0, 1, 2))
    params = fd.kernels_for([given])[0].params
    assert isinstance(params, PointwiseParams)
    params = replace(
        params, vectorization_factor=8, unaligned_inputs=(0,), shift_rows=True, vectorized_dim=-1
    )
    (made,) = fd.execute([given], schedules={0: params})
    assert_close(made, expected(given, (0, 1, 2)))


def test_what_lies_further_apart_is_loaded_by_itself() -> None:
    given = some(5, 64 + 9, BF16)
    fd = near(given, (0, 9))
    params = vectors(fd, given, 8, 1)
    (made,) = fd.execute([given], schedules={0: params})
    assert_close(made, expected(given, (0, 9)))
    assert len(re.findall(r"fw::load", texts(fd, given, params))) == 4


def test_memory_that_the_kernel_changes_is_not_shared() -> None:
    given, other = some(4, 34, BF16), some(4, 32, BF16)
    with FusionDefinition() as fd:
        x, y = (fd.from_pytorch(each, static_sizes=True) for each in (given, other))
        left, right = fd.ops.slice(x, [0, 1], [4, 33]), fd.ops.slice(x, [0, 0], [4, 32])
        fd.add_output(fd.ops.cast(left * 2 + right + y, y.dtype), alias_input=y)
    wanted = given[:, 1:33].double() * 2 + given[:, :32].double() + other.double()
    fd.execute([given, other])
    assert_close(other, wanted)


def test_shared_windows_stay_in_registers() -> None:
    given = torch.empty(8192, 4098, dtype=BF16)
    fd = near(given, (0, 1, 2))
    (kernel,) = FusionExecutor(fd._finished().fusion).compile([given]).kernels
    assert "near" in kernel.cuda_text
    (resources,) = compile_cubin(kernel.full_text, NvrtcOptions("sm_90a")).resources.values()
    assert resources.spill_loads == resources.spill_stores == resources.stack_frame == 0
