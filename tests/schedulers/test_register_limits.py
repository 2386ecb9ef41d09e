"""Limits on registers that schedulers set themselves: the CUDA compiler spares registers without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.schedulers.proposals import definition

Tensor = torch.Tensor
FLOAT, BFLOAT16 = torch.float32, torch.bfloat16
NO_LIMIT = 255


def kernel(function: Callable[..., object], *inputs: Tensor) -> Any:
    """The last kernel for these inputs on an H200."""
    return definition(function, *inputs).kernels_for(inputs, device="cuda")[-1]


def limit(function: Callable[..., object], dtype: torch.dtype, *shapes: tuple[int, ...]) -> int:
    made = kernel(function, *[torch.empty(shape, dtype=dtype, device="meta") for shape in shapes])
    registers: int = made.params.cparams.maxrregcount
    return registers


def test_columns_of_several_inputs_have_registers_for_single_elements() -> None:
    """Each is a narrow load, however many there are."""
    shapes = (128, 256, 515), (128, 256, 515)
    assert limit(lambda x, y: (x + y).sum(1), FLOAT, *shapes) == 128
    assert limit(lambda x, y: (x + y).sum(1), FLOAT, *[(128, 256, 512)] * 2) == NO_LIMIT


@pytest.mark.parametrize(
    ("function", "dtype", "registers"),
    [
        (lambda x: x.norm(), FLOAT, 64),
        (lambda x: x.norm(), BFLOAT16, NO_LIMIT),
        (lambda x: torch.lgamma(torch.erf(x) + 2).sum(), FLOAT, NO_LIMIT),  # computes for longer
        (lambda x: x.norm(dim=1), FLOAT, NO_LIMIT),  # of rows that blocks have alone
        (lambda x: (x + 1, x.norm()), FLOAT, NO_LIMIT),  # stores elements, too
        (lambda x: x.var(), FLOAT, NO_LIMIT),  # has three states
    ],
    ids=["floats", "bfloat16", "functions", "rows", "stores", "states"],
)
def test_blocks_that_share_rows_of_floats_have_registers_for_their_steps(
    function: Callable[..., object], dtype: torch.dtype, registers: int
) -> None:
    assert limit(function, dtype, (16384, 4096)) == registers


def test_threads_that_hold_many_floats_spill_none() -> None:
    """Of layer norm with a scale and a shift a batch, which took 40 registers and spilled."""

    def modulated(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:]) * (1 + scale[:, None]) + shift[:, None]

    shapes = (16, 1024, 4096), (16, 4096), (16, 4096)
    made = kernel(modulated, *[torch.empty(shape, device="meta") for shape in shapes])
    assert made.params.cparams.maxrregcount == 64 and not made.resources.spill_stores
    assert limit(modulated, BFLOAT16, *shapes) == NO_LIMIT
    assert limit(lambda x: F.softmax(x, 1), FLOAT, (16384, 1024)) == 64
    assert limit(lambda x: F.softmax(x, 1), FLOAT, (65536, 128)) == NO_LIMIT  # holds few
    assert limit(lambda x: torch.logsumexp(x, 1), FLOAT, (16384, 4096)) == NO_LIMIT  # stores none


def test_elementwise_functions_that_compute_have_registers_for_fewer_threads() -> None:
    shape = (16384, 4096)
    assert limit(F.gelu, BFLOAT16, shape) == 40
    assert limit(lambda x: x * 2, BFLOAT16, shape) == NO_LIMIT
    assert limit(F.gelu, BFLOAT16, (16384, 4097)) == NO_LIMIT  # no aligned vectors
    assert limit(lambda x: F.gelu(x.flip(0)), BFLOAT16, shape) == NO_LIMIT  # by index
    assert limit(lambda x: F.dropout(F.gelu(x), 0.1, True), BFLOAT16, shape) == NO_LIMIT
    assert limit(F.gelu, torch.float64, shape) == NO_LIMIT
    assert limit(lambda x, y: F.gelu(x) + F.gelu(y), BFLOAT16, (8, 4096, 4096), (4096, 4096)) == NO_LIMIT
