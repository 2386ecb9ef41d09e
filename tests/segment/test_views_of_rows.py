"""Rows that are reduced and then read, in views of inputs and with views of results: one kernel moves each
element once, however they are written.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from tests.segment.test_few_elements import definition

Tensor = torch.Tensor
Function = Callable[[Tensor], Tensor]


def normed(x: Tensor) -> Tensor:
    return (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def shares(x: Tensor) -> Tensor:
    return torch.softmax(x.float(), -1).to(x.dtype)


def centered(x: Tensor) -> Tensor:
    return F.layer_norm(x.float(), x.shape[-1:]).to(x.dtype)


ROWS: list[Function] = [normed, shares, centered]
#: Of a tensor of [8 i, 64 k].
VIEWS: dict[str, Function] = {
    "inserted first": lambda t: t[None],
    "inserted between": lambda t: t[:, None],
    "inserted last": lambda t: t[..., None],
    "heads": lambda t: t.unflatten(-1, (4, -1)).transpose(0, 1),
    "batches": lambda t: t.unflatten(0, (8, -1)).transpose(0, 1),
    "flat": lambda t: t.reshape(-1),
    "every second": lambda t: t[:, ::2],
    "first half": lambda t: t[:, : t.shape[1] // 2],
    "rows": lambda t: t[5:],
    "flipped": lambda t: t.flip(-1),
    "flipped rows": lambda t: t.flip(0),
    "rolled": lambda t: t.roll(3, -1),
    "pairs swapped": lambda t: t.unflatten(-1, (-1, 2)).flip(-1).flatten(1),
    "halves swapped": lambda t: torch.cat([-t[:, t.shape[1] // 2 :], t[:, : t.shape[1] // 2]], -1),
}
OF_INPUTS = ("inserted first", "inserted between", "batches", "flipped", "flipped rows", "rolled")


@pytest.mark.parametrize("rows", ROWS, ids=lambda rows: rows.__name__)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.sampled(0.5)
def test_a_view_of_the_result(rows: Function, view: str) -> None:
    assert_one_kernel(lambda x: VIEWS[view](rows(x)) * 2)


@pytest.mark.parametrize("rows", ROWS, ids=lambda rows: rows.__name__)
@pytest.mark.parametrize("view", OF_INPUTS)
@pytest.mark.sampled(0.5)
def test_rows_of_a_view(rows: Function, view: str) -> None:
    assert_one_kernel(lambda x: rows(VIEWS[view](x)))


def assert_one_kernel(function: Function) -> None:
    x = torch.empty(8192, 2048, dtype=torch.bfloat16, device="meta")
    [kernel] = definition(function, x).kernels_for([x], device="cuda")
    assert kernel.bytes_read <= 2 * x.numel()


@pytest.mark.parametrize("rows", ROWS, ids=lambda rows: rows.__name__)
@pytest.mark.parametrize("shape", [(16, 64), (8, 128), (24, 192)])
@pytest.mark.sampled(0.5)
def test_values(rows: Function, shape: tuple[int, int], target: torch.device) -> None:
    x = torch.randn(shape, device=target)
    of_results = [_in_turn(rows, view) for view in VIEWS.values()]
    of_inputs = [_in_turn(VIEWS[view], rows) for view in OF_INPUTS]
    for function in (*of_results, *of_inputs):
        [found] = definition(function, x).execute([x])
        torch.testing.assert_close(found, function(x))


def _in_turn(first: Function, second: Function) -> Function:
    return lambda x: second(first(x)) * 2
