"""Rows of operators over parts of a tensor: pooling, windows that overlap, diagonals, replaced slices.

A pool of few elements becomes elementwise operations over as many slices, so it fuses with the operations
before and after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

from fusewright.core.dtype import DataType
from fusewright.frontend.handles import Scalar
from fusewright.torch_compile.rows import NotRecordable, row
from fusewright.torch_compile.sizes import is_number

if TYPE_CHECKING:
    from fusewright.torch_compile.recording import Recording

#: Elements of a window from which on a pool is left to torch: each is an access of its own.
MOST_OF_WINDOW = 25
#: Steps of a window that overlaps the next, from which on it is left to torch: each is a part of a join.
MOST_STEPS = 8


# ---- pooling -----------------------------------------------------------------------------------------------


def _known(sizes: Sequence[Any]) -> list[int]:
    """Sizes that are numbers, none of them 0."""
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        raise NotRecordable("sizes that are not known, or 0")
    return list(sizes)


def _of_each(given: Sequence[int], count: int) -> list[int]:
    """One number a dimension, where one may stand for all."""
    return list(given) if len(given) == count else list(given) * count


def _windows(
    r: Recording, x: Any, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], fill: Any
) -> Iterator[tuple[tuple[int, ...], Any]]:
    """The elements at each place of a window, as slices of the shape of the result, and that place."""
    made = _known(r.shape(0))[-len(kernel) :]
    sizes = _known(r.sizes(x))
    outer = x.ndim - len(kernel)
    ends = [(n - 1) * step for n, step in zip(made, stride)]
    beyond = [max(0, e + k - size - pad) for e, k, size, pad in zip(ends, kernel, sizes[outer:], padding)]
    if any(padding) or any(beyond):
        widths = [width for pair in zip(padding[::-1], beyond[::-1]) for width in pair]
        x = r.ops.pad(x, widths, fill)
    for place in product(*map(range, kernel)):
        starts = [*([0] * outer), *place]
        stops = [*sizes[:outer], *(p + e + 1 for p, e in zip(place, ends))]
        yield place, r.ops.slice(x, starts, stops, [*([1] * outer), *stride])


def _pool_arguments(
    kernel_size: Sequence[int], stride: Sequence[int], padding: Sequence[int], ceil_mode: bool
) -> tuple[list[int], list[int], list[int]]:
    """One number a dimension of each. NotRecordable: torch has other rules for the last window."""
    kernel, pads = _of_each(kernel_size, 2), _of_each(padding, 2)
    if ceil_mode or prod(kernel) > MOST_OF_WINDOW:
        raise NotRecordable("ceil_mode, or a large window")
    return kernel, _of_each(stride, 2) if stride else kernel, pads


def _reduced(values: Iterator[tuple[tuple[int, ...], Any]], combine: Callable[[Any, Any], Any]) -> Any:
    result = None
    for _, value in values:
        result = value if result is None else combine(result, value)
    return result


@row("max_pool2d_with_indices.default")
def max_pool(
    r: Recording,
    x: Any,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> Any:
    kernel, steps, pads = _pool_arguments(kernel_size, stride, padding, ceil_mode)
    if set(dilation) != {1} or not x.dtype.is_floating:
        raise NotRecordable("dilation, or integers")
    sizes, made = _known(r.sizes(x))[-2:], _known(r.shape(0))[-2:]
    most: Any = None
    found: Any = None
    for place, value in _windows(r, x, kernel, steps, pads, x.dtype.compute.lowest):
        # What is padded is never the greatest; the first place counts as the first that is inside.
        down, along = (
            r.ops.clamp(r.ops.iota(count, at - pad, step, DataType.Int), 0, size - 1)
            for count, at, pad, step, size in zip(made, place, pads, steps, sizes)
        )
        flat = r.ops.add(r.ops.mul(r.ops.broadcast(down, [False, True]), sizes[1]), along)
        if most is None:
            most, found = value, r.ops.expand(flat, made)
            found = r.ops.expand(r.ops.broadcast(found, [*([True] * (x.ndim - 2)), False, False]), r.shape(1))
            continue
        greater = r.ops.logical_or(r.ops.gt(value, most), r.ops.isnan(value))
        most, found = r.ops.maximum(most, value), r.ops.where(greater, flat, found)
    return most, found


@row("avg_pool2d.default")
def average_pool(
    r: Recording,
    x: Any,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    kernel, steps, pads = _pool_arguments(kernel_size, stride, padding, ceil_mode)
    if not x.dtype.is_floating or (any(pads) and not count_include_pad):
        raise NotRecordable("integers, or windows of several sizes")
    total = _reduced(_windows(r, x, kernel, steps, pads, 0.0), r.ops.add)
    return r.ops.mul(total, 1.0 / (divisor_override or prod(kernel)))


@row("_adaptive_avg_pool2d.default")
def adaptive_average_pool(r: Recording, x: Any, output_size: Sequence[Any]) -> Any:
    sizes, made = _known(r.sizes(x)), _known(r.shape())
    if any(size % n for size, n in zip(sizes[-2:], made[-2:])):
        raise NotRecordable("windows of several sizes")
    outer = x.ndim - 2
    apart = [*sizes[:outer], made[-2], sizes[-2] // made[-2], made[-1], sizes[-1] // made[-1]]
    return r.ops.mean(r.ops.reshape(x, apart), [outer + 1, outer + 3])


# ---- windows, diagonals, parts that are replaced -----------------------------------------------------------


@row("unfold.default", "unfold_copy.default")
def unfold(r: Recording, x: Any, dimension: int, size: int, step: int) -> Any:
    """A join of slices that are whole steps apart, of which the last may have a part of a step."""
    if not x.ndim:
        raise NotRecordable("a tensor of rank 0")
    sizes, dim = _known(r.sizes(x)), dimension % x.ndim
    steps, count = -(-size // step) if step else 0, r.shape()[dim]
    if not steps or steps > MOST_STEPS or not isinstance(count, int):
        raise NotRecordable("windows of many steps")
    last = [*(i for i in range(x.ndim) if i != dim), dim]
    moved = r.ops.permute(x, last)
    outer = [sizes[i] for i in last[:-1]]
    whole = count + steps - 1
    missing = whole * step - sizes[dim]
    if missing > 0:
        moved = r.ops.pad(moved, [0, missing])
    cut = r.ops.slice(moved, [0] * x.ndim, [*outer, whole * step], [1] * x.ndim)
    apart = r.ops.reshape(cut, [*outer, whole, step])
    rank = x.ndim + 1
    widths = [min(step, size - i * step) for i in range(steps)]
    parts = [
        r.ops.slice(apart, [*([0] * (rank - 2)), i, 0], [*outer, i + count, width], [1] * rank)
        for i, width in enumerate(widths)
    ]
    joined = r.ops.cat(parts, -1) if len(parts) > 1 else parts[0]
    back = [*range(dim), rank - 2, *range(dim, rank - 2), rank - 1]
    return r.ops.permute(joined, back)


@row("diagonal.default", "diagonal_copy.default")
def diagonal(r: Recording, x: Any, offset: int, dim1: int, dim2: int) -> Any:
    """Elements at a fixed distance in a matrix that is read as one row."""
    sizes = _known(r.sizes(x))
    first, second = dim1 % x.ndim, dim2 % x.ndim
    outer = [i for i in range(x.ndim) if i not in (first, second)]
    rows, columns = sizes[first], sizes[second]
    (count,) = _known(r.shape()[-1:])
    kept = [sizes[i] for i in outer]
    flat = r.ops.reshape(r.ops.permute(x, [*outer, first, second]), [*kept, rows * columns])
    start = offset if offset >= 0 else -offset * columns
    end = start + (count - 1) * (columns + 1) + 1
    rank = len(kept)
    return r.ops.slice(
        flat, [*([0] * rank), start], [*kept, end], [*([1] * rank), min(columns + 1, max(1, end))]
    )


@row("slice_scatter.default")
def slice_scatter(r: Recording, x: Any, src: Any, dim: int, start: Any, end: Any, step: int) -> Any:
    """The part before the slice, the replacement, and the part behind it, joined."""
    sizes, place = r.sizes(x), dim % x.ndim
    size, count = sizes[place], r.sizes(src)[place]
    inside = src if src.dtype is x.dtype else r.ops.cast(src, x.dtype)
    low: Any = 0 if start is None else start
    if isinstance(low, int) and low < 0:
        low = max(0, low + size) if isinstance(size, int) else r.ops.maximum(0, r.ops.add(size, low))
    if isinstance(low, int) and isinstance(size, int):
        low = min(low, size)
    if step != 1:
        return _every(r, x, inside, count, place, low, step)
    if r.are_of_one_size(x, src):
        return r.ops.set(inside)

    def part(begin: Any, stop: Any) -> Any:
        starts = [begin if i == place else 0 for i in range(x.ndim)]
        stops = [stop if i == place else extent for i, extent in enumerate(sizes)]
        return r.ops.slice(x, starts, stops, [1] * x.ndim)

    high = r.ops.add(low, count) if _has_scalar(low, count) else low + count
    parts = [] if is_number(count, 0) else [inside]
    if not is_number(low, 0):
        parts.insert(0, part(0, low))
    if not isinstance(size, int) or not is_number(high, size):
        parts.append(part(high, size))
    return r.ops.cat(parts, place) if len(parts) > 1 else r.ops.set(parts[0])


def _every(r: Recording, x: Any, src: Any, count: Any, place: int, low: Any, step: int) -> Any:
    """Every so many-th element replaced: pads lay those apart, and a mask chooses between the two."""
    size = r.sizes(x)[place]
    reach = r.ops.mul(count, step) if isinstance(count, Scalar) else count * step
    apart = [*r.sizes(x)[:place], reach, *r.sizes(x)[place + 1 :]]
    behind = [0, 0] * (x.ndim - 1 - place)
    lines = r.ops.broadcast(src, [i == place + 1 for i in range(x.ndim + 1)])
    spread = r.ops.reshape(r.ops.pad(lines, [*behind, 0, step - 1]), apart)
    over = r.ops.sub(r.ops.sub(size, low), reach) if _has_scalar(size, low, reach) else size - low - reach
    moved = r.ops.pad(spread, [*behind, low, over])
    line = r.ops.sub(r.ops.iota(size, 0, 1, DataType.Int), low)
    within = r.ops.logical_and(r.ops.ge(line, 0), r.ops.lt(line, reach))
    chosen = r.ops.logical_and(within, r.ops.eq(r.ops.remainder(line, step), 0))
    return r.ops.where(r.ops.broadcast(chosen, [i != place for i in range(x.ndim)]), moved, x)


def _has_scalar(*values: Any) -> bool:
    return any(isinstance(value, Scalar) for value in values)
