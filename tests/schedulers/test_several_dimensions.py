"""Vectors of rows that go through several of the innermost reduced dimensions as through one."""

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


def reference(build: Build, x: torch.Tensor, dims: list[int]) -> torch.Tensor:
    if build is summed:
        return x.double().sum(dims)
    variance, mean = torch.var_mean(x.double(), dims, correction=0, keepdim=True)
    return (x.double() - mean) * torch.rsqrt(variance + 0.1)


def definition(build: Build, x: torch.Tensor, dims: list[int], static: bool) -> FusionDefinition:
    with FusionDefinition() as fd:
        fd.add_output(build(fd, fd.ops.cast(fd.from_pytorch(x, static_sizes=static), DataType.Float), dims))
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
    fd = definition(build, x, dims, static)
    [found] = fd.execute([x])
    torch.testing.assert_close(found.double(), reference(build, x, dims), rtol=2e-3, atol=2e-3)
    [kernel] = fd.kernels_for([x])
    assert kernel.params.vectorized_dims == multiples
    assert kernel.params.vector_widths[0] == width and f"<{width}>(" in kernel.cuda_text


def test_other_sizes_get_another_kernel(target: torch.device) -> None:
    """What the vectors divide is checked at each call."""
    x, dims = torch.randn(3, 5, 6, 4, device=target, dtype=torch.half), [0, 2, 3]
    fd = definition(normalized, x, dims, static=False)
    fd.execute([x])
    for shape in ((3, 5, 5, 4), (2, 5, 10, 12), (3, 5, 6, 3), (2, 4, 7, 9)):
        y = torch.randn(shape, device=target, dtype=torch.half)
        [found] = fd.execute([y])
        torch.testing.assert_close(found.double(), reference(normalized, y, dims), rtol=2e-3, atol=2e-3)


def test_rows_that_strides_part_are_read_along_one_dimension(target: torch.device) -> None:
    x = torch.randn(6, 8, 7, device=target, dtype=torch.half)[:, :, :5]
    fd = definition(summed, x, [1, 2], static=True)
    [found] = fd.execute([x])
    torch.testing.assert_close(found.double(), x.double().sum([1, 2]), rtol=2e-3, atol=2e-3)
    [kernel] = fd.kernels_for([x])
    assert not kernel.params.vectorized_dims


@pytest.mark.parametrize("multiples", [(8,), (2, 2, 2, 2), (2, 2)])
def test_faulty_multiples_are_refused(multiples: tuple[int, ...], target: torch.device) -> None:
    x = torch.randn(6, 8, 5, device=target, dtype=torch.half)
    fd = definition(summed, x, [1, 2], static=True)
    fd.execute([x])
    params = fd.kernels_for([x])[0].params
    with pytest.raises(FusewrightError, match="vectorized_dims"):
        fd.execute([x], schedules={0: replace(params, vectorized_dims=multiples)})
