"""Random reads backward and of every n-th element, of inputs in many layouts, beside torch's."""

from __future__ import annotations

import random

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fusewright.torch_compile import decompositions, from_fx

Tensor = torch.Tensor
DTYPES = (torch.bfloat16, torch.float32, torch.uint8, torch.float64, torch.bool)


def moved(x: Tensor, draw: random.Random) -> Tensor:
    """Up to three views of x, of which each goes backward, in steps, or takes a part."""
    for _ in range(draw.randint(1, 3)):
        dim = draw.choice((draw.randrange(x.dim()), x.dim() - 1))
        size = x.shape[dim]
        kind = draw.choice(("flip", "step", "part", "select"))
        if kind == "flip":
            x = x.flip(*draw.sample(range(x.dim()), draw.randint(1, x.dim())))
        elif kind == "select" and x.dim() > 1 and size <= 4:
            x = x.select(dim, draw.randrange(size))
        elif kind == "step" and size > 8:
            n = draw.choice((2, 2, 3, 4, 5))
            x = x[(slice(None),) * dim + (slice(draw.randrange(n), None, n),)]
        elif size > 8:
            start = draw.choice((0, 8, size // 2, 1))
            x = x.narrow(dim, start, max(1, draw.choice((size - start, (size - start) // 8 * 8))))
    return x


def laid_out(shape: list[int], dtype: torch.dtype, draw: random.Random, device: torch.device) -> Tensor:
    """In a larger tensor, at some offset, with dimensions in any order."""
    order = draw.sample(range(len(shape)), len(shape)) if draw.random() < 0.2 else list(range(len(shape)))
    sizes = [shape[dim] for dim in order]
    gap, offset = draw.choice((0, 0, 0, 4, 8, 3)), draw.choice((0, 0, 0, 1, 8))
    wide = [*sizes[:-1], sizes[-1] + gap]
    count = offset + torch.Size(wide).numel()
    memory = torch.randint(0, 100, (count,), device=device).to(dtype)[offset:].view(wide)
    return memory[..., : sizes[-1]].permute([order.index(dim) for dim in range(len(shape))])


def check(x: Tensor, views: str) -> None:
    def function(x: Tensor) -> Tensor:
        read = moved(x, random.Random(views))
        return -read if x.is_floating_point() else ~read

    [fd] = from_fx(make_fx(function, decompositions(), tracing_mode="fake")(x)).definitions
    (made,) = fd.execute([x])
    assert torch.equal(made, function(x)), (x.shape, x.dtype, x.stride(), x.storage_offset())


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.sampled(0.5)
def test_random_reads(seed: int, target: torch.device) -> None:
    for number in range(5):
        draw = random.Random(f"{seed} {number}")
        last = draw.choice((2, 3, 4, 64, 96, 128, 128, 65))
        shape = [draw.choice((1, 2, 6)), draw.choice((1, 5, 24, 64)), last][draw.choice((0, 1)) :]
        check(laid_out(shape, draw.choice(DTYPES), draw, target), f"{seed} {number} views")
