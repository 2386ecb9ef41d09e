"""Operations at unusual layouts and sizes: misaligned, along columns, over whole tensors, to eight bits."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from bench.operation import (
    EPSILON,
    MASKED,
    Handle,
    Inputs,
    Operation,
    Shape,
    Tensors,
    as_float,
    per_column,
    rounded,
    row,
    softmax,
    torch_softmax,
    total_bytes,
    wide,
)
from fusewright import DataType, FusionDefinition

FP8_MAX = 448.0  # the largest float8_e4m3fn
BLOCK = 128  # elements that share a scale
OFFSET = 3  # of a slice, in elements: no vector begins there

# ---- normalizations along other dimensions, of other memory ------------------------------------------------


def softmax_columns(fd: FusionDefinition, x: Handle) -> list[Handle]:
    x = as_float(fd, x)
    e = fd.ops.exp(x - fd.ops.max(x, dims=[0], keepdim=True))
    return rounded(fd, e / fd.ops.sum(e, dims=[0], keepdim=True))


def torch_softmax_columns(x: torch.Tensor) -> torch.Tensor:
    return F.softmax(x, 0)


def causal_softmax(fd: FusionDefinition, x: Handle, keep: Handle) -> list[Handle]:
    """Attention's: a mask of [length, length] for all batches and heads."""
    keep = fd.ops.broadcast(keep, [True, True, False, False])
    return softmax(fd, fd.ops.where(keep, as_float(fd, x), MASKED))


