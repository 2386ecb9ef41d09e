"""Input tensors of random programs. The functions need torch alone: printed scripts contain them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch


def values(dtype: torch.dtype, count: int, seed: int, below: int | None = None) -> torch.Tensor:
    """`count` random values: small integers, bools, or floats and complex numbers around 0.

    below: integers from 0 on that are below it, instead.
    """
    generator = torch.Generator().manual_seed(seed)
    if below is not None:
        return torch.randint(0, below, (count,), generator=generator).to(dtype)
    if dtype is torch.bool:
        return torch.randint(0, 2, (count,), generator=generator).bool()
    if not dtype.is_floating_point and not dtype.is_complex:
        least = 0 if dtype in (torch.uint64, torch.uint8) else -6
        return torch.randint(least, 7, (count,), generator=generator).to(dtype)
    if dtype.is_complex:
        return torch.randn(count, dtype=torch.complex128, generator=generator).to(dtype)
    if seed % 3 == 0:  # quarters: many ties, and sums that are exact
        return (torch.randint(-8, 9, (count,), generator=generator) / 4).to(dtype)
    return torch.randn(count, generator=generator).to(dtype)


def span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """How many elements of memory such a tensor covers."""
    return 0 if 0 in shape else 1 + sum((size - 1) * stride for size, stride in zip(shape, strides))


def strided(
    dtype: torch.dtype,
    shape: Sequence[int],
    strides: Sequence[int],
    offset: int,
    seed: int,
    conj: bool = False,
    below: int | None = None,
    device: str = "cpu",
) -> torch.Tensor:
    """A tensor of random values with these strides, `offset` elements into its storage.

    conj: whether it is a lazily conjugated view. below: see `values`.
    """
    storage = values(dtype, offset + span(shape, strides), seed, below).to(device)
    tensor = storage.as_strided(list(shape), list(strides), offset)
    return tensor.conj() if conj else tensor


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major, without gaps."""
    return tuple(math.prod(max(size, 1) for size in shape[dim + 1 :]) for dim in range(len(shape)))
