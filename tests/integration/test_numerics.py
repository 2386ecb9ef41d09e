"""The curated fusions agree with torch, on each target, and take the schedulers they should."""

from __future__ import annotations

import pytest
import torch

from fusewright import FusionDefinition, SchedulerType
from tests.integration.cases import CASES, Case
from tests.integration.tolerance import assert_close


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.sampled(0.6)
def test_agrees_with_torch(case: Case, target: torch.device) -> None:
    fd = case.definition()
    inputs = case.inputs(target)
    outputs = fd.execute(inputs)
    expected = case.expected(inputs)
    assert len(outputs) == len(expected)
    for actual, reference in zip(outputs, expected):
        assert_close(actual, reference, case.reduced)
    assert tuple(kernel.scheduler for kernel in fd._last_kernels()) == case.schedulers


@pytest.mark.parametrize("case", [case for case in CASES if "few_long_rows" in case.name], ids=str)
def test_rows_that_no_block_can_hold_in_one_kernel(case: Case, target: torch.device) -> None:
    """Asked for by name, as few rows would be left to several kernels."""
    fd = case.definition()
    fd.schedule = lambda: fd.sched.schedule(SchedulerType.inner_persistent)  # type: ignore[method-assign]
    inputs = case.inputs(target)
    for actual, reference in zip(fd.execute(inputs), case.expected(inputs)):
        assert_close(actual, reference, case.reduced)
    assert [kernel.scheduler for kernel in fd._last_kernels()] == ["user"]


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
