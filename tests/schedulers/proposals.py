"""What a scheduler proposes for inputs of given shapes, and what launch comes of it, without running it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fusewright import FusionDefinition, schedulers
from fusewright.core.dtype import DataType
from fusewright.core.hardware import DESCRIBED, HardwareInfo
from fusewright.core.tracing import Tracer
from fusewright.ir import Fusion, TensorView
from fusewright.lower import LowerOptions, SizeArgument, lower
from fusewright.ops.build_elementwise import apply_to_tensor, convert_tensor
from fusewright.ops.build_inputs import add_output, define_tensor
from fusewright.ops.build_reduction import max_, sum_, var_mean
from fusewright.ops.build_scan import cumsum
from fusewright.ops.evaluate import bind_sizes
from fusewright.rewrite import canonicalize
from fusewright.schedule import Schedule
from fusewright.schedulers import Facts, Scheduler
from fusewright.sym import evaluate
from fusewright.torch_compile import decompositions, from_fx

H200 = DESCRIBED["h200"]
Shape = Sequence[int]


@dataclass(frozen=True)
class Launch:
    """Extents of the grid and the block, and bytes of shared memory."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_bytes: int

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]


def facts_of(
    fusion: Fusion, shapes: Sequence[Shape], strides: Sequence[Shape] | None = None, alignment: int = 256
) -> Facts:
    tensors = [torch.empty(shape, device="meta") for shape in shapes]
    given = tuple(tuple(s) for s in strides) if strides else tuple(t.stride() for t in tensors)
    return Facts(bind_sizes(fusion, tensors), given, (alignment,) * len(tensors), DataType.Int)


def propose(
    scheduler: Scheduler, fusion: Fusion, facts: Facts, hardware: HardwareInfo = H200
) -> tuple[Any, Launch]:
    """The params, and the launch of the kernel that they make."""
    params = schedulers.propose(scheduler, fusion, facts, hardware)
    schedule = Schedule(fusion)
    schedulers.apply(scheduler, schedule, params, hardware)
    schedule.complete()
    lowered = lower(schedule.fusion, LowerOptions("k"), Tracer())
    sizes = {
        s: evaluate(a.extent, facts.sizes) for s, a in lowered.symbols.items() if isinstance(a, SizeArgument)
    }
    kernel = lowered.kernel
    return params, Launch(
        tuple(evaluate(e, sizes) for e in kernel.grid),
        tuple(evaluate(e, sizes) for e in kernel.block),
        evaluate(kernel.shared_bytes, sizes),
    )


def definition(function: Callable[..., object], *inputs: torch.Tensor) -> FusionDefinition:
    """What `from_fx` makes of a function of torch that is one definition."""
    return from_fx(make_fx(function, decompositions(), tracing_mode="fake")(*inputs)).definitions[0]


# ---- fusions -----------------------------------------------------------------------------------------------


def built(body: Callable[[Fusion], TensorView]) -> Fusion:
    fusion = Fusion()
    add_output(fusion, body(fusion))
    fusion.unify_extents()
    canonicalize(fusion)
    return fusion


def elementwise(rank: int, dtype: DataType = DataType.Float, contiguity: Any = True) -> Fusion:
    """exp(x)."""
    return built(
        lambda f: convert_tensor(
            f, apply_to_tensor(f, "exp", define_tensor(f, [-1] * rank, contiguity, dtype)), dtype
        )
    )


def biased(dtype: DataType = DataType.Float) -> Fusion:
    """x[i, j] + y[j]."""
    return built(
        lambda f: apply_to_tensor(
            f, "add", define_tensor(f, [-1, -1], True, dtype), define_tensor(f, [-1], True, dtype)
        )
    )


def scanned(dim: int) -> Fusion:
    return built(lambda fusion: cumsum(fusion, define_tensor(fusion, [-1, -1], True, DataType.BFloat16), dim))


def reduced(dims: Sequence[int], rank: int = 2, dtype: DataType = DataType.Float) -> Fusion:
    return built(lambda f: sum_(f, define_tensor(f, [-1] * rank, True, dtype), list(dims)))


def normalized(dtype: DataType = DataType.Float, weights: int = 0) -> Fusion:
    """(x - mean) * rsqrt(var + eps) over the last dimension, times so many weights."""

    def body(fusion: Fusion) -> TensorView:
        x = define_tensor(fusion, [-1, -1], True, dtype)
        wide = convert_tensor(fusion, x, DataType.Float)
        var, mean = var_mean(fusion, wide, [1], 0, True)
        scale = apply_to_tensor(fusion, "rsqrt", apply_to_tensor(fusion, "add", var, 1e-5))
        result = apply_to_tensor(fusion, "mul", apply_to_tensor(fusion, "sub", wide, mean), scale)
        for _ in range(weights):
            weight = convert_tensor(fusion, define_tensor(fusion, [-1], True, dtype), DataType.Float)
            result = apply_to_tensor(fusion, "mul", result, weight)
        return convert_tensor(fusion, result, dtype)

    return built(body)


def softmax_of(
    fusion: Fusion, dims: Sequence[int], dtype: DataType = DataType.BFloat16, rank: int = 2
) -> TensorView:
    """The softmax of a tensor over some of its dimensions."""
    x = convert_tensor(fusion, define_tensor(fusion, [-1] * rank, True, dtype), DataType.Float)
    e = apply_to_tensor(fusion, "exp", apply_to_tensor(fusion, "sub", x, max_(fusion, x, list(dims), True)))
    return convert_tensor(fusion, apply_to_tensor(fusion, "div", e, sum_(fusion, e, list(dims), True)), dtype)
