"""Scaled dot-product attention, forward and backward: torch's flash attention on a GPU, else the formula.

Operands are [N, H, L, E], the keys and values [N, H, S, E] and [N, H, S, Ev]; a fifth, leading dimension of
devices is one more batch dimension. `causal` lets position i of L see the positions up to i + S - L, as
flash attention has it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from fusewright.core.dtype import DataType
from fusewright.ir import TensorView
from fusewright.ops.library import library_row
from fusewright.sym import Expr

Tensor = torch.Tensor

#: [N, H, L, E], and with a leading dimension of devices.
RANKS = (4, 5)
#: What flash attention takes.
ATTENDED = (DataType.Half, DataType.BFloat16)
# Elements that the rows of flash attention's operands, and of a bias, are a multiple of.
HEAD_MULTIPLE = 8
BIAS_MULTIPLE = 16
# Bytes that torch's kernels access at once, unless they raise for it.
ACCESS_BYTES = 16
#: Words of the state of Philox that torch returns beside the result.
SEED_SIZE = 2


def _scale(scale: float | None, query: Tensor) -> float:
    return 1 / math.sqrt(query.shape[-1]) if scale is None else scale


# ---- the formula -------------------------------------------------------------------------------------------


def _seen(rows: int, columns: int, device: torch.device) -> Tensor:
    """Which columns each row sees if it is causal."""
    return torch.ones(rows, columns, dtype=torch.bool, device=device).tril(columns - rows)


def _scores(query: Tensor, key: Tensor, causal: bool, scale: float) -> Tensor:
    """Query times key, scaled, -inf where a position is not seen."""
    scores = query @ key.mT * scale
    if causal:
        seen = _seen(query.shape[-2], key.shape[-2], scores.device)
        scores = scores.masked_fill(~seen, -math.inf)
    return scores


def _kept(shape: torch.Size, dropout: float, seed: Tensor) -> Tensor:
    """The factor of each probability: 0 where it is dropped."""
    generator = torch.Generator().manual_seed(int(seed.cpu().view(torch.int64)[0]))
    kept = torch.rand(shape, generator=generator) >= dropout
    return kept.to(seed.device) / (1 - dropout)


def _formula(query: Tensor, key: Tensor, value: Tensor, added: Sequence[Tensor], *scalars: Any) -> Any:
    dropout, causal, scale = scalars
    dtype = query.dtype
    query, key, value = (t if t.dtype == torch.float64 else t.float() for t in (query, key, value))
    scores = _scores(query, key, causal, _scale(scale, query))
    for term in added:
        scores = scores.masked_fill(~term, -math.inf) if term.dtype == torch.bool else scores + term
    logsumexp = scores.logsumexp(-1)
    # A row that sees nothing is zero.
    weights = torch.where(logsumexp[..., None] == -math.inf, 0.0, torch.exp(scores - logsumexp[..., None]))
    seed = torch.zeros(SEED_SIZE, dtype=torch.int64, device=query.device)
    if dropout:
        seed = torch.randint(2**62, (SEED_SIZE,)).to(query.device)
        weights = weights * _kept(weights.shape, dropout, seed)
    offset = torch.zeros((), dtype=torch.uint64, device=query.device)
    return (weights @ value).to(dtype), logsumexp.float(), seed.view(torch.uint64), offset


def _formula_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    logsumexp, dropout, causal, seed, _, scale = rest
    dtype = query.dtype
    grad, query, key, value, output = (
        t if t.dtype == torch.float64 else t.float() for t in (grad, query, key, value, output)
    )
    scale = _scale(scale, query)
    weights = torch.exp(_scores(query, key, causal, scale) - logsumexp[..., None])
    kept = _kept(weights.shape, dropout, seed) if dropout else 1.0
    inner = grad @ value.mT * kept - (grad * output).sum(-1, keepdim=True)
    inner = weights * inner * scale
    grads = inner @ key, inner.mT @ query, (weights * kept).mT @ grad
    return grads[0].to(dtype), grads[1].to(dtype), grads[2].to(dtype)


# ---- torch's kernels ---------------------------------------------------------------------------------------


def _padded(multiple: int, size: int, tensor: Tensor) -> Tensor:
    """`tensor` with zeros behind its last dimension, up to a multiple that is at least `size`.

    Its rows are dense, and each starts at an address that the kernels access 16 bytes from.
    """
    missing = -(-size // multiple) * multiple - tensor.shape[-1]
    if missing:
        return F.pad(tensor, (0, missing)).contiguous()
    steps = [step for size, step in zip(tensor.shape[:-1], tensor.stride()) if size > 1]
    unit = ACCESS_BYTES // tensor.element_size()
    is_dense = tensor.stride(-1) == 1 and all(step % unit == 0 for step in steps)
    if is_dense and tensor.data_ptr() % ACCESS_BYTES == 0:
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def _state(dropout: float, words: Tensor) -> Tensor:
    """The state of Philox: torch leaves the words as they were in memory where nothing is dropped."""
    return words if dropout else torch.zeros_like(words)


def _flash(query: Tensor, key: Tensor, value: Tensor, added: Sequence[Tensor], *scalars: Any) -> Any:
    dropout, causal, scale = scalars
    scale = _scale(scale, query)
    if added:
        return _efficient(query, key, value, added, dropout, causal, scale)
    size = max(query.shape[-1], value.shape[-1])
    operands = [_padded(HEAD_MULTIPLE, size, t) for t in (query, key, value)]
    results = torch.ops.aten._scaled_dot_product_flash_attention(*operands, dropout, causal, scale=scale)
    state, unused = (_state(dropout, words) for words in results[6:8])
    return results[0][..., : value.shape[-1]], results[1], state, unused


def _efficient(
    query: Tensor, key: Tensor, value: Tensor, added: Sequence[Tensor], *scalars: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Flash attention takes no bias: torch's other kernel does, and means something else by causal."""
    dropout, causal, scale = scalars
    rows, columns = query.shape[-2], key.shape[-2]
    bias = torch.zeros((), dtype=query.dtype, device=query.device)
    for term in (*added, _seen(rows, columns, query.device)) if causal else added:
        bias = bias.masked_fill(~term, -math.inf) if term.dtype == torch.bool else bias + term
    bias = bias.expand(*query.shape[:-1], columns)
    bias = _padded(BIAS_MULTIPLE, columns, bias)[..., :columns]
    operands = [_padded(1, t.shape[-1], t) for t in (query, key, value)]
    out, logsumexp, seed, offset = torch.ops.aten._scaled_dot_product_efficient_attention(
        *operands, bias, True, dropout, False, scale=scale
    )
    words = torch.stack([seed.to(query.device), offset.to(query.device)]).view(torch.uint64)
    unused = torch.zeros((), dtype=torch.uint64, device=query.device)
    return out, logsumexp[..., :rows], _state(dropout, words), unused


