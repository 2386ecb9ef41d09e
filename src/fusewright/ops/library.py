"""The operations that torch computes as a whole, and rows of contractions and sorting, in `LIBRARY` by name.

A row's function is made once for a node, from its options, so that a call looks nothing up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fusewright.core.dtype import DataType
from fusewright.core.op import LibraryOp
from fusewright.ir import TensorView
from fusewright.sym import Expr

#: What torch's contractions take on every device.
CONTRACTED = (
    DataType.Half,
    DataType.BFloat16,
    DataType.Float,
    DataType.Double,
    DataType.ComplexFloat,
    DataType.ComplexDouble,
)
#: What torch orders on every device; its topk takes no Bool.
SORTED = (
    DataType.Bool,
    DataType.Int32,
    DataType.Int,
    DataType.Half,
    DataType.BFloat16,
    DataType.Float,
    DataType.Double,
)

#: 16 bytes of a 16-bit type.
ALIGNED_ELEMENTS = 8

LIBRARY: dict[str, LibraryOp] = {}
"""Everything that goes through torch, by name."""


def library_row(*args: Any, **kwargs: Any) -> LibraryOp:
    """A `LibraryOp` of these fields, as a row of the table."""
    row = LibraryOp(*args, **kwargs)
    LIBRARY[row.name] = row
    return row


def contracted(inputs: Sequence[TensorView]) -> Expr:
    """The last dimension of the first operand is summed over."""
    return inputs[0].extents[-1]


def _matmul(device: str) -> Callable[..., torch.Tensor]:
    return torch.matmul


def _linear(device: str) -> Callable[..., torch.Tensor]:
    return torch.nn.functional.linear


def _matmul_parts(device: str, parts: int, transposed: bool) -> Callable[..., torch.Tensor]:
    def multiplied(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        right = b.t() if transposed else b
        length = part_length(a.shape[1], parts)
        whole = parts * length
        # Views: no element moves.
        rows = a[:, :whole].unflatten(1, (parts, length)).transpose(0, 1)
        out = wide_bmm(rows, right[:whole].unflatten(0, (parts, length)))
        if whole < a.shape[1]:
            out[0] += wide_bmm(a[None, :, whole:], right[None, whole:])[0]
        return out

    return multiplied


def part_length(inner: int, parts: int) -> int:
    """How many of `inner` elements each part has, which leaves some of them: a multiple of 16 bytes of any
    type, so that rows stay aligned, which fast kernels take.
    """
    return inner // parts // ALIGNED_ELEMENTS * ALIGNED_ELEMENTS


def wide_bmm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """torch.bmm, of reduced floats as Float, which they are summed in."""
    if a.dtype not in (torch.float16, torch.bfloat16):
        return torch.bmm(a, b)
    if a.is_cuda:
        return torch.bmm(a, b, out_dtype=torch.float32)
    return torch.bmm(a.float(), b.float())


def _argsort(device: str, dim: int, descending: bool, stable: bool) -> Callable[..., torch.Tensor]:
    return lambda x: torch.argsort(x, dim=dim, descending=descending, stable=stable)


def _sort(device: str, dim: int, descending: bool, stable: bool) -> Callable[..., Any]:
    return lambda x: torch.sort(x, dim=dim, descending=descending, stable=stable)


def _topk(device: str, dim: int, largest: bool, sorted: bool) -> Callable[..., Any]:
    return lambda x, k: torch.topk(x, k, dim, largest, sorted)


# Leading dimensions beyond a batch are merged into it, which torch copies for where strides forbid it.
MATMUL = library_row("matmul", CONTRACTED, _matmul, contracted, switch="matmul_expr_eval", strided_rank=3)
LINEAR = library_row("linear", CONTRACTED, _linear, contracted, switch="matmul_expr_eval", strided_rank=2)
#: [M, K] x [K, N], or [N, K] if `transposed`: the sums over `parts` equal parts of K, [parts, M, N]. What is
#: left of K counts to the first one. `rewrite.proposed.split_k` makes it, and no user.
MATMUL_PARTS = LibraryOp(
    "matmul_parts", CONTRACTED, _matmul_parts, contracted, switch="matmul_expr_eval", strided_rank=2
)
ARGSORT = library_row("argsort", SORTED, _argsort)
SORT = library_row("sort", SORTED, _sort)
TOPK = library_row("topk", tuple(t for t in SORTED if t is not DataType.Bool), _topk)
