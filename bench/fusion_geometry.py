"""Fusions of points, directions and grids: a few components beside each other, pairs, stencils."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from bench.fusion import LARGE, MakesInputs, alike, fusion
from bench.operation import Inputs, Shape, Tensors

Tensor = torch.Tensor
FLOAT = torch.float32
POINTS, PAIRS, IMAGES = (2097152, 3), (4096, 3), (32, 3, 256, 256)


def floats(count: int) -> MakesInputs:
    """So many tensors of float of the shape."""
    return lambda s, r: tuple(r(*s, dtype=FLOAT) for _ in range(count))


# ---- points and directions ---------------------------------------------------------------------------------


def shaded(normal: Tensor, light: Tensor, view: Tensor) -> Tensor:
    """By Phong."""
    normal, light = F.normalize(normal, dim=-1), F.normalize(light, dim=-1)
    towards = (normal * light).sum(-1, keepdim=True)
    mirrored = 2 * towards * normal - light
    shine = (mirrored * F.normalize(view, dim=-1)).sum(-1, keepdim=True).clamp(min=0) ** 8
    return 0.1 + 0.6 * towards.clamp(min=0) + 0.3 * shine


def triangle_normals(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return F.normalize(torch.linalg.cross(b - a, c - a), dim=-1)


def barycentric(p: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    first, second, third = b - a, c - a, p - a
    ff, fs, ss = (first * first).sum(-1), (first * second).sum(-1), (second * second).sum(-1)
    tf, ts = (third * first).sum(-1), (third * second).sum(-1)
    area = ff * ss - fs * fs
    v, w = (ss * tf - fs * ts) / area, (ff * ts - fs * tf) / area
    return torch.stack([1 - v - w, v, w], -1)


def projected(points: Tensor, camera: Tensor) -> Tensor:
    u = (points[:, None, :] * camera).sum(-1)
    return u[:, :2] / (u[:, 2:].abs() + 1)


def covariances(scales: Tensor, quaternions: Tensor) -> Tensor:
    """Of Gaussians that are scaled and turned."""
    w, x, y, z = F.normalize(quaternions, dim=-1).unbind(-1)
    rows = [
        *(1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        *(2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        *(2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    ]
    root = torch.stack(rows, -1).view(-1, 3, 3) * scales[:, None, :]
    return (root[:, :, None, :] * root[:, None, :, :]).sum(-1)


def rotations(two_axes: Tensor) -> Tensor:
    """Matrices of six numbers each."""
    first, second = two_axes[..., :3], two_axes[..., 3:]
    x = F.normalize(first, dim=-1)
    y = F.normalize(second - (x * second).sum(-1, keepdim=True) * x, dim=-1)
    return torch.stack([x, y, torch.linalg.cross(x, y)], -2)


def spins(m: Tensor, field: Tensor) -> Tensor:
    """One step by Landau and Lifshitz."""
    turn = torch.linalg.cross(m, field)
    return F.normalize(m + 0.01 * turn + 0.01 * torch.linalg.cross(m, turn), dim=-1)


def radiance(harmonics: Tensor, direction: Tensor) -> Tensor:
    """Colours of spherical harmonics of first degree."""
    x, y, z = direction.unbind(-1)
    basis = torch.stack([torch.ones_like(x) * 0.28, -0.48 * y, 0.48 * z, -0.48 * x], -1)
    return (harmonics * basis[:, None, :]).sum(-1).clamp(min=0)


def harmonics_and_directions(s: Shape, r: Inputs) -> Tensors:
    return r(*s, 4, dtype=FLOAT), r(*s, dtype=FLOAT)


POINTWISE = (
    fusion("shaded", shaded, floats(3), POINTS),
    fusion("triangle_normals", triangle_normals, floats(3), POINTS),
    fusion("barycentric", barycentric, floats(4), POINTS),
    fusion("projected", projected, lambda s, r: (r(*s, dtype=FLOAT), r(3, 3, dtype=FLOAT)), POINTS),
    fusion(
        "covariances", covariances, lambda s, r: (r(*s, dtype=FLOAT), r(s[0], 4, dtype=FLOAT)), (1048576, 3)
    ),
    fusion("rotations", rotations, floats(1), (1048576, 6)),
    fusion("spins", spins, floats(2), POINTS),
    fusion("radiance", radiance, harmonics_and_directions, (1048576, 3)),
)

# ---- pairs -------------------------------------------------------------------------------------------------


def potential(points: Tensor, charges: Tensor) -> Tensor:
    squares = (points[:, None] - points[None]).square().sum(-1) + 0.1
    return (charges[None] * squares.rsqrt()).sum(1)


def flocking(points: Tensor, speeds: Tensor) -> Tensor:
    """What drives birds apart, and along with their neighbours."""
    apart = points[:, None] - points[None]
    squares = apart.square().sum(-1)
    near = (squares < 0.5).float()
    away = (apart / (squares + 0.1)[..., None] * near[..., None]).sum(1)
    along = (speeds[None] * near[..., None]).sum(1) / near.sum(1, keepdim=True).clamp(min=1)
    return away + along - speeds


def chamfer(a: Tensor, b: Tensor) -> Tensor:
    squares = (a[:, None] - b[None]).square().sum(-1)
    return squares.amin(1).mean() + squares.amin(0).mean()


def nearest(a: Tensor, b: Tensor) -> Tensor:
    return (a[:, None] - b[None]).norm(dim=-1).amin(1)


def kernel_matrix(a: Tensor, b: Tensor) -> Tensor:
    return torch.exp(-0.5 * (a[:, None] - b[None]).square().sum(-1))


SMALL_PAIRS = (33, 3)
OF_PAIRS = (
    fusion(
        "potential",
        potential,
        lambda s, r: (r(*s, dtype=FLOAT), r(s[0], dtype=FLOAT)),
        PAIRS,
        small=SMALL_PAIRS,
    ),
    fusion("flocking", flocking, floats(2), (2048, 3), small=SMALL_PAIRS),
    fusion("chamfer", chamfer, floats(2), PAIRS, small=SMALL_PAIRS),
    fusion("nearest", nearest, floats(2), PAIRS, small=SMALL_PAIRS),
    fusion("kernel_matrix", kernel_matrix, floats(2), PAIRS, small=SMALL_PAIRS),
)

# ---- grids -------------------------------------------------------------------------------------------------


def reflected_blur(x: Tensor) -> Tensor:
    y, n = F.pad(x, (2, 2), mode="reflect"), x.shape[-1]
    return (y[..., :n] + y[..., 4:]) * 0.0625 + (y[..., 1:-3] + y[..., 3:-1]) * 0.25 + x * 0.375


def sharpened(x: Tensor) -> Tensor:
    p, (h, w) = F.pad(x, (1, 1, 1, 1), mode="reflect"), x.shape[-2:]
    mean = sum((p[..., i : i + h, j : j + w] for i in range(3) for j in range(3)), torch.zeros_like(x)) / 9
    return (x + 0.5 * (x - mean)).clamp(0, 1)


def normals_from_depth(depth: Tensor) -> Tensor:
    p = F.pad(depth, (1, 1, 1, 1), mode="replicate")
    dx, dy = p[:, 1:-1, 2:] - p[:, 1:-1, :-2], p[:, 2:, 1:-1] - p[:, :-2, 1:-1]
    n = torch.stack([-dx, -dy, torch.ones_like(dx)], 1)
    return n / n.norm(dim=1, keepdim=True)


def reaction(u: Tensor, v: Tensor) -> Tensor:
    """Of the first of two substances, which diffuse, on a torus (Gray and Scott)."""
    p = F.pad(u, (1, 1, 1, 1), mode="circular")
    spread = p[..., 1:-1, 2:] + p[..., 1:-1, :-2] + p[..., 2:, 1:-1] + p[..., :-2, 1:-1] - 4 * u
    return u + 0.16 * spread - u * v * v + 0.035 * (1 - u)


def hsv(x: Tensor) -> Tensor:
    """Hue, saturation and value of colours."""
    red, green, blue = x.unbind(1)
    largest, least = x.amax(1), x.amin(1)
    span = largest - least + 1e-6
    of_green = torch.where(largest == green, 2 + (blue - red) / span, 4 + (red - green) / span)
    hue = torch.where(largest == red, (green - blue) / span, of_green) / 6
    return torch.stack([hue - hue.floor(), (largest - least) / (largest + 1e-6), largest], 1)


def moments_of_lattice(f: Tensor) -> Tensor:
    """Density and flow of the nine populations of a lattice."""
    density = f.sum(1)
    east = (f[:, 1] - f[:, 3] + f[:, 5] - f[:, 6]) / density
    north = (f[:, 2] - f[:, 4] + f[:, 5] - f[:, 6]) / density
    return torch.stack([density, east, north], 1)


def positive(s: Shape, r: Inputs) -> Tensors:
    return (r(*s, dtype=FLOAT).abs() + 0.1,)


OF_GRIDS = (
    fusion("reflected_blur", reflected_blur, alike(1), LARGE),
    fusion("sharpened", sharpened, alike(1), IMAGES),
    fusion("normals_from_depth", normals_from_depth, floats(1), (32, 512, 512)),
    fusion("reaction", reaction, floats(2), (8, 2048, 2048)),
    fusion("hsv", hsv, alike(1), IMAGES),
    fusion("moments_of_lattice", moments_of_lattice, positive, (8, 9, 512, 512)),
)

GEOMETRY = (*POINTWISE, *OF_PAIRS, *OF_GRIDS)
