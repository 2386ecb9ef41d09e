"""Rows of the catalogue from signals, pictures, statistics and physics."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from bench.fusion import MakesInputs, alike, fusion
from bench.operation import EPSILON, Inputs, Operation, Shape, Tensors, wide

Tensor = torch.Tensor


def floats(count: int, *more: int) -> MakesInputs:
    """So many tensors of the shape, then vectors of these sizes, of float."""
    single = torch.float32
    return lambda s, r: (*(r(*s, dtype=single) for _ in range(count)), *(r(n, dtype=single) for n in more))


def per_channel(vector: Tensor) -> Tensor:
    return vector[:, None, None]


# ---- normalizations ----------------------------------------------------------------------------------------


def instance_norm_gradients(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    variance, mean = torch.var_mean(wide(x), (2, 3), correction=0, keepdim=True)
    inverse = torch.rsqrt(variance + EPSILON)
    normal, scaled = (wide(x) - mean) * inverse, wide(grad) * per_channel(wide(weight))
    of_x = scaled - scaled.mean((2, 3), keepdim=True) - normal * (scaled * normal).mean((2, 3), keepdim=True)
    return (inverse * of_x).to(x.dtype), (wide(grad) * normal).sum((0, 2, 3)), wide(grad).sum((0, 2, 3))


def batch_renorm(x: Tensor, mean: Tensor, deviation: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """With the running statistics that it moves."""
    variance, own = torch.var_mean(wide(x), (0, 2, 3), correction=0)
    spread, known = torch.sqrt(variance + 1e-3), deviation.abs() + 0.5
    ratio, shift = (spread / known).clamp(1 / 3, 3), ((own - mean) / known).clamp(-5, 5)
    normal = (wide(x) - per_channel(own)) / per_channel(spread) * per_channel(ratio) + per_channel(shift)
    return normal.to(x.dtype), mean + 0.01 * (own - mean), known + 0.01 * (spread - known)


def all_but_one(x: Tensor) -> Tensor:
    variance, mean = torch.var_mean(wide(x), (0, 1, 3, 4, 5), correction=0, keepdim=True)
    return ((wide(x) - mean) * torch.rsqrt(variance + 0.1)).to(x.dtype)


def renorm_inputs(s: Shape, r: Inputs) -> Tensors:
    return r(*s), r(s[1], dtype=torch.float32), r(s[1], dtype=torch.float32)


NORMS = (
    fusion(
        "instance_norm_gradients",
        instance_norm_gradients,
        lambda s, r: (r(*s), r(*s), r(s[1])),
        (64, 64, 80, 80),
        small=(2, 4, 5, 7),
    ),
    fusion("batch_renorm", batch_renorm, renorm_inputs, (128, 256, 28, 28), small=(3, 4, 6, 4)),
    fusion("all_but_one", all_but_one, alike(1), (6, 7, 512, 5, 8, 9), small=(3, 4, 5, 2, 4, 2)),
)

# ---- signals and pictures ----------------------------------------------------------------------------------


def taps(x: Tensor, weights: Tensor) -> Tensor:
    """A filter of eleven taps."""
    parts = x.unfold(1, 11, 1)
    return sum(parts[..., i] * weights[i] for i in range(11))  # type: ignore[return-value]


def framed(x: Tensor, window: Tensor) -> Tensor:
    """Frames of 400 samples every 160, centred and windowed."""
    frames = x.unfold(1, 400, 160)
    return (frames - frames.mean(-1, keepdim=True)) * window


def bilateral(x: Tensor) -> Tensor:
    """Of 3 x 3 pixels, in space and range."""
    padded = F.pad(x[:, None], (1, 1, 1, 1), mode="replicate")[:, 0]
    height, width = x.shape[1:]
    total = weights = torch.zeros_like(x)
    for i in range(3):
        for j in range(3):
            near = padded[:, i : i + height, j : j + width]
            weight = torch.exp(-((near - x) ** 2) * 0.5 - ((i - 1) ** 2 + (j - 1) ** 2) * 0.25)
            total, weights = total + weight * near, weights + weight
    return total / weights


def lab(x: Tensor) -> Tensor:
    """CIE Lab of sRGB."""
    colours = wide(x).abs().clamp(0, 1)
    linear = torch.where(colours > 0.04045, ((colours + 0.055) / 1.055) ** 2.4, colours / 12.92)
    red, green, blue = linear.unbind(1)

    def root(t: Tensor) -> Tensor:
        return torch.where(t > 0.008856, t.clamp(min=1e-6) ** (1 / 3), 7.787 * t + 16 / 116)

    first = root((0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.95047)
    second = root(0.2126 * red + 0.7152 * green + 0.0722 * blue)
    third = root((0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.08883)
    return torch.stack([116 * second - 16, 500 * (first - second), 200 * (second - third)], 1).to(x.dtype)


SIGNALS = (
    fusion("taps", taps, floats(1, 11), (64, 160001), small=(2, 99)),
    fusion("framed", framed, floats(1, 400), (32, 480000), small=(2, 1600)),
    fusion("bilateral", bilateral, floats(1), (16, 720, 1279), small=(2, 7, 9)),
    fusion("lab", lab, alike(1), (32, 3, 512, 512), small=(2, 3, 8, 9)),
)

# ---- statistics --------------------------------------------------------------------------------------------


def moments(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The second to the fourth around the mean of the middle dimension's places, in double."""
    apart = x - x.mean((0, 2), keepdim=True)
    return apart.square().mean((0, 2)), apart.pow(3).mean((0, 2)), apart.pow(4).mean((0, 2))


