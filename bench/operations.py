"""The operations that are measured: each a Fusewright definition next to the torch function that it replaces.

Shapes, inputs and minimal bytes are those of the peers' table in docs/performance.md: bfloat16 in and out,
computed in float. The same rows at small shapes are end-to-end tests (tests/bench).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from fusewright import DataType, FusionDefinition

Shape = tuple[int, ...]
Tensors = tuple[torch.Tensor, ...]
#: A tensor of a definition: the front end's handle, whose operators build nodes.
Handle = Any

EPSILON = 1e-5
KEEP = 0.9  # of dropout
# A sum of n values of size 1 computed in float32: rounding grows like sqrt(n), and the factor covers the
# functions (exp, tanh, rsqrt) on the way and partial sums taken one after another.
FLOAT_ERROR = 64 * 2.0**-24
# Relative error of an output: half a unit in the last place of bfloat16, and a little for results near a tie
# that float arithmetic moves to its other side; a few units of float32.
ROUNDING = {torch.bfloat16: 1.01 * 2.0**-8, torch.float32: 2.0**-20}


class Inputs:
    """Makes the inputs of an operation, the same ones each time."""

    def __init__(self, device: torch.device, seed: int = 0) -> None:
        self.device = device
        self._generator = torch.Generator(device).manual_seed(seed)

    def __call__(self, *shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        """Normally distributed values."""
        return torch.randn(*shape, device=self.device, dtype=dtype, generator=self._generator)

    def mask(self, *shape: int) -> torch.Tensor:
        """Bools, True with probability `KEEP`."""
        return torch.rand(*shape, device=self.device, generator=self._generator) < KEEP


@dataclass(frozen=True)
class Operation:
    """One row of the benchmark.

    define: builds the computation from one handle an input and returns the outputs.
    reference: the function that a torch user writes; given doubles, it computes in doubles.
    inputs: the tensors for a shape. shapes: what is measured. small: what the simulator runs in a moment,
    with rows that vectors divide and rows that they do not. summed: how many values an output adds up
    without dividing by their number, which sets the absolute error.
    """

    name: str
    define: Callable[..., Sequence[Handle]]
    reference: Callable[..., Any]
    inputs: Callable[[Shape, Inputs], Tensors]
    shapes: tuple[Shape, ...]
    small: tuple[Shape, ...] = ((6, 64), (5, 99))
    summed: Callable[[Shape], int] = lambda shape: 1

    def definition(self, inputs: Tensors) -> FusionDefinition:
        """The operation for inputs of this rank, dtype and memory order, any size."""
        with FusionDefinition() as fd:
            for output in self.define(fd, *(fd.from_pytorch(tensor) for tensor in inputs)):
                fd.add_output(output)
        return fd

    def least_bytes(self, inputs: Tensors, outputs: Tensors) -> int:
        """What any implementation must read and write at least."""
        return sum(t.numel() * t.element_size() for t in (*inputs, *outputs))

    def check(self, shape: Shape, inputs: Tensors, outputs: Sequence[torch.Tensor]) -> float:
        """Compare with torch in double precision; the largest error, as a fraction of what is allowed.

        Raises:
            AssertionError: an output is wrong.
        """
        expected = as_tuple(self.reference(*(t.double() if t.is_floating_point() else t for t in inputs)))
        assert len(outputs) == len(expected), f"{len(outputs)} outputs, expected {len(expected)}"
        atol = FLOAT_ERROR * math.sqrt(self.summed(shape))
        worst = 0.0
        for output, reference in zip(outputs, expected):
            assert output.shape == reference.shape, f"shape {output.shape}, expected {reference.shape}"
            rtol = ROUNDING[output.dtype]
            torch.testing.assert_close(output.double(), reference, rtol=rtol, atol=atol)
            used = (output.double() - reference).abs() / (atol + rtol * reference.abs())
            worst = max(worst, used.max().item())
        return worst


def as_tuple(outputs: torch.Tensor | Sequence[torch.Tensor]) -> Tensors:
    return (outputs,) if isinstance(outputs, torch.Tensor) else tuple(outputs)


# ---- what several operations use ---------------------------------------------------------------------------


def _float(fd: FusionDefinition, tensor: Handle) -> Handle:
    return fd.ops.cast(tensor, dtype=DataType.Float)


def _bf16(fd: FusionDefinition, *tensors: Handle) -> list[Handle]:
    return [fd.ops.cast(tensor, dtype=DataType.BFloat16) for tensor in tensors]


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """Float, or double for the reference."""
    return tensor if tensor.dtype is torch.float64 else tensor.float()


def _row(fd: FusionDefinition, reduce: Callable[..., Handle], tensor: Handle) -> Handle:
    return reduce(tensor, dims=[-1], keepdim=True)


def _per_column(fd: FusionDefinition, vector: Handle) -> Handle:
    """[C] as [1, C]."""
    return fd.ops.broadcast(vector, is_broadcast_dim=[True, False])


_TANH_SCALE = math.sqrt(2 / math.pi)
_TANH_CUBE = 0.044715


def _gelu(fd: FusionDefinition, x: Handle) -> Handle:
    """GELU in its tanh form."""
    inner = _TANH_SCALE * (x + _TANH_CUBE * x * x * x)
    return 0.5 * x * (1.0 + fd.ops.tanh(inner))


# ---- pointwise ---------------------------------------------------------------------------------------------


def add_mul(fd: FusionDefinition, x: Handle, y: Handle, z: Handle) -> list[Handle]:
    return _bf16(fd, (x + y) * z)


def torch_add_mul(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    return (x + y) * z


def gelu_bias(fd: FusionDefinition, x: Handle, bias: Handle) -> list[Handle]:
    return _bf16(fd, _gelu(fd, x + _per_column(fd, bias)))


def torch_gelu_bias(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.gelu(x + bias, approximate="tanh")


def silu_mul(fd: FusionDefinition, x: Handle, y: Handle) -> list[Handle]:
    x = _float(fd, x)
    return _bf16(fd, x * fd.ops.sigmoid(x) * y)


def torch_silu_mul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.silu(x) * y


def bcast_inner(fd: FusionDefinition, x: Handle, y: Handle) -> list[Handle]:
    return _bf16(fd, x + y)


def torch_bcast_inner(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y


def scale_bias_relu(fd: FusionDefinition, x: Handle, scale: Handle, bias: Handle) -> list[Handle]:
    return _bf16(fd, fd.ops.relu(x * _per_column(fd, scale) + _per_column(fd, bias)))


def torch_scale_bias_relu(x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.relu(x * scale + bias)


def transpose_add(fd: FusionDefinition, x: Handle, y: Handle) -> list[Handle]:
    return _bf16(fd, fd.ops.permute(x, dims=[1, 0]) + y)


def torch_transpose_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous() + y


def permute_102(fd: FusionDefinition, x: Handle) -> list[Handle]:
    return [fd.ops.set(fd.ops.permute(x, dims=[1, 0, 2]))]


def torch_permute_102(x: torch.Tensor) -> torch.Tensor:
    return x.permute(1, 0, 2).contiguous()


# ---- normalization -----------------------------------------------------------------------------------------


def softmax(fd: FusionDefinition, x: Handle) -> list[Handle]:
    x = _float(fd, x)
    e = fd.ops.exp(x - _row(fd, fd.ops.max, x))
    return _bf16(fd, e / _row(fd, fd.ops.sum, e))


def torch_softmax(x: torch.Tensor) -> torch.Tensor:
    return F.softmax(x, -1)


def masked_softmax(fd: FusionDefinition, x: Handle, keep: Handle) -> list[Handle]:
    # The least bfloat16, not -inf: a row in which nothing is kept has a result then, too.
    least = torch.finfo(torch.bfloat16).min
    return softmax(fd, fd.ops.where(keep, _float(fd, x), least))


def torch_masked_softmax(x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    return F.softmax(x.masked_fill(~keep, torch.finfo(torch.bfloat16).min), -1)


def log_softmax(fd: FusionDefinition, x: Handle) -> list[Handle]:
    x = _float(fd, x)
    shifted = x - _row(fd, fd.ops.max, x)
    return _bf16(fd, shifted - fd.ops.log(_row(fd, fd.ops.sum, fd.ops.exp(shifted))))


def torch_log_softmax(x: torch.Tensor) -> torch.Tensor:
    return F.log_softmax(x, -1)


def softmax_bwd(fd: FusionDefinition, dy: Handle, y: Handle) -> list[Handle]:
    dy, y = _float(fd, dy), _float(fd, y)
    return _bf16(fd, y * (dy - _row(fd, fd.ops.sum, dy * y)))


def torch_softmax_bwd(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten._softmax_backward_data(dy, y, -1, y.dtype)


def _normalized(fd: FusionDefinition, x: Handle) -> Handle:
    variance, mean = fd.ops.var_mean(x, dims=[-1], correction=0, keepdim=True)
    return (x - mean) * fd.ops.rsqrt(variance + EPSILON)


def layernorm(fd: FusionDefinition, x: Handle, weight: Handle, bias: Handle) -> list[Handle]:
    normalized = _normalized(fd, _float(fd, x))
    return _bf16(fd, normalized * _per_column(fd, weight) + _per_column(fd, bias))


def torch_layernorm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias, EPSILON)


def _rms_normalized(fd: FusionDefinition, x: Handle) -> Handle:
    return x * fd.ops.rsqrt(_row(fd, fd.ops.mean, x * x) + EPSILON)


def rmsnorm(fd: FusionDefinition, x: Handle, weight: Handle) -> list[Handle]:
    return _bf16(fd, _rms_normalized(fd, _float(fd, x)) * _per_column(fd, weight))


def torch_rmsnorm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, x.shape[-1:], weight, EPSILON)


def add_rmsnorm(fd: FusionDefinition, x: Handle, residual: Handle, weight: Handle) -> list[Handle]:
    total = x + residual
    return _bf16(fd, total, _rms_normalized(fd, total) * _per_column(fd, weight))


def torch_add_rmsnorm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> Tensors:
    total = x + residual
    return total, F.rms_norm(total, total.shape[-1:], weight, EPSILON)


def dropout_add_ln(
    fd: FusionDefinition, x: Handle, residual: Handle, mask: Handle, weight: Handle, bias: Handle
) -> list[Handle]:
    total = residual + x * mask * (1 / KEEP)
    normalized = _normalized(fd, total)
    return _bf16(fd, total, normalized * _per_column(fd, weight) + _per_column(fd, bias))


def torch_dropout_add_ln(
    x: torch.Tensor, residual: torch.Tensor, mask: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
) -> Tensors:
    total = residual + x * mask * (1 / KEEP)
    return total, F.layer_norm(total, total.shape[-1:], weight, bias, EPSILON)


def layernorm_bwd(
    fd: FusionDefinition, dy: Handle, x: Handle, mean: Handle, rstd: Handle, weight: Handle, bias: Handle
) -> list[Handle]:
    dy = _float(fd, dy)
    normalized = (_float(fd, x) - mean) * rstd
    scaled = dy * _per_column(fd, weight)
    projected = _row(fd, fd.ops.mean, scaled * normalized)
    dx = (scaled - _row(fd, fd.ops.mean, scaled) - normalized * projected) * rstd
    return _bf16(fd, dx, fd.ops.sum(dy * normalized, dims=[0]), fd.ops.sum(dy, dims=[0]))


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
    dy = _float(fd, dy)
    normalized = _float(fd, x) * rstd
    scaled = dy * _per_column(fd, weight)
    dx = (scaled - normalized * _row(fd, fd.ops.mean, scaled * normalized)) * rstd
    return _bf16(fd, dx, fd.ops.sum(dy * normalized, dims=[0]))


def torch_rmsnorm_bwd(dy: torch.Tensor, x: torch.Tensor, rstd: torch.Tensor, weight: torch.Tensor) -> Tensors:
    scaled = _wide(dy) * _wide(weight)
    normalized = _wide(x) * rstd
    dx = (scaled - normalized * (scaled * normalized).mean(-1, keepdim=True)) * rstd
    dw = (_wide(dy) * normalized).sum(0)
    return dx.to(x.dtype), dw.to(weight.dtype)


def batchnorm_train(fd: FusionDefinition, x: Handle, weight: Handle, bias: Handle) -> list[Handle]:
    x = _float(fd, x)
    variance, mean = fd.ops.var_mean(x, dims=[0, 2, 3], correction=0, keepdim=True)
    [y] = _bf16(fd, (x - mean) * fd.ops.rsqrt(variance + EPSILON) * weight + bias)
    return [y, mean, variance]


def torch_batchnorm_train(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Tensors:
    wide = _wide(x)
    variance, mean = torch.var_mean(wide, dim=(0, 2, 3), unbiased=False, keepdim=True)
    y = (wide - mean) * torch.rsqrt(variance + EPSILON) * weight + bias
    return y.to(x.dtype), mean, variance


# ---- reductions --------------------------------------------------------------------------------------------


def sum_inner(fd: FusionDefinition, x: Handle) -> list[Handle]:
    return [fd.ops.sum(_float(fd, x), dims=[1])]


def torch_sum_inner(x: torch.Tensor) -> torch.Tensor:
    return _wide(x).sum(-1)


def sum_outer(fd: FusionDefinition, x: Handle) -> list[Handle]:
    return [fd.ops.sum(_float(fd, x), dims=[0])]


def torch_sum_outer(x: torch.Tensor) -> torch.Tensor:
    return _wide(x).sum(0)


def sum_all(fd: FusionDefinition, x: Handle) -> list[Handle]:
    return [fd.ops.sum(_float(fd, x), dims=[0, 1])]


def torch_sum_all(x: torch.Tensor) -> torch.Tensor:
    return _wide(x).sum()


def gelu_bwd_bias(fd: FusionDefinition, dy: Handle, x: Handle) -> list[Handle]:
    x = _float(fd, x)
    t = fd.ops.tanh(_TANH_SCALE * (x + _TANH_CUBE * x * x * x))
    slope = _TANH_SCALE * (1.0 + 3 * _TANH_CUBE * x * x)
    dx = dy * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * slope)
    return _bf16(fd, dx, fd.ops.sum(dx, dims=[0]))


def torch_gelu_bwd_bias(dy: torch.Tensor, x: torch.Tensor) -> Tensors:
    dx = torch.ops.aten.gelu_backward(dy, x, approximate="tanh")
    return dx, _wide(dx).sum(0).to(x.dtype)


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
# As many classes as a well-known tokenizer has: no vector divides them.
VOCABULARY = (8192, 50257)
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
    Operation("softmax", softmax, torch_softmax, lambda s, r: (r(*s),), (*ROWS, VOCABULARY)),
    Operation(
        "masked_softmax",
        masked_softmax,
        torch_masked_softmax,
        lambda s, r: (r(*s), r.mask(*s)),
        (MIDDLE, (2048, 8191)),
    ),
    Operation("log_softmax", log_softmax, torch_log_softmax, lambda s, r: (r(*s),), (MIDDLE, VOCABULARY)),
    Operation(
        "softmax_bwd",
        softmax_bwd,
        torch_softmax_bwd,
        lambda s, r: (r(*s), torch.softmax(r(*s), -1)),
        ROWS[:3],
    ),
    Operation("layernorm", layernorm, torch_layernorm, lambda s, r: (r(*s), r(s[1]), r(s[1])), ROWS),
    Operation(
        "layernorm_bwd",
        layernorm_bwd,
        torch_layernorm_bwd,
        lambda s, r: (
            r(*s),
            r(*s),
            r(s[0], 1, dtype=torch.float32),
            _statistic(r, s[0]),
            r(s[1]),
            r(s[1]),
        ),
        BACKWARD,
        summed=_row_count,
    ),
    Operation("rmsnorm", rmsnorm, torch_rmsnorm, lambda s, r: (r(*s), r(s[1])), ROWS),
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
        (*ROWS[:3], (4194304, 64)),
        summed=_row_count,
    ),
    Operation(
        "sum_all", sum_all, torch_sum_all, lambda s, r: (r(*s),), (MIDDLE,), summed=lambda s: s[0] * s[1]
    ),
    Operation(
        "cumsum_inner",
        cumsum_inner,
        torch_cumsum_inner,
        lambda s, r: (r(*s),),
        (MIDDLE, LONG, NARROW),
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
        lambda s, r: (
            r(*s),
            r(s[1], 1, 1, dtype=torch.float32),
            r(s[1], 1, 1, dtype=torch.float32),
        ),
        ((256, 256, 56, 56), (64, 64, 112, 112)),
        small=((2, 4, 8, 8), (3, 2, 5, 7)),
    ),
)


def selected(names: Sequence[str] = ()) -> tuple[Operation, ...]:
    """The operations of these names, in the table's order; all of them if none is given.

    Raises:
        ValueError: a name that is not in the table.
    """
    known = {operation.name for operation in OPERATIONS}
    unknown = sorted(set(names) - known)
    if unknown:
        raise ValueError(
            f"no operation {', '.join(unknown)}; there are: {', '.join(o.name for o in OPERATIONS)}"
        )
    return tuple(operation for operation in OPERATIONS if not names or operation.name in names)
