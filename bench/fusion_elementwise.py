"""Elementwise rows of the catalogue: activations, gates, losses, casts, optimizers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F

from bench.fusion import LARGE, MEDIUM, alike, float8, fusion, masked, rows_and_vectors
from bench.operation import KEEP, MASKED, Inputs, Operation, Shape, Tensors, wide

Tensor = torch.Tensor
FLOAT8_MAX = 448.0
#: Tensors of an optimizer's step, as shares of the shape's first dimension: weights of several sizes.
PARTS = (2, 4, 8)


# ---- activations -------------------------------------------------------------------------------------------


def swiglu_halves(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


def geglu(x: Tensor, y: Tensor) -> Tensor:
    return F.gelu(x) * y


def quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def squared_relu_gate(x: Tensor, y: Tensor) -> Tensor:
    return F.relu(x).square() * y


def silu_backward(dy: Tensor, x: Tensor) -> Tensor:
    s = torch.sigmoid(wide(x))
    return (dy * s * (1 + x * (1 - s))).to(x.dtype)


def gelu_backward(dy: Tensor, x: Tensor) -> Tensor:
    return torch.ops.aten.gelu_backward(dy, x)


def swiglu_backward(dy: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    s = torch.sigmoid(wide(x))
    dx = dy * y * s * (1 + x * (1 - s))
    return dx.to(x.dtype), (dy * x * s).to(x.dtype)


def soft_cap(x: Tensor) -> Tensor:
    return 30.0 * torch.tanh(x / 30.0)


def dropout_residual(x: Tensor, residual: Tensor, bias: Tensor, mask: Tensor) -> Tensor:
    return residual + (x + bias) * mask * (1 / KEEP)


ACTIVATIONS = (
    fusion("gelu", F.gelu, alike(1), LARGE),
    fusion("gelu_tanh_bias", lambda x, b: F.gelu(x + b, approximate="tanh"), rows_and_vectors(1, 1), LARGE),
    fusion("silu", F.silu, alike(1), LARGE),
    fusion("mish", F.mish, alike(1), LARGE),
    fusion("elu_selu", lambda x: F.elu(x) + F.selu(x), alike(1), LARGE),
    fusion("celu", lambda x: F.celu(x, 0.7), alike(1), LARGE),
    fusion("log1p", lambda x: torch.log1p(F.relu(x)), alike(1), LARGE),
    fusion("pow", lambda x: x.abs().pow(1.7), alike(1), LARGE),
    fusion("pow_tensors", lambda x, y: (x.abs() + 0.1).pow(y), alike(2), LARGE),
    fusion("softplus", F.softplus, alike(1), LARGE),
    fusion("hardswish", F.hardswish, alike(1), LARGE),
    fusion("leaky_relu", lambda x: F.leaky_relu(x, 0.1), alike(1), MEDIUM),
    fusion("sigmoid_tanh", lambda x, y: torch.sigmoid(x) * torch.tanh(y), alike(2), LARGE),
    fusion("erf", torch.erf, alike(1), LARGE),
    fusion("sin_cos", lambda x: x.sin() * x.cos(), alike(1), LARGE),
    fusion("atan2", torch.atan2, alike(2), MEDIUM),
    fusion("logsigmoid", F.logsigmoid, alike(1), LARGE),
    fusion("log_sqrt", lambda x: torch.log(torch.sqrt(x * x + 1e-3)), alike(1), LARGE),
    fusion("quick_gelu", quick_gelu, alike(1), LARGE),
    fusion("swiglu", lambda x, y: F.silu(x) * y, alike(2), LARGE, (8192, 11008)),
    fusion("swiglu_halves", swiglu_halves, alike(1), (8192, 8192)),
    fusion("geglu", geglu, alike(2), LARGE),
    fusion("squared_relu_gate", squared_relu_gate, alike(2), LARGE),
    fusion("silu_backward", silu_backward, alike(2), LARGE),
    fusion("gelu_backward", gelu_backward, alike(2), LARGE),
    fusion("swiglu_backward", swiglu_backward, alike(3), MEDIUM),
    fusion("soft_cap", soft_cap, alike(1), LARGE),
    fusion("dropout_residual", dropout_residual, lambda s, r: (r(*s), r(*s), r(s[-1]), r.mask(*s)), LARGE),
)

# ---- arithmetic, comparisons, broadcasts -------------------------------------------------------------------


def rows_and_columns(shape: Shape, r: Inputs) -> Tensors:
    return r(*shape), r(shape[0], 1), r(1, shape[1])


def lora_scale(x: Tensor, y: Tensor, scale: Tensor) -> Tensor:
    return x + y * scale


ARITHMETIC = (
    fusion("add_small", lambda x, y: x + y, alike(2), (64, 768)),
    fusion("addcmul", lambda x, y, z: torch.addcmul(x, y, z, value=0.5), alike(3), LARGE),
    fusion("lerp", lambda x, y: torch.lerp(x, y, 0.3), alike(2), LARGE),
    fusion("clamp", lambda x: x.clamp(-0.5, 0.5), alike(1), LARGE),
    fusion("remainder", lambda x: torch.remainder(x, 0.3), alike(1), MEDIUM),
    fusion("where", lambda x, m: torch.where(m, x, 0.0), masked, LARGE),
    fusion("where_greater", lambda x, y: torch.where(x > y, x, y * 2), alike(2), LARGE),
    fusion("masked_fill", lambda x, m: x.masked_fill(m, MASKED), masked, LARGE),
    fusion("greater", lambda x, y: x > y, alike(2), LARGE),
    fusion("between", lambda x: (x > -1) & (x < 1), alike(1), LARGE),
    fusion("nan_to_num", torch.nan_to_num, alike(1), MEDIUM),
    fusion("odd_add", lambda x, y: x + y, alike(2), (8191, 4097)),
    fusion("broadcast_rows_columns", lambda x, a, b: x * a + b, rows_and_columns, LARGE),
    fusion(
        "broadcast_middle", lambda x, y: x + y[:, None], lambda s, r: (r(*s), r(s[0], s[2])), (64, 256, 2048)
    ),
    fusion("broadcast_first", lambda x, y: x * y, lambda s, r: (r(*s), r(*s[1:])), (64, 256, 2048)),
    fusion(
        "broadcast_channels",
        lambda x, y: x * y[:, None, None],
        lambda s, r: (r(*s), r(s[1])),
        (64, 256, 56, 56),
    ),
    fusion("broadcast_odd", lambda x, y: x + y[:, :, None], lambda s, r: (r(*s), r(*s[:2])), (257, 513, 255)),
    fusion("outer_product", lambda x, y: x[:, None] * y, lambda s, r: (r(s[0]), r(s[1])), LARGE),
    fusion(
        "outer_sum",
        lambda x, y: x[:, :, None] + y[:, None],
        lambda s, r: (r(*s[:2]), r(s[0], s[2])),
        (64, 512, 1024),
    ),
    fusion("lora_scale", lora_scale, rows_and_vectors(2, 1), MEDIUM),
    fusion(
        "row_scale",
        lambda x, s: (wide(x) * s).to(x.dtype),
        lambda s, r: (r(*s), r(s[0], 1, dtype=torch.float32)),
        LARGE,
    ),
)

# ---- losses ------------------------------------------------------------------------------------------------


def targets(shape: Shape, r: Inputs) -> Tensors:
    """Logits, and the class of each row."""
    return r(*shape), r.indices(shape[1], shape[0])


def truths(shape: Shape, r: Inputs) -> Tensors:
    """Logits, and probabilities of 0 or 1 as numbers."""
    return r(*shape), r.mask(*shape).to(r.dtype)


def focal_loss(x: Tensor, target: Tensor) -> Tensor:
    p = torch.sigmoid(wide(x))
    right = p * target + (1 - p) * (1 - target)
    return (-((1 - right) ** 2) * torch.log(right + 1e-6)).mean()


def kl_div(x: Tensor, y: Tensor) -> Tensor:
    return F.kl_div(F.log_softmax(wide(x), -1), F.softmax(wide(y), -1), reduction="batchmean")


LOSSES = (
    fusion("mse", lambda x, y: F.mse_loss(wide(x), wide(y)), alike(2), LARGE),
    fusion("l1_elements", lambda x, y: F.l1_loss(x, y, reduction="none"), alike(2), LARGE),
    fusion("huber", lambda x, y: F.huber_loss(wide(x), wide(y)), alike(2), LARGE),
    fusion("smooth_l1_elements", lambda x, y: F.smooth_l1_loss(x, y, reduction="none"), alike(2), LARGE),
    fusion("bce", lambda x, y: F.binary_cross_entropy_with_logits(wide(x), wide(y)), truths, LARGE),
    fusion("focal", focal_loss, truths, MEDIUM),
    fusion("kl_div", kl_div, alike(2), (8192, 4096)),
    fusion("cross_entropy", lambda x, t: F.cross_entropy(wide(x), t), targets, (8192, 8192)),
    fusion(
        "cross_entropy_smooth",
        lambda x, t: F.cross_entropy(wide(x), t, label_smoothing=0.1),
        targets,
        (4096, 32000),
    ),
    fusion("cosine", lambda x, y: F.cosine_similarity(wide(x), wide(y), -1), alike(2), LARGE),
    fusion("hinge", lambda x, y: F.relu(1 - wide(x) * y).mean(-1), alike(2), LARGE),
)

# ---- casts and quantisation --------------------------------------------------------------------------------


def float8_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = wide(x).abs().amax(-1, keepdim=True).clamp(min=1e-6) / FLOAT8_MAX
    return scale, float8(wide(x) / scale)


def float8_blocks(x: Tensor) -> tuple[Tensor, Tensor]:
    blocks = wide(x).unflatten(-1, (-1, min(128, x.shape[-1])))
    scale = blocks.abs().amax(-1, keepdim=True).clamp(min=1e-6) / FLOAT8_MAX
    return scale.squeeze(-1), float8((blocks / scale).flatten(-2))


def float8_tensor(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = wide(x).abs().amax().clamp(min=1e-6) / FLOAT8_MAX
    return scale, float8(wide(x) / scale)


def float8_scaled(x: Tensor, scale: Tensor) -> Tensor:
    return float8((wide(x) * scale).clamp(-FLOAT8_MAX, FLOAT8_MAX))


def float8_back(x: Tensor, scale: Tensor) -> Tensor:
    return (wide(x) * scale).to(torch.bfloat16)


def fake_quantise(x: Tensor) -> Tensor:
    return (torch.round(wide(x) * 16).clamp(-128, 127) / 16).to(x.dtype)


def one_scale(shape: Shape, r: Inputs) -> Tensors:
    return r(*shape), r(1, dtype=torch.float32).abs()


CASTS = (
    fusion("to_float", lambda x: x.float(), lambda s, r: (r(*s, dtype=torch.bfloat16),), LARGE),
    fusion("to_bfloat16", lambda x: x.to(torch.bfloat16), lambda s, r: (r(*s, dtype=torch.float32),), LARGE),
    fusion("float8_scaled", float8_scaled, one_scale, LARGE),
    fusion("float8_rows", float8_rows, alike(1), LARGE),
    fusion("float8_blocks", float8_blocks, alike(1), LARGE),
    fusion("float8_tensor", float8_tensor, alike(1), MEDIUM),
    fusion("float8_back", float8_back, lambda s, r: (float8(r(*s)), r(s[0], 1, dtype=torch.float32)), LARGE),
    fusion("fake_quantise", fake_quantise, alike(1), LARGE),
)

# ---- optimizers --------------------------------------------------------------------------------------------


def parts(count: int) -> Callable[[Shape, Inputs], Tensors]:
    """So many tensors for each of `PARTS`."""
    return lambda shape, r: tuple(
        r(max(1, shape[0] // part), shape[1], dtype=torch.float32) for part in PARTS for _ in range(count)
    )


def each_part(tensors: Sequence[Tensor]) -> Iterator[Sequence[Tensor]]:
    count = len(tensors) // len(PARTS)
    return (tensors[i * count : (i + 1) * count] for i in range(len(PARTS)))


def sgd_momentum(*tensors: Tensor) -> list[Tensor]:
    results = []
    for weight, gradient, momentum in each_part(tensors):
        momentum = 0.9 * momentum + gradient
        results += [momentum, weight - 0.01 * momentum]
    return results


def adamw(*tensors: Tensor) -> list[Tensor]:
    results = []
    for weight, gradient, first, second in each_part(tensors):
        first = torch.lerp(first, gradient, 0.1)
        second = 0.999 * second.abs() + 0.001 * gradient * gradient
        update = first / (second.sqrt() + 1e-3)
        results += [first, second, weight * (1 - 1e-4) - 1e-3 * update]
    return results


def lion(*tensors: Tensor) -> list[Tensor]:
    results = []
    for weight, gradient, momentum in each_part(tensors):
        update = torch.sign(0.9 * momentum + 0.1 * gradient)
        results += [weight - 1e-4 * update, 0.99 * momentum + 0.01 * gradient]
    return results


OPTIMIZERS = (
    fusion("sgd_momentum", sgd_momentum, parts(3), (8192, 1024)),
    fusion("adamw", adamw, parts(4), (8192, 1024)),
    fusion("lion", lion, parts(3), (8192, 1024)),
    fusion(
        "ema", lambda old, x: old * 0.999 + x * 0.001, lambda s, r: (r(*s, dtype=torch.float32), r(*s)), LARGE
    ),
)

ELEMENTWISE: tuple[Operation, ...] = (*ACTIVATIONS, *ARITHMETIC, *LOSSES, *CASTS, *OPTIMIZERS)
