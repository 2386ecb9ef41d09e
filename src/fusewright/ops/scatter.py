"""Additions and assignments at places that an index tensor names, as torch computes them.

An index out of range is an error on the CPU. On a GPU, where torch would end the process, what it names is
dropped: torch writes it to a spare place, which is cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fusewright.core.dtype import DataType
from fusewright.ir import TensorView
from fusewright.ops.library import CONTRACTED, library_row
from fusewright.sym import ONE, Expr, product

__all__ = ["EMBEDDING_BWD", "INDEX_PUT_ACCUMULATE", "SCATTER"]

Tensor = torch.Tensor

ADDED = (DataType.Int32, DataType.Int, *CONTRACTED)
GRADIENTS = (DataType.Half, DataType.BFloat16, DataType.Float, DataType.Double)


def _with_spare(x: Tensor, dim: int) -> Tensor:
    """A copy with one place more along `dim`, for what is written out of range, which is then cut off."""
    sizes = list(x.shape)
    sizes[dim] += 1
    out = x.new_empty(sizes)
    out.narrow(dim, 0, x.shape[dim]).copy_(x)
    return out


def _or_spare(index: Tensor, size: int) -> Tensor:
    """The index where it is in range, else that of the spare place."""
    return torch.where((index >= 0) & (index < size), index, size).long()


def _check_range(index: Tensor, size: int) -> None:
    """RuntimeError, as of torch's functions that look, for an index that counts from the end or beyond."""
    outside = index[(index < 0) | (index >= size)]
    if outside.numel():
        raise RuntimeError(f"index {outside[0]} is out of bounds for dimension 0 with size {size}")


def _scatter(device: str, dim: int) -> Callable[..., Tensor]:
    def dropping(x: Tensor, index: Tensor, src: Any) -> Tensor:
        size = x.shape[dim]
        return _with_spare(x, dim).scatter_(dim, _or_spare(index, size), src).narrow(dim, 0, size)

    if device == "cpu":
        return lambda x, index, src: torch.scatter(x, dim, index.long(), src)
    return dropping


def _index_put_accumulate(device: str) -> Callable[..., Tensor]:
    def dropping(acc: Tensor, index: Tensor, value: Tensor) -> Tensor:
        size = acc.shape[0]
        places = _or_spare(index.reshape(-1), size)
        return _with_spare(acc, 0).index_put_((places,), value, accumulate=True)[:size]

    def checked(acc: Tensor, index: Tensor, value: Tensor) -> Tensor:
        line = index.reshape(-1)
        _check_range(line, acc.shape[0])
        return torch.index_put(acc, (line,), value, accumulate=True)

    return checked if device == "cpu" else dropping


def _embedding_bwd(device: str, scale_grad_by_freq: bool) -> Callable[..., Tensor]:
    backward = torch.ops.aten.embedding_dense_backward

    def dropping(grad: Tensor, indices: Tensor, count: int, padding_idx: int) -> Tensor:
        places = _or_spare(indices, count)
        return backward(grad, places, count + 1, padding_idx, scale_grad_by_freq)[:count]

    def checked(grad: Tensor, indices: Tensor, count: int, padding_idx: int) -> Tensor:
        _check_range(indices, count)
        return backward(grad, indices, count, padding_idx, scale_grad_by_freq)

    return checked if device == "cpu" else dropping


def _values_and_accumulator(inputs: Sequence[TensorView]) -> Expr:
    """All values may be added to one element."""
    return product(inputs[1].extents) + ONE


SCATTER = library_row("scatter", (DataType.Bool, *ADDED), _scatter)
INDEX_PUT_ACCUMULATE = library_row(
    "index_put_accumulate", ADDED, _index_put_accumulate, _values_and_accumulator
)
EMBEDDING_BWD = library_row("embedding_bwd", GRADIENTS, _embedding_bwd, _values_and_accumulator)
