"""Rows of the catalogue from array programs: physics, signals, statistics, tables, odd sizes and layouts."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from bench.fusion import MEDIUM, MakesInputs, alike, fusion
from bench.operation import Inputs, Operation, Shape, Tensors, wide

Tensor = torch.Tensor
FLOAT, DOUBLE = torch.float32, torch.float64

# ---- small vectors -----------------------------------------------------------------------------------------


def turned(points: Tensor, quaternions: Tensor) -> Tensor:
    """Points turned by unit quaternions."""
    q = F.normalize(wide(quaternions), dim=-1)
    axis, angle = q[..., :3], q[..., 3:]
    around = 2 * torch.linalg.cross(axis, wide(points))
    return (points + angle * around + torch.linalg.cross(axis, around)).to(points.dtype)


def moved(points: Tensor, matrix: Tensor) -> Tensor:
    """Points in homogeneous coordinates by one matrix, without a product of matrices."""
    return (wide(points)[:, None, :] * matrix[:3, :3]).sum(-1) + matrix[:3, 3]


def triple_products(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return (a * torch.linalg.cross(b, c)).sum(-1)


def determinants(m: Tensor) -> Tensor:
    a, b, c = wide(m).unbind(-2)
    return (a * torch.linalg.cross(b, c)).sum(-1)


def forces(points: Tensor) -> Tensor:
    """Of all pairs, by Lennard and Jones."""
    apart = points[:, None] - points[None]
    near = 1 / (apart.square().sum(-1) + 0.1)
    sixth = near * near * near
    return ((48 * sixth * sixth - 24 * sixth) * near)[..., None].mul(apart).sum(1)


def haversine(a: Tensor, b: Tensor) -> Tensor:
    south, east = (b - a).unbind(-1)
    h = torch.sin(south / 2) ** 2 + torch.cos(a[:, 0]) * torch.cos(b[:, 0]) * torch.sin(east / 2) ** 2
    return 12742 * torch.asin(h.clamp(0, 1).sqrt())


def radial(x: Tensor, centres: Tensor) -> Tensor:
    """Gaussian features of distances."""
    return torch.exp(-10 * (x[:, None] - centres).square())


def floats(*columns: int) -> MakesInputs:
    """Tensors of float with so many rows, or shapes, as the shape says, and so many columns each."""
    return lambda s, r: tuple(r(*s[:-1], n, dtype=FLOAT) for n in columns)


VECTORS = (
    fusion("quaternions", turned, floats(3, 4), (4194304, 3)),
    fusion("points_moved", moved, lambda s, r: (r(*s, dtype=FLOAT), r(4, 4, dtype=FLOAT)), (4194304, 3)),
    fusion("triple_products", triple_products, floats(3, 3, 3), (2097153, 3)),
    fusion("determinants", determinants, floats(3), (1048576, 3, 3), small=(70, 3, 3)),
    fusion("forces", forces, floats(3), (4096, 3), small=(33, 3)),
    fusion("haversine", haversine, floats(2, 2), (4194304, 2)),
    fusion("radial", radial, lambda s, r: (r(s[0], dtype=FLOAT), r(s[1], dtype=FLOAT)), (524288, 50)),
)

# ---- signals -----------------------------------------------------------------------------------------------


def power(x: Tensor) -> Tensor:
    """Decibels of a spectrum."""
    return 10 * torch.log10(x.real.square() + x.imag.square() + 1e-10)


def phases(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.abs(), torch.angle(x)


def filtered(x: Tensor, response: Tensor) -> Tensor:
    """By a response of each bin, and its energy."""
    return (x * response).abs().square().sum(-1)


def spectra(vectors: int) -> MakesInputs:
    def make(s: Shape, r: Inputs) -> Tensors:
        shapes = (s, *(s[-1:] for _ in range(vectors)))
        return tuple(torch.complex(r(*a, dtype=FLOAT), r(*a, dtype=FLOAT)) for a in shapes)

    return make


def windowed(x: Tensor, window: Tensor) -> Tensor:
    """Frames without their means, in a window."""
    frames = x.unfold(-1, 400, 160)
    return (frames - frames.mean(-1, keepdim=True)) * window


def pre_emphasis(x: Tensor) -> Tensor:
    return torch.cat([x[:, :1], x[:, 1:] - 0.97 * x[:, :-1]], 1)


def mel_norm(x: Tensor, lengths: Tensor) -> Tensor:
    """Features of each recording, standardized over the frames it has."""
    frames = x.shape[-1]
    there = torch.arange(frames, device=x.device) < lengths[:, None]
    count = lengths[:, None].to(x.dtype if x.dtype is DOUBLE else FLOAT)
    mean = torch.where(there[:, None], wide(x), 0.0).sum(-1) / count
    apart = torch.where(there[:, None], wide(x) - mean[..., None], 0.0)
    deviation = (apart.square().sum(-1) / (count - 1)).sqrt() + 1e-5
    return (apart / deviation[..., None]).to(x.dtype)


def recordings(s: Shape, r: Inputs) -> Tensors:
    return r(*s), r.indices(s[-1] // 2, s[0]) + s[-1] // 2


def centred_spectrum(x: Tensor) -> Tensor:
    return torch.fft.fftshift(x, (-2, -1)).abs()


def compressed_audio(x: Tensor) -> Tensor:
    """Eight bits by the mu law."""
    y = torch.sign(x) * torch.log1p(255 * x.abs().clamp(max=1)) / math.log(256)
    return ((y + 1) / 2 * 255 + 0.5).to(torch.uint8)


SIGNALS = (
    fusion("decibels", power, spectra(0), (64, 513, 1000), small=(2, 9, 31)),
    fusion("phases", phases, spectra(0), (64, 513, 1000), small=(2, 9, 31)),
    fusion("filtered", filtered, spectra(1), (4096, 4097)),
    fusion(
        "windowed",
        windowed,
        lambda s, r: (r(*s, dtype=FLOAT), r(400, dtype=FLOAT)),
        (64, 160000),
        small=(2, 800),
    ),
    fusion("pre_emphasis", pre_emphasis, alike(1), (256, 160001)),
    fusion("mel_norm", mel_norm, recordings, (256, 80, 1501), small=(3, 8, 33)),
    fusion("centred_spectrum", centred_spectrum, spectra(0), (32, 512, 512), small=(2, 8, 9)),
    fusion("mu_law", compressed_audio, alike(1), (33554431,), small=(131,)),
)

# ---- statistics and tables ---------------------------------------------------------------------------------


def correlation(x: Tensor, y: Tensor) -> Tensor:
    """Of matching rows."""
    x, y = wide(x) - wide(x).mean(-1, keepdim=True), wide(y) - wide(y).mean(-1, keepdim=True)
    return (x * y).sum(-1) * torch.rsqrt(x.square().sum(-1) * y.square().sum(-1))


def moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Skewness and kurtosis of columns."""
    variance, mean = torch.var_mean(wide(x), 0, correction=0)
    normal = (wide(x) - mean) * torch.rsqrt(variance + 1e-9)
    return normal.pow(3).mean(0), normal.pow(4).mean(0) - 3