def gap(x: Tensor) -> tuple[Tensor, Tensor]:
    """How far the best of each row is before the next, and where it is."""
    best, place = wide(x).max(-1, keepdim=True)
    others = wide(x).scatter(-1, place, float("-inf"))
    return (best - others.amax(-1, keepdim=True)).squeeze(-1), place.squeeze(-1)


def smoothed(x: Tensor, target: Tensor) -> Tensor:
    """The divergence from smoothed labels, which are scattered."""
    count = x.shape[1]
    labels = torch.full_like(x, 0.1 / (count - 1)).scatter(1, target[:, None], 0.9)
    return -(wide(labels) * F.log_softmax(wide(x), 1)).sum(1)


def class_sums(kind: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Through rows of one-hot numbers."""
    hot = F.one_hot(kind, 37).to(x.dtype)
    return (hot * x[:, None]).sum(0), hot.sum(0)


def filled(x: Tensor, known: Tensor) -> Tensor:
    """What is unknown is the mean of its column."""
    mean = torch.where(known, x, 0).sum(0) / known.sum(0).clamp(min=1)
    return torch.where(known, x, mean)


def drawdown(x: Tensor) -> tuple[Tensor, Tensor]:
    path = x.cumsum(1)
    down = torch.cummax(path, 1).values - path
    return down.amax(1), down.mean(1)


STATISTICS = (
    fusion("moments", moments, lambda s, r: (r(*s, dtype=torch.double),), (2048, 511, 31), small=(3, 7, 5)),
    fusion("gap", gap, alike(1), (16384, 3000), small=(3, 33)),
    fusion("smoothed", smoothed, lambda s, r: (r(*s), r.indices(s[1], s[0])), (8192, 8192), small=(5, 33)),
    fusion(
        "class_sums",
        class_sums,
        lambda s, r: (r.indices(37, *s), r(*s, dtype=torch.float32)),
        (400000,),
        small=(60,),
    ),
    fusion(
        "filled", filled, lambda s, r: (r(*s, dtype=torch.float32), r.mask(*s)), (131071, 61), small=(9, 7)
    ),
    fusion("drawdown", drawdown, floats(1), (4096, 2520), small=(4, 33)),
)

# ---- physics -----------------------------------------------------------------------------------------------


def energies(a: Tensor, b: Tensor) -> Tensor:
    """Of atoms of one kind among those of another, by Lennard and Jones."""
    inverse = (((a[:, :, None] - b[:, None]) ** 2).sum(-1) + 0.5) ** -3
    return (4 * (inverse * inverse - inverse)).sum(-1)


def inverses(m: Tensor) -> Tensor:
    """Of matrices, by cross products."""
    a, b, c = m.unbind(-2)
    rows = torch.linalg.cross(b, c), torch.linalg.cross(c, a), torch.linalg.cross(a, b)
    return torch.stack(rows, -1) / ((a * rows[0]).sum(-1).abs() + 1)[:, None, None]


def hadamard(x: Tensor) -> Tensor:
    """A Walsh-Hadamard transform of eight."""
    y = wide(x)
    for step in (1, 2, 4):
        parts = y.view(x.shape[0], -1, 2, step, x.shape[2])
        y = torch.stack([parts[:, :, 0] + parts[:, :, 1], parts[:, :, 0] - parts[:, :, 1]], 2).view(x.shape)
    return (y / 8**0.5).to(x.dtype)


def walsh(x: Tensor) -> Tensor:
    """A Walsh-Hadamard transform of each eight neighbours."""
    y = wide(x)
    for step in (1, 2, 4):
        a, b = y.unflatten(-1, (-1, 2, step)).unbind(-2)
        y = torch.stack([a + b, a - b], -2).flatten(-3)
    return (y / 8**0.5).to(x.dtype)


def polar(x: Tensor, y: Tensor) -> Tensor:
    """Planes of the direction, the distance and the angle of points."""
    a, b = wide(x), wide(y)
    distance = torch.sqrt(a * a + b * b + 1)
    return torch.stack([a / distance, b / distance, distance, torch.atan2(b, a)], 1).to(x.dtype)


def calibrated(x: Tensor, bounds: Tensor) -> tuple[Tensor, Tensor]:
    """How many of a few bounds each value has passed, and how far it is beyond the last."""
    passed = (x[..., None] > bounds[:9]).sum(-1)
    return passed, x - bounds[passed]


def until(x: Tensor, ends: Tensor) -> Tensor:
    """Rows up to an end of their own."""
    return torch.where(torch.arange(x.shape[1], device=x.device) < ends[:, None], x, -1e4)


PHYSICS = (
    fusion(
        "energies",
        energies,
        lambda s, r: (r(s[0], s[1], 3, dtype=torch.float32), r(s[0], s[2], 3, dtype=torch.float32)),
        (4, 1500, 1501),
        small=(2, 7, 9),
    ),
    fusion("inverses", inverses, floats(1), (2000000, 3, 3), small=(33, 3, 3)),
    fusion("hadamard", hadamard, alike(1), (16384, 8, 64), small=(3, 8, 8)),
    fusion("walsh", walsh, alike(1), (8192, 4096), small=(3, 64)),
    fusion("polar", polar, alike(2), (64, 1024, 256), small=(2, 16, 64)),
    fusion("calibrated", calibrated, floats(1, 99), (8192, 1000), small=(5, 33)),
    fusion("until", until, lambda s, r: (r(*s), r.indices(s[1], s[0])), (16384, 4097), small=(5, 33)),
)

SIGNAL_ROWS: tuple[Operation, ...] = (*NORMS, *SIGNALS, *STATISTICS, *PHYSICS)
