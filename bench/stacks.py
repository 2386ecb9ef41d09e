"""Graphs of many kernels, to measure what it costs to compile them: stacks of equal layers, chains."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from bench.operation import Handle
from fusewright import DataType, FusionDefinition

ROWS, HIDDEN, WIDE = 64, 128, 256
_EPSILON = 1e-5
_TANH_SCALE = math.sqrt(2 / math.pi)
_TANH_CUBE = 0.044715


@dataclass(frozen=True)
class Graph:
    """A definition and the shapes of its inputs, in order."""

    define: Callable[[FusionDefinition], None]
    shapes: list[tuple[int, ...]] = field(default_factory=list)

    def definition(self) -> FusionDefinition:
        with FusionDefinition() as fd:
            self.define(fd)
        return fd

    def inputs(self, device: torch.device) -> list[torch.Tensor]:
        return [torch.randn(shape, device=device) for shape in self.shapes]


def pointwise_chain(count: int) -> Graph:
    """`count` elementwise operations, each of the result before."""

    def define(fd: FusionDefinition) -> None:
        x = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float)
        value = x
        for step in range(count):
            value = fd.ops.sin(value) if step % 2 else value + x
        fd.add_output(value)

    return Graph(define, [(ROWS, HIDDEN)])


def layer_stack(layers: int, backward: bool = False) -> Graph:
    """Layers of layer norm, a linear layer, GELU, a linear layer and what is added back, all alike.

    torch computes the matrix products, so everything between two of them is one kernel at least.

    Args:
        backward: whether the gradients of the input and of all parameters are computed, too.
    """
    names = ("weight", "bias", "up", "up_bias", "down", "down_bias")
    shapes: dict[str, tuple[int, ...]] = {
        "weight": (HIDDEN,),
        "bias": (HIDDEN,),
        "up": (HIDDEN, WIDE),
        "up_bias": (WIDE,),
        "down": (WIDE, HIDDEN),
        "down_bias": (HIDDEN,),
    }

    def define(fd: FusionDefinition) -> None:
        def tensor(rank: int) -> Handle:
            return fd.define_tensor(shape=[-1] * rank, contiguity=[True] * rank, dtype=DataType.Float)

        x = tensor(2)
        gradient = tensor(2) if backward else None
        parameters = [{name: tensor(len(shapes[name])) for name in names} for _ in range(layers)]
        saved = []
        for layer in parameters:
            x, kept = _forward(fd, x, layer)
            saved.append(kept)
        fd.add_output(x)
        if gradient is None:
            return
        for layer, kept in zip(reversed(parameters), reversed(saved)):
            gradient, others = _backward(fd, gradient, layer, kept)
            for other in others:
                fd.add_output(other)
        fd.add_output(gradient)

    ends = [(ROWS, HIDDEN)] * (2 if backward else 1)
    return Graph(define, [*ends, *(shapes[name] for _ in range(layers) for name in names)])


def _rows(fd: FusionDefinition, x: Handle) -> Handle:
    """One value a row, for each element of it."""
    return fd.ops.broadcast(x, [False, True])


def _columns(fd: FusionDefinition, x: Handle) -> Handle:
    """One value a column, for each element of it."""
    return fd.ops.broadcast(x, [True, False])


def _forward(fd: FusionDefinition, x: Handle, layer: dict[str, Handle]) -> tuple[Handle, dict[str, Handle]]:
    """The result of a layer, and what its gradient needs."""
    mean = _rows(fd, fd.ops.mean(x, [1]))
    centred = x - mean
    inverse = _rows(fd, fd.ops.rsqrt(fd.ops.mean(centred * centred, [1]) + _EPSILON))
    normal = centred * inverse
    scaled = normal * _columns(fd, layer["weight"]) + _columns(fd, layer["bias"])
    before = fd.ops.matmul(scaled, layer["up"]) + _columns(fd, layer["up_bias"])
    tanh = fd.ops.tanh(_TANH_SCALE * (before + _TANH_CUBE * before * before * before))
    active = 0.5 * before * (1.0 + tanh)
    result = x + fd.ops.matmul(active, layer["down"]) + _columns(fd, layer["down_bias"])
    kept = {"normal": normal, "inverse": inverse, "scaled": scaled, "before": before, "active": active}
    return result, kept


def _backward(
    fd: FusionDefinition, gradient: Handle, layer: dict[str, Handle], kept: dict[str, Handle]
) -> tuple[Handle, list[Handle]]:
    """The gradient of a layer's input, and those of its parameters."""

    def transposed(x: Handle) -> Handle:
        return fd.ops.permute(x, [1, 0])

    down_bias = fd.ops.sum(gradient, [0])
    down = fd.ops.matmul(transposed(kept["active"]), gradient)
    active = fd.ops.matmul(gradient, transposed(layer["down"]))
    x = kept["before"]
    tanh = fd.ops.tanh(_TANH_SCALE * (x + _TANH_CUBE * x * x * x))
    slope = _TANH_SCALE * (1.0 + 3 * _TANH_CUBE * x * x)
    before = active * (0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * slope)
    up_bias = fd.ops.sum(before, [0])
    up = fd.ops.matmul(transposed(kept["scaled"]), before)
    scaled = fd.ops.matmul(before, transposed(layer["up"]))
    normal, inverse = kept["normal"], kept["inverse"]
    weight = fd.ops.sum(scaled * normal, [0])
    bias = fd.ops.sum(scaled, [0])
    of_normal = scaled * _columns(fd, layer["weight"])
    mean = _rows(fd, fd.ops.mean(of_normal, [1]))
    along = _rows(fd, fd.ops.mean(of_normal * normal, [1]))
    own = inverse * (of_normal - mean - normal * along)
    return gradient + own, [down_bias, down, up_bias, up, weight, bias]
