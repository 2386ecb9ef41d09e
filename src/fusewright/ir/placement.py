"""Where the elements of a tensor stand in memory that another tensor lies in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
        """The elements that `index_map` names, at these sizes; None where no strides lead to them."""
        extents = [const(size) for size in shape]
        own = index_map.resized(lambda e: substitute(e, dict(sizes)), extents)
        if own.pred is not TRUE or own.index_numbers:
            return None
        places = positions(extents)
        address: Expr = const(self.offset)
        for index, stride in zip(own.indices, self.strides):
            address = address + index * stride
        moving = {place: i for i, place in enumerate(places) if isinstance(place, Symbol)}
        first = dict.fromkeys(moving, 0)
        offset = evaluate(address, first)
        strides: list[int | None] = [None] * len(places)
        straight: Expr = const(offset)
        for place, i in moving.items():
            stride = strides[i] = evaluate(address, {**first, place: 1}) - offset
            straight = straight + place * stride
            if stride < 0:
                return None
        if address - straight is not ZERO:
            return None
        return Placement(self.shape, self.strides, offset)._strided(shape, strides)

    def _strided(self, shape: Sequence[int], strides: Sequence[int | None]) -> Placement:
        """At this offset; a stride that is None goes past the dimension inside of it."""
        found: list[int] = []
        inside = 1
        for size, stride in zip(reversed(shape), reversed(strides)):
            found.append(inside if stride is None else stride)
            inside = size * found[-1]
        return Placement(tuple(shape), tuple(reversed(found)), self.offset)
