"""Rows of the catalogue of tensors of other forms: views as inputs, ranks, pads, stencils, images, sizes."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from bench.fusion import LARGE, MakesInputs, alike, fusion
from bench.operation import Inputs, Operation, Shape, Tensors, wide

Tensor = torch.Tensor
IMAGE = (16, 64, 224, 224)

# ---- broadcasts, views as inputs ---------------------------------------------------------------------------


def broadcast_four(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    return a[:, None, None] * b + c * d


def four_ranks(shape: Shape, r: Inputs) -> Tensors:
    return r(shape[0]), r(*shape), r(shape[1], shape[2]), r(shape[2])


def boxes_overlap(x: Tensor, y: Tensor) -> Tensor:
    """Intersections over unions of boxes, given as their corners."""
    a, b = x[:, None], y
    low, high = torch.maximum(a[..., :2], b[..., :2]), torch.minimum(a[..., 2:], b[..., 2:])
    common = (high - low).clamp(min=0).prod(-1)
    areas = [(each[:, 2:] - each[:, :2]).prod(-1) for each in (x, y)]
    return common / (areas[0][:, None] + areas[1] - common)


def boxes(shape: Shape, r: Inputs) -> Tensors:
    made = []
    for count in shape[:2]:
        low = r(count, 2, dtype=torch.float32)
        made.append(torch.cat([low, low + r(count, 2, dtype=torch.float32).abs() + 0.1], -1))
    return tuple(made)


def part_of_rows(shape: Shape, r: Inputs) -> Tensors:
    """Columns of a wider tensor, and one whose rows are columns."""
    return r(shape[0], shape[1] + 64)[:, : shape[1]], r(*shape)


def strided(shape: Shape, r: Inputs) -> Tensors:
    return r(shape[0], 2 * shape[1])[:, ::2], r(*shape)


def transposed_inputs(shape: Shape, r: Inputs) -> Tensors:
    return r(shape[1], shape[0]).t(), r(shape[1], shape[0]).t()


def expanded(shape: Shape, r: Inputs) -> Tensors:
    return r(*shape), r(1, shape[1]).expand(*shape)


def channels_last(shape: Shape, r: Inputs) -> Tensors:
    return r(*shape).to(memory_format=torch.channels_last), r(shape[1])


def mixed_orders(shape: Shape, r: Inputs) -> Tensors:
    return r(*shape).to(memory_format=torch.channels_last), r(*shape)


def masked_diagonal(x: Tensor) -> Tensor:
    return x.masked_fill(torch.eye(x.shape[-1], dtype=torch.bool, device=x.device), 0.0)


def diagonals(x: Tensor) -> Tensor:
    return x.diagonal(dim1=1, dim2=2) * 2


VIEWS = (
    fusion("broadcast_four", broadcast_four, four_ranks, (64, 256, 2048)),
    fusion("boxes_overlap", boxes_overlap, boxes, (8192, 4096)),
    fusion("part_of_rows", lambda x, y: x * y + 1, part_of_rows, LARGE),
    fusion("strided_input", lambda x, y: x * y + 1, strided, LARGE),
    fusion("transposed_inputs", lambda x, y: x * y + 1, transposed_inputs, LARGE),
    fusion("expanded_input", lambda x, y: x * y + 1, expanded, LARGE),
    fusion("channels_last_bias", lambda x, b: F.relu(x + b[:, None, None]), channels_last, (32, 256, 56, 56)),
    fusion("mixed_orders", lambda x, y: x + y, mixed_orders, (32, 256, 56, 56)),
    fusion("diagonals", diagonals, alike(1), (4096, 128, 128)),
    fusion("scalar_tensor", lambda x, s: x * s, lambda s, r: (r(*s), r(1)[0]), LARGE),
    fusion("masked_diagonal", masked_diagonal, alike(1), (32, 1024, 1024)),
    fusion("band", lambda x: torch.triu(torch.tril(x, 64), -64), alike(1), (32, 1024, 1024)),
)

# ---- pads, joins, slices -----------------------------------------------------------------------------------


def many(count: int) -> MakesInputs:
    return lambda s, r: tuple(r(*s[:-1], s[-1] // count) for _ in range(count))


def joined(*tensors: Tensor) -> Tensor:
    return torch.cat(tensors, -1)


def joined_and_scaled(x: Tensor, y: Tensor, z: Tensor, w: Tensor) -> Tensor:
    return torch.cat([x, F.gelu(y), z * 2], -1) * w


def frames(x: Tensor, weight: Tensor) -> Tensor:
    return x.unfold(1, weight.shape[0], weight.shape[0] // 2) * weight


def shifted_windows(x: Tensor) -> Tensor:
    batch, height, width, depth = x.shape
    side = 7 if height % 7 == 0 else height
    cut = x.roll((-3, -3), (1, 2)).view(batch, height // side, side, width // side, side, depth)
    return cut.permute(0, 1, 3, 2, 4, 5).reshape(-1, side * side, depth)


def split_uneven(x: Tensor) -> list[Tensor]:
    return [each * 2 for each in x.split([1024, 128, 64, x.shape[1] - 1216], 1)]


def slices_apart(x: Tensor, y: Tensor) -> Tensor:
    return x[1:-1, ::2, 5:] * y


def apart(shape: Shape, r: Inputs) -> Tensors:
    return r(*shape), r(shape[0] - 2, (shape[1] + 1) // 2, shape[2] - 5)


PIECES = (
    fusion("pad_volume", lambda x: F.pad(x, (1, 2, 3, 4, 5, 6)), alike(1), (64, 64, 126, 126)),
    fusion(
        "pad_reflect",
        lambda x: F.pad(x, (3, 3, 3, 3), mode="reflect"),
        alike(1),
        (16, 64, 112, 112),
        small=(2, 3, 9, 10),
    ),
    fusion("pad_replicate", lambda x: F.pad(x, (2, 2, 2, 2), mode="replicate"), alike(1), (16, 64, 112, 112)),
    fusion("pad_circular", lambda x: F.pad(x, (2, 2, 2, 2), mode="circular"), alike(1), (16, 64, 112, 112)),
    fusion("cat_many", joined, many(16), LARGE, small=(6, 64)),
    fusion("cat_many_rows", lambda *tensors: torch.cat(tensors), many(16), (8192, 4096), small=(6, 64)),
    fusion("cat_scaled", joined_and_scaled, lambda s, r: (r(*s), r(*s), r(*s), r(3 * s[1])), (16384, 2048)),
    fusion("stack_many", lambda *tensors: torch.stack(tensors, 1), many(8), LARGE, small=(6, 64)),
    fusion("frames", frames, lambda s, r: (r(*s), r(400 if s[1] > 400 else 8)), (64, 160000)),
    fusion("slice_third", lambda x: x[:, 1::3] * 2, alike(1), (16384, 6144)),
    fusion("slices_apart", slices_apart, apart, (130, 512, 1029)),
    fusion("flip_both", lambda x: x.flip(0, 1) + 1, alike(1), LARGE),
    fusion("turned", lambda x: x.rot90(1, (2, 3)) * 1.0, alike(1), IMAGE),
    fusion("shifted_windows", shifted_windows, alike(1), (32, 56, 56, 192)),
    fusion("split_uneven", split_uneven, alike(1), LARGE, small=(4, 1250)),
)

# ---- images, stencils --------------------------------------------------------------------------------------


def laplacian(x: Tensor) -> Tensor:
    y = F.pad(x, (1, 1, 1, 1))
    return y[..., 1:-1, :-2] + y[..., 1:-1, 2:] + y[..., :-2, 1:-1] + y[..., 2:, 1:-1] - 4 * x


def heat(x: Tensor) -> Tensor:
    inner = x[1:-1, 1:-1, 1:-1]
    ends = slice(0, -2), slice(2, None)
    middle = slice(1, -1)
    sides = [x[e, middle, middle] + x[middle, e, middle] + x[middle, middle, e] for e in ends]
    return inner + 0.1 * (sides[0] + sides[1] - 6 * inner)


def blurred(x: Tensor) -> Tensor:
    """Five taps along rows."""
    y = F.pad(x, (2, 2))
    size = x.shape[-1]
    far, near, middle = (y[..., i : i + size] for i in (0, 1, 2))
    return (far + y[..., 4 : 4 + size]) * 0.0625 + (near + y[..., 3 : 3 + size]) * 0.25 + middle * 0.375


def luma(x: Tensor) -> Tensor:
    red, green, blue = x.unbind(1)
    y = 0.299 * red + 0.587 * green + 0.114 * blue
    return torch.stack([y, 0.564 * (blue - y), 0.713 * (red - y)], 1)


def scaled_image(**options: object) -> Callable[[Tensor], Tensor]:
    return lambda x: F.interpolate(x, **options)


IMAGES = (
    fusion("laplacian", laplacian, alike(1), IMAGE),
    fusion("heat", heat, lambda s, r: (r(*s, dtype=torch.float32),), (258, 514, 258)),
    fusion("blurred", blurred, alike(1), LARGE),
    fusion("luma", luma, alike(1), (64, 3, 512, 512)),
    fusion("max_pool2d", lambda x: F.max_pool2d(x, 2), alike(1), (32, 64, 112, 112)),
    fusion("max_pool3x3", lambda x: F.max_pool2d(x, 3, 2, 1), alike(1), (32, 64, 112, 112)),
    fusion("average_pool2d", lambda x: F.avg_pool2d(x, 2), alike(1), (32, 64, 112, 112)),
    fusion(
        "adaptive_pool",
        lambda x: F.adaptive_avg_pool2d(x, 7),
        alike(1),
        (64, 256, 56, 56),
        small=(2, 2, 14, 14),
    ),
    fusion("upsample_bilinear", scaled_image(scale_factor=2.0, mode="bilinear"), alike(1), (16, 64, 56, 56)),
    fusion("upsample_third", scaled_image(scale_factor=3.0), alike(1), (16, 64, 56, 56)),
    fusion("downsample", scaled_image(scale_factor=0.5), alike(1), IMAGE, small=(2, 3, 8, 8)),
)

# ---- indices -----------------------------------------------------------------------------------------------


def at_pairs(x: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return x[i, j] * 2


def bags(i: Tensor, weight: Tensor) -> Tensor:
    return wide(weight)[i].mean(1).to(weight.dtype)


def bag_inputs(shape: Shape, r: Inputs) -> Tensors:
    count, each, vocabulary, width = shape
    return r.indices(vocabulary, count, each), r(vocabulary, width)


INDICES = (
    fusion(
        "at_pairs",
        at_pairs,
        lambda s, r: (r(*s), r.indices(s[0], s[0]), r.indices(s[1], s[0])),
        (1024, 512, 256),
    ),
    fusion("bags", bags, bag_inputs, (8192, 16, 32000, 512), small=(5, 3, 11, 16)),
    fusion(
        "put_rows",
        lambda x, i, y: x.index_put((i,), y),
        lambda s, r: (r(*s), r.distinct(s[0], s[0] // 4), r(s[0] // 4, s[1])),
        (16384, 4096),
    ),
    fusion(
        "add_at_rows",
        lambda x, i, y: x.index_add(0, i, y),
        lambda s, r: (
            r(*s, dtype=torch.float32),
            r.distinct(s[0], s[0] // 4),
            r(s[0] // 4, s[1], dtype=torch.float32),
        ),
        (16384, 2048),
    ),
    fusion(
        "two_embeddings",
        lambda i, w, v: w[i] + v[i % v.shape[0]],
        lambda s, r: (r.indices(s[1], s[0]), r(s[1], s[2]), r(s[1] // 8, s[2])),
        (16384, 32000, 1024),
        small=(9, 24, 16),
    ),
)

# ---- sizes -------------------------------------------------------------------------------------------------


def black_scholes(price: Tensor, strike: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
    def normal(x: Tensor) -> Tensor:
        return 0.5 * (1 + torch.erf(x * 0.7071067811865476))

    root = 0.3 * time.sqrt()
    first = (torch.log(price / strike) + (0.02 + 0.045) * time) / root
    later = strike * torch.exp(-0.02 * time)
    call = price * normal(first) - later * normal(first - root)
    return call, call + later - price


def polynomial(x: Tensor) -> Tensor:
    y = wide(x)
    value = y * 0.1
    for i in range(10):
        value = value * y + (0.5 - 0.1 * i)
    return value.to(x.dtype)


def complex_product(x: Tensor, y: Tensor) -> Tensor:
    """Of pairs of real and imaginary parts."""
    (a, b), (c, d) = (each.unflatten(-1, (-1, 2)).unbind(-1) for each in (x, y))
    return torch.stack([a * c - b * d, a * d + b * c], -1).flatten(-2)


def positive(count: int) -> MakesInputs:
    return lambda s, r: tuple(r(*s, dtype=torch.float32).abs() + 0.5 for _ in range(count))


SIZES = (
    fusion("vector_add", lambda x, y: x + y, alike(2), (1 << 27,), ((1 << 26) + 1,)),
    fusion("vector_relu_sum", lambda x: F.relu(wide(x)).sum(), alike(1), ((1 << 27) + 5,), small=(261,)),
    fusion("vector_softmax", lambda x: F.softmax(wide(x), 0), alike(1), (1 << 25,)),
    fusion("black_scholes", black_scholes, positive(3), (1 << 24,)),
    fusion("polynomial", polynomial, alike(1), LARGE),
    fusion("complex_product", complex_product, alike(2), LARGE),
    fusion("small_softmax", lambda x: F.softmax(x, -1), alike(1), (16, 16)),
    fusion("small_norm", lambda x: F.layer_norm(x, x.shape[-1:]), alike(1), (8, 128)),
    fusion("small_sum", lambda x: wide(x).sum(), alike(1), (1000,)),
    fusion("small_transpose", lambda x: x.t().contiguous() + 1, alike(1), (33, 65)),
    fusion(
        "odd_softmax_gelu",
        lambda x, y: F.softmax(wide(x), -1).to(x.dtype) * F.gelu(y),
        alike(2),
        (8191, 1025),
    ),
)

LAYOUTS: tuple[Operation, ...] = (*VIEWS, *PIECES, *IMAGES, *INDICES, *SIZES)
