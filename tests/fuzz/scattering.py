"""Assignments and additions by index, each with its error bound: see `bounded`."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tests.fuzz.bounded import (
    ROUNDOFF,
    Bounded,
    Number,
    Tensor,
    category,
    convert,
    exact,
    rounded,
    unknown_where,
    up,
    widened,
)


def scatter(x: Bounded, index: Bounded, src: Bounded | Number, dim: int) -> Bounded:
    """Where several elements of `src` go to one place nothing is known, unless they are one number."""
    places, shape = index.data.long(), index.data.shape
    named = torch.zeros(x.data.shape, dtype=torch.int64)
    named.scatter_add_(dim, places, torch.ones(shape, dtype=torch.int64))
    if isinstance(src, Bounded):
        part = tuple(slice(n) for n in shape)
        data = x.data.scatter(dim, places, src.data[part])
        error = x.error.scatter(dim, places, src.error[part])
        return Bounded(data, torch.maximum(error, unknown_where(named > 1)))
    value = convert(exact(src), x.dtype)
    data, error = (torch.where(named > 0, a, b) for a, b in ((value.data, x.data), (value.error, x.error)))
    return Bounded(data, error)


def _added(base: Bounded, places: Tensor, value: Bounded) -> Bounded:
    """base with value[i] added to base[places[i]], in any order; computed in the type of both."""
    if category(base.dtype) < 2:
        whole = base.data.long().index_put((places,), value.data.long(), accumulate=True).to(base.dtype)
        unknown = base.error.index_put((places,), value.error, accumulate=True) > 0
        return Bounded(whole, unknown_where(unknown))
    wide, added, unit = widened(base.data), widened(value.data), ROUNDOFF[base.dtype]
    total = wide.index_put((places,), added, accumulate=True)
    size = wide.abs().index_put((places,), added.abs(), accumulate=True)
    count = torch.zeros_like(size).index_put((places,), torch.ones_like(added.abs()), accumulate=True)
    error = base.error.index_put((places,), value.error, accumulate=True)
    return rounded(total, error + 2 * count * unit * size, base.dtype, 0)


def index_put_accumulate(acc: Bounded, index: Bounded, value: Bounded) -> Bounded:
    wide = up(acc.dtype)
    total = _added(convert(acc, wide), index.data.long().reshape(-1), convert(value, wide))
    return convert(total, acc.dtype)


def embedding_bwd(grad: Bounded, indices: Bounded, count: Bounded | int, padding_idx: int = -1) -> Bounded:
    rows = int(count.data) if isinstance(count, Bounded) else count
    wide, width = up(grad.dtype), grad.data.shape[-1]
    kept = indices.data.reshape(-1) != padding_idx
    value = convert(grad, wide)
    shape = kept.numel(), width
    lines = Bounded(value.data.reshape(shape)[kept], value.error.reshape(shape)[kept])
    zeros = Bounded(torch.zeros(rows, width, dtype=wide), torch.zeros(rows, width, dtype=torch.float64))
    return convert(_added(zeros, indices.data.long().reshape(-1)[kept], lines), grad.dtype)


SCATTERING: dict[str, Callable[..., Bounded]] = {
    function.__name__: function for function in (scatter, index_put_accumulate, embedding_bwd)
}
