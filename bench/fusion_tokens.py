"""Rows of the catalogue from language models: losses' parts, routing, four bits, packed heads, streams."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from bench.fusion import LARGE, MEDIUM, alike, float8, fusion
from bench.operation import EPSILON, Inputs, Operation, Shape, Tensors, wide

Tensor = torch.Tensor
FLOAT = torch.float32


def normal(x: Tensor) -> Tensor:
    """RMS norm of the last dimension."""
    return wide(x) * torch.rsqrt(wide(x).square().mean(-1, keepdim=True) + EPSILON)


# ---- tokens ------------------------------------------------------------------------------------------------


def scores_and_entropy(x: Tensor, token: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
    """What policy gradients need of each row of logits."""
    logarithm = F.log_softmax(wide(x) / temperature[:, None], -1)
    return logarithm.gather(1, token[:, None])[:, 0], -(logarithm.exp() * logarithm).sum(-1)


def drawn(s: Shape, r: Inputs) -> Tensors:
    return r(*s), r.indices(s[1], s[0]), r(s[0], dtype=FLOAT).abs() + 0.5


def within_deviations(x: Tensor) -> Tensor:
    """Top-n-sigma: what is far below the largest, by the deviation of the row, goes."""
    y = wide(x) / 0.7
    least = y.amax(-1, keepdim=True) - 1.5 * y.std(-1, keepdim=True)
    return F.softmax(y.masked_fill(y < least, float("-inf")), -1)


def capacity(expert: Tensor, p: Tensor) -> Tensors:
    """Places of tokens at their experts, of which each takes 320."""
    chosen = F.one_hot(expert, p.shape[1])
    place = (chosen.cumsum(0) - 1) * chosen
    kept = chosen * (place < 320)
    return (place * kept).sum(-1), kept.sum(0), (p * kept).sum(-1)


def from_experts_backward(grad: Tensor, y: Tensor, weight: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
    """Of what experts computed for each token, weighted and added up."""
    of_token = wide(grad)[token]
    return (of_token * weight[:, None]).to(grad.dtype), (of_token * y).sum(-1)


def expert_gradients(s: Shape, r: Inputs) -> Tensors:
    tokens = s[0] // 8
    return r(tokens, s[1]), r(*s), r(s[0], dtype=FLOAT), r.indices(tokens, s[0])


def last_tokens(x: Tensor, last: Tensor) -> Tensor:
    """Embeddings of texts: one row of each, of length one."""
    return F.normalize(wide(x)[torch.arange(x.shape[0], device=x.device), last], dim=-1)


ROWS_OF_TOKENS = (
    fusion("scores_and_entropy", scores_and_entropy, drawn, (1024, 151936), (8192, 32001), small=(3, 97)),
    fusion("within_deviations", within_deviations, alike(1), (64, 151936), small=(3, 97)),
    fusion(
        "capacity",
        capacity,
        lambda s, r: (r.indices(s[1], s[0]), r(*s, dtype=FLOAT)),
        (16384, 64),
        small=(9, 8),
    ),
    fusion("from_experts_backward", from_experts_backward, expert_gradients, (32768, 2048), small=(16, 24)),
    fusion(
        "last_tokens",
        last_tokens,
        lambda s, r: (r(*s), r.indices(s[1], s[0])),
        (64, 512, 4096),
        small=(3, 5, 64),
    ),
)

# ---- four bits ---------------------------------------------------------------------------------------------


def zero_points_of_four_bits(w: Tensor) -> Tensors:
    """Groups of 128 with a scale and a zero point, two values a byte."""
    groups = wide(w).unflatten(-1, (-1, 128))
    least, most = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    scale = (most - least).clamp(min=1e-5) / 15
    zero = (-torch.round(least / scale)).clamp(0, 15)
    q = (torch.round(groups / scale) + zero).clamp(0, 15).to(torch.uint8).flatten(-2)
    return q[:, ::2] | (q[:, 1::2] << 4), scale[..., 0].to(w.dtype), zero[..., 0].to(w.dtype)


def nearest_of_sixteen(w: Tensor, levels: Tensor) -> tuple[Tensor, Tensor]:
    """NF4: the nearest of 16 levels for blocks of 64, two values a byte."""
    blocks = wide(w).reshape(-1, 64)
    scale = blocks.abs().amax(-1, keepdim=True)
    q = ((blocks / scale)[..., None] - levels).abs().argmin(-1).to(torch.uint8).view(-1, 2)
    return (q[:, 0] << 4) | q[:, 1], scale[:, 0]


def blocks_and_levels(s: Shape, r: Inputs) -> Tensors:
    return r(*s), torch.sort(r(16, dtype=FLOAT).tanh())[0]


def nvfp4(x: Tensor, whole: Tensor) -> tuple[Tensor, Tensor]:
    """Blocks of 16 with a float8 scale, under one of the whole tensor; two values a byte."""
    blocks = wide(x).unflatten(-1, (-1, 16))
    scale = float8((blocks.abs().amax(-1, keepdim=True) / 6 * whole).clamp(max=448))
    y = blocks / (scale.to(blocks.dtype) / whole).clamp(min=1e-8)
    size = sum((y.abs() > bound).to(torch.uint8) for bound in (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0))
    q = (size | ((y < 0).to(torch.uint8) << 3)).flatten(-2)
    return q[:, ::2] | (q[:, 1::2] << 4), scale[..., 0]


FOUR_BITS = (
    fusion("zero_points_of_four_bits", zero_points_of_four_bits, alike(1), (4096, 11008), small=(3, 256)),
    fusion("nearest_of_sixteen", nearest_of_sixteen, blocks_and_levels, (4096, 4096), small=(3, 128)),
    fusion(
        "nvfp4",
        nvfp4,
        lambda s, r: (r(*s), r(1, dtype=FLOAT)[0].abs() + 1),
        (8192, 4096),
        small=(3, 64),
    ),
)

# ---- heads and streams -------------------------------------------------------------------------------------


def grouped_heads(x: Tensor, queries: Tensor, keys: Tensor, cosine: Tensor, sine: Tensor) -> Tensors:
    """Four queries a key and a value in one row: norms and rotations of heads, values as they are."""
    size = queries.shape[0]
    heads = x.shape[1] // size
    q, k, v = x.view(-1, heads, size).split([heads * 2 // 3, heads // 6, heads // 6], 1)

    def turned(part: Tensor, weight: Tensor) -> Tensor:
        a, b = (normal(part) * weight).chunk(2, -1)
        c, s = cosine[:, None], sine[:, None]
        return torch.cat([a * c - b * s, b * c + a * s], -1).to(x.dtype)

    return turned(q, queries), turned(k, keys), v.contiguous()


def grouped_heads_in(s: Shape, r: Inputs) -> Tensors:
    angles = (r(s[0], s[2] // 2, dtype=FLOAT) for _ in range(2))
    return r(s[0], s[1] * s[2]), r(s[2]), r(s[2]), *angles


def norms_of_heads(qkv: Tensor, *weights: Tensor) -> Tensors:
    """Layer norms of queries and keys out of one projection; heads to the front."""
    size = weights[0].shape[0]
    q, k, _ = qkv.unflatten(-1, (3, -1, size)).unbind(2)
    made = (F.layer_norm(part, (size,), *weights[i : i + 2]) for i, part in ((0, q), (2, k)))
    return tuple(part.transpose(1, 2).contiguous() for part in made)


def powers_normed(x: Tensor, weights: Tensor, bias: Tensor) -> Tensor:
    """PolyNorm: norms of three powers of a row, added up."""
    y = wide(x)
    return (sum(weights[i] * normal(y ** (3 - i)) for i in range(3)) + bias).to(x.dtype)


def predicted_streams(x: Tensor, mix: Tensor, active: Tensor, gain: Tensor) -> Tensor:
    """AltUp: streams mixed by a matrix a token, then corrected by what became of the first."""
    made = x + (wide(x)[None] * wide(mix).permute(2, 1, 0)[..., None]).sum(1)
    return (made + (wide(active) - made[0]) * (wide(gain).t()[..., None] + 1)).to(x.dtype)


def streams_in(s: Shape, r: Inputs) -> Tensors:
    return r(*s), r(s[1], s[0], s[0]), r(s[1], s[2]), r(s[1], s[0])


def earlier_layers(layers: Tensor, query: Tensor) -> Tensor:
    """A weighted sum over layers by a softmax of what a query finds in their norms."""
    share = F.softmax((normal(layers) * query).sum(-1), 0)
    return (wide(layers) * share[..., None]).sum(0).to(layers.dtype)


STREAMS = (
    fusion("grouped_heads", grouped_heads, grouped_heads_in, (4096, 48, 96), small=(5, 6, 16)),
    fusion(
        "norms_of_heads",
        norms_of_heads,
        lambda s, r: (r(s[0], s[1], 3 * s[2] * s[3]), *(r(s[3]) for _ in range(4))),
        (4, 2048, 32, 80),
        (8, 1024, 16, 127),
        small=(2, 5, 3, 16),
    ),
    fusion(
        "powers_normed",
        powers_normed,
        lambda s, r: (r(*s), r(3, dtype=FLOAT), r(1, dtype=FLOAT)),
        MEDIUM,
        LARGE,
    ),
    fusion("predicted_streams", predicted_streams, streams_in, (4, 8192, 2048), small=(4, 5, 64)),
    fusion(
        "earlier_layers",
        earlier_layers,
        lambda s, r: (r(*s), r(s[2], dtype=FLOAT)),
        (9, 4096, 2048),
        small=(5, 6, 64),
    ),
)

TOKENS: tuple[Operation, ...] = (*ROWS_OF_TOKENS, *FOUR_BITS, *STREAMS)
