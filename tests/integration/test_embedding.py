"""Embeddings with limited norms of rows, which change the weight as torch's do."""

from __future__ import annotations

import logging

import pytest
import torch
import torch.nn.functional as F

from fusewright import DataType, FusionDefinition


@pytest.mark.parametrize(("dtype", "order"), [(torch.float32, 2.0), (torch.bfloat16, 3.0)], ids=str)
def test_rows_that_are_too_long_are_scaled_in_the_weight(
    dtype: torch.dtype, order: float, target: torch.device
) -> None:
    """A constant norm, and one that a call passes; the second call finds the rows scaled."""
    weight = torch.randn(10, 6).to(dtype)
    weight[3] = 0.0
    indices = torch.tensor([[0, 3, 5], [5, 9, 0]])
    with FusionDefinition() as fd:
        i, w = fd.from_pytorch(indices), fd.from_pytorch(weight)
        norm = order if order == 2.0 else fd.define_scalar(DataType.Double)
        fd.add_output(fd.ops.embedding_fwd(i, w, None, 1.5, norm, False, True))
    expected = weight.clone()
    rows = F.embedding(indices, expected, None, 1.5, order)
    given = [indices.to(target), weight.to(target, copy=True), *([] if order == 2.0 else [order])]
    for _ in range(2):
        (found,) = fd.execute(given)
        torch.testing.assert_close(found.cpu(), rows)
        torch.testing.assert_close(given[1].cpu(), expected)


def test_a_weight_that_is_computed_is_limited_for_its_reader(target: torch.device) -> None:
    weight, indices = torch.randn(7, 4, device=target), torch.tensor([6, 1, 1], device=target)
    with FusionDefinition() as fd:
        i, w = fd.from_pytorch(indices), fd.from_pytorch(weight)
        fd.add_output(fd.ops.embedding_fwd(i, w * 2.0, max_norm=1.0, norm_type=float("inf")))
    before = weight.clone()
    (found,) = fd.execute([indices, weight])
    # On a GPU torch's own renormalization knows no infinite norm.
    expected = F.embedding(indices.cpu(), 2 * weight.cpu(), None, 1.0, float("inf"))
    torch.testing.assert_close(found.cpu(), expected)
    assert torch.equal(weight, before)


def test_the_gradient_of_rows_that_one_kernel_finds_and_adds(
    target: torch.device, caplog: pytest.LogCaptureFixture
) -> None:
    """An index that is read for several loops is loaded before the first of them."""
    table, indices = torch.randn(2, 1, device=target).half(), torch.tensor([1], device=target).expand(2)
    with FusionDefinition() as fd:
        like = fd.define_tensor([-1, 1], dtype=DataType.Float)
        t, i = fd.define_tensor([-1, 1], dtype=DataType.Half), fd.from_pytorch(indices)
        fd.add_output(fd.ops.embedding_bwd(fd.ops.embedding_fwd(i, t), i, like.size(0)))
    with caplog.at_level(logging.ERROR, logger="fusewright"):
        (found,) = fd.execute([table.float(), table, indices])
    assert not caplog.records
    assert torch.equal(found, torch.stack([torch.zeros_like(table[0]), 2 * table[1]]))
