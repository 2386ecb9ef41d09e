"""Builders of products of matrices in groups, and of scaled matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from fusewright.core.dtype import DataType
from fusewright.core.errors import DefinitionError, DtypeError, RankError, UnsupportedHardwareError
from fusewright.core.op import LibraryOp
from fusewright.ir import Fusion, TensorView
from fusewright.ops.build_library import call_library, check_dtype, check_same_dtype
from fusewright.ops.grouped import GROUPED_MM, SCALED_MM, UNSCALED
from fusewright.ops.registry import op
from fusewright.sym import Expr

#: A result, and the scale and gamma of one that is quantized, which none is yet.
Scaled = tuple[TensorView, None, None]


def _grouped_sizes(fusion: Fusion, a: TensorView, b: TensorView, offsets: TensorView) -> list[Expr]:
    """The sizes of a product in groups, which are cut out of the dimension that `offsets` are along."""
    name = GROUPED_MM.name
    for what, matrix in (("mat1", a), ("mat2", b)):
        if matrix.ndim not in (2, 3):
            raise RankError(what=f"{what} of {name}", expected="2 or 3", given=matrix.ndim)
    if a.ndim == b.ndim == 3:
        raise RankError(what=f"one of mat1 and mat2 of {name}", expected=2, given="3 for both")
    if offsets.ndim != 1:
        raise RankError(what=f"offsets of {name}", expected=1, given=offsets.ndim)
    if offsets.dtype not in (DataType.Int, DataType.Int32):
        raise DtypeError(what=f"offsets of {name}", expected="Int or Int32", given=offsets.dtype)
    fusion.equate(a.extents[-1], b.extents[-2], f"{name}, the dimension that is summed over")
    (groups,) = offsets.extents
    sizes = [a.extents[-2], b.extents[-1]]
    if a.ndim == b.ndim:
        return [groups, *sizes]
    fusion.equate((a if a.ndim == 3 else b).extents[0], groups, f"{name}, the number of groups")
    return sizes


def _scaled_call(
    fusion: Fusion,
    row: LibraryOp,
    sizes: Sequence[Expr],
    matrices: tuple[TensorView, TensorView],
    scales: tuple[TensorView | None, TensorView | None],
    alpha: TensorView | None,
    bias: TensorView | None,
    beta: TensorView | None,
    dtype: DataType,
    last: Sequence[TensorView] = (),
) -> TensorView:
    """alpha * product + beta * bias, of the scaled matrices."""
    given = [scale for scale in scales if scale is not None]
    for i, (matrix, scale) in enumerate(zip(matrices, scales), 1):
        check_dtype(row.name, f"mat{i}", matrix.dtype, row.dtypes)
        rank = max(matrix.ndim, len(sizes))
        if scale is not None and scale.ndim != rank:
            raise RankError(what=f"scale{i} of {row.name}", expected=rank, given=scale.ndim)
    if not dtype.is_floating:
        raise DtypeError(what=f"the result of {row.name}", expected="a floating type", given=dtype)
    options = {
        "scales": len(given),
        "alpha": alpha is not None,
        "biases": int(bias is not None),
        "beta": beta is not None,
        "dtype": dtype,
    }
    optional = [t for t in (alpha, bias, beta) if t is not None]
    (out,) = call_library(fusion, row, (*matrices, *given, *optional, *last), [(sizes, dtype)], options)
    return out


def _check_quantized(name: str, block_size: int, gamma: bool) -> None:
    if gamma and block_size <= 0:
        raise DefinitionError(problem=f"{name}: output_gamma needs output_block_scale_size > 0")
    if block_size > 0:
        raise DefinitionError(
            problem=f"{name}: quantized outputs are not available (yet)",
            hint="quantize the result with operations of its own",
        )


@op(overloads={("mat1", "mat2", "offsets"): TensorView})
def grouped_mm(
    fusion: Fusion,
    mat1: TensorView,
    mat2: TensorView,
    offsets: TensorView,
    scale1: TensorView | None = None,
    scale2: TensorView | None = None,
    alpha: TensorView | None = None,
    bias: TensorView | None = None,
    beta: TensorView | None = None,
    dtype: DataType = DataType.BFloat16,
    output_block_scale_size: int = 0,
    output_block_scale_dtype: DataType = DataType.BFloat16,
    output_gamma: bool = False,
) -> TensorView | Scaled:
    """Products of matrices in groups; `offsets` has the end of each of the g groups, in ascending order.

    (m, k) x (k, n) -> (g, m, n), (g, m, k) x (k, n) -> (m, n) and (m, k) x (g, k, n) -> (m, n): the groups
    are parts of k, n and m. The result has the type of mat1. torch computes it.

    With scales it is (out, None, None), where out is alpha * product + beta * bias of the scaled matrices, in
    `dtype`. A scale has the rank of its matrix, or of the result if that is larger.
    """
    name = GROUPED_MM.name
    _check_quantized(name, output_block_scale_size, output_gamma)
    sizes = _grouped_sizes(fusion, mat1, mat2, offsets)
    if (scale1 is None) != (scale2 is None):
        raise DefinitionError(problem=f"{name}: scale1 and scale2 are given together or not at all")
    if (bias is None) != (beta is None):
        raise DefinitionError(problem=f"{name}: bias and beta are given together or not at all")
    if scale1 is None and alpha is None and bias is None:
        result = check_same_dtype(GROUPED_MM, {"mat1": mat1, "mat2": mat2})
        if result not in UNSCALED:
            raise DtypeError(what=f"mat1 of {name} without scales", expected="a wider type", given=result)
        (out,) = call_library(fusion, GROUPED_MM, (mat1, mat2, offsets), [(sizes, result)])
        return out
    matrices, scales = (mat1, mat2), (scale1, scale2)
    scaled = _scaled_call(fusion, GROUPED_MM, sizes, matrices, scales, alpha, bias, beta, dtype, (offsets,))
    return scaled, None, None


@op()
def scaled_mm(
    fusion: Fusion,
    mat1: TensorView,
    mat2: TensorView,
    scale1: TensorView,
    scale2: TensorView,
    alpha: TensorView | None = None,
    bias: TensorView | None = None,
    beta: TensorView | None = None,
    dtype: DataType = DataType.BFloat16,
    output_block_scale_size: int = 0,
    output_block_scale_dtype: DataType = DataType.BFloat16,
    output_gamma: bool = False,
) -> Scaled:
    """(out, None, None), out = alpha * (mat1 * scale1) @ (mat2 * scale2) + beta * bias in `dtype`.

    There is one scale factor per matrix, row or column, element, or block of a size that divides the
    matrix's. torch computes the product in Float, so it is correct but not fast: fast products with block
    scales need a Blackwell GPU.
    """
    name = SCALED_MM.name
    _check_quantized(name, output_block_scale_size, output_gamma)
    if beta is not None and bias is None:
        raise DefinitionError(problem=f"{name}: beta needs a bias")
    for what, matrix in (("mat1", mat1), ("mat2", mat2)):
        if matrix.ndim != 2:
            raise RankError(what=f"{what} of {name}", expected=2, given=matrix.ndim)
    fusion.equate(mat1.extents[-1], mat2.extents[-2], f"{name}, the dimension that is summed over")
    sizes = [mat1.extents[0], mat2.extents[1]]
    out = _scaled_call(fusion, SCALED_MM, sizes, (mat1, mat2), (scale1, scale2), alpha, bias, beta, dtype)
    return out, None, None


@op()
def cutlass_nvfp4_grouped_mm(
    fusion: Fusion,
    mat1: TensorView,
    mat2: TensorView,
    scale1: TensorView,
    scale2: TensorView,
    alpha: TensorView,
    problem_sizes: TensorView,
    expert_offsets: TensorView,
    sf_offsets: TensorView,
    dtype: DataType = DataType.BFloat16,
) -> NoReturn:
    """CUTLASS' grouped product of 4-bit floats, which only Blackwell GPUs have instructions for."""
    raise UnsupportedHardwareError(
        what="cutlass_nvfp4_grouped_mm",
        needed="an NVIDIA Blackwell GPU (sm_100)",
        hint="grouped_mm with scales computes the same of wider types on any GPU",
    )
