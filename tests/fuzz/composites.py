"""Normalizations, losses, quantization and random numbers, each with its error bound: see `bounded`.

Normalizations and losses are the steps of their definitions. Of random numbers the bound says the range.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from fusewright import DataType
from tests.fuzz.bounded import (
    INF,
    Bounded,
    Tensor,
    Unary,
    applied,
    binary,
    convert,
    exact,
    float_up,
    lerp,
    rounded,
    spread,
    unary,
    unknown_where,
    up,
    where,
    widened,
)
from tests.fuzz.moves import moved, sizes_of, take_along_axis
from tests.fuzz.reductions import count, mean, moments
from tests.fuzz.reductions import reduction as reduced

Normalized = tuple[Bounded, Bounded, Bounded]

# ---- normalizations ----------------------------------------------------------------------------------------


def _beside(x: Bounded, dims: Sequence[int]) -> Bounded:
    """`x` with dimensions of size 1 at these places."""
    for dim in sorted(dims):
        x = moved(x, lambda t, dim=dim: t.unsqueeze(dim))  # type: ignore[misc]
    return x


def _inverse_deviation(variance: Bounded, eps: float) -> Bounded:
    return unary("rsqrt", binary("add", variance, eps))


def _statistics(x: Bounded, over: Sequence[int], eps: float) -> tuple[Bounded, Bounded]:
    m2, average = moments(x, over)
    return average, _inverse_deviation(binary("truediv", m2, exact(count(x, over))), eps)


def _affine(x: Bounded, centre: Bounded, scale: Bounded, *factors: Bounded | None) -> Bounded:
    weight, bias = factors
    out = binary("mul", binary("sub", x, centre), scale)
    out = out if weight is None else binary("mul", out, weight)
    return out if bias is None else binary("add", out, bias)


def _last(x: Bounded, shape: int | Sequence[Any]) -> list[int]:
    rank = x.data.ndim
    return list(range(rank - (shape if isinstance(shape, int) else len(shape)), rank))


def layer_norm(
    arg: Bounded,
    shape: int | Sequence[Any],
    weight: Bounded | None = None,
    bias: Bounded | None = None,
    eps: float = 1e-5,
) -> Normalized:
    over, x = _last(arg, shape), convert(arg, up(arg.dtype))
    average, invstd = (_beside(t, over) for t in _statistics(x, over, eps))
    return convert(_affine(x, average, invstd, weight, bias), arg.dtype), average, invstd


def rms_norm(
    arg: Bounded, shape: int | Sequence[Any], weight: Bounded | None = None, eps: float | None = None
) -> tuple[Bounded, Bounded]:
    over, x = _last(arg, shape), convert(arg, up(arg.dtype))
    safety = torch.finfo(x.dtype).eps if eps is None else eps
    invstd = _inverse_deviation(mean(binary("mul", x, x), over, True), safety)
    out = binary("mul", x, invstd)
    out = out if weight is None else binary("mul", out, weight)
    return convert(out, arg.dtype), invstd


def group_norm(
    arg: Bounded,
    groups: int,
    weight: Bounded | None = None,
    bias: Bounded | None = None,
    eps: float = 1e-5,
) -> Normalized:
    batch, channels, *others = arg.data.shape
    members = channels // groups if groups else 1
    apart = [batch, groups, members, *others]
    x = moved(convert(arg, up(arg.dtype)), lambda t: t.reshape(apart))
    over = list(range(2, x.data.ndim))
    average, invstd = _statistics(x, over, eps)
    factors = (
        None if t is None else moved(t, lambda t: t.reshape(groups, members, *(1 for _ in others)))
        for t in (weight, bias)
    )
    out = _affine(x, _beside(average, over), _beside(invstd, over), *factors)
    return convert(moved(out, lambda t: t.reshape(arg.data.shape)), arg.dtype), average, invstd


def instance_norm(
    arg: Bounded, weight: Bounded | None = None, bias: Bounded | None = None, eps: float = 1e-5
) -> Normalized:
    return group_norm(arg, arg.data.shape[1], weight, bias, eps)


def batch_norm(
    arg: Bounded,
    weight: Bounded | None,
    bias: Bounded | None,
    running_mean: Bounded | None,
    running_var: Bounded | None,
    momentum: float,
    eps: float,
    training: bool,
    channels_last: bool = False,
) -> Normalized:
    """Without what training writes into the running statistics."""
    x, rank = convert(arg, up(arg.dtype)), arg.data.ndim
    over = [dim for dim in range(rank) if dim != (rank - 1 if channels_last else 1)]
    if training or running_mean is None or running_var is None:
        average, invstd = _statistics(x, over, eps)
    else:
        average, variance = (convert(t, x.dtype) for t in (running_mean, running_var))
        invstd = _inverse_deviation(variance, eps)
    wide = [None if t is None else _beside(t, over) for t in (average, invstd, weight, bias)]
    return convert(_affine(x, *wide), arg.dtype), average, invstd  # type: ignore[arg-type]


# ---- losses ------------------------------------------------------------------------------------------------


def cross_entropy(
    logits: Bounded,
    target: Bounded,
    weight: Bounded | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Bounded:
    classes = min(1, logits.data.ndim - 1)
    x = convert(logits, up(logits.dtype))

    def at_target(t: Bounded) -> Bounded:
        found = take_along_axis(t, moved(target, lambda t: t.unsqueeze(classes)), classes)
        return convert(moved(found, lambda t: t.squeeze(classes)), x.dtype)

    less = binary("sub", x, reduced("max", x, classes, True))
    logarithm = unary("log", reduced("sum", unary("exp", less), classes, True))
    each = binary("sub", logarithm, less)
    loss = at_target(each)
    others = [dim for dim in range(logits.data.ndim) if dim != classes]
    beside = None if weight is None else _beside(weight, others)
    factors = exact(torch.ones(loss.data.shape, dtype=x.dtype))
    if beside is not None:
        wide = moved(beside, lambda t: t.expand(logits.data.shape))
        factors, each = at_target(wide), binary("mul", each, beside)
        loss = binary("mul", loss, factors)
    if label_smoothing:
        even = binary("truediv", reduced("sum", each, classes), exact(logits.data.shape[classes]))
        loss = lerp(loss, even, label_smoothing)
    ignored = binary("eq", target, ignore_index)
    loss = where(ignored, 0.0, loss)
    if reduction != "none":
        loss = reduced("sum", loss)
    if reduction == "mean":
        loss = binary("truediv", loss, reduced("sum", where(ignored, 0.0, factors)))
    return convert(loss, logits.dtype)


# ---- quantization ------------------------------------------------------------------------------------------

#: The magnitudes of Float4_e2m1fn.
MAGNITUDES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], dtype=torch.float64)
BLOCK, LARGEST, LEAST_SCALE = 16, 6.0, 2.0**-6


def _four_bits(x: Tensor) -> Tensor:
    """The nearest value of Float4_e2m1fn, of two as near the one with an even last bit."""
    middles = (MAGNITUDES[1:] + MAGNITUDES[:-1]) / 2
    up_at, above = torch.bucketize(x.abs(), middles), torch.bucketize(x.abs(), middles, right=True)
    place = torch.where(up_at % 2 == 0, up_at, above)
    return torch.where(x.isnan(), x, MAGNITUDES[place] * torch.where(x < 0, -1.0, 1.0))


def _eight_bits(x: Tensor) -> Tensor:
    return x.to(torch.float32).to(torch.float8_e4m3fn).to(torch.float64)


def nv_block_quantize(arg: Bounded) -> tuple[Bounded, Bounded]:
    """The elements and the scales, both as the Float that they are."""
    x = convert(arg, torch.float32)
    blocks = moved(x, lambda t: t.reshape(*t.shape[:-1], t.shape[-1] // BLOCK, BLOCK))
    greatest = reduced("max", unary("abs", blocks), -1, True)
    scale = binary("maximum", binary("truediv", greatest, LARGEST), LEAST_SCALE)
    scales = applied(Unary(_eight_bits, spread(_eight_bits), 0), "", scale)
    elements = applied(Unary(_four_bits, spread(_four_bits), 0), "", binary("truediv", blocks, scales))
    return moved(elements, lambda t: t.reshape(x.data.shape)), moved(scales, lambda t: t.squeeze(-1))


# ---- random numbers ----------------------------------------------------------------------------------------

# The largest normal number that the Box-Muller transform makes of a number above 2**-54.
NORMAL_LIMIT = math.sqrt(2 * 54 * math.log(2))


def _ranged(shape: Sequence[int], middle: float, reach: float, dtype: torch.dtype) -> Bounded:
    """Any numbers of the type that are no farther from the middle."""
    wide = torch.full(tuple(shape), middle, dtype=torch.float64)
    return rounded(wide, torch.full_like(wide, reach), dtype)


def uniform(
    low: float, high: float, shape: Any, *, dtype: DataType = DataType.Float, **state: int
) -> Bounded:
    return _ranged(sizes_of(shape), (low + high) / 2, (high - low) / 2, dtype.torch)


def normal(
    centre: float, scale: float, shape: Any, *, dtype: DataType = DataType.Float, **state: int
) -> Bounded:
    return _ranged(sizes_of(shape), centre, NORMAL_LIMIT * scale, dtype.torch)


def rand_like(arg: Bounded, **state: int) -> Bounded:
    return _ranged(arg.data.shape, 0.5, 0.5, arg.dtype)


def randn_like(arg: Bounded, **state: int) -> Bounded:
    return _ranged(arg.data.shape, 0.0, NORMAL_LIMIT, arg.dtype)


def dropout(arg: Bounded, p: float = 0.5, **state: int) -> tuple[Bounded, Bounded]:
    """(out, mask): an element is 0 or larger by 1 / (1 - p), unless p leaves no choice."""
    x = convert(arg, float_up(arg.dtype))
    shape = arg.data.shape
    if p in (0, 1):
        mask = exact(torch.full(shape, p == 0))
        return convert(binary("mul", x, float(p == 0)), arg.dtype), mask
    whole = binary("mul", x, 1 / (1 - p))
    half = widened(whole.data) / 2
    out = rounded(half, half.abs() + whole.error, x.dtype)
    data = torch.zeros(shape, dtype=torch.bool)
    return convert(Bounded(out.data, out.error.nan_to_num(INF)), arg.dtype), Bounded(
        data, unknown_where(~data)
    )


COMPOSITES = {
    function.__name__: function
    for function in (
        layer_norm,
        rms_norm,
        group_norm,
        instance_norm,
        batch_norm,
        cross_entropy,
        nv_block_quantize,
        uniform,
        normal,
        rand_like,
        randn_like,
        dropout,
    )
}