def histogram(x: Tensor) -> Tensor:
    """Counts of 16 bins by comparing."""
    bins = (x.clamp(-3.99, 3.99) * 2 + 8).to(torch.int32)
    return (bins[:, None] == torch.arange(16, device=x.device, dtype=torch.int32)).sum(0)


def counted(x: Tensor, weights: Tensor) -> Tensor:
    """Sums of weights by a key of 1000."""
    return torch.zeros(1000, dtype=weights.dtype, device=x.device).index_add(0, x, weights)


def keys(s: Shape, r: Inputs) -> Tensors:
    return r.indices(1000, *s), r(*s, dtype=FLOAT)


def robust_scaled(x: Tensor, median: Tensor, quarter: Tensor) -> Tensor:
    return torch.where(x.isnan(), 0.0, ((x - median) / quarter).clamp(-5, 5))


def tables(s: Shape, r: Inputs) -> Tensors:
    x = r(*s, dtype=FLOAT)
    return torch.where(x > 2, math.nan, x), r(s[-1], dtype=FLOAT), r(s[-1], dtype=FLOAT).abs() + 0.5


def bucket_sizes(x: Tensor) -> tuple[Tensor, Tensor]:
    return (x > 0).sum(0), (x > 0).sum(1)


def crossed(x: Tensor) -> Tensor:
    """Factorization machine: half of the square of sums without the sum of squares."""
    y = wide(x)
    return 0.5 * (y.sum(1).square() - y.square().sum(1)).sum(-1)


