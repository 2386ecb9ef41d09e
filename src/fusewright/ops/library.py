"""The operations that torch computes as a whole, with the rows of contractions and sorting, in `LIBRARY` by
name.

A row's function is made once per node, from its options, so that a call looks nothing up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fusewright.core.dtype import DataType
from fusewright.core.op import LibraryOp, Overwriting
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


def _rows(x: torch.Tensor) -> torch.Tensor:
    """A matrix of the rows of a tensor."""
    return x if x.ndim == 2 else x.flatten(0, -2)


def _addmm(device: str, transposed: bool) -> Callable[..., torch.Tensor]:
    def added(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return torch.addmm(_rows(c), _rows(a), b.t() if transposed else b).view(c.shape)

    return added


def _addmm_in_place(device: str, transposed: bool) -> Callable[..., torch.Tensor]:
    def accumulated(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        # Where strides forbid it, `flatten` would copy; `view` refuses.
        rows = c if c.ndim == 2 else c.view(c.shape[:-1].numel(), c.shape[-1])
        rows.addmm_(_rows(a), b.t() if transposed else b)
        return c

    return accumulated


def _argsort(device: str, dim: int, descending: bool, stable: bool) -> Callable[..., torch.Tensor]:
    return lambda x: torch.argsort(x, dim=dim, descending=descending, stable=stable)


def _sort(device: str, dim: int, descending: bool, stable: bool) -> Callable[..., Any]:
    return lambda x: torch.sort(x, dim=dim, descending=descending, stable=stable)


def _topk(device: str, dim: int, largest: bool, sorted: bool) -> Callable[..., Any]:
    return lambda x, k: torch.topk(x, k, dim, largest, sorted)


# Leading dimensions beyond a batch are merged into it, which torch copies for where strides forbid it.
MATMUL = library_row("matmul", CONTRACTED, _matmul, contracted, switch="matmul_expr_eval", strided_rank=3)
LINEAR = library_row("linear", CONTRACTED, _linear, contracted, switch="matmul_expr_eval", strided_rank=2)
# c + a @ b, or c + a @ b^T if `transposed`. b has two dimensions; a and c may have several of rows. A rewrite
# makes such calls. If an operand of more than two dimensions is a view, it is c, which is dense.
ADDMM = library_row(
    "addmm",
    CONTRACTED,
    _addmm,
    contracted,
    switch="matmul_expr_eval",
    strided_rank=8,
    overwriting=Overwriting(2, _addmm_in_place),
)
ARGSORT = library_row("argsort", SORTED, _argsort)
SORT = library_row("sort", SORTED, _sort)
TOPK = library_row("topk", tuple(t for t in SORTED if t is not DataType.Bool), _topk)
