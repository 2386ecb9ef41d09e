"""Rows of reductions, scans, normalizations of a dimension, sorting and products of matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fusewright.core.dtype import DataType
from fusewright.torch_compile.rows import NotRecordable, row

if TYPE_CHECKING:
    from fusewright.torch_compile.recording import Recording


def _dims(dim: Any) -> Any:
    """None, or no dimensions at all, stand for all of them."""
    return None if dim is None or dim == [] else dim


def _widened(r: Recording, x: Any) -> Any:
    """`x` in the type of the result, where torch converts before it reduces: integers, and a given type."""
    dtype = r.dtype()
    return x if x.dtype is dtype or dtype.is_reduced_float else r.ops.cast(x, dtype)


@row("sum.default", "sum.dim_IntList")
def sum_(r: Recording, x: Any, dtype: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return r.ops.sum(_widened(r, x), _dims(dim), keepdim)


@row("mean.default", "mean.dim")
def mean(r: Recording, x: Any, dtype: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return r.ops.mean(_widened(r, x), _dims(dim), keepdim)


@row("prod.default", "prod.dim_int")
def prod(r: Recording, x: Any, dtype: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return r.ops.prod(_widened(r, x), _dims(dim), keepdim)


@row("amax.default", "max.default")
def amax(r: Recording, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return r.ops.max(x, _dims(dim), keepdim)


@row("amin.default", "min.default")
def amin(r: Recording, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return r.ops.min(x, _dims(dim), keepdim)


@row("max.dim")
def max_with_place(r: Recording, x: Any, dim: int, keepdim: bool) -> Any:
    return r.ops.max(x, dim, keepdim), r.ops.argmax(x, dim, keepdim)


@row("min.dim")
def min_with_place(r: Recording, x: Any, dim: int, keepdim: bool) -> Any:
    return r.ops.min(x, dim, keepdim), r.ops.argmin(x, dim, keepdim)


@row("argmax.default")
def argmax(r: Recording, x: Any, dim: Any, keepdim: bool) -> Any:
    return r.ops.argmax(x, dim, keepdim)


@row("argmin.default")
def argmin(r: Recording, x: Any, dim: Any, keepdim: bool) -> Any:
    return r.ops.argmin(x, dim, keepdim)


@row("any.default", "any.dim", "any.dims")
def any_(r: Recording, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return r.ops.any(r.ops.cast(x, DataType.Bool), _dims(dim), keepdim)


@row("all.default", "all.dim", "all.dims")
def all_(r: Recording, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return r.ops.all(r.ops.cast(x, DataType.Bool), _dims(dim), keepdim)


def _correction(correction: Any) -> int:
    if correction is not None and int(correction) != correction:
        raise NotRecordable(f"correction={correction}")
    return 1 if correction is None else int(correction)


def _wide(r: Recording, x: Any) -> Any:
    """`x` in the type that it is computed in."""
    return r.ops.cast(x, x.dtype.compute) if x.dtype.is_reduced_float else x


@row("var.correction")
def var(r: Recording, x: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    return r.ops.var(_wide(r, x), _dims(dim), _correction(correction), keepdim)


@row("std.correction")
def std(r: Recording, x: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    return r.ops.std(_wide(r, x), _dims(dim), _correction(correction), keepdim)


@row("var_mean.correction")
def var_mean(r: Recording, x: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    return r.ops.var_mean(_wide(r, x), _dims(dim), _correction(correction), keepdim)


@row("cummax.default")
def cummax(r: Recording, x: Any, dim: int) -> Any:
    found = r.ops.cummax(x, dim)
    return found, _last_places(r, x, r.ops.ge(x, found), dim)


@row("cummin.default")
def cummin(r: Recording, x: Any, dim: int) -> Any:
    found = r.ops.cummin(x, dim)
    return found, _last_places(r, x, r.ops.le(x, found), dim)


def _last_places(r: Recording, x: Any, is_reached: Any, dim: int) -> Any:
    """The last place up to each where a running extremum was reached; NaN is one."""
    if not x.ndim:
        raise NotRecordable("a tensor of rank 0")
    place = dim % x.ndim
    along = r.ops.iota(r.shape(1)[place], 0, 1, DataType.Int)
    positions = r.ops.broadcast(along, [i != place for i in range(x.ndim)])
    if x.dtype.is_floating:
        is_reached = r.ops.logical_or(is_reached, r.ops.isnan(x))
    return r.ops.cummax(r.ops.where(is_reached, positions, 0), dim)


@row("logsumexp.default")
def logsumexp(r: Recording, x: Any, dim: Any, keepdim: bool) -> Any:
    return r.ops.logsumexp(_widened(r, x), dim, keepdim)


@row("cumsum.default")
def cumsum(r: Recording, x: Any, dim: int, dtype: Any) -> Any:
    return r.ops.cumsum(_widened(r, x), dim)


@row("cumprod.default")
def cumprod(r: Recording, x: Any, dim: int, dtype: Any) -> Any:
    return r.ops.cumprod(_widened(r, x), dim)


@row("logcumsumexp.default")
def logcumsumexp(r: Recording, x: Any, dim: int) -> Any:
    return r.ops.logcumsumexp(x, dim)


@row("_softmax.default")
def softmax(r: Recording, x: Any, dim: int, half_to_float: bool) -> Any:
    return r.ops.softmax(x, dim, r.dtype())


@row("_log_softmax.default")
def log_softmax(r: Recording, x: Any, dim: int, half_to_float: bool) -> Any:
    return r.ops.log_softmax(x, dim, r.dtype())


# ---- sorting and products, which torch computes ------------------------------------------------------------


@row("sort.default")
def sort(r: Recording, x: Any, dim: int, descending: bool) -> Any:
    return r.ops.sort(x, dim, descending)


@row("sort.stable")
def sort_stable(r: Recording, x: Any, stable: Any, dim: int, descending: bool) -> Any:
    return r.ops.sort(x, dim, descending, bool(stable))


@row("topk.default")
def topk(r: Recording, x: Any, k: Any, dim: int, largest: bool, sorted: bool) -> Any:
    return r.ops.topk(x, k, dim, largest, sorted)


@row("mm.default", "bmm.default")
def matmul(r: Recording, x: Any, mat2: Any) -> Any:
    return r.ops.matmul(x, mat2)
