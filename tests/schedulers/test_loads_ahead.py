"""What only the results of a row are used with is loaded before its reductions, where registers hold it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from fusewright import FusionDefinition, ParamsError
from tests.schedulers.proposals import H200
from tests.segment.test_few_elements import definition

Tensor = torch.Tensor


def normed(x: Tensor) -> Tensor:
    return x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6)


def gated(x: Tensor, gate: Tensor) -> Tensor:
    return (normed(x) * torch.sigmoid(gate.float())).to(x.dtype)


def shares_beside(x: Tensor, y: Tensor) -> Tensor:
    return (torch.softmax(x.float(), -1) * y.float()).to(x.dtype)


def gradient(x: Tensor, y: Tensor) -> Tensor:
    """A reduction follows from both."""
    products = x.float() * y.float()
    return (products - products.sum(-1, keepdim=True) * y.float()).to(x.dtype)


def planned(
    function: Callable[..., Tensor], rows: int, length: int, dtype: torch.dtype, count: int = 2
) -> Any:
    inputs = [torch.empty(rows, length, dtype=dtype, device="meta") for _ in range(count)]
    [kernel] = definition(function, *inputs).kernels_for(inputs, device="cuda")
    return kernel


@pytest.mark.parametrize("function", [gated, shares_beside], ids=lambda function: function.__name__)
@pytest.mark.parametrize("length", [256, 1024, 4096, 8192])
@pytest.mark.parametrize("rows", [1024, 16384])
@pytest.mark.sampled(0.5)
def test_both_are_in_flight_before_the_reduction(
    function: Callable[..., Tensor], rows: int, length: int
) -> None:
    kernel = planned(function, rows, length, torch.bfloat16)
    assert kernel.params.loads_ahead
    text = kernel.cuda_text
    loads = [text.index(f"&T{i}[") for i in (0, 1)]
    reduced = [at for name in ("block_reduce<", "warp_reduce") if (at := text.find(name, max(loads))) >= 0]
    assert reduced, "the reduction comes after both loads"


@pytest.mark.parametrize("rows, length, batches", [(1024, 4096, 2), (16384, 4096, 4), (16384, 2048, 2)])
def test_threads_hold_fewer_vectors_beside_those_of_another_input(
    rows: int, length: int, batches: int
) -> None:
    found = planned(gated, rows, length, torch.bfloat16).params
    assert found.batches_per_block_inner_reduction == batches
    alone = planned(lambda x: normed(x).to(x.dtype), rows, length, torch.bfloat16, count=1).params
    assert alone.batches_per_block_inner_reduction == 4 and not alone.loads_ahead


def test_what_a_reduction_follows_from_is_loaded_anyway() -> None:
    kernel = planned(gradient, 16384, 4096, torch.bfloat16)
    assert not kernel.params.loads_ahead


def test_registers_have_to_hold_it() -> None:
    def beside_many(x: Tensor, *others: Tensor) -> Tensor:
        return sum((each.float() for each in others), normed(x)).to(x.dtype)

    assert planned(beside_many, 16384, 4096, torch.bfloat16, count=3).params.loads_ahead
    assert not planned(beside_many, 16384, 8192, torch.float32, count=9).params.loads_ahead


@pytest.mark.parametrize("shape", [(5, 64), (7, 100), (64, 1300)], ids=str)
@pytest.mark.parametrize("ahead", [False, True])
def test_values(shape: Sequence[int], ahead: bool, target: torch.device) -> None:
    x, y = (torch.randn(shape, device=target) for _ in range(2))
    for function in (gated, shares_beside):
        made = definition(function, x, y)
        [kernel] = made.kernels_for([x, y])
        assert kernel.params.loads_ahead
        [result] = made.execute([x, y], schedules={0: replace(kernel.params, loads_ahead=ahead)})
        torch.testing.assert_close(result, function(x, y), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(64, 40), (150, 24), (33, 21)], ids=str)
def test_columns(shape: Sequence[int], target: torch.device) -> None:
    def gated_columns(x: Tensor, gate: Tensor) -> Tensor:
        return torch.softmax(x, 0) * torch.sigmoid(gate)

    x, gate = (torch.randn(shape, device=target) for _ in range(2))
    made = definition(gated_columns, x, gate)
    [kernel] = made.kernels_for([x, gate])
    assert kernel.scheduler == "outer_persistent" and kernel.params.loads_ahead
    for ahead in (False, True):
        [result] = made.execute([x, gate], schedules={0: replace(kernel.params, loads_ahead=ahead)})
        torch.testing.assert_close(result, gated_columns(x, gate), rtol=1e-5, atol=1e-6)


def test_rows_that_are_copied_ahead_are_not_loaded() -> None:
    params = planned(gated, 16384, 4096, torch.bfloat16).params
    with pytest.raises(ParamsError, match=r"loads_ahead`: expected False .*, or with circular_stages"):
        replace(params, circular_stages=2).validate(H200)


def test_there_has_to_be_such_an_input() -> None:
    x = torch.randn(4, 64)
    with FusionDefinition() as fd:
        a = fd.from_pytorch(x)
        fd.add_output(a - fd.ops.sum(a, [1], keepdim=True))
    [kernel] = fd.kernels_for([x])
    with pytest.raises(
        ParamsError, match="loads_ahead`: expected False as reductions follow from all inputs"
    ):
        fd.execute([x], schedules={0: replace(kernel.params, loads_ahead=True)})
