"""Rows of the catalogue that are written as definitions, as users of nvFuser's interface write them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from bench.fusion import MEDIUM, MakesInputs, alike, small_shape
from bench.operation import EPSILON, Handle, Inputs, Operation, Shape, Tensors, as_float, rounded, wide

Tensor = torch.Tensor


def native(
    name: str,
    define: Callable[..., Sequence[Handle]],
    function: Callable[..., Any],
    inputs: MakesInputs,
    *shapes: Shape,
    small: Shape | None = None,
    summed: Callable[[Shape], int] = lambda shape: 1,
) -> Operation:
    """A row whose definition has open sizes."""
    return Operation(name, define, function, inputs, shapes, (small or small_shape(shapes[0]),), summed)


def scaled_norm(fd: Any, x: Handle, w: Handle, gate: Handle) -> list[Handle]:
    """By var_mean, with a broadcast in dimensions that is stated."""
    sizes = fd.ops.shape(x)
    x, gate = as_float(fd, x), as_float(fd, gate)
    variance, mean = fd.ops.var_mean(x, dims=[1], correction=0, keepdim=True)
    normal = (x - mean) * fd.ops.rsqrt(variance + EPSILON)
    wide_weight = fd.ops.broadcast_in_dim(w, shape=sizes, broadcast_dims=[1])
    return rounded(fd, normal * wide_weight * fd.ops.sigmoid(gate))


def torch_scaled_norm(x: Tensor, w: Tensor, gate: Tensor) -> Tensor:
    return F.layer_norm(wide(x), x.shape[-1:], wide(w), None, EPSILON) * torch.sigmoid(wide(gate))


def instance_sums(fd: Any, grad: Handle, x: Handle) -> list[Handle]:
    """What the gradient of an instance norm needs, of [N, C, H, W]."""
    grad, x = as_float(fd, grad), as_float(fd, x)
    mean = fd.ops.mean(x, dims=[2, 3], keepdim=True)
    return [fd.ops.sum(grad, dims=[2, 3]), fd.ops.sum(grad * (x - mean), dims=[2, 3])]


def torch_instance_sums(grad: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    centred = wide(x) - wide(x).mean((2, 3), keepdim=True)
    return wide(grad).sum((2, 3)), (wide(grad) * centred).sum((2, 3))


def joined_slices(fd: Any, x: Handle, y: Handle) -> list[Handle]:
    """The right halves of two tensors side by side, padded."""
    rows, columns = fd.ops.shape(x)
    half = fd.ops.div(columns, 2)
    parts = [fd.ops.slice(t, [0, half], [rows, columns]) for t in (x, y)]
    return rounded(fd, fd.ops.relu(fd.ops.pad(fd.ops.cat(parts, dim=1), [3, 2])))


def torch_joined_slices(x: Tensor, y: Tensor) -> Tensor:
    half = x.shape[1] // 2
    return F.relu(F.pad(torch.cat([x[:, half:], y[:, half:]], 1), (3, 2)))


def taken(fd: Any, x: Handle, index: Handle) -> list[Handle]:
    """What stands at an index of each row, by its row's maximum."""
    x = as_float(fd, x)
    found = fd.ops.gather(x, index, dim=1)
    return [found - fd.ops.max(x, dims=[1], keepdim=True)]


def torch_taken(x: Tensor, index: Tensor) -> Tensor:
    return wide(x).gather(1, index) - wide(x).amax(1, keepdim=True)


def causal_scores(fd: Any, x: Handle) -> list[Handle]:
    """By positions that are compared."""
    _, rows, columns = fd.ops.shape(x)
    below = fd.ops.broadcast(fd.ops.iota(rows), [False, True]) >= fd.ops.broadcast(
        fd.ops.iota(columns), [True, False]
    )
    x = fd.ops.where(fd.ops.broadcast(below, [True, False, False]), as_float(fd, x) * 0.125, -1e30)
    e = fd.ops.exp(x - fd.ops.max(x, dims=[2], keepdim=True))
    return rounded(fd, e / fd.ops.sum(e, dims=[2], keepdim=True))


def torch_causal_scores(x: Tensor) -> Tensor:
    below = torch.ones(x.shape[1:], dtype=torch.bool, device=x.device).tril()
    return F.softmax((wide(x) * 0.125).masked_fill(~below, -1e30), -1)


