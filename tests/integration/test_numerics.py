"""The curated fusions agree with torch, on each target, and take the schedulers they should."""

from __future__ import annotations

import pytest
import torch

from fusewright import FusionDefinition
from tests.integration.cases import CASES, Case
from tests.integration.tolerance import assert_close


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_torch(case: Case, target: torch.device) -> None:
    fd = case.definition()
    inputs = case.inputs(target)
    outputs = fd.execute(inputs)
    expected = case.expected(inputs)
    assert len(outputs) == len(expected)
    for actual, reference in zip(outputs, expected):
        assert_close(actual, reference, case.reduced)
    assert tuple(kernel.scheduler for kernel in fd._last_kernels()) == case.schedulers


def test_a_vectorized_axis_of_one_point_is_no_vector(target):
    """A group of tensors one of which is a broadcast along the axis that the others are vectorized along."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, 1, 1, 1], [True, None, None, None])
        y = fd.define_tensor([-1, -1], [False, False])
        fd.add_output(fd.ops.squeeze(x, [1]))
        fd.add_output(fd.ops.permute(y, [1, 0]))
        fd.add_output(fd.ops.broadcast(y, [True, False, False]))
    a, b = torch.randn(2, 1, 1, 1, device=target), torch.randn(2, 1, device=target)
    outputs = fd.execute([a, b])
    for out, expected in zip(outputs, (a.squeeze(1), b.t(), b[None])):
        torch.testing.assert_close(out, expected, rtol=0, atol=0)
