"""A division that is done once a row is correctly rounded; one per element need not be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.kernel.ir import Compute, walk

LENGTHS = (3, 5, 33, 41, 47, 55, 61, 97, 109, 1001, 2999)

Define = Callable[[FusionDefinition, Any], Any]


def _row_define(name: str) -> Define:
    return lambda fd, x: getattr(fd.ops, name)(x, dims=[1])


def _sum_over_count(fd: FusionDefinition, x: Any) -> Any:
    return fd.ops.sum(x, dims=[1]) / fd.ops.size(x, 1)


def _across_kernels(fd: FusionDefinition, x: Any) -> Any:
    return fd.ops.segment_set(fd.ops.sum(x, dims=[1])) / fd.ops.size(x, 1)


MEANS: dict[str, Define] = {
    "mean": _row_define("mean"),
    "sum/n": _sum_over_count,
    "across kernels": _across_kernels,
    "var_mean": lambda fd, x: fd.ops.var_mean(x, dims=[1])[1],
    "welford": lambda fd, x: fd.ops.welford(x, dims=[1])[0],
}


def _definition(define: Define, dtype: DataType = DataType.Float) -> FusionDefinition:
    with FusionDefinition() as fd:
        fd.add_output(define(fd, fd.define_tensor([-1, -1], contiguity=True, dtype=dtype)))
    return fd


@pytest.mark.parametrize("name", MEANS)
def test_mean_of_equal_numbers_is_that_number(target: torch.device, name: str) -> None:
    fd = _definition(MEANS[name])
    for length in LENGTHS:
        [mean] = fd.execute([torch.full((3, length), 4.0, device=target)])
        assert mean.tolist() == [4.0] * 3, length


def test_mean_of_equal_complex_numbers_is_that_number(target: torch.device) -> None:
    fd = _definition(MEANS["mean"], DataType.ComplexFloat)
    for length in LENGTHS:
        [mean] = fd.execute([torch.full((3, length), 4 - 8j, device=target)])
        assert mean.tolist() == [4 - 8j] * 3, length


def test_mean_of_copies_is_the_element(target: torch.device) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=[True, None])
        fd.add_output(fd.ops.mean(x, dims=[1]))
    for length in LENGTHS:
        [mean] = fd.execute([torch.full((3, 1), 4.0, device=target).expand(3, length)])
        assert mean.tolist() == [4.0] * 3, length


def _precise(fd: FusionDefinition) -> list[bool]:
    """Of each division in the kernels of the last call, whether it is a precise one."""
    statements = [s for kernel in fd._last_kernels() for s in walk(kernel.kernel.body)]
    found = [s for s in statements if isinstance(s, Compute)]
    return [s.precise for s in found if s.op.name in ("div", "truediv", "reciprocal")]


@pytest.mark.parametrize("name", ["mean", "sum/n", "across kernels", "var"])
def test_kernel_and_text_show_the_precise_division(name: str) -> None:
    fd = _definition({**MEANS, "var": _row_define("var")}[name])
    fd.execute([torch.randn(4, 40)])
    assert _precise(fd) and all(_precise(fd))
    assert "fw::divide(" in fd.last_cuda_code()


@pytest.mark.parametrize("length", [3, 7, 16])
def test_mean_of_a_few_equal_numbers_is_that_number(target: torch.device, length: int) -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.mean(fd.define_tensor([-1, length]), dims=[1]))
    [mean] = fd.execute([torch.full((3, length), 4.0, device=target)])
    assert mean.tolist() == [4.0] * 3


@pytest.mark.parametrize(("length", "precise"), [(4, False), (16, False), (17, True)])
def test_division_by_the_result_of_a_few_elements_is_the_fast_one(length: int, precise: bool) -> None:
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor([-1, length]) for _ in range(2))
        fd.add_output(fd.ops.sum(x, dims=[1]) / fd.ops.prod(y, dims=[1]))
    fd.execute([torch.rand(4, length), torch.rand(4, length)])
    assert _precise(fd) == [precise]


@pytest.mark.parametrize("size", [(), (1, 1)], ids=["on the CPU", "of one element"])
def test_division_of_a_few_elements_by_one_number_for_all_is_precise(size: tuple[int, ...]) -> None:
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([-1, 4]), fd.define_tensor([*size], is_cpu=not size)
        fd.add_output(fd.ops.sum(x, dims=[1], keepdim=True) / y)
    fd.execute([torch.rand(4, 4), torch.full(size, 3.0)])
    assert _precise(fd) == [True]


def test_division_holds_no_reciprocal_where_registers_are_limited() -> None:
    with FusionDefinition() as fd:
        x, w = fd.define_tensor([-1, 4096], dtype=DataType.BFloat16), fd.define_tensor([4096])
        mean = fd.ops.mean(fd.ops.mul(x, w), dims=[1], keepdim=True)
        fd.add_output(x * mean)
        fd.add_output(fd.ops.sum(x * mean, dims=[0]))
    [kernel] = fd.kernels_for([torch.empty(16384, 4096, dtype=torch.bfloat16), torch.empty(4096)])
    assert kernel.kernel.params.cparams.maxrregcount > 0
    assert "= fw::divide_in_few_registers(" in kernel.kernel.source.text
    assert "= fw::divide(" not in kernel.kernel.source.text


def test_division_of_elements_is_the_fast_one() -> None:
    def softmax(fd: FusionDefinition, x: Any) -> Any:
        return x / fd.ops.sum(x, dims=[1], keepdim=True)

    fd = _definition(softmax)
    fd.execute([torch.randn(4, 40)])
    assert _precise(fd) == [False]
    assert "fw::divide(" not in fd.last_cuda_code()
