"""Rows of the catalogue from diffusion, augmentation, audio, graphs, physics, recommendation, time series."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from bench.fusion import alike, fusion
from bench.operation import EPSILON, Inputs, Operation, Shape, Tensors, wide

Tensor = torch.Tensor
FLOAT = torch.float32


# ---- diffusion and images ----------------------------------------------------------------------------------


def timestep_added(x: Tensor, times: Tensor) -> Tensor:
    """The embedding of a sample's time, added to each of its tokens."""
    half = x.shape[2] // 2
    rates = torch.exp(torch.arange(half, device=x.device, dtype=times.dtype) * (-math.log(1e4) / half))
    angles = times[:, None] * rates
    return (wide(x) + torch.cat([angles.cos(), angles.sin()], -1)[:, None]).to(x.dtype)


def adaptive_layer_norm_backward(grad: Tensor, x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of a layer norm whose scale and shift each sample has: gradients of x, the shift and the scale."""
    variance, mean = torch.var_mean(wide(x), -1, correction=0, keepdim=True)
    inverse = torch.rsqrt(variance + EPSILON)
    normal = (wide(x) - mean) * inverse
    scaled = wide(grad) * (1 + wide(scale)[:, None])
    across = (scaled * normal).mean(-1, keepdim=True)
    of_x = inverse * (scaled - scaled.mean(-1, keepdim=True) - normal * across)
    return of_x.to(x.dtype), wide(grad).sum(1).to(x.dtype), (wide(grad) * normal).sum(1).to(x.dtype)


def image_of_tokens(x: Tensor, token: Tensor, position: Tensor) -> Tensor:
    """Tokens with their embeddings as an image of three channels: each is a square of 16 x 16 pixels."""
    count, length, _ = x.shape
    side = math.isqrt(length)
    squares = (x + token + position).view(count, side, side, 16, 16, -1).permute(0, 5, 1, 3, 2, 4)
    return squares.reshape(count, -1, 16 * side, 16 * side)


def jittered(x: Tensor, contrast: Tensor, saturation: Tensor, flipped: Tensor) -> Tensor:
    """Bytes of images with another contrast and saturation, and some of them flipped."""

    def gray(image: Tensor) -> Tensor:
        return (0.299 * image[:, 0] + 0.587 * image[:, 1] + 0.114 * image[:, 2])[:, None]

    a, b, is_flipped = (each[:, None, None, None] for each in (contrast, saturation, flipped))
    image = x.to(contrast.dtype) / 255
    image = ((1 + a) * image - a * gray(image).mean((1, 2, 3), keepdim=True)).clamp(0, 1)
    image = ((1 + b) * image - b * gray(image)).clamp(0, 1)
    return torch.where(is_flipped, image.flip(-1), image)


def bytes_of_images(s: Shape, r: Inputs) -> Tensors:
    factors = (r(s[0], dtype=FLOAT) * 0.1 for _ in range(2))
    return r.indices(256, *s).to(torch.uint8), *factors, r.mask(s[0])


def variances_both_ways(x: Tensor, weight: Tensor) -> Tensor:
    """The variance along rows of each map over that of its weighted columns."""
    along = torch.var(wide(x), -1).mean(-1)
    return along / (torch.var(wide(x) * weight[:, None], -2).mean(-1) + EPSILON)


# ---- audio and time series ---------------------------------------------------------------------------------


def emphasized_frames(x: Tensor, window: Tensor) -> Tensor:
    """Frames of 400 samples, centred, each sample without most of the one before it, in a window."""
    frames = x.unfold(1, 400, 160)
    frames = frames - frames.mean(-1, keepdim=True)
    before = torch.cat([frames[..., :1], frames[..., :-1]], -1)
    return (frames - 0.97 * before) * window


def trend_and_season(x: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of 25 steps around each, the first and the last of all repeated, and what is left."""
    ends = (x[:, :1].expand(-1, 12, -1), x[:, -1:].expand(-1, 12, -1))
    padded = torch.cat([ends[0], x, ends[1]], 1)
    trend = F.avg_pool1d(padded.transpose(1, 2), 25, 1).transpose(1, 2)
    return trend, x - trend


# ---- graphs, physics, recommendation -----------------------------------------------------------------------


def attended_neighbours(x: Tensor, node: Tensor, weight: Tensor, is_there: Tensor) -> Tensor:
    """Each node's mean of its neighbours, by attention."""
    scores = F.leaky_relu((wide(x) + node[:, None]) * weight, 0.2).sum(-1)
    shares = torch.softmax(scores.masked_fill(~is_there, -1e4), -1)
    return F.elu((shares[:, :, None] * wide(x)).sum(1)).to(x.dtype)


def weighted_neighbours(x: Tensor, scores: Tensor, is_there: Tensor) -> Tensor:
    """The same for scores that are known."""
    shares = torch.softmax(scores.masked_fill(~is_there, -1e4), -1)
    return (shares[:, :, None] * wide(x)).sum(1).to(x.dtype)


def divergence(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """Of a periodic field."""

    def difference(field: Tensor, dim: int) -> Tensor:
        return (torch.roll(field, -1, dim) - torch.roll(field, 1, dim)) * 0.5

    return difference(x, 2) + difference(y, 1) + difference(z, 0)


def factorization(x: Tensor) -> Tensor:
    """The sum of the products of all pairs of a sample's features."""
    total = wide(x).sum(1)
    return (0.5 * (total * total - wide(x).square().sum(1))).sum(-1)


def corrected_softmax(x: Tensor, target: Tensor, frequency: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of sampled items: the loss, the target's rank and the best score."""
    scores = wide(x) - frequency
    of_target = scores.gather(1, target[:, None])
    loss = torch.logsumexp(scores, 1) - of_target[:, 0]
    return loss, (scores > of_target).sum(1), scores.amax(1)


SCIENCES: tuple[Operation, ...] = (
    fusion(
        "timestep_added",
        timestep_added,
        lambda s, r: (r(*s), r(s[0], dtype=FLOAT) * 500),
        (8, 4096, 3072),
        small=(2, 6, 16),
    ),
    fusion(
        "adaptive_layer_norm_backward",
        adaptive_layer_norm_backward,
        lambda s, r: (r(*s), r(*s), r(s[0], s[2])),
        (16, 1024, 1152),
        small=(2, 5, 16),
    ),
    fusion(
        "image_of_tokens",
        image_of_tokens,
        lambda s, r: (r(*s), r(1, 1, s[2]), r(1, s[1], s[2])),
        (32, 196, 768),
        small=(2, 4, 768),
    ),
    fusion("jittered", jittered, bytes_of_images, (32, 3, 480, 640), small=(2, 3, 6, 8)),
    fusion(
        "variances_both_ways",
        variances_both_ways,
        lambda s, r: (r(*s, dtype=torch.float16), r(s[2], dtype=FLOAT)),
        (8, 16, 512, 512),
        small=(2, 3, 6, 6),
    ),
    fusion(
        "emphasized_frames",
        emphasized_frames,
        lambda s, r: (r(*s, dtype=FLOAT), r(400, dtype=FLOAT)),
        (32, 160000),
        small=(2, 1603),
    ),
    fusion("trend_and_season", trend_and_season, alike(1), (64, 720, 321), small=(2, 30, 9)),
    fusion(
        "attended_neighbours",
        attended_neighbours,
        lambda s, r: (r(*s), r(s[0], s[2]), r(s[2]), r.mask(s[0], s[1])),
        (100000, 16, 64),
        small=(9, 5, 16),
    ),
    fusion(
        "weighted_neighbours",
        weighted_neighbours,
        lambda s, r: (r(*s), r(s[0], s[1], dtype=FLOAT), r.mask(s[0], s[1])),
        (100000, 16, 64),
        small=(9, 5, 16),
    ),
    fusion(
        "divergence",
        divergence,
        lambda s, r: tuple(r(*s, dtype=FLOAT) for _ in range(3)),
        (511, 255, 127),
        small=(6, 7, 9),
    ),
    fusion("factorization", factorization, alike(1), (8192, 27, 64), (4096, 26, 127), small=(5, 4, 8)),
    fusion(
        "corrected_softmax",
        corrected_softmax,
        lambda s, r: (r(*s), r.indices(s[1], s[0]), r(s[1], dtype=FLOAT)),
        (8192, 1000),
        (2048, 9999),
        small=(5, 33),
    ),
)
