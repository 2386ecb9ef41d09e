"""Builders of assignments and additions at indices: scatter, index_put_accumulate, embedding's gradient.

Each is a node `Update` of a copy of the changed tensor, or of zeros. The simulator reports a negative or
out-of-range index; a GPU drops the element. Under torch's deterministic algorithms, torch computes the node.
Otherwise the order of additions, and so the last digits of the sums, may differ from run to run.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.core.dtype import Category, DataType
from fusewright.core.errors import DtypeError, RankError, ShapeError
from fusewright.core.op import ReductionOp
from fusewright.ir import Fusion, IndexMap, TensorView, Update, index_value, positions
from fusewright.ops.build_elementwise import (
    apply_to_tensor,
    constant,
    convert_tensor,
    copy_tensor,
    insert_axes,
)
from fusewright.ops.build_factory import factory_axes, filled, scalar_of
from fusewright.ops.build_indexed import indexed, zero_of
from fusewright.ops.build_indexing import checked_dim
from fusewright.ops.build_library import check_dtype
from fusewright.ops.build_scan import cumsum
from fusewright.ops.build_shape import extent_of
from fusewright.ops.reductions import SUM
from fusewright.ops.registry import ScalarLike, op
from fusewright.sym import ONE, ZERO, Expr, as_int, eq, land, le, lnot, minimum, product

GRADIENTS = (DataType.Half, DataType.BFloat16, DataType.Float, DataType.Double)
#: What a kernel adds at once in the type that it is computed in.
ADDED = (
    *GRADIENTS,
    DataType.Int8,
    DataType.UInt8,
    DataType.Int16,
    DataType.UInt16,
    DataType.Int32,
    DataType.Int,
    DataType.ComplexFloat,
    DataType.ComplexDouble,
)
STORED = (DataType.Bool, DataType.Float8_e4m3fn, DataType.Float8_e5m2, *ADDED)
#: Rows of a narrow type from which on sums are added in memory that has a row for those alone that occur: the
#: kernels that number these take a few microseconds.
MANY_ROWS = 4096

# ---- the node ----------------------------------------------------------------------------------------------


def _updated(
    fusion: Fusion,
    base: TensorView,
    source: TensorView,
    space: Sequence[Expr],
    indices: Sequence[TensorView],
    places: Sequence[Expr],
    pred: Expr,
    op: ReductionOp | None = None,
) -> TensorView:
    """The base, which nothing else uses, with the elements of `source` where `places` says.

    `space`: the sizes of what is gone through, whose rank `source` and `indices` have. `places` and `pred`
    are over positions in it and index values.
    """
    out = fusion.new_tensor(factory_axes(fusion, base.extents), base.dtype, root=factory_axes(fusion, space))
    out.loop = list(out.maybe_root)
    of_axes = tuple(ZERO if axis.is_broadcast else place for axis, place in zip(out.shape, places))
    fusion.add_node(Update(source, out, IndexMap(of_axes, pred), indices, base, op))
    return out


def _copied(fusion: Fusion, tensor: TensorView) -> TensorView:
    """A copy with an element for each of the points that dimensions show."""
    if not tensor.is_expanded:
        return copy_tensor(fusion, tensor)
    axes = factory_axes(fusion, tensor.extents)
    places = [ZERO if axis.is_broadcast else p for axis, p in zip(tensor.shape, positions(tensor.extents))]
    return indexed(fusion, "Repeat", tensor, axes, IndexMap(tuple(places)))


def _check_index(name: str, index: TensorView, what: str = "index") -> None:
    if not index.dtype.is_integral or index.dtype.is_bool:
        raise DtypeError(what=f"{what} of {name}", expected="Int or Int32", given=index.dtype)


# ---- scatter -----------------------------------------------------------------------------------------------


@op(aliases={"arg1": "arg"})
def scatter(
    fusion: Fusion, arg: TensorView, index: TensorView, src: TensorView | ScalarLike, dim: int
) -> TensorView:
    """torch.scatter: a copy of `arg` in which the elements that `index` names along `dim` are those of `src`.

    `index` and a tensor `src` have the rank of `arg`; `src` is of its type, or a scalar. Of several elements
    for one place any one is taken, not the same in each run but under torch's deterministic algorithms.
    """
    name = "scatter"
    check_dtype(name, "arg", arg.dtype, STORED)
    along = checked_dim(name, arg, index, dim)
    _check_index(name, index)
    _check_within(fusion, f"{name}: the index", index, arg, except_dim=along)
    if isinstance(src, TensorView):
        if src.dtype is not arg.dtype:
            raise DtypeError(what=f"src of {name}", expected=f"{arg.dtype}, as arg", given=src.dtype)
        checked_dim(name, arg, src, dim)
        _check_within(fusion, f"{name}: the index", index, src)
        source = _leading(fusion, src, index.extents)
    else:
        value = scalar_of(fusion, src)
        if value.dtype.category is Category.COMPLEX and arg.dtype.category is not Category.COMPLEX:
            raise DtypeError(what=f"src of {name}", expected=arg.dtype, given=value.dtype)
        source = filled(fusion, index.extents, value, arg.dtype)
    places = positions(index.extents)
    value_at = index_value(0, arg.extents[along])
    places[along] = value_at
    base = _copied(fusion, arg)
    return _updated(fusion, base, source, index.extents, [index], places, le(ZERO, value_at))


def _check_within(
    fusion: Fusion, what: str, inner: TensorView, outer: TensorView, except_dim: int | None = None
) -> None:
    """ShapeError, here or in a call, if a size of `inner` is greater than that of `outer`."""
    for dim, (size, limit) in enumerate(zip(inner.extents, outer.extents)):
        if dim == except_dim:
            continue
        known = as_int(size), as_int(limit)
        if known[0] is not None and known[1] is not None and known[0] > known[1]:
            raise ShapeError(f"{what}, dimension {dim}", expected=f"at most {limit}", given=size)
        fusion.require(le(size, limit), f"{what}, dimension {dim}, is of size {size}, at most {limit}")


def _leading(fusion: Fusion, tensor: TensorView, sizes: Sequence[Expr]) -> TensorView:
    """The part of a tensor of these sizes that starts at its first element."""
    pairs = list(zip(tensor.shape, sizes))
    if all(axis.is_broadcast or fusion.same_size(axis.extent, size) for axis, size in pairs):
        return tensor
    axes = factory_axes(fusion, sizes)
    places = [ZERO if axis.is_broadcast else p for axis, p in zip(tensor.shape, positions(sizes))]
    return indexed(fusion, "Slice", tensor, axes, IndexMap(tuple(places)))


# ---- additions ---------------------------------------------------------------------------------------------


@op()
def index_put_accumulate(fusion: Fusion, acc: TensorView, index: TensorView, value: TensorView) -> TensorView:
    """A copy of `acc` with value[i] added to acc[index[i]], for each i.

    `index` is of rank 1, or of the rank of `acc` and of size 1 but for its first dimension. `acc` and `value`
    have the same rank, type and sizes but for the first. Reduced floats are added in Float and rounded once.
    """
    name = "index_put_accumulate"
    if value.dtype is not acc.dtype:
        raise DtypeError(what=f"value of {name}", expected=f"{acc.dtype}, as acc", given=value.dtype)
    check_dtype(name, "acc", acc.dtype, ADDED)
    _check_index(name, index)
    if not acc.ndim:
        raise RankError(what=f"acc of {name}", expected="at least 1", given=0)
    if value.ndim != acc.ndim:
        raise RankError(what=f"value of {name}", expected=f"{acc.ndim}, as acc", given=value.ndim)
    wide = index.ndim == acc.ndim and all(axis.is_broadcast for axis in index.shape[1:])
    if index.ndim != 1 and not wide:
        raise RankError(what=f"index of {name}", expected="1", given=index.ndim)
    fusion.equate(index.extents[0], value.extents[0], f"{name}, index and value")
    for dim in range(1, acc.ndim):
        fusion.equate(acc.extents[dim], value.extents[dim], f"{name}, dimension {dim}")
    if index.ndim < acc.ndim:
        index = insert_axes(fusion, index, [dim > 0 for dim in range(acc.ndim)])
    dtype = acc.dtype.compute
    base = _copied(fusion, acc) if dtype is acc.dtype else _converted(fusion, acc, dtype)
    row = index_value(0, acc.extents[0])
    places = [row, *positions(value.extents)[1:]]
    source = convert_tensor(fusion, value, dtype) if dtype is not value.dtype else value
    out = _updated(fusion, base, source, value.extents, [index], places, le(ZERO, row), SUM)
    return out if dtype is acc.dtype else convert_tensor(fusion, out, acc.dtype)


def _converted(fusion: Fusion, tensor: TensorView, dtype: DataType) -> TensorView:
    """A copy in another type, which nothing else uses."""
    whole = _copied(fusion, tensor) if tensor.is_expanded else tensor
    return convert_tensor(fusion, whole, dtype)


@op()
def embedding_bwd(
    fusion: Fusion,
    grad_output: TensorView,
    indices: TensorView,
    num_embeddings: ScalarLike,
    padding_idx: ScalarLike | None = None,
    scale_grad_by_freq: bool = False,
) -> TensorView:
    """The gradient of the weight of an embedding, [num_embeddings, size of grad_output's last dimension].

    Row i is the sum of `grad_output` where `indices` is i, over their number with `scale_grad_by_freq`; zero
    where i is `padding_idx` (-1 or None: no row). Reduced floats are added in Float and rounded once.
    """
    name = "embedding_bwd"
    check_dtype(name, "grad_output", grad_output.dtype, GRADIENTS)
    _check_index(name, indices, "indices")
    if grad_output.ndim != indices.ndim + 1:
        expected = f"{indices.ndim + 1}, one more than indices"
        raise RankError(what=f"grad_output of {name}", expected=expected, given=grad_output.ndim)
    for dim, (ours, theirs) in enumerate(zip(grad_output.extents, indices.extents)):
        fusion.equate(ours, theirs, f"{name}, grad_output and indices, dimension {dim}")
    count, padding = (scalar_of(fusion, -1 if v is None else v) for v in (num_embeddings, padding_idx))
    for what, scalar in (("num_embeddings", count), ("padding_idx", padding)):
        if not scalar.dtype.is_integral:
            raise DtypeError(what=f"{what} of {name}", expected="Int", given=scalar.dtype)
    if isinstance(count.value, int) and count.value < 0:
        raise ShapeError(f"{name}: num_embeddings", expected="0 or more", given=count.value)
    rows, dtype = extent_of(count), grad_output.dtype.compute
    row = index_value(0, rows)
    last = indices.ndim
    source = convert_tensor(fusion, grad_output, dtype) if dtype is not grad_output.dtype else grad_output
    if scale_grad_by_freq:
        source = apply_to_tensor(fusion, "div", source, _frequencies(fusion, indices, rows, dtype))
    wide = [insert_axes(fusion, indices, [dim == last for dim in range(last + 1)])]
    pred = le(ZERO, row)
    if not isinstance(padding.value, int):
        # A number that a call gives, and that is negative perhaps, is compared as a value.
        kept = apply_to_tensor(fusion, "ne", wide[0], padding)
        wide.append(convert_tensor(fusion, kept, DataType.Int32))
        pred = land(pred, le(ONE, index_value(1, ONE + ONE)))
    elif padding.value >= 0:
        pred = land(pred, lnot(eq(row, padding.value)))
    column = grad_output.extents[-1]
    extent = as_int(rows)
    if dtype is not grad_output.dtype and (extent is None or extent >= MANY_ROWS):
        out = _added_apart(fusion, source, indices, wide, pred, rows)
    else:
        base = filled(fusion, (rows, column), zero_of(fusion, dtype), dtype)
        places = [row, positions(grad_output.extents)[-1]]
        out = _updated(fusion, base, source, grad_output.extents, wide, places, pred, SUM)
    return out if dtype is grad_output.dtype else convert_tensor(fusion, out, grad_output.dtype)


def _added_apart(
    fusion: Fusion,
    source: TensorView,
    indices: TensorView,
    wide: Sequence[TensorView],
    pred: Expr,
    rows: Expr,
) -> TensorView:
    """Sums of the rows of `source` by index, [rows, size of its last dimension], in its type.

    They are added in memory that has a row for each index that occurs, at most as many as there are indices;
    the rows of the result are taken from there, or are zero, and may be rounded as they are stored. So a
    result of a narrower type costs one write, not a write and two more of the sums.

    `wide`, `pred`: the indices and what else decides, with a dimension of size one for the columns.
    """
    last = indices.ndim
    row, column = index_value(0, rows), source.extents[-1]
    zero, none = zero_of(fusion, DataType.Int32), zero_of(fusion, source.dtype)
    one = filled(fusion, indices.extents, constant(fusion, 1), DataType.Int32)
    empty = filled(fusion, (rows,), zero, DataType.Int32)
    occurs = _updated(fusion, empty, one, indices.extents, [indices], [row], le(ZERO, row))
    # The place among those that occur, from 1 on; of the others 0.
    place = apply_to_tensor(fusion, "mul", occurs, cumsum(fusion, occurs, 0))
    axes = factory_axes(fusion, indices.extents)
    at = IndexMap((ZERO if place.shape[0].is_broadcast else row,), le(ZERO, row))
    found = indexed(fusion, "Gather", place, axes, at, indices=[indices], fill=zero)
    count = minimum(rows, product(indices.extents))
    slot = index_value(len(wide), count + 1) - 1
    base = filled(fusion, (count, column), none, source.dtype)
    slots = insert_axes(fusion, found, [dim == last for dim in range(last + 1)])
    pred = land(pred, le(ZERO, slot))
    places = [slot, positions(source.extents)[-1]]
    sums = _updated(fusion, base, source, source.extents, [*wide, slots], places, pred, SUM)
    # Rows that are left out (`pred`) have a place, too, whose sum is zero.
    taken = index_value(0, count + 1) - 1
    axes = factory_axes(fusion, (rows, column))
    points = (taken, positions((rows, column))[1])
    along = [ZERO if axis.is_broadcast else point for axis, point in zip(sums.shape, points)]
    inside = IndexMap(tuple(along), le(ZERO, taken))
    of_rows = insert_axes(fusion, place, [False, True])
    return indexed(fusion, "Gather", sums, axes, inside, indices=[of_rows], fill=none)


def _frequencies(fusion: Fusion, indices: TensorView, rows: Expr, dtype: DataType) -> TensorView:
    """How often each index occurs among all, beside it, with a last dimension of size one."""
    one = filled(fusion, indices.extents, constant(fusion, 1), DataType.Int)
    base = filled(fusion, (rows,), zero_of(fusion, DataType.Int), DataType.Int)
    row = index_value(0, rows)
    inside = le(ZERO, row)
    counts = _updated(fusion, base, one, indices.extents, [indices], [row], inside, SUM)
    axes = factory_axes(fusion, indices.extents)
    at = IndexMap((ZERO if counts.shape[0].is_broadcast else row,), inside)
    zero = zero_of(fusion, DataType.Int)
    found = indexed(fusion, "Gather", counts, axes, at, indices=[indices], fill=zero)
    column = insert_axes(fusion, found, [dim == indices.ndim for dim in range(indices.ndim + 1)])
    return convert_tensor(fusion, column, dtype)
