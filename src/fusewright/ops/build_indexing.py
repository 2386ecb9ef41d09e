"""Builders of operations that find elements by index: select, gather and similar ones, and triangles."""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.core.errors import DtypeError, RankError, ShapeError
from fusewright.ir import Fusion, IndexMap, IterDomain, Scalar, TensorView, index_value, positions
from fusewright.ops.build_elementwise import insert_axes
from fusewright.ops.build_indexed import choose, indexed, own_positions, remainder, sized_axis, zero_of
from fusewright.ops.build_shape import offset_of, wrap_index
from fusewright.ops.registry import ScalarLike, op
from fusewright.sym import ONE, TRUE, ZERO, Expr, is_nonneg, land, le, lt


@op()
def select(fusion: Fusion, arg: TensorView, index: ScalarLike, dim: int) -> TensorView:
    """The elements at `index` along `dim`, which the result lacks; a negative one counts from the end."""
    along = wrap_index(dim, arg.ndim)
    size = arg.extents[along]
    number = index.value if isinstance(index, Scalar) and index.value is not None else index
    if isinstance(number, (bool, float, complex)):
        raise DtypeError(what="select: the index", expected="int", given=type(number).__name__)
    given = offset_of(fusion, number)
    fusion.require(
        land(le(ZERO - size, given), lt(given, size)),
        f"select: index {given} is out of range for dimension {along}",
    )
    place = given if is_nonneg(given) else size + given if isinstance(number, int) else remainder(given, size)
    axes = [fusion.copy_axis(axis) for i, axis in enumerate(arg.shape) if i != along]
    kept = iter(positions([axis.extent for axis in axes]))
    indices = [place if i == along else next(kept) for i in range(arg.ndim)]
    return indexed(fusion, "Select", arg, axes, IndexMap(_of_axes(arg, indices)))


@op()
def index_select(fusion: Fusion, arg: TensorView, index: TensorView, dim: int) -> TensorView:
    """arg[.., index[i], ..] along `dim`; `index` is of rank 1 or 0, or broadcast to arg's rank.

    An index out of range finds 0.
    """
    along = wrap_index(dim, arg.ndim)
    if index.ndim == arg.ndim and not any(
        not axis.is_broadcast for i, axis in enumerate(index.shape) if i != along
    ):
        wide = index
    elif index.ndim > 1:
        raise RankError(what="index_select: the index", expected="rank 1 or 0", given=index.ndim)
    else:
        line = index if index.ndim else insert_axes(fusion, index, [True])
        wide = insert_axes(fusion, line, [i != along for i in range(arg.ndim)])
    axes = [fusion.copy_axis(wide.shape[i] if i == along else axis) for i, axis in enumerate(arg.shape)]
    return found_by_index(fusion, "IndexSelect", arg, axes, own_positions(arg), along, wide)


@op(aliases={"arg1": "arg"})
def gather(fusion: Fusion, arg: TensorView, index: TensorView, dim: int) -> TensorView:
    """torch.gather: along `dim` the element that `index` names; the result has the sizes of `index`.

    An index out of range finds 0.
    """
    along = checked_dim("gather", arg, index, dim)
    # Copies of one index find several elements, but along the dimension that is looked through.
    axes = [
        fusion.copy_axis(axis) if i == along else sized_axis(fusion, axis.visible_extent)
        for i, axis in enumerate(index.shape)
    ]
    places = positions([axis.extent for axis in axes])
    inside = [
        lt(place, size)
        for i, (place, size) in enumerate(zip(places, arg.extents))
        if i != along and place is not ZERO
    ]
    return found_by_index(
        fusion, "Gather", arg, axes, places, along, index, land(*inside) if inside else TRUE
    )


