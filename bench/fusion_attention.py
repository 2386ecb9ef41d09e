"""Rows of the catalogue from attention and experts: masks and biases, rotations, caches, routers."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from bench.fusion import alike, fusion
from bench.fusion_moves import HEADS, rope_halves
from bench.fusion_reductions import rms_norm
from bench.operation import MASKED, Inputs, Operation, Shape, Tensors, wide

Tensor = torch.Tensor
SCORES = (4, 16, 1024, 1024)
SCALE = 0.125
#: How far back a window of attention reaches, as a share of the keys.
WINDOW_SHARE = 4
#: Positions that a table of relative biases has, on each side.
REACH = 128

# ---- scores ------------------------------------------------------------------------------------------------


def places(x: Tensor) -> tuple[Tensor, Tensor]:
    """Of queries, as a column, and of keys, as a row."""
    return torch.arange(x.shape[-2], device=x.device)[:, None], torch.arange(x.shape[-1], device=x.device)


def weights(scores: Tensor, like: Tensor) -> Tensor:
    return F.softmax(scores, -1).to(like.dtype)


def alibi(x: Tensor, slopes: Tensor) -> Tensor:
    query, key = places(x)
    scores = wide(x) * SCALE + slopes[:, None, None] * (key - query)
    return weights(scores.masked_fill(key > query, MASKED), x)


def window(x: Tensor) -> Tensor:
    query, key = places(x)
    seen = (key <= query) & (query - key < x.shape[-1] // WINDOW_SHARE)
    return weights((wide(x) * SCALE).masked_fill(~seen, MASKED), x)


def documents(x: Tensor, ids: Tensor) -> Tensor:
    same = ids[:, None, :, None] == ids[:, None, None, :]
    return weights((wide(x) * SCALE).masked_fill(~same, MASKED), x)


def padded_keys(x: Tensor, lengths: Tensor) -> Tensor:
    seen = torch.arange(x.shape[-1], device=x.device) < lengths[:, None, None, None]
    return weights((wide(x) * SCALE).masked_fill(~seen, MASKED), x)


def relative_bias(x: Tensor, table: Tensor) -> Tensor:
    query, key = places(x)
    return x + table[:, (key - query).clamp(-REACH, REACH) + REACH]


def sink(x: Tensor, sinks: Tensor) -> Tensor:
    extra = sinks[None, :, None, None].expand(x.shape[0], -1, x.shape[2], 1)
    return weights(torch.cat([wide(x), wide(extra)], -1), x)[..., :-1] * 1.0


def soft_capped(x: Tensor) -> Tensor:
    return weights(30.0 * torch.tanh(wide(x) / 30.0), x)


def scores_backward(dy: Tensor, y: Tensor, kept: Tensor) -> Tensor:
    product = wide(dy) * y
    dx = product - y * product.sum(-1, keepdim=True)
    return (dx * SCALE).masked_fill(~kept, 0.0).to(y.dtype)


def spatial_softmax(x: Tensor) -> Tensor:
    return F.softmax(x.flatten(2), -1).view_as(x)


def document_ids(shape: Shape, r: Inputs) -> Tensors:
    return r(*shape), r.indices(4, shape[0], shape[-1]).sort(-1).values


MASKS = (
    fusion("alibi", alibi, lambda s, r: (r(*s), r(s[1], dtype=torch.float32)), SCORES),
    fusion("window_softmax", window, alike(1), SCORES),
    fusion("document_softmax", documents, document_ids, SCORES),
    fusion("padded_keys", padded_keys, lambda s, r: (r(*s), r.indices(s[-1], s[0]) + 1), SCORES),
    fusion("relative_bias", relative_bias, lambda s, r: (r(*s), r(s[1], 2 * REACH + 1)), SCORES),
    fusion("sink_softmax", sink, lambda s, r: (r(*s), r(s[1])), SCORES),
    fusion("soft_capped", soft_capped, alike(1), SCORES),
    fusion("scores_backward", scores_backward, lambda s, r: (r(*s), r(*s), r.mask(*s[-2:])), SCORES),
    fusion("spatial_softmax", spatial_softmax, alike(1), (64, 64, 112, 112)),
)

# ---- rotations, heads, caches ------------------------------------------------------------------------------


def rope_at(q: Tensor, cos: Tensor, sin: Tensor, position: Tensor) -> Tensor:
    return rope_halves(q, cos[position][:, None], sin[position][:, None])


def rope_backward(dy: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    pairs = dy.unflatten(-1, (-1, 2))
    even, odd = pairs[..., 0], pairs[..., 1]
    return torch.stack([even * cos + odd * sin, odd * cos - even * sin], -1).flatten(-2)


def rope_packed(x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """[batch, length, 3, heads, width] as queries and keys that are rotated, and values, by heads."""
    q, k, v = (part.transpose(1, 2) for part in x.unbind(2))
    return rope_halves(q, cos, sin), rope_halves(k, cos, sin), v.contiguous()


def normal_rope(q: Tensor, weight: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return rope_halves(rms_norm(q, weight), cos, sin)


def merge_gated(x: Tensor, gate: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2) * torch.sigmoid(gate)


def table_pair(shape: Shape, r: Inputs) -> Tensors:
    return r(*shape[-2:]), r(*shape[-2:])


ROTATIONS = (
    fusion("rope_at", rope_at, lambda s, r: (r(*s), *table_pair(s, r), r.indices(s[2], s[0], s[2])), HEADS),
    fusion(
        "rope_backward", rope_backward, lambda s, r: (r(*s), r(s[2], s[3] // 2), r(s[2], s[3] // 2)), HEADS
    ),
    fusion(
        "rope_packed",
        rope_packed,
        lambda s, r: (r(*s), r(s[1], s[4]), r(s[1], s[4])),
        (4, 2048, 3, 32, 128),
        small=(2, 6, 3, 4, 16),
    ),
    fusion("normal_rope", normal_rope, lambda s, r: (r(*s), r(s[-1]), *table_pair(s, r)), HEADS),
    fusion("merge_gated", merge_gated, lambda s, r: (r(*s), r(s[0], s[2], s[1] * s[3])), HEADS),
    fusion(
        "cache_append",
        lambda old, new: torch.cat([old, new], 2),
        lambda s, r: (r(*s), r(*s[:2], 1, s[3])),
        (8, 32, 2047, 128),
    ),
    fusion(
        "cache_write",
        lambda old, at, new: old.index_copy(2, at, new),
        lambda s, r: (r(*s), r.distinct(s[2], 4), r(*s[:2], 4, s[3])),
        (8, 32, 2048, 128),
    ),
)

# ---- experts -----------------------------------------------------------------------------------------------


def combine(x: Tensor, slot: Tensor, weight: Tensor) -> Tensor:
    return (wide(x)[slot] * weight[..., None]).sum(1).to(x.dtype)


def top_one(x: Tensor) -> tuple[Tensor, Tensor]:
    probability, expert = F.softmax(wide(x), -1).max(-1)
    return probability, expert


def slots(expert: Tensor) -> Tensor:
    """The place of each token among those of its expert."""
    chosen = F.one_hot(expert, 16)
    return ((chosen.cumsum(0) - 1) * chosen).sum(-1)


def balance(x: Tensor, expert: Tensor) -> Tensor:
    share = F.one_hot(expert, x.shape[-1]).float().mean(0)
    return (F.softmax(wide(x), -1).mean(0) * share).sum()


def slots_of(shape: Shape, r: Inputs) -> Tensors:
    tokens, each, width = shape
    return r(tokens, width), r.indices(tokens, tokens, each), r(tokens, each, dtype=torch.float32)


EXPERTS = (
    fusion("expert_combine", combine, slots_of, (16384, 2, 2048), small=(12, 2, 24)),
    fusion(
        "expert_tokens",
        lambda x, i, w: x[i] * w[:, None],
        lambda s, r: (r(*s), r.indices(s[0], s[0]), r(s[0])),
        (16384, 2048),
    ),
    fusion("top_one", top_one, alike(1), (131072, 64)),
    fusion("expert_slots", slots, lambda s, r: (r.indices(16, *s),), (65536,)),
    fusion(
        "expert_balance", balance, lambda s, r: (r(*s), r.indices(s[1], s[0])), (131072, 64), small=(40, 16)
    ),
    fusion(
        "expert_sum",
        lambda x, i, w: torch.zeros_like(x).index_add(0, i, x * w[:, None]),
        lambda s, r: (r(*s, dtype=torch.float32), r.indices(s[0], s[0]), r(s[0], dtype=torch.float32)),
        (16384, 2048),
    ),
)

ATTENTION: tuple[Operation, ...] = (*MASKS, *ROTATIONS, *EXPERTS)
