"""The bytes that are moved but not used when neighbouring threads access separate places.

Memory and the L2 cache move sectors of 32 bytes. Threads along a tensor's contiguous dimension use all of
each sector; along another dimension each element takes a whole sector. Later use of the rest of a sector by
other threads helps little, since the L2 cache then serves as many sectors. Other elements of the sector that
the same threads read are in the L1 cache: for example the components of points, each of which is read by
itself. A sector that is partly written is also read, so such stores count twice. (Measured on an H200: a
column sum that also writes its input's transpose, in two types and at six sizes, within a fifth.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import trunc

from fusewright.analyze.inputs import following_inputs
from fusewright.core.hardware import WARP_SIZE
from fusewright.core.once import cached_property
from fusewright.core.recorded import plain
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.index_map import IndexMap, position_of, value_of
from fusewright.ir.node import Indexed, Node, Stored
from fusewright.ir.value import TensorView
from fusewright.schedulers.base import Facts
from fusewright.schedulers.reference_map import Access
from fusewright.sym import Product, Symbol, evaluate

# Bytes of a sector, which memory and the L2 cache move as a whole.
SECTOR_BYTES = 32
# Bytes of a line of the L1 and L2 caches. The L1 cache looks up one line after the other for all threads of a
# warp's access.
LINE_BYTES = 128
# Slots of a thread for each line that its warp looks up besides those of an access to neighbours.
#   H200: with 24 such lines for a point 32 images of 224x224 pixels and three channels took 15 us besides the
#   launch.
LINE_SLOTS = 3.4
# Factor of the bytes of a sector of which a part is written: it is read and written.
PARTLY_WRITTEN = 2
# Bytes of a tensor up to which elements that are read by index again and again are in an SM's L1 cache.
CACHED_BYTES = 256 * 1024


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
        """Returns the sectors of accesses by threads that all go along the last of `axes`."""
        return cls(fusion, tuple([(access, tuple(axes)) for access in accesses]))

    def in_vain(self, facts: Facts) -> int:
        """Returns the bytes that are moved besides the accessed elements."""
        return sum(_in_vain(walks, facts) for walks in self._walks)

    def are_apart(self, access: Access, facts: Facts) -> bool:
        """Whether each element that neighbouring threads touch has a sector for itself."""
        walk = self._walk_of.get(id(access))
        if walk is None or facts.value(walk.axes[0].extent) < WARP_SIZE:
            return False
        step = walk.step(facts) * access.tensor.dtype.size
        return step >= SECTOR_BYTES or -step >= SECTOR_BYTES

    def more_lines(self, access: Access, facts: Facts, apart: int = 1) -> int:
        """Returns the number of lines that a warp's elements of one access are in, beyond those that as many
        neighbours fill.

        Args:
            apart: the places from the element of each thread to that of the next along the first axis.
        """
        walk = self._walk_of.get(id(access))
        if walk is None:
            return 0
        touched = walk.touched(facts, apart)[0]
        least = -(-len(touched) * access.tensor.dtype.size // LINE_BYTES)
        return max(0, len({place // LINE_BYTES for place in touched}) - least)

    @cached_property
    def _walk_of(self) -> dict[int, _Walk]:
        """By the identity of its access: equal ones may go through memory along other axes."""
        return {id(walk.access): walk for walks in self._walks for walk in walks}

    @cached_property
    def _walks(self) -> list[list[_Walk]]:
        """How threads go through tensors: loads of one tensor along the same axes are together."""
        aliases = {output.tensor: output.alias for output in self.fusion.outputs if output.alias is not None}
        positions = {value: i for i, value in enumerate(self.fusion.inputs)}
        loaded = following_inputs(self.fusion) if any(a.by_index for a, _ in self.accesses) else set()
        walks: dict[tuple[object, ...], list[_Walk]] = {}
        for access, axes in self.accesses:
            moved = tuple(axis for axis in reversed(axes) if axis in access.concrete)
            if moved:
                home = aliases.get(access.tensor, access.tensor)
                together = access.tensor, moved, access.node is None
                walks.setdefault(together, []).append(_Walk(access, moved, positions.get(home), loaded))
        return list(walks.values())


def _in_vain(walks: Sequence[_Walk], facts: Facts) -> int:
    """Returns the bytes that walks through one tensor move besides the elements that they touch."""
    touched: set[int] = set()
    most = 0.0  # bytes for each place among those of a warp
    for walk in walks:
        places, used = walk.touched(facts)
        touched |= places
        most = max(most, used / max(1, len(places)))
    size = walks[0].access.tensor.dtype.size
    if not touched or _follow_one_another(touched, size):
        return 0
    wasted = len({place // SECTOR_BYTES for place in touched}) * SECTOR_BYTES / (len(touched) * size)
    if wasted <= 1:
        return 0
    is_store = walks[0].access.node is None
    return trunc(most * len(touched) * (wasted * PARTLY_WRITTEN - 1 if is_store else wasted - 1))


def _follow_one_another(places: set[int], size: int) -> bool:
    """Whether elements of so many bytes at these places have nothing between them."""
    return max(places) - min(places) == (len(places) - 1) * size


@dataclass(frozen=True)
class _Walk:
    """How threads go through one tensor.

    Attributes:
        axes: the scheduler's axes along which other elements are touched, the fastest first.
        position: the position of the input that it is or is stored in; None for separate memory.
        loaded: the values computed with elements of inputs, if there are accesses by index.
    """

    access: Access
    axes: tuple[IterDomain, ...]
    position: int | None
    loaded: Collection[Node]

    def touched(self, facts: Facts, apart: int = 1) -> tuple[set[int], int]:
        """Returns where in memory, in bytes, a warp's first elements lie; and the bytes that all threads
        touch.

        Returns no places and 0 if the elements follow one another, as most do: nothing is moved in vain then.

        Args:
            apart: the places from the element of each thread to that of the next along the first axis.
        """
        tensor = self.access.tensor
        size, points = tensor.dtype.size, self._points.value(facts.sizes)
        used = min(points, self._elements.value(facts.sizes)) * size
        if used > CACHED_BYTES and any(map(self._reads_an_index, self._dims)):
            used = points * size
        if not used:
            return set(), 0  # and index maps divide by sizes
        strides = self._strides(facts)
        if apart == 1 and self._is_one_run(strides, facts):
            return set(), 0
        places = self._places(strides, facts, apart)
        return (set(), 0) if _follow_one_another(places, tensor.dtype.size) else (places, used)

    @cached_property
    def _points(self) -> Product:
        return Product(axis.extent for axis in self.axes)

    @cached_property
    def _elements(self) -> Product:
        return Product(a.extent for a in self.access.tensor.iterated if not a.is_broadcast)

    @cached_property
    def _elements_of_memory(self) -> Product:
        """The elements of the tensor's memory, which a store by index does not iterate over."""
        return Product(a.extent for a in self.access.tensor.shape if not a.is_broadcast)

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

    def _places(self, strides: Mapping[IterDomain, int], facts: Facts, apart: int) -> set[int]:
        """Returns where in memory, in bytes, a warp's first elements lie."""
        places = [self._first(strides, facts)]
        for axis in self.axes:
            every = apart if axis is self.axes[0] else 1
            count = plain(min(facts.value(axis.extent), every * -(-WARP_SIZE // len(places))))
            if count > 1:
                steps = self._steps(axis, count, strides, facts)[::every]
                places = [place + step for step in steps for place in places]
            if len(places) >= WARP_SIZE:
                break
        return {plain(place) * self.access.tensor.dtype.size for place in places}

    def _first(self, strides: Mapping[IterDomain, int], facts: Facts) -> int:
        """Returns where the first element lies, in elements."""
        if self._map is None:
            return 0
        first = _start(self._map, facts)
        own = zip(self.access.tensor.shape, self._map.indices)
        return sum(evaluate(e, first) * strides.get(ours, 0) for ours, e in own)

    def _strides(self, facts: Facts) -> Mapping[IterDomain, int]:
        """Returns the strides of the tensor's axes, in elements."""
        tensor = self.access.tensor
        if self.position is not None and facts.strides:
            return dict(zip(tensor.shape, facts.strides[self.position]))
        return dict(_dense_strides(tensor, facts))

    def _steps(
        self, axis: IterDomain, count: int, strides: Mapping[IterDomain, int], facts: Facts
    ) -> Sequence[int]:
        """Returns where the first `count` elements along an axis lie, in elements."""
        access = self.access
        index_map, dim = self._map, access.dims.get(axis)
        if index_map is None or dim is None:
            stride = plain(strides.get(access.axes.get(axis), 0))  # type: ignore[arg-type]
            return range(0, count * stride, stride) if stride else [0] * count
        if self._reads_an_index(axis):  # anywhere in the tensor
            elements = max(1, plain(self._elements_of_memory.value(facts.sizes)))
            return [step % elements for step in range(0, count * SECTOR_BYTES, SECTOR_BYTES)]
        own = [(e, strides.get(ours, 0)) for ours, e in zip(access.tensor.shape, index_map.indices)]
        first = _start(index_map, facts)
        symbols = {s for s in first if position_of(s) == dim or value_of(s) in self._indices_along(axis)}
        moving = [(e, stride) for e, stride in own if not symbols.isdisjoint(e.free_symbols)]

        def place(step: int) -> int:
            at = {**first, **dict.fromkeys(symbols, step)}
            return sum(evaluate(e, at) * stride for e, stride in moving)

        start, stride, last = place(0), place(1) - place(0), count - 1
        if place(last) == start + last * stride:
            return [step * stride for step in range(count)]
        return [place(step) - start for step in range(count)]

    def step(self, facts: Facts) -> int:
        """Returns the elements from one to the next along the first axis."""
        strides, axis = self._strides(facts), self.axes[0]
        if self._map is None or self.access.dims.get(axis) is None:
            return strides.get(self.access.axes.get(axis), 0)  # type: ignore[arg-type]
        return self._steps(axis, 2, strides, facts)[1]

    @property
    def _map(self) -> IndexMap | None:
        """Which element stands at which position, for an access by index."""
        node = self.access.node if self.access.node is not None else self.access.tensor.definition
        return node.map if self.access.by_index and isinstance(node, (Indexed, Stored)) else None

    def _reads_an_index(self, axis: IterDomain) -> bool:
        """Whether the elements along an axis are wherever the values of an input say.

        What is computed of positions alone, as that of a reflection, moves along as positions do.
        """
        definitions = [self._index_tensors[n].definition for n in self._indices_along(axis)]
        return any(node is None or node in self.loaded for node in definitions)

    def _indices_along(self, axis: IterDomain) -> list[int]:
        """Returns the numbers of the index tensors that differ along an axis."""
        dim = self.access.dims[axis]
        return [n for n, each in enumerate(self._index_tensors) if not each.shape[dim].is_broadcast]

    @property
    def _dims(self) -> list[IterDomain]:
        """The axes that are dimensions of the index map."""
        return [axis for axis in self.axes if axis in self.access.dims] if self._map is not None else []

    @property
    def _index_tensors(self) -> Sequence[TensorView]:
        node = self.access.node if self.access.node is not None else self.access.tensor.definition
        return getattr(node, "index_tensors", ())


def _start(index_map: IndexMap, facts: Facts) -> dict[Symbol, int]:
    """Returns the values of a map's symbols at the first position."""
    values: dict[Symbol, int] = {}
    for e in index_map.indices:
        for s in e.free_symbols:
            values[s] = facts.sizes.get(s, 0)
    return values


def _dense_strides(tensor: TensorView, facts: Facts) -> Iterator[tuple[IterDomain, int]]:
    """Yields the axes and strides of a tensor in memory of its own."""
    step = 1
    for axis in reversed(tensor.allocation):
        if not axis.is_broadcast and not axis.is_reduction:
            yield axis, step
            step *= facts.value(axis.extent)
