"""Positions along one dimension that a result reads, as slices and quotients.

Kernels know more of these than of indices that are loaded: which are neighbours, and which are equal.

A definition has sizes that are numbers here, so that the positions are known when it is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from fusewright.core.dtype import DataType
from fusewright.torch_compile.rows import NotRecordable

if TYPE_CHECKING:
    from fusewright.torch_compile.recording import Recording

#: By how much positions go up: a numerator and a denominator.
Ratio = tuple[int, int]

#: Elements of a window from which on a pool is left to torch: each is an access of its own.
MOST_OF_WINDOW = 27


def known_sizes(sizes: Sequence[Any]) -> list[int]:
    """Sizes that are numbers, none of them 0."""
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        raise NotRecordable("sizes that are not known, or 0")
    return list(sizes)


@dataclass(frozen=True)
class Quotient:
    """(i * factor + offset) // divisor - back, for i from 0 on. The dividend is never negative."""

    factor: int
    offset: int
    divisor: int = 1
    back: int = 0

    def at(self, i: int) -> int:
        return (i * self.factor + self.offset) // self.divisor - self.back

    def line(self, r: Recording, count: int, shift: int = 0) -> Any:
        """Those of the first `count` positions, and `shift` more."""
        made = r.ops.iota(count, self.offset, self.factor, DataType.Int)
        if self.divisor > 1:
            made = r.ops.div(made, self.divisor)
        return r.ops.add(made, shift - self.back) if shift != self.back else made


def exact_quotient(table: Sequence[int], ratio: Ratio, end: int) -> Quotient | None:
    """The quotient that is `table` at its positions, if one of this ratio is, or more at `end`."""
    factor, divisor = ratio
    least = max(each * divisor - i * factor for i, each in enumerate(table))
    inside = [(i, each) for i, each in enumerate(table) if each < end]
    most = min(((each + 1) * divisor - 1 - i * factor for i, each in inside), default=least)
    offset = max(least, 0)
    return (
        Quotient(factor, offset, divisor)
        if offset <= max(most, 0) and _is(table, offset, ratio, end)
        else None
    )


def _is(table: Sequence[int], offset: int, ratio: Ratio, end: int) -> bool:
    found = Quotient(ratio[0], offset, ratio[1])
    return all(min(found.at(i), end) == each for i, each in enumerate(table))


def quotient_below(table: Sequence[int], ratio: Ratio) -> Quotient:
    """The largest quotient of this ratio that is nowhere above `table`."""
    factor, divisor = ratio
    offset = min((each + 1) * divisor - 1 - i * factor for i, each in enumerate(table))
    back = max(0, -(offset // divisor))
    return Quotient(factor, offset + back * divisor, divisor, back)


def along(r: Recording, line: Any, dim: int, rank: int) -> Any:
    """A line of numbers as a tensor of that rank, along a dimension."""
    return r.ops.broadcast(line, [i != dim for i in range(rank)])


def read(r: Recording, x: Any, sizes: Sequence[int], dim: int, table: Sequence[int], ratio: Ratio) -> Any:
    """The elements of `x`, of these sizes, at the positions of `table` along a dimension.

    NotRecordable: no quotient of this ratio is these positions.
    """
    step = table[1] - table[0] if len(table) > 1 else 1
    if step > 0 and all(b - a == step for a, b in pairwise(table)):
        if step == 1 and len(table) == sizes[dim]:
            return x
        starts = [table[0] if i == dim else 0 for i in range(len(sizes))]
        stops = [table[-1] + 1 if i == dim else size for i, size in enumerate(sizes)]
        return r.ops.slice(x, starts, stops, [step if i == dim else 1 for i in range(len(sizes))])
    last = sizes[dim] - 1
    found = exact_quotient(table, ratio, last)
    if found is None:
        raise NotRecordable("positions that are no multiples of a ratio")
    line = found.line(r, len(table))
    if found.at(len(table) - 1) > last:
        line = r.ops.minimum(line, last)
    return r.ops.index_select(x, line, dim)


@dataclass(frozen=True)
class Windows:
    """For each position of a result along a dimension the positions that it is a sum over.

    Attributes:
        starts: the first of them, or one before it.
        most: how many there are at most, from `starts` on.
        size: how many positions there are to read; others are none.
        ends: behind the last of them; None: all `most` of them count.
    """

    starts: Quotient
    most: int
    size: int
    ends: Quotient | None = None


def windows_of(starts: Sequence[int], ends: Sequence[int], size: int, ratio: Ratio) -> Windows:
    """Those from `starts` to `ends`, of `size` positions.

    NotRecordable: no quotient is these ends.
    """
    first = exact_quotient(starts, ratio, size)
    last = exact_quotient(ends, ratio, size)
    if first is None or last is None:  # of positions that torch rounds in float
        raise NotRecordable("windows that do not begin at multiples of a ratio")
    lengths = [end - start for start, end in zip(starts, ends)]
    same = min(lengths) == max(lengths)
    return Windows(first, max(lengths), size, None if same else last)


def terms(r: Recording, x: Any, dim: int, windows: Windows, count: int, fill: Any) -> list[tuple[Any, Any]]:
    """The first element of each window of `x` along a dimension, the second and so on, and their positions.

    What is in no window is `fill`, at positions that may be outside.
    """
    found = []
    for j in range(windows.most):
        place = windows.starts.line(r, count, j)
        inside: Any = None
        low, high = windows.starts.at(0) + j, windows.starts.at(count - 1) + j
        read_at = place
        if low < 0 or high >= windows.size:
            read_at = r.ops.clamp(place, 0, windows.size - 1)
            inside = r.ops.eq(place, read_at)
        if windows.ends is not None:
            before = r.ops.lt(place, windows.ends.line(r, count))
            inside = before if inside is None else r.ops.logical_and(inside, before)
        value = r.ops.index_select(x, read_at, dim)
        if inside is not None:
            value = r.ops.where(along(r, inside, dim, x.ndim), value, fill)
        found.append((value, place))
    return found


def one_after_another(r: Recording, x: Any, steps: Sequence[tuple[int, Callable[[Any], Any]]]) -> Any:
    """`x` after steps of which each reads so many elements for one of its result.

    Together they read the product of these. Where that is too many a kernel ends between two of them.
    NotRecordable: a step alone reads too many.
    """
    reads = 1
    for count, step in steps:
        if count > MOST_OF_WINDOW:
            raise NotRecordable("a large window")
        if reads * count > MOST_OF_WINDOW:
            x, reads = r.ops.segment_set(x), 1
        x, reads = step(x), reads * count
    return x


def summed(r: Recording, dim: int, windows: Windows, count: int) -> Callable[[Any], Any]:
    """A step: the sum of each window along a dimension."""
    return lambda x: reduce(r.ops.add, [value for value, _ in terms(r, x, dim, windows, count, 0.0)])
