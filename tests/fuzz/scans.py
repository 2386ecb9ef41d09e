"""Scans with their error bounds: see `bounded`."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tests.fuzz.bounded import (
    INF,
    ROUNDOFF,
    Bounded,
    Number,
    Tensor,
    category,
    convert,
    exact,
    is_narrow,
    rounded,
    unknown_where,
    up,
    widened,
)

_TORCH: dict[str, Callable[[Tensor, int], Tensor]] = {
    "cumsum": lambda x, dim: x.cumsum(dim, dtype=x.dtype),
    "cumprod": lambda x, dim: x.cumprod(dim, dtype=x.dtype),
    "cummax": lambda x, dim: x.cummax(dim).values if x.numel() else x,
    "cummin": lambda x, dim: x.cummin(dim).values if x.numel() else x,
    "logcumsumexp": torch.logcumsumexp,
}


def scan(name: str, arg: Bounded, dim: int, init: Number | None = None) -> Bounded:
    """What it starts from is one element more, before the others."""
    if init is not None:
        start = convert(exact(init), arg.dtype)
        shape = [1 if d == dim % arg.data.ndim else n for d, n in enumerate(arg.data.shape)]
        first = start.data.expand(shape), start.error.expand(shape)
        longer = (torch.cat([a, b], dim) for a, b in zip(first, (arg.data, arg.error)))
        found = _scanned(name, Bounded(*longer), dim)
        size = arg.data.shape[dim]
        return Bounded(found.data.narrow(dim, 1, size), found.error.narrow(dim, 1, size))
    return _scanned(name, arg, dim)


def _scanned(name: str, arg: Bounded, dim: int) -> Bounded:
    function = _TORCH[name]
    worst = _TORCH["cummax"](arg.error, dim)
    if name in ("cummax", "cummin"):
        if is_narrow(arg.dtype):
            return Bounded(function(arg.data.float(), dim).to(arg.dtype), worst)
        return Bounded(function(arg.data, dim), worst)
    if category(arg.dtype) < 2:
        data = function(arg.data.to(torch.int64), dim).to(arg.dtype)
        if category(arg.dtype) == 0:  # whether there is a True, or a False
            data = _TORCH["cummax" if name == "cumsum" else "cummin"](arg.data, dim)
        return Bounded(data, unknown_where(worst > 0))
    x = convert(arg, up(arg.dtype))
    wide, unit = widened(x.data), ROUNDOFF[x.dtype]
    number = torch.ones_like(x.error).cumsum(dim)  # of the elements that are combined
    several = torch.where(number > 1, number, 0.0)
    if name == "logcumsumexp":
        # A logarithm of a sum of exponentials is off by what its elements are off by; each step adds its own.
        largest = _TORCH["cummax"](wide.abs(), dim) + number.log() + 1
        error = worst + 4 * several * unit * largest
        return convert(rounded(wide.logcumsumexp(dim), error, x.dtype, 0), arg.dtype)
    if name == "cumsum":
        error = x.error.cumsum(dim) + 2 * several * unit * wide.abs().cumsum(dim)
        out = rounded(wide.cumsum(dim), error, x.dtype, 0)
        return convert(out, arg.dtype)
    grown = (wide.abs() + x.error).cumprod(dim)
    error = grown - wide.abs().cumprod(dim) + 2 * several * unit * grown
    # Some order of its factors may leave the range, though the product is in it.
    largest = (wide.abs() + x.error).clamp(min=1.0).cumprod(dim)
    least = torch.where(wide == 0, 1.0, wide.abs() - x.error).clamp(max=1.0).cumprod(dim)
    limits = torch.finfo(x.dtype)
    leaves = (largest * (1 + 2 * number * unit) >= limits.max) | (least <= limits.tiny)
    out = rounded(wide.cumprod(dim), torch.where(leaves, INF, error), x.dtype, 0)
    return convert(out, arg.dtype)


SCANS = tuple(_TORCH)