def weighted_pairs(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """Three factors, two of them broadcast, summed over the middle."""
    return (wide(x)[:, :, None] * y[:, None, :] * z).sum(1)


def bilinear_scores(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return (wide(x)[:, :, None] * wide(y)[:, None, :] * z).sum((1, 2))


def triple(s: Shape, r: Inputs) -> Tensors:
    return r(s[0], s[1]), r(s[0], s[2]), r(*s)


def variance_ratio(x: Tensor) -> Tensor:
    """Between groups over within, [groups, members, features]."""
    own = wide(x).mean(1, keepdim=True)
    within = (x - own).square().sum((0, 1))
    between = (own - own.mean(0, keepdim=True)).square().sum((0, 1)) * x.shape[1]
    return between / within


def returns(prices: Tensor) -> tuple[Tensor, Tensor]:
    """Logarithms of returns, and the deepest fall."""
    logarithm = torch.log(prices)
    change = logarithm[:, 1:] - logarithm[:, :-1]
    return change, (torch.cummax(logarithm, 1).values - logarithm).amax(1)


def prices(s: Shape, r: Inputs) -> Tensors:
    return (torch.exp(r(*s, dtype=FLOAT) * 0.1),)


def exact_sums(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.sum(-1), x.square().sum(-1)


STATISTICS = (
    fusion("correlation", correlation, alike(2), (16384, 2000)),
    fusion("skewness", moments, lambda s, r: (r(*s, dtype=FLOAT),), (65536, 64), (4097, 1023)),
    fusion("histogram", histogram, lambda s, r: (r(*s, dtype=FLOAT),), (4194304,), small=(300,)),
    fusion("counted", counted, keys, (1048576,), small=(300,)),
    fusion("robust_scaled", robust_scaled, tables, (1000000, 17)),
    fusion("bucket_sizes", bucket_sizes, alike(1), (8191, 2047)),
    fusion("factorized", crossed, alike(1), (32768, 26, 16), small=(5, 7, 8)),
    fusion("weighted_pairs", weighted_pairs, triple, (64, 511, 513), small=(3, 9, 17)),
    fusion("bilinear_scores", bilinear_scores, triple, (512, 128, 129), small=(3, 8, 9)),
    fusion("variance_ratio", variance_ratio, alike(1), (100, 333, 512), small=(4, 9, 16)),
    fusion("returns", returns, prices, (4096, 1260)),
    fusion("double_sums", exact_sums, lambda s, r: (r(*s, dtype=DOUBLE),), (4096, 2047)),
)

# ---- layouts -----------------------------------------------------------------------------------------------


def from_offset(start: int) -> MakesInputs:
    """Two views of flat tensors that start at elements which no vector does, and one that is aligned."""

    def make(s: Shape, r: Inputs) -> Tensors:
        count = math.prod(s)
        return tuple(r(count + start)[k : k + count].view(s) for k in (start, 1, 0))

    return make


def permuted(*orders: tuple[int, ...]) -> MakesInputs:
    """Tensors of the shape whose memory has these orders of dimensions."""

    def make(s: Shape, r: Inputs) -> Tensors:
        made = []
        for order in orders:
            back = sorted(range(len(s)), key=order.__getitem__)
            made.append(r(*(s[d] for d in order)).permute(back))
        return tuple(made)

    return make


def middle_of_wider(s: Shape, r: Inputs) -> Tensors:
    """The second of three parts of rows, and columns of another."""
    return r(s[0], 3 * s[1])[:, s[1] : 2 * s[1]], r(s[0], 2 * s[1])[:, ::2]


LAYOUTS = (
    fusion("sum_misaligned", lambda x, y, z: (wide(x) * y + z).sum(-1), from_offset(3), (8192, 2049)),
    fusion("norm_misaligned", lambda x, y, z: F.layer_norm(x + y * z, x.shape[-1:]), from_offset(5), MEDIUM),
    fusion(
        "five_orders",
        lambda x, y: F.silu(x) * y,
        permuted((0, 1, 2, 3, 4), (0, 4, 1, 3, 2)),
        (8, 24, 40, 48, 56),
        small=(2, 4, 5, 6, 8),
    ),
    fusion(
        "reversed_orders",
        lambda x, y: x + y,
        permuted((0, 1, 2), (2, 1, 0)),
        (129, 255, 515),
        small=(9, 7, 17),
    ),
    fusion(
        "softmax_permuted", lambda x: F.softmax(x, 1), permuted((0, 2, 1)), (64, 512, 784), small=(3, 16, 9)
    ),
    fusion(
        "sum_of_permuted",
        lambda x, y: (wide(x) + y).sum(1),
        permuted((0, 1, 2), (1, 0, 2)),
        (128, 256, 515),
        small=(5, 8, 11),
    ),
    fusion(
        "sum_middle_last",
        lambda x: wide(x).sum((1, 3)),
        permuted((0, 2, 3, 1)),
        (64, 128, 56, 56),
        small=(2, 8, 5, 6),
    ),
    fusion("part_and_every_second", lambda x, y: torch.tanh(x) + y, middle_of_wider, (8192, 2048)),
    fusion(
        "outer_of_three",
        lambda x, y, z: x[:, None, None] * y[:, None] + z,
        lambda s, r: (r(s[0]), r(s[1]), r(s[2])),
        (300, 301, 303),
        small=(5, 6, 7),
    ),
    fusion(
        "broadcast_inner_five",
        lambda x, y: F.gelu(x + y),
        lambda s, r: (r(*s), r(s[0], 1, s[2], 1, s[4])),
        (5, 77, 9, 33, 129),
        small=(2, 7, 3, 5, 9),
    ),
    fusion(
        "half_sum_first", lambda x: x.sum(0), lambda s, r: (r(*s, dtype=torch.float16) * 0.1,), (3333, 7777)
    ),
    fusion(
        "bytes_sum",
        lambda x: x.sum(-1),
        lambda s, r: ((r.indices(255, *s) - 127).to(torch.int8),),
        (16384, 4097),
    ),
    fusion("thin_norm", lambda x: F.layer_norm(x, (3,)), alike(1), (4194304, 3)),
    fusion("thin_softmax_middle", lambda x: F.softmax(wide(x), 1), alike(1), (65536, 5, 33), small=(9, 5, 7)),
    fusion("tall_sums", lambda x: (wide(x).sum(0), wide(x).square().sum(0)), alike(1), (4194304, 7)),
    fusion(
        "one_row",
        lambda x, w: F.layer_norm(x, x.shape[-1:], w),
        lambda s, r: (r(*s), r(s[-1])),
        (1, 4097),
        (3, 65536),
        small=(1, 65),
    ),
    fusion(
        "tiny_volume",
        lambda x, y: torch.where(x > y, x, y.exp()),
        alike(2),
        (3, 5, 7, 11),
        small=(3, 5, 7, 11),
    ),
    fusion(
        "cat_of_sums",
        lambda x: torch.cat([x, wide(x).mean(-1, keepdim=True).to(x.dtype)], -1),
        alike(1),
        (16384, 1023),
    ),
    fusion(
        "block_diagonal",
        lambda x: (
            x[:, :, None, :, None] * torch.eye(2, device=x.device, dtype=x.dtype)[None, None, :, None, :]
        ),
        alike(1),
        (1024, 64, 64),
        small=(3, 4, 8),
    ),
)

ARRAYS: tuple[Operation, ...] = (*VECTORS, *SIGNALS, *STATISTICS, *LAYOUTS)
