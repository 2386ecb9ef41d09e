"""Reductions, shapes and the table of operations, each with its error bound: see `bounded`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fusewright.core.dtype import DataType
from tests.fuzz.bounded import (
    BOOL_BINARY,
    COMPARISONS,
    FLOAT_BINARY,
    FUNCTION_ROUNDOFFS,
    INF,
    INTEGER_BINARY,
    INTEGERS,
    ROUNDOFF,
    UNARY,
    Bounded,
    Number,
    Tensor,
    addcmul,
    binary,
    cast,
    category,
    clamp,
    convert,
    exact,
    float_up,
    lerp,
    logical_not,
    part,
    power,
    rounded,
    scaled,
    threshold,
    unary,
    unknown_where,
    up,
    where,
    widened,
)
from tests.fuzz.moves import MOVES, moved
from tests.fuzz.scans import SCANS, scan
from tests.fuzz.scattering import SCATTERING

# ---- reductions --------------------------------------------------------------------------------------------


def _dims(x: Bounded, dims: int | Sequence[int] | None) -> tuple[int, ...]:
    if dims is None:
        return tuple(range(x.data.ndim))
    return tuple(sorted(d % x.data.ndim for d in ([dims] if isinstance(dims, int) else dims)))


def _count(x: Bounded, dims: Sequence[int]) -> int:
    return math.prod(x.data.shape[d] for d in dims)


def _kept(x: Tensor, dims: Sequence[int], keepdim: bool) -> Tensor:
    for dim in dims if keepdim else ():
        x = x.unsqueeze(dim)
    return x


def _multiplied(x: Tensor, dims: Sequence[int]) -> Tensor:
    for dim in reversed(dims):
        x = x.prod(dim, dtype=x.dtype)
    return x


def _sum(x: Tensor, dims: Sequence[int]) -> Tensor:
    return x.sum(tuple(dims), dtype=x.dtype) if dims else x


def _extremum(x: Tensor, dims: Sequence[int], largest: bool) -> Tensor:
    if not dims:
        return x
    if all(x.shape[d] for d in dims):
        return (torch.amax if largest else torch.amin)(x, tuple(dims))
    if x.dtype is torch.bool:
        empty: Number = not largest
    elif x.dtype in INTEGERS:
        limits = torch.iinfo(x.dtype)
        empty = limits.min if largest else limits.max
    else:
        empty = -INF if largest else INF
    shape = [n for d, n in enumerate(x.shape) if d not in dims]
    return torch.full(shape, empty, dtype=x.dtype)


def _worst(error: Tensor, dims: Sequence[int]) -> Tensor:
    return _extremum(error, dims, largest=True).clamp(min=0.0)


def reduction(
    name: str, arg: Bounded, dims: int | Sequence[int] | None = None, keepdim: bool = False
) -> Bounded:
    """sum, prod, max or min."""
    over = _dims(arg, dims)
    if name in ("max", "min"):
        data, error = _extremum(arg.data, over, name == "max"), _worst(arg.error, over)
        return Bounded(_kept(data, over, keepdim), _kept(error, over, keepdim))
    if category(arg.dtype) < 2:
        whole = arg.data.to(torch.int64)
        data = _sum(whole, over) if name == "sum" else _multiplied(whole, over)
        error = unknown_where(_worst(arg.error, over) > 0)
        return Bounded(_kept(data, over, keepdim), _kept(error, over, keepdim))
    x = convert(arg, up(arg.dtype))
    wide, count, unit = widened(x.data), max(_count(x, over), 1), ROUNDOFF[x.dtype]
    if name == "sum":
        total, size = _sum(wide, over), _sum(wide.abs(), over)
        error = _sum(x.error, over) + (2 * count * unit * size if count > 1 else 0.0)
        out = rounded(total, error, x.dtype, 0)
    else:
        total, size = _multiplied(wide, over), _multiplied(wide.abs(), over)
        grown = _multiplied(wide.abs() + x.error, over)
        several = FUNCTION_ROUNDOFFS if wide.is_complex() else 2
        error = grown - size + (several * count * unit * grown if count > 1 else 0.0)
        # In some order all that are above 1, or all below, come first: what then leaves the range is lost.
        largest = _multiplied((wide.abs() + x.error).clamp(min=1.0), over)
        least = _multiplied(torch.where(wide == 0, 1.0, wide.abs() - x.error).clamp(max=1.0), over)
        limits = torch.finfo(x.dtype)
        leaves = (largest * (1 + 2 * count * unit) >= limits.max) | (least <= limits.tiny)
        out = rounded(total, torch.where(leaves, INF, error), x.dtype, 0)
    out = convert(out, arg.dtype)
    return Bounded(_kept(out.data, over, keepdim), _kept(out.error, over, keepdim))


def mean(arg: Bounded, dims: Sequence[int], keepdim: bool = False) -> Bounded:
    result = torch.float32 if category(arg.dtype) < 2 else arg.dtype
    x = convert(convert(arg, result), up(result))
    total = reduction("sum", x, dims, keepdim)
    return convert(binary("truediv", total, exact(_count(x, _dims(x, dims)))), result)


def _moments(arg: Bounded, dims: Sequence[int]) -> tuple[Bounded, Bounded]:
    """Sum of squared deviations and mean, bounded for one pass over the elements in any order.

    The deviations from a mean that is off by e are off by e; Welford's update commits a few roundings of
    that size for each of the n elements (Chan, Golub and LeVeque, 1983).
    """
    x = convert(arg, float_up(arg.dtype))
    if not _count(x, dims):
        nothing = torch.full(_sum(x.data, dims).shape, math.nan, dtype=x.dtype)
        unknown = Bounded(nothing, torch.full(nothing.shape, INF, dtype=torch.float64))
        return unknown, unknown
    wide, count, unit = widened(x.data), _count(x, dims), ROUNDOFF[x.dtype]
    average = _kept(_sum(wide, dims), dims, True) / count
    off = _kept(_sum(x.error + 4 * count * unit * wide.abs(), dims), dims, True) / count
    deviation, each = (wide - average).abs(), x.error + off + 2 * unit * wide.abs()
    squares = _sum(deviation.square(), dims)
    error = _sum(2 * deviation * each + each.square(), dims) + 8 * count * unit * squares
    flat = _sum(average, ())
    for dim in reversed(dims):
        flat, off = flat.squeeze(dim), off.squeeze(dim)
    return rounded(squares, error, x.dtype), rounded(flat, off, x.dtype)


def var_mean(
    arg: Bounded, dims: int | Sequence[int], correction: int = 1, keepdim: bool = False
) -> tuple[Bounded, Bounded]:
    over = _dims(arg, dims)
    m2, average = _moments(arg, over)
    variance = binary("truediv", m2, exact(max(_count(arg, over) - correction, 0)))
    return tuple(  # type: ignore[return-value]
        Bounded(_kept(v.data, over, keepdim), _kept(v.error, over, keepdim)) for v in (variance, average)
    )


def var(arg: Bounded, dims: int | Sequence[int], correction: int = 1, keepdim: bool = False) -> Bounded:
    return var_mean(arg, dims, correction, keepdim)[0]


def any_or_all(name: str, arg: Bounded, *args: Any, **kwargs: Any) -> Bounded:
    extremum = {"any": "max", "all": "min"}[name]
    return reduction(extremum, convert(arg, torch.bool), *args, **kwargs)


def arg_extremum(name: str, arg: Bounded, dim: int | None = None, keepdim: bool = False) -> Bounded:
    """Unknown where another element, within the errors of both, may be the extreme one."""
    over = _dims(arg, dim)
    order = [*(d for d in range(arg.data.ndim) if d not in over), *over]
    x, error = (t.permute(order).flatten(len(order) - len(over)) for t in (arg.data, arg.error))
    if not x.shape[-1]:
        data = torch.full(x.shape[:-1], -1)
        return Bounded(_kept(data, over, keepdim), _kept(unknown_where(data != -1), over, keepdim))
    x = x.to(torch.int32) if x.dtype is torch.bool else x if x.dtype in INTEGERS else widened(x)
    data = (torch.argmax if name == "argmax" else torch.argmin)(x, -1, keepdim=True)
    best, reach = x.gather(-1, data), error + error.gather(-1, data)
    rivals = (reach > 0) & ~((x - best).abs() > reach) & (torch.arange(x.shape[-1]) != data)
    unknown = unknown_where(rivals.any(-1) | (error == INF).any(-1))
    return Bounded(_kept(data.squeeze(-1), over, keepdim), _kept(unknown, over, keepdim))


# ---- softmax -----------------------------------------------------------------------------------------------


def softmax(name: str, arg: Bounded, dim: int) -> Bounded:
    """softmax or log_softmax: in float, rounded once."""
    x = convert(arg, up(arg.dtype))
    less = binary("sub", x, reduction("max", x, dim, True))
    powers = unary("exp", less)
    total = reduction("sum", powers, dim, True)
    out = binary("truediv", powers, total) if name == "softmax" else binary("sub", less, unary("log", total))
    return convert(out, arg.dtype)


def logsumexp(arg: Bounded, dims: int | Sequence[int], keepdim: bool = False) -> Bounded:
    x = convert(arg, float_up(arg.dtype))
    top = reduction("max", x, dims, True)
    infinite = top.data.isinf()
    top = Bounded(torch.where(infinite, 0.0, top.data), top.error)
    total = reduction("sum", unary("exp", binary("sub", x, top)), dims, True)
    result = torch.float32 if category(arg.dtype) < 2 else arg.dtype
    out = convert(binary("add", unary("log", total), top), result)
    over = () if keepdim else _dims(arg, dims)
    return moved(out, lambda t: t.squeeze(over))


# ---- contractions and sorting ------------------------------------------------------------------------------


def matmul(a: Bounded, b: Bounded) -> Bounded:
    """A library may round partial sums to the type of the result."""
    x, y, count, unit = widened(a.data), widened(b.data), a.data.shape[-1], ROUNDOFF[a.dtype]
    size = x.abs() @ y.abs()
    error = x.abs() @ b.error + a.error @ (y.abs() + b.error)
    return rounded(x @ y, error + 2 * count * unit * size, a.dtype)


def linear(a: Bounded, b: Bounded) -> Bounded:
    return matmul(a, moved(b, lambda t: t.mT))


def sort(arg: Bounded, dim: int = -1, descending: bool = False) -> tuple[Bounded, Bounded]:
    """A value is off by the worst error along `dim`; an index is unknown where a neighbour may be first."""
    if arg.data.shape[dim] == 0:
        return arg, exact(arg.data.to(torch.int64))
    x = arg.data if arg.dtype in INTEGERS else widened(arg.data)
    places = torch.argsort(x, dim=dim, descending=descending, stable=True)
    ordered, error = x.gather(dim, places), arg.error.gather(dim, places)
    worst = error.amax(dim, keepdim=True).expand_as(error)
    apart = ordered.diff(dim=dim).abs() > 2 * worst.narrow(dim, 1, worst.shape[dim] - 1)
    edge = torch.ones_like(ordered.narrow(dim, 0, 1), dtype=torch.bool)
    known = torch.cat([apart, edge], dim) & torch.cat([edge, apart], dim) & (worst < INF)
    return Bounded(arg.data.gather(dim, places), worst.clone()), Bounded(places, unknown_where(~known))


def topk(
    arg: Bounded, k: int, dim: int, largest: bool = True, sorted: bool = True
) -> tuple[Bounded, Bounded]:
    values, places = sort(arg, dim, largest)
    return moved(values, lambda t: t.narrow(dim, 0, k)), moved(places, lambda t: t.narrow(dim, 0, k))


# ---- shapes ------------------------------------------------------------------------------------------------


def broadcast(x: Bounded, flags: Sequence[bool]) -> Bounded:
    def move(t: Tensor) -> Tensor:
        for dim, new in enumerate(flags):
            t = t.unsqueeze(dim) if new else t
        return t

    return moved(x, move)


def broadcast_in_dim(x: Bounded, shape: Sequence[int], dims: Sequence[int]) -> Bounded:
    return expand(broadcast(x, [i not in dims for i in range(len(shape))]), shape)


def expand(x: Bounded, shape: Sequence[int]) -> Bounded:
    return moved(x, lambda t: t.expand(list(shape)))


def squeeze(x: Bounded, dims: Sequence[int]) -> Bounded:
    return moved(x, lambda t: t.squeeze(tuple(dims)) if dims else t)


def permute(x: Bounded, dims: Sequence[int]) -> Bounded:
    return moved(x, lambda t: t.permute(list(dims)))


def stride_order(x: Bounded, order: Sequence[int]) -> Bounded:
    return x


def segment_set(x: Bounded) -> Bounded:
    return x


def full(shape: Sequence[int], value: Number, dtype: DataType) -> Bounded:
    return expand(convert(exact(value), dtype.torch), shape)


def iota(length: int, start: Number, step: Number, dtype: DataType) -> Bounded:
    return exact((torch.arange(length, dtype=dtype.torch) * step + start).to(dtype.torch))


# ---- the table ---------------------------------------------------------------------------------------------


def _named(function: Callable[..., Bounded], name: str) -> Callable[..., Bounded]:
    return lambda *args, **kwargs: function(name, *args, **kwargs)


#: One function for each operation of `fd.ops` that the fuzzer uses, with the same arguments.
OPERATIONS: dict[str, Callable[..., Bounded | tuple[Bounded, ...]]] = {
    **{name: _named(unary, name) for name in UNARY},
    **{name: _named(binary, name) for name in (FLOAT_BINARY | INTEGER_BINARY | BOOL_BINARY | COMPARISONS)},
    **{name: _named(reduction, name) for name in ("sum", "prod", "max", "min")},
    **{name: _named(scan, name) for name in SCANS},
    **{name: _named(part, name) for name in ("real", "imag")},
    "add_alpha": _named(lambda _, *xs: scaled("add", *xs), ""),
    "sub_alpha": _named(lambda _, *xs: scaled("sub", *xs), ""),
    "pow": power,
    "cast": cast,
    "where": where,
    "clamp": clamp,
    "threshold": threshold,
    "lerp": lerp,
    "addcmul": addcmul,
    "logical_not": logical_not,
    **{name: _named(any_or_all, name) for name in ("any", "all")},
    **{name: _named(arg_extremum, name) for name in ("argmax", "argmin")},
    **{name: _named(softmax, name) for name in ("softmax", "log_softmax")},
    "logsumexp": logsumexp,
    "matmul": matmul,
    "linear": linear,
    "sort": sort,
    "topk": topk,
    "mean": mean,
    "var": var,
    "var_mean": var_mean,
    "broadcast": broadcast,
    "broadcast_in_dim": broadcast_in_dim,
    "expand": expand,
    "squeeze": squeeze,
    "permute": permute,
    "stride_order": stride_order,
    "segment_set": segment_set,
    **MOVES,
    **SCATTERING,
    "full": full,
    "iota": iota,
}
