"""Rows of the catalogue that move elements: joins, permutations, pads, slices, gathers, masks by place."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from bench.fusion import LARGE, MEDIUM, MakesInputs, alike, fusion, rows_and_vectors
from bench.operation import Inputs, Operation, Shape, Tensors

Tensor = torch.Tensor
IMAGE, ODD_IMAGE = (16, 64, 224, 224), (16, 67, 129, 131)

# ---- positions ---------------------------------------------------------------------------------------------


def rope_halves(q: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = q.chunk(2, -1)
    return q * cos + torch.cat([-second, first], -1) * sin


def rope_interleaved(q: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    pairs = q.unflatten(-1, (-1, 2))
    even, odd = pairs[..., 0], pairs[..., 1]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)


def rope_two(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    return rope_halves(q, cos, sin), rope_halves(k, cos, sin)


def rope_partial(q: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    width = cos.shape[-1]
    return torch.cat([rope_halves(q[..., :width], cos, sin), q[..., width:]], -1)


def tables(share: int) -> MakesInputs:
    """A tensor of heads, and cosines and sines for a share of their width."""
    return lambda s, r: (r(*s), r(s[2], s[3] // share), r(s[2], s[3] // share))


HEADS = (4, 32, 2048, 128)
ROPES = (
    fusion("rope_halves", rope_halves, tables(1), HEADS),
    fusion("rope_interleaved", rope_interleaved, tables(2), HEADS),
    fusion("rope_partial", rope_partial, tables(2), HEADS),
    fusion("rope_two", rope_two, lambda s, r: (r(*s), r(*s), r(s[2], s[3]), r(s[2], s[3])), HEADS),
)

# ---- joins -------------------------------------------------------------------------------------------------


def widths(*shares: tuple[int, int]) -> MakesInputs:
    """Tensors of the shape whose last dimension is `size // divisor + more` each."""
    return lambda s, r: tuple(r(*s[:-1], s[-1] // divisor + more) for divisor, more in shares)


def joined_last(*tensors: Tensor) -> Tensor:
    return torch.cat(tensors, -1)


def split_qkv(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = x.chunk(3, -1)
    return q + 1, k * 2, v - 1


JOINS = (
    fusion("cat_halves", joined_last, widths((2, 0), (2, 0)), LARGE, (8192, 32768)),
    fusion("cat_three", joined_last, widths((2, 0), (4, 0), (4, 0)), LARGE),
    fusion("cat_odd", joined_last, widths((2, 1), (2, 0)), (8192, 4096)),
    fusion("cat_odd_three", joined_last, widths((2, 1), (4, 3), (4, -1)), (8192, 2048)),
    fusion("cat_first", lambda x, y: torch.cat([x, y]), alike(2), (8192, 4096)),
    fusion("cat_first_odd", lambda x, y: torch.cat([x, y]), alike(2), (4095, 4099)),
    fusion("cat_middle", lambda x, y: torch.cat([x, y], 1), alike(2), (64, 256, 2048)),
    fusion("cat_channels", lambda x, y: torch.cat([x, F.relu(y)], 1), alike(2), (32, 64, 56, 56)),
    fusion("stack_first", lambda x, y: torch.stack([x, y]), alike(2), (8192, 4096)),
    fusion("stack_middle", lambda x, y, z: torch.stack([x, y, z], 1), alike(3), (8192, 2048)),
    fusion("stack_last", lambda x, y: torch.stack([x, y], -1), alike(2), (8192, 4096)),
    fusion("split_qkv", split_qkv, alike(1), (8192, 6144)),
    fusion("chunk_add", lambda x: x.chunk(2, 1)[0] + x.chunk(2, 1)[1], alike(1), (8192, 8192)),
    fusion("repeat", lambda x: x.repeat(2, 3), alike(1), (2048, 2048)),
    fusion("repeat_interleave", lambda x: x.repeat_interleave(4, 1), alike(1), (8, 8, 2048, 128)),
    fusion(
        "expand_heads", lambda x: x[:, :, None].expand(-1, -1, 4, -1, -1) * 1.0, alike(1), (8, 8, 2048, 128)
    ),
)

# ---- permutations ------------------------------------------------------------------------------------------


def permuted(*dims: int) -> Callable[[Tensor], Tensor]:
    return lambda x: x.permute(*dims).contiguous()


def windows(x: Tensor) -> Tensor:
    """Images, channels last, as windows of 7 by 7 places."""
    batch, height, width, depth = x.shape
    side = 7 if height % 7 == 0 else height
    cut = x.view(batch, height // side, side, width // side, side, depth)
    return cut.permute(0, 1, 3, 2, 4, 5).reshape(-1, side * side, depth)


def patches(x: Tensor) -> Tensor:
    """Images as rows of patches of 16 by 16 places, or 2 by 2 of small ones."""
    batch, depth, height, width = x.shape
    side = 16 if height % 16 == 0 else 2
    cut = x.view(batch, depth, height // side, side, width // side, side)
    return cut.permute(0, 2, 4, 1, 3, 5).reshape(batch, -1, depth * side * side)


def channel_shuffle(x: Tensor) -> Tensor:
    return x.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2) * 1.0


def split_heads(x: Tensor, bias: Tensor) -> Tensor:
    return (x + bias).unflatten(-1, (-1, min(128, x.shape[-1]))).transpose(1, 2).contiguous()


def merge_heads(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2) * 1.0


PERMUTES = (
    fusion("transpose", permuted(1, 0), alike(1), LARGE, (4095, 8193), (2910, 10140)),
    fusion("transpose_add", lambda x, y: x.t() + y, lambda s, r: (r(*s), r(s[1], s[0])), (8192, 4096)),
    fusion("transpose_gelu", lambda x: F.gelu(x.t().contiguous()), alike(1), (8192, 4096)),
    fusion("transpose_narrow", permuted(1, 0), alike(1), (1048576, 32), (1048577, 24)),
    fusion("permute_021", permuted(0, 2, 1), alike(1), (64, 1024, 512), (65, 513, 1021), (84, 194, 990)),
    fusion("permute_102", permuted(1, 0, 2), alike(1), (512, 1024, 128), (513, 1023, 129)),
    fusion("permute_102_short", permuted(1, 0, 2), alike(1), (2048, 4096, 8)),
    fusion("permute_210", permuted(2, 1, 0), alike(1), (256, 512, 256), (255, 513, 257)),
    fusion("permute_201", permuted(2, 0, 1), alike(1), (256, 512, 256), (255, 513, 257)),
    fusion("permute_0213", permuted(0, 2, 1, 3), alike(1), (8, 2048, 32, 64), (8, 1023, 17, 65)),
    fusion("permute_channels_last", permuted(0, 2, 3, 1), alike(1), (32, 256, 56, 56), ODD_IMAGE),
    fusion("permute_channels_first", permuted(0, 3, 1, 2), alike(1), (32, 56, 56, 256), (16, 129, 131, 67)),
    fusion("permute_3210", permuted(3, 2, 1, 0), alike(1), (32, 64, 64, 128), (31, 65, 63, 129)),
    fusion(
        "permute_02413",
        permuted(0, 2, 4, 1, 3),
        alike(1),
        (8, 16, 32, 64, 64),
        (7, 17, 33, 63, 65),
        small=(2, 3, 4, 5, 8),
    ),
    fusion(
        "permute_20314",
        permuted(2, 0, 3, 1, 4),
        alike(1),
        (16, 32, 16, 64, 64),
        (15, 33, 17, 63, 31),
        small=(2, 3, 4, 5, 8),
    ),
    fusion("windows", windows, alike(1), (32, 56, 56, 192)),
    fusion("patches", patches, alike(1), (64, 3, 224, 224)),
    fusion("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2) * 1.0, alike(1), (16, 64, 112, 112)),
    fusion("pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2) * 1.0, alike(1), (16, 16, 224, 224)),
    fusion("channel_shuffle", channel_shuffle, alike(1), (32, 128, 56, 56)),
    fusion("split_heads", split_heads, rows_and_vectors(1, 1), (8, 2048, 4096)),
    fusion("merge_heads", merge_heads, alike(1), HEADS),
)

# ---- pads, slices ------------------------------------------------------------------------------------------

PADS = (
    fusion("pad_columns", lambda x: F.pad(x, (1, 3)), alike(1), (16384, 4095), MEDIUM),
    fusion("pad_left", lambda x: F.pad(x, (8, 0)), alike(1), LARGE),
    fusion("pad_rows", lambda x: F.pad(x, (0, 0, 1, 2)), alike(1), LARGE),
    fusion("pad_image", lambda x: F.pad(x, (1, 1, 1, 1)), alike(1), IMAGE, ODD_IMAGE),
    fusion("pad_image_wide", lambda x: F.pad(x, (3, 3, 3, 3), value=1.0), alike(1), (16, 64, 112, 112)),
    fusion("pad_gelu", lambda x: F.pad(F.gelu(x), (0, 5)), alike(1), MEDIUM),
    fusion("slice_rows", lambda x: x[3:-5] * 2, alike(1), LARGE),
    fusion("slice_columns", lambda x: x[:, 3:-5] * 2, alike(1), LARGE),
    fusion("slice_image", lambda x: x[:, :, 1:-1, 1:-1] + 1, alike(1), IMAGE),
    fusion("slice_even", lambda x: x[:, ::2] * 2, alike(1), (16384, 8192)),
    fusion("slice_rows_even", lambda x: x[::2] * 2, alike(1), (16384, 8192)),
    fusion("slice_image_even", lambda x: x[:, :, ::2, ::2] * 2, alike(1), IMAGE),
    fusion("shift_difference", lambda x: x[:, 1:] - x[:, :-1], alike(1), (16384, 4097)),
    fusion("token_shift", lambda x: 0.5 * (x + F.pad(x, (0, 0, 1, -1))), alike(1), (16, 1024, 2048)),
    fusion("flip", lambda x: x.flip(1), alike(1), LARGE),
    fusion("flip_rows", lambda x: x.flip(0), alike(1), LARGE),
    fusion("roll", lambda x: x.roll((5, 3), (0, 1)), alike(1), (16384, 4095)),
    fusion("upsample_nearest", lambda x: F.interpolate(x, scale_factor=2.0), alike(1), (16, 64, 56, 56)),
)

# ---- gathers, masks by place -------------------------------------------------------------------------------


def row_indices(shape: Shape, r: Inputs) -> Tensors:
    return r(*shape), r.indices(shape[0], shape[0])


def column_indices(shape: Shape, r: Inputs) -> Tensors:
    return r(*shape), r.indices(shape[1], shape[1])


def element_indices(shape: Shape, r: Inputs) -> Tensors:
    return r(*shape), r.indices(shape[1], *shape)


def one_index_a_row(shape: Shape, r: Inputs) -> Tensors:
    return r(*shape), r.indices(shape[1], shape[0], 8)


def tokens(shape: Shape, r: Inputs) -> Tensors:
    count, vocabulary, width = shape
    return r.indices(vocabulary, count), r(vocabulary, width), r(count, width)


GATHERS = (
    fusion("index_rows", lambda x, i: x.index_select(0, i), row_indices, (32768, 2048), (32768, 96)),
    fusion("index_rows_odd", lambda x, i: x[i] * 2, row_indices, (32768, 1023)),
    fusion("index_columns", lambda x, i: x.index_select(1, i), column_indices, (8192, 4096)),
    fusion("gather_columns", lambda x, i: torch.gather(x, 1, i), element_indices, (8192, 2048)),
    fusion(
        "gather_rows",
        lambda x, i: torch.gather(x, 0, i),
        lambda s, r: (r(*s), r.indices(s[0], *s)),
        (4096, 2048),
    ),
    fusion("take_along_dim", lambda x, i: torch.take_along_dim(x, i, 1), one_index_a_row, (65536, 256)),
    fusion(
        "embedding_add",
        lambda i, w, p: F.embedding(i, w) + p,
        tokens,
        (16384, 32000, 1024),
        small=(9, 20, 16),
    ),
    fusion("index_middle", lambda x, i: x.index_select(1, i), column_indices, (64, 512, 512)),
    fusion("triu", torch.triu, alike(1), (8192, 4096)),
    fusion("tril_scaled", lambda x: torch.tril(x * 0.5, -1), alike(1), (16, 1024, 1024)),
    fusion(
        "causal_fill",
        lambda x: x.masked_fill(torch.ones_like(x[0], dtype=torch.bool).triu(1), -1e4),
        alike(1),
        (32, 1024, 1024),
    ),
    fusion(
        "one_hot",
        lambda i: F.one_hot(i, 512).to(torch.bfloat16),
        lambda s, r: (r.indices(512, *s),),
        (65536,),
    ),
    fusion(
        "position_bias",
        lambda x: (
            x
            - 0.1
            * (
                torch.arange(x.shape[-1], device=x.device)
                - torch.arange(x.shape[-2], device=x.device)[:, None]
            ).abs()
        ),
        alike(1),
        (32, 1024, 1024),
    ),
)

MOVES: tuple[Operation, ...] = (*ROPES, *JOINS, *PERMUTES, *PADS, *GATHERS)
