"""Rows of the catalogue from language models: scores, caches, experts, chains of norms, weights' formats."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from bench.fusion import LARGE, MEDIUM, MakesInputs, alike, float8, fusion, rows_and_vectors
from bench.operation import EPSILON, Inputs, Operation, Shape, Tensors, wide

Tensor = torch.Tensor

# ---- scores ------------------------------------------------------------------------------------------------


def grouped_scores(x: Tensor, bias: Tensor, kept: Tensor) -> Tensor:
    """Queries in groups that share a key: [batch, keys' heads, group, rows, columns], with dropout."""
    p = F.softmax(wide(x) * 0.125 + bias[:, None, None], -1)
    return (p * kept / 0.9).to(x.dtype)


def grouped(s: Shape, r: Inputs) -> Tensors:
    return r(*s), r(s[0], *s[3:]), r.mask(*s)


def talking_heads(x: Tensor) -> Tensor:
    """A softmax over heads."""
    return F.softmax(wide(x), 1).to(x.dtype)


def causal_backward(grad: Tensor, p: Tensor) -> Tensor:
    rows = p.shape[-1]
    below = torch.ones(rows, rows, dtype=torch.bool, device=p.device).tril()
    dot = (wide(grad) * p).sum(-1, keepdim=True)
    return torch.where(below, 0.125 * p * (grad - dot), 0.0).to(p.dtype)


def merged_partials(a: Tensor, b: Tensor, log_a: Tensor, log_b: Tensor) -> tuple[Tensor, Tensor]:
    """Two parts of an attention, each over half of the keys, as one."""
    both = torch.logaddexp(log_a, log_b)
    share = torch.exp(log_a - both)[..., None]
    return both, (share * a + (1 - share) * b).to(a.dtype)


def partials(s: Shape, r: Inputs) -> Tensors:
    return r(*s), r(*s), r(*s[:-1], dtype=torch.float32), r(*s[:-1], dtype=torch.float32)


def merged_splits(parts: Tensor, logarithms: Tensor) -> Tensor:
    """As many parts as the first dimension says."""
    share = F.softmax(logarithms, 0)
    return (parts * share[..., None]).sum(0).to(torch.bfloat16)


def attention_delta(grad: Tensor, out: Tensor) -> Tensor:
    """What the gradient of attention needs of each row; heads move to the front."""
    return (wide(grad) * out).sum(-1).transpose(1, 2).contiguous()


def linear_features(x: Tensor) -> tuple[Tensor, Tensor]:
    """Positive features of keys and their sums, as in linear attention."""
    features = F.elu(wide(x)) + 1
    return features.to(x.dtype), features.sum(2)


def normed_queries(qkv: Tensor, weight: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and keys out of a packed projection: RMS norm of heads, positions, heads to the front."""
    made = []
    for part in qkv.unbind(2)[:2]:
        x = wide(part)
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON) * weight
        a, b = x.chunk(2, -1)
        turned = torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1)
        made.append(turned.to(qkv.dtype).transpose(1, 2).contiguous())
    return made[0], made[1]


def packed(s: Shape, r: Inputs) -> Tensors:
    angles = (r(s[1], 1, s[-1] // 2, dtype=torch.float32) for _ in range(2))
    return r(*s), r(s[-1]), *angles


def cached_bytes(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Keys as int8, with a scale for each head of each token; heads come to the front."""
    x = wide(keys).transpose(1, 2)
    scale = x.abs().amax(-1, keepdim=True) / 127
    return scale, (x / scale).round().to(torch.int8)


def cached_back(x: Tensor, scale: Tensor) -> Tensor:
    return (x.to(torch.float32) * scale).to(torch.bfloat16).transpose(2, 3).contiguous()


def bytes_cached(s: Shape, r: Inputs) -> Tensors:
    return (r.indices(255, *s) - 127).to(torch.int8), r(*s[:-1], 1, dtype=torch.float32)


HEADS, SMALL_HEADS = (4, 2048, 32, 128), (2, 6, 3, 16)
SCORES = (
    fusion("grouped_scores", grouped_scores, grouped, (4, 4, 4, 1024, 1024), small=(2, 2, 2, 5, 32)),
    fusion("talking_heads", talking_heads, alike(1), (8, 16, 512, 512), (8, 12, 197, 197)),
    fusion("causal_backward", causal_backward, alike(2), (4, 8, 1024, 1024), small=(2, 2, 24, 24)),
    fusion("merged_partials", merged_partials, partials, HEADS, small=SMALL_HEADS),
    fusion(
        "merged_splits",
        merged_splits,
        lambda s, r: (r(*s, dtype=torch.float32), r(*s[:-1], dtype=torch.float32)),
        (8, 256, 32, 128),
        small=(4, 3, 2, 16),
    ),
    fusion("attention_delta", attention_delta, alike(2), HEADS, small=SMALL_HEADS),
    fusion("linear_features", linear_features, alike(1), (4, 32, 2048, 64), small=(2, 3, 24, 16)),
    fusion("normed_queries", normed_queries, packed, (4, 2048, 3, 16, 128), small=(2, 6, 3, 3, 16)),
    fusion("cached_bytes", cached_bytes, alike(1), HEADS, small=SMALL_HEADS),
    fusion("cached_back", cached_back, bytes_cached, (4, 8, 2048, 128), small=(2, 3, 24, 16)),
)

# ---- experts and tokens ------------------------------------------------------------------------------------


def gating(x: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Weights of the chosen experts, and the loss that keeps logits small."""
    p = F.softmax(wide(x), -1)
    weights = p.gather(-1, chosen)
    return weights / weights.sum(-1, keepdim=True), torch.logsumexp(wide(x), -1).square().mean()


def chosen_experts(s: Shape, r: Inputs) -> Tensors:
    return r(*s), r.indices(s[-1], s[0], 8)


def sigmoid_gating(x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Scores, and the best two of each group of experts summed, as groups are chosen by."""
    scores = torch.sigmoid(wide(x))
    groups = (scores + bias).unflatten(-1, (8, -1))
    first = groups.amax(-1, keepdim=True)
    second = groups.masked_fill(groups == first, -1e9).amax(-1)
    return scores, first[..., 0] + second


def gate_backward(grad: Tensor, gate: Tensor, up: Tensor) -> Tensor:
    """Of SwiGLU, both parts side by side as the projection gave them."""
    s = torch.sigmoid(wide(gate))
    of_gate = grad * up * s * (1 + gate * (1 - s))
    return torch.cat([of_gate, grad * gate * s], -1).to(grad.dtype)


def geglu_backward(grad: Tensor, both: Tensor) -> Tensor:
    x, gate = wide(both).chunk(2, -1)
    normal = 0.5 * (1 + torch.erf(gate * 0.70710678))
    slope = normal + gate * torch.exp(-0.5 * gate * gate) * 0.3989423
    return torch.cat([grad * gate * normal, grad * x * slope], -1).to(both.dtype)


def limited_swiglu(both: Tensor) -> Tensor:
    """Of interleaved halves with bounds, as GPT-OSS has it."""
    gate, up = wide(both)[..., ::2].clamp(max=7.0), wide(both)[..., 1::2].clamp(-7.0, 7.0)
    return ((up + 1) * gate * torch.sigmoid(1.702 * gate)).to(both.dtype)


def short_convolution(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A causal convolution of each channel over four tokens, as in Mamba."""
    tokens = x.shape[1]
    before = F.pad(wide(x), (0, 0, 3, 0))
    total = bias + sum(before[:, i : i + tokens] * weight[:, i] for i in range(4))
    return F.silu(total).to(x.dtype)


def group_norm_gated(x: Tensor, gate: Tensor, weight: Tensor) -> Tensor:
    """RMS norm of each head after a gate, as in Mamba 2."""
    y = (wide(x) * F.silu(wide(gate))).unflatten(-1, (8, -1))
    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + EPSILON)
    return (y.flatten(-2) * weight).to(x.dtype)


def shared_mix(x: Tensor, mixes: Tensor) -> tuple[Tensor, ...]:
    """RWKV: five mixtures of each token with the one before."""
    before = F.pad(x, (0, 0, 1, 0))[:, :-1] - x
    return tuple(x + before * mix for mix in mixes.unbind(0))


def sandwich(x: Tensor, residual: Tensor, after: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
    """A norm after a block, the sum, and the norm before the next one, as in Gemma."""

    def normal(t: Tensor, weight: Tensor) -> Tensor:
        return wide(t) * torch.rsqrt(wide(t).square().mean(-1, keepdim=True) + EPSILON) * (1 + wide(weight))

    total = residual + normal(x, after)
    return total.to(x.dtype), normal(total, before).to(x.dtype)


def pooled(x: Tensor, mask: Tensor) -> Tensor:
    """Embeddings of sentences: the mean of the tokens there are, of length one."""
    y = (wide(x) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)
    return F.normalize(y, dim=-1).to(x.dtype)


def lora(x: Tensor, low: Tensor, kept: Tensor, gain: Tensor) -> Tensor:
    """DoRA: rows of a weight, and what is added to it, at a learned length."""
    total = wide(x) + 2.0 * low
    return (total * (gain[:, None] / total.square().sum(-1, keepdim=True).sqrt()) * kept).to(x.dtype)


def lora_in(s: Shape, r: Inputs) -> Tensors:
    return r(*s), r(*s), r(s[-1]), r(s[0])


def penalized(x: Tensor, seen: Tensor, temperature: Tensor) -> Tensor:
    """Logits before a draw: what was seen is less likely; a temperature a row."""
    y = torch.where(seen, torch.where(x > 0, x / 1.2, x * 1.2), x)
    return F.softmax(wide(y) / temperature[:, None], -1)


def logits_seen(s: Shape, r: Inputs) -> Tensors:
    return r(*s), ~r.mask(*s), r(s[0], dtype=torch.float32).abs() + 0.5


def least_probable(x: Tensor) -> Tensor:
    """min-p: what is less probable than a tenth of the best goes."""
    p = F.softmax(wide(x), -1)
    return x.masked_fill(p < 0.1 * p.amax(-1, keepdim=True), -1e4)


EXPERTS = (
    fusion("gating", gating, chosen_experts, (65536, 128)),
    fusion("sigmoid_gating", sigmoid_gating, lambda s, r: (r(*s), r(s[-1])), (32768, 256)),
    fusion("gate_backward", gate_backward, alike(3), (8192, 2816)),
    fusion("geglu_backward", geglu_backward, lambda s, r: (r(*s), r(s[0], 2 * s[1])), (8192, 2816)),
    fusion("limited_swiglu", limited_swiglu, alike(1), (8192, 5760)),
    fusion(
        "short_convolution", short_convolution, lambda s, r: (r(*s), r(s[-1], 4), r(s[-1])), (8, 2048, 1536)
    ),
    fusion("mamba_norm", group_norm_gated, rows_and_vectors(2, 1), (16384, 2048)),
    fusion("rwkv_mix", shared_mix, lambda s, r: (r(*s), r(5, s[-1])), (8, 1024, 2048)),
    fusion("sandwich_norm", sandwich, rows_and_vectors(2, 2), (8192, 3584)),
    fusion("pooled", pooled, lambda s, r: (r(*s), r.mask(*s[:2])), (256, 128, 768)),
    fusion("dora", lora, lora_in, (4096, 4096), (11008, 4096)),
    fusion("penalized", penalized, logits_seen, (256, 128256)),
    fusion("min_p", least_probable, alike(1), (256, 128256), (1000, 32001)),
)

# ---- formats -----------------------------------------------------------------------------------------------


def weight_bytes(w: Tensor) -> tuple[Tensor, Tensor]:
    """Of a convolution, a scale for each output channel."""
    scale = wide(w).abs().amax((1, 2, 3), keepdim=True) / 127
    return scale, (w / scale).round().clamp(-127, 127).to(torch.int8)


def zero_points(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """uint8 with a zero point for groups of 128."""
    groups = wide(x).unflatten(-1, (-1, 128))
    least, most = torch.aminmax(groups, dim=-1, keepdim=True)
    scale = (most - least).clamp(min=1e-5) / 255
    zero = (-least / scale).round()
    return scale, zero, (groups / scale + zero).round().clamp(0, 255).to(torch.uint8).view(x.shape)


def squares_of_weights(w: Tensor) -> tuple[Tensor, Tensor]:
    """float8 of squares of 128 x 128, and the transposed squares' values for the backward pass."""
    rows, columns = w.shape
    parts = wide(w).view(rows // 128, 128, columns // 128, 128)
    scale = parts.abs().amax((1, 3), keepdim=True) / 448
    return float8((parts / scale).view(w.shape)), scale[:, 0, :, 0]


def both_ways(x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """float8 in rows and in columns, and the largest value for the next step's scale."""
    y = float8((wide(x) * scale).clamp(-448, 448))
    return y, y.t().contiguous(), wide(x).abs().amax()


def microscaled(x: Tensor) -> tuple[Tensor, Tensor]:
    """Blocks of 32 whose scale is a power of two, kept as its exponent."""
    blocks = wide(x).unflatten(-1, (-1, 32))
    exponent = torch.floor(torch.log2(blocks.abs().amax(-1, keepdim=True).clamp(min=1e-30))) - 8
    values = float8((blocks * torch.exp2(-exponent)).clamp(-448, 448))
    return values.flatten(-2), (exponent + 127).to(torch.uint8)[..., 0]


def microscaled_back(x: Tensor, exponents: Tensor) -> Tensor:
    blocks = x.to(torch.float32).unflatten(-1, (-1, 32))
    return (blocks * torch.exp2(exponents.float() - 127)[..., None]).flatten(-2).to(torch.bfloat16)


def micro(s: Shape, r: Inputs) -> Tensors:
    return float8(r(*s)), (r.indices(16, *s[:-1], s[-1] // 32) + 120).to(torch.uint8)


def requantized(sums: Tensor, rows: Tensor, columns: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """What a product of int8 is followed by: scales, a bias, GELU, int8 again with a scale a row."""
    y = F.gelu(sums.to(rows.dtype) * rows[:, None] * columns + bias, approximate="tanh")
    scale = y.abs().amax(-1, keepdim=True) / 127
    return scale, (y / scale).round().to(torch.int8)


def sums_in(s: Shape, r: Inputs) -> Tensors:
    sums = (r.indices(20001, *s) - 10000).to(torch.int32)
    return sums, r(s[0], dtype=torch.float32).abs() / 1e3, r(s[1], dtype=torch.float32).abs(), r(s[1])


def ternary(w: Tensor) -> tuple[Tensor, Tensor]:
    """BitNet: -1, 0 or 1, by the mean size of all weights."""
    scale = 1 / wide(w).abs().mean().clamp(min=1e-5)
    return scale, (w * scale).round().clamp(-1, 1).to(torch.int8)


def smooth_rows(x: Tensor, smooth: Tensor) -> tuple[Tensor, Tensor]:
    """SmoothQuant: divided by a vector, then int8 by rows."""
    y = wide(x) / (smooth.abs() + 0.1)
    scale = y.abs().amax(-1, keepdim=True) / 127
    return scale, (y / scale).round().to(torch.int8)


def observed(x: Tensor, least: Tensor, most: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Fake quantization by moving bounds."""
    low, high = torch.aminmax(wide(x))
    least, most = least + 0.01 * (low - least), most + 0.01 * (high - most)
    scale = (most - least) / 255
    zero = (-least / scale).round()
    return least, most, (((x / scale + zero).round().clamp(0, 255) - zero) * scale).to(x.dtype)


def looked_up_fours(codes: Tensor, levels: Tensor, scale: Tensor) -> Tensor:
    """Two codes a byte into a table of 16 levels, a scale for 64 of them: NF4."""
    both = torch.stack([codes >> 4, codes & 15], -1).flatten(-2).long()
    return (levels[both].unflatten(-1, (-1, 64)) * scale[..., None]).flatten(-2).to(torch.bfloat16)


def codes_in(s: Shape, r: Inputs) -> Tensors:
    levels = r(16, dtype=torch.float32)
    return r.indices(256, *s).to(torch.uint8), levels, r(s[0], s[1] // 32, dtype=torch.float32)


def norm_both_float8(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The sum with the residual, its RMS norm as float8 in blocks of 128 with their scales."""
    total = wide(x) + residual
    y = (total * torch.rsqrt(total.square().mean(-1, keepdim=True) + EPSILON) * weight).unflatten(
        -1, (-1, 128)
    )
    scale = y.abs().amax(-1, keepdim=True).clamp(min=1e-4) / 448
    return total.to(x.dtype), float8(y / scale).flatten(-2), scale[..., 0]


def scalar(count: int) -> MakesInputs:
    """A tensor of the shape and numbers that are tensors."""
    return lambda s, r: (r(*s), *(r(1, dtype=torch.float32)[0].abs() + 0.5 for _ in range(count)))


FORMATS = (
    fusion("weight_bytes", weight_bytes, alike(1), (2048, 512, 3, 3), small=(4, 6, 3, 3)),
    fusion("zero_points", zero_points, alike(1), MEDIUM, small=(3, 256)),
    fusion("float8_weight_squares", squares_of_weights, alike(1), (4096, 8192), small=(128, 256)),
    fusion("float8_with_transpose", both_ways, scalar(1), (8192, 4096)),
    fusion("mxfp8", microscaled, alike(1), LARGE, small=(3, 96)),
    fusion("mxfp8_back", microscaled_back, micro, LARGE, small=(3, 96)),
    fusion("requantized", requantized, sums_in, (8192, 3072)),
    fusion("ternary", ternary, alike(1), (4096, 4096)),
    fusion("smooth_bytes", smooth_rows, lambda s, r: (r(*s), r(s[-1])), (16384, 5120)),
    fusion("observed", observed, scalar(2), MEDIUM),
    fusion("nf4_back", looked_up_fours, codes_in, (4096, 5504), small=(3, 64)),
    fusion("norm_float8_blocks", norm_both_float8, rows_and_vectors(2, 1), (8192, 7168), small=(3, 256)),
)

LANGUAGE: tuple[Operation, ...] = (*SCORES, *EXPERTS, *FORMATS)
