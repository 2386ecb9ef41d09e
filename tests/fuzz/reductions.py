"""Reductions and what is made of them alone, each with its error bound: see `bounded`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from tests.fuzz.bounded import (
    FUNCTION_ROUNDOFFS,
    INF,
    INTEGERS,
    ROUNDOFF,
    Bounded,
    Number,
    Tensor,
    binary,
    category,
    convert,
    exact,
    float_up,
    is_narrow,
    rounded,
    unary,
    unknown_where,
    up,
    widened,
)
from tests.fuzz.moves import moved

# ---- reductions --------------------------------------------------------------------------------------------


def dims_of(x: Bounded, dims: int | Sequence[int] | None) -> tuple[int, ...]:
    if dims is None:
        return tuple(range(x.data.ndim))
    return tuple(sorted(d % x.data.ndim for d in ([dims] if isinstance(dims, int) else dims)))


def count(x: Bounded, dims: Sequence[int]) -> int:
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
        if is_narrow(x.dtype):
            return _extremum(x.float(), dims, largest).to(x.dtype)
        return (torch.amax if largest else torch.amin)(x, tuple(dims))
    if x.dtype is torch.bool:
        empty: Number = not largest
    elif x.dtype in INTEGERS:
        limits = torch.iinfo(up(x.dtype))
        empty = limits.min if largest else limits.max
    else:
        empty = -INF if largest else INF
    shape = [n for d, n in enumerate(x.shape) if d not in dims]
    return torch.full(shape, empty, dtype=up(x.dtype)).to(x.dtype)


def _worst(error: Tensor, dims: Sequence[int]) -> Tensor:
    return _extremum(error, dims, largest=True).clamp(min=0.0)


def reduction(
    name: str, arg: Bounded, dims: int | Sequence[int] | None = None, keepdim: bool = False
) -> Bounded:
    """sum, prod, max or min."""
    over = dims_of(arg, dims)
    if name in ("max", "min"):
        data, error = _extremum(arg.data, over, name == "max"), _worst(arg.error, over)
        return Bounded(_kept(data, over, keepdim), _kept(error, over, keepdim))
    if category(arg.dtype) < 2:
        whole = arg.data.to(torch.int64)
        data = _sum(whole, over) if name == "sum" else _multiplied(whole, over)
        error = unknown_where(_worst(arg.error, over) > 0)
        return Bounded(_kept(data, over, keepdim), _kept(error, over, keepdim))
    x = convert(arg, up(arg.dtype))
    wide, number, unit = widened(x.data), max(count(x, over), 1), ROUNDOFF[x.dtype]
    if name == "sum":
        total, size = _sum(wide, over), _sum(wide.abs(), over)
        error = _sum(x.error, over) + (2 * number * unit * size if number > 1 else 0.0)
        out = rounded(total, error, x.dtype, 0)
    else:
        total, size = _multiplied(wide, over), _multiplied(wide.abs(), over)
        grown = _multiplied(wide.abs() + x.error, over)
        several = FUNCTION_ROUNDOFFS if wide.is_complex() else 2
        error = grown - size + (several * number * unit * grown if number > 1 else 0.0)
        # In some order all that are above 1, or all below, come first: what then leaves the range is lost.
        largest = _multiplied((wide.abs() + x.error).clamp(min=1.0), over)
        least = _multiplied(torch.where(wide == 0, 1.0, wide.abs() - x.error).clamp(max=1.0), over)
        limits = torch.finfo(x.dtype)
        leaves = (largest * (1 + 2 * number * unit) >= limits.max) | (least <= limits.tiny)
        out = rounded(total, torch.where(leaves, INF, error), x.dtype, 0)
    out = convert(out, arg.dtype)
    return Bounded(_kept(out.data, over, keepdim), _kept(out.error, over, keepdim))


def mean(arg: Bounded, dims: Sequence[int], keepdim: bool = False) -> Bounded:
    result = torch.float32 if category(arg.dtype) < 2 else arg.dtype
    x = convert(convert(arg, result), up(result))
    total = reduction("sum", x, dims, keepdim)
    return convert(binary("truediv", total, exact(count(x, dims_of(x, dims)))), result)


def moments(arg: Bounded, dims: Sequence[int]) -> tuple[Bounded, Bounded]:
    """Sum of squared deviations and mean, bounded for one pass over the elements in any order.

    The deviations from a mean that is off by e are off by e; Welford's update commits a few roundings of
    that size for each of the n elements (Chan, Golub and LeVeque, 1983).
    """
    x = convert(arg, float_up(arg.dtype))
    if not count(x, dims):
        nothing = torch.full(_sum(x.data, dims).shape, math.nan, dtype=x.dtype)
        unknown = Bounded(nothing, torch.full(nothing.shape, INF, dtype=torch.float64))
        return unknown, unknown
    wide, number, unit = widened(x.data), count(x, dims), ROUNDOFF[x.dtype]
    average = _kept(_sum(wide, dims), dims, True) / number
    off = _kept(_sum(x.error + 4 * number * unit * wide.abs(), dims), dims, True) / number
    deviation, each = (wide - average).abs(), x.error + off + 2 * unit * wide.abs()
    squares = _sum(deviation.square(), dims)
    error = _sum(2 * deviation * each + each.square(), dims) + 8 * number * unit * squares
    flat = _sum(average, ())
    for dim in reversed(dims):
        flat, off = flat.squeeze(dim), off.squeeze(dim)
    return rounded(squares, error, x.dtype), rounded(flat, off, x.dtype)


def var_mean(
    arg: Bounded, dims: int | Sequence[int], correction: int = 1, keepdim: bool = False
) -> tuple[Bounded, Bounded]:
    over = dims_of(arg, dims)
    m2, average = moments(arg, over)
    variance = binary("truediv", m2, exact(max(count(arg, over) - correction, 0)))
    return tuple(  # type: ignore[return-value]
        Bounded(_kept(v.data, over, keepdim), _kept(v.error, over, keepdim)) for v in (variance, average)
    )


def var_mean_of(
    arg: Bounded, dims: int | Sequence[int], correction: int = 1, keepdim: bool = False
) -> tuple[Bounded, Bounded]:
    """var_mean; of complex numbers the variance is the sum of those of the parts."""
    if not arg.dtype.is_complex:
        return var_mean(arg, dims, correction, keepdim)
    parts = [Bounded(part, arg.error) for part in (arg.data.real, arg.data.imag)]
    (real, first), (imaginary, second) = (var_mean(part, dims, correction, keepdim) for part in parts)
    average = Bounded(torch.complex(first.data, second.data), first.error + second.error)
    return binary("add", real, imaginary), average


def var(arg: Bounded, dims: int | Sequence[int], correction: int = 1, keepdim: bool = False) -> Bounded:
    return var_mean_of(arg, dims, correction, keepdim)[0]


def std(arg: Bounded, dims: int | Sequence[int], correction: int = 1, keepdim: bool = False) -> Bounded:
    return unary("sqrt", var(arg, dims, correction, keepdim))


def welford(arg: Bounded, dims: int | Sequence[int]) -> tuple[Bounded, Bounded, Bounded]:
    """(average, sum of squared deviations, count)."""
    over = dims_of(arg, dims)
    m2, average = moments(arg, over)
    return average, m2, exact(torch.full(m2.data.shape, count(arg, over)))


def any_or_all(name: str, arg: Bounded, *args: Any, **kwargs: Any) -> Bounded:
    extremum = {"any": "max", "all": "min"}[name]
    return reduction(extremum, convert(arg, torch.bool), *args, **kwargs)


def arg_extremum(name: str, arg: Bounded, dim: int | None = None, keepdim: bool = False) -> Bounded:
    """Unknown where another element, within the errors of both, may be the extreme one."""
    over = dims_of(arg, dim)
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
    over = () if keepdim else dims_of(arg, dims)
    return moved(out, lambda t: t.squeeze(over))


def max_sum_exp(arg: Bounded, dims: int | Sequence[int]) -> tuple[Bounded, Bounded]:
    """The maximum, and the sum of exponentials of what is less than it, or than the largest number."""
    x, over = convert(arg, up(arg.dtype)), dims_of(arg, dims)
    top = reduction("max", x, over, True)
    largest = torch.finfo(x.dtype).max
    shift = Bounded(top.data.clamp(-largest, largest), top.error)
    total = reduction("sum", unary("exp", binary("sub", x, shift)), over, True)
    return moved(top, lambda t: t.squeeze(over)), moved(total, lambda t: t.squeeze(over))