@op(aliases={"arg1": "arg"})
def take_along_axis(fusion: Fusion, arg: TensorView, index: TensorView, dim: int) -> TensorView:
    """As gather, but other dimensions of `arg` and `index` are equal, or of size 1 and broadcast."""
    along = checked_dim("take_along_axis", arg, index, dim)
    axes = []
    for i, (ours, theirs) in enumerate(zip(arg.shape, index.shape)):
        if i != along and ONE not in (ours.visible_extent, theirs.visible_extent):
            fusion.equate(ours.visible_extent, theirs.visible_extent, f"take_along_axis, dimension {i}")
        # An element for each of them, where either has several, or shows several.
        wider = ours if theirs.visible_extent is ONE or not ours.is_broadcast else theirs
        axes.append(fusion.copy_axis(theirs if i == along else wider))
    places = positions([axis.extent for axis in axes])
    return found_by_index(fusion, "TakeAlongAxis", arg, axes, places, along, index)


def checked_dim(name: str, arg: TensorView, index: TensorView, dim: int) -> int:
    rank = arg.ndim
    if index.ndim != rank:
        raise RankError(
            f"{name}: Tensor arguments have dimension {rank} and {index.ndim}",
            expected=rank,
            given=index.ndim,
        )
    if not -rank <= dim < rank:
        raise ShapeError(
            f"{name}: Tensor arguments have dimension {rank}, so there is no dimension {dim}",
            expected=f"{-rank} to {rank - 1}",
            given=dim,
        )
    return dim % rank


def found_by_index(
    fusion: Fusion,
    kind: str,
    source: TensorView,
    axes: Sequence[IterDomain],
    places: Sequence[Expr],
    dim: int,
    index: TensorView,
    pred: Expr = TRUE,
) -> TensorView:
    """Elements of `source` at `places`, except that `index`, of the result's rank, gives the position along
    `dim`.

    If there is none, or `pred` does not hold, the element is zero.
    """
    if not index.dtype.is_integral or index.dtype.is_bool:
        raise DtypeError(what=f"{kind}: the index", expected="Int or Int32", given=index.dtype)
    value = index_value(0, source.extents[dim])
    at = _of_axes(source, [value if i == dim else place for i, place in enumerate(places)])
    inside = land(pred, le(ZERO, value))
    zero = zero_of(fusion, source.dtype)
    return indexed(fusion, kind, source, axes, IndexMap(at, inside), indices=[index], fill=zero)


def _of_axes(source: TensorView, indices: Sequence[Expr]) -> tuple[Expr, ...]:
    """The indices, zero along dimensions that show copies of one element."""
    return tuple(ZERO if axis.is_broadcast else e for axis, e in zip(source.shape, indices))


# ---- triangles ---------------------------------------------------------------------------------------------


@op(aliases={"input": "arg"})
def triu(fusion: Fusion, arg: TensorView, diagonal: ScalarLike = 0) -> TensorView:
    """The upper triangle of each matrix, from `diagonal` above the main diagonal on; zero elsewhere."""
    row, column, offset = _matrix(fusion, "triu", arg, diagonal)
    return choose(fusion, arg, zero_of(fusion, arg.dtype), le(row + offset, column))


@op(aliases={"input": "arg"})
def tril(fusion: Fusion, arg: TensorView, diagonal: ScalarLike = 0) -> TensorView:
    """The lower triangle of each matrix, zero elsewhere: up to the diagonal `diagonal` above the main."""
    row, column, offset = _matrix(fusion, "tril", arg, diagonal)
    return choose(fusion, arg, zero_of(fusion, arg.dtype), le(column, row + offset))


def _matrix(fusion: Fusion, name: str, arg: TensorView, diagonal: ScalarLike) -> tuple[Expr, Expr, Expr]:
    if arg.ndim < 2:
        raise RankError(
            f"input tensor for {name} must have 2 or more dims, but got {arg.ndim} dims",
            expected="2 or more",
            given=arg.ndim,
        )
    if isinstance(diagonal, (bool, float, complex)):
        raise DtypeError(what=f"{name}: the diagonal", expected="int", given=type(diagonal).__name__)
    row, column = positions(arg.extents)[-2:]
    return row, column, offset_of(fusion, diagonal)
