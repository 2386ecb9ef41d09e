"""Rows of pools, and of their gradients.

A pool of few elements is elementwise work over as many slices; so it joins with what is before and after it.
Its gradient is a sum over the few windows that an element is in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

from fusewright.core.dtype import DataType
from fusewright.torch_compile.lines import (
    MOST_OF_WINDOW,
    Quotient,
    Windows,
    along,
    known_sizes,
    one_after_another,
    summed,
    terms,
    windows_of,
)
from fusewright.torch_compile.rows import NotRecordable, row

if TYPE_CHECKING:
    from fusewright.torch_compile.recording import Recording


def _rows_of_images(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function of `rank` as the rows of pools along 2 and along 3 dimensions."""

    def decorate(record: Callable[..., Any]) -> Callable[..., Any]:
        for rank in (2, 3):
            row(name.format(rank=rank))(partial(record, rank=rank))
        return record

    return decorate


# ---- windows -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Side:
    """The windows of a pool along one dimension.

    Attributes:
        size, made: elements, and windows.
        window, step, pad, dilation: as of torch's pools.
    """

    size: int
    made: int
    window: int
    step: int
    pad: int
    dilation: int = 1

    @property
    def reach(self) -> int:
        """Positions from the first element of a window to the last one, with both."""
        return (self.window - 1) * self.dilation + 1

    @property
    def beyond(self) -> int:
        """Positions behind the elements that the last window reaches."""
        return max(0, (self.made - 1) * self.step + self.reach - self.size - self.pad)

    def starts(self, r: Recording) -> Any:
        """The position of each window's first element, which may be outside."""
        return r.ops.iota(self.made, -self.pad, self.step, DataType.Int)

    def counts(self, r: Recording, with_padding: bool) -> Any:
        """How many elements each window has: of the padding, too, but not of what is behind it."""
        first = self.starts(r)
        last = r.ops.minimum(r.ops.add(first, self.window), self.size + self.pad)
        if not with_padding:
            first, last = r.ops.maximum(first, 0), r.ops.minimum(last, self.size)
        return r.ops.sub(last, first)

    def around(self) -> Windows:
        """For each element the windows that it may be in."""
        most = -(-self.reach // self.step)
        return Windows(Quotient(1, self.pad, self.step, most - 1), most, self.made)


def _of_each(given: Sequence[int], count: int) -> list[int]:
    """One number a dimension, where one may stand for all."""
    return list(given) if len(given) == count else list(given) * count


def _sides(
    sizes: Sequence[int],
    made: Sequence[int],
    rank: int,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int] = (1,),
) -> list[_Side]:
    kernel = _of_each(kernel_size, rank)
    given = kernel, _of_each(stride, rank) if stride else kernel, _of_each(padding, rank)
    return [_Side(*each) for each in zip(sizes[-rank:], made[-rank:], *given, _of_each(dilation, rank))]


def _check_elements(x: Any, count: int) -> None:
    if count > MOST_OF_WINDOW:
        raise NotRecordable("a large window")
    if not x.dtype.is_floating:
        raise NotRecordable("integers")


def _elements(
    r: Recording, x: Any, sizes: Sequence[int], sides: Sequence[_Side], fill: Any
) -> Iterator[tuple[tuple[int, ...], Any]]:
    """The elements at each place of a window, as slices of the shape of the result, and that place."""
    outer = list(sizes[: len(sizes) - len(sides)])
    widths = [width for side in reversed(sides) for width in (side.pad, side.beyond)]
    if any(widths):
        x = r.ops.pad(x, widths, fill)
    steps = [*([1] * len(outer)), *(side.step for side in sides)]
    for place in product(*(range(side.window) for side in sides)):
        starts = [n * side.dilation for n, side in zip(place, sides)]
        stops = [start + (side.made - 1) * side.step + 1 for start, side in zip(starts, sides)]
        yield place, r.ops.slice(x, [*([0] * len(outer)), *starts], [*outer, *stops], steps)


def _flat(r: Recording, lines: Sequence[Any], sizes: Sequence[int], rank: int) -> Any:
    """The index of an element in an image of these sizes, by its positions along the last dimensions."""
    flat: Any = None
    for n, (line, size) in enumerate(zip(lines, sizes)):
        each = along(r, line, rank - len(lines) + n, rank)
        flat = each if flat is None else r.ops.add(r.ops.mul(flat, size), each)
    return flat


# ---- the greatest ------------------------------------------------------------------------------------------


def _greatest(r: Recording, values: Iterator[tuple[Any, Any]]) -> tuple[Any, Any]:
    """The greatest of values, of several the first, and its place. NaN is greater than all."""
    most, found = next(values)
    for value, place in values:
        greater = r.ops.logical_or(r.ops.gt(value, most), r.ops.isnan(value))
        most, found = r.ops.maximum(most, value), r.ops.where(greater, place, found)
    return most, found


