"""Rows of operators that read or write the elements that index tensors and masks name."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from fusewright.core.dtype import DataType
from fusewright.torch_compile.rows import NotRecordable, row
from fusewright.torch_compile.sizes import is_number

if TYPE_CHECKING:
    from fusewright.torch_compile.recording import Recording


@row("index_select.default")
def index_select(r: Recording, x: Any, dim: int, index: Any) -> Any:
    return r.ops.index_select(x, index, dim)


@row("gather.default")
def gather(r: Recording, x: Any, dim: int, index: Any) -> Any:
    return r.ops.gather(x, index, dim)


@row("embedding.default")
def embedding(r: Recording, weight: Any, indices: Any, padding_idx: Any, scale_grad_by_freq: Any) -> Any:
    return r.ops.embedding_fwd(indices, weight)


@row("embedding_dense_backward.default")
def embedding_backward(
    r: Recording, grad_output: Any, indices: Any, num_weights: Any, padding_idx: int, scale_grad_by_freq: bool
) -> Any:
    padding = padding_idx if padding_idx >= 0 else None
    return r.ops.embedding_bwd(grad_output, indices, num_weights, padding, scale_grad_by_freq)


# ---- index tensors -----------------------------------------------------------------------------------------


def product(r: Recording, sizes: Sequence[Any]) -> Any:
    """The product of numbers and scalars; 1 if there are none."""
    known = prod(size for size in sizes if isinstance(size, int))
    others = [size for size in sizes if not isinstance(size, int)]
    return functools.reduce(r.ops.mul, others if others and known == 1 else [known, *others])


class _Folded:
    """The dimensions that index tensors name, as one dimension with one index.

    Attributes:
        order: the dimensions of the tensor in an order in which those are neighbours. They come first if they
            are not neighbours in the tensor, as in torch's result.
        sizes: in this order.
        before, after: the sizes of the others.
        index: along the one dimension, of any rank, with negative values wrapped.
        shape: its sizes.
    """

    def __init__(self, r: Recording, x: Any, indices: Sequence[Any]) -> None:
        given = [(dim, i) for dim, i in enumerate(indices) if i is not None]
        if not all(i.dtype.is_integral for _, i in given):
            raise NotRecordable("a mask")
        dims = [dim for dim, _ in given]
        sizes = r.sizes(x)
        first = dims[0] if len(dims) == dims[-1] - dims[0] + 1 else 0
        others = [dim for dim in range(x.ndim) if dim not in dims]
        self._r = r
        self.order = [*others[:first], *dims, *others[first:]]
        self.sizes = [sizes[dim] for dim in self.order]
        self.before, self.after = self.sizes[:first], self.sizes[first + len(dims) :]
        self.folded = self.sizes[first : first + len(dims)]
        self.shape = _broadcast([r.sizes(i) for _, i in given])
        # torch counts negative indices from the end.
        each = [r.ops.where(r.ops.lt(i, 0), r.ops.add(i, sizes[d]), i) for d, i in given]
        self.index = each[0]
        for size, i in zip(self.folded[1:], each[1:]):
            self.index = r.ops.add(r.ops.mul(self.index, size), i)

    @property
    def dim(self) -> int:
        return len(self.before)

    @property
    def flat_index(self) -> Any:
        """The index as a row."""
        rank = self.index.ndim
        return self.index if rank == 1 else self._r.ops.reshape(self.index, [product(self._r, self.shape)])

    def of(self, x: Any) -> Any:
        """A tensor with these dimensions as one."""
        if self.order != sorted(self.order):
            x = self._r.ops.permute(x, self.order)
        if len(self.folded) == 1:
            return x
        return self._r.ops.reshape(x, [*self.before, product(self._r, self.folded), *self.after])

    def back(self, x: Any) -> Any:
        """Such a tensor with all of its dimensions, as they were."""
        if len(self.folded) > 1:
            x = self._r.ops.reshape(x, self.sizes)
        if self.order == sorted(self.order):
            return x
        return self._r.ops.permute(x, [self.order.index(dim) for dim in range(len(self.order))])


def _broadcast(shapes: Sequence[Sequence[Any]]) -> list[Any]:
    """The sizes that shapes have together, which torch has found to fit."""
    rank = max(map(len, shapes))
    aligned = [[1] * (rank - len(shape)) + list(shape) for shape in shapes]
    return [next((size for size in sizes if not is_number(size, 1)), 1) for sizes in zip(*aligned)]


@row("index.Tensor", "_unsafe_index.Tensor")
def index(r: Recording, x: Any, indices: Sequence[Any]) -> Any:
    folded = _Folded(r, x, indices)
    taken = r.ops.index_select(folded.of(x), folded.flat_index, folded.dim)
    return taken if folded.index.ndim == 1 else r.ops.reshape(taken, r.shape())


@row("index_put.default", "_unsafe_index_put.default")
def index_put(r: Recording, x: Any, indices: Sequence[Any], values: Any, accumulate: bool) -> Any:
    if any(i is not None and i.dtype.is_bool for i in indices):
        return _masked_put(r, x, indices, values, accumulate)
    folded = _Folded(r, x, indices)
    shape = [*folded.before, *folded.shape, *folded.after]
    source = r.ops.expand(_of_rank(r, values, len(shape)), shape)
    if folded.index.ndim != 1:
        source = r.ops.reshape(source, [*folded.before, product(r, folded.shape), *folded.after])
    base, dim, places = folded.of(x), folded.dim, folded.flat_index
    if not accumulate:
        along = r.ops.broadcast(places, [i != dim for i in range(base.ndim)])
        sizes = [*folded.before, product(r, folded.shape), *folded.after]
        return folded.back(r.ops.scatter(base, r.ops.expand(along, sizes), source, dim))
    order = [dim, *(i for i in range(base.ndim) if i != dim)]
    first, moved = (r.ops.permute(t, order) if dim else t for t in (base, source))
    made = r.ops.index_put_accumulate(first, places, moved)
    return folded.back(r.ops.permute(made, [order.index(i) for i in range(base.ndim)]) if dim else made)


def _of_rank(r: Recording, x: Any, rank: int) -> Any:
    """A tensor with leading dimensions of size 1."""
    missing = rank - x.ndim
    return r.ops.broadcast(x, [i < missing for i in range(rank)]) if missing else x


def _masked_put(r: Recording, x: Any, indices: Sequence[Any], values: Any, accumulate: bool) -> Any:
    """Values that are the same for each element of the mask."""
    given = [(dim, i) for dim, i in enumerate(indices) if i is not None]
    (dim, mask), *more = given
    behind = x.ndim - dim - mask.ndim
    if more or values.ndim > behind:
        raise NotRecordable("a mask beside others, or a value for each of its elements")
    wide = r.ops.broadcast(mask, [not dim <= i < dim + mask.ndim for i in range(x.ndim)])
    return r.ops.where(wide, r.ops.add(x, values) if accumulate else values, x)


# ---- scatter -----------------------------------------------------------------------------------------------


@row("scatter.src")
def scatter(r: Recording, x: Any, dim: int, index: Any, src: Any) -> Any:
    return r.ops.scatter(x, index, src, dim)


@row("scatter.value")
def scatter_value(r: Recording, x: Any, dim: int, index: Any, value: Any) -> Any:
    return r.ops.scatter(x, index, value, dim)


@row("scatter_add.default")
def scatter_add(r: Recording, x: Any, dim: int, index: Any, src: Any) -> Any:
    """An addition to elements of the flat tensor, by the places that all of its dimensions name.

    Of one element along the dimension it is a sum where that one is, which any kernel computes.
    """
    sizes, counts = r.sizes(x), r.sizes(index)
    if not x.ndim or not index.ndim:
        raise NotRecordable("a tensor of rank 0")
    source = src
    if is_number(counts[dim], 1) and x.ndim > 1 and r.are_of_one_size(x, index, but_for=dim):
        if not r.are_of_one_size(src, index):
            source = r.ops.slice(src, [0] * x.ndim, counts, [1] * x.ndim)
        line = r.ops.iota(sizes[dim], 0, 1, DataType.Int)
        here = r.ops.eq(r.ops.broadcast(line, [i != dim % x.ndim for i in range(x.ndim)]), index)
        return r.ops.where(here, r.ops.cast(r.ops.add(x, source), x.dtype), x)
    if not r.are_of_one_size(src, index):
        source = r.ops.slice(src, [0] * x.ndim, counts, [1] * x.ndim)
    if x.ndim == 1:
        return r.ops.index_put_accumulate(x, index, source)
    places: Any = None
    for d in range(x.ndim):
        along = index
        if d != dim % x.ndim:
            line = r.ops.iota(counts[d], 0, 1, DataType.Int)
            along = r.ops.broadcast(line, [i != d for i in range(x.ndim)])
        places = along if places is None else r.ops.add(r.ops.mul(places, sizes[d]), along)
    count = product(r, counts)
    flat = r.ops.reshape(x, [product(r, sizes)])
    made = r.ops.index_put_accumulate(flat, r.ops.reshape(places, [count]), r.ops.reshape(source, [count]))
    return r.ops.reshape(made, sizes)
