"""Bytes that accesses move in vain, where neighbouring threads touch places that lie apart.

Memory and the L2 cache move sectors of 32 bytes. Threads that go along a tensor's contiguous dimension use
all of each; along another dimension each element takes a sector of its own. That the rest of a sector is
wanted later, by other threads, helps little: the L2 cache then serves as many sectors. A sector that is
written in part is read as well, so such stores count twice. (Measured on an H200: a column
sum that also writes its input's transpose, in two types and at six sizes, within a fifth.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import trunc

from fusewright.core.hardware import WARP_SIZE
from fusewright.core.once import cached_property
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.index_map import IndexMap, position_of
from fusewright.ir.node import Indexed, Stored
from fusewright.ir.value import TensorView
from fusewright.schedulers.base import Facts
from fusewright.schedulers.reference_map import Access
from fusewright.sym import Product, Symbol, evaluate

SECTOR_BYTES = 32
# A sector of which a part is written is read and written.
PARTLY_WRITTEN = 2


@dataclass(frozen=True)
class Sectors:
    """The sectors that the accesses of one kernel touch.

    Attributes:
        accesses: each with the scheduler's axes in the order in which threads go through them, the fastest
            last.
    """

    fusion: Fusion
    accesses: tuple[tuple[Access, tuple[IterDomain, ...]], ...]

    @classmethod
    def along(cls, fusion: Fusion, accesses: Iterable[Access], axes: Sequence[IterDomain]) -> Sectors:
        """Of accesses that are all made by threads that go along the last of `axes`."""
        return cls(fusion, tuple([(access, tuple(axes)) for access in accesses]))

    def in_vain(self, facts: Facts) -> int:
        """Bytes that are moved besides the accessed elements."""
        return sum(each.in_vain(facts) for each in self._walks)

    @cached_property
    def _walks(self) -> list[_Walk]:
        aliases = {output.tensor: output.alias for output in self.fusion.outputs if output.alias is not None}
        positions = {value: i for i, value in enumerate(self.fusion.inputs)}
        walks = []
        for access, axes in self.accesses:
            moved = tuple(axis for axis in reversed(axes) if axis in access.concrete)
            if moved:
                home = aliases.get(access.tensor, access.tensor)
                walks.append(_Walk(access, moved, positions.get(home)))
        return walks


@dataclass(frozen=True)
class _Walk:
    """How threads go through one tensor.

    Attributes:
        axes: the scheduler's axes along which other elements are touched, the fastest first.
        position: of the input that it is or is stored in; None for memory of its own.
    """

    access: Access
    axes: tuple[IterDomain, ...]
    position: int | None

    def in_vain(self, facts: Facts) -> int:
        tensor = self.access.tensor
        used = min(self._points.value(facts.sizes), self._elements.value(facts.sizes)) * tensor.dtype.size
        if not used:
            return 0  # and index maps divide by sizes
        strides = self._strides(facts)
        if self._is_one_run(strides, facts):
            return 0  # as most are
        touched = self._touched(strides, facts)
        wasted = (
            len({place // SECTOR_BYTES for place in touched})
            * SECTOR_BYTES
            / (len(touched) * tensor.dtype.size)
        )
        are_one_run = max(touched) - min(touched) == (len(touched) - 1) * tensor.dtype.size
        if wasted <= 1 or are_one_run or len(touched) < WARP_SIZE:
            return 0
        is_store = self.access.node is None
        return trunc(used * (wasted * PARTLY_WRITTEN - 1 if is_store else wasted - 1))

    @cached_property
    def _points(self) -> Product:
        return Product(axis.extent for axis in self.axes)

    @cached_property
    def _elements(self) -> Product:
        return Product(a.extent for a in self.access.tensor.iterated if not a.is_broadcast)

    def _is_one_run(self, strides: Mapping[IterDomain, int], facts: Facts) -> bool:
        """Whether a warp's elements are known to follow one another in memory, by their strides alone."""
        if self._map is not None:
            return False
        length = 1
        for axis in self.axes:
            extent = facts.value(axis.extent)
            if extent > 1 and strides.get(self.access.axes.get(axis)) != length:  # type: ignore[arg-type]
                return False
            length *= extent
            if length >= WARP_SIZE:
                break
        return True

    def _touched(self, strides: Mapping[IterDomain, int], facts: Facts) -> set[int]:
        """Where in memory, in bytes, a warp's first elements lie, counted from the first."""
        places = [0]
        for axis in self.axes:
            count = min(facts.value(axis.extent), -(-WARP_SIZE // len(places)))
            if count > 1:
                steps = self._steps(axis, count, strides, facts)
                places = [place + step for step in steps for place in places]
            if len(places) >= WARP_SIZE:
                break
        return {place * self.access.tensor.dtype.size for place in places}

    def _strides(self, facts: Facts) -> Mapping[IterDomain, int]:
        """Of the tensor's axes, in elements."""
        tensor = self.access.tensor
        if self.position is not None and facts.strides:
            return dict(zip(tensor.shape, facts.strides[self.position]))
        return dict(_dense_strides(tensor, facts))

    def _steps(
        self, axis: IterDomain, count: int, strides: Mapping[IterDomain, int], facts: Facts
    ) -> Sequence[int]:
        """Where the first `count` elements along an axis lie, in elements."""
        access = self.access
        index_map, dim = self._map, access.dims.get(axis)
        if index_map is None or dim is None:
            stride = strides.get(access.axes.get(axis), 0)  # type: ignore[arg-type]
            return range(0, count * stride, stride) if stride else [0] * count
        if self._reads_an_index(axis):
            return range(0, count * SECTOR_BYTES, SECTOR_BYTES)
        own = [(e, strides.get(ours, 0)) for ours, e in zip(access.tensor.shape, index_map.indices)]
        moving = [(e, stride) for e, stride in own if any(position_of(s) == dim for s in e.free_symbols)]
        first = _start(index_map, facts)
        symbols = [s for s in first if position_of(s) == dim]

        def place(step: int) -> int:
            at = {**first, **dict.fromkeys(symbols, step)}
            return sum(evaluate(e, at) * stride for e, stride in moving)

        start, stride, last = place(0), place(1) - place(0), count - 1
        if place(last) == start + last * stride:
            return [step * stride for step in range(count)]
        return [place(step) - start for step in range(count)]

    @property
    def _map(self) -> IndexMap | None:
        """Which element stands at which position, for an access by index."""
        node = self.access.node if self.access.node is not None else self.access.tensor.definition
        return node.map if self.access.by_index and isinstance(node, (Indexed, Stored)) else None

    def _reads_an_index(self, axis: IterDomain) -> bool:
        """Whether the elements along an axis are wherever the values of an index tensor say."""
        node = self.access.node if self.access.node is not None else self.access.tensor.definition
        tensors = getattr(node, "index_tensors", ())
        dim = self.access.dims[axis]
        return any(not tensor.shape[dim].is_broadcast for tensor in tensors)


def _start(index_map: IndexMap, facts: Facts) -> dict[Symbol, int]:
    """The values of what a map is made of at the first position."""
    values: dict[Symbol, int] = {}
    for e in index_map.indices:
        for s in e.free_symbols:
            values[s] = facts.sizes.get(s, 0)
    return values


def _dense_strides(tensor: TensorView, facts: Facts) -> Iterator[tuple[IterDomain, int]]:
    """The strides of a tensor in memory of its own."""
    step = 1
    for axis in reversed(tensor.allocation):
        if not axis.is_broadcast and not axis.is_reduction:
            yield axis, step
            step *= facts.value(axis.extent)
