"""Vectors of rows that go through several of the innermost reduced dimensions as through one.

A factor of one of them keeps them apart; without it they are one dimension (`rewrite.border`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.core.errors import FusewrightError

Build = Callable[[FusionDefinition, Any, list[int]], Any]


def summed(fd: FusionDefinition, x: Any, dims: list[int]) -> Any:
    return fd.ops.sum(x, dims)


def normalized(fd: FusionDefinition, x: Any, dims: list[int]) -> Any:
    variance, mean = fd.ops.var_mean(x, dims, correction=0, keepdim=True)
    return fd.ops.cast((x - mean) * fd.ops.rsqrt(variance + 0.1), dtype=DataType.Half)


def reference(build: Build, x: torch.Tensor, dims: list[int], factors: torch.Tensor) -> torch.Tensor:
    x = x.double() * along(factors.double(), x, dims)
    if build is summed:
        return x.sum(dims)
    variance, mean = torch.var_mean(x, dims, correction=0, keepdim=True)
    return (x - mean) * torch.rsqrt(variance + 0.1)


def along(factors: torch.Tensor, x: torch.Tensor, dims: list[int]) -> torch.Tensor:
    """A factor of each element along the last reduced dimension but one."""
    shape = [1] * x.ndim
    shape[dims[-2]] = -1
    return factors.reshape(shape)


def factors_of(x: torch.Tensor, dims: list[int]) -> torch.Tensor:
    return torch.rand(x.shape[dims[-2]], device=x.device, dtype=torch.half) + 0.5


def definition(build: Build, x: torch.Tensor, dims: list[int], static: bool) -> FusionDefinition:
    with FusionDefinition() as fd:
        elements = fd.ops.cast(fd.from_pytorch(x, static_sizes=static), DataType.Float)
        factors = fd.from_pytorch(factors_of(x, dims), static_sizes=static)
        factors = fd.ops.broadcast(factors, [dim != dims[-2] for dim in range(x.ndim)])
        fd.add_output(build(fd, elements * factors, dims))
    return fd


#: shape, reduced dimensions, elements of a vector, what the sizes it goes through are multiples of
CASES = [
    ((6, 8, 5), [1, 2], 8, (8, 1)),
    ((3, 5, 6, 4), [0, 2, 3], 8, (2, 4)),
    ((3, 512, 7, 3), [1, 2, 3], 8, (8, 1, 1)),
    ((4, 3, 14, 14), [2, 3], 4, (2, 2)),
    ((2, 3, 6, 5, 4, 9), [0, 1, 3, 4, 5], 4, (4, 1)),
]


@pytest.mark.parametrize("static", [True, False], ids=["static", "open"])
@pytest.mark.parametrize("build", [summed, normalized])
@pytest.mark.parametrize("shape, dims, width, multiples", CASES, ids=[str(case[0]) for case in CASES])
@pytest.mark.sampled(0.5)
def test_vectors_divide_the_product_of_sizes(
    build: Build,
    shape: tuple[int, ...],
    dims: list[int],
    width: int,
    multiples: tuple[int, ...],
    static: bool,
    target: torch.device,
) -> None:
    x = torch.randn(shape, device=target, dtype=torch.half)
    factors = factors_of(x, dims)
    fd = definition(build, x, dims, static)
    [found] = fd.execute([x, factors])
    torch.testing.assert_close(found.double(), reference(build, x, dims, factors), rtol=2e-3, atol=2e-3)
    [kernel] = fd.kernels_for([x, factors])
    assert kernel.params.vectorized_dims == multiples
    assert kernel.params.vector_widths[0] == width and f"<{width}>(" in kernel.cuda_text


@pytest.mark.parametrize("static", [True, False], ids=["static", "open"])
@pytest.mark.parametrize("build", [summed, normalized])
@pytest.mark.parametrize("shape, dims, width, multiples", CASES, ids=[str(case[0]) for case in CASES])
@pytest.mark.sampled(0.5)
def test_dimensions_that_nothing_tells_apart_are_one(
    build: Build,
    shape: tuple[int, ...],
    dims: list[int],
    width: int,
    multiples: tuple[int, ...],
    static: bool,
    target: torch.device,
) -> None:
    x = torch.randn(shape, device=target, dtype=torch.half)
    with FusionDefinition() as fd:
        fd.add_output(build(fd, fd.ops.cast(fd.from_pytorch(x, static_sizes=static), DataType.Float), dims))
    [found] = fd.execute([x])
    none = torch.ones(x.shape[dims[-2]], device=target)
    torch.testing.assert_close(found.double(), reference(build, x, dims, none), rtol=2e-3, atol=2e-3)
    [kernel] = fd.kernels_for([x])
    assert kernel.params.vector_widths[0] >= width and not kernel.params.vectorized_dims


def test_other_sizes_get_another_kernel(target: torch.device) -> None:
    """What the vectors divide is checked at each call."""
    x, dims = torch.randn(3, 5, 6, 4, device=target, dtype=torch.half), [0, 2, 3]
    fd = definition(normalized, x, dims, static=False)
    fd.execute([x, factors_of(x, dims)])
    for shape in ((3, 5, 5, 4), (2, 5, 10, 12), (3, 5, 6, 3), (2, 4, 7, 9)):
        y = torch.randn(shape, device=target, dtype=torch.half)
        factors = factors_of(y, dims)
        [found] = fd.execute([y, factors])
        torch.testing.assert_close(
            found.double(), reference(normalized, y, dims, factors), rtol=2e-3, atol=2e-3
        )


def test_rows_that_strides_part_are_read_along_one_dimension(target: torch.device) -> None:
    x, dims = torch.randn(6, 8, 7, device=target, dtype=torch.half)[:, :, :5], [1, 2]
    fd, factors = definition(summed, x, dims, static=True), factors_of(x, dims)
    [found] = fd.execute([x, factors])
    torch.testing.assert_close(found.double(), reference(summed, x, dims, factors), rtol=2e-3, atol=2e-3)
    [kernel] = fd.kernels_for([x, factors])
    assert not kernel.params.vectorized_dims


@pytest.mark.parametrize("multiples", [(8,), (2, 2, 2, 2), (2, 2)])
def test_faulty_multiples_are_refused(multiples: tuple[int, ...], target: torch.device) -> None:
    x = torch.randn(6, 8, 5, device=target, dtype=torch.half)
    fd, inputs = definition(summed, x, [1, 2], static=True), [x, factors_of(x, [1, 2])]
    fd.execute(inputs)
    params = fd.kernels_for(inputs)[0].params
    with pytest.raises(FusewrightError, match="vectorized_dims"):
        fd.execute(inputs, schedules={0: replace(params, vectorized_dims=multiples)})
