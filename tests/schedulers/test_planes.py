"""Joins of what is computed of the same elements: loads, registers and rows are shared by all pieces."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch

from fusewright import FusionDefinition
from tests.schedulers.proposals import definition

Tensor = torch.Tensor


def checked(function: Callable[..., Tensor], *inputs: Tensor) -> FusionDefinition:
    """The definition of a function, checked to compute what torch does."""
    fd = definition(function, *inputs)
    [result] = fd.execute(inputs)
    torch.testing.assert_close(result, function(*inputs), rtol=1e-2, atol=1e-2)
    return fd


def colours(x: Tensor) -> Tensor:
    red, green, blue = x.float().unbind(1)
    luma = (0.3 * red + 0.6 * green + 0.1 * blue).abs().add(1).log()
    return torch.stack([luma, torch.exp(blue - luma), torch.exp(red - luma)], 1).to(x.dtype)


def first_planes(x: Tensor) -> Tensor:
    return torch.stack([torch.sin(x[0] + x[1]), torch.cos(x[0] + x[1])])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_thread_has_all_planes_of_its_elements(dtype: torch.dtype, target: torch.device) -> None:
    x = torch.randn(2, 3, 16, 64, device=target).to(dtype)
    fd = checked(colours, x)
    [kernel] = fd.kernels_for([x])
    params = kernel.params
    assert (params.break_point, params.unroll_factor_outer, params.unroll_factor_inner) == (2, 3, 1)
    # Each channel is loaded once, and each plane is computed once.
    assert len(re.findall(r"fw::load<", kernel.cuda_text)) == 3
    assert len(re.findall(r"exp\w*\(", kernel.cuda_text)) == 2


def test_planes_that_are_outermost(target: torch.device) -> None:
    x = torch.randn(2, 40, 64, device=target)
    [kernel] = checked(first_planes, x).kernels_for([x])
    assert (kernel.params.break_point, kernel.params.unroll_factor_outer) == (1, 2)


def premultiplied(x: Tensor) -> Tensor:
    alpha = x[..., 3:].float()
    return torch.cat([x[..., :3].float() * alpha, alpha], -1).to(x.dtype).movedim(-1, -3).contiguous()


def mirrored(x: Tensor) -> Tensor:
    """The last channel first, and the first one again."""
    return torch.cat([x.flip(-1) * 0.5, x[..., :1] + 1], -1).to(x.dtype).movedim(-1, -3).contiguous()


@pytest.mark.parametrize(
    "function, shape, dtype, vectors",
    [
        (premultiplied, (16, 64, 4), torch.float16, 2),
        (premultiplied, (2, 16, 64, 4), torch.float32, 4),
        (premultiplied, (2, 16, 64, 4), torch.uint8, 1),
        (mirrored, (16, 64, 3), torch.bfloat16, 3),
        (mirrored, (2, 16, 64, 2), torch.float32, 4),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_channels_become_planes(
    function: Callable[[Tensor], Tensor],
    shape: tuple[int, ...],
    dtype: torch.dtype,
    vectors: int,
    target: torch.device,
) -> None:
    """A thread reads whole pixels in vectors, and writes vectors of each plane."""
    x = torch.randint(0, 15, shape, device=target).to(dtype)
    [kernel] = checked(function, x).kernels_for([x])
    params = kernel.params
    assert params.unroll_factor_outer == function(x).shape[-3] and params.picked_inputs == (0,)
    assert params.vectorization_factor >= 4
    assert "T0[" not in kernel.cuda_text.replace("&T0[", "")
    proposal = kernel.proposal
    assert proposal is not None and proposal.bytes == x.nbytes + function(x).nbytes


@pytest.mark.parametrize("sizes", [(2, 3, 5, 7), (2, 3, 8, 8)])
def test_planes_of_few_elements_are_no_rows(sizes: tuple[int, ...], target: torch.device) -> None:
    x = torch.randn(*sizes, device=target)
    [kernel] = checked(colours, x).kernels_for([x])
    assert kernel.params.unroll_factor_outer == 1


def test_planes_of_tensors_of_their_own(target: torch.device) -> None:
    """Inputs as they are need no work that planes could share; what is computed of them is loaded once."""
    x, y = torch.randn(2, 8, 1024, device=target)
    [kernel] = checked(lambda x, y: torch.stack([x, y], 1), x, y).kernels_for([x, y])
    assert "planes" not in kernel.params.reason
    [kernel] = checked(lambda x, y: torch.stack([x.exp(), y * 2], 1), x, y).kernels_for([x, y])
    assert len(re.findall(r"fw::load<", kernel.cuda_text)) == 2


def butterflies(x: Tensor) -> Tensor:
    for step in range(4):
        a, b = x.unflatten(-1, (-1, 2, 2**step)).unbind(-2)
        x = torch.stack([a + b, a - b], -2).flatten(-3)
    return x


def test_a_chain_of_butterflies_reads_each_element_once(target: torch.device) -> None:
    x = torch.randn(3, 64, device=target)
    [kernel] = checked(butterflies, x).kernels_for([x])
    reads = re.findall(r"= T0\[", kernel.cuda_text)
    assert len(reads) == 16


def test_pieces_that_share_nothing_are_read_where_they_are_chosen(target: torch.device) -> None:
    x, y = torch.randn(2, 5, 37, device=target)
    [kernel] = checked(lambda x, y: torch.stack([x.exp(), (y * 2).sin()], -1).flatten(-2), x, y).kernels_for(
        [x, y]
    )
    loads = [line for line in kernel.cuda_text.splitlines() if re.search(r"= .*T[01]\[", line)]
    assert loads and all("?" in line for line in loads)


def until(x: Tensor, ends: Tensor) -> Tensor:
    return torch.where(torch.arange(x.shape[1], device=x.device) < ends[:, None], x, -1.0)


@pytest.mark.parametrize("length, shifts", [(2049, True), (2048, False)])
def test_odd_rows_of_values_by_position(length: int, shifts: bool, target: torch.device) -> None:
    x = torch.randn(10, length, device=target).bfloat16()
    ends = torch.tensor([0, 1, 700, length - 1, length] * 2, device=target)
    [kernel] = checked(until, x, ends).kernels_for([x, ends])
    assert kernel.params.shift_rows is shifts and kernel.params.vectorization_factor == 8


def rows_of_butterflies(x: Tensor) -> Tensor:
    y = butterflies(x)
    return y / y.abs().amax(-1, keepdim=True)


@pytest.mark.parametrize("function", [butterflies, rows_of_butterflies])
def test_elements_that_are_transformed_together_are_a_vector(
    function: Callable[[Tensor], Tensor], target: torch.device
) -> None:
    x = torch.randn(3, 512, device=target)
    [kernel] = checked(function, x).kernels_for([x])
    params = kernel.params
    is_reduced = function is rows_of_butterflies
    width = params.unroll_factor_inner_reduction if is_reduced else params.vectorization_factor
    assert width == 4
    # Each thread loads each of the sixteen elements once.
    assert len(re.findall(r"= T0\[", kernel.cuda_text)) == 16


def angles(times: Tensor) -> Tensor:
    rates = torch.exp(-torch.arange(20, device=times.device) / 20)
    angle = times[:, None] * rates
    return torch.cat([angle.cos(), angle.sin()], -1)


def test_positions_are_joined_in_one_kernel(target: torch.device) -> None:
    times = torch.rand(7, device=target)
    assert len(checked(angles, times).kernels_for([times])) == 1
