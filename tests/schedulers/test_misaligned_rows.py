"""Rows in memory that starts at an odd element, with weights in such memory, too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from fusewright import ReductionParams
from tests.segment.test_few_elements import definition

Tensor = torch.Tensor


def misaligned(
    *shape: int, device: str | torch.device = "meta", dtype: torch.dtype = torch.bfloat16
) -> Tensor:
    """Ones on no device, else random."""
    count = torch.Size(shape).numel() + 1
    made = (
        torch.empty(count, dtype=dtype, device="meta") if device == "meta" else torch.randn(count).to(dtype)
    )
    return made.to(device)[1:].view(shape)


def backward(grad: Tensor, p: Tensor) -> Tensor:
    """Of a softmax."""
    return ((grad - (grad * p).float().sum(-1, keepdim=True)) * p).to(p.dtype)


def normed(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x.float(), x.shape[1:]).to(x.dtype) * weight + bias


def scaled(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x.float(), x.shape[1:]).to(x.dtype) * weight


def after_residual(x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    return normed(x + y, weight, weight)


@pytest.mark.parametrize(
    ("function", "shapes", "unaligned"),
    [
        (backward, [(65536, 160)] * 2, (0, 1)),
        (lambda x: torch.softmax(x.float(), -1).to(x.dtype), [(262144, 64)], (0,)),
        (lambda x: x.float().logsumexp(-1), [(65536, 96)], (0,)),
        (lambda x: torch.softmax(x.float(), -1).to(x.dtype), [(262144, 24)], ()),
        (scaled, [(16384, 2048), (2048,)], (0, 1)),
        (scaled, [(8192, 8192), (8192,)], ()),
        (normed, [(16384, 1024), (1024,), (1024,)], ()),
        # To load weights one by one, too, would take longer than the bytes of these rows do.
        (normed, [(131072, 64), (64,), (64,)], (0, 1, 2)),
    ],
    ids=[
        "backward",
        "softmax",
        "logsumexp",
        "three vectors",
        "one weight",
        "long rows",
        "two weights",
        "two of short rows",
    ],
)
def test_which_vectors_start_at_any_element(
    function: Callable[..., Tensor], shapes: list[tuple[int, ...]], unaligned: tuple[int, ...]
) -> None:
    inputs = [misaligned(*shape) for shape in shapes]
    [kernel] = definition(function, *inputs).kernels_for(inputs, device="cuda")
    params = kernel.params
    assert isinstance(params, ReductionParams) and params.unaligned_inputs == unaligned
    assert (params.unroll_factor_inner_reduction == 8) is bool(unaligned)


def test_weights_are_widened_first_where_rows_are_vectors_then() -> None:
    """In vectors of the weights', too, they would take the registers of two each."""
    inputs = [misaligned(*shape) for shape in [(16384, 4096), (16384, 4096), (4096,)]]
    widening, rows = definition(after_residual, *inputs).kernels_for(inputs, device="cuda")
    assert [tensor.shape for tensor in widening.tensors if tensor.is_written] == [(1, 4096)]
    assert rows.params.unaligned_inputs == (0, 1) and rows.params.unroll_factor_inner_reduction == 4


def test_what_rows_beside_widened_weights_give(target: torch.device) -> None:
    inputs = [misaligned(*shape, device=target) for shape in [(600, 4096), (600, 4096), (4096,)]]
    [found] = definition(after_residual, *inputs).execute(inputs)
    torch.testing.assert_close(found.float(), after_residual(*inputs).float(), rtol=2e-2, atol=4e-2)


def corrected_loss(x: Tensor, target: Tensor, correction: Tensor) -> Tensor:
    """Of logits less a float for each class; one of each row is read by index, too."""
    logits = x.float() - correction
    return torch.logsumexp(logits, -1) - logits.gather(1, target[:, None]).squeeze(1)


def test_rows_beside_wider_weights_are_read_in_vectors() -> None:
    """As wide as those of the weights; what one element of a row is read for is no vector."""
    x, target = misaligned(8192, 1496), torch.empty(8192, dtype=torch.int64, device="meta")
    inputs = [x, target, torch.empty(1496, device="meta")]
    [kernel] = definition(corrected_loss, *inputs).kernels_for(inputs, device="cuda")
    assert kernel.params.unaligned_inputs == (0,) and kernel.params.unroll_factor_inner_reduction == 4


def test_what_rows_beside_wider_weights_give(target: torch.device) -> None:
    x, weights = misaligned(70, 1496, device=target), torch.randn(1496, device=target)
    chosen = torch.arange(70, device=target) * 21
    [found] = definition(corrected_loss, x, chosen, weights).execute([x, chosen, weights])
    torch.testing.assert_close(found, corrected_loss(x, chosen, weights), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("length", [32, 40, 96, 160])
def test_what_short_rows_give(length: int, target: torch.device) -> None:
    inputs = [misaligned(33, length, device=target) for _ in range(2)]
    [found] = definition(backward, *inputs).execute(inputs)
    torch.testing.assert_close(found, backward(*inputs))


def test_what_rows_beside_misaligned_weights_give(target: torch.device) -> None:
    """By the params of many rows."""
    many = [misaligned(*shape) for shape in ((16384, 1024), (1024,), (1024,))]
    made = definition(normed, *many)
    params = made.kernels_for(many, device="cuda")[0].params
    inputs = [misaligned(*shape, device=target) for shape in ((33, 1024), (1024,), (1024,))]
    [found] = definition(normed, *inputs).execute(inputs, schedules={0: params})
    torch.testing.assert_close(found, normed(*inputs))
