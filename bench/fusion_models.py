"""Rows of the catalogue from training: losses and their gradients, norms by dimensions, cells, scans."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from bench.fusion import LARGE, MEDIUM, alike, channels, fusion, masked, rows_and_vectors
from bench.fusion_elementwise import targets, truths
from bench.operation import EPSILON, Inputs, Operation, Shape, Tensors, wide

Tensor = torch.Tensor
IMAGE, IMAGE_LAST = (64, 256, 56, 56), (64, 56, 56, 256)
IGNORED = -100

# ---- losses ------------------------------------------------------------------------------------------------


def ignoring(x: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(wide(x), torch.where(target % 8 == 0, IGNORED, target), ignore_index=IGNORED)


def with_z_loss(x: Tensor, target: Tensor) -> Tensor:
    logarithm = torch.logsumexp(wide(x), -1)
    chosen = wide(x).gather(1, target[:, None])[:, 0]
    return (logarithm - chosen + 1e-4 * logarithm.square()).mean()


def cross_entropy_gradient(x: Tensor, target: Tensor) -> Tensor:
    chosen = F.one_hot(target, x.shape[1])
    return ((F.softmax(wide(x), -1) - chosen) / x.shape[0]).to(x.dtype)


def bce_gradient(x: Tensor, target: Tensor) -> Tensor:
    return ((torch.sigmoid(wide(x)) - target) / x.numel()).to(x.dtype)


def jensen_shannon(x: Tensor, y: Tensor) -> Tensor:
    p, q = F.log_softmax(wide(x), -1), F.log_softmax(wide(y), -1)
    middle = torch.log((p.exp() + q.exp()) / 2)
    return 0.5 * ((p.exp() * (p - middle)) + (q.exp() * (q - middle))).sum(-1).mean()


def triplet(anchor: Tensor, near: Tensor, far: Tensor) -> Tensor:
    def distance(other: Tensor) -> Tensor:
        return (wide(anchor) - other).square().sum(-1).sqrt()

    return F.relu(distance(near) - distance(far) + 1.0).mean()


def gaussian_nll(mean: Tensor, target: Tensor, deviation: Tensor) -> Tensor:
    variance = wide(deviation).square().clamp(min=0.1)
    return 0.5 * (torch.log(variance) + (wide(mean) - target).square() / variance).mean()


def dice(x: Tensor, target: Tensor) -> Tensor:
    p = torch.sigmoid(wide(x))
    return 1 - (2 * (p * target).sum(-1) + 1) / (p.sum(-1) + wide(target).sum(-1) + 1)


def total_variation(x: Tensor) -> Tensor:
    down, along = wide(x)[:, :, 1:] - x[:, :, :-1], wide(x)[..., 1:] - x[..., :-1]
    return down.abs().mean() + along.abs().mean()


def policy(new: Tensor, old: Tensor, gain: Tensor) -> Tensor:
    ratio = torch.exp(wide(new) - old)
    return -torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()


LOSSES = (
    fusion("ce_ignoring", ignoring, targets, (8192, 8192)),
    fusion("ce_z_loss", with_z_loss, targets, (8192, 8192)),
    fusion("ce_gradient", cross_entropy_gradient, targets, (8192, 8192)),
    fusion("bce_gradient", bce_gradient, truths, LARGE),
    fusion("jensen_shannon", jensen_shannon, alike(2), (8192, 4096)),
    fusion("triplet", triplet, alike(3), (65536, 512)),
    fusion("gaussian_nll", gaussian_nll, alike(3), MEDIUM),
    fusion("poisson_nll", lambda x, y: F.poisson_nll_loss(wide(x), wide(y)), alike(2), MEDIUM),
    fusion("dice", dice, truths, (1024, 32768)),
    fusion("total_variation", total_variation, alike(1), (16, 64, 224, 224)),
    fusion("policy", policy, lambda s, r: (r(*s) * 0.1, r(*s) * 0.1, r(*s)), (8192, 4096)),
    fusion("soft_targets", lambda x, y: F.cross_entropy(wide(x), wide(y)), alike(2), (8192, 4096)),
)

# ---- normalizations ----------------------------------------------------------------------------------------


def group_norm_last(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Of images, channels last."""
    groups = wide(x).flatten(1, 2).unflatten(-1, (32 if x.shape[-1] % 32 == 0 else 2, -1))
    variance, mean = torch.var_mean(groups, (1, 3), correction=0, keepdim=True)
    normal = ((groups - mean) * torch.rsqrt(variance + EPSILON)).flatten(2).view(x.shape)
    return F.silu(normal * weight + bias).to(x.dtype)


