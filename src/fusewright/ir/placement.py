"""Where the elements of one tensor are in the memory of another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from fusewright.core.recorded import followed
from fusewright.ir.index_map import IndexMap, positions
from fusewright.sym import TRUE, ZERO, Expr, Symbol, const, evaluate, substitute


@dataclass(frozen=True, slots=True)
class Placement:
    """Sizes, strides and the offset of the first element, in elements, as torch's `as_strided` takes them."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    def relabeled(self, dims: Sequence[int | None], shape: Sequence[int]) -> Placement:
        """Dimension i is dimension dims[i] of this, or a new one of size 1, as torch's unsqueeze makes it."""
        return self._strided(shape, [None if dim is None else self.strides[dim] for dim in dims])

    def expanded(self, shape: Sequence[int]) -> Placement:
        """Dimensions of one element shown at another size."""
        pairs = zip(self.shape, shape, self.strides)
        return self._strided(shape, [0 if own == 1 != shown else stride for own, shown, stride in pairs])

    def indexed(
        self, index_map: IndexMap, shape: Sequence[int], sizes: Mapping[Symbol, int]
    ) -> Placement | None:
        """The elements that `index_map` names, at these sizes; None if strides cannot describe them."""
        place = partial(_linear, index_map, tuple(sizes))
        own = self.strides, self.offset
        is_linear, offset, *strides = followed(place, *own, tuple(shape), tuple(sizes.values()))
        return Placement(tuple(shape), tuple(strides), offset) if is_linear else None

    def _strided(self, shape: Sequence[int], strides: Sequence[int | None]) -> Placement:
        """At this offset; a stride that is None goes past the dimension inside of it."""
        return Placement(tuple(shape), _filled(shape, strides), self.offset)


def _linear(
    index_map: IndexMap,
    symbols: Sequence[Symbol],
    strides: Sequence[int],
    offset: int,
    shape: Sequence[int],
    sizes: Sequence[int],
) -> tuple[int, ...]:
    """Whether strides lead to the elements that `index_map` names of a tensor with these; if they do, the
    offset and strides of what they make.

    symbols, sizes: what its expressions are about.
    """
    none = (False, 0, *(0 for _ in shape))
    extents = [const(size) for size in shape]
    values = dict(zip(symbols, sizes))
    own = index_map.resized(lambda e: substitute(e, values), extents)
    if own.pred is not TRUE or own.index_numbers:
        return none
    places = positions(extents)
    address: Expr = const(offset)
    for index, stride in zip(own.indices, strides):
        address = address + index * stride
    moving = {place: i for i, place in enumerate(places) if isinstance(place, Symbol)}
    start = dict.fromkeys(moving, 0)
    first = evaluate(address, start)
    found: list[int | None] = [None] * len(places)
    straight: Expr = const(first)
    for place, i in moving.items():
        step = found[i] = evaluate(address, {**start, place: 1}) - first
        straight = straight + place * step
        if step < 0:
            return none
    if address - straight is not ZERO:
        return none
    return True, first, *_filled(shape, found)


def _filled(shape: Sequence[int], strides: Sequence[int | None]) -> tuple[int, ...]:
    """Strides of which one that is None goes past the dimension inside of it."""
    found: list[int] = []
    inside = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        found.append(inside if stride is None else stride)
        inside = size * found[-1]
    return tuple(reversed(found))
