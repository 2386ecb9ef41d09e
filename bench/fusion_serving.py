"""Rows of the catalogue from language models as they are served and trained, written by no one's schedules.

They were drawn to see what nothing had been tuned for does; here are those that told most.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from bench.fusion import alike, float8, fusion
from bench.operation import EPSILON, Inputs, Operation, Shape, Tensors, wide

Tensor = torch.Tensor
FLOAT = torch.float32


def positions(count: int, like: Tensor) -> Tensor:
    return torch.arange(count, device=like.device)


# ---- tokens ------------------------------------------------------------------------------------------------


def two_experts(x: Tensor) -> Tensor:
    """Shares of the two likeliest experts, found without a sort."""
    p = F.softmax(wide(x), -1)
    first = p.amax(-1, keepdim=True)
    second = p.masked_fill(p >= first, -1.0).amax(-1, keepdim=True)
    kept = torch.where(p >= second, p, 0.0)
    return kept / kept.sum(-1, keepdim=True)


def bisected(x: Tensor) -> Tensor:
    """About the 64 largest of each row, by bisection."""
    y = wide(x)
    low, high = y.amin(-1, keepdim=True), y.amax(-1, keepdim=True)
    for _ in range(6):
        middle = (low + high) / 2
        many = (y > middle).sum(-1, keepdim=True) > 64
        low, high = torch.where(many, middle, low), torch.where(many, high, middle)
    return torch.where(y > low, y, 0.0).to(x.dtype)


def logarithm_and_rank(x: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
    chosen = wide(x).gather(-1, token[:, None])
    return chosen[:, 0] - torch.logsumexp(wide(x), -1), (wide(x) > chosen).sum(-1)


def grammar(x: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
    """The likeliest token that a bit allows."""
    bits = (words[..., None] >> torch.arange(32, device=x.device, dtype=torch.int32)) & 1
    allowed = torch.where(bits.flatten(-2) != 0, wide(x), float("-inf"))
    return allowed.argmax(-1), allowed.amax(-1)


def speculative(target: Tensor, draft: Tensor, token: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor]:
    """Which drafted tokens stay, and what to draw from where one does not."""
    one = token[..., None]
    ratio = target.gather(-1, one)[..., 0] / draft.gather(-1, one)[..., 0]
    rest = F.relu(target - draft)
    return drawn < ratio, rest / rest.sum(-1, keepdim=True)


def drafted(s: Shape, r: Inputs) -> Tensors:
    both = (F.softmax(r(*s, dtype=FLOAT), -1) for _ in range(2))
    return *both, r.indices(s[-1], *s[:2]), r(*s[:2], dtype=FLOAT).sigmoid()


def queue_loss(near: Tensor, queue: Tensor) -> Tensor:
    """MoCo: the first of each row is to be the largest."""
    both = torch.cat([near, queue], 1)
    return (torch.logsumexp(wide(both) / 0.07, -1) - wide(near)[:, 0] / 0.07).mean()


def bit_codes(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Signs as a code, and how sure they are."""
    p = torch.sigmoid(4 * wide(z))
    sure = (p * torch.log(p + 1e-6) + (1 - p) * torch.log(1 - p + 1e-6)).sum(-1).mean()
    above = wide(z) > 0
    code = (above * 2 ** positions(z.shape[-1], z)).sum(-1)
    return sure, code, torch.where(above, 1.0, -1.0).to(z.dtype)


