"""A maximum and a sum of exponentials that nothing else needs the row for: one reduction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition

INF = float("inf")


def definition(
    of: Callable[[FusionDefinition, Any], Any], dtype: DataType = DataType.Float
) -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True, dtype=dtype)
        fd.add_output(of(fd, x))
    return fd


def by_hand(fd: FusionDefinition, x: Any) -> Any:
    top = fd.ops.max(x, 1, keepdim=True)
    return fd.ops.log(fd.ops.sum(fd.ops.exp(x - top), 1, keepdim=True)) + top


def of_columns(fd: FusionDefinition, x: Any) -> Any:
    return fd.ops.logsumexp(x, 0)


def softmax(fd: FusionDefinition, x: Any) -> Any:
    return fd.ops.softmax(x, 1)


def entropy(fd: FusionDefinition, x: Any) -> Any:
    """The row is read again, by a sum that is none of exponentials alone."""
    less = x - fd.ops.max(x, 1, keepdim=True)
    return fd.ops.sum(fd.ops.exp(less), 1) + fd.ops.sum(less, 1)


LONG = (512, 40_000)


@pytest.mark.parametrize("of", [by_hand, lambda fd, x: fd.ops.logsumexp(x, 1)], ids=["by hand", "logsumexp"])
def test_a_row_that_is_read_once_is_not_held(of: Callable[..., Any]) -> None:
    [kernel] = definition(of).kernels_for([torch.empty(LONG)])
    assert kernel.scheduler == "reduction" and "max_sum_exp" in kernel.kernel.source.text


@pytest.mark.parametrize("of", [softmax, entropy])
def test_a_row_that_is_read_again_is_held(of: Callable[..., Any]) -> None:
    kernels = definition(of).kernels_for([torch.empty(LONG)])
    assert [kernel.scheduler for kernel in kernels] == ["inner_persistent"]


@pytest.mark.parametrize("of", [by_hand, of_columns, lambda fd, x: fd.ops.logsumexp(x, 1)])
@pytest.mark.parametrize("shape", [(3, 5000), (700, 9), (3, 0)], ids=str)
def test_one_pass_is_right(of: Callable[..., Any], shape: tuple[int, int], target: torch.device) -> None:
    x = 30 * torch.randn(shape, generator=torch.Generator().manual_seed(1))
    x[0, ::2] = -INF
    x[1, 3:4] = INF
    fd = definition(of)
    [found] = fd.execute([x.to(target)])
    dim = 0 if of is of_columns else 1
    exact = torch.logsumexp(x.double(), dim, keepdim=of is by_hand)
    if of is by_hand and x.numel():
        exact[1] = torch.nan  # inf - inf
    torch.testing.assert_close(found.cpu().double(), exact, rtol=1e-6, atol=1e-6, equal_nan=True)


def test_the_op_by_itself(target: torch.device) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True, dtype=DataType.BFloat16)
        for result in fd.ops.max_sum_exp(x, 1):
            fd.add_output(result)
    x = torch.randn(9, 300, dtype=torch.bfloat16)
    x[4] = -INF
    top, total = fd.execute([x.to(target)])
    assert top.dtype is total.dtype is torch.float32
    wide = x.double()
    torch.testing.assert_close(top.cpu().double(), wide.amax(1))
    exact = (wide - wide.amax(1, keepdim=True)).exp().sum(1).nan_to_num(0.0)
    torch.testing.assert_close(total.cpu().double(), exact, rtol=1e-6, atol=0)
