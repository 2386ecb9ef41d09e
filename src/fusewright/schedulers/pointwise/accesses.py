"""The loads and stores of a pointwise kernel: which come from memory, which from the caches, and what the
threads of a kernel share of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from fusewright.analyze.vectorize import unit_stride_axis
from fusewright.core.once import cached_property
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Pointwise
from fusewright.ir.value import TensorView, Val
from fusewright.ops.elementwise import CAST
from fusewright.schedulers.base import Facts
from fusewright.schedulers.merged_vectors import (
    CACHED_COST,
    MANY_IN_A_WINDOW,
    count_needed,
    is_cached,
    parts_of_joins,
    spared_parts,
)
from fusewright.schedulers.pointwise.row_windows import rows_loaded
from fusewright.schedulers.pointwise.space import PointwiseSpace
from fusewright.schedulers.reference_map import Access
from fusewright.schedulers.sectors import Sectors
from fusewright.schedulers.vector_limits import Vectors

# An input of so many times fewer elements than are computed, which is read by index, comes from the caches.
#   H200, 16384x4096 int4 with a scale for each group of 128 elements: 0.55 of the time.
READ_AGAIN = 16
# Loads by element, of every so many-th element, from which on there are no vectors: each load touches as many
# lines as a vector is wide.
#   H200, pools: of 2 x 2 elements 28.1 us by element, 31.4 by vectors of 4; of 3 x 3 31.1 and 44.7.
MANY_BY_ELEMENT = 4
# Loads of one tensor, at several places, from which on the CUDA compiler computes with the first before it
# issues the last: about half of them are in registers at once.
#   NVRTC, two vectors of 4 floats a thread: windows of 4, 7, 8, 9 and 25 places take 32, 32, 48, 32 and 98
#   registers.
LOADS_OF_A_WINDOW = 4


@dataclass(frozen=True, eq=False)
class PointwiseAccesses:
    """The accesses of a kernel that goes over a space, sorted by what matters to vectors and threads."""

    fusion: Fusion
    space: PointwiseSpace

    @cached_property
    def all(self) -> list[Access]:
        return self.space.accesses(self.fusion)

    @cached_property
    def concrete(self) -> list[Access]:
        """The accesses that are no broadcast of one element."""
        return [access for access in self.all if access.concrete]

    @cached_property
    def sectors(self) -> Sectors:
        return Sectors.along(self.fusion, self.all, self.space.axes)

    @cached_property
    def innermost(self) -> IterDomain | None:
        """The dimension of the reference along which vectors run."""
        reference = self.space.reference
        if not reference.is_placed:
            return unit_stride_axis(reference)
        return next((axis for axis in reversed(reference.maybe_root) if not axis.is_broadcast), None)

    @cached_property
    def points(self) -> list[IterDomain]:
        """The dimensions of more than one point."""
        return [axis for axis in self.space.axes if not axis.is_broadcast]

    def count_points(self, facts: Facts) -> int:
        """Returns the number of elements that are computed."""
        return _elements(self.space.axes, facts)

    # ---- loads and stores of every point ----

    @cached_property
    def full_loads(self) -> list[Access]:
        inputs = (access for access in self.all if self.fusion.is_input(access.tensor))
        return [access for access in inputs if access.concrete.issuperset(self.points)]

    @cached_property
    def bytes_of_point(self) -> int:
        """The bytes of an element of all loads and stores of every point. Of a join's parts it has
        those that it needs, most often one.

        H200, 16 parts of 16384x4096 floats: 130 us in 32 registers, with four vectors of 4 in flight.
        """
        return sum(a.tensor.dtype.size for a in self._apart) + self._bytes_of_parts

    @cached_property
    def bytes_in_registers(self) -> int:
        """Those of `bytes_of_point` that are in registers at once: also all of a window if several values are
        computed of each of its elements, or if these are parts of joins.

        NVRTC, vectors of 4 floats: 16 elements of steps towards the mean take 80 registers, 32 parts 145; two
        vectors of 21 parts 240.
        """
        times = Counter(a.tensor for a in self._apart)
        again = {a.tensor for a in self._apart if a.by_index and a.node and _is_needed_again(a.node.output)}
        held = {
            tensor: n if n < LOADS_OF_A_WINDOW or tensor in again else n // 2 + 1
            for tensor, n in times.items()
        }
        return sum(n * tensor.dtype.size for tensor, n in held.items()) + self._bytes_of_parts

    @cached_property
    def _apart(self) -> list[Access]:
        """The loads and stores of every point, without a join's parts."""
        parts = self._parts_of_points
        return [a for a in self.all if a.concrete.issuperset(self.points) and a not in parts]

    @cached_property
    def _parts_of_points(self) -> list[Access]:
        return parts_of_joins(self.fusion, [a for a in self.all if a.concrete.issuperset(self.points)])

    @cached_property
    def _bytes_of_parts(self) -> int:
        """Those of the parts that an element needs."""
        parts = self._parts_of_points
        return count_needed(self.fusion, parts) * max((a.tensor.dtype.size for a in parts), default=0)

    @cached_property
    def stores_narrower(self) -> bool:
        """Whether every result is narrower than everything that is loaded for each point."""
        loaded = [access.tensor.dtype.size for access in self.full_loads]
        return max((out.dtype.size for out in self.fusion.output_tensors()), default=0) < min(
            loaded, default=0
        )

    @cached_property
    def has_neighbours(self) -> bool:
        """Whether an element needs several of one input, all of which are no parts to choose one from."""
        loads = self.full_loads
        chosen = parts_of_joins(self.fusion, loads)
        return len({access.tensor for access in loads}) < len(loads) != len(chosen)

    def loaded_bytes(self, vectors: Vectors, dim: int, shifted: bool, facts: Facts) -> int:
        """Returns the bytes of an element of all loads that come from memory, not from the caches.

        Vectors that start at any element count twice, as each is chosen from two, unless neighbours share
        those.

        Args:
            dim: the dimension whose size vectors divide; -1: the innermost.
            shifted: whether vectors start at aligned addresses of each row.
        """
        loads = [a for a in self.full_loads if not (self.is_cached(a, facts) or self._is_small(a, facts))]
        if vectors.keeps_aligned or (vectors.unaligned and self.has_neighbours and not shifted):
            rows = rows_loaded(loads, self.space.axes, self.innermost)
            return sum(tensor.dtype.size for tensor, _ in rows)
        if vectors.width == 1 and not self.are_apart(facts):
            # Most loads of a window come from the L1 cache.
            #   H200, eleven taps by element: 39 us with two windows in flight, 44 with four.
            counts = Counter(access.tensor for access in loads)
            return sum(tensor.dtype.size * min(n, MANY_IN_A_WINDOW) for tensor, n in counts.items())
        twice = sum(self.fusion.inputs[position].dtype.size for position in vectors.unaligned)
        # Parts that vectors through several dimensions do not go through are loaded by element, where chosen.
        #   H200, nine parts of a circular pad: 35 us with two vectors each, 44 with one, 36 with four.
        parts = parts_of_joins(self.fusion, loads) if dim != -1 else []
        of_parts = 2 * max((a.tensor.dtype.size for a in parts), default=0)
        return sum(a.tensor.dtype.size for a in loads if a not in parts) + of_parts + twice

    def count_from_anywhere(self, vectors: Vectors) -> int:
        """Returns how many loads are vectors that may start at any element."""
        inputs = [self.fusion.inputs[position] for position in vectors.unaligned]
        return sum(access.tensor in inputs for access in self.full_loads)

    def loads_of_parts(self, vectors: Vectors) -> int:
        """Returns how many loads a vector of joined parts takes: two for a part that may start anywhere."""
        inputs = [self.fusion.inputs[position] for position in vectors.unaligned]
        parts = parts_of_joins(self.fusion, self.full_loads)
        return len(parts) + sum(access.tensor in inputs for access in parts)

    # ---- loads that come from the caches ----

    def count_from_memory(self, facts: Facts) -> float:
        """Returns the number of accesses, of which those that come from the caches count for a part, and all
        parts of which an element needs one for one.
        """
        cached = sum(self.is_cached(access, facts) for access in self.concrete)
        return len(self.concrete) - (1 - CACHED_COST) * cached - self._spared_parts

    def is_cached(self, access: Access, facts: Facts) -> bool:
        """Whether an input is read that has few elements, each of them again and again."""
        if access not in self._indexed_inputs:
            return access in self.broadcast_loads
        return access not in self._parts and self._is_small(access, facts)

    def _is_small(self, access: Access, facts: Facts) -> bool:
        """Whether an input has few elements; where it is no part of a join, each is read again and again."""
        return _elements(access.tensor.shape, facts) * READ_AGAIN <= self.count_points(facts)

    @cached_property
    def broadcast_loads(self) -> frozenset[Access]:
        return frozenset(a for a in self.all if is_cached(self.fusion, a, self.space.axes))

    @cached_property
    def _spared_parts(self) -> int:
        return spared_parts(self.fusion, self._parts)

    @cached_property
    def _parts(self) -> list[Access]:
        return parts_of_joins(self.fusion, self.all)

    @cached_property
    def _indexed_inputs(self) -> frozenset[Access]:
        """The loads by index that are no broadcasts, but for those by index tensors."""
        found = (a for a in self.all if a.by_index and self.fusion.is_input(a.tensor))
        return frozenset(a for a in found if not a.is_gathered and a not in self.broadcast_loads)

    # ---- loads that are no vectors ----

    def by_element(self, facts: Facts) -> list[Access]:
        """Returns the loads that are no vectors, whatever the sizes, except those from the caches."""
        return [access for access in self._single_loads if not self.is_cached(access, facts)]

    def cached_by_element(self, facts: Facts) -> list[Access]:
        """Returns those from the caches, which set no limit on the vectors of others."""
        return [access for access in self._single_loads if self.is_cached(access, facts)]

    @cached_property
    def _single_loads(self) -> list[Access]:
        inner = self.innermost
        units = ((access, unit_stride_axis(access.tensor)) for access in self._loads)
        return [a for a, unit in units if unit is None or inner is None or a.axes.get(inner) is not unit]

    @property
    def count_by_element(self) -> int:
        """The number of loads by element, whether from memory or from the caches."""
        return len(self._single_loads)

    def are_apart(self, facts: Facts, among: Sequence[Access] | None = None) -> bool:
        """Whether many loads by element (or of those `among` them) are of neighbours that lie apart."""
        points = self.count_points(facts)
        loads = self.by_element(facts) if among is None else among
        apart = (_elements(access.tensor.shape, facts) > points for access in loads)
        return sum(apart) >= MANY_BY_ELEMENT

    def have_a_sector_each(self, facts: Facts) -> bool:
        """Whether each load of a thread takes a sector of memory, so that vectors would only spread a warp's.

        H200, bf16, by element and in vectors of 4, us: every sixteenth element of 16384x8192 75 and 94; a
        column of each of 4096 matrices of 256x64 28.3 and 32.9; diagonals of as many of 128x128 21.0 and
        22.4.
        """
        loads = [a for a in self.full_loads if not a.is_gathered]
        return any(loads) and all(self.sectors.are_apart(a, facts) for a in loads)

    @cached_property
    def gathers(self) -> bool:
        """Whether an access is by index tensors."""
        return any(each.is_gathered for each in self.all)

    def gathers_elements(self, facts: Facts) -> bool:
        """Whether a load by element is by index tensors."""
        return any(each.is_gathered for each in self.by_element(facts))

    # ---- what rows have in common ----

    @cached_property
    def broadcasts(self) -> list[Sequence[bool]]:
        """For each load that is a broadcast along some dimensions, not along all: along which of them it has
        all points.
        """
        reads = (access.concrete for access in self.all if self.fusion.is_input(access.tensor))
        loads = [[axis.is_broadcast or axis in read for axis in self.space.axes] for read in reads]
        return [present for present in loads if any(present) and not all(present)]

    def rows_share_elements(self, break_point: int) -> bool:
        """Whether what the rows of a thread share is loaded element by element."""
        columns, inner = frozenset(self.space.axes[break_point:]), self.innermost
        shared = [access for access in self._common(columns) if access.concrete]
        units = ((access, unit_stride_axis(access.tensor)) for access in shared)
        return any(inner in a.concrete and a.axes.get(inner) is not unit for a, unit in units)

    def rows_share_most(self, break_point: int) -> bool:
        """Whether rows load more bytes that they have in common than bytes of their own, all along."""
        columns = frozenset(self.space.axes[break_point:])
        others = (a for a in self._loads if not a.concrete <= columns)
        own = {access.tensor for access in others if not columns.isdisjoint(access.concrete)}
        return sum(a.tensor.dtype.size for a in self._common(columns)) > sum(t.dtype.size for t in own)

    def bytes_common_to_rows(self, break_point: int, facts: Facts) -> int:
        """Returns the bytes of what all rows load. Parts of one input, which may overlap, are at most it."""
        read: Counter[TensorView] = Counter()
        for access in self._common(frozenset(self.space.axes[break_point:])):
            read[access.tensor] += _elements([*access.concrete], facts)
        return sum(
            min(count, _elements(tensor.shape, facts)) * tensor.dtype.size for tensor, count in read.items()
        )

    def _common(self, columns: frozenset[IterDomain]) -> list[Access]:
        """The loads that are the same for all rows. Several parts of one input are several."""
        return [access for access in self._loads if access.concrete <= columns]

    @cached_property
    def _loads(self) -> list[Access]:
        """The loads that are not the same at all points."""
        return [access for access in self.concrete if self.fusion.is_input(access.tensor)]


def _is_needed_again(value: Val) -> bool:
    """Whether more than one node computes with a value, itself or in another type."""
    while len(value.uses) == 1 and isinstance(value.uses[0], Pointwise) and value.uses[0].op is CAST:
        value = value.uses[0].output
    return len(value.uses) > 1


def _elements(axes: Sequence[IterDomain], facts: Facts) -> int:
    return prod(facts.value(axis.extent) for axis in axes if not axis.is_broadcast)
