"""Builders of operations that rename, add, remove or reorder dimensions, and that read sizes."""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.core.dtype import DataType
from fusewright.core.errors import ArgumentTypeError, DtypeError, RankError, ShapeError
from fusewright.ir import Expand, Fusion, IterDomain, IterKind, Permute, Scalar, Squeeze, TensorView
from fusewright.ops.build_elementwise import copy_tensor, insert_axes, scalar_of_extent, with_rank
from fusewright.ops.registry import ScalarVector, Shape, op
from fusewright.sym import Expr, as_int, const

# ---- sizes and positions -----------------------------------------------------------------------------------


def wrap_index(index: int, total: int) -> int:
    """A position from either end, as one from the front. ShapeError if there is no such position."""
    wrapped = index + total if index < 0 else index
    if not 0 <= wrapped < total:
        raise ShapeError(f"Tried to access out of boundary index {wrapped}. total index: {total}")
    return wrapped


def wrap_dims(dims: Sequence[int], rank: int, what: str) -> list[int]:
    """Dimensions counted from the front. ShapeError for one that does not exist or occurs twice."""
    wrapped = [wrap_index(dim, rank) for dim in dims]
    if len(set(wrapped)) < len(wrapped):
        raise ShapeError(
            f"{what}: a dimension is listed twice", expected="distinct dimensions", given=list(dims)
        )
    return wrapped


def check_extent(size: int, index: int, least: int = 0) -> None:
    """Raises ShapeError if `size`, entry `index` of a shape, is no size; `least` -1 allows symbolic ones."""
    if size < least:
        raise ShapeError(
            f"The value {size} at index {index} was neither "
            "symbolic(-1), zero_element(0), broadcast(1), or static(>1)"
        )


def known_size(size: int | Scalar) -> int | Scalar:
    """The number that a size is, if it is known: a scalar may be a constant."""
    return size.value if isinstance(size, Scalar) and isinstance(size.value, int) else size


def extent_of(size: int | Scalar) -> Expr:
    """A size given by the user as an extent. DtypeError for a scalar that is no integer."""
    if isinstance(size, int):
        return const(size)
    if size.extent is None:
        raise DtypeError(what="a size", expected="int", given=size.dtype)
    return size.extent


def offset_of(fusion: Fusion, offset: int | Scalar) -> Expr:
    """A number given by the user that may be negative. DtypeError for a scalar that is no integer."""
    if isinstance(offset, int):
        return const(offset)
    value = fusion.signed_value(offset)
    if value is None:
        raise DtypeError(what="an offset", expected="int", given=offset.dtype)
    return value


def memory_order(stride_order: Sequence[int], rank: int) -> list[int]:
    """Dimensions from the outermost in memory inward, where stride_order[d] is 0 for the innermost d.

    Negative entries wrap. ShapeError for a wrong length, a duplicate or an entry out of range.
    """
    if len(stride_order) != rank:
        raise RankError(
            what="stride_order", expected=rank, given=f"{len(stride_order)}: {list(stride_order)}"
        )
    places = [place + rank if place < 0 else place for place in stride_order]
    for place in places:
        if not 0 <= place < rank:
            raise ShapeError(
                "stride_order argument is out of range", expected=f"0 to {rank - 1}", given=list(stride_order)
            )
    if len(set(places)) < rank:
        raise ShapeError("duplicated stride_order entries", given=list(stride_order))
    return sorted(range(rank), key=lambda dim: -places[dim])


# ---- dimensions --------------------------------------------------------------------------------------------


@op()
def broadcast(fusion: Fusion, arg: TensorView, is_broadcast_dim: Sequence[bool]) -> TensorView:
    """A size-1 dimension where `is_broadcast_dim` is True; the False entries are the input's dimensions."""
    kept = sum(not flag for flag in is_broadcast_dim)
    if kept != arg.ndim:
        raise RankError(
            "Invalid broadcast, number of false entries in is_broadcast_dim expected to be "
            f"{arg.ndim} but received {kept}",
            expected=arg.ndim,
            given=list(is_broadcast_dim),
        )
    return insert_axes(fusion, arg, is_broadcast_dim) if any(is_broadcast_dim) else copy_tensor(fusion, arg)


