"""Chooses params of the pointwise scheduler: the vectors, whether dimensions become rows and columns, one row
or tiles, and how many accesses of a thread are in flight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod

from fusewright.analyze.vectorize import unit_stride_axis
from fusewright.core.hardware import MAX_REGISTERS_PER_THREAD, REGISTER_BYTES, HardwareInfo
from fusewright.core.once import cached_property
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Choose, Indexed, Iota, Random
from fusewright.ir.value import TensorView
from fusewright.schedulers.base import Cost, Facts, Proposal
from fusewright.schedulers.cost import (
    BESIDE_OTHERS,
    LATENCY_SECONDS,
    REGISTERS_TO_ADDRESS,
    CostModel,
    busy_share,
    overlap,
    thread_seconds,
)
from fusewright.schedulers.io import UNALIGNED_COST, VectorLimits, Vectors, shared_width
from fusewright.schedulers.merged_vectors import (
    CACHED_COST,
    MANY_IN_A_WINDOW,
    MergedVectorLimits,
    is_cached,
    mixed_width,
    parts_of_joins,
)
from fusewright.schedulers.params import LaunchParams, PointwiseParams
from fusewright.schedulers.params.launch import UNSET
from fusewright.schedulers.pointwise.arithmetic import PointwiseArithmetic
from fusewright.schedulers.pointwise.blocks import (
    MAX_ACCESSES_IN_FLIGHT,
    fit_rows,
    starting_seconds,
    unrolled,
    with_fewer_blocks,
)
from fusewright.schedulers.pointwise.cut import Cut, broadcasts_served
from fusewright.schedulers.pointwise.divided_sizes import divided_sizes
from fusewright.schedulers.pointwise.planes import Planes, find_planes
from fusewright.schedulers.pointwise.row_windows import RowWindows, find_row_windows, rows_loaded
from fusewright.schedulers.pointwise.space import PointwiseSpace
from fusewright.schedulers.pointwise.tiles import TILE_COLUMNS, Tile, short_run
from fusewright.schedulers.reference_map import Access
from fusewright.schedulers.sectors import Sectors
from fusewright.schedulers.shifted_rows import ShiftedRows, is_narrow
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_most
from fusewright.sym import Symbol

# Enough threads to hide latency with few blocks' tails; a multiple of the warp that divides an SM's 2048.
THREADS = 128
# Bytes of loads that a thread should have in flight: Little's law on an H200 (4.8 TB/s at about 800 ns, 132
# SMs of 2048 threads) asks for 14 bytes a resident thread; twice a 16-byte load covers uneven progress.
LOADED_BYTES_IN_FLIGHT = 32
# Fewer where nothing but memory counts (scales, biases and casts of 67 million elements are 1 to 2% faster on
# an H200) and most threads have some, more where a load waits for an index (rows of an embedding, 5%).
FEWEST_BYTES_IN_FLIGHT, MOST_BYTES_IN_FLIGHT = 16, 64
# The share of a block's threads that have columns, from which on few bytes suffice (an H200: rows of 576 to
# 1536 bfloat16 that fill 0.53 to 0.75 of them, 6 to 64 million elements, take 0.86 to 0.99 of the time with
# two rows a thread, those that fill more 0.97 to 1.1).
MOST_THREADS = 0.8
# The share of the memory's time up to which arithmetic does not count.
LITTLE_COMPUTING = 0.5
# Threads of a block that gathers elements of a row: they share the row's lines (columns of 16384 x 4096
# bfloat16 in another order take half the time on an H200).
GATHERING_THREADS = 512
# Threads of a block whose vectors are chosen from those of its neighbours, which are in the L1 cache but at
# its ends (an H200: five neighbours in 16384 x 4096 bfloat16 take 67 us with so many, 72 with half as many).
SHARING_THREADS = 256
# Rows of a thread that have more bytes in common than of their own: one load from the caches serves them all
# (an H200: a batch norm of channels-last images takes 71 us, not 79, rotations by tables 37.3, not 39.1).
SHARING_ROWS = 2
# Accesses of a thread that loads an input's neighbours by element, which come from memory only once (an H200:
# three neighbours in rows of 4095 bfloat16 take 82 us with two, 87 with one or four).
FEWEST_OF_NEIGHBOURS = 2
# Elements of vectors that start anywhere, of which the last of a row are there in part, that a thread loads:
# each has code of its own besides. Where there are more, pairs of elements are loaded one by one, if rows
# have whole pairs, else vectors are narrower (an H200, of 1024 x 1024 bfloat16 without its border: five
# neighbours take 54 us with vectors of 8, 44 with 4, 34 by pairs, nine take 88, 57 and 40; three of
# 8192 x 4096 45, 48 and 44).
MOST_SHIFTED, PAIR = 36, 2
# An input of so many times fewer elements than are computed, which is read by index, comes from the caches: a
# scale for each group of 128 elements (an H200: 16384 x 4096 int4 in 0.55 of the time).
READ_AGAIN = 16
# Loads by element, of every so many-th element, from which on there are no vectors: each touches as many
# lines as a vector is wide (an H200: pools of 2 x 2 elements take 28.1 us by element, 31.4 by vectors of 4;
# of 3 x 3 31.1, not 44.7).
MANY_BY_ELEMENT = 4
# Elements of all planes of a join that a thread has at most, each with registers of its own.
MOST_OF_PLANES = 16
# What it costs to divide the index of an access to a broadcast input, in accesses: rows that take three of
# four threads are rows (768 bfloat16 and a bias: 1.09 of a copy's speed on an H200), rows that take fewer are
# not (640: 1.06 as one dimension, 128: 1.05 and as rows 0.52).
DIVIDED_COST = 1.0
# How many accesses an element more are as cheap, where fewer values are computed again.
SIMILAR_COST = 1.05


@dataclass(frozen=True, eq=False)
class PointwisePlanner:
    """Derives params from the sizes of a call."""

    fusion: Fusion
    space: PointwiseSpace
    _divided: dict[int, tuple[Symbol, ...]] = field(default_factory=dict)

    @cached_property
    def _cost(self) -> CostModel:
        return CostModel(self.fusion, Sectors.along(self.fusion, self._accesses, self.space.axes))

    @cached_property
    def _arithmetic(self) -> PointwiseArithmetic:
        return PointwiseArithmetic(self.fusion, self.space)

    @cached_property
    def _accesses(self) -> list[Access]:
        return self.space.accesses(self.fusion)

    @cached_property
    def _vectors(self) -> VectorLimits | None:
        inner = _innermost(self.space.reference)
        if inner is None:
            return None
        return VectorLimits(self.fusion, inner, self._accesses, split=self._broadcast_loads)

    @cached_property
    def _concrete(self) -> list[Access]:
        """Those that are no broadcast of one element."""
        return [access for access in self._accesses if access.concrete]

    def _from_memory(self, facts: Facts) -> float:
        """How many accesses there are, of which those that come from the caches count for a part."""
        cached = sum(self._is_cached(access, facts) for access in self._concrete)
        return len(self._concrete) - (1 - CACHED_COST) * cached

    def _is_cached(self, access: Access, facts: Facts) -> bool:
        """Whether an input is read that has few elements, each of them again and again."""
        if access not in self._indexed_inputs:
            return access in self._broadcast_loads
        return access not in self._parts and self._is_small(access, facts)

    def _is_small(self, access: Access, facts: Facts) -> bool:
        """Whether an input has few elements; where it is no part of a join, each is read again and again."""
        return _elements(access.tensor.shape, facts) * READ_AGAIN <= _elements(self.space.axes, facts)

    @cached_property
    def _broadcast_loads(self) -> frozenset[Access]:
        return frozenset(a for a in self._accesses if is_cached(self.fusion, a, self.space.axes))

    @cached_property
    def _parts(self) -> list[Access]:
        return parts_of_joins(self.fusion, self._accesses)

    @cached_property
    def _indexed_inputs(self) -> frozenset[Access]:
        """The loads by index that are no broadcasts, but for those by index tensors."""
        found = (a for a in self._accesses if a.by_index and self.fusion.is_input(a.tensor))
        return frozenset(a for a in found if not _is_gathered(a) and a not in self._broadcast_loads)

    def _are_apart(self, facts: Facts) -> bool:
        """Whether many loads by element are of neighbours that lie apart in memory."""
        points = _elements(self.space.axes, facts)
        apart = (_elements(access.tensor.shape, facts) > points for access in self._by_element(facts))
        return sum(apart) >= MANY_BY_ELEMENT

    def _has_a_sector_each(self, facts: Facts) -> bool:
        """Whether each load of a thread takes a sector of memory, so that vectors would but spread a warp's.

        (An H200: every sixteenth element of 16384 x 8192 bfloat16 takes 75 us by element, 94 in vectors of 4;
        a column of each of 4096 matrices of 256 x 64 28.3 and 32.9; diagonals of as many 128 x 128 21.0 and
        22.4.)
        """
        sectors = self._cost.sectors
        loads = [a for a in self._full_loads if not _is_gathered(a)]
        return sectors is not None and any(loads) and all(sectors.are_apart(a, facts) for a in loads)

    @cached_property
    def _merged(self) -> MergedVectorLimits:
        return MergedVectorLimits(self.fusion, self.space.axes, self._concrete)

    @cached_property
    def _by_position(self) -> bool:
        """Whether values follow from positions."""
        return any(isinstance(node, (Choose, Iota, Random)) for node in self.fusion.nodes)

    @cached_property
    def _flat(self) -> ShiftedRows | None:
        """The vectors through all dimensions as through one row of the reference, whatever their sizes.

        None where values follow from positions, which take a division an element then: joins of odd rows are
        faster by element on an H200.
        """
        return None if self._by_position else self._shifted(as_one=True)

    @cached_property
    def _rows(self) -> ShiftedRows | None:
        """The same of each row by itself, whose positions take no division (an H200: 4096 x 32001 bfloat16,
        one element of each row changed, take 126 us so, 163 in vectors of 8 through both dimensions).
        """
        return self._shifted(as_one=False) if self._by_position else None

    def _shifted(self, as_one: bool) -> ShiftedRows | None:
        reference = self.space.reference
        inner = _innermost(reference)
        if reference.is_placed or inner is None:
            return None
        stores = [access for access in self._concrete if access.tensor is reference]
        aligned = stores[0] if stores else None
        # What each row has one of is loaded by element, beside what has an element for each point.
        full = [each for each in self._concrete if each.concrete.issuperset(self._points)]
        others = [each for each in self._concrete if each not in full]
        along = full if all(inner not in each.concrete for each in others) else self._concrete
        rows = ShiftedRows(self.fusion, reference.shape, inner, along, aligned, as_one=as_one)
        return rows if rows.are_all else None

    @cached_property
    def _loads(self) -> list[Sequence[bool]]:
        """For each load, along which of the dimensions it has all of their points."""
        reads = (access.concrete for access in self._accesses if self.fusion.is_input(access.tensor))
        return [[axis.is_broadcast or axis in read for axis in self.space.axes] for read in reads]

    @cached_property
    def _broadcasts(self) -> list[Sequence[bool]]:
        """Those of `_loads` that are broadcasts along some dimensions but not along all."""
        return [present for present in self._loads if any(present) and not all(present)]

    def _loaded_bytes(self, vectors: Vectors, dim: int, shifted: bool, facts: Facts) -> int:
        """Of one element of all loads that come from memory; those of broadcasts come from the caches.

        Vectors that start at any element are two, unless neighbours share those that they lie in.
        """
        loads = [a for a in self._full_loads if not (self._is_cached(a, facts) or self._is_small(a, facts))]
        if vectors.keeps_aligned or (vectors.unaligned and self._has_neighbours and not shifted):
            rows = rows_loaded(loads, self.space.axes, _innermost(self.space.reference))
            return sum(tensor.dtype.size for tensor, _ in rows)
        if vectors.width == 1 and not self._are_apart(facts):
            # Of a window most loads come from the L1 cache (an H200, eleven taps by element: 39 us with two
            # windows in flight, 44 with four).
            counts = Counter(access.tensor for access in loads)
            return sum(tensor.dtype.size * min(n, MANY_IN_A_WINDOW) for tensor, n in counts.items())
        twice = sum(self.fusion.inputs[position].dtype.size for position in vectors.unaligned)
        # Parts that vectors through several dimensions do not go through are loaded by element, where chosen
        # (an H200: nine parts of a circular pad take 35 us with two vectors each, 44 with one, 36 with four).
        parts = parts_of_joins(self.fusion, loads) if dim != -1 else []
        of_parts = 2 * max((a.tensor.dtype.size for a in parts), default=0)
        return sum(a.tensor.dtype.size for a in loads if a not in parts) + of_parts + twice

    def _count_from_anywhere(self, vectors: Vectors) -> int:
        """How many loads are vectors that may start at any element."""
        inputs = [self.fusion.inputs[position] for position in vectors.unaligned]
        return sum(access.tensor in inputs for access in self._full_loads)

    def _narrower(self, vectors: Vectors, sizes: Sequence[int]) -> tuple[Vectors, bool]:
        """Pairs or narrower vectors in place of wide ones that start anywhere, and whether the last ones of
        rows are there in part.
        """
        if sizes[-1] % PAIR == 0:
            return Vectors(PAIR, (), vectors.cost), False
        width = vectors.width
        while width * self._count_from_anywhere(vectors) > MOST_SHIFTED:
            width //= 2
        return replace(vectors, width=max(1, width)), True

    @cached_property
    def _points(self) -> list[IterDomain]:
        """The dimensions of more than one point."""
        return [axis for axis in self.space.axes if not axis.is_broadcast]

    @cached_property
    def _full_loads(self) -> list[Access]:
        inputs = (access for access in self._accesses if self.fusion.is_input(access.tensor))
        return [access for access in inputs if access.concrete.issuperset(self._points)]

    @cached_property
    def _has_neighbours(self) -> bool:
        """Whether an element needs several of one input, all of which are no parts to choose one from."""
        loads = self._full_loads
        chosen = parts_of_joins(self.fusion, loads)
        return len({access.tensor for access in loads}) < len(loads) != len(chosen)

    @cached_property
    def _accessed_bytes(self) -> int:
        """Of one element of all loads and stores that are no broadcasts."""
        return sum(a.tensor.dtype.size for a in self._accesses if a.concrete.issuperset(self._points))

    def __call__(self, facts: Facts, hardware: HardwareInfo) -> Proposal:
        sizes = [facts.value(axis.extent) for axis in self.space.axes]
        total = prod(sizes)
        cut = self._cut_at_planes(sizes, facts) or self._best_cut(sizes, facts, hardware)
        break_point, why, vectors, dim, shifted = cut.at, cut.why, cut.vectors, cut.dim, cut.shifts
        if shifted and vectors.width * self._count_from_anywhere(vectors) > MOST_SHIFTED:
            vectors, shifted = self._narrower(vectors, sizes)
        if shifted and total <= THREADS * hardware.sm_count:
            # A thread for each element: the code of vectors that are there in part takes longer than more
            # accesses (an H200, in the kernel: 1155 elements take 1.1 us, 1.5 in vectors of 8).
            vectors, shifted = Vectors(1, (), vectors.cost), False
        width = vectors.width
        tile = self._tile(cut, sizes)
        if tile is not None:
            break_point, why = (
                tile.at,
                f"tiles of {tile.rows} rows and {tile.columns} vectors, cut at {tile.at}",
            )
        in_flight = self._in_flight(vectors, dim, cut.busy, facts, hardware)
        if shifted and break_point:
            in_flight = LOADED_BYTES_IN_FLIGHT
        loaded = self._loaded_bytes(vectors, dim, shifted, facts) * width
        if cut.rows > 1:
            in_flight = max(in_flight, cut.rows * loaded)
        elif break_point and self._shares_most(break_point):
            in_flight = max(in_flight, SHARING_ROWS * loaded)
        elif (dim != -1 or cut.shifts) and not vectors.unaligned and self._has_neighbours:
            in_flight = max(in_flight, FEWEST_OF_NEIGHBOURS * loaded)
        several = (break_point and self._shares_elements(break_point)) or (
            width == 1 and self._are_apart(facts)
        )
        # What several accesses share, a line or an element, is worth more of them than their bytes.
        unroll = unrolled(0 if several else loaded, in_flight, width, total, hardware)
        unroll = min(unroll, MAX_ACCESSES_IN_FLIGHT) if several else unroll if tile is None else 1
        memory = self._cost.moving_seconds(facts, hardware)
        if tile is None and break_point and not shifted:
            unroll = self._arithmetic.sharing_rows(facts, hardware, memory, break_point, unroll, width)
        assumed = self._assumed_sizes(break_point, facts)
        threads = (self._threads(prod(sizes[break_point:]), vectors, facts), 1)
        threads = threads if tile is None else (tile.columns, tile.rows)
        memory = self._cost.seconds_an_sm(facts, hardware) / hardware.sm_count
        blocks, wave = (
            n / prod(threads) for n in (total / width, hardware.sm_count * hardware.max_threads_per_sm)
        )
        unroll = cut.planes or with_fewer_blocks(unroll, blocks, wave, memory)
        columns, rows = threads[0] * width, threads[1] * unroll
        split, flip = fit_rows(sizes, break_point, rows, columns) if break_point else (False, False)
        params = PointwiseParams(
            break_point=break_point,
            split_grid_y_dim=split,
            flip_grid_binding=flip,
            vectorization_factor=width,
            unroll_factor_inner=1 if break_point else unroll,
            unroll_factor_outer=unroll if break_point else 1,
            assumed_sizes=assumed,
            vectorized_dim=dim,
            unaligned_inputs=vectors.unaligned,
            keeps_aligned=vectors.keeps_aligned,
            shift_rows=shifted,
            keeps_inputs=self._cost.keeps(facts, hardware),
            lparams=LaunchParams(bdimx=threads[0], bdimy=threads[1] if tile is not None else UNSET),
            reason=f"{total} elements; vectors of {width}; {why}; {unroll} accesses in flight"
            + ("; the last of them in part" if shifted else "")
            + ("; some from any element on" if vectors.unaligned else "")
            + ("; for these sizes only" if assumed else ""),
        )
        held = width * unroll * self._accessed_bytes
        held -= self._windows[break_point].spared_bytes(unroll, width) if cut.rows > 1 else 0
        return Proposal(params, partial(self._estimate, facts, hardware, break_point, unroll, width, held))

    def _estimate(
        self, facts: Facts, hardware: HardwareInfo, break_point: int, rows: int, width: int, held: int
    ) -> Cost:
        """The cost of threads with `rows` accesses of `width` elements each.

        The bytes `held` that each loads and stores stay in registers. So those of many tensors leave room for
        few blocks on an SM, which wait for each other's arithmetic.
        """
        elements = rows * width
        threads = max(1.0, _elements(self.space.axes, facts) / elements)
        slots = self._arithmetic.slots(facts, break_point, rows, width)
        blocks = threads / THREADS
        registers = REGISTERS_TO_ADDRESS + held // REGISTER_BYTES
        resident = hardware.registers_per_sm // (THREADS * min(registers, MAX_REGISTERS_PER_THREAD))
        computing = thread_seconds(slots / threads, hardware)
        moving = self._cost.seconds_an_sm(facts, hardware) / max(1.0, blocks)
        kept = overlap(resident, moving, LATENCY_SECONDS + BESIDE_OTHERS * computing)
        memory = self._cost.moving_seconds(facts, hardware)
        started = min(1.0, memory / starting_seconds(blocks)) if memory else 1.0
        speed = min(busy_share(blocks, hardware) * kept, started)
        return self._cost.estimate(facts, hardware, speed=speed, steps=computing, slots=slots)()

    @cached_property
    def _cuts(self) -> list[int]:
        """Where dimensions may be cut into rows and columns: nowhere, or where that serves most inputs."""
        served = {at: broadcasts_served(self._broadcasts, at) for at in range(1, len(self.space.axes))}
        most = max(served.values(), default=0)
        best = (at for at, count in served.items() if count == most > 0)
        return sorted({0, *best, *self._windows})

    @cached_property
    def _windows(self) -> dict[int, RowWindows]:
        return find_row_windows(self.fusion, self.space.axes, self._full_loads)

    def _best_cut(self, sizes: Sequence[int], facts: Facts, hardware: HardwareInfo) -> Cut:
        """That of the fewest accesses, or of no more where a thread's rows share more of what takes long."""
        usual = min((self._cut(at, sizes, facts) for at in self._cuts), key=lambda cut: cut.cost)
        memory = self._cost.moving_seconds(facts, hardware)
        if not self._arithmetic.repeats_long(facts, hardware, memory, usual.at, usual.vectors.width):
            return usual
        others = [self._cut(at, sizes, facts) for at in range(1, len(sizes)) if at not in self._cuts]
        as_cheap = [usual, *(cut for cut in others if cut.cost <= SIMILAR_COST * usual.cost)]
        most = MAX_ACCESSES_IN_FLIGHT
        return min(as_cheap, key=lambda c: self._arithmetic.slots(facts, c.at, most, c.vectors.width))

    def _cut(self, at: int, sizes: Sequence[int], facts: Facts) -> Cut:
        """The vectors of the fewest accesses for rows and columns that are cut there, and what they cost."""
        vectors, dim = self._vectors_at(at, facts)
        # Where vectors start at any element, or some accesses are of single ones, those tell.
        narrowest = vectors.width if vectors.cost * vectors.width <= len(self._concrete) else 1
        if not at:
            flat = self._flat.vectors(facts) if self._flat is not None else None
            shifts = flat is not None and flat.cost < vectors.cost and is_narrow(narrowest, flat)
            found = flat if flat is not None and shifts else vectors
            cost = found.cost + DIVIDED_COST * len(self._broadcasts) / found.width
            why = (
                "by which broadcast inputs are indexed" if self._broadcasts else "as no input is a broadcast"
            )
            return Cut(0, f"one dimension, {why}", found, -1 if shifts else dim, shifts, 1.0, cost)
        served = broadcasts_served(self._broadcasts, at)
        shifted = self._rows.vectors(facts) if self._rows is not None and at == len(sizes) - 1 else None
        shifts = shifted is not None and not shifted.unaligned and is_narrow(narrowest, shifted)
        if shifted is not None and shifts:
            vectors, dim = shifted, -1
        columns, a_block = prod(sizes[at:]), THREADS * vectors.width
        busy = columns / (ceil_div(max(1, columns), a_block) * a_block)
        why = f"rows and columns cut at {at}, which serves {served} broadcast inputs"
        divided = DIVIDED_COST * (len(self._broadcasts) - served) / vectors.width
        rows = self._rows_that_share(at, vectors, shifts)
        shared = self._windows[at].saved(rows) / vectors.width if rows > 1 else 0.0
        cost = (vectors.cost + divided - shared) / max(busy, 1 / a_block)
        why += f", and {rows} rows share loads" if rows > 1 else ""
        return Cut(at, why, vectors, dim, shifts, busy, cost, rows=rows)

    def _rows_that_share(self, at: int, vectors: Vectors, shifts: bool) -> int:
        """How many rows a thread has for loads of neighbours in them to be one. Vectors that start anywhere,
        or are there in part, have code of their own in each row.
        """
        windows = self._windows.get(at)
        return 1 if windows is None or vectors.unaligned or shifts else windows.rows(vectors.width)

    def _cut_at_planes(self, sizes: Sequence[int], facts: Facts) -> Cut | None:
        """Rows that are the planes of a join, all of them for each thread, where they fill blocks."""
        planes = self._planes
        if planes is None:
            return None
        vectors, dim = self._vectors_at(planes.at, facts)
        width = min(vectors.width, MOST_OF_PLANES // planes.count)
        vectors = replace(vectors, width=power_of_two_at_most(max(1, width)))
        if prod(sizes[planes.at :]) < THREADS * vectors.width:
            return None
        why = f"{planes.count} planes of a join, cut at {planes.at}"
        return Cut(planes.at, why, vectors, dim, False, 1.0, vectors.cost, planes.count)

    @cached_property
    def _planes(self) -> Planes | None:
        return find_planes(self.fusion, self.space, self._concrete)

    def _tile(self, cut: Cut, sizes: Sequence[int]) -> Tile | None:
        """A tile for each block, where an input has shorter runs of memory along the columns than a line."""
        vectors = cut.vectors
        if cut.at or cut.dim != -1 or cut.shifts or vectors.unaligned or vectors.width == 1:
            return None
        for access in self._full_loads:
            found = short_run(access, self.space.axes, sizes)
            if found is None or prod(sizes[found:]) < TILE_COLUMNS * vectors.width:
                continue
            return Tile(found, TILE_COLUMNS, THREADS // TILE_COLUMNS)
        return None

    def _vectors_at(self, break_point: int, facts: Facts) -> tuple[Vectors, int]:
        """The vectors of the fewest accesses, and the dimension whose size they divide.

        Vectors along the innermost dimension serve what does not go through several as one, too.
        """
        best = self._vectors.vectors(facts) if self._vectors is not None else Vectors(1, (), 0)
        extra = (UNALIGNED_COST - 1) * len(best.unaligned)
        best_dim, best_cost = -1, (self._from_memory(facts) + extra) / best.width
        width = best.width
        beside = [self._width_beside(access, facts) for access in self._by_element(facts)]
        if beside:
            single = self._are_apart(facts) or self._has_a_sector_each(facts)
            width = 1 if single else min(width, *beside)
        unaligned = best.unaligned if width > 1 else ()
        best = Vectors(width, unaligned, best_cost, best.keeps_aligned and width == best.width)
        if self.space.reference.is_placed:  # whose dimensions have no memory to be one run of
            return best, -1
        for merged in self._merged.vectors(break_point, facts):
            if merged.vectors.width == 1:
                continue
            as_cheap = merged.vectors.cost == best_cost and best.unaligned
            if merged.vectors.cost < best_cost or as_cheap:
                best, best_dim, best_cost = merged.vectors, merged.dim, merged.vectors.cost
        return best, best_dim

    def _width_beside(self, access: Access, facts: Facts) -> int:
        """Elements of vectors beside a load by element, of which a vector may need but one (an H200: a Walsh
        transform of each 8 of 8192 x 4096 bfloat16 takes 38.7 us by vectors of 8, 45.0 of 4, 83.6 of 2).
        """
        shared = shared_width(access, _innermost(self.space.reference), facts)
        return max(mixed_width(access.tensor.dtype.size), shared)

    def _by_element(self, facts: Facts) -> list[Access]:
        """The loads that are no vectors, whatever the sizes, but for those that come from the caches."""
        return [access for access in self._single_loads if not self._is_cached(access, facts)]

    @cached_property
    def _single_loads(self) -> list[Access]:
        inner = _innermost(self.space.reference)
        loads = [access for access in self._concrete if self.fusion.is_input(access.tensor)]
        units = ((access, unit_stride_axis(access.tensor)) for access in loads)
        return [a for a, unit in units if unit is None or inner is None or a.axes.get(inner) is not unit]

    def _in_flight(
        self, vectors: Vectors, dim: int, busy: float, facts: Facts, hardware: HardwareInfo
    ) -> int:
        """Bytes that a thread should have in flight. busy: the share of threads that load."""
        if self._gathers:
            return MOST_BYTES_IN_FLIGHT
        if vectors.width == 1 or vectors.unaligned or dim != -1 or self._by_element(facts):
            return LOADED_BYTES_IN_FLIGHT
        memory = self._cost.moving_seconds(facts, hardware)
        computing = self._cost.computing_seconds(facts, hardware)
        is_simple = computing < LITTLE_COMPUTING * memory and busy >= MOST_THREADS
        return FEWEST_BYTES_IN_FLIGHT if is_simple else LOADED_BYTES_IN_FLIGHT

    @cached_property
    def _gathers(self) -> bool:
        """Whether an access is by index tensors."""
        return any(_is_gathered(each) for each in self._accesses)

    def _shares_elements(self, break_point: int) -> bool:
        """Whether what the rows of a thread share is loaded element by element."""
        columns, inner = frozenset(self.space.axes[break_point:]), _innermost(self.space.reference)
        loads = [access for access in self._concrete if self.fusion.is_input(access.tensor)]
        shared = [access for access in loads if access.concrete and access.concrete <= columns]
        units = ((access, unit_stride_axis(access.tensor)) for access in shared)
        return any(inner in a.concrete and a.axes.get(inner) is not unit for a, unit in units)

    def _shares_most(self, break_point: int) -> bool:
        """Whether rows load more bytes that they have in common than bytes of their own, all along."""
        columns = frozenset(self.space.axes[break_point:])
        loads = {a.tensor: a for a in self._concrete if self.fusion.is_input(a.tensor)}
        common = [tensor for tensor, access in loads.items() if access.concrete <= columns]
        own = [t for t, a in loads.items() if t not in common and not columns.isdisjoint(a.concrete)]
        return sum(each.dtype.size for each in common) > sum(each.dtype.size for each in own)

    def _threads(self, columns: int, vectors: Vectors, facts: Facts) -> int:
        """Of a block, for so many columns in vectors."""
        gathers = any(_is_gathered(each) for each in self._by_element(facts))
        most = GATHERING_THREADS if gathers else SHARING_THREADS if vectors.keeps_aligned else THREADS
        return most if columns >= most * vectors.width else THREADS

    def _assumed_sizes(self, break_point: int, facts: Facts) -> tuple[int, ...]:
        """Constants for the sizes by which indices are divided, if they have not changed so far.

        A division by a size that the call passes takes more instructions than all else of an access.
        """
        if break_point not in self._divided:
            self._divided[break_point] = divided_sizes(self.fusion, self.space, break_point)
        symbols = self._divided[break_point]
        sizes = tuple(facts.value(symbol) for symbol in symbols)
        return sizes if facts.stable.issuperset(symbols) and all(sizes) else ()


def _is_gathered(access: Access) -> bool:
    """Whether the values of index tensors say where elements lie."""
    return isinstance(access.node, Indexed) and bool(access.node.indices)


def _elements(axes: Sequence[IterDomain], facts: Facts) -> int:
    return prod(facts.value(axis.extent) for axis in axes if not axis.is_broadcast)


def _innermost(reference: TensorView) -> IterDomain | None:
    """The dimension along which vectors run."""
    if not reference.is_placed:
        return unit_stride_axis(reference)
    return next((axis for axis in reversed(reference.maybe_root) if not axis.is_broadcast), None)
