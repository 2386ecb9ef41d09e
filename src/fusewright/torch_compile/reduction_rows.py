"""Rows of reductions, scans, normalizations of a dimension, sorting and products of matrices."""

from __future__ import annotations

from functools import partial
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
    is_wide = x.dtype is dtype or (dtype.is_reduced_float and x.dtype.is_floating)
    return x if is_wide else r.ops.cast(x, dtype)


def _in_stated_type(r: Recording, made: Any) -> Any:
    """A result in torch's type, where the operation has another: of integers, and of truth as bytes."""
    dtype = r.dtype()
    return made if made.dtype is dtype or not dtype.is_integral else r.ops.cast(made, dtype)


def _converted(name: str, r: Recording, x: Any, dtype: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return _in_stated_type(r, getattr(r.ops, name)(_widened(r, x), _dims(dim), keepdim))


def _extremum(name: str, r: Recording, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return getattr(r.ops, name)(x, _dims(dim), keepdim)


def _with_place(name: str, r: Recording, x: Any, dim: int, keepdim: bool) -> Any:
    return getattr(r.ops, name)(x, dim, keepdim), getattr(r.ops, f"arg{name}")(x, dim, keepdim)


def _plain(name: str, r: Recording, x: Any, dim: Any, keepdim: bool) -> Any:
    return getattr(r.ops, name)(x, dim, keepdim)


def _of_truth(name: str, r: Recording, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """No dimensions stand for none here: each element is asked by itself."""
    return _in_stated_type(r, getattr(r.ops, name)(r.ops.cast(x, DataType.Bool), dim, keepdim))


def _deviation(name: str, r: Recording, x: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    return getattr(r.ops, name)(_wide(r, x), _dims(dim), _correction(correction), keepdim)


def _correction(correction: Any) -> int:
    if correction is not None and int(correction) != correction:
        raise NotRecordable(f"correction={correction}")
    return 1 if correction is None else int(correction)


def _wide(r: Recording, x: Any) -> Any:
    """`x` in the type that it is computed in."""
    return r.ops.cast(x, x.dtype.compute) if x.dtype.is_reduced_float else x


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


def _scanned(name: str, r: Recording, x: Any, dim: int, dtype: Any) -> Any:
    return getattr(r.ops, name)(_widened(r, x), dim)


@row("logcumsumexp.default")
def logcumsumexp(r: Recording, x: Any, dim: int) -> Any:
    return r.ops.logcumsumexp(x, dim)


def _normalized(name: str, r: Recording, x: Any, dim: int, half_to_float: bool) -> Any:
    return getattr(r.ops, name)(x, dim, r.dtype())


# What records, the operation, and the overloads that it stands for.
for _record, _name, *_overloads in (
    (_converted, "sum", "sum.default", "sum.dim_IntList"),
    (_converted, "mean", "mean.default", "mean.dim"),
    (_converted, "prod", "prod.default", "prod.dim_int"),
    (_extremum, "max", "amax.default", "max.default"),
    (_extremum, "min", "amin.default", "min.default"),
    (_with_place, "max", "max.dim"),
    (_with_place, "min", "min.dim"),
    (_plain, "argmax", "argmax.default"),
    (_plain, "argmin", "argmin.default"),
    (_of_truth, "any", "any.default", "any.dim", "any.dims"),
    (_of_truth, "all", "all.default", "all.dim", "all.dims"),
    (_deviation, "var", "var.correction"),
    (_deviation, "std", "std.correction"),
    (_deviation, "var_mean", "var_mean.correction"),
    (_scanned, "cumsum", "cumsum.default"),
    (_scanned, "cumprod", "cumprod.default"),
    (_normalized, "softmax", "_softmax.default"),
    (_normalized, "log_softmax", "_log_softmax.default"),
):
    row(*_overloads)(partial(_record, _name))


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


@row("addmm.default")
def addmm(r: Recording, x: Any, mat1: Any, mat2: Any) -> Any:
    """A linear layer with a bias."""
    if x.ndim != 1:
        raise NotRecordable("what is added is no row")
    return r.ops.linear(mat1, r.ops.permute(mat2, [1, 0]), x)
