"""Kernels of what users of torch write around reductions: views in chains, joined parts, factors of rows.

Each is as many kernels as it has to be, and computes what torch does.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from bench.operation import as_tuple, traced

Function = Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]
X, Y = torch.randn(2, 6, 4, 16), torch.randn(12, 64)
W, ANGLES = torch.randn(16), torch.randn(6, 1, 8)


def windows(x: torch.Tensor) -> torch.Tensor:
    cut = F.layer_norm(x, (16,)).view(2, 3, 2, 2, 2, 16)
    return cut.transpose(2, 3).reshape(-1, 4, 16)


def turned(x: torch.Tensor, w: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Halves of normalized heads, each times a table of half a head, joined; heads come to the front."""
    x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * w
    a, b = x.chunk(2, -1)
    joined = torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1)
    return joined.transpose(1, 2).contiguous()


def turned_part(x: torch.Tensor, w: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """The same of a part of a packed tensor."""
    return turned(x.view(2, 6, 2, 2, 16)[:, :, 1], w, cosine, sine)


def blocks_beside_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    total = x.sigmoid() * 2
    return total, total.view(12, 4, 16).amax(-1)


def rows_beside_blocks(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What is stored in the shape of blocks, where rows are reduced."""
    total = x.exp()
    return total, (total + 1).view(4, 3 * 64).sum(-1)


def masked_norm(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """A number of each image divides what its rows are reduced to, twice."""
    there = torch.arange(16) < lengths[:, None, None, None]
    count = lengths[:, None, None].float()
    mean = torch.where(there, x, 0.0).sum(-1) / count
    apart = torch.where(there, x - mean[..., None], 0.0)
    return apart / ((apart.square().sum(-1) / (count - 1)).sqrt()[..., None] + 1e-5)


ONE_KERNEL = [
    (windows, (X,)),
    (turned, (X, W, ANGLES, ANGLES.flip(0))),
    (turned_part, (X, W, ANGLES, ANGLES.flip(0))),
    (blocks_beside_rows, (Y,)),
    (rows_beside_blocks, (Y,)),
    (masked_norm, (X, torch.tensor([9, 16]))),
]


@pytest.mark.parametrize("function, inputs", ONE_KERNEL, ids=lambda p: getattr(p, "__name__", ""))
def test_one_kernel(function: Function, inputs: tuple[torch.Tensor, ...]) -> None:
    fd = traced(function, inputs)
    for made, wanted in zip(fd.execute(inputs), as_tuple(function(*inputs)), strict=True):
        torch.testing.assert_close(made, wanted, atol=1e-5, rtol=1e-5)
    assert len(fd.kernels_for(inputs)) == 1


def test_what_was_normalized_is_computed_again_for_its_blocks() -> None:
    """It takes twice a row's bytes to store it, and to read it, in Float."""

    def blocks(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total = x.float() + y
        normal = total * torch.rsqrt(total.square().mean(-1, keepdim=True) + 1e-5) * w
        return total.bfloat16(), normal.view(12, 4, 16).abs().amax(-1)

    inputs = (Y.bfloat16(), Y.flip(0).bfloat16(), Y[0].bfloat16())
    fd = traced(blocks, inputs)
    for made, wanted in zip(fd.execute(inputs), blocks(*inputs)):
        torch.testing.assert_close(made, wanted)
    written = {tuple(t.shape): t.dtype for k in fd.kernels_for(inputs) for t in k.tensors if t.is_written}
    assert (12, 64) in written
    assert str(written[12, 64]) == "DataType.BFloat16"


def test_a_maximum_beside_a_transposed_copy_reads_what_the_copy_reads() -> None:
    """It does not read what the kernel of the copy would have to store for it alone."""

    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        small = (x.float() * 0.5).half()
        return small, small.t().contiguous(), x.float().abs().amax()

    x = torch.randn(4096, 2048, dtype=torch.bfloat16)
    read = [t.dtype.size for k in traced(both, (x,)).kernels_for([x]) for t in k.tensors if not t.is_written]
    assert max(read) == 2


def test_both_of_two_norms_divide_once_a_row() -> None:
    """What follows from two kernels' reductions is part of the later one."""

    def response(x: torch.Tensor) -> torch.Tensor:
        norm = x.square().sum(1, keepdim=True).sqrt()
        return x * (norm / (norm.mean(-1, keepdim=True) + 1e-6))

    x = torch.randn(2, 300, 40)
    fd = traced(response, (x,))
    torch.testing.assert_close(fd.execute([x])[0], response(x))
    *_, last = fd.kernels_for([x])
    assert last.scheduler == "pointwise"
    assert last.kernel is not None
    assert "divide" not in last.kernel.cuda_text.split("__global__")[-1]
