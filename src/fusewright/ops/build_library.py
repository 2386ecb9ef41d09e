"""Builders of the operations that torch computes: contractions and sorting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusewright.core.dtype import DataType
from fusewright.core.errors import DtypeError, RankError, ShapeError
from fusewright.core.op import LibraryOp
from fusewright.ir import Fusion, IterDomain, LibraryCall, TensorView, Val
from fusewright.ops.build_elementwise import copy_tensor
from fusewright.ops.build_factory import factory_axes, scalar_of
from fusewright.ops.build_shape import extent_of, wrap_index
from fusewright.ops.library import ARGSORT, LINEAR, MATMUL, SORT, TOPK
from fusewright.ops.registry import ScalarLike, op
from fusewright.sym import ONE, Expr, as_int

#: A result: its sizes and its type.
Result = tuple[Sequence[Expr], DataType]

# ---- the node ----------------------------------------------------------------------------------------------


def call_library(
    fusion: Fusion,
    row: LibraryOp,
    inputs: Sequence[Val],
    results: Sequence[Result],
    options: Mapping[str, object] | None = None,
    orders: Sequence[Sequence[int]] = (),
) -> list[TensorView]:
    """The node and its outputs, which are dense and have these sizes and types.

    orders: of each output its dimensions in memory, outermost first; none: row-major.
    """
    operands = list(inputs)
    if not row.anywhere:
        operands = [copy_tensor(fusion, v) if isinstance(v, TensorView) and v.is_cpu else v for v in inputs]
    outputs = []
    for i, (sizes, dtype) in enumerate(results):
        axes = factory_axes(fusion, sizes)
        allocation = [axes[dim] for dim in orders[i]] if orders else None
        outputs.append(fusion.new_tensor(axes, dtype, allocation=allocation))
    fusion.add_node(LibraryCall(row, operands, outputs, options or {}))
    return outputs


def check_dtype(name: str, what: str, dtype: DataType, dtypes: Sequence[DataType]) -> None:
    """Raises DtypeError for a type that the operation does not take."""
    if dtype not in dtypes:
        expected = f"one of {', '.join(map(str, dtypes))}"
        raise DtypeError(what=f"{what} of {name}", expected=expected, given=dtype)


def check_same_dtype(row: LibraryOp, operands: Mapping[str, TensorView | None]) -> DataType:
    """The type that all operands that are given have. DtypeError if they differ or it is not taken."""
    given = {name: tensor.dtype for name, tensor in operands.items() if tensor is not None}
    first = next(iter(given.values()))
    for name, dtype in given.items():
        if dtype is not first:
            raise DtypeError(
                what=f"{name} of {row.name}", expected=f"{first}, as {next(iter(given))}", given=dtype
            )
    check_dtype(row.name, next(iter(given)), first, row.dtypes)
    return first


def joined_extent(fusion: Fusion, axes: Sequence[IterDomain], what: str) -> Expr:
    """The size that these dimensions broadcast to. ShapeError if their sizes cannot be equal."""
    sizes = [axis.visible_extent for axis in axes if not axis.is_broadcast or axis.expanded is not None]
    for size in sizes[1:]:
        fusion.equate(sizes[0], size, what)
    constants = [size for size in sizes if as_int(size) is not None]
    return (constants or sizes or [ONE])[0]


# ---- contractions ------------------------------------------------------------------------------------------


def _batch(fusion: Fusion, a: Sequence[IterDomain], b: Sequence[IterDomain], what: str) -> list[Expr]:
    """The leading dimensions of a product, in which those of the operands are broadcast."""
    rank = max(len(a), len(b))
    places = [[axes[i - rank] for axes in (a, b) if rank - i <= len(axes)] for i in range(rank)]
    return [joined_extent(fusion, axes, f"{what}, dimension {i}") for i, axes in enumerate(places)]


@op(aliases={"arg1": "a", "arg2": "b"})
def matmul(fusion: Fusion, a: TensorView, b: TensorView) -> TensorView:
    """The matrix product, shaped as torch.matmul's: vectors are rows or columns, leading dimensions batches.

    Both operands have the same type, which is the result's. torch computes it.
    """
    dtype = check_same_dtype(MATMUL, {"a": a, "b": b})
    for name, operand in (("a", a), ("b", b)):
        if not operand.ndim:
            raise RankError(what=f"{name} of matmul", expected="at least 1", given=0)
    inner = b.extents[-2] if b.ndim > 1 else b.extents[-1]
    fusion.equate(a.extents[-1], inner, "matmul, the dimension that is summed over")
    sizes = _batch(fusion, a.shape[:-2], b.shape[:-2], "matmul")
    sizes += [*a.extents[-2:-1], *(b.extents[-1:] if b.ndim > 1 else ())]
    (out,) = call_library(fusion, MATMUL, (a, b), [(sizes, dtype)])
    return out


@op()
def linear(fusion: Fusion, arg1: TensorView, arg2: TensorView, bias: TensorView | None = None) -> TensorView:
    """arg1 @ arg2^T + bias: arg1 of any batch dimensions, arg2 [out, in], bias [out].

    All have the same type, which is the result's. torch computes it.
    """
    dtype = check_same_dtype(LINEAR, {"arg1": arg1, "arg2": arg2, "bias": bias})
    for name, operand, expected, fits in (
        ("arg1", arg1, "at least 1", arg1.ndim >= 1),
        ("arg2", arg2, 2, arg2.ndim == 2),
        ("bias", bias, 1, bias is None or bias.ndim == 1),
    ):
        if not fits:
            assert operand is not None
            raise RankError(what=f"{name} of linear", expected=expected, given=operand.ndim)
    fusion.equate(arg1.extents[-1], arg2.extents[-1], "linear, the dimension that is summed over")
    # torch checks the size of the bias: 1 is broadcast, and its message is the interface's.
    operands = (arg1, arg2) if bias is None else (arg1, arg2, bias)
    (out,) = call_library(fusion, LINEAR, operands, [((*arg1.extents[:-1], arg2.extents[0]), dtype)])
    return out


# ---- sorting -----------------------------------------------------------------------------------------------


def _sorted_dim(row: LibraryOp, tensor: TensorView, dim: int) -> int:
    """The dimension counted from the front; a tensor of rank 0 is sorted as one of a single element."""
    check_dtype(row.name, "the input", tensor.dtype, row.dtypes)
    return wrap_index(dim, tensor.ndim or 1)


@op()
def argsort(
    fusion: Fusion, arg: TensorView, dim: int, descending: bool = False, stable: bool = False
) -> TensorView:
    """The indices, of type Int, that sort `arg` along `dim`; NaN counts as the greatest value.

    `stable` keeps the order of equal elements. torch computes it.
    """
    options = {"dim": _sorted_dim(ARGSORT, arg, dim), "descending": descending, "stable": stable}
    (indices,) = call_library(fusion, ARGSORT, (arg,), [(arg.extents, DataType.Int)], options)
    return indices


@op()
def sort(
    fusion: Fusion, arg: TensorView, dim: int = -1, descending: bool = False, stable: bool = False
) -> tuple[TensorView, TensorView]:
    """(values, indices): `arg` sorted along `dim`, and the previous position of each value. As `argsort`."""
    options = {"dim": _sorted_dim(SORT, arg, dim), "descending": descending, "stable": stable}
    results = [(arg.extents, arg.dtype), (arg.extents, DataType.Int)]
    values, indices = call_library(fusion, SORT, (arg,), results, options)
    return values, indices


@op()
def topk(
    fusion: Fusion, arg: TensorView, k: ScalarLike, dim: int = -1, largest: bool = True, sorted: bool = False
) -> tuple[TensorView, TensorView]:
    """(values, indices) of the `k` largest, or smallest, elements along `dim`, in order if `sorted`.

    k is a number, or a Scalar whose value each call gives. torch computes it.
    """
    check_dtype(TOPK.name, "the input", arg.dtype, TOPK.dtypes)
    place = wrap_index(dim, arg.ndim)
    count = scalar_of(fusion, k)
    if not count.dtype.is_integral:
        raise DtypeError(what="k of topk", expected=DataType.Int, given=count.dtype)
    if isinstance(count.value, int) and count.value < 0:
        raise ShapeError(f"Invalid resized domain extent {count.value}", expected="0 or more")
    size, total = extent_of(count), arg.extents[place]
    known = as_int(size), as_int(total)
    if known[0] is not None and known[1] is not None and known[0] > known[1]:
        raise ShapeError("topk: selected index k out of range", expected=f"at most {total}", given=size)
    sizes = [size if i == place else extent for i, extent in enumerate(arg.extents)]
    options = {"dim": place, "largest": largest, "sorted": sorted}
    results = [(sizes, arg.dtype), (sizes, DataType.Int)]
    values, indices = call_library(fusion, TOPK, (arg, count), results, options)
    return values, indices