@op()
def broadcast_in_dim(
    fusion: Fusion, arg: TensorView, shape: Shape, broadcast_dims: Sequence[int]
) -> TensorView:
    """`arg` expanded to `shape`: its dimensions become those listed in `broadcast_dims`, in their order."""
    rank = len(shape)
    if len(broadcast_dims) != arg.ndim:
        raise RankError(
            "The broadcast dimensions should match the input dimensions",
            expected=arg.ndim,
            given=list(broadcast_dims),
        )
    if rank < arg.ndim:
        raise RankError(
            "The new shape is expected to be greater-then-or-equal to the input",
            expected=arg.ndim,
            given=rank,
        )
    dims = [dim + rank if dim < 0 else dim for dim in broadcast_dims]
    if any(not 0 <= dim < rank for dim in dims) or len(set(dims)) < len(dims):
        raise ShapeError(
            f"Invalid broadcast_dims value {list(broadcast_dims)}",
            expected=f"distinct dimensions of a shape of {rank}",
        )
    return expand(fusion, insert_axes(fusion, arg, [i not in dims for i in range(rank)]), shape)


@op()
def expand(fusion: Fusion, arg: TensorView, shape: Shape) -> TensorView:
    """Size-1 dimensions seen with the sizes of `shape`; no data moves. -1 keeps a size; new ones lead."""
    if len(shape) < arg.ndim:
        raise RankError(what="the shape of expand", expected=f"at least {arg.ndim}", given=len(shape))
    source = with_rank(fusion, arg, len(shape))
    axes = []
    for i, (axis, given) in enumerate(zip(source.shape, shape)):
        size = known_size(given)
        if isinstance(size, int):
            check_extent(size, i, least=-1)
        keeps = isinstance(size, int) and size == -1
        axes.append(fusion.copy_axis(axis) if keeps else _expanded_axis(fusion, axis, extent_of(size), i))
    out = fusion.new_tensor(axes, arg.dtype)
    fusion.add_node(Expand(source, out))
    return out


def _expanded_axis(fusion: Fusion, axis: IterDomain, size: Expr, position: int) -> IterDomain:
    if not axis.is_broadcast or axis.expanded is not None:
        fusion.equate(axis.visible_extent, size, f"expand, dimension {position}")
        return fusion.copy_axis(axis)
    return fusion.new_axis(const(1), IterKind.BROADCAST, None if as_int(size) == 1 else size)


@op()
def squeeze(
    fusion: Fusion, arg: TensorView, dims: Sequence[int], squeeze_expanded: bool = False
) -> TensorView:
    """Without the size-1 dimensions `dims`; expanded ones only with `squeeze_expanded`."""
    if len(dims) > arg.ndim:
        raise RankError(
            "The dims to squeeze must be <= the number of dims of the input tensor",
            expected=arg.ndim,
            given=list(dims),
        )
    for dim in dims:
        if not -arg.ndim <= dim < arg.ndim:
            raise ShapeError(
                "Squeeze dim is outside of Tensor size!", expected=f"{-arg.ndim} to {arg.ndim - 1}", given=dim
            )
    wrapped = wrap_dims(dims, arg.ndim, "squeeze")
    for dim in wrapped:
        axis = arg.shape[dim]
        if not axis.is_broadcast:
            raise ShapeError(f"squeeze: dimension {dim} is no broadcast", expected=1, given=axis.extent)
        if axis.expanded is not None and not squeeze_expanded:
            raise ShapeError(
                f"squeeze: dimension {dim} is expanded",
                expected=1,
                given=axis.expanded,
                hint="squeeze_expanded=True drops it all the same",
            )
    return remove_axes(fusion, arg, wrapped) if wrapped else copy_tensor(fusion, arg)


