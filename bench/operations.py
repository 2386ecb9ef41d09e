"""The operations that are measured: each a Fusewright definition next to the torch function that it replaces.

Shapes, inputs and minimal bytes are those of the peers' table in docs/performance.md: bfloat16 in and out,
computed in float. The same rows at small shapes are end-to-end tests (tests/bench).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F

from bench.layouts import LAYOUTS
from bench.movement import MOVEMENT
from bench.operation import (
    EPSILON,
    KEEP,
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
    wide,
)
from fusewright import FusionDefinition

_TANH_SCALE = math.sqrt(2 / math.pi)
_TANH_CUBE = 0.044715


def _gelu(fd: FusionDefinition, x: Handle) -> Handle:
    """GELU in its tanh form."""
    inner = _TANH_SCALE * (x + _TANH_CUBE * x * x * x)
    return 0.5 * x * (1.0 + fd.ops.tanh(inner))


# ---- pointwise ---------------------------------------------------------------------------------------------


def add_mul(fd: FusionDefinition, x: Handle, y: Handle, z: Handle) -> list[Handle]:
    return rounded(fd, (x + y) * z)


def torch_add_mul(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    return (x + y) * z


def gelu_bias(fd: FusionDefinition, x: Handle, bias: Handle) -> list[Handle]:
    return rounded(fd, _gelu(fd, x + per_column(fd, bias)))


def torch_gelu_bias(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.gelu(x + bias, approximate="tanh")


def silu_mul(fd: FusionDefinition, x: Handle, y: Handle) -> list[Handle]:
    x = as_float(fd, x)
    return rounded(fd, x * fd.ops.sigmoid(x) * y)


def torch_silu_mul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.silu(x) * y


def bcast_inner(fd: FusionDefinition, x: Handle, y: Handle) -> list[Handle]:
    return rounded(fd, x + y)


def torch_bcast_inner(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y


def scale_bias_relu(fd: FusionDefinition, x: Handle, scale: Handle, bias: Handle) -> list[Handle]:
    return rounded(fd, fd.ops.relu(x * per_column(fd, scale) + per_column(fd, bias)))


def torch_scale_bias_relu(x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.relu(x * scale + bias)


def transpose_add(fd: FusionDefinition, x: Handle, y: Handle) -> list[Handle]:
    return rounded(fd, fd.ops.permute(x, dims=[1, 0]) + y)


def torch_transpose_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous() + y


def permute_102(fd: FusionDefinition, x: Handle) -> list[Handle]:
    return [fd.ops.set(fd.ops.permute(x, dims=[1, 0, 2]))]


def torch_permute_102(x: torch.Tensor) -> torch.Tensor:
    return x.permute(1, 0, 2).contiguous()


# ---- normalization -----------------------------------------------------------------------------------------


def masked_softmax(fd: FusionDefinition, x: Handle, keep: Handle) -> list[Handle]:
    return softmax(fd, fd.ops.where(keep, as_float(fd, x), MASKED))


def torch_masked_softmax(x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    return F.softmax(x.masked_fill(~keep, MASKED), -1)


def log_softmax(fd: FusionDefinition, x: Handle) -> list[Handle]:
    x = as_float(fd, x)
    shifted = x - row(fd, fd.ops.max, x)
    return rounded(fd, shifted - fd.ops.log(row(fd, fd.ops.sum, fd.ops.exp(shifted))))


def torch_log_softmax(x: torch.Tensor) -> torch.Tensor:
    return F.log_softmax(x, -1)


def softmax_bwd(fd: FusionDefinition, dy: Handle, y: Handle) -> list[Handle]:
    dy, y = as_float(fd, dy), as_float(fd, y)
    return rounded(fd, y * (dy - row(fd, fd.ops.sum, dy * y)))


def torch_softmax_bwd(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten._softmax_backward_data(dy, y, -1, y.dtype)


def _normalized(fd: FusionDefinition, x: Handle) -> Handle:
    variance, mean = fd.ops.var_mean(x, dims=[-1], correction=0, keepdim=True)
    return (x - mean) * fd.ops.rsqrt(variance + EPSILON)


def layernorm(fd: FusionDefinition, x: Handle, weight: Handle, bias: Handle) -> list[Handle]:
    normalized = _normalized(fd, as_float(fd, x))
    return rounded(fd, normalized * per_column(fd, weight) + per_column(fd, bias))


def torch_layernorm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias, EPSILON)


def _rms_normalized(fd: FusionDefinition, x: Handle) -> Handle:
    return x * fd.ops.rsqrt(row(fd, fd.ops.mean, x * x) + EPSILON)


def rmsnorm(fd: FusionDefinition, x: Handle, weight: Handle) -> list[Handle]:
    return rounded(fd, _rms_normalized(fd, as_float(fd, x)) * per_column(fd, weight))


def torch_rmsnorm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, x.shape[-1:], weight, EPSILON)


def add_rmsnorm(fd: FusionDefinition, x: Handle, residual: Handle, weight: Handle) -> list[Handle]:
    total = x + residual
    return rounded(fd, total, _rms_normalized(fd, total) * per_column(fd, weight))


def torch_add_rmsnorm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> Tensors:
    total = x + residual
    return total, F.rms_norm(total, total.shape[-1:], weight, EPSILON)


def dropout_add_ln(
    fd: FusionDefinition, x: Handle, residual: Handle, mask: Handle, weight: Handle, bias: Handle
) -> list[Handle]:
    total = residual + x * mask * (1 / KEEP)
    normalized = _normalized(fd, total)
    return rounded(fd, total, normalized * per_column(fd, weight) + per_column(fd, bias))


def torch_dropout_add_ln(
    x: torch.Tensor, residual: torch.Tensor, mask: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
) -> Tensors:
    total = residual + x * mask * (1 / KEEP)
    return total, F.layer_norm(total, total.shape[-1:], weight, bias, EPSILON)


def layernorm_bwd(
    fd: FusionDefinition, dy: Handle, x: Handle, mean: Handle, rstd: Handle, weight: Handle, bias: Handle
) -> list[Handle]:
    dy = as_float(fd, dy)
    normalized = (as_float(fd, x) - mean) * rstd
    scaled = dy * per_column(fd, weight)
    projected = row(fd, fd.ops.mean, scaled * normalized)
    dx = (scaled - row(fd, fd.ops.mean, scaled) - normalized * projected) * rstd
    return rounded(fd, dx, fd.ops.sum(dy * normalized, dims=[0]), fd.ops.sum(dy, dims=[0]))


def torch_layernorm_bwd(
    dy: torch.Tensor,
    x: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
) -> Tensors:
    wanted = [True, True, True]
    return torch.ops.aten.native_layer_norm_backward(dy, x, x.shape[-1:], mean, rstd, weight, bias, wanted)


def rmsnorm_bwd(fd: FusionDefinition, dy: Handle, x: Handle, rstd: Handle, weight: Handle) -> list[Handle]:
    dy = as_float(fd, dy)
    normalized = as_float(fd, x) * rstd
    scaled = dy * per_column(fd, weight)
    dx = (scaled - normalized * row(fd, fd.ops.mean, scaled * normalized)) * rstd
    return rounded(fd, dx, fd.ops.sum(dy * normalized, dims=[0]))


def torch_rmsnorm_bwd(dy: torch.Tensor, x: torch.Tensor, rstd: torch.Tensor, weight: torch.Tensor) -> Tensors:
    scaled = wide(dy) * wide(weight)
    normalized = wide(x) * rstd
    dx = (scaled - normalized * (scaled * normalized).mean(-1, keepdim=True)) * rstd
    dw = (wide(dy) * normalized).sum(0)
    return dx.to(x.dtype), dw.to(weight.dtype)


def batchnorm_train(fd: FusionDefinition, x: Handle, weight: Handle, bias: Handle) -> list[Handle]:
    x = as_float(fd, x)
    variance, mean = fd.ops.var_mean(x, dims=[0, 2, 3], correction=0, keepdim=True)
    [y] = rounded(fd, (x - mean) * fd.ops.rsqrt(variance + EPSILON) * weight + bias)
    return [y, mean, variance]


def torch_batchnorm_train(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Tensors:
    values = wide(x)
    variance, mean = torch.var_mean(values, dim=(0, 2, 3), unbiased=False, keepdim=True)
    y = (values - mean) * torch.rsqrt(variance + EPSILON) * weight + bias
    return y.to(x.dtype), mean, variance


# ---- reductions --------------------------------------------------------------------------------------------


def sum_inner(fd: FusionDefinition, x: Handle) -> list[Handle]:
    return [fd.ops.sum(as_float(fd, x), dims=[1])]


def torch_sum_inner(x: torch.Tensor) -> torch.Tensor:
    return wide(x).sum(-1)


def sum_outer(fd: FusionDefinition, x: Handle) -> list[Handle]:
    return [fd.ops.sum(as_float(fd, x), dims=[0])]


def torch_sum_outer(x: torch.Tensor) -> torch.Tensor:
    return wide(x).sum(0)


def sum_all(fd: FusionDefinition, x: Handle) -> list[Handle]:
    return [fd.ops.sum(as_float(fd, x), dims=[0, 1])]


def torch_sum_all(x: torch.Tensor) -> torch.Tensor:
    return wide(x).sum()


def row_col_sums(fd: FusionDefinition, x: Handle) -> list[Handle]:
    x = as_float(fd, x)
    return rounded(fd, fd.ops.sum(x, dims=[1]), fd.ops.sum(x, dims=[0]))


def torch_row_col_sums(x: torch.Tensor) -> Tensors:
    return wide(x).sum(1).to(x.dtype), wide(x).sum(0).to(x.dtype)


def gelu_bwd_bias(fd: FusionDefinition, dy: Handle, x: Handle) -> list[Handle]:
    x = as_float(fd, x)
    t = fd.ops.tanh(_TANH_SCALE * (x + _TANH_CUBE * x * x * x))
    slope = _TANH_SCALE * (1.0 + 3 * _TANH_CUBE * x * x)
    dx = dy * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * slope)
    return rounded(fd, dx, fd.ops.sum(dx, dims=[0]))


def torch_gelu_bwd_bias(dy: torch.Tensor, x: torch.Tensor) -> Tensors:
    dx = torch.ops.aten.gelu_backward(dy, x, approximate="tanh")
    return dx, wide(dx).sum(0).to(x.dtype)


# ---- products ----------------------------------------------------------------------------------------------


def matmul_long(fd: FusionDefinition, x: Handle, y: Handle) -> list[Handle]:
    return [fd.ops.matmul(x, y)]


# ---- scans -------------------------------------------------------------------------------------------------


def cumsum_inner(fd: FusionDefinition, x: Handle) -> list[Handle]:
    return [fd.ops.cumsum(x, 1)]


def torch_cumsum_inner(x: torch.Tensor) -> torch.Tensor:
    return torch.cumsum(x, 1)


def cumsum_outer(fd: FusionDefinition, x: Handle) -> list[Handle]:
    return [fd.ops.cumsum(x, 0)]


def torch_cumsum_outer(x: torch.Tensor) -> torch.Tensor:
    return torch.cumsum(x, 0)


# ---- the table ---------------------------------------------------------------------------------------------

MIDDLE, WIDE, LONG, NARROW, TINY = (16384, 4096), (8192, 16384), (2048, 65536), (32768, 1024), (512, 768)
# So few rows that a block for each of them leaves most of a GPU idle.
FEW = (2, 16777216)
# As many classes as a well-known tokenizer has: no vector divides them.
VOCABULARY = (8192, 50257)
# Rows too long for a block, and rows that are short, odd or misaligned.
UNUSUAL = (
    (2048, 98304),
    (1024, 131072),
    (256, 262144),
    (8191, 4097),
    (4096, 50257),
    (65536, 257),
    (131072, 128),
)
ROWS = (MIDDLE, WIDE, LONG, NARROW, TINY)
BACKWARD = (MIDDLE, WIDE, NARROW)


def _statistic(r: Inputs, rows: int) -> torch.Tensor:
    return r(rows, 1, dtype=torch.float32).abs()


def _row_count(shape: Shape) -> int:
    return shape[0]


OPERATIONS: tuple[Operation, ...] = (
    Operation("add_mul", add_mul, torch_add_mul, lambda s, r: (r(*s), r(*s), r(*s)), (MIDDLE, TINY)),
    Operation("gelu_bias", gelu_bias, torch_gelu_bias, lambda s, r: (r(*s), r(s[1])), (MIDDLE, WIDE)),
    Operation("silu_mul", silu_mul, torch_silu_mul, lambda s, r: (r(*s), r(*s)), (MIDDLE, WIDE)),
    Operation("bcast_inner", bcast_inner, torch_bcast_inner, lambda s, r: (r(*s), r(s[0], 1)), (MIDDLE,)),
    Operation(
        "scale_bias_relu",
        scale_bias_relu,
        torch_scale_bias_relu,
        lambda s, r: (r(*s), r(s[1]), r(s[1])),
        (MIDDLE,),
    ),
    Operation("softmax", softmax, torch_softmax, lambda s, r: (r(*s),), (*ROWS, VOCABULARY, *UNUSUAL)),
    Operation(
        "masked_softmax",
        masked_softmax,
        torch_masked_softmax,
        lambda s, r: (r(*s), r.mask(*s)),
        (MIDDLE, (2048, 8191)),
    ),
    Operation(
        "log_softmax",
        log_softmax,
        torch_log_softmax,
        lambda s, r: (r(*s),),
        (MIDDLE, VOCABULARY, (2048, 151936)),
    ),
    Operation(
        "softmax_bwd",
        softmax_bwd,
        torch_softmax_bwd,
        lambda s, r: (r(*s), torch.softmax(r(*s), -1)),
        ROWS[:3],
    ),
    Operation(
        "layernorm", layernorm, torch_layernorm, lambda s, r: (r(*s), r(s[1]), r(s[1])), (*ROWS, (8191, 4095))
    ),
    Operation(
        "layernorm_bwd",
        layernorm_bwd,
        torch_layernorm_bwd,
        lambda s, r: (r(*s), r(*s), r(s[0], 1, dtype=torch.float32), _statistic(r, s[0]), r(s[1]), r(s[1])),
        BACKWARD,
        summed=_row_count,
    ),
    Operation("rmsnorm", rmsnorm, torch_rmsnorm, lambda s, r: (r(*s), r(s[1])), (*ROWS, (1536, 98304))),
    Operation("add_rmsnorm", add_rmsnorm, torch_add_rmsnorm, lambda s, r: (r(*s), r(*s), r(s[1])), ROWS[:2]),
    Operation(
        "rmsnorm_bwd",
        rmsnorm_bwd,
        torch_rmsnorm_bwd,
        lambda s, r: (r(*s), r(*s), _statistic(r, s[0]), r(s[1])),
        BACKWARD,
        summed=_row_count,
    ),
    Operation(
        "dropout_add_ln",
        dropout_add_ln,
        torch_dropout_add_ln,
        lambda s, r: (r(*s), r(*s), r.mask(*s), r(s[1]), r(s[1])),
        (MIDDLE,),
    ),
    Operation(
        "sum_inner",
        sum_inner,
        torch_sum_inner,
        lambda s, r: (r(*s),),
        (*ROWS[:3], (64, 4194304)),
        summed=lambda s: s[1],
    ),
    Operation(
        "sum_outer",
        sum_outer,
        torch_sum_outer,
        lambda s, r: (r(*s),),
        (*ROWS[:3], (4194304, 64), (100003, 1000), (333, 300000)),
        summed=_row_count,
    ),
    Operation(
        "sum_all", sum_all, torch_sum_all, lambda s, r: (r(*s),), (MIDDLE,), summed=lambda s: s[0] * s[1]
    ),
    Operation(
        "row_col_sums",
        row_col_sums,
        torch_row_col_sums,
        lambda s, r: (r(*s),),
        ((16384, 8192), *ROWS),
        summed=lambda s: max(s),
    ),
    Operation(
        "cumsum_inner",
        cumsum_inner,
        torch_cumsum_inner,
        lambda s, r: (r(*s),),
        (MIDDLE, LONG, NARROW, FEW),
        summed=lambda s: s[1],
    ),
    Operation(
        "cumsum_outer",
        cumsum_outer,
        torch_cumsum_outer,
        lambda s, r: (r(*s),),
        (MIDDLE, LONG),
        summed=_row_count,
    ),
    Operation(
        "matmul_long",
        matmul_long,
        torch.matmul,
        lambda s, r: (r(*s), r(s[1], s[0])),
        ((64, 65536), (256, 16384)),
        summed=lambda s: s[1],
    ),
    Operation(
        "gelu_bwd_bias",
        gelu_bwd_bias,
        torch_gelu_bwd_bias,
        lambda s, r: (r(*s), r(*s)),
        (MIDDLE,),
        summed=_row_count,
    ),
    Operation(
        "transpose_add",
        transpose_add,
        torch_transpose_add,
        lambda s, r: (r(*s), r(s[1], s[0])),
        (MIDDLE, WIDE),
    ),
    Operation(
        "permute_102",
        permute_102,
        torch_permute_102,
        lambda s, r: (r(*s),),
        ((512, 1024, 128), (2048, 64, 1024)),
        small=((4, 6, 16), (3, 5, 7)),
    ),
    Operation(
        "batchnorm_train",
        batchnorm_train,
        torch_batchnorm_train,
        lambda s, r: (r(*s), r(s[1], 1, 1, dtype=torch.float32), r(s[1], 1, 1, dtype=torch.float32)),
        ((256, 256, 56, 56), (64, 64, 112, 112)),
        small=((2, 4, 8, 8), (3, 2, 5, 7)),
    ),
    *MOVEMENT,
    *LAYOUTS,
)


def selected(
    names: Sequence[str] = (), operations: Sequence[Operation] = OPERATIONS
) -> tuple[Operation, ...]:
    """The operations that are selected, in the table's order; all of them without names.

    A name selects the operation that is called so, or else those whose names begin with it.

    Raises:
        ValueError: a name that no operation's begins with.
    """
    chosen: set[str] = set()
    unknown = []
    known = [operation.name for operation in operations]
    for name in names:
        found = [name] if name in known else [other for other in known if other.startswith(name)]
        chosen.update(found)
        if not found:
            unknown.append(name)
    if unknown:
        raise ValueError(f"no operation {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    return tuple(operation for operation in operations if not names or operation.name in chosen)
