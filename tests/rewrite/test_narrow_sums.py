"""Sums and running sums of few bits in 32: which are, and that they are torch's."""

from __future__ import annotations

import pytest
import torch

from fusewright import DataType, FusionDefinition

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


@pytest.mark.parametrize("dims", [[0], [1], [0, 1]], ids=str)
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int64])
def test_reductions(dtype: torch.dtype, dims: list[int], target: torch.device) -> None:
    ends = (0, 1) if dtype is torch.bool else (0, 100)
    given = torch.tensor(ends).to(dtype)[torch.randint(2, (ROWS, COLUMNS))].to(target)
    with FusionDefinition() as fd:
        x = fd.ops.cast(fd.from_pytorch(given, static_sizes=True), DataType.Int)
        fd.add_output(fd.ops.sum(x, dims))
    (made,) = fd.execute([given])
    assert torch.equal(made, given.long().sum(dims))  # type: ignore[arg-type]
    text = fd.kernels_for([given])[0].cuda_text
    assert ("struct sum_int32 " in text) == ("fw::warp_sum" in text) == (dtype is not torch.int64)


def test_sums_both_ways_share_one_cast() -> None:
    given = torch.rand(70, 40) > 0.5
    with FusionDefinition() as fd:
        x = fd.ops.cast(fd.from_pytorch(given, static_sizes=True), DataType.Int)
        fd.add_output(fd.ops.sum(x, [0]))
        fd.add_output(fd.ops.sum(x, [1]))
    for made, dim in zip(fd.execute([given]), (0, 1)):
        assert torch.equal(made, given.sum(dim))  # type: ignore[arg-type]
    assert sum("struct sum_int32 " in kernel.cuda_text for kernel in fd.kernels_for([given])) == 1


def test_reductions_of_open_sizes_are_of_64() -> None:
    given = torch.ones(ROWS, COLUMNS, dtype=torch.bool)
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.Bool)
        fd.add_output(fd.ops.sum(fd.ops.cast(x, DataType.Int), [1]))
    assert "struct sum_int32 " not in fd.kernels_for([given])[0].cuda_text
