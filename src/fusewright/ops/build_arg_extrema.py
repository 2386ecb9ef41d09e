"""Builders of operations that return the position of an extreme value."""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.core.dtype import DataType
from fusewright.core.op import ReductionOp
from fusewright.ir import Fusion, TensorView
from fusewright.ops.build_elementwise import apply_to_tensor, convert_tensor, insert_axes, scalar_of_extent
from fusewright.ops.build_factory import filled, iota
from fusewright.ops.build_reduction import (
    of_copies,
    reduce_apart,
    reduced_dims,
    with_kept_dims,
    without_broadcasts,
)
from fusewright.ops.reductions import ARGMAX, ARGMIN, NOWHERE, reduction_dtypes
from fusewright.ops.registry import op
from fusewright.sym import as_int, product


def _positions(fusion: Fusion, tensor: TensorView, dims: Sequence[int]) -> TensorView:
    """Where each element stands among those along `dims`, none a broadcast, in row-major order.

    Along other dimensions it has size 1. Elements that exist are counted by an Index.
    """
    total: TensorView | None = None
    for i, dim in enumerate(dims):
        along = iota(fusion, scalar_of_extent(fusion, tensor.extents[dim]), 0, 1, DataType.Index)
        along = insert_axes(fusion, along, [other != dim for other in range(tensor.ndim)])
        inside = product(tensor.extents[other] for other in dims[i + 1 :])
        if as_int(inside) != 1:
            along = apply_to_tensor(fusion, "mul", along, scalar_of_extent(fusion, inside))
        total = along if total is None else apply_to_tensor(fusion, "add", total, along)
    assert total is not None
    return total


def _among_copies(fusion: Fusion, found: TensorView, arg: TensorView, dims: Sequence[int]) -> TensorView:
    """A position among the elements of `arg` along `dims`, as one among these and the copies that broadcasts
    show: that of the first copy."""
    iterated = [dim for dim in dims if not arg.shape[dim].is_broadcast]
    outermost = dims.index(iterated[0])
    if all(as_int(arg.extents[dim]) == 1 for dim in dims[outermost:] if dim not in iterated):
        return found
    total, rest = found, found
    for dim in reversed(iterated):
        stride = product(arg.extents[other] for other in dims[dims.index(dim) + 1 :])
        along = rest
        if dim != iterated[0]:
            extent = scalar_of_extent(fusion, arg.extents[dim])
            along = apply_to_tensor(fusion, "mod", rest, extent)
            rest = apply_to_tensor(fusion, "div", rest, extent)
        along = apply_to_tensor(fusion, "mul", along, scalar_of_extent(fusion, stride))
        total = along if total is found else apply_to_tensor(fusion, "add", total, along)
    nowhere = apply_to_tensor(fusion, "eq", found, NOWHERE)
    return apply_to_tensor(fusion, "where", nowhere, found, total)


def _arg_extremum(
    fusion: Fusion, row: ReductionOp, arg: TensorView, dim: int | None, keepdim: bool
) -> TensorView:
    dims = reduced_dims(arg, dim)
    computed, _ = reduction_dtypes(row, arg.dtype)
    reduced = without_broadcasts(fusion, convert_tensor(fusion, arg, computed), dims)
    values, copies = reduced.source, reduced.copies
    if reduced.dims:
        positions = _positions(fusion, values, reduced.dims)
        _, found = reduce_apart(fusion, row, reduced, [values, positions])
        found = _among_copies(fusion, convert_tensor(fusion, found, DataType.Int), arg, dims)
    else:
        found = filled(fusion, values.extents, fusion.new_scalar(DataType.Int, 0), DataType.Int)
    return with_kept_dims(fusion, of_copies(fusion, copies, found, NOWHERE), dims, keepdim)


@op()
def argmax(fusion: Fusion, arg: TensorView, dim: int | None = None, keepdim: bool = False) -> TensorView:
    """Where the greatest element along `dim` is, Int; None: its row-major position among all.

    The first of equal ones, and of NaN, which is greater than any number; -1 where there is no element.
    """
    return _arg_extremum(fusion, ARGMAX, arg, dim, keepdim)


@op()
def argmin(fusion: Fusion, arg: TensorView, dim: int | None = None, keepdim: bool = False) -> TensorView:
    """Where the least element along `dim` is, with NaN less than any number; see `argmax`."""
    return _arg_extremum(fusion, ARGMIN, arg, dim, keepdim)
