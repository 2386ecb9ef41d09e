"""The two fusions of the demo, written as a user writes them, each with its torch equivalent."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from fusewright.core.dtype import DataType
from fusewright.frontend import FusionDefinition

EPSILON = 1e-5
Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Example:
    """A fusion of the demo: one output from bfloat16 inputs, computed in float.

    reference: the same computation, in the precision of its inputs. inputs: tensors for (rows, columns).
    """

    title: str
    define: Callable[[], FusionDefinition]
    reference: Callable[..., torch.Tensor]
    inputs: Callable[[tuple[int, int], torch.device], Tensors]


def softmax() -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=DataType.BFloat16)
        x = fd.ops.cast(x, dtype=DataType.Float)
        e = fd.ops.exp(x - fd.ops.max(x, dims=[1], keepdim=True))
        y = e / fd.ops.sum(e, dims=[1], keepdim=True)
        fd.add_output(fd.ops.cast(y, dtype=DataType.BFloat16))
    return fd


def residual_layer_norm_gelu() -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=DataType.BFloat16)
        residual = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=DataType.BFloat16)
        weight = fd.define_tensor(shape=[-1], contiguity=True, dtype=DataType.BFloat16)
        bias = fd.define_tensor(shape=[-1], contiguity=True, dtype=DataType.BFloat16)
        total = x + residual
        variance, mean = fd.ops.var_mean(total, dims=[1], correction=0, keepdim=True)
        normalized = (total - mean) * fd.ops.rsqrt(variance + EPSILON)
        h = normalized * weight + bias
        inner = math.sqrt(2 / math.pi) * (h + 0.044715 * h * h * h)
        y = 0.5 * h * (1.0 + fd.ops.tanh(inner))
        fd.add_output(fd.ops.cast(y, dtype=DataType.BFloat16))
    return fd


def torch_softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def torch_residual_layer_norm_gelu(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    h = F.layer_norm(x + residual, x.shape[-1:], weight, bias, EPSILON)
    return F.gelu(h, approximate="tanh")


def _normal(device: torch.device, *shapes: tuple[int, ...]) -> Tensors:
    generator = torch.Generator(device).manual_seed(0)
    return tuple(
        torch.randn(shape, device=device, dtype=torch.bfloat16, generator=generator) for shape in shapes
    )


EXAMPLES: tuple[Example, ...] = (
    Example("softmax", softmax, torch_softmax, lambda size, device: _normal(device, size)),
    Example(
        "residual + layer norm + GELU",
        residual_layer_norm_gelu,
        torch_residual_layer_norm_gelu,
        lambda size, device: _normal(device, size, size, size[1:], size[1:]),
    ),
)