def channel_gradients(fd: Any, grad: Handle, x: Handle, mean: Handle, inverse: Handle) -> list[Handle]:
    """Both sums of a batch norm's gradient, of inputs whose memory has channels last."""
    grad, x = as_float(fd, grad), as_float(fd, x)
    flags = [True, False, True, True]
    apart = (x - fd.ops.broadcast(mean, flags)) * fd.ops.broadcast(inverse, flags)
    return [fd.ops.sum(grad, dims=[0, 2, 3]), fd.ops.sum(grad * apart, dims=[0, 2, 3])]


def torch_channel_gradients(grad: Tensor, x: Tensor, mean: Tensor, inverse: Tensor) -> tuple[Tensor, Tensor]:
    apart = (wide(x) - mean[:, None, None]) * wide(inverse)[:, None, None]
    return wide(grad).sum((0, 2, 3)), (wide(grad) * apart).sum((0, 2, 3))


def images_last(s: Shape, r: Inputs) -> Tensors:
    images = (r(*s).contiguous(memory_format=torch.channels_last) for _ in range(2))
    return *images, r(s[1], dtype=torch.float32), r(s[1], dtype=torch.float32)


def dropped(fd: Any, x: Handle, bias: Handle, kept: Handle, residual: Handle) -> list[Handle]:
    y = fd.ops.gelu(as_float(fd, x) + fd.ops.broadcast(bias, [True, False]))
    return rounded(fd, fd.ops.where(kept, y / 0.9, 0.0) + residual)


def torch_dropped(x: Tensor, bias: Tensor, kept: Tensor, residual: Tensor) -> Tensor:
    return torch.where(kept, F.gelu(wide(x) + bias) / 0.9, 0.0) + residual


def split_squares(fd: Any, x: Handle) -> list[Handle]:
    """[N, H, W, C] as blocks of 2 x 2, reduced over each block and its channels."""
    n, h, w, c = fd.ops.shape(x)
    parts = fd.ops.reshape(as_float(fd, x), [n, fd.ops.div(h, 2), 2, fd.ops.div(w, 2), 2, c])
    return [fd.ops.sum(parts * parts, dims=[2, 4, 5])]


def torch_split_squares(x: Tensor) -> Tensor:
    n, h, w, c = x.shape
    return wide(x).view(n, h // 2, 2, w // 2, 2, c).square().sum((2, 4, 5))


def run_statistics(fd: Any, x: Handle, running: Handle) -> list[Handle]:
    """A moving mean of columns and what they differ from it by."""
    x = as_float(fd, x)
    mean = 0.9 * running + 0.1 * fd.ops.mean(x, dims=[0])
    return [mean, *rounded(fd, x - fd.ops.broadcast(mean, [True, False]))]


def torch_run_statistics(x: Tensor, running: Tensor) -> tuple[Tensor, Tensor]:
    mean = 0.9 * running + 0.1 * wide(x).mean(0)
    return mean, wide(x) - mean


NATIVE: tuple[Operation, ...] = (
    native(
        "nat_scaled_norm",
        scaled_norm,
        torch_scaled_norm,
        lambda s, r: (r(*s), r(s[1]), r(*s)),
        (8192, 5120),
        (8192, 1001),
    ),
    native(
        "nat_instance_sums",
        instance_sums,
        torch_instance_sums,
        alike(2),
        (32, 128, 64, 64),
        small=(2, 3, 8, 8),
        summed=lambda s: 16 * s[2] * s[3],
    ),
    native("nat_joined_slices", joined_slices, torch_joined_slices, alike(2), (8192, 4096)),
    native("nat_taken", taken, torch_taken, lambda s, r: (r(*s), r.indices(s[1], s[0], 1)), (16384, 2048)),
    native(
        "nat_causal_scores", causal_scores, torch_causal_scores, alike(1), (64, 1024, 1024), (48, 577, 577)
    ),
    native(
        "nat_channel_gradients",
        channel_gradients,
        torch_channel_gradients,
        images_last,
        (32, 192, 56, 56),
        small=(2, 8, 5, 6),
        summed=lambda s: 64 * s[0] * s[2] * s[3],
    ),
    native(
        "nat_bias_gelu_dropped",
        dropped,
        torch_dropped,
        lambda s, r: (r(*s), r(s[1]), r.mask(*s), r(*s)),
        (8192, 3072),
    ),
    native(
        "nat_squares_of_blocks",
        split_squares,
        torch_split_squares,
        alike(1),
        (32, 64, 64, 96),
        small=(2, 4, 6, 8),
        summed=lambda s: 64 * s[3],
    ),
    native(
        "nat_moving_mean",
        run_statistics,
        torch_run_statistics,
        lambda s, r: (r(*s), r(s[1], dtype=torch.float32)),
        MEDIUM,
        (1024, 8191),
    ),
)