def _max_pool(r: Recording, x: Any, sizes: Sequence[int], sides: Sequence[_Side]) -> Any:
    _check_elements(x, prod(side.window for side in sides))
    inner = [side.size for side in sides]

    def places() -> Iterator[tuple[Any, Any]]:
        for place, value in _elements(r, x, sizes, sides, x.dtype.compute.lowest):
            lines = []
            for n, side in zip(place, sides):
                line = r.ops.iota(side.made, n * side.dilation - side.pad, side.step, DataType.Int)
                if not any(place) and side.pad:
                    # What is padded is never the greatest; the first place counts as the first inside.
                    inside = r.ops.remainder(line, side.dilation) if side.dilation > 1 else 0
                    line = r.ops.where(r.ops.lt(line, 0), inside, line)
                lines.append(line)
            yield value, _flat(r, lines, inner, x.ndim)

    most, found = _greatest(r, places())
    return most, r.ops.expand(found, r.shape(1))


@_rows_of_images("max_pool{rank}d_with_indices.default")
def max_pool(
    r: Recording,
    rank: int,
    x: Any,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> Any:
    sizes, made = known_sizes(r.sizes(x)), known_sizes(r.shape(0))
    return _max_pool(r, x, sizes, _sides(sizes, made, rank, kernel_size, stride, padding, dilation))


def _where_greatest(
    r: Recording,
    grad: Any,
    indices: Any,
    made: Sequence[int],
    sizes: Sequence[int],
    around: Sequence[Windows],
) -> Any:
    """The sum of the gradients of those windows around each element of which it was the greatest."""
    _check_elements(grad, prod(each.most for each in around))
    outer, rank = len(sizes) - len(around), len(sizes)
    own = [r.ops.iota(size, 0, 1, DataType.Int) for size in sizes[outer:]]
    element = _flat(r, own, sizes[outer:], rank)
    pairs = [(grad, indices)]
    for dim, windows in enumerate(around, outer):
        pairs = [
            (value, place)
            for g, i in pairs
            for (value, _), (place, _) in zip(
                terms(r, g, dim, windows, sizes[dim], 0.0), terms(r, i, dim, windows, sizes[dim], -1)
            )
        ]
    return reduce(r.ops.add, [r.ops.where(r.ops.eq(place, element), value, 0.0) for value, place in pairs])


@_rows_of_images("max_pool{rank}d_with_indices_backward.default")
def max_pool_backward(
    r: Recording,
    rank: int,
    x: Any,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    indices: Any,
    **_: Any,
) -> Any:
    made, sizes = known_sizes(r.sizes(x)), known_sizes(r.shape())
    sides = _sides(sizes, made, rank, kernel_size, stride, padding, dilation)
    return _where_greatest(r, x, indices, made, sizes, [side.around() for side in sides])


# ---- means -------------------------------------------------------------------------------------------------


def _divided(
    r: Recording, x: Any, sides: Sequence[_Side], count_include_pad: bool, divisor: int | None
) -> Any:
    """By the number of elements of each window."""
    if divisor:
        return r.ops.mul(x, 1.0 / divisor)
    if all(side.pad == 0 or count_include_pad for side in sides) and not any(
        side.beyond > side.pad for side in sides
    ):
        return r.ops.mul(x, 1.0 / prod(side.window for side in sides))
    count: Any = None
    for dim, side in enumerate(sides, x.ndim - len(sides)):
        each = along(r, side.counts(r, count_include_pad), dim, x.ndim)
        count = each if count is None else r.ops.mul(count, each)
    return r.ops.truediv(x, r.ops.cast(count, x.dtype.compute))


@_rows_of_images("avg_pool{rank}d.default")
def average_pool(
    r: Recording,
    rank: int,
    x: Any,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    sizes, made = known_sizes(r.sizes(x)), known_sizes(r.shape())
    sides = _sides(sizes, made, rank, kernel_size, stride, padding)
    _check_elements(x, prod(side.window for side in sides))
    total = reduce(r.ops.add, [value for _, value in _elements(r, x, sizes, sides, 0.0)])
    return _divided(r, total, sides, count_include_pad, divisor_override)


def _of_windows(r: Recording, dim: int, windows: Windows, side: _Side) -> Callable[[Any], Any]:
    """A step: the sum along a dimension over the windows that each element is in."""

    def step(x: Any) -> Any:
        (first, place), *others = terms(r, x, dim, windows, side.size, 0.0)
        if side.window % side.step:  # the first of them may end before the element
            own = r.ops.iota(side.size, side.pad, 1, DataType.Int)
            within = r.ops.lt(r.ops.sub(own, r.ops.mul(place, side.step)), side.window)
            first = r.ops.where(along(r, within, dim, x.ndim), first, 0.0)
        return reduce(r.ops.add, [first, *(value for value, _ in others)])

    return step


@_rows_of_images("avg_pool{rank}d_backward.default")
def average_pool_backward(
    r: Recording,
    rank: int,
    x: Any,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    count_include_pad: bool,
    divisor_override: int | None,
    **_: Any,
) -> Any:
    made, sizes = known_sizes(r.sizes(x)), known_sizes(r.shape())
    sides = _sides(sizes, made, rank, kernel_size, stride, padding)
    around = [side.around() for side in sides]
    _check_elements(x, 1)
    mean = _divided(r, x, sides, count_include_pad, divisor_override)
    steps = [
        (windows.most, _of_windows(r, dim, windows, side))
        for dim, (windows, side) in enumerate(zip(around, sides), len(sizes) - rank)
    ]
    return one_after_another(r, mean, steps)


# ---- adaptive pools ----------------------------------------------------------------------------------------


def _adaptive(size: int, made: int) -> Windows:
    """The elements of each window of a pool with so many windows: they overlap by part of an element."""
    starts = [i * size // made for i in range(made)]
    ends = [-(-(i + 1) * size // made) for i in range(made)]
    return windows_of(starts, ends, size, (size, made))


def _counts(r: Recording, windows: Windows, count: int) -> Any:
    """How many elements each window has; a number, where all have as many."""
    if windows.ends is None:
        return windows.most
    return r.ops.sub(windows.ends.line(r, count), windows.starts.line(r, count))


def _by_counts(r: Recording, x: Any, windows: Sequence[Windows], made: Sequence[int]) -> Any:
    """Divided by the number of elements of each window, one dimension after another, as torch does."""
    rank = x.ndim
    for dim, (each, count) in enumerate(zip(windows, made), rank - len(windows)):
        counts = _counts(r, each, count)
        if isinstance(counts, int):
            x = r.ops.truediv(x, float(counts)) if counts > 1 else x
        else:
            x = r.ops.truediv(x, along(r, r.ops.cast(counts, x.dtype.compute), dim, rank))
    return x


@row("_adaptive_avg_pool2d.default", "_adaptive_avg_pool3d.default")
def adaptive_average_pool(r: Recording, x: Any, output_size: Sequence[Any]) -> Any:
    sizes, made = known_sizes(r.sizes(x)), known_sizes(r.shape())
    rank = len(output_size)
    outer = x.ndim - rank
    if not any(size % n for size, n in zip(sizes[outer:], made[outer:])):
        apart, dims = sizes[:outer], []
        for size, n in zip(sizes[outer:], made[outer:]):
            dims.append(len(apart) + 1)
            apart += [n, size // n]
        return r.ops.mean(r.ops.reshape(x, apart), dims)
    windows = [_adaptive(size, n) for size, n in zip(sizes[outer:], made[outer:])]
    _check_elements(x, 1)
    total = one_after_another(r, x, _sums(r, windows, made, outer))
    return _by_counts(r, total, windows, made[outer:])


def _sums(
    r: Recording, windows: Sequence[Windows], made: Sequence[int], outer: int
) -> list[tuple[int, Callable[[Any], Any]]]:
    """A step for each of the dimensions from `outer` on, of which so many windows are made."""
    each = enumerate(zip(windows, made[outer:]), outer)
    return [(w.most, summed(r, dim, w, count)) for dim, (w, count) in each]


@_rows_of_images("_adaptive_avg_pool{rank}d_backward.default")
def adaptive_average_pool_backward(r: Recording, rank: int, x: Any, **_: Any) -> Any:
    made, sizes = known_sizes(r.sizes(x)), known_sizes(r.shape())
    outer = len(sizes) - rank
    pairs = list(zip(sizes[outer:], made[outer:]))
    # The windows that an element is in are found as those elements of a window are.
    around = [_adaptive(n, size) for size, n in pairs]
    _check_elements(x, 1)
    mean = _by_counts(r, x, [_adaptive(size, n) for size, n in pairs], made[outer:])
    return one_after_another(r, mean, _sums(r, around, sizes, outer))


@row("adaptive_max_pool2d.default", "adaptive_max_pool3d.default")
def adaptive_max_pool(r: Recording, x: Any, output_size: Sequence[Any]) -> Any:
    sizes, made = known_sizes(r.sizes(x)), known_sizes(r.shape(0))
    rank = len(output_size)
    outer = x.ndim - rank
    windows = [_adaptive(size, n) for size, n in zip(sizes[outer:], made[outer:])]
    _check_elements(x, prod(each.most for each in windows))
    found: list[tuple[Any, list[Any]]] = [(x, [])]
    for dim, (each, n) in enumerate(zip(windows, made[outer:]), outer):
        lowest = x.dtype.compute.lowest
        found = [
            (value, [*places, place])
            for values, places in found
            for value, place in terms(r, values, dim, each, n, lowest)
        ]
    pairs = ((value, _flat(r, places, sizes[outer:], x.ndim)) for value, places in found)
    most, place = _greatest(r, pairs)
    return most, r.ops.expand(place, r.shape(1))


@_rows_of_images("adaptive_max_pool{rank}d_backward.default")
def adaptive_max_pool_backward(r: Recording, rank: int, x: Any, indices: Any, **_: Any) -> Any:
    made, sizes = known_sizes(r.sizes(x)), known_sizes(r.shape())
    outer = len(sizes) - rank
    around = [_adaptive(n, size) for size, n in zip(sizes[outer:], made[outer:])]
    return _where_greatest(r, x, indices, made, sizes, around)
