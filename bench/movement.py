"""Operations that mostly move elements: shape and indexing operations with what surrounds them in models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F

from bench.operation import (
    EPSILON,
    Handle,
    Inputs,
    Operation,
    Shape,
    Tensors,
    as_float,
    rounded,
    row,
    total_bytes,
    wide,
)
from fusewright import FusionDefinition

GROUPS = 32  # of group norm
# Widths that leave no two rows of the result at the same alignment as in the source.
PADDING = (1, 3)
SHIFTS = (1000, 333)

# ---- parts of models ---------------------------------------------------------------------------------------


def rope(fd: FusionDefinition, q: Handle, cos: Handle, sin: Handle) -> list[Handle]:
    batch, heads, length, width = (fd.ops.size(q, dim) for dim in range(4))
    half = fd.ops.div(width, 2)
    first = fd.ops.slice(q, [0, 0, 0, 0], [batch, heads, length, half])
    second = fd.ops.slice(q, [0, 0, 0, half], [batch, heads, length, width])
    [negative] = rounded(fd, fd.ops.neg(second))
    rotated = fd.ops.cat([negative, first], -1)
    cos, sin = (fd.ops.broadcast(table, [True, True, False, False]) for table in (cos, sin))
    return rounded(fd, q * cos + rotated * sin)


def torch_rope(q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = q.shape[-1] // 2
    rotated = torch.cat([-q[..., half:], q[..., :half]], -1)
    return q * cos + rotated * sin


def embedding(fd: FusionDefinition, tokens: Handle, weight: Handle) -> list[Handle]:
    return [fd.ops.embedding_fwd(tokens, weight)]


def torch_embedding(tokens: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.embedding(tokens, weight)


def group_norm(fd: FusionDefinition, x: Handle, weight: Handle, bias: Handle) -> list[Handle]:
    sizes = [fd.ops.size(x, dim) for dim in range(4)]
    groups = fd.ops.reshape(as_float(fd, x), [sizes[0], GROUPS, -1])
    variance, mean = fd.ops.var_mean(groups, dims=[-1], correction=0, keepdim=True)
    normalized = fd.ops.reshape((groups - mean) * fd.ops.rsqrt(variance + EPSILON), sizes)
    per_channel = [True, False, True, True]
    return rounded(
        fd, normalized * fd.ops.broadcast(weight, per_channel) + fd.ops.broadcast(bias, per_channel)
    )


def torch_group_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.group_norm(x, GROUPS, weight, bias, EPSILON)


def cross_entropy(fd: FusionDefinition, logits: Handle, target: Handle) -> list[Handle]:
    x = as_float(fd, logits)
    shifted = x - row(fd, fd.ops.max, x)
    logarithms = shifted - fd.ops.log(row(fd, fd.ops.sum, fd.ops.exp(shifted)))
    found = fd.ops.take_along_axis(logarithms, fd.ops.broadcast(target, [False, True]), 1)
    return [fd.ops.neg(fd.ops.squeeze(found, [1]))]


def torch_cross_entropy(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(wide(logits), target, reduction="none")


def heads_split(fd: FusionDefinition, x: Handle, y: Handle) -> list[Handle]:
    batch, length = (fd.ops.size(x, dim) for dim in range(2))
    heads, width = fd.ops.size(y, 1), fd.ops.size(y, 3)
    split = fd.ops.reshape(x, [batch, length, heads, width])
    return rounded(fd, fd.ops.permute(split, [0, 2, 1, 3]) + y)


def torch_heads_split(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.unflatten(-1, (y.shape[1], y.shape[3])).transpose(1, 2) + y


# ---- moves alone -------------------------------------------------------------------------------------------


def cat_halves(fd: FusionDefinition, x: Handle, y: Handle) -> list[Handle]:
    return [fd.ops.cat([x, y], -1)]


def torch_cat_halves(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, y], -1)


def pad(fd: FusionDefinition, x: Handle) -> list[Handle]:
    return [fd.ops.pad(x, list(PADDING))]


def torch_pad(x: torch.Tensor) -> torch.Tensor:
    return F.pad(x, PADDING)


def repeat(fd: FusionDefinition, x: Handle) -> list[Handle]:
    return [fd.ops.repeat(x, [2, 2])]


def torch_repeat(x: torch.Tensor) -> torch.Tensor:
    return x.repeat(2, 2)


def roll(fd: FusionDefinition, x: Handle) -> list[Handle]:
    return [fd.ops.roll(x, list(SHIFTS), [0, 1])]


def torch_roll(x: torch.Tensor) -> torch.Tensor:
    return torch.roll(x, SHIFTS, (0, 1))


def _permuted(
    dims: Sequence[int],
) -> tuple[Callable[..., Sequence[Handle]], Callable[[torch.Tensor], torch.Tensor]]:
    """The definition and torch's function of a copy with its dimensions in this order."""
    return (
        lambda fd, x: [fd.ops.set(fd.ops.permute(x, list(dims)))],
        lambda x: x.permute(*dims).contiguous(),
    )


def embedding_gradient(
    fd: FusionDefinition, gradient: Handle, tokens: Handle, weight: Handle
) -> list[Handle]:
    rows = fd.ops.size(weight, 0)
    return [fd.ops.embedding_bwd(gradient, tokens, rows)]


