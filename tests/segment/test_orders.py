"""Results in several memory orders, of one tensor: a tile has two of them."""

from __future__ import annotations

import pytest
import torch

from fusewright.segment.order import across_memory
from tests.segment.test_few_elements import definition

Tensor = torch.Tensor


def in_three_orders(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y = torch.nn.functional.softplus(x)
    return y.permute(3, 2, 1, 0).contiguous(), y.permute(0, 2, 3, 1).contiguous().half(), y * 2.0


def in_one_order(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.t().contiguous(), (x + 1.0).t().contiguous()


def in_turn(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.permute(2, 0, 1).exp().contiguous()
    return y, y.permute(2, 0, 1).contiguous()


@pytest.mark.parametrize(
    ("function", "sizes", "parts"),
    [(in_three_orders, (4, 6, 5, 3), [2, 3]), (in_one_order, (6, 5), []), (in_turn, (4, 5, 6), [])],
)
def test_parts_of_other_orders(function: object, sizes: tuple[int, ...], parts: list[int]) -> None:
    leaf = definition(function, torch.empty(sizes, device="meta"))._finished()
    assert sorted(map(len, across_memory(list(leaf.fusion.nodes)))) == parts


def test_results_in_several_orders_have_a_kernel_each(target: torch.device) -> None:
    large = torch.empty(64, 128, 64, 97, device="meta")
    kernels = definition(in_three_orders, large).kernels_for([large], device="cuda")
    by_tiles = [kernel for kernel in kernels if kernel.scheduler in ("transpose", "horizontal")]
    assert by_tiles and sum(kernel.proposal.seconds for kernel in kernels if kernel.proposal) < 350e-6

    x = torch.randn(9, 17, 5, 33, device=target)
    for made, expected in zip(definition(in_three_orders, x).execute([x]), in_three_orders(x), strict=True):
        torch.testing.assert_close(made, expected)
