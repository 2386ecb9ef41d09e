"""Chooses whether the dimensions of a pointwise kernel become one row, rows and columns, or tiles, and the
vectors of each.

The cut of the fewest accesses per element wins. What counts as an access: a vector, or a part of one where
the caches serve it, and the division of the index of a broadcast input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from fusewright.core.hardware import HardwareInfo
from fusewright.core.once import cached_property
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Choose, Iota, Random
from fusewright.ir.value import TensorView
from fusewright.schedulers.base import Facts
from fusewright.schedulers.cost import CostModel
from fusewright.schedulers.merged_vectors import MergedVectorLimits, mixed_width
from fusewright.schedulers.pointwise.accesses import PointwiseAccesses
from fusewright.schedulers.pointwise.arithmetic import PointwiseArithmetic
from fusewright.schedulers.pointwise.blocks import MAX_ACCESSES_IN_FLIGHT, THREADS
from fusewright.schedulers.pointwise.cut import Cut, broadcasts_served
from fusewright.schedulers.pointwise.planes import Planes, find_planes
from fusewright.schedulers.pointwise.row_windows import RowWindows, find_row_windows
from fusewright.schedulers.pointwise.space import PointwiseSpace
from fusewright.schedulers.pointwise.tiles import Tile, tile_of
from fusewright.schedulers.reference_map import Access
from fusewright.schedulers.shifted_rows import ShiftedRows, is_narrow
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_most
from fusewright.schedulers.vector_limits import (
    UNALIGNED_COST,
    VectorLimits,
    Vectors,
    picked_width,
    shared_width,
)

# Cost of dividing the index of an access to a broadcast input, in accesses. Rows and columns save it, but
# leave threads idle beyond a row's end.
#   H200, bf16 and a bias, of a copy's speed: rows of 768, which take three of four threads, 1.09 as rows;
#   rows of 640 1.06 as one dimension; rows of 128 1.05 as one dimension, 0.52 as rows.
DIVIDED_COST = 1.0
# Factor by which another cut may have more accesses than the best, if it computes fewer values again.
SIMILAR_COST = 1.05
# Elements that a thread has of all planes of a join at most, each with registers of its own.
MAX_ELEMENTS_OF_PLANES = 16
# Elements of vectors that start anywhere, and of which a row's last are there in part, that a thread loads at
# most: each has code of its own. Where there are more, elements are loaded in pairs, one by one, if rows have
# whole pairs, else in narrower vectors.
#   H200, bf16: 1024x1024 without its border, by vectors of 8, of 4, and by pairs, us: five neighbours 54, 44
#   and 34, nine 88, 57 and 40. Three of 8192x4096: 45, 48 and 44.
MAX_SHIFTED_ELEMENTS = 36  # of a thread
# The same of a join's parts where some start anywhere, which are loaded twice. A thread has code and
# registers for each part, and needs one.
#   H200, 16 misaligned parts, joined to 16384x4096: float 648 us by vectors of 4, 132 by element; bf16 253 by
#   vectors of 8, 80 by element. Three parts of 2048 bf16: 38.5 us by vectors of 4, 45.0 by element.
MAX_ELEMENTS_OF_PARTS = 64  # of a thread
PAIR = 2  # elements


@dataclass(frozen=True, eq=False)
class CutChoice:
    """Chooses for the kernels of one fusion.

    Attributes:
        cost: the cost of the fusion's memory traffic.
    """

    fusion: Fusion
    space: PointwiseSpace
    accesses: PointwiseAccesses
    arithmetic: PointwiseArithmetic
    cost: CostModel

    def best(self, sizes: Sequence[int], facts: Facts, hardware: HardwareInfo) -> Cut:
        """Returns the cut of a call: at the planes of a join if these fill blocks, else that of the fewest
        accesses, or of no more where a thread's rows share more of what takes long.
        """
        planes = self._at_planes(sizes, facts)
        if planes is not None:
            return planes
        usual = min((self._cut(at, sizes, facts) for at in self._cuts), key=lambda cut: cut.cost)
        memory = self.cost.moving_seconds(facts, hardware)
        if not self.arithmetic.repeats_long(facts, hardware, memory, usual.at, usual.vectors.width):
            return usual
        others = [self._cut(at, sizes, facts) for at in range(1, len(sizes)) if at not in self._cuts]
        as_cheap = [usual, *(cut for cut in others if cut.cost <= SIMILAR_COST * usual.cost)]
        most = MAX_ACCESSES_IN_FLIGHT
        return min(as_cheap, key=lambda c: self.arithmetic.slots(facts, c.at, most, c.vectors.width))

    def tiled(self, cut: Cut, sizes: Sequence[int], facts: Facts) -> tuple[Tile, Cut] | None:
        """Returns a tile for each block, and the cut with the vectors of its rows, where an input has short
        runs of memory along the columns; else None.
        """
        if cut.at or self.space.reference.is_placed:
            return None
        within = cut
        if cut.dim != -1 or cut.shifts or cut.vectors.unaligned:
            width = self._vectors.width(facts) if self._vectors is not None else 1
            if width > 1:
                return None
            within = replace(cut, vectors=Vectors(1, (), cut.vectors.cost), dim=-1, shifts=False)
        for access in self.accesses.full_loads:
            tile = tile_of(access, self.space.axes, sizes, within.vectors.width)
            if tile is not None:
                return tile, within
        return None

    def vectors_of(self, cut: Cut, sizes: Sequence[int], hardware: HardwareInfo) -> tuple[Vectors, bool]:
        """Returns the vectors of a cut, and whether those at the ends of rows are there in part: the cut's
        own, unless shifted ones would have too much code for so many or so few elements.
        """
        vectors, shifted = cut.vectors, cut.shifts
        if shifted and vectors.width * self.accesses.count_from_anywhere(vectors) > MAX_SHIFTED_ELEMENTS:
            vectors, shifted = self._narrower(vectors, sizes)
        if shifted and prod(sizes) <= THREADS * hardware.sm_count:
            # A thread for each element: the code of vectors that are there in part takes longer than more
            # accesses.
            #   H200, in the kernel: 1155 elements take 1.1 us, 1.5 in vectors of 8.
            vectors, shifted = Vectors(1, (), vectors.cost), False
        return vectors, shifted

    def windows_at(self, at: int) -> RowWindows:
        """Returns the rows that neighbouring rows of a cut load as well."""
        return self._windows[at]

    # ---- cuts ----

    @cached_property
    def _cuts(self) -> list[int]:
        """The dimensions before which rows may end: 0 (one row), and those that serve the most inputs."""
        broadcasts = self.accesses.broadcasts
        served = {at: broadcasts_served(broadcasts, at) for at in range(1, len(self.space.axes))}
        most = max(served.values(), default=0)
        best = (at for at, count in served.items() if count == most > 0)
        return sorted({0, *best, *self._windows})

    def _cut(self, at: int, sizes: Sequence[int], facts: Facts) -> Cut:
        """Returns the vectors of the fewest accesses for rows and columns cut at `at`, and what they cost."""
        vectors, dim = self._vectors_at(at, facts)
        # Where vectors start at any element, or some accesses are of single ones, those tell.
        narrowest = vectors.width if vectors.cost * vectors.width <= len(self.accesses.concrete) else 1
        if at:
            return self._rows_and_columns(at, vectors, dim, narrowest, sizes, facts)
        return self._one_row(vectors, dim, narrowest, facts)

    def _one_row(self, vectors: Vectors, dim: int, narrowest: int, facts: Facts) -> Cut:
        """Returns the cut of all dimensions as one row, in these vectors or in shifted ones."""
        broadcasts = self.accesses.broadcasts
        flat = self._flat.vectors(facts) if self._flat is not None else None
        shifts = flat is not None and flat.cost < vectors.cost and is_narrow(narrowest, flat)
        found = flat if flat is not None and shifts else vectors
        cost = found.cost + DIVIDED_COST * len(broadcasts) / found.width
        why = "by which broadcast inputs are indexed" if broadcasts else "as no input is a broadcast"
        return Cut(0, f"one dimension, {why}", found, -1 if shifts else dim, shifts, 1.0, cost)

    def _rows_and_columns(
        self, at: int, vectors: Vectors, dim: int, narrowest: int, sizes: Sequence[int], facts: Facts
    ) -> Cut:
        """Returns the cut at a dimension, in these vectors or in shifted ones."""
        broadcasts = self.accesses.broadcasts
        served = broadcasts_served(broadcasts, at)
        shifted = self._rows.vectors(facts) if self._rows is not None and at == len(sizes) - 1 else None
        shifts = shifted is not None and not shifted.unaligned and is_narrow(narrowest, shifted)
        if shifted is not None and shifts:
            vectors, dim = shifted, -1
        columns, a_block = prod(sizes[at:]), THREADS * vectors.width
        busy = columns / (ceil_div(max(1, columns), a_block) * a_block)
        why = f"rows and columns cut at {at}, which serves {served} broadcast inputs"
        divided = DIVIDED_COST * (len(broadcasts) - served) / vectors.width
        rows = self._rows_that_share(at, vectors, shifts)
        shared = self._windows[at].saved(rows) / vectors.width if rows > 1 else 0.0
        cost = (vectors.cost + divided - shared) / max(busy, 1 / a_block)
        why += f", and {rows} rows share loads" if rows > 1 else ""
        return Cut(at, why, vectors, dim, shifts, busy, cost, rows=rows)

    def _at_planes(self, sizes: Sequence[int], facts: Facts) -> Cut | None:
        """Returns the cut whose rows are the planes of a join, all of them for each thread; None where there
        are none, or columns do not fill blocks.
        """
        planes = self._planes
        if planes is None:
            return None
        vectors, dim = self._vectors_at(planes.at, facts, self.space.axes[planes.at - 1])
        width = min(vectors.width, MAX_ELEMENTS_OF_PLANES // planes.count)
        vectors = replace(vectors, width=power_of_two_at_most(max(1, width)))
        if prod(sizes[planes.at :]) < THREADS * vectors.width:
            return None
        why = f"{planes.count} planes of a join, cut at {planes.at}"
        return Cut(planes.at, why, vectors, dim, False, 1.0, vectors.cost, planes.count)

    @cached_property
    def _planes(self) -> Planes | None:
        return find_planes(self.fusion, self.space, self.accesses.concrete)

    @cached_property
    def _windows(self) -> dict[int, RowWindows]:
        return find_row_windows(self.fusion, self.space.axes, self.accesses.full_loads)

    def _rows_that_share(self, at: int, vectors: Vectors, shifts: bool) -> int:
        """Returns how many rows a thread has for loads of neighbours in them to be one. Vectors that start
        anywhere, or are there in part, have code of their own in each row.
        """
        windows = self._windows.get(at)
        return 1 if windows is None or vectors.unaligned or shifts else windows.rows(vectors.width)

    # ---- vectors ----

    @cached_property
    def _vectors(self) -> VectorLimits | None:
        inner, accesses = self.accesses.innermost, self.accesses
        if inner is None:
            return None
        return VectorLimits(self.fusion, inner, accesses.all, split=accesses.broadcast_loads)

    @cached_property
    def _merged(self) -> MergedVectorLimits:
        return MergedVectorLimits(self.fusion, self.space.axes, self.accesses.concrete)

    @cached_property
    def _flat(self) -> ShiftedRows | None:
        """The vectors through all dimensions as through one row of the reference, whatever their sizes.

        None where values follow from positions, which take a division an element then: joins of odd rows are
        faster by element on an H200.
        """
        return None if self._by_position else self._shifted(as_one=True)

    @cached_property
    def _rows(self) -> ShiftedRows | None:
        """The vectors of each row by itself, whose positions take no division; None where `_flat` serves.

        H200, 4096x32001 bf16, one element of each row changed: 126 us, 163 in vectors of 8 through both
        dimensions.
        """
        return self._shifted(as_one=False) if self._by_position else None

    @cached_property
    def _by_position(self) -> bool:
        """Whether values follow from positions."""
        return any(isinstance(node, (Choose, Iota, Random)) for node in self.fusion.nodes)

    def _shifted(self, as_one: bool) -> ShiftedRows | None:
        reference, inner = self.space.reference, self.accesses.innermost
        if reference.is_placed or inner is None:
            return None
        concrete, points = self.accesses.concrete, self.accesses.points
        stores = [access for access in concrete if access.tensor is reference]
        aligned = stores[0] if stores else None
        # What each row has one of is loaded by element, beside what has an element for each point.
        full = [each for each in concrete if each.concrete.issuperset(points)]
        others = [each for each in concrete if each not in full]
        along = full if all(inner not in each.concrete for each in others) else concrete
        rows = ShiftedRows(self.fusion, reference.shape, inner, along, aligned, as_one=as_one)
        return rows if rows.are_all else None

    def _vectors_at(
        self, break_point: int, facts: Facts, planes: IterDomain | None = None
    ) -> tuple[Vectors, int]:
        """Returns the vectors of the fewest accesses, and the dimension whose size they divide; -1: the
        innermost.

        Vectors along the innermost dimension serve what does not go through several as one, too.

        planes: the dimension along which each thread has all places.
        """
        accesses = self.accesses
        best = self._vectors.vectors(facts) if self._vectors is not None else Vectors(1, (), 0)
        extra = (UNALIGNED_COST - 1) * len(best.unaligned)
        best_dim, best_cost = -1, (accesses.count_from_memory(facts) + extra) / best.width
        width, picked = best.width, dict[TensorView, int]()
        if by_element := accesses.by_element(facts):
            picked = self._picked(by_element, facts, planes)
            others = [a for a in by_element if not (a.tensor in picked and self._is_stepped(a, planes))]
            single = accesses.are_apart(facts, others) or accesses.have_a_sector_each(facts)
            beside = [self._width_beside(access, facts) for access in others]
            width = 1 if single else min(width, *beside, *picked.values())
        # H200, a convolution of four places of 8x2048x1536 bf16, whose weights lie four by four: 65 us with a
        # load for each weight, 31 with half as many.
        cached = self._picked(accesses.cached_by_element(facts), facts, planes)
        for tensor, widest in cached.items():
            if widest >= width:
                picked[tensor] = min(widest, picked.get(tensor, widest))
        unaligned = best.unaligned if width > 1 else ()
        positions = tuple(sorted(map(self.fusion.inputs.index, picked))) if width > 1 else ()
        keeps_aligned = best.keeps_aligned and width == best.width
        best = Vectors(width, unaligned, best_cost, keeps_aligned, positions)
        if self.space.reference.is_placed:  # whose dimensions have no memory to be one run of
            return best, -1
        for merged in self._merged.vectors(break_point, facts):
            if merged.vectors.width == 1:
                continue
            as_cheap = merged.vectors.cost == best_cost and best.unaligned
            if merged.vectors.cost < best_cost or as_cheap:
                best, best_dim, best_cost = merged.vectors, merged.dim, merged.vectors.cost
        if best.unaligned and best.width * accesses.loads_of_parts(best) > MAX_ELEMENTS_OF_PARTS:
            return Vectors(1, (), accesses.count_from_memory(facts)), -1
        return best, best_dim

    def _picked(
        self, loads: Sequence[Access], facts: Facts, planes: IterDomain | None
    ) -> dict[TensorView, int]:
        """Returns the inputs that `loads` read backward or every n-th element of, and the widest vectors with
        which all of these loads may take their elements from aligned ones: as wide as beside loads by
        element, or wider.
        """
        widths: dict[TensorView, int] = {}
        for access in loads:
            if self._is_stepped(access, planes):
                width = picked_width(self.fusion, access, self.accesses.innermost, facts)
                widths[access.tensor] = min(width, widths.get(access.tensor, width))
        return {tensor: width for tensor, width in widths.items() if width >= mixed_width(tensor.dtype.size)}

    def _is_stepped(self, access: Access, planes: IterDomain | None) -> bool:
        """Whether a load goes backward or takes every n-th element, the same ones in all threads."""
        inner = self.accesses.innermost
        run = None if inner is None else access.stepped.get(inner)
        if run is None:
            return False
        return all(axis is planes for axis, dim in access.dims.items() if dim in run.varying)

    def _width_beside(self, access: Access, facts: Facts) -> int:
        """Returns the elements of vectors beside a load by element, of which a vector may need but one.

        H200, a Walsh transform of each 8 of 8192x4096 bf16: 38.7 us by vectors of 8, 45.0 of 4, 83.6 of 2.
        """
        shared = shared_width(access, self.accesses.innermost, facts)
        return max(mixed_width(access.tensor.dtype.size), shared)

    def _narrower(self, vectors: Vectors, sizes: Sequence[int]) -> tuple[Vectors, bool]:
        """Returns pairs or narrower vectors in place of wide ones that start anywhere, and whether the last
        ones of rows are there in part.
        """
        if sizes[-1] % PAIR == 0:
            return Vectors(PAIR, (), vectors.cost), False
        width = vectors.width
        while width * self.accesses.count_from_anywhere(vectors) > MAX_SHIFTED_ELEMENTS:
            width //= 2
        return replace(vectors, width=max(1, width)), True
