"""Rows of the catalogue that reduce or scan: sums of any dimensions, normalizations, softmaxes, pooling."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from bench.fusion import LARGE, MEDIUM, alike, channels, fusion, rows_and_vectors
from bench.operation import EPSILON, MASKED, Inputs, Operation, Shape, Tensors, wide

Tensor = torch.Tensor
MIDDLE, IMAGE, NARROW = (256, 512, 512), (64, 256, 56, 56), (65536, 64)
#: Few columns side by side: places of some heads, components of particles.
SHORT_ROWS = ((16384, 1024, 4), (65536, 90, 6))

# ---- reductions --------------------------------------------------------------------------------------------


def summed(*dims: int) -> Callable[[Tensor], Tensor]:
    return lambda x: wide(x).sum(dims)


SUMS = (
    fusion("sum_last", summed(1), alike(1), LARGE),
    fusion("sum_first", summed(0), alike(1), LARGE, NARROW),
    fusion("sum_middle", summed(1), alike(1), MIDDLE),
    fusion("sum_all", lambda x: wide(x).sum(), alike(1), LARGE),
    fusion("sum_02", summed(0, 2), alike(1), MIDDLE),
    fusion("sum_01", summed(0, 1), alike(1), MIDDLE),
    fusion("sum_12", summed(1, 2), alike(1), (1024, 64, 512)),
    fusion("sum_023", summed(0, 2, 3), alike(1), IMAGE),
    fusion("sum_13", summed(1, 3), alike(1), (64, 128, 64, 64)),
    fusion("sum_012", summed(0, 1, 2), alike(1), (32, 56, 56, 256)),
    fusion("sum_squares", lambda x: (wide(x) * x).sum(-1), alike(1), LARGE),
    fusion("dot_rows", lambda x, y: (wide(x) * y).sum(-1), alike(2), LARGE, (262144, 64)),
    fusion("mean_last", lambda x: x.mean(-1), alike(1), LARGE, (131072, 256)),
    fusion("amax_last", lambda x: x.amax(-1), alike(1), LARGE),
    fusion("amax_first", lambda x: x.amax(0), alike(1), LARGE),
    fusion("amin_middle", lambda x: x.amin(1), alike(1), MIDDLE),
    fusion("amax_amin", lambda x: (x.amax(-1), x.amin(-1)), alike(1), LARGE),
    fusion("var_last", lambda x: wide(x).var(-1), alike(1), LARGE),
    fusion("var_first", lambda x: wide(x).var(0), alike(1), LARGE, NARROW),
    fusion("std_all", lambda x: wide(x).std(), alike(1), MEDIUM),
    fusion("norm_last", lambda x: torch.linalg.vector_norm(wide(x), dim=-1), alike(1), LARGE),
    fusion("norm_all", lambda x: torch.linalg.vector_norm(wide(x)), alike(1), LARGE),
    fusion("argmax_last", lambda x: x.argmax(-1), alike(1), LARGE),
    fusion("argmax_first", lambda x: x.argmax(0), alike(1), (4096, 4096)),
    fusion("any_last", lambda x: (x > 4).any(-1), alike(1), LARGE),
    fusion("count", lambda x: (x > 0).sum(-1), alike(1), LARGE),
    fusion("logsumexp", lambda x: torch.logsumexp(wide(x), -1), alike(1), LARGE),
    fusion("logsumexp_first", lambda x: torch.logsumexp(wide(x), 0), alike(1), (4096, 4096)),
    fusion(
        "transpose_sum",
        lambda x, y: (wide(x.t()) + y).sum(-1),
        lambda s, r: (r(*s), r(s[1], s[0])),
        (8192, 4096),
    ),
    fusion(
        "pairwise_dist",
        lambda x, y: (wide(x)[:, None] - y).square().sum(-1).sqrt(),
        lambda s, r: (r(s[0], s[2]), r(s[1], s[2])),
        (2048, 2048, 32),
    ),
    fusion(
        "masked_mean",
        lambda x, m: (wide(x) * m[:, :, None]).sum(1) / m.sum(1, keepdim=True),
        lambda s, r: (r(*s), r.mask(*s[:2])),
        (64, 512, 1024),
    ),
)

# ---- pooling -----------------------------------------------------------------------------------------------


def pooled(reduce: Callable[..., Tensor], side: int) -> Callable[[Tensor], Tensor]:
    """Squares of an image reduced to one element each."""
    return lambda x: reduce(x.unflatten(3, (-1, side)).unflatten(2, (-1, side)), (3, 5))


POOLS = (
    fusion("average_pool", pooled(torch.mean, 2), alike(1), (32, 64, 112, 112)),
    fusion("average_pool_wide", pooled(torch.mean, 4), alike(1), (32, 64, 112, 112)),
    fusion("max_pool", pooled(torch.amax, 2), alike(1), (32, 64, 112, 112)),
    fusion("global_pool", lambda x: x.mean((2, 3)), alike(1), IMAGE),
    fusion("row_pairs", lambda x: x.unflatten(1, (-1, 2)).sum(-1), alike(1), LARGE),
    fusion("sequence_pool", lambda x: x.unflatten(1, (-1, 4)).mean(2), alike(1), (32, 1024, 1024)),
)

# ---- normalizations ----------------------------------------------------------------------------------------


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    y = wide(x)
    return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + EPSILON) * weight).to(x.dtype)


def residual_rms_norm(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    total = x + residual
    return total, rms_norm(total, weight)


def standardized(*dims: int) -> Callable[[Tensor], Tensor]:
    def standardize(x: Tensor) -> Tensor:
        variance, mean = torch.var_mean(wide(x), dims, correction=0, keepdim=True)
        return ((x - mean) * torch.rsqrt(variance + EPSILON)).to(x.dtype)

    return standardize


def between_0_and_1(x: Tensor) -> Tensor:
    least, most = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    return ((wide(x) - least) / (wide(most) - least + EPSILON)).to(x.dtype)


def batch_norm(x: Tensor, mean: Tensor, variance: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.relu(F.batch_norm(x, mean, variance.abs(), weight, bias))


def group_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.group_norm(x, 32 if x.shape[1] % 32 == 0 else 2, weight, bias)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias)


NORMALIZATIONS = (
    fusion("layer_norm", layer_norm, rows_and_vectors(1, 2), LARGE, (65536, 320)),
    fusion("layer_norm_2d", lambda x: F.layer_norm(x, x.shape[-2:]), alike(1), (1024, 64, 512)),
    fusion("rms_norm", rms_norm, rows_and_vectors(1, 1), LARGE, (65536, 128)),
    fusion("residual_rms_norm", residual_rms_norm, rows_and_vectors(2, 1), LARGE, (4096, 8192)),
    fusion("residual_layer_norm", lambda x, y, w, b: layer_norm(x + y, w, b), rows_and_vectors(2, 2), LARGE),
    fusion("rms_norm_gate", lambda x, z, w: rms_norm(x, w) * F.silu(z), rows_and_vectors(2, 1), LARGE),
    fusion("instance_norm", F.instance_norm, alike(1), IMAGE),
    fusion("group_norm", group_norm, channels(2), IMAGE),
    fusion("group_norm_silu", lambda x, w, b: F.silu(group_norm(x, w, b)), channels(2), (16, 512, 64, 64)),
    fusion("batch_norm_inference", batch_norm, channels(4), IMAGE),
    fusion("standardize_first", standardized(0), alike(1), (4096, 4096), NARROW),
    fusion("standardize_middle", standardized(1), alike(1), (256, 128, 512), *SHORT_ROWS),
    fusion("standardize_02", standardized(0, 2), alike(1), (64, 512, 256)),
    fusion("l2_normalize", lambda x: F.normalize(wide(x), dim=-1).to(x.dtype), alike(1), LARGE),
    fusion("l2_normalize_first", lambda x: F.normalize(wide(x), dim=0).to(x.dtype), alike(1), (4096, 4096)),
    fusion("between_0_and_1", between_0_and_1, alike(1), LARGE),
    fusion("center_rows", lambda x: (wide(x) - wide(x).mean(-1, keepdim=True)).to(x.dtype), alike(1), LARGE),
    fusion(
        "squeeze_excite",
        lambda x: x * torch.sigmoid(wide(x).mean((2, 3), keepdim=True)).to(x.dtype),
        alike(1),
        IMAGE,
    ),
)

# ---- softmaxes and scans -----------------------------------------------------------------------------------


def softmax_backward(dy: Tensor, y: Tensor) -> Tensor:
    product = wide(dy) * y
    return (product - y * product.sum(-1, keepdim=True)).to(y.dtype)


def entropy(x: Tensor) -> Tensor:
    logarithms = F.log_softmax(wide(x), -1)
    return -(logarithms.exp() * logarithms).sum(-1)


def masked_softmax(x: Tensor, mask: Tensor) -> Tensor:
    return F.softmax((wide(x) * 0.125).masked_fill(~mask, MASKED), -1).to(x.dtype)


def mask_of_last_two(shape: Shape, r: Inputs) -> Tensors:
    return r(*shape), r.mask(*shape[-2:])


SOFTMAXES = (
    fusion("softmax_last", lambda x: F.softmax(x, -1), alike(1), LARGE, (65536, 77), (262144, 49)),
    fusion("softmax_middle", lambda x: F.softmax(x, 1), alike(1), (256, 128, 512), *SHORT_ROWS),
    fusion("softmax_first", lambda x: F.softmax(x, 0), alike(1), (1024, 16384)),
    fusion("log_softmax", lambda x: F.log_softmax(x, -1), alike(1), (16384, 2048)),
    fusion("softmin", lambda x: F.softmin(x, -1), alike(1), MEDIUM),
    fusion("softmax_temperature", lambda x: F.softmax(wide(x) / 0.7, -1).to(x.dtype), alike(1), LARGE),
    fusion("masked_softmax", masked_softmax, mask_of_last_two, (8, 16, 512, 512)),
    fusion("softmax_backward", softmax_backward, alike(2), LARGE, MEDIUM),
    fusion("entropy", entropy, alike(1), LARGE),
    fusion("router", lambda x: F.softmax(wide(x), -1).amax(-1), alike(1), (131072, 64)),
    fusion("cumsum", lambda x: wide(x).cumsum(-1), alike(1), (16384, 2048)),
    fusion(
        "cumsum_scaled",
        lambda x: (torch.exp(wide(x).mul(0.01).cumsum(-1)) * x).to(x.dtype),
        alike(1),
        (16384, 2048),
    ),
    fusion("cumsum_first", lambda x: wide(x).cumsum(0), alike(1), (2048, 4096)),
    fusion("softmax_cumsum", lambda x: F.softmax(wide(x), -1).cumsum(-1).to(x.dtype), alike(1), (8192, 4096)),
    fusion("cumprod", lambda x: (1 + 0.001 * wide(x)).cumprod(-1), alike(1), MEDIUM),
)

REDUCTIONS: tuple[Operation, ...] = (*SUMS, *POOLS, *NORMALIZATIONS, *SOFTMAXES)
