"""Sums and running sums of few bits in 32: which are, and that they are torch's."""

from __future__ import annotations

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.ir import Reduction
from fusewright.rewrite import simplified

ROWS, COLUMNS = 5, 70


def sums(given: torch.Tensor, start: int | None = None) -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.ops.cast(fd.from_pytorch(given, static_sizes=True), DataType.Int)
        fd.add_output(fd.ops.sub(fd.ops.cumsum(x, 1, init=start), 1))
    return fd


def is_narrow(fd: FusionDefinition, given: torch.Tensor) -> bool:
    return "\n  int sum;" in fd.kernels_for([given])[0].cuda_text


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16])
def test_sums_of_few_bits_are_of_32(dtype: torch.dtype) -> None:
    ends = (0, 1) if dtype is torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    given = torch.tensor(ends).to(dtype)[torch.randint(2, (ROWS, COLUMNS))]
    fd = sums(given)
    (made,) = fd.execute([given])
    assert torch.equal(made, given.long().cumsum(1) - 1)  # type: ignore[arg-type]
    assert is_narrow(fd, given)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_others_are_of_64(dtype: torch.dtype) -> None:
    given = torch.full((ROWS, COLUMNS), 2**30, dtype=dtype)
    fd = sums(given)
    (made,) = fd.execute([given])
    assert torch.equal(made, given.long().cumsum(1) - 1)  # type: ignore[arg-type]
    assert not is_narrow(fd, given)


def test_sums_of_so_many_that_they_may_not_fit_are_of_64() -> None:
    given = torch.full((1, 65536), 2**15 - 1, dtype=torch.int16)
    assert not is_narrow(sums(given), given)
    assert is_narrow(sums(given[:, :65535].contiguous()), given[:, :65535].contiguous())


def test_sums_that_start_from_a_number_are_of_64() -> None:
    given = torch.ones(ROWS, COLUMNS, dtype=torch.bool)
    fd = sums(given, 2**40)
    (made,) = fd.execute([given])
    assert torch.equal(made, given.long().cumsum(1) - 1 + 2**40)  # type: ignore[arg-type]


@pytest.mark.parametrize("dims", [[1], [0], [0, 1]])
@pytest.mark.parametrize("static", [True, False])
def test_reductions_of_few_bits_are_of_32_where_their_number_is_known(dims: list[int], static: bool) -> None:
    given = torch.randn(ROWS, COLUMNS)
    with FusionDefinition() as fd:
        above = fd.from_pytorch(given, static_sizes=static) > 0.0
        count = fd.ops.sum(above, dims=dims, keepdim=True)
        fd.add_output(count)
        fd.add_output(fd.ops.where(above, count, 0))
    count, spread = fd.execute([given])
    assert torch.equal(count, (given > 0).sum(dims, keepdim=True))
    assert torch.equal(spread, torch.where(given > 0, count, 0))
    made = simplified(fd._finished().fusion).nodes
    assert {n.output.dtype for n in made if isinstance(n, Reduction)} == {
        DataType.Int32 if static else DataType.Int
    }


def test_a_reduction_of_so_many_that_they_may_not_fit_is_of_64() -> None:
    given = torch.full((256, 256), 2**15 - 1, dtype=torch.int16)
    with FusionDefinition() as fd:
        x = fd.from_pytorch(given, static_sizes=True)
        fd.add_output(fd.ops.sum(fd.ops.cast(x, DataType.Int)))
    assert fd.execute([given])[0].item() == 2**16 * (2**15 - 1)