def _flash_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    logsumexp, dropout, causal, seed, offset, scale = rest
    size = max(query.shape[-1], value.shape[-1])
    operands = [_padded(HEAD_MULTIPLE, size, t) for t in (grad, query, key, value, output)]
    lengths = None, None, query.shape[-2], key.shape[-2]
    grads = torch.ops.aten._scaled_dot_product_flash_attention_backward(
        *operands, logsumexp, *lengths, dropout, causal, seed, offset, scale=_scale(scale, query)
    )
    dq, dk, dv = (g[..., : t.shape[-1]] for g, t in zip(grads, (query, key, value)))
    return dq, dk, dv


# ---- rows --------------------------------------------------------------------------------------------------


def _one_batch(tensor: Tensor) -> Tensor:
    """Without the dimension of devices, which is part of the batch."""
    return tensor.flatten(0, 1) if tensor.ndim == 5 else tensor


def _forward(compute: Callable[..., Any], terms: int, scaled: bool) -> Callable[..., Any]:
    def forward(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> Any:
        scalars = rest[terms:] if scaled else (*rest[terms:], None)
        flat = [_one_batch(t) for t in (query, key, value, *rest[:terms])]
        out, logsumexp, seed, offset = compute(*flat[:3], flat[3:], *scalars)
        return (
            out.reshape(*query.shape[:-1], value.shape[-1]),
            logsumexp.reshape(query.shape[:-1]),
            seed,
            offset,
        )

    return forward


def _backward(compute: Callable[..., Any], scaled: bool) -> Callable[..., Any]:
    def backward(*operands: Any) -> Any:
        *tensors, logsumexp, dropout, causal, seed, offset = operands[:-1] if scaled else operands
        scale = operands[-1] if scaled else None
        flat = [_one_batch(t) for t in tensors]
        logsumexp = logsumexp.flatten(0, 1) if logsumexp.ndim == 4 else logsumexp
        grads = compute(*flat, logsumexp, dropout, causal, seed, offset, scale)
        return tuple(grad.reshape(t.shape) for grad, t in zip(grads, tensors[1:]))

    return backward


def _forward_on(device: str, terms: int, scaled: bool) -> Callable[..., Any]:
    return _forward(_flash if device == "cuda" else _formula, terms, scaled)


def _backward_on(device: str, scaled: bool) -> Callable[..., Any]:
    return _backward(_flash_backward if device == "cuda" else _formula_backward, scaled)


def _attended(inputs: Sequence[TensorView]) -> Expr:
    """A result sums products over S of sums over E; the backward pass has a gradient first."""
    key = inputs[1]
    return key.extents[-1] * key.extents[-2]


SDPFA_FWD = library_row(
    "sdpfa_fwd",
    ATTENDED,
    _forward_on,
    _attended,
    reference=lambda device, terms, scaled: _forward(_formula, terms, scaled),
    draws=True,
    strided_rank=max(RANKS),
)
SDPFA_BWD = library_row(
    "sdpfa_bwd",
    ATTENDED,
    _backward_on,
    lambda inputs: _attended(inputs[1:]),
    reference=lambda device, scaled: _backward(_formula_backward, scaled),
    strided_rank=max(RANKS),
)