def torch_causal_softmax(x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    return F.softmax(x.masked_fill(~keep, MASKED), -1)


def centered_columns(fd: FusionDefinition, x: Handle) -> list[Handle]:
    x = as_float(fd, x)
    return rounded(fd, x - fd.ops.mean(x, dims=[0], keepdim=True))


def torch_centered_columns(x: torch.Tensor) -> torch.Tensor:
    return (wide(x) - wide(x).mean(0, keepdim=True)).to(x.dtype)


def scaled_by_maximum(fd: FusionDefinition, x: Handle) -> list[Handle]:
    x = as_float(fd, x)
    return rounded(fd, x / fd.ops.max(fd.ops.abs(x), dims=[0, 1]))


def torch_scaled_by_maximum(x: torch.Tensor) -> torch.Tensor:
    return (wide(x) / wide(x).abs().max()).to(x.dtype)


def sum_middle(fd: FusionDefinition, x: Handle) -> list[Handle]:
    return [fd.ops.sum(as_float(fd, x), dims=[1])]


def torch_sum_middle(x: torch.Tensor) -> torch.Tensor:
    return wide(x).sum(1)


def cross_entropy_both(fd: FusionDefinition, logits: Handle, target: Handle) -> list[Handle]:
    """The loss of each row and the gradient of their mean."""
    x = as_float(fd, logits)
    shifted = x - row(fd, fd.ops.max, x)
    e = fd.ops.exp(shifted)
    total = row(fd, fd.ops.sum, e)
    where = fd.ops.broadcast(target, [False, True])
    found = fd.ops.take_along_axis(shifted, where, 1)
    loss = fd.ops.squeeze(fd.ops.log(total) - found, [1])
    classes = fd.ops.iota(fd.ops.size(logits, 1))
    hit = as_float(fd, fd.ops.eq(fd.ops.broadcast(classes, [True, False]), where))
    gradient = (e / total - hit) / as_float(fd, fd.ops.size(logits, 0))
    return [loss, *rounded(fd, gradient)]


def torch_cross_entropy_both(logits: torch.Tensor, target: torch.Tensor) -> Tensors:
    logarithms = F.log_softmax(wide(logits), -1)
    loss = F.nll_loss(logarithms, target, reduction="none")
    hit = torch.arange(logits.shape[1], device=logits.device) == target[:, None]
    gradient = (logarithms.exp() - torch.where(hit, 1.0, 0.0)) / logits.shape[0]
    return loss, gradient.to(logits.dtype)


# ---- elementwise -------------------------------------------------------------------------------------------


def silu(fd: FusionDefinition, x: Handle) -> list[Handle]:
    return rounded(fd, fd.ops.silu(as_float(fd, x)))


def torch_silu(x: torch.Tensor) -> torch.Tensor:
    return F.silu(x)


def add(fd: FusionDefinition, x: Handle, y: Handle) -> list[Handle]:
    return rounded(fd, x + y)


def torch_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y


# ---- casts to eight bits with a scale ----------------------------------------------------------------------


def _scaled_to_fp8(fd: FusionDefinition, x: Handle) -> list[Handle]:
    """Values of at most `FP8_MAX` a last dimension, and what they are to be multiplied by."""
    scale = row(fd, fd.ops.max, fd.ops.abs(x)) / FP8_MAX
    return [fd.ops.cast(x / scale, dtype=DataType.Float8_e4m3fn), scale]


def _torch_scaled_to_fp8(x: torch.Tensor) -> Tensors:
    scale = x.abs().amax(-1, keepdim=True) / FP8_MAX
    scaled = x / scale
    return (scaled if x.dtype is torch.float64 else scaled.to(torch.float8_e4m3fn)), scale


def rmsnorm_fp8(fd: FusionDefinition, x: Handle, weight: Handle) -> list[Handle]:
    x = as_float(fd, x)
    normalized = x * fd.ops.rsqrt(row(fd, fd.ops.mean, x * x) + EPSILON) * per_column(fd, weight)
    return _scaled_to_fp8(fd, normalized)


def torch_rmsnorm_fp8(x: torch.Tensor, weight: torch.Tensor) -> Tensors:
    values = wide(x)
    normalized = values * torch.rsqrt((values * values).mean(-1, keepdim=True) + EPSILON) * wide(weight)
    return _torch_scaled_to_fp8(normalized)


def swiglu_fp8_blocks(fd: FusionDefinition, x: Handle, y: Handle) -> list[Handle]:
    gated = fd.ops.silu(as_float(fd, x)) * as_float(fd, y)
    rows = fd.ops.size(x, 0)
    scaled, scale = _scaled_to_fp8(fd, fd.ops.reshape(gated, [rows, -1, BLOCK]))
    return [fd.ops.reshape(scaled, [rows, fd.ops.size(x, 1)]), fd.ops.squeeze(scale, [2])]


def torch_swiglu_fp8_blocks(x: torch.Tensor, y: torch.Tensor) -> Tensors:
    gated = F.silu(wide(x)) * wide(y)
    scaled, scale = _torch_scaled_to_fp8(gated.unflatten(1, (-1, BLOCK)))
    return scaled.flatten(1), scale.squeeze(2)


# ---- the rows ----------------------------------------------------------------------------------------------


def _causal_inputs(shape: Shape, r: Inputs) -> Tensors:
    length = shape[-1]
    return r(*shape), torch.ones(length, length, dtype=torch.bool, device=r.device).tril()


def _at_offset(shape: Shape, r: Inputs) -> torch.Tensor:
    """Columns of wider rows, that begin at an odd element."""
    return r(shape[0], shape[1] + 2 * OFFSET)[:, OFFSET : OFFSET + shape[1]]


def _written_once(inputs: Tensors, outputs: Tensors) -> int:
    """As much read as written, whatever the input is a view of."""
    return 2 * total_bytes(outputs)


LAYOUTS: tuple[Operation, ...] = (
    Operation(
        "softmax_columns",
        softmax_columns,
        torch_softmax_columns,
        lambda s, r: (r(*s),),
        ((4096, 16384), (1024, 32768), (131072, 128)),
        small=((17, 24),),
    ),
    Operation(
        "softmax_transposed",
        softmax,
        torch_softmax,
        lambda s, r: (r(s[1], s[0]).t(),),
        ((16384, 4096),),
        small=((6, 8),),
    ),
    Operation(
        "causal_softmax",
        causal_softmax,
        torch_causal_softmax,
        _causal_inputs,
        ((8, 16, 1024, 1024),),
        small=((2, 3, 16, 16),),
    ),
    Operation(
        "centered_columns",
        centered_columns,
        torch_centered_columns,
        lambda s, r: (r(*s),),
        ((16384, 4096), (4096, 1024)),
        small=((9, 24),),
    ),
    Operation(
        "scaled_by_maximum",
        scaled_by_maximum,
        torch_scaled_by_maximum,
        lambda s, r: (r(*s),),
        ((16384, 4096), (4096, 4096)),
        small=((9, 24),),
    ),
    Operation(
        "sum_middle",
        sum_middle,
        torch_sum_middle,
        lambda s, r: (r(*s),),
        ((16, 4096, 1024), (1024, 64, 1024), (4096, 512, 33), (8, 65536, 128), (65536, 32, 32)),
        small=((3, 17, 8),),
        summed=lambda s: s[1],
    ),
    Operation(
        "cross_entropy_both",
        cross_entropy_both,
        torch_cross_entropy_both,
        lambda s, r: (r(*s), r.indices(s[1], s[0])),
        ((8192, 32000), (8192, 128256)),
        small=((6, 24),),
    ),
    Operation(
        "slice_at_offset",
        silu,
        torch_silu,
        lambda s, r: (_at_offset(s, r),),
        ((16384, 4096),),
        small=((6, 24),),
        moved=_written_once,
    ),
    Operation(
        "add_misaligned",
        add,
        torch_add,
        lambda s, r: (r(s[0] + 1)[1:], r(s[0] + 1)[1:]),
        ((1 << 26,),),
        small=((77,),),
    ),
    Operation(
        "rmsnorm_fp8",
        rmsnorm_fp8,
        torch_rmsnorm_fp8,
        lambda s, r: (r(*s), r(s[1])),
        ((16384, 4096), (8192, 14336)),
        small=((6, 64),),
    ),
    Operation(
        "swiglu_fp8_blocks",
        swiglu_fp8_blocks,
        torch_swiglu_fp8_blocks,
        lambda s, r: (r(*s), r(*s)),
        ((16384, 4096), (8192, 14336)),
        small=((6, 256),),
    ),
)
