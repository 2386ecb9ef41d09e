"""Rows of operators that move, copy or make elements: views, joins and factories."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from fusewright.core.dtype import Category, DataType
from fusewright.frontend.handles import Tensor
from fusewright.ops.bits import BITCASTS
from fusewright.torch_compile.rows import NotRecordable, row
from fusewright.torch_compile.sizes import is_number

if TYPE_CHECKING:
    from fusewright.torch_compile.recording import Recording

# ---- views -------------------------------------------------------------------------------------------------


@row("view.default", "_unsafe_view.default", "view_copy.default", "reshape.default", "_reshape_copy.default")
def view(r: Recording, x: Any, **_: Any) -> Any:
    return r.ops.reshape(x, r.shape())


@row("as_strided.default", "as_strided_copy.default")
def as_strided(r: Recording, x: Any, storage_offset: int | None = None, **_: Any) -> Any:
    """Where it is a reshape, as decompositions use it."""
    if storage_offset is not None or not r.is_reshape():
        raise NotRecordable("it looks at memory in another order")
    return r.ops.reshape(x, r.shape())


@row("expand.default", "expand_copy.default")
def expand(r: Recording, x: Any, **_: Any) -> Any:
    return r.ops.expand(x, r.shape())


@row("permute.default", "permute_copy.default")
def permute(r: Recording, x: Any, dims: Sequence[int]) -> Any:
    return r.ops.permute(x, dims)


@row("transpose.int", "transpose_copy.int")
def transpose(r: Recording, x: Any, dim0: int, dim1: int) -> Any:
    dims = list(range(x.ndim))
    if dims:
        dims[dim0], dims[dim1] = dims[dim1], dims[dim0]
    return r.ops.permute(x, dims)


@row("t.default", "t_copy.default")
def t(r: Recording, x: Any) -> Any:
    return r.ops.permute(x, list(range(x.ndim))[::-1])


@row("unsqueeze.default", "unsqueeze_copy.default")
def unsqueeze(r: Recording, x: Any, dim: int) -> Any:
    place = dim % (x.ndim + 1)
    return r.ops.broadcast(x, [i == place for i in range(x.ndim + 1)])


@row(
    "squeeze.default",
    "squeeze.dim",
    "squeeze.dims",
    "squeeze_copy.default",
    "squeeze_copy.dim",
    "squeeze_copy.dims",
)
def squeeze(r: Recording, x: Any, **_: Any) -> Any:
    return r.ops.reshape(x, r.shape())


@row("slice.Tensor", "slice_copy.Tensor")
def slice_(r: Recording, x: Any, dim: int, start: Any, end: Any, step: Any) -> Any:
    place = dim % x.ndim
    sizes = r.sizes(x)
    starts, ends = [0] * x.ndim, list(sizes)
    starts[place] = _from_the_end(r, 0 if start is None else start, sizes[place])
    if r.is_size(place, 1) and not isinstance(sizes[place], int):
        # A definition assumes nothing about a symbolic size: to it, a slice of one element has any size.
        element = r.ops.select(x, starts[place], place)
        return r.ops.broadcast(element, [i == place for i in range(x.ndim)])
    last = sizes[place] if end is None else _from_the_end(r, end, sizes[place])
    ends[place] = max(last, starts[place]) if _are_ints(last, starts[place]) else last
    return r.ops.slice(x, starts, ends, [step if i == place else 1 for i in range(x.ndim)])


def _are_ints(*values: Any) -> bool:
    return all(isinstance(value, int) for value in values)


def _from_the_end(r: Recording, index: Any, size: Any) -> Any:
    """A position that a negative index counts from the end."""
    if isinstance(index, int) and index < 0:
        return max(index + size, 0) if isinstance(size, int) else r.ops.add(size, index)
    return min(index, size) if _are_ints(index, size) else index


@row("select.int", "select_copy.int")
def select(r: Recording, x: Any, dim: int, index: Any) -> Any:
    return r.ops.select(x, _from_the_end(r, index, r.sizes(x)[dim % x.ndim]), dim)


@row("split.Tensor", "split_copy.Tensor")
def split(r: Recording, x: Any, split_size: Any, dim: int) -> Any:
    return list(r.ops.split(x, split_size, dim))


@row("split_with_sizes.default", "split_with_sizes_copy.default")
def split_with_sizes(r: Recording, x: Any, split_sizes: Any, dim: int) -> Any:
    return list(r.ops.split(x, split_sizes, dim))


@row("unbind.int", "unbind_copy.int")
def unbind(r: Recording, x: Any, dim: int) -> Any:
    size = r.sizes(x)[dim % x.ndim]
    if not isinstance(size, int):
        raise NotRecordable("the number of its results is not known")
    return [r.ops.select(x, i, dim) for i in range(size)]


@row(
    "alias.default", "detach.default", "alias_copy.default", "detach_copy.default", "lift_fresh_copy.default"
)
def alias(r: Recording, x: Any) -> Any:
    return x


@row("clone.default")
def clone(r: Recording, x: Any) -> Any:
    """A copy, if the memory layout changes."""
    return r.ops.set(x) if r.changes_layout() else x


@row("_to_copy.default")
def to_copy(r: Recording, x: Any, dtype: Any) -> Any:
    return r.ops.cast(x, r.dtype()) if x.dtype is not r.dtype() else clone(r, x)


@row("copy.default")
def copied(r: Recording, x: Any, src: Any) -> Any:
    """`src` in the type and shape of `x`."""
    value = r.ops.cast(src, x.dtype) if src.dtype is not x.dtype else src
    return value if r.are_of_one_size(src, x) else r.ops.expand(value, r.shape())


@row("prims.convert_element_type.default")
def convert_element_type(r: Recording, x: Any, dtype: Any) -> Any:
    return r.ops.cast(x, r.dtype())


@row("view.dtype", "view_copy.dtype")
def view_dtype(r: Recording, x: Any, dtype: Any) -> Any:
    if (x.dtype, r.dtype()) not in BITCASTS and x.dtype is not r.dtype():
        raise NotRecordable(f"the memory of {x.dtype} as {r.dtype()}")
    return r.ops.bitcast(x, r.dtype()) if x.dtype is not r.dtype() else x


# ---- joins and turns ---------------------------------------------------------------------------------------


@row("cat.default")
def cat(r: Recording, tensors: Any, dim: int) -> Any:
    # An empty tensor of rank 1 joins with anything, and adds nothing.
    ranked = [t for t in tensors if t.ndim == r.rank()]
    parts = [t for t in ranked if r.rank() > 1 or not is_number(r.sizes(t)[0], 0)] or ranked[:1]
    converted = [part if part.dtype is r.dtype() else r.ops.cast(part, r.dtype()) for part in parts]
    return r.ops.cat(converted, dim) if len(converted) > 1 else converted[0]


@row("stack.default")
def stack(r: Recording, tensors: Any, dim: int) -> Any:
    return r.ops.stack(tensors, dim)


@row("constant_pad_nd.default")
def constant_pad(r: Recording, x: Any, pad: Any, value: Any) -> Any:
    return r.ops.pad(x, pad, _NUMBERS[x.dtype.category](value))


#: The numbers of Python that are values of a category's types.
_NUMBERS = {
    Category.BOOL: bool,
    Category.INT: int,
    Category.FLOAT: float,
    Category.COMPLEX: complex,
}


@row("view_as_real.default", "view_as_real_copy.default")
def view_as_real(r: Recording, x: Any) -> Any:
    return r.ops.stack([r.ops.real(x), r.ops.imag(x)], x.ndim)


@row("view_as_complex.default", "view_as_complex_copy.default")
def view_as_complex(r: Recording, x: Any) -> Any:
    return r.ops.complex(r.ops.select(x, 0, x.ndim - 1), r.ops.select(x, 1, x.ndim - 1))


@row("_conj.default")
def conj(r: Recording, x: Any) -> Any:
    return r.ops.complex(r.ops.real(x), r.ops.neg(r.ops.imag(x)))


@row("_neg_view.default")
def neg_view(r: Recording, x: Any) -> Any:
    return r.ops.neg(x)


@row("flip.default")
def flip(r: Recording, x: Any, dims: Any) -> Any:
    return r.ops.flip(x, dims)


@row("roll.default")
def roll(r: Recording, x: Any, shifts: Any, dims: Any) -> Any:
    if dims:
        return r.ops.roll(x, shifts, dims)
    sizes = r.sizes(x)
    if not all(isinstance(size, int) for size in sizes):
        raise NotRecordable("sizes that are not known, rolled as one")
    return r.ops.reshape(r.ops.roll(r.ops.reshape(x, [prod(sizes)]), shifts, [0]), sizes)


@row("repeat.default")
def repeat(r: Recording, x: Any, repeats: Any) -> Any:
    return r.ops.repeat(x, repeats)


@row("tril.default")
def tril(r: Recording, x: Any, diagonal: Any) -> Any:
    return r.ops.tril(x, diagonal)


@row("triu.default")
def triu(r: Recording, x: Any, diagonal: Any) -> Any:
    return r.ops.triu(x, diagonal)


# ---- factories ---------------------------------------------------------------------------------------------


@row("full.default", "full_like.default", "new_full.default")
def full(r: Recording, fill_value: Any, **_: Any) -> Any:
    return r.ops.full(r.shape(), fill_value, r.dtype())


@row("scalar_tensor.default")
def scalar_tensor(r: Recording, s: Any, **_: Any) -> Any:
    return r.ops.full([], s, r.dtype())


@row(
    "zeros.default",
    "zeros_like.default",
    "new_zeros.default",
    "empty.memory_format",
    "empty_like.default",
    "new_empty.default",
    "empty_strided.default",
    "new_empty_strided.default",
)
def zeros(r: Recording, **_: Any) -> Any:
    """Zeros; also for tensors whose values do not matter."""
    return r.ops.zeros(r.shape(), r.dtype())


@row("ones.default", "ones_like.default", "new_ones.default")
def ones(r: Recording, **_: Any) -> Any:
    return r.ops.ones(r.shape(), r.dtype())


@row("fill.Scalar", "fill.Tensor")
def fill(r: Recording, x: Any, value: Any) -> Any:
    if isinstance(value, Tensor):
        return r.ops.expand(r.ops.cast(value, x.dtype), r.shape())
    return r.ops.full(r.shape(), value, r.dtype())


@row("arange.default")
def arange(r: Recording, end: Any, dtype: Any) -> Any:
    return _range(r, 0, 1)


@row("arange.start")
def arange_from(r: Recording, start: Any, end: Any, dtype: Any) -> Any:
    return _range(r, start, 1)


@row("arange.start_step")
def arange_by(r: Recording, start: Any, end: Any, step: Any, dtype: Any) -> Any:
    return _range(r, start, step)


def _range(r: Recording, start: Any, step: Any) -> Any:
    (length,) = r.shape()
    if r.dtype().is_floating:
        start, step = (float(v) if isinstance(v, int) else v for v in (start, step))
    return r.ops.iota(length, start, step, r.dtype())


# ---- random numbers ----------------------------------------------------------------------------------------


@row("rand.default", "rand_like.default")
def rand(r: Recording, **_: Any) -> Any:
    return r.ops.uniform(0.0, 1.0, r.shape(), dtype=r.dtype())


@row("randn.default", "randn_like.default")
def randn(r: Recording, **_: Any) -> Any:
    return r.ops.normal(0.0, 1.0, r.shape(), dtype=r.dtype())


@row("bernoulli.p")
def bernoulli(r: Recording, x: Any, p: float) -> Any:
    return r.ops.cast(r.ops.lt(r.ops.uniform(0.0, 1.0, r.shape()), p), r.dtype())


@row("native_dropout.default")
def dropout(r: Recording, x: Any, p: float, train: bool | None) -> Any:
    shape = r.shape(0)
    if train is False or not p:
        return x, r.ops.ones(shape, DataType.Bool)
    kept = r.ops.ge(r.ops.uniform(0.0, 1.0, shape), p)
    scaled = r.ops.mul(x, 1 / (1 - p)) if p < 1 else x
    return r.ops.where(kept, scaled, 0.0), kept