def moments_last(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.var_mean(wide(x), (0, 1, 2), correction=0)


def sums_first(x: Tensor) -> tuple[Tensor, Tensor]:
    return wide(x).sum(0), wide(x).square().sum(0)


def layer_norm_first(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Over the channels of images, channels first."""
    variance, mean = torch.var_mean(wide(x), 1, correction=0, keepdim=True)
    normal = (x - mean) * torch.rsqrt(variance + EPSILON)
    return (normal * weight[:, None, None] + bias[:, None, None]).to(x.dtype)


def modulated(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:]) * (1 + scale[:, None]) + shift[:, None]


def gated_residual(x: Tensor, y: Tensor, gate: Tensor) -> Tensor:
    return x + gate[:, None] * y


def tanh_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.tanh(0.5 * x) * weight + bias


def weight_norm(v: Tensor, g: Tensor) -> Tensor:
    return (v * (g[:, None] / torch.linalg.vector_norm(wide(v), dim=1, keepdim=True))).to(v.dtype)


def rms_heads(x: Tensor, weight: Tensor) -> Tensor:
    heads = wide(x).unflatten(-1, (-1, weight.shape[0]))
    scale = torch.rsqrt(heads.square().mean(-1, keepdim=True) + EPSILON)
    return (heads * scale * weight).flatten(-2).to(x.dtype)


def layer_norm_gradient(dy: Tensor, x: Tensor, mean: Tensor, scale: Tensor, weight: Tensor) -> Tensor:
    normal, g = (wide(x) - mean) * scale, wide(dy) * weight
    along = (g * normal).mean(-1, keepdim=True)
    return ((g - g.mean(-1, keepdim=True) - normal * along) * scale).to(x.dtype)


def double_centered(x: Tensor) -> Tensor:
    y = wide(x)
    rows, columns = y.mean(2, keepdim=True), y.mean(1, keepdim=True)
    return (y - rows - columns + y.mean((1, 2), keepdim=True)).to(x.dtype)


def row_statistics(shape: Shape, r: Inputs) -> Tensors:
    each = (r(shape[0], 1, dtype=torch.float32) for _ in range(2))
    return r(*shape), r(*shape), *each, r(shape[1])


def one_a_batch(shape: Shape, r: Inputs) -> Tensors:
    return r(*shape), r(shape[0], shape[2]), r(shape[0], shape[2])


NORMALIZATIONS = (
    fusion("group_norm_last", group_norm_last, lambda s, r: (r(*s), r(s[3]), r(s[3])), (32, 64, 64, 256)),
    fusion("moments_last", moments_last, alike(1), IMAGE_LAST),
    fusion("sums_first", sums_first, alike(1), LARGE),
    fusion("layer_norm_first", layer_norm_first, channels(2), (32, 192, 56, 56)),
    fusion("modulated", modulated, one_a_batch, (16, 1024, 4096)),
    fusion("gated_residual", gated_residual, lambda s, r: (r(*s), r(*s), r(s[0], s[2])), (16, 1024, 4096)),
    fusion("tanh_norm", tanh_norm, rows_and_vectors(1, 2), LARGE),
    fusion("weight_norm", weight_norm, lambda s, r: (r(*s), r(s[0])), LARGE),
    fusion("rms_heads", rms_heads, lambda s, r: (r(*s), r(128 if s[1] % 128 == 0 else 8)), LARGE),
    fusion("layer_norm_gradient", layer_norm_gradient, row_statistics, LARGE),
    fusion("double_centered", double_centered, alike(1), (64, 512, 1024)),
    fusion("standardize_12", lambda x: F.layer_norm(x, x.shape[1:]), alike(1), (256, 64, 56, 56)),
)

# ---- cells, optimizers -------------------------------------------------------------------------------------


def lstm_cell(gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    i, f, g, o = gates.chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return c, torch.sigmoid(o) * torch.tanh(c)


def gru_cell(x: Tensor, h: Tensor, old: Tensor) -> Tensor:
    (xr, xz, xn), (hr, hz, hn) = x.chunk(3, -1), h.chunk(3, -1)
    update = torch.sigmoid(xz + hz)
    new = torch.tanh(xn + torch.sigmoid(xr + hr) * hn)
    return (1 - update) * new + update * old


def clipped(*gradients: Tensor) -> list[Tensor]:
    norm = torch.stack([wide(g).square().sum() for g in gradients]).sum().sqrt()
    factor = (1.0 / (norm + 1e-6)).clamp(max=1.0)
    return [(g * factor).to(g.dtype) for g in gradients]


CELLS = (
    fusion("lstm_cell", lstm_cell, lambda s, r: (r(s[0], 4 * s[1]), r(*s)), (8192, 2048)),
    fusion("gru_cell", gru_cell, lambda s, r: (r(s[0], 3 * s[1]), r(s[0], 3 * s[1]), r(*s)), (8192, 2048)),
    fusion(
        "clipped",
        clipped,
        lambda s, r: (r(*s), r(s[1]), r(s[0] // 2, s[1]), r(s[0] // 4, s[1])),
        (8192, 2048),
    ),
)

# ---- scans, places of extrema ------------------------------------------------------------------------------


def position_ids(mask: Tensor) -> Tensor:
    return (mask.long().cumsum(-1) - 1).masked_fill(~mask, 1)


def flags(shape: Shape, r: Inputs) -> Tensors:
    return (r.mask(*shape),)


SCANS = (
    fusion("position_ids", position_ids, flags, (8192, 2048)),
    fusion("cumsum_reverse", lambda x: wide(x).flip(-1).cumsum(-1).flip(-1), alike(1), (16384, 2048)),
    fusion("cumsum_before", lambda x: (wide(x).cumsum(-1) - x).to(x.dtype), alike(1), LARGE),
    fusion("logcumsumexp", lambda x: torch.logcumsumexp(wide(x), -1), alike(1), (8192, 2048)),
    fusion("cummax", lambda x: torch.cummax(x, -1).values, alike(1), (8192, 2048)),
    fusion("argmax_middle", lambda x: x.argmax(1), alike(1), (64, 512, 1024)),
    fusion("max_with_place", lambda x: tuple(x.max(-1)), alike(1), LARGE),
    fusion("argmin_mask", lambda x, m: x.masked_fill(m, 100.0).argmin(-1), masked, LARGE),
    fusion("prod_last", lambda x: (1 + 0.01 * wide(x)).prod(-1), alike(1), LARGE),
    fusion("one_hot_best", lambda x: F.one_hot(x.argmax(-1), x.shape[-1]).to(x.dtype), alike(1), MEDIUM),
)

MODELS: tuple[Operation, ...] = (*LOSSES, *NORMALIZATIONS, *CELLS, *SCANS)
