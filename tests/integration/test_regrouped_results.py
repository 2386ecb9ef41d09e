"""Results of rows or columns in another shape: each kernel is the one that was proposed first."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest
import torch

from fusewright import DataType, FusionDefinition


@pytest.mark.parametrize(
    ("shape", "reduced", "regrouped", "is_constant"),
    [
        ([16, 6, 5], 0, [5, 6, 16], True),
        ([16, 7, 9], 0, [56, 18], False),
    ],
    ids=str,
)
def test_results_are_stored_in_vectors_of_another_shape(
    shape: Sequence[int],
    reduced: int,
    regrouped: Sequence[int],
    is_constant: bool,
    target: torch.device,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with FusionDefinition() as fd:
        declared = list(shape) if is_constant else [-1] * len(shape)
        x, y = (fd.define_tensor(declared, contiguity=True, dtype=DataType.Float) for _ in range(2))
        centered = x - fd.ops.sum(y, [reduced], keepdim=True)
        fd.add_output(fd.ops.reshape(centered, list(regrouped)))
    a, b = torch.randn(*shape, device=target), torch.randn(*shape, device=target)
    with caplog.at_level(logging.ERROR, logger="fusewright"):
        (made,) = fd.execute([a, b])
    assert not caplog.records
    torch.testing.assert_close(made, (a - b.sum(reduced, keepdim=True)).reshape(*regrouped))


def test_a_vector_of_a_narrow_result_is_several_loads_of_what_it_is_made_from(
    target: torch.device, caplog: pytest.LogCaptureFixture
) -> None:
    with FusionDefinition() as fd:
        sizes = fd.define_tensor([-1, -1, 1, -1], contiguity=True, dtype=DataType.Float)
        x, y = (fd.define_tensor([-1, 1, -1, -1], contiguity=True, dtype=DataType.Float) for _ in range(2))
        smaller = fd.ops.le(x, fd.ops.sum(y, [0, 1, 2, 3], keepdim=True))
        rows = fd.ops.size(sizes, 0)
        fd.add_output(fd.ops.reshape(smaller, [-1, rows, rows]))
    a, b = (torch.randn(8, 1, 1, 1, device=target) for _ in range(2))
    with caplog.at_level(logging.ERROR, logger="fusewright"):
        (made,) = fd.execute([torch.ones(1, 8, 1, 1, device=target), a, b])
    assert not caplog.records
    assert torch.equal(made.flatten(), (a <= b.sum()).flatten())


def test_rows_of_a_product_of_sizes_may_be_divided_by_it(target: torch.device) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1, -1], contiguity=True, dtype=DataType.Float)
        scaled = x * fd.ops.sum(x, [2], keepdim=True)
        made = fd.ops.reshape(scaled, [fd.ops.size(x, 2), fd.ops.size(x, 0) * fd.ops.size(x, 1)])
        fd.add_output(made)
        fd.add_output(made, stride_order=[0, 1])
    t = torch.randn(3, 40, 3, device=target)
    for result in fd.execute([t]):
        torch.testing.assert_close(result, (t * t.sum(2, keepdim=True)).reshape(3, 120))


def test_a_quotient_of_a_quotient_by_a_size_finds_its_remainder(
    target: torch.device, caplog: pytest.LogCaptureFixture
) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True, dtype=DataType.Float)
        turned = fd.ops.permute(x, [1, 0])
        fd.add_output(fd.ops.stack([turned, turned], 0), stride_order=[0, 1, 2])
    t = torch.randn(4, 1, device=target)
    with caplog.at_level(logging.ERROR, logger="fusewright"):
        (made,) = fd.execute([t])
    assert not caplog.records
    assert torch.equal(made, torch.stack([t.t(), t.t()]))


def test_a_product_of_sizes_is_a_multiple_if_a_size_that_vectors_divide_anyway_is_a_factor(
    target: torch.device, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows of i0 * i2 elements in vectors of i2's divisor, whatever i0 is."""
    with FusionDefinition() as fd:
        like = fd.define_tensor([-1, 8, -1, -1], contiguity=True, dtype=DataType.Float)
        x = fd.define_tensor([-1, -1, -1, -1], contiguity=True, dtype=DataType.Float)
        y = x + fd.ops.argmin(x, 3, keepdim=True)
        turned = fd.ops.reshape(y, [-1, like.size(0), 8, like.size(2)])
        above = fd.ops.gt(turned, fd.ops.var(turned, [0, 1, 2, 3], 0, keepdim=True))
        rows = like.size(0) * like.size(2)
        fd.add_output(fd.ops.reshape(above, [rows, -1, like.size(2)]), stride_order=[0, 2, 1])
    t = torch.randn(7, 4, 8, 4, device=target)
    with caplog.at_level(logging.ERROR, logger="fusewright"):
        (made,) = fd.execute([torch.empty(7, 8, 4, 4, device=target), t])
    assert not caplog.records
    expected = t + t.argmin(3, keepdim=True)
    assert torch.equal(made, (expected > expected.var(correction=0)).reshape(28, 8, 4))


def test_vectors_cross_a_short_dimension_of_another_shape(
    target: torch.device, caplog: pytest.LogCaptureFixture
) -> None:
    """The whole is one run of memory, and 2 elements are no vector of 4."""
    x = torch.randn(2, 8, 16, device=target)
    with FusionDefinition() as fd:
        t, constant = fd.from_pytorch(x), fd.from_pytorch(x, static_sizes=True)
        either = fd.ops.any(constant, [0], keepdim=True)
        fd.add_output(fd.ops.reshape(either - t, [t.size(2), t.size(1), -1]))
        fd.add_output(either)
    with caplog.at_level(logging.ERROR, logger="fusewright"):
        made, _ = fd.execute([x, x])
    assert not caplog.records
    assert torch.equal(made, (x.bool().any(0, keepdim=True).float() - x).reshape(16, 8, 2))
