"""Products of matrices in groups, and of scaled matrices, as torch computes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from fusewright.core.dtype import DataType
from fusewright.core.op import converted
from fusewright.ops.library import contracted, library_row

__all__ = ["GROUPED_MM", "SCALED_MM", "UNSCALED"]

Tensor = torch.Tensor

#: Types that need no scales.
UNSCALED = (DataType.Half, DataType.BFloat16, DataType.Float)
SCALED = (*UNSCALED, DataType.Float8_e4m3fn, DataType.Float8_e5m2, DataType.Float4_e2m1fn)
# Bytes that addresses and strides of grouped operands are a multiple of.
GROUPED_ALIGNMENT = 16


def _aligned(matrix: Tensor) -> Tensor:
    """The matrix as torch's grouped product takes it: copied to wider rows where it is not."""
    unit = GROUPED_ALIGNMENT // matrix.element_size()
    (rows, columns), (down, across) = matrix.shape[-2:], matrix.stride()[-2:]
    row_major = across == 1 and down >= max(1, columns) and down % unit == 0
    column_major = down == 1 and across >= max(1, rows) and across % unit == 0
    if (row_major or column_major) and matrix.data_ptr() % GROUPED_ALIGNMENT == 0:
        return matrix
    # At least one element more, so that it is a copy.
    return F.pad(matrix, (0, unit - columns % unit))[..., :columns]


def _product_of_groups(a: Tensor, b: Tensor, ends: Tensor) -> Tensor:
    return torch._grouped_mm(_aligned(a), _aligned(b), offs=ends.to(torch.int32))


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
