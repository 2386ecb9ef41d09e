"""Rows of the catalogue that join results of reductions: with what they were computed from, with each other,
with parts that nothing is computed of.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from bench.fusion import MEDIUM, alike, fusion
from bench.operation import EPSILON, Inputs, Operation, Shape, Tensors, wide

Tensor = torch.Tensor


def normed(x: Tensor) -> Tensor:
    """RMS norm of the last dimension, in the type of `x`."""
    return (wide(x) * torch.rsqrt(wide(x).square().mean(-1, keepdim=True) + EPSILON)).to(x.dtype)


def rotated_in_part(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """The first half of each normalized head is rotated."""
    n, half = normed(x), cosine.shape[1] // 2
    turned = torch.cat([-n[..., half : 2 * half], n[..., :half]], -1)
    first = n[..., : 2 * half] * cosine[:, None] + turned * sine[:, None]
    return torch.cat([first, n[..., 2 * half :]], -1)


def angles(s: Shape, r: Inputs) -> Tensors:
    half = s[2] // 4 * 2
    return r(*s), r(s[0], half), r(s[0], half)


def keys_of_shared_part(x: Tensor, rotated: Tensor) -> Tensor:
    """Keys of which all heads share a part."""
    return torch.cat([normed(x), rotated[:, None].expand(-1, x.shape[1], -1)], -1)


def normed_beside(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat([normed(x), y], -1)


def with_class_token(x: Tensor, token: Tensor) -> Tensor:
    return torch.cat([token.expand(x.shape[0], 1, -1), normed(x)], 1)


def norms_of_thirds(x: Tensor) -> Tensor:
    first, second, third = x.chunk(3, -1)
    return torch.cat([normed(first), normed(second), third], -1)


def skip_of_groups(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat([y, F.silu(F.group_norm(wide(x), 8)).to(x.dtype)], 1)


def squeezed_beside(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat([x * torch.sigmoid(wide(x).mean((2, 3), keepdim=True)).to(x.dtype), y], 1)


def shares_and_entropy(x: Tensor) -> Tensor:
    p = torch.softmax(wide(x), -1)
    return torch.cat([p, -(p * p.clamp(min=1e-9).log()).sum(-1, keepdim=True)], -1).to(x.dtype)


def padded_bytes(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows as bytes with a scale each, padded to whole blocks of 128."""
    scale = wide(x).abs().amax(-1, keepdim=True) / 127 + EPSILON
    rows = torch.round(wide(x) / scale).to(torch.int8)
    return scale, F.pad(rows, (0, -x.shape[1] % 128))


JOINED: tuple[Operation, ...] = (
    fusion("rotated_in_part", rotated_in_part, angles, (4096, 32, 128), small=(5, 3, 32)),
    fusion(
        "keys_of_shared_part",
        keys_of_shared_part,
        lambda s, r: (r(*s), r(s[0], s[2] // 2)),
        (4096, 16, 128),
        small=(5, 3, 32),
    ),
    fusion("normed_beside", normed_beside, lambda s, r: (r(*s), r(s[0], s[1] // 8)), (8192, 2048)),
    fusion("normed_in_turn", lambda x, y: torch.cat([normed(x), normed(y)], 0), alike(2), MEDIUM),
    fusion("normed_pairs", lambda x, y: torch.stack([normed(x), normed(y)], 1), alike(2), MEDIUM),
    fusion(
        "with_class_token",
        with_class_token,
        lambda s, r: (r(*s), r(1, 1, s[2])),
        (64, 577, 768),
        small=(3, 7, 40),
    ),
    fusion("norms_of_thirds", norms_of_thirds, alike(1), (8192, 6144), small=(6, 120)),
    fusion("skip_of_groups", skip_of_groups, alike(2), (16, 64, 64, 64), small=(2, 16, 4, 8)),
    fusion("squeezed_beside", squeezed_beside, alike(2), (32, 64, 56, 56), small=(3, 8, 4, 8)),
    fusion("shares_and_entropy", shares_and_entropy, alike(1), (8192, 1000)),
    fusion("padded_bytes", padded_bytes, alike(1), (8192, 2000)),
    fusion("padded_rows", lambda x: F.pad(normed(x), (0, 0, 0, 3)), alike(1), MEDIUM),
    fusion(
        "beside_centered",
        lambda x: torch.cat([x, x - wide(x).mean(-1, keepdim=True).to(x.dtype)], -1),
        alike(1),
        (8192, 1024),
    ),
    fusion(
        "mean_and_largest",
        lambda x: torch.cat([wide(x).mean(1), wide(x).amax(1)], -1).to(x.dtype),
        alike(1),
        (64, 256, 1024),
        small=(3, 20, 16),
    ),
)
