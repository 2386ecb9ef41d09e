"""Additions and assignments at places that an index tensor names, as torch computes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from fusewright.core.dtype import DataType
from fusewright.ir import TensorView
from fusewright.ops.library import CONTRACTED, library_row
from fusewright.sym import ONE, Expr, product

__all__ = ["EMBEDDING_BWD", "INDEX_PUT_ACCUMULATE", "SCATTER"]

Tensor = torch.Tensor

ADDED = (DataType.Int32, DataType.Int, *CONTRACTED)
GRADIENTS = (DataType.Half, DataType.BFloat16, DataType.Float, DataType.Double)


def _scatter(device: str, dim: int) -> Callable[..., Tensor]:
    return lambda x, index, src: torch.scatter(x, dim, index.long(), src)


def _index_put_accumulate(device: str) -> Callable[..., Tensor]:
    return lambda acc, index, value: torch.index_put(acc, (index.reshape(-1),), value, accumulate=True)


def _embedding_bwd(device: str, scale_grad_by_freq: bool) -> Callable[..., Tensor]:
    backward = torch.ops.aten.embedding_dense_backward

    def compute(grad: Tensor, indices: Tensor, count: int, padding_idx: int) -> Tensor:
        return backward(grad, indices, count, padding_idx, scale_grad_by_freq)

    return compute


def _values_and_accumulator(inputs: Sequence[TensorView]) -> Expr:
    """All values may be added to one element."""
    return product(inputs[1].extents) + ONE


SCATTER = library_row("scatter", (DataType.Bool, *ADDED), _scatter)
INDEX_PUT_ACCUMULATE = library_row(
    "index_put_accumulate", ADDED, _index_put_accumulate, _values_and_accumulator
)
EMBEDDING_BWD = library_row("embedding_bwd", GRADIENTS, _embedding_bwd, _values_and_accumulator)
