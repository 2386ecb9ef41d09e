"""Rows of the catalogue of small types: quantization by rows, columns and blocks, packed integers, bools."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from bench.fusion import LARGE, MEDIUM, MakesInputs, alike, float8, fusion, rows_and_vectors
from bench.fusion_elementwise import FLOAT8_MAX
from bench.fusion_reductions import rms_norm
from bench.operation import Inputs, Operation, Shape, Tensors, wide

Tensor = torch.Tensor
INT8_MAX, UINT8_MAX, LEAST_SCALE = 127.0, 255.0, 1e-6
#: Elements that share a scale, where a row has as many.
GROUP = 128
NIBBLE, HALF_OF_NIBBLES = 15, 8

# ---- quantization ------------------------------------------------------------------------------------------


def int8(x: Tensor) -> Tensor:
    return x.round().clamp(-INT8_MAX - 1, INT8_MAX).to(torch.int8)


def scale_of(x: Tensor, *dims: int, most: float = INT8_MAX) -> Tensor:
    return wide(x).abs().amax(dims, keepdim=True).clamp(min=LEAST_SCALE) / most


def int8_along(dim: int) -> object:
    def quantize(x: Tensor) -> tuple[Tensor, Tensor]:
        scale = scale_of(x, dim)
        return scale, int8(wide(x) / scale)

    return quantize


def grouped(x: Tensor) -> Tensor:
    return x.unflatten(-1, (-1, min(GROUP, x.shape[-1])))


def uint8_rows(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    least, most = wide(x).amin(-1, keepdim=True), wide(x).amax(-1, keepdim=True)
    scale = (most - least).clamp(min=LEAST_SCALE) / UINT8_MAX
    zero = (-least / scale).round()
    return scale, zero, ((wide(x) / scale).round() + zero).clamp(0, UINT8_MAX).to(torch.uint8)


def float8_squares(x: Tensor) -> tuple[Tensor, Tensor]:
    """A scale for each square of GROUP x GROUP elements."""
    squares = grouped(wide(x)).unflatten(0, (-1, min(GROUP, x.shape[0])))
    scale = scale_of(squares, 1, 3, most=FLOAT8_MAX)
    return scale.flatten(), float8((squares / scale).flatten(2).flatten(0, 1))


def float8_both_ways(x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    small = float8((wide(x) * scale).clamp(-FLOAT8_MAX, FLOAT8_MAX))
    return small, small.t().contiguous()


def float8_powers(x: Tensor) -> tuple[Tensor, Tensor]:
    """Groups of 32 with scales that are powers of two."""
    groups = wide(x).unflatten(-1, (-1, 32))
    scale = torch.exp2(torch.floor(torch.log2(scale_of(groups, -1, most=FLOAT8_MAX))) + 1)
    return scale.flatten(-2), float8((groups / scale).flatten(-2))


def float8_gate(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    product = F.silu(wide(x)) * y
    scale = scale_of(product, -1, most=FLOAT8_MAX)
    return scale, float8(product / scale)


def int8_norm(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    normal = wide(rms_norm(x, weight))
    scale = scale_of(normal, -1)
    return scale, int8(normal / scale)


def integers(shape: Shape, r: Inputs, dtype: torch.dtype = torch.int8) -> Tensor:
    return r.indices(256, *shape).sub(0 if dtype is torch.uint8 else 128).to(dtype)


def int8_add(x: Tensor, y: Tensor) -> Tensor:
    return int8((x.float() * 0.1 + y.float() * 0.2) / 0.25)


def accumulators_out(x: Tensor, row: Tensor, column: Tensor, bias: Tensor) -> Tensor:
    return F.gelu(x.float() * row * column + bias).to(torch.bfloat16)


FLOAT = torch.float32

SCALED = (
    fusion("int8_rows", int8_along(-1), alike(1), LARGE),
    fusion("int8_columns", int8_along(0), alike(1), (4096, 4096)),
    fusion("int8_tokens", int8_along(1), alike(1), (64, 512, 1024)),
    fusion("uint8_rows", uint8_rows, alike(1), LARGE),
    fusion("float8_squares", float8_squares, alike(1), LARGE),
    fusion("float8_both_ways", float8_both_ways, lambda s, r: (r(*s), r(1, dtype=FLOAT).abs()), LARGE),
    fusion("float8_powers", float8_powers, alike(1), LARGE),
    fusion("float8_gate", float8_gate, alike(2), LARGE),
    fusion("int8_norm", int8_norm, rows_and_vectors(1, 1), LARGE),
    fusion(
        "int8_back",
        lambda x, s: (x.float() * s).to(torch.bfloat16),
        lambda s, r: (integers(s, r), r(s[0], 1, dtype=FLOAT)),
        LARGE,
    ),
    fusion(
        "int8_groups_back",
        lambda x, s: (grouped(x).float() * s[..., None]).flatten(-2).to(torch.bfloat16),
        lambda s, r: (integers(s, r), r(s[0], max(1, s[1] // GROUP), dtype=FLOAT)),
        LARGE,
    ),
    fusion("int8_add", int8_add, lambda s, r: (integers(s, r), integers(s, r)), LARGE),
    fusion(
        "accumulators_out",
        accumulators_out,
        lambda s, r: (
            r.indices(4096, *s).to(torch.int32),
            r(s[0], 1, dtype=FLOAT) * 1e-3,
            r(s[1], dtype=FLOAT),
            r(s[1], dtype=FLOAT),
        ),
        (8192, 4096),
    ),
)

# ---- packed integers ---------------------------------------------------------------------------------------


def nibbles(x: Tensor) -> Tensor:
    return torch.stack([x & NIBBLE, x >> 4], -1).flatten(-2)


def int4_back(x: Tensor, scale: Tensor) -> Tensor:
    values = nibbles(x).float() - HALF_OF_NIBBLES
    return (grouped(values) * scale[..., None]).flatten(-2).to(torch.bfloat16)


def int4_halves_back(x: Tensor, scale: Tensor) -> Tensor:
    """The first half of a row is in the low nibbles."""
    values = torch.cat([x & NIBBLE, x >> 4], -1).float() - HALF_OF_NIBBLES
    return (values * scale).to(torch.bfloat16)


def int4_pack(x: Tensor) -> Tensor:
    pairs = (wide(x) * 2 + HALF_OF_NIBBLES).round().clamp(0, NIBBLE).to(torch.uint8).unflatten(-1, (-1, 2))
    return pairs[..., 0] | (pairs[..., 1] << 4)


def int4_words(x: Tensor, scale: Tensor) -> Tensor:
    """Eight nibbles of a word of 32 bits, which are eight columns."""
    shifts = torch.arange(0, 32, 4, device=x.device, dtype=torch.int32)
    values = ((x[..., None] >> shifts) & NIBBLE).flatten(-2).float() - HALF_OF_NIBBLES
    return (values * scale).to(torch.bfloat16)


def looked_up(x: Tensor, table: Tensor) -> Tensor:
    return table[nibbles(x).int()]


def bits(x: Tensor) -> Tensor:
    return ((x[..., None] >> torch.arange(8, device=x.device, dtype=torch.uint8)) & 1).bool().flatten(-2)


def packed_bits(x: Tensor) -> Tensor:
    places = torch.arange(8, device=x.device)
    return ((x > 0).unflatten(-1, (-1, 8)) * (1 << places)).sum(-1).to(torch.uint8)


def bytes_with(*scales: int) -> MakesInputs:
    """Bytes, and scales of as many rows, one a group of so many bytes each."""
    return lambda s, r: (
        integers(s, r, torch.uint8),
        *(r(s[0], max(1, s[1] // each), dtype=FLOAT) for each in scales),
    )


def row_scaled(shape: Shape, r: Inputs) -> Tensors:
    return integers(shape, r, torch.uint8), r(shape[0], 1, dtype=FLOAT)


PACKED = (
    fusion("int4_back", int4_back, bytes_with(GROUP // 2), LARGE),
    fusion("int4_halves_back", int4_halves_back, row_scaled, LARGE),
    fusion("int4_pack", int4_pack, alike(1), LARGE),
    fusion(
        "int4_words",
        int4_words,
        lambda s, r: (r.indices(1 << 31, *s).to(torch.int32), r(s[0], 1, dtype=FLOAT)),
        (16384, 1024),
    ),
    fusion("looked_up", looked_up, lambda s, r: (integers(s, r, torch.uint8), r(16)), (8192, 4096)),
    fusion("bits", bits, lambda s, r: (integers(s, r, torch.uint8),), (8192, 2048)),
    fusion("packed_bits", packed_bits, alike(1), LARGE),
)

# ---- integers, bools, several types ------------------------------------------------------------------------


def images_in(x: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """Bytes, channels last, as normalized numbers, channels first."""
    return ((x.float() / UINT8_MAX - mean) / deviation).to(torch.bfloat16).permute(0, 3, 1, 2).contiguous()


def hashed(x: Tensor, y: Tensor) -> Tensor:
    mixed = (x ^ (y << 3)) * 40503
    return (mixed ^ (mixed >> 7)) & 0xFFFF


def four_types(x: Tensor, y: Tensor, z: Tensor, kept: Tensor) -> Tensor:
    return torch.where(kept, x * 2 + y, z.float()).half()


def int32s(shape: Shape, r: Inputs) -> Tensors:
    return r.indices(1 << 20, *shape).to(torch.int32), r.indices(1 << 20, *shape).to(torch.int32)


TYPES = (
    fusion(
        "images_in",
        images_in,
        lambda s, r: (integers(s, r, torch.uint8), r(s[3], dtype=FLOAT), r(s[3], dtype=FLOAT).abs() + 0.1),
        (64, 384, 384, 3),
    ),
    fusion("hashed", hashed, int32s, LARGE),
    fusion("integer_division", lambda x, y: x // (y + 1) + x % 7, int32s, MEDIUM),
    fusion(
        "logic",
        lambda a, b, c: (a & ~b) | (b ^ c),
        lambda s, r: (r.mask(*s), r.mask(*s), r.mask(*s)),
        (16384, 8192),
    ),
    fusion(
        "four_types", four_types, lambda s, r: (r(*s), r(*s, dtype=FLOAT), integers(s, r), r.mask(*s)), LARGE
    ),
    fusion("longs_sum", lambda x: x.sum(-1), lambda s, r: (r.indices(1000, *s),), MEDIUM),
    fusion("bools_all", lambda x: x.all(-1), lambda s, r: (r.mask(*s),), (16384, 8192)),
    fusion("bools_mean", lambda x: x.float().mean(0), lambda s, r: (r.mask(*s),), (16384, 8192)),
    fusion("bytes_amax", lambda x: x.amax(-1), lambda s, r: (integers(s, r),), (16384, 8192)),
    fusion("half_to_bfloat16", lambda x: x.bfloat16(), lambda s, r: (r(*s, dtype=torch.half),), LARGE),
)

QUANTIZATION: tuple[Operation, ...] = (*SCALED, *PACKED, *TYPES)