def torch_embedding_gradient(
    gradient: torch.Tensor, tokens: torch.Tensor, weight: torch.Tensor
) -> torch.Tensor:
    return torch.ops.aten.embedding_dense_backward(gradient, tokens, weight.shape[0], -1, False)


def scatter_rows(fd: FusionDefinition, x: Handle, index: Handle, rows: Handle) -> list[Handle]:
    wide = fd.ops.expand(fd.ops.broadcast(index, [False, True]), [fd.ops.size(rows, dim) for dim in (0, 1)])
    return [fd.ops.scatter(x, wide, rows, 0)]


def torch_scatter_rows(x: torch.Tensor, index: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return x.scatter(0, index[:, None].expand_as(rows), rows)


# ---- the rows ----------------------------------------------------------------------------------------------


def _rope_inputs(shape: Shape, r: Inputs) -> Tensors:
    return r(*shape), r(*shape[2:]), r(*shape[2:])


def _embedding_inputs(shape: Shape, r: Inputs) -> Tensors:
    tokens, vocabulary, width = shape
    return r.indices(vocabulary, tokens), r(vocabulary, width)


def _embedding_bytes(inputs: Tensors, outputs: Tensors) -> int:
    """The indices, the rows of the weight that they name, and the result."""
    return total_bytes(inputs[:1]) + 2 * total_bytes(outputs)


def _gradient_inputs(shape: Shape, r: Inputs) -> Tensors:
    tokens, vocabulary, width = shape
    return r(tokens, width), r.indices(vocabulary, tokens), r(vocabulary, width)


def _gradient_bytes(inputs: Tensors, outputs: Tensors) -> int:
    """The gradient and the indices, and the result."""
    return total_bytes(inputs[:2]) + total_bytes(outputs)


def _scatter_inputs(shape: Shape, r: Inputs) -> Tensors:
    rows, changed, width = shape
    return r(rows, width), r.distinct(rows, changed), r(changed, width)


def _heads_inputs(shape: Shape, r: Inputs) -> Tensors:
    batch, length, heads, width = shape
    return r(batch, length, heads * width), r(batch, heads, length, width)


ROPE = Operation(
    "rope_symbolic",
    rope,
    torch_rope,
    _rope_inputs,
    ((8, 32, 4096, 128),),
    small=((2, 3, 4, 16), (1, 2, 5, 6)),
)
GROUP_NORM = Operation(
    "group_norm_symbolic",
    group_norm,
    torch_group_norm,
    lambda s, r: (r(*s), r(s[1]), r(s[1])),
    ((32, 256, 64, 64), (8, 512, 128, 128)),
    small=((2, 64, 4, 4), (1, 32, 3, 5)),
)
MOVEMENT: tuple[Operation, ...] = (
    replace(ROPE, name="rope_static", static_sizes=True),
    ROPE,
    Operation(
        "cat_halves",
        cat_halves,
        torch_cat_halves,
        lambda s, r: (r(*s), r(*s)),
        ((16384, 4096),),
        small=((6, 64), (3, 7)),
    ),
    Operation(
        "embedding",
        embedding,
        torch_embedding,
        _embedding_inputs,
        ((16384, 128256, 4096),),
        small=((7, 11, 24),),
        moved=_embedding_bytes,
    ),
    Operation(
        "embedding_gradient",
        embedding_gradient,
        torch_embedding_gradient,
        _gradient_inputs,
        ((16384, 128256, 4096),),
        small=((7, 11, 24),),
        summed=lambda s: 4,
        moved=_gradient_bytes,
    ),
    Operation(
        "scatter_rows",
        scatter_rows,
        torch_scatter_rows,
        _scatter_inputs,
        ((65536, 16384, 4096),),
        small=((11, 5, 24), (7, 3, 5)),
    ),
    replace(GROUP_NORM, name="group_norm_static", static_sizes=True),
    GROUP_NORM,
    Operation(
        "cross_entropy",
        cross_entropy,
        torch_cross_entropy,
        lambda s, r: (r(*s), r.indices(s[1], s[0])),
        ((8192, 32000), (8192, 128256)),
    ),
    Operation("pad", pad, torch_pad, lambda s, r: (r(*s),), ((16384, 4095),), small=((5, 7),)),
    Operation("repeat", repeat, torch_repeat, lambda s, r: (r(*s),), ((2048, 2047),), small=((5, 7),)),
    Operation("roll", roll, torch_roll, lambda s, r: (r(*s),), ((16384, 4095),), small=((5, 7),)),
    Operation(
        "permute_channels_last",
        *_permuted((0, 2, 3, 1)),
        lambda s, r: (r(*s),),
        ((16, 257, 129, 63),),
        small=((2, 9, 5, 3),),
    ),
    Operation(
        "permute_102_odd",
        *_permuted((1, 0, 2)),
        lambda s, r: (r(*s),),
        ((512, 1023, 129),),
        small=((3, 5, 7),),
    ),
    Operation(
        "heads_split",
        heads_split,
        torch_heads_split,
        _heads_inputs,
        ((8, 4096, 32, 128),),
        small=((2, 6, 4, 16),),
    ),
)