TOKENS = (
    fusion("two_experts", two_experts, alike(1), (16384, 60)),
    fusion("bisected", bisected, alike(1), (4096, 4096), (128, 32000), small=(3, 160)),
    fusion(
        "logarithm_and_rank",
        logarithm_and_rank,
        lambda s, r: (r(*s), r.indices(s[1], s[0])),
        (128, 152064),
    ),
    fusion(
        "grammar",
        grammar,
        lambda s, r: (r(*s), r.indices(2**31, s[0], s[1] // 32).to(torch.int32)),
        (32, 151936),
        small=(3, 96),
    ),
    fusion("speculative", speculative, drafted, (16, 5, 32000), small=(2, 3, 33)),
    fusion("queue_loss", queue_loss, lambda s, r: (r(s[0], 1), r(*s)), (256, 65536)),
    fusion("bit_codes", bit_codes, alike(1), (65536, 18)),
)

# ---- caches and positions ----------------------------------------------------------------------------------


def paged(cache: Tensor, table: Tensor, scale: Tensor) -> Tensor:
    """Keys of float8 by their pages, heads first."""
    read = cache[table].to(scale.dtype) * scale
    return read.flatten(1, 2).transpose(1, 2).contiguous().to(torch.bfloat16)


def pages(s: Shape, r: Inputs) -> Tensors:
    return float8(r(*s)), r.indices(s[0], 4, s[0] // 16), r(s[2], 1, dtype=FLOAT)


def paged_write(cache: Tensor, slots: Tensor, keys: Tensor, scale: Tensor) -> Tensor:
    """New keys to their places in a cache of float8."""
    narrow = (wide(keys) * scale).clamp(-448, 448).to(torch.float8_e4m3fn).to(cache.dtype)
    return torch.index_put(cache, (slots,), narrow)


def written(s: Shape, r: Inputs) -> Tensors:
    new = s[0] // 16
    return float8(r(*s)), r.distinct(s[0], new), r(new, *s[1:]), r(1, dtype=FLOAT)[0]


def decoded_scores(x: Tensor, lengths: Tensor, slope: Tensor, sink: Tensor) -> Tensor:
    """Of one query a group: a window, ALiBi, a cap and a sink; [batch, head, group, 1, keys]."""
    last, at = lengths[:, None] - 1, positions(x.shape[-1], x)
    bias = (slope[:, None] * (at - last)[:, None, None, :].to(slope.dtype))[:, :, :, None]
    seen = ((at <= last) & (at > last - 4096))[:, None, None, None]
    y = torch.where(seen, 30 * torch.tanh(wide(x) / 30) + bias, float("-inf"))
    sink = sink[:, :, None, None]
    most = torch.maximum(y.amax(-1, keepdim=True), sink)
    e = torch.exp(y - most)
    return (e / (e.sum(-1, keepdim=True) + torch.exp(sink - most))).to(x.dtype)


def of_one_query(s: Shape, r: Inputs) -> Tensors:
    return r(*s), r.indices(s[-1] - 1, s[0]) + 1, -r(s[2], dtype=FLOAT).abs() * 0.01, r(*s[1:3], dtype=FLOAT)


def latent(kv: Tensor, weight: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """MLA: a norm of the latent part of each row, a rotation of the rest."""
    rest = 2 * cosine.shape[-1]
    content, turned = kv.split([kv.shape[-1] - rest, rest], -1)
    a, b = wide(turned)[..., ::2], wide(turned)[..., 1::2]
    rotated = torch.stack([a * cosine - b * sine, a * sine + b * cosine], -1).flatten(-2)
    x = wide(content)
    normal = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON) * weight
    return torch.cat([normal, rotated], -1).to(kv.dtype)


def latent_in(s: Shape, r: Inputs) -> Tensors:
    half = s[-1] // 18
    return r(*s), r(s[-1] - 2 * half), r(s[1], half, dtype=FLOAT), r(s[1], half, dtype=FLOAT)


def keys_of_four_bits(k: Tensor) -> Tensors:
    """KIVI: scales for 32 tokens of a channel, two channels a byte."""
    groups = wide(k).unflatten(2, (-1, 32))
    least, most = groups.amin(3, keepdim=True), groups.amax(3, keepdim=True)
    scale = (most - least).clamp(min=1e-5) / 15
    q = ((groups - least) / scale).round().to(torch.uint8).flatten(2, 3)
    return least.squeeze(3), scale.squeeze(3), q[..., ::2] | (q[..., 1::2] << 4)


def relative_buckets(x: Tensor, table: Tensor) -> Tensor:
    """T5: a bias for each bucket of distances, finer near by, before a softmax."""
    rows, columns = x.shape[-2:]
    apart = positions(columns, x)[None] - positions(rows, x)[:, None]
    size = apart.abs()
    far = 8 + (torch.log(size.clamp(min=1).to(FLOAT) / 8) / 2.7725887 * 8).to(torch.int64)
    bucket = torch.where(apart > 0, 16, 0) + torch.where(size < 8, size, far.clamp(max=15))
    return F.softmax(wide(x) + table[bucket].permute(2, 0, 1), -1).to(x.dtype)


def norm_of_queries_gradient(
    grad: Tensor, x: Tensor, weight: Tensor, cosine: Tensor, sine: Tensor
) -> tuple[Tensor, Tensor]:
    """Through a rotation and an RMS norm of each head; angles are the same for all heads."""
    a, b = wide(grad).chunk(2, -1)
    grad = torch.cat([a * cosine + b * sine, b * cosine - a * sine], -1)
    scale = torch.rsqrt(wide(x).square().mean(-1, keepdim=True) + EPSILON)
    normal = wide(x) * scale
    of_weight = (grad * normal).sum((0, 1, 2))
    grad = grad * weight
    return of_weight, (scale * (grad - normal * (grad * normal).mean(-1, keepdim=True))).to(x.dtype)


def turned_heads(s: Shape, r: Inputs) -> Tensors:
    angles = (r(s[1], 1, s[3] // 2, dtype=FLOAT) for _ in range(2))
    return r(*s), r(*s), r(s[3], dtype=FLOAT), *angles


def rope_of_images(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Half of a head turns by its row, half by its column, by angles whose functions are taken here."""
    a, b = wide(x).unflatten(-1, (2, 2, -1)).unbind(-2)
    high, across = rows.shape[0], columns.shape[0]

    def table(function: Callable[[Tensor], Tensor]) -> Tensor:
        of_rows = function(rows)[:, None].expand(-1, across, -1)
        of_columns = function(columns)[None].expand(high, -1, -1)
        return torch.stack([of_rows, of_columns], -2).flatten(0, 1)

    cosine, sine = table(torch.cos), table(torch.sin)
    return torch.stack([a * cosine - b * sine, b * cosine + a * sine], -2).flatten(-3).to(x.dtype)


def image_angles(s: Shape, r: Inputs) -> Tensors:
    side = int(s[2] ** 0.5)
    return r(*s), r(side, s[3] // 4, dtype=FLOAT), r(side, s[3] // 4, dtype=FLOAT)


CACHES = (
    fusion("paged", paged, pages, (2048, 16, 8, 128), small=(32, 4, 3, 16)),
    fusion("paged_write", paged_write, written, (65536, 8, 128), small=(64, 3, 16)),
    fusion("decoded_scores", decoded_scores, of_one_query, (32, 8, 4, 1, 8191), small=(2, 3, 2, 1, 33)),
    fusion("latent_keys", latent, latent_in, (4, 4096, 576), (64, 1, 576), small=(2, 5, 36)),
    fusion("keys_of_four_bits", keys_of_four_bits, alike(1), (4, 32, 2048, 128), small=(2, 3, 64, 16)),
    fusion(
        "relative_buckets",
        relative_buckets,
        lambda s, r: (r(*s), r(32, s[1], dtype=FLOAT)),
        (8, 12, 512, 512),
        small=(2, 3, 17, 20),
    ),
    fusion(
        "norm_of_queries_gradient",
        norm_of_queries_gradient,
        turned_heads,
        (4, 2048, 16, 128),
        small=(2, 5, 3, 16),
    ),
    fusion("rope_of_images", rope_of_images, image_angles, (8, 16, 1024, 64), small=(2, 3, 9, 16)),
)

# ---- formats, steps and states -----------------------------------------------------------------------------


def gradient_both_ways(grad: Tensor, scale: Tensor) -> Tensors:
    """float8 as it is and transposed, its sums of columns, and the largest value."""
    y = (wide(grad) * scale).to(torch.float8_e5m2)
    return y, y.t().contiguous(), wide(grad).sum(0), wide(grad).abs().amax()


def hadamard(x: Tensor) -> tuple[Tensor, Tensor]:
    """Eight neighbours each, in three steps of sums and differences, then int4 by rows."""
    y = wide(x)
    for step in range(3):
        a, b = y.unflatten(-1, (-1, 2, 2**step)).unbind(-2)
        y = torch.stack([a + b, a - b], -2).flatten(-3)
    scale = y.abs().amax(-1, keepdim=True) / 7
    return scale, (y / scale).round().to(torch.int8)


def confident(grad: Tensor, rows: Tensor, columns: Tensor) -> Tensors:
    """CAME: factored second moments, and an update of bounded size."""
    g = wide(grad)
    squares = g * g + 1e-30
    rows = 0.999 * rows + 0.001 * squares.mean(-1)
    columns = 0.999 * columns + 0.001 * squares.mean(-2)
    update = g * torch.rsqrt(rows / rows.mean())[:, None] * torch.rsqrt(columns)[None]
    return rows, columns, update / update.square().mean().sqrt().clamp(min=1.0)


def delta_rule(
    state: Tensor, query: Tensor, key: Tensor, value: Tensor, decay: Tensor, rate: Tensor
) -> Tensors:
    """One step of a gated delta rule: [batch, head, keys, values]."""
    state = state * decay.exp()[..., None, None]
    key = F.normalize(wide(key), dim=-1)
    change = (value - (state * key[..., None]).sum(-2)) * rate[..., None]
    state = state + key[..., None] * change[..., None, :]
    return state, (state * query[..., None]).sum(-2).to(query.dtype)


def delta_in(s: Shape, r: Inputs) -> Tensors:
    heads = (-r(*s[:2], dtype=FLOAT).abs(), r(*s[:2], dtype=FLOAT).sigmoid())
    return r(*s, dtype=FLOAT), r(*s[:3]), r(*s[:3]), r(*s[:2], s[3]), *heads


def hyper_connections(x: Tensor, logits: Tensor, y: Tensor, weights: Tensor) -> Tensor:
    """Streams mixed by matrices whose rows and columns add up to 1 in the end."""
    mix = torch.exp(logits)
    for _ in range(3):
        mix = mix / mix.sum(-1, keepdim=True)
        mix = mix / mix.sum(-2, keepdim=True)
    mixed = (mix[..., None] * wide(x)[..., None, :, :]).sum(-2)
    return (mixed + weights[..., None] * wide(y)[..., None, :]).to(x.dtype)


def streams(s: Shape, r: Inputs) -> Tensors:
    return r(*s), r(*s[:2], s[2], s[2], dtype=FLOAT), r(*s[:2], s[3]), r(*s[:3], dtype=FLOAT)


def table_of_angles(angles: Tensor, frequencies: Tensor) -> Tensor:
    turned = angles[:, None] * frequencies
    return torch.cat([turned.cos(), turned.sin()], -1).to(torch.bfloat16)


STEPS = (
    fusion(
        "gradient_both_ways",
        gradient_both_ways,
        lambda s, r: (r(*s), r(1, dtype=FLOAT)[0]),
        (8192, 4096),
    ),
    fusion("hadamard_bytes", hadamard, alike(1), (8192, 4096), small=(3, 64)),
    fusion(
        "confident",
        confident,
        lambda s, r: (r(*s), *(r(size, dtype=FLOAT).abs() + 0.1 for size in s)),
        (4096, 4096),
    ),
    fusion("delta_rule", delta_rule, delta_in, (32, 32, 128, 128), small=(2, 3, 8, 16)),
    fusion("hyper_connections", hyper_connections, streams, (1, 4096, 4, 2048), small=(2, 3, 4, 16)),
    fusion(
        "table_of_angles",
        table_of_angles,
        lambda s, r: tuple(r(size, dtype=FLOAT).abs() for size in s),
        (64, 160),
    ),
)

SERVING: tuple[Operation, ...] = (*TOKENS, *CACHES, *STEPS)
