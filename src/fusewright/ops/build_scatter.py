"""Builders of assignments and additions at indices: scatter, index_put_accumulate, embedding's gradient.

What an index out of range names is dropped on a GPU, and an error on the CPU.
"""

from __future__ import annotations

from fusewright.core.dtype import Category
from fusewright.core.errors import DtypeError, RankError, ShapeError
from fusewright.core.op import LibraryOp
from fusewright.ir import Fusion, TensorView, Val
from fusewright.ops.build_factory import scalar_of
from fusewright.ops.build_indexing import checked_dim
from fusewright.ops.build_library import call_library, check_dtype, check_same_dtype
from fusewright.ops.build_shape import extent_of
from fusewright.ops.registry import ScalarLike, op
from fusewright.ops.scatter import EMBEDDING_BWD, INDEX_PUT_ACCUMULATE, SCATTER
from fusewright.sym import as_int


def _check_index(row: LibraryOp, index: TensorView, what: str = "index") -> None:
    if not index.dtype.is_integral or index.dtype.is_bool:
        raise DtypeError(what=f"{what} of {row.name}", expected="Int or Int32", given=index.dtype)


@op(aliases={"arg1": "arg"})
def scatter(
    fusion: Fusion, arg: TensorView, index: TensorView, src: TensorView | ScalarLike, dim: int
) -> TensorView:
    """torch.scatter: a copy of `arg` in which the elements that `index` names along `dim` are those of `src`.

    `index` and a tensor `src` have the rank of `arg`; `src` is of its type, or a scalar. Which of several
    elements for one place is taken is not defined. torch computes it.
    """
    name = SCATTER.name
    check_dtype(SCATTER, "arg", arg.dtype)
    along = checked_dim(name, arg, index, dim)
    _check_index(SCATTER, index)
    _check_within(f"{name}: the index", index, arg, except_dim=along)
    if isinstance(src, TensorView):
        check_same_dtype(SCATTER, {"arg": arg, "src": src})
        checked_dim(name, arg, src, dim)
        _check_within(f"{name}: the index", index, src)
        operand: Val = src
    else:
        operand = scalar_of(fusion, src)
        if operand.dtype.category is Category.COMPLEX and arg.dtype.category is not Category.COMPLEX:
            raise DtypeError(what=f"src of {name}", expected=arg.dtype, given=operand.dtype)
    (out,) = call_library(fusion, SCATTER, (arg, index, operand), [(arg.extents, arg.dtype)], {"dim": along})
    return out


def _check_within(what: str, inner: TensorView, outer: TensorView, except_dim: int | None = None) -> None:
    """ShapeError if a size of `inner` is known to be greater than that of `outer`."""
    for dim, (size, limit) in enumerate(zip(inner.extents, outer.extents)):
        sizes = as_int(size), as_int(limit)
        if dim != except_dim and sizes[0] is not None and sizes[1] is not None and sizes[0] > sizes[1]:
            raise ShapeError(f"{what}, dimension {dim}", expected=f"at most {limit}", given=size)


@op()
def index_put_accumulate(fusion: Fusion, acc: TensorView, index: TensorView, value: TensorView) -> TensorView:
    """A copy of `acc` with value[i] added to acc[index[i]], for each i.

    `index` is of rank 1, or of the rank of `acc` and of size 1 but for its first dimension. `acc` and `value`
    have the same rank, type and sizes but for the first. torch computes it, the same from run to run.
    """
    name = INDEX_PUT_ACCUMULATE.name
    check_same_dtype(INDEX_PUT_ACCUMULATE, {"acc": acc, "value": value})
    _check_index(INDEX_PUT_ACCUMULATE, index)
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
    results = [(acc.extents, acc.dtype)]
    (out,) = call_library(fusion, INDEX_PUT_ACCUMULATE, (acc, index, value), results)
    return out


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
    where i is `padding_idx` (-1 or None: no row). As torch's embedding_dense_backward, which computes it.
    """
    name = EMBEDDING_BWD.name
    check_dtype(EMBEDDING_BWD, "grad_output", grad_output.dtype)
    _check_index(EMBEDDING_BWD, indices, "indices")
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
    operands = (grad_output, indices, count, padding)
    results = [((extent_of(count), grad_output.extents[-1]), grad_output.dtype)]
    (out,) = call_library(
        fusion, EMBEDDING_BWD, operands, results, {"scale_grad_by_freq": scale_grad_by_freq}
    )
    return out
