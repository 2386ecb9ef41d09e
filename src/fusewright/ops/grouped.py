"""Products of matrices in groups, and of scaled matrices, as torch computes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from fusewright.core.dtype import DataType
from fusewright.core.op import converted
from fusewright.ops.library import contracted, library_row

Tensor = torch.Tensor

#: Types that need no scales.
UNSCALED = (DataType.Half, DataType.BFloat16, DataType.Float)
SCALED = (*UNSCALED, DataType.Float8_e4m3fn, DataType.Float8_e5m2, DataType.Float4_e2m1fn)
# Bytes that addresses and strides of grouped operands are a multiple of.
GROUPED_ALIGNMENT = 16


def _has_aligned_rows(matrix: Tensor) -> bool:
    (columns, *_), (across, down, *steps) = matrix.shape[::-1], matrix.stride()[::-1]
    unit = GROUPED_ALIGNMENT // matrix.element_size()
    is_dense = across == 1 and down >= max(1, columns) and all(step % unit == 0 for step in (down, *steps))
    return is_dense and matrix.data_ptr() % GROUPED_ALIGNMENT == 0


def _in_rows(matrix: Tensor) -> Tensor:
    """The matrix with rows that torch's grouped product takes: copied to wider ones where they are not."""
    if _has_aligned_rows(matrix):
        return matrix
    columns, unit = matrix.shape[-1], GROUPED_ALIGNMENT // matrix.element_size()
    # At least one element more, so that it is a copy.
    return F.pad(matrix, (0, unit - columns % unit))[..., :columns]


def _product_of_groups(a: Tensor, b: Tensor, ends: Tensor) -> Tensor:
    """Groups end anywhere but begin at aligned addresses: what is cut is never innermost in memory."""
    if a.ndim > b.ndim:
        return _product_of_groups(b.mT, a.mT, ends).mT
    if a.ndim == b.ndim:
        left, right = _in_rows(a.mT).mT, _in_rows(b)
    else:
        left, right = _in_rows(a), b if _has_aligned_rows(b.mT) else _in_rows(b)
    return torch._grouped_mm(left, right, offs=ends.to(torch.int32))


def _spread(scale: Tensor, shape: torch.Size) -> Tensor:
    """Block scales as one factor an element, in Float; dimensions of size 1 are left to broadcast."""
    for dim, (size, wanted) in enumerate(zip(scale.shape, shape)):
        if size not in (1, wanted) and wanted % size == 0:
            scale = scale.repeat_interleave(wanted // size, dim)
    return scale.float()


def _scaled(
    product: Callable[..., Tensor], scales: int, alpha: bool, biases: int, beta: bool, dtype: DataType
) -> Callable[..., Tensor]:
    """alpha * product + beta * bias, over operands in this order: matrices, scales, alpha, bias, beta, rest.

    A scale of its matrix's rank is one factor an element or a block; one of a higher rank is of the groups
    that the summed dimension is cut into, and so a factor of the result.
    """

    def compute(a: Tensor, b: Tensor, *rest: Any) -> Tensor:
        given = list(rest)
        matrices, factors = [], []
        for matrix in (a, b):
            wide = matrix.float()
            if scales:
                scale = given.pop(0)
                if scale.ndim > matrix.ndim:
                    factors.append(scale.float())
                else:
                    wide = wide * _spread(scale, matrix.shape)
            matrices.append(wide)
        if alpha:
            factors.append(given.pop(0).float())
        bias = given.pop(0).float() if biases else None
        if bias is not None and beta:
            bias = bias * given.pop(0).float()
        out = product(*matrices, *given)
        for factor in factors:
            out = out * factor
        return converted(out if bias is None else out + bias, dtype)

    return compute


def _grouped_mm(device: str, **options: Any) -> Callable[..., Tensor]:
    return _scaled(_product_of_groups, **options) if options else _product_of_groups


def _scaled_mm(device: str, **options: Any) -> Callable[..., Tensor]:
    return _scaled(torch.matmul, **options)


GROUPED_MM = library_row("grouped_mm", SCALED, _grouped_mm, contracted)
SCALED_MM = library_row("scaled_mm", SCALED, _scaled_mm, contracted)
