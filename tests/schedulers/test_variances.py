"""Variances alone: by two sums where a row may be held, by Welford's steps elsewhere."""

from __future__ import annotations

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.ir.fusion import Fusion
from fusewright.ops.build_inputs import define_tensor
from fusewright.ops.build_reduction import var
from fusewright.schedulers.reduction.row_heuristic import RowAccesses, inner_params
from fusewright.schedulers.reduction.space import ReductionSpace, reduction_space
from fusewright.schedulers.reduction.variances import SPEED_OF_PARTS, SPEED_OF_WHOLE_ROWS, speed_of_steps
from tests.schedulers import proposals as p


def _variance(dims: list[int], dtype: DataType = DataType.Half) -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True, dtype=dtype)
        fd.add_output(fd.ops.var(fd.ops.cast(x, DataType.Float), dims=dims, correction=1))
    return fd


@pytest.mark.parametrize(
    ("shape", "dims", "scheduler"),
    [
        ((65536, 1025), [1], "inner_persistent"),
        ((16384, 4096), [1], "inner_persistent"),
        ((2048, 40000), [1], "reduction"),  # too long to be held for this alone
        ((40000, 2048), [0], "reduction"),
        ((1, 8192), [1], "reduction"),  # one block would read it
    ],
    ids=str,
)
def test_who_finds_a_variance(shape: tuple[int, int], dims: list[int], scheduler: str) -> None:
    x = torch.empty(shape, dtype=torch.half, device="meta")
    kernels = _variance(dims).kernels_for([x], device="cuda")
    assert [kernel.scheduler for kernel in kernels] == [scheduler]


@pytest.mark.parametrize("length", [33, 512, 1025])
def test_variances_of_held_rows(target: torch.device, length: int) -> None:
    x = torch.randn(700, length, device=target).half() + 4
    [found] = _variance([1]).execute([x])
    torch.testing.assert_close(found.double(), x.double().var(1), rtol=1e-5, atol=1e-6)


def test_steps_beyond_the_end_of_a_row_cost_more() -> None:
    def speed(fusion: Fusion, length: int) -> float:
        space = reduction_space(fusion)
        assert isinstance(space, ReductionSpace)
        params = inner_params(65536, length, 4, p.H200, RowAccesses(states=3))
        return speed_of_steps(space, params, p.facts_of(fusion, [(65536, length)]))

    fusion = p.built(lambda f: var(f, define_tensor(f, [-1, -1], True, DataType.Float), [1]))
    assert speed(fusion, 1024) == SPEED_OF_WHOLE_ROWS
    assert speed(fusion, 516) == SPEED_OF_PARTS
    # Of seven steps, the last alone is in part.
    assert SPEED_OF_PARTS < speed(fusion, 7 * 1024 + 4) < SPEED_OF_WHOLE_ROWS
    assert speed(fusion, 1 << 16) == 1  # not timed