def remove_axes(fusion: Fusion, tensor: TensorView, dims: Sequence[int]) -> TensorView:
    """Squeeze of the broadcast axes at positions `dims`; the tensor itself if there is none."""
    if not dims:
        return tensor
    axes = [fusion.copy_axis(axis) for i, axis in enumerate(tensor.shape) if i not in dims]
    out = fusion.new_tensor(axes, tensor.dtype)
    fusion.add_node(Squeeze(tensor, out, sorted(dims)))
    return out


@op()
def permute(fusion: Fusion, arg: TensorView, dims: Sequence[int]) -> TensorView:
    """Output dimension i is input dimension dims[i]."""
    rank = arg.ndim
    if len(dims) != rank:
        raise RankError(
            f"permute expects the dims argument to have the same length as input: {rank}",
            expected=rank,
            given=list(dims),
        )
    if any(not -rank <= dim < rank for dim in dims):
        raise ShapeError(
            f"permute: dims argument is out of range, expects {-rank} to {rank - 1}", given=list(dims)
        )
    wrapped = [dim % rank for dim in dims]
    if len(set(wrapped)) < rank:
        raise ShapeError("permute: duplicated dimension entries", given=list(dims))
    if wrapped == list(range(rank)):
        return copy_tensor(fusion, arg)
    out = fusion.new_tensor([fusion.copy_axis(arg.shape[dim]) for dim in wrapped], arg.dtype)
    fusion.add_node(Permute(arg, out, wrapped))
    return out


@op(name="stride_order")
def ordered_copy(fusion: Fusion, arg: TensorView, stride_order: Sequence[int]) -> TensorView:
    """A copy with another order in memory: stride_order[d] is 0 for the innermost d; [] keeps the order."""
    if not stride_order:
        return copy_tensor(fusion, arg)
    return copy_tensor(fusion, arg, memory_order=memory_order(stride_order, arg.ndim))


# ---- sizes -------------------------------------------------------------------------------------------------


@op()
def size(fusion: Fusion, arg: TensorView, dim: int) -> Scalar:
    """The size of one dimension, an Int scalar; for an expanded dimension, the expanded size."""
    return _size_of(fusion, arg.shape[wrap_index(dim, arg.ndim)])


def _size_of(fusion: Fusion, axis: IterDomain) -> Scalar:
    """What is seen of an axis as a scalar, which `Fusion.size_axes` leads back from."""
    scalar = scalar_of_extent(fusion, axis.visible_extent)
    fusion.size_axes[scalar] = axis
    return scalar


@op()
def shape(fusion: Fusion, arg: TensorView) -> ScalarVector:
    """All sizes, as a vector."""
    return ScalarVector(_size_of(fusion, axis) for axis in arg.shape)


@op()
def tensor_sizes(fusion: Fusion, arg: TensorView) -> list[Scalar]:
    """All sizes, as a list of scalars."""
    return list(shape(fusion, arg))


@op()
def at(fusion: Fusion, vector: ScalarVector, index: int) -> Scalar:
    """One scalar of a vector."""
    return vector[wrap_index(index, len(vector))]


def vector_of(fusion: Fusion, values: Sequence[int | Scalar]) -> ScalarVector:
    """A vector of sizes: integers of at least -1, and scalars. ArgumentTypeError for anything else."""
    scalars = []
    for i, value in enumerate(values):
        if isinstance(value, Scalar):
            scalars.append(value)
        elif type(value) is int:
            check_extent(value, i, least=-1)
            scalars.append(fusion.new_scalar(DataType.Int, value))
        else:
            raise ArgumentTypeError(
                function="define_vector", expected="ints and Scalars", given=type(value).__name__
            )
    return ScalarVector(scalars)
