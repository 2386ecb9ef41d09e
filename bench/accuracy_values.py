"""Operands to measure errors at: dense over the range of a type, and everywhere that formulas go wrong."""

from __future__ import annotations

import itertools
import math

import torch

from fusewright.core.dtype import DataType
from fusewright.core.op import ElementwiseOp

# Enough for the worst of a few thousand neighbours to be near the worst of all.
DENSE = 20_000
# CUDA's own formula loses digits where lgamma crosses zero between its poles.
_LGAMMA_ZEROS = (-11.1, -2.2)


def _specials(dtype: torch.dtype) -> list[float]:
    info = torch.finfo(dtype)
    subnormal = info.smallest_normal * info.eps
    near_one = [1.0, 1 - info.eps / 2, 1 + info.eps, 1 - 3e-3, 1 + 3e-3]
    ends = [info.max, info.max / 2, info.max / 8, math.sqrt(info.max), info.smallest_normal]
    small = [subnormal, 3 * subnormal, math.sqrt(info.smallest_normal), info.eps, math.sqrt(info.eps)]
    usual = [0.0, 0.25, 0.5, 2.0, 3.0, math.pi / 4, math.pi / 2, math.pi, 10.5, 88.5, 100.0, 709.5, 1e4]
    found = [*usual, *near_one, *ends, *small]
    return [*found, *(-x for x in found)]


def _log_spaced(dtype: torch.dtype, count: int, generator: torch.Generator) -> torch.Tensor:
    """Of both signs, from the subnormal numbers to the largest."""
    info = torch.finfo(dtype)
    low, high = math.log2(info.smallest_normal) - 8, math.log2(info.max)
    drawn = torch.rand(count, generator=generator, dtype=torch.float64)
    sign = torch.randint(0, 2, (count,), generator=generator) * 2.0 - 1
    return (torch.exp2(low + drawn * (high - low)).clamp(max=info.max) * sign).to(dtype)


def _dense(dtype: torch.dtype, low: float, high: float, generator: torch.Generator) -> torch.Tensor:
    low, high = max(low, -20.0), min(high, 20.0)
    drawn = torch.rand(DENSE, generator=generator, dtype=torch.float64)
    return (low + drawn * (high - low)).to(dtype)


def _real(dtype: torch.dtype, low: float, high: float, generator: torch.Generator) -> torch.Tensor:
    if dtype.itemsize == 2:  # all of them
        return torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    specials = torch.tensor([*_specials(dtype), math.inf, -math.inf, math.nan], dtype=dtype)
    return torch.cat([specials, _log_spaced(dtype, DENSE, generator), _dense(dtype, low, high, generator)])


def _complex(dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Finite: products of special parts, of the whole range, near the unit circle, near +-1 and +-i."""
    real = torch.float32 if dtype is torch.complex64 else torch.float64
    pairs = list(itertools.product(_specials(real), repeat=2))
    parts = [torch.tensor(pairs, dtype=real)]
    parts.append(torch.stack([_log_spaced(real, DENSE, generator) for _ in range(2)], -1))
    parts.append(torch.stack([_dense(real, -10, 10, generator) for _ in range(2)], -1))
    angle = torch.rand(DENSE, generator=generator, dtype=torch.float64) * 2 * math.pi
    parts.append(torch.stack([angle.cos(), angle.sin()], -1).to(real))
    near = torch.exp2(-torch.rand(DENSE, 2, generator=generator, dtype=torch.float64) * 40)
    near *= torch.randint(0, 2, near.shape, generator=generator) * 2.0 - 1
    for re, im in ((1, 0), (-1, 0), (0, 1), (0, -1), (0, 0)):
        parts.append((near[: DENSE // 4] + torch.tensor([re, im], dtype=torch.float64)).to(real))
    return torch.view_as_complex(torch.cat(parts).contiguous())


def operands(op: ElementwiseOp, dtype: DataType) -> list[torch.Tensor]:
    """One tensor for each operand of `op` computed in `dtype` or given in it, all of one length."""
    generator = torch.Generator().manual_seed(0)
    columns = []
    for i in range(op.arity):
        domain = op.domain(i)
        if dtype.is_complex:
            column = _complex(dtype.torch, generator)
        else:
            column = _real(dtype.torch, domain.low, domain.high, generator)
        # Operands after the first in another order, so that each meets all kinds.
        columns.append(column if i == 0 else column[torch.randperm(len(column), generator=generator)])
    if op.arity > 1 and not dtype.is_complex and dtype.size > 2:
        specials = [*_specials(dtype.torch), math.inf, -math.inf, math.nan]
        pairs = torch.tensor(list(itertools.product(specials, repeat=2)), dtype=dtype.torch)
        columns = [torch.cat([column, pairs[:, min(i, 1)]]) for i, column in enumerate(columns)]
    if op.name == "lgamma":
        low, high = _LGAMMA_ZEROS
        columns = [x[~((x > low) & (x < high))] for x in columns]
    return columns
