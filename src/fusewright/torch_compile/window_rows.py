"""Rows of operators over parts of a tensor: windows that overlap, diagonals, replaced slices, edges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fusewright.core.dtype import DataType
from fusewright.frontend.handles import Scalar
from fusewright.torch_compile.lines import known_sizes, one_after_another
from fusewright.torch_compile.rows import NotRecordable, row
from fusewright.torch_compile.sizes import is_number

if TYPE_CHECKING:
    from fusewright.torch_compile.recording import Recording

# ---- windows, diagonals, parts that are replaced -----------------------------------------------------------


@row("unfold.default", "unfold_copy.default")
def unfold(r: Recording, x: Any, dimension: int, size: int, step: int) -> Any:
    if not x.ndim:
        raise NotRecordable("a tensor of rank 0")
    return r.ops.unfold(x, dimension, size, step)


@row("diagonal.default", "diagonal_copy.default")
def diagonal(r: Recording, x: Any, offset: int, dim1: int, dim2: int) -> Any:
    """Elements at a fixed distance in a matrix that is read as one row."""
    sizes = known_sizes(r.sizes(x))
    first, second = dim1 % x.ndim, dim2 % x.ndim
    outer = [i for i in range(x.ndim) if i not in (first, second)]
    rows, columns = sizes[first], sizes[second]
    (count,) = known_sizes(r.shape()[-1:])
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


# ---- pads that repeat the edge -----------------------------------------------------------------------------


@row(*(f"replication_pad{n}d_backward.default" for n in (1, 2, 3)))
def replication_pad_backward(r: Recording, x: Any, padding: Sequence[int], **_: Any) -> Any:
    """The first and the last element of a dimension have the gradients of what repeats them, too."""
    padded, sizes = known_sizes(r.sizes(x)), known_sizes(r.shape())
    widths = list(zip(padding[::2], padding[1::2]))[::-1]
    if min(padding) < 0:
        raise NotRecordable("pads that cut")
    steps = []
    for dim, (before, behind) in enumerate(widths, len(sizes) - len(widths)):
        steps.append((1 + before + behind, _to_edges(r, list(padded), dim, before, sizes[dim])))
        padded[dim] = sizes[dim]
    return one_after_another(r, x, steps)


def _to_edges(r: Recording, padded: Sequence[int], dim: int, before: int, size: int) -> Callable[[Any], Any]:
    """A step: what is padded along a dimension is added to its first and its last element."""

    def part(x: Any, start: int, count: int) -> Any:
        starts = [start if i == dim else 0 for i in range(len(padded))]
        stops = [start + count if i == dim else n for i, n in enumerate(padded)]
        return r.ops.slice(x, starts, stops, [1] * len(padded))

    def step(x: Any) -> Any:
        total = part(x, before, size)
        inner = [0, 0] * (len(padded) - 1 - dim)
        for place in (*range(before), *range(before + size, padded[dim])):
            at = 0 if place < before else size - 1
            total = r.ops.add(total, r.ops.pad(part(x, place, 1), [*inner, at, size - 1 - at], 0.0))
        return total

    return step
