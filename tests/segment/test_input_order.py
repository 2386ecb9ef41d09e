"""Inputs that a kernel would read across their memory: from a copy where that pays, and what is computed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from fusewright.ops.evaluate import evaluate_fusion
from fusewright.segment.input_order import in_order_of_dimensions
from tests.ops.definition import Definition
from tests.segment.test_few_elements import definition

Tensor = torch.Tensor


def joined(*parts: Tensor) -> Tensor:
    return torch.cat(parts, 1) * 2.0


def inputs(rows: int, columns: int, count: int, columnwise: int) -> list[Tensor]:
    """Inputs without memory that start at odd elements, and some that lie column by column."""
    odd = [torch.empty(rows * columns + 1, device="meta")[1:].view(rows, columns) for _ in range(count)]
    return [*odd, *(torch.empty(columns, rows, device="meta").t() for _ in range(columnwise))]


@pytest.mark.parametrize(
    ("arguments", "schedulers"),
    [
        (inputs(16384, 256, 15, 1), ["transpose", "pointwise"]),
        (inputs(16384, 256, 16, 0), ["pointwise"]),
        (inputs(4096, 256, 5, 1), ["transpose"]),  # a copy would gain little
    ],
    ids=["one of many", "none", "one of few"],
)
def test_one_of_many_is_copied_before_they_are_joined(
    arguments: Sequence[Tensor], schedulers: list[str]
) -> None:
    kernels = definition(joined, *arguments).kernels_for(arguments, device="cuda")
    assert [kernel.scheduler for kernel in kernels] == schedulers


def test_what_is_computed_from_the_copies() -> None:
    d = Definition()
    x, y = (d.define_tensor([3, 5], contiguity=True, stride_order=order) for order in ([0, 1], [1, 0]))
    d.add_output(d.mul(d.neg(x), d.add(y, d.exp(x))))
    given = [torch.randn(5, 3).t(), torch.randn(3, 5)]
    wanted = evaluate_fusion(d.fusion, given)
    nodes = list(d.fusion.tensor_nodes())
    rewrite = in_order_of_dimensions(nodes)
    assert rewrite is not None
    replaced = rewrite.replace(d.fusion)
    for node in nodes:
        if node.output not in replaced:
            d.fusion.replace_inputs(node, dict(replaced))
    [read] = {
        v for new in replaced.values() for v in new.definition.tensor_inputs if v.definition is not None
    }
    assert tuple(read.memory_axes) == read.shape
    torch.testing.assert_close(evaluate_fusion(d.fusion, given), wanted, rtol=0, atol=0)


def test_what_lies_in_order_or_is_reduced_at_once_stays() -> None:
    d = Definition()
    x = d.define_tensor([3, 5], contiguity=True)
    d.add_output(d.neg(x))
    assert in_order_of_dimensions(d.fusion.tensor_nodes()) is None
    d.add_output(d.sum(d.define_tensor([3, 5], contiguity=True, stride_order=[0, 1]), [1]))
    assert in_order_of_dimensions(d.fusion.tensor_nodes()) is None
