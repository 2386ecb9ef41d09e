"""Reference functions of real numbers for which torch's CPU functions are less accurate than CUDA's.

torch's vectorized fmod divides, so that large quotients are NaN. Its roots are not correctly rounded. sinh
and cosh overflow, and sigmoid becomes zero, too early.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch


def _by_numpy(function: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """A function of numpy, which is C's, of tensors."""

    def call(*operands: torch.Tensor) -> torch.Tensor:
        with np.errstate(all="ignore"):
            result = np.asarray(function(*(x.detach().cpu().numpy() for x in operands)))
        return torch.from_numpy(result).to(operands[0].device)

    return call


fmod = _by_numpy(np.fmod)
sqrt = _by_numpy(np.sqrt)


def remainder(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """With the sign of the divisor."""
    rest = fmod(a, b)
    return torch.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


def sigmoid(x: torch.Tensor) -> torch.Tensor:
    """From e^-|x|, which does not overflow."""
    e = torch.exp(-x.abs())
    return torch.where(x < 0, e, 1) / (1 + e)


def silu(x: torch.Tensor) -> torch.Tensor:
    """Through sigmoid, while that has all its digits."""
    root = torch.exp(x / 2)
    limit = 80 if x.dtype == torch.float32 else 700
    return torch.where((x < -limit) & ~x.isinf(), x * root * root, x * sigmoid(x))


def _half_exp(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Where e^|x| alone would be infinite, and its half, which is a product of two roots there."""
    root = torch.exp(x.abs() / 2)
    return x.abs() > math.log(torch.finfo(x.dtype).max) - 1, root / 2 * root


def cosh(x: torch.Tensor) -> torch.Tensor:
    large, half = _half_exp(x)
    return torch.where(large, half, torch.cosh(x))


def sinh(x: torch.Tensor) -> torch.Tensor:
    large, half = _half_exp(x)
    return torch.where(large, torch.copysign(half, x), torch.sinh(x))
