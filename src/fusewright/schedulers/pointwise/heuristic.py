"""Chooses params of the pointwise scheduler: from the cut and the vectors that `cut_choice` finds, how many
threads a block has, and how many accesses of a thread are in flight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod

from fusewright.core.hardware import MAX_GRID, MAX_REGISTERS_PER_THREAD, REGISTER_BYTES, HardwareInfo
from fusewright.core.once import cached_property
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Random
from fusewright.schedulers.base import Cost, Facts, Proposal
from fusewright.schedulers.cost import (
    BESIDE_OTHERS,
    LATENCY_SECONDS,
    REGISTERS_TO_ADDRESS,
    CostModel,
    busy_share,
    cached_seconds,
    overlap,
    slot_seconds,
    thread_seconds,
)
from fusewright.schedulers.params import CompileParams, LaunchParams, PointwiseParams
from fusewright.schedulers.params.launch import UNSET
from fusewright.schedulers.pointwise.accesses import PointwiseAccesses
from fusewright.schedulers.pointwise.arithmetic import PointwiseArithmetic
from fusewright.schedulers.pointwise.blocks import (
    MAX_ACCESSES_IN_FLIGHT,
    THREADS,
    fit_rows,
    unrolled,
    with_fewer_blocks,
)
from fusewright.schedulers.pointwise.cut import Cut
from fusewright.schedulers.pointwise.cut_choice import CutChoice
from fusewright.schedulers.pointwise.divided_sizes import divided_sizes
from fusewright.schedulers.pointwise.planes import goes_along
from fusewright.schedulers.pointwise.space import PointwiseSpace
from fusewright.schedulers.pointwise.tiles import Tile, along_memory
from fusewright.schedulers.sectors import LINE_SLOTS, Sectors
from fusewright.schedulers.sizes import ceil_div
from fusewright.schedulers.vector_limits import Vectors
from fusewright.sym import Symbol

# ---- bytes of loads that a thread has in flight ----

# In general. Little's law on an H200 (4.8 TB/s at about 800 ns, 132 SMs of 2048 threads) asks for 14 bytes a
# resident thread; twice a 16-byte load covers uneven progress.
BYTES_IN_FLIGHT = 32
# Where nothing but memory counts, most threads have some, and a thread stores as many bytes as it loads.
#   H200, scales, biases and casts of 67 million elements: 1 to 2% faster. Those of bf16 whose results have a
#   byte: 53.8 us, and 50.1 and 50.7 with two loads.
BYTES_IN_FLIGHT_OF_SIMPLE = 16
# Elements that a thread loads one by one in all its accesses at most, whether from memory or from the caches:
# they take a register each.
#   H200, 15 elements for each of 18000000 of inverses, us: 106 with 240 elements, 86 with 120, 66 with 60;
#   seven of points that are moved: 30.3 with 112, 28.7 with 56.
MAX_SINGLE_ELEMENTS = 64
# Where a load waits for an index.
#   H200, rows of an embedding: 5% faster.
BYTES_IN_FLIGHT_OF_GATHERS = 64
# Share of a full wave that a kernel's threads are at least where each has so much in flight.
#   H200, 32768 rows of 96 bf16 by index: 7.7 us with one load a thread in 1.5 waves, 7.3 with two in 0.7.
LEAST_WAVE_OF_GATHERS = 0.5
# Share of a block's threads with columns from which on the bytes of simple kernels suffice.
#   H200, bf16 rows of 576 to 1536, 6 to 64 million elements: those that fill 0.53 to 0.75 of the threads take
#   0.86 to 0.99 of the time with two rows a thread, those that fill more 0.97 to 1.1.
BUSY_THREADS = 0.8
# Share of the memory's time up to which arithmetic does not count.
#   H200: magnitudes of complex numbers in decibels compute for 0.42 of it: 97.9 us so, 94.2 with twice as
#   many bytes.
LITTLE_COMPUTING = 0.35

# Share of the L2 cache beyond which what all rows load does not stay there until the next row, so that blocks
# go down the rows.
#   H200, one bf16 tensor of 8, 13, 20, 26 or 67 MB added to all rows, us, down and along these: 137 and 152,
#   203 and 258, 313 and 431, 210 and 291, 272 and 370.
MUCH_IN_COMMON = 1 / 8
# Lines from which on the look-ups of a warp's access count: fewer are shared with those of other elements of
# the same points.
MANY_LINES = 24

# Threads on an SM for which registers are left where they compute. Left alone, the CUDA compiler mostly
# spares registers for all that an SM can have.
#   H200, 16384x4096 bf16, us, with 40 registers and so: gelu 66.6 and 71.2, erf 70.2 and 74.8, mish 78.9 and
#   79.7, gelu_backward 95.4 and 96.2, silu 66.9 and 67.1.
COMPUTING_THREADS = 1536

# ---- accesses that a thread has in flight at least, whatever their bytes ----

# Rows that have more bytes in common than of their own: one load from the caches serves them all. Of four in
# all, a thread has all if what these have in common does not stay in the caches.
#   H200, a batch norm of channels-last images 71 us, 79 with one row; rotations by tables 36.5 in half, 37.3
#   with four rows, 36.0 in bf16, 36.7 with one and with four.
SHARING_ROWS = 2
# Accesses of a thread that loads an input's neighbours by element, which come from memory only once.
#   H200, three neighbours in rows of 4095 bf16: 82 us with two accesses, 87 with one or four.
ACCESSES_OF_NEIGHBOURS = 2

# ---- threads of a block, where there are columns for them ----

# Of a block that gathers elements of a row: its threads share the row's lines.
#   H200, columns of 16384x4096 bf16 in another order: half the time.
GATHERING_THREADS = 512
# Of a block whose vectors are chosen from those of its neighbours, which are in the L1 cache except at the
# block's ends.
#   H200, five neighbours in 16384x4096 bf16: 67 us, 72 with half as many threads.
SHARING_THREADS = 256


@dataclass(frozen=True, slots=True)
class _Shape:
    """How a kernel goes over its elements.

    Attributes:
        sizes: of all dimensions.
        cut: how they become rows and columns.
        vectors, shifted: the vectors of the columns, and whether the last ones of rows are there in part.
        tile: the blocks, if these are tiles.
    """

    sizes: Sequence[int]
    cut: Cut
    vectors: Vectors
    shifted: bool
    tile: Tile | None

    @property
    def total(self) -> int:
        return prod(self.sizes)

    @property
    def width(self) -> int:
        return self.vectors.width

    @property
    def break_point(self) -> int:
        """The number of dimensions that are rows."""
        return self.cut.at if self.tile is None else self.tile.at

    @property
    def why(self) -> str:
        tile = self.tile
        if tile is None:
            return self.cut.why
        return f"tiles of {tile.rows} rows and {tile.columns} vectors, cut at {tile.at}"


@dataclass(frozen=True, eq=False)
class PointwisePlanner:
    """Derives params from the sizes of a call."""

    fusion: Fusion
    space: PointwiseSpace
    _divided: dict[int, tuple[Symbol, ...]] = field(default_factory=dict)

    @cached_property
    def _accesses(self) -> PointwiseAccesses:
        return PointwiseAccesses(self.fusion, self.space)

    @cached_property
    def _cost(self) -> CostModel:
        return CostModel(self.fusion, self._accesses.sectors)

    @cached_property
    def _arithmetic(self) -> PointwiseArithmetic:
        return PointwiseArithmetic(self.fusion, self.space)

    @cached_property
    def _cuts(self) -> CutChoice:
        return CutChoice(self.fusion, self.space, self._accesses, self._arithmetic, self._cost)

    def __call__(self, facts: Facts, hardware: HardwareInfo) -> Proposal:
        sizes = [facts.value(axis.extent) for axis in self.space.axes]
        cut = self._cuts.best(sizes, facts, hardware)
        tile, cut = self._cuts.tiled(cut, sizes, facts) or (None, cut)
        vectors, shifted = self._cuts.vectors_of(cut, sizes, hardware)
        shape = _Shape(sizes, cut, vectors, shifted, tile)
        threads = self._threads(shape, facts)
        unroll = cut.planes or self._accesses_in_flight(shape, threads, facts, hardware)
        break_point, width, is_tiled = shape.break_point, shape.width, shape.tile is not None
        assumed = self._assumed_sizes(break_point, facts)
        along = self._accesses_of_a_row(shape, threads, unroll, facts)
        columns, rows = threads[0] * width * along, threads[1] * unroll // along
        split, flip = fit_rows(sizes, break_point, rows, columns) if break_point else (False, False)
        flip = flip or (not split and self._goes_down_rows(shape, rows, columns, facts, hardware))
        params = PointwiseParams(
            break_point=break_point,
            split_grid_y_dim=split,
            flip_grid_binding=flip,
            vectorization_factor=width,
            unroll_factor_inner=along if break_point else unroll,
            unroll_factor_outer=unroll // along if break_point else 1,
            assumed_sizes=assumed,
            vectorized_dim=cut.dim,
            unaligned_inputs=vectors.unaligned,
            keeps_aligned=vectors.keeps_aligned,
            picked_inputs=vectors.picked,
            shift_rows=shifted,
            keeps_inputs=self._cost.keeps(facts, hardware),
            lparams=LaunchParams(bdimx=threads[0], bdimy=threads[1] if is_tiled else UNSET),
            cparams=CompileParams(maxrregcount=self._registers(shape, unroll, facts, hardware)),
            reason=f"{shape.total} elements; vectors of {width}; {shape.why}; {unroll} accesses in flight"
            + ("; the last of them in part" if shifted else "")
            + ("; some from any element on" if vectors.unaligned else "")
            + ("; for these sizes only" if assumed else ""),
        )
        loaded = width * unroll * self._accesses.bytes_of_point
        held = width * unroll * self._accesses.bytes_in_registers
        if cut.rows > 1:  # which share all that they hold
            loaded -= self._cuts.windows_at(break_point).spared_bytes(unroll, width)
            held = loaded
        cost = self._tile_cost if is_tiled else self._plane_cost(break_point) if cut.planes else self._cost
        # What a row has one of is computed once for all accesses along it, as for one wide vector.
        accesses = (unroll // along, width * along)
        block, planes = prod(threads), max(1, cut.planes)
        estimate = partial(self._estimate, cost, facts, hardware, block, break_point, *accesses)
        return Proposal(params, partial(estimate, planes=planes, loaded=loaded, held=held))

    def _registers(self, shape: _Shape, unroll: int, facts: Facts, hardware: HardwareInfo) -> int:
        """Returns the limit on a thread's registers."""
        needed = REGISTERS_TO_ADDRESS + shape.width * unroll * self._accesses.bytes_of_point // REGISTER_BYTES
        most = hardware.registers_a_thread(COMPUTING_THREADS)
        if needed > most or unroll == 1 or shape.break_point or not self._has_few_temporaries:
            return MAX_REGISTERS_PER_THREAD
        computes = self._is_plain(shape, facts) and not self._computes_little(facts, hardware)
        return most if computes else MAX_REGISTERS_PER_THREAD

    @cached_property
    def _has_few_temporaries(self) -> bool:
        """Whether nothing takes many registers besides what is loaded and stored: no indices, no random
        numbers, nothing in Double.
        """
        by_index = any(access.by_index for access in self._accesses.all)
        tensors = (tensor for node in self.fusion.nodes for tensor in node.tensor_outputs)
        is_wide = any(tensor.dtype.size > REGISTER_BYTES for tensor in tensors)
        return not (by_index or is_wide or any(isinstance(node, Random) for node in self.fusion.nodes))

    def _accesses_of_a_row(self, shape: _Shape, threads: tuple[int, int], unroll: int, facts: Facts) -> int:
        """Returns how many of a thread's accesses lie along the columns of one row: all, where rows have
        nothing in common but the values of a row have, and the columns fill such blocks; else one.

        H200, images of bytes, 32x3x480x640, each with its own contrast, and some flipped: 76.3 us, 126 with
        four images a thread. Rows of int8 with a scale each take as long either way; those of an embedding,
        by indices, 72.5 and 70.7.
        """
        at, cut, accesses = shape.break_point, shape.cut, self._accesses
        if not at or unroll == 1 or shape.tile is not None or shape.shifted or cut.rows > 1 or cut.planes:
            return 1
        fills = prod(shape.sizes[at:]) % (prod(threads) * shape.width * unroll) == 0
        if accesses.gathers or not fills or accesses.bytes_common_to_rows(at, facts):
            return 1
        down = self._arithmetic.slots(facts, at, unroll, shape.width)
        return unroll if self._arithmetic.slots(facts, at, 1, shape.width * unroll) < down else 1

    def _goes_down_rows(
        self, shape: _Shape, rows: int, columns: int, facts: Facts, hardware: HardwareInfo
    ) -> bool:
        """Whether blocks go down the rows first, since these have much in common.

        rows, columns: of a block.
        """
        at, sizes = shape.break_point, shape.sizes
        if (
            not at
            or shape.tile is not None
            or prod(sizes[:at]) <= rows
            or ceil_div(prod(sizes[at:]), columns) > MAX_GRID[1]
        ):
            return False
        return self._have_much_in_common(shape, facts, hardware)

    def _have_much_in_common(self, shape: _Shape, facts: Facts, hardware: HardwareInfo) -> bool:
        """Whether what all rows load does not stay in the L2 cache until the next row."""
        common = self._accesses.bytes_common_to_rows(shape.break_point, facts)
        return common > MUCH_IN_COMMON * hardware.l2_bytes

    @cached_property
    def _tile_cost(self) -> CostModel:
        """The cost of blocks that are tiles.

        H200, bf16, the middle dimensions of 16x1024x512x8 exchanged 68 us, of 1024x4 69, of 2048x2 74; a copy
        takes 67.
        """
        axes, loads = self.space.axes, self._accesses.full_loads
        walks = [
            (access, tuple(along_memory(access, axes) if access in loads else axes))
            for access in self._accesses.all
        ]
        return CostModel(self.fusion, Sectors(self.fusion, tuple(walks)))

    def _plane_cost(self, at: int) -> CostModel:
        """The cost of threads that have all places along the last dimension of `at` of rows, and so all of a
        block of memory that goes along it.
        """
        axes = self.space.axes
        planes = axes[at - 1]
        blocks = [access for access in self._accesses.full_loads if goes_along(access, planes)]
        in_blocks = {access.tensor for access in blocks}
        walks = [
            (access, (*axes[: at - 1], *axes[at:], planes) if access in blocks else axes)
            for access in self._accesses.all
            if access in blocks or access.tensor not in in_blocks
        ]
        return CostModel(self.fusion, Sectors(self.fusion, tuple(walks)))

    def _estimate(
        self,
        cost: CostModel,
        facts: Facts,
        hardware: HardwareInfo,
        block: int,
        break_point: int,
        rows: int,
        width: int,
        planes: int,
        loaded: int,
        held: int,
    ) -> Cost:
        """Returns the cost of blocks of `block` threads with `rows` accesses of `width` elements each.

        A thread that has all `planes` of a join computes what each of them is once, and what they share.
        (H200, colours of 32x3x512x512 in another space: 86 us; 405 if each plane computed all.)

        The bytes `loaded` and stored by each thread go through the L1 cache. Those `held` of them are in
        registers at once. So those of many tensors leave room for few blocks on an SM, which wait for each
        other's arithmetic.
        """
        elements = rows * width
        threads = max(1.0, self._accesses.count_points(facts) / elements)
        slots = self._arithmetic.slots(facts, break_point, rows, width) / planes
        blocks = threads / block
        registers = REGISTERS_TO_ADDRESS + held // REGISTER_BYTES
        # The compiler makes room for one block, whatever its threads need.
        resident = max(1, hardware.registers_per_sm // (block * min(registers, MAX_REGISTERS_PER_THREAD)))
        computing = thread_seconds(slots / threads, hardware)
        moving = cost.seconds_an_sm(facts, hardware) / max(1.0, blocks)
        kept = overlap(resident, moving, LATENCY_SECONDS + BESIDE_OTHERS * computing)
        started = cost.started_share(facts, hardware, blocks)
        speed = min(busy_share(blocks, hardware) * kept, started)
        looking_up = slot_seconds(self._lines(facts) * LINE_SLOTS, hardware)
        # The L1 caches work beside the arithmetic.
        beyond = cached_seconds(threads * loaded, hardware) - slot_seconds(slots, hardware)
        accessing = max(looking_up, beyond)
        return cost.estimate(
            facts, hardware, speed=speed, steps=computing, accessing=accessing, slots=slots
        )()

    def _lines(self, facts: Facts) -> float:
        """Returns the lines of the L1 cache that warps look up in all beyond those of neighbours: a window of
        many loads across memory touches few sectors, but each of its loads as many lines as a warp has
        threads. A load that is the same along the innermost dimension is one element for a warp.

        H200, moving averages of 25 along the memory of 64x1440x112 float, by threads across it: 1059 us, for
        which its bytes take 20.
        """
        sectors, points = self._accesses.sectors, self._accesses.count_points(facts)
        inner = [axis for axis in self.space.axes if not axis.is_broadcast][-1:]
        differing = (a for a in self._accesses.concrete if a.concrete.issuperset(inner))
        lines = (sectors.more_lines(a, facts) for a in differing)
        return points * sum(each for each in lines if each >= MANY_LINES)

    def _threads(self, shape: _Shape, facts: Facts) -> tuple[int, int]:
        """Returns the threads of a block along columns and along rows."""
        if shape.tile is not None:
            return shape.tile.columns, shape.tile.rows
        most = THREADS
        if self._accesses.gathers_elements(facts):
            most = GATHERING_THREADS
        elif shape.vectors.keeps_aligned:
            most = SHARING_THREADS
        columns = prod(shape.sizes[shape.break_point :])
        return most if columns >= most * shape.width else THREADS, 1

    # ---- accesses in flight ----

    def _accesses_in_flight(
        self, shape: _Shape, threads: tuple[int, int], facts: Facts, hardware: HardwareInfo
    ) -> int:
        """Returns the accesses that a thread has in flight along the unrolled axis."""
        accesses, break_point, width, total = self._accesses, shape.break_point, shape.width, shape.total
        loaded = accesses.loaded_bytes(shape.vectors, shape.cut.dim, shape.shifted, facts) * width
        in_flight = self._bytes_in_flight(shape, loaded, facts, hardware)
        rows_share = break_point and accesses.rows_share_elements(break_point)
        # What several accesses share, a line or an element, is worth more of them than their bytes.
        if shape.tile is None and (rows_share or (width == 1 and accesses.are_apart(facts))):
            unroll = min(unrolled(0, in_flight, width, total, hardware), MAX_ACCESSES_IN_FLIGHT)
        elif shape.tile is None:
            share = LEAST_WAVE_OF_GATHERS if accesses.gathers else 1.0
            unroll = unrolled(loaded, in_flight, width, total, hardware, share)
        else:
            unroll = min(shape.tile.rows_a_thread, unrolled(0, in_flight, width, total, hardware))
        if shape.tile is None and break_point and not shape.shifted:
            memory = self._cost.moving_seconds(facts, hardware)
            unroll = self._arithmetic.sharing_rows(facts, hardware, memory, break_point, unroll, width)
        memory = self._cost.seconds_an_sm(facts, hardware) / hardware.sm_count
        blocks = total / width / prod(threads)
        wave = hardware.sm_count * hardware.max_threads_per_sm / prod(threads)
        unroll = with_fewer_blocks(unroll, blocks, wave, memory)
        while (
            unroll > 1
            and not break_point
            and unroll * width * accesses.count_by_element > MAX_SINGLE_ELEMENTS
        ):
            unroll //= 2
        return unroll

    def _bytes_in_flight(self, shape: _Shape, loaded: int, facts: Facts, hardware: HardwareInfo) -> int:
        """Returns the bytes that a thread should have in flight, if one access to each input has `loaded`."""
        cut, accesses = shape.cut, self._accesses
        in_flight = BYTES_IN_FLIGHT
        if not (shape.shifted and shape.break_point):
            in_flight = self._usual_bytes_in_flight(shape, facts, hardware)
        if cut.rows > 1:
            return max(in_flight, cut.rows * loaded)
        if shape.break_point and accesses.rows_share_most(shape.break_point):
            rows = prod(shape.sizes[: shape.break_point])
            has_all = rows <= MAX_ACCESSES_IN_FLIGHT and self._have_much_in_common(shape, facts, hardware)
            return max(in_flight, (rows if has_all else SHARING_ROWS) * loaded)
        goes_through_several = cut.dim != -1 or cut.shifts
        if goes_through_several and not shape.vectors.unaligned and accesses.has_neighbours:
            return max(in_flight, ACCESSES_OF_NEIGHBOURS * loaded)
        return in_flight

    def _usual_bytes_in_flight(self, shape: _Shape, facts: Facts, hardware: HardwareInfo) -> int:
        if self._accesses.gathers:
            return BYTES_IN_FLIGHT_OF_GATHERS
        if not self._is_plain(shape, facts):
            return BYTES_IN_FLIGHT
        is_simple = self._computes_little(facts, hardware) and shape.cut.busy >= BUSY_THREADS
        is_simple = is_simple and not self._accesses.stores_narrower
        return BYTES_IN_FLIGHT_OF_SIMPLE if is_simple else BYTES_IN_FLIGHT

    def _is_plain(self, shape: _Shape, facts: Facts) -> bool:
        """Whether all loads are aligned vectors along the innermost dimension."""
        is_plain = shape.width > 1 and not shape.vectors.unaligned and shape.cut.dim == -1
        return is_plain and not self._accesses.by_element(facts)

    def _computes_little(self, facts: Facts, hardware: HardwareInfo) -> bool:
        memory = self._cost.moving_seconds(facts, hardware)
        return self._cost.computing_seconds(facts, hardware) < LITTLE_COMPUTING * memory

    # ---- sizes ----

    def _assumed_sizes(self, break_point: int, facts: Facts) -> tuple[int, ...]:
        """Returns constants for the sizes by which indices are divided, if they have not changed so far.

        A division by a size that the call passes takes more instructions than all else of an access.
        """
        if break_point not in self._divided:
            self._divided[break_point] = divided_sizes(self.fusion, self.space, break_point)
        symbols = self._divided[break_point]
        sizes = tuple(facts.value(symbol) for symbol in symbols)
        return sizes if facts.stable.issuperset(symbols) and all(sizes) else ()
