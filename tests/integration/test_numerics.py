"""The curated fusions agree with torch, on each target, and take the schedulers they should."""

from __future__ import annotations

import pytest
import torch

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
