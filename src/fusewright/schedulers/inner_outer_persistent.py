"""The inner-outer persistent scheduler: rows that are reduced and read again, and columns reduced meanwhile.

[I, R], rows and what is contiguous, becomes

    [I blocks, I threads z, I steps, R threads y, R threads x | R batches, R vector]

As many blocks as fit the GPU walk down the rows. A block holds its row until the reductions along it are
complete, then uses it again. What its threads find in their columns stays in registers until the last row.
Then blocks store that, wait for each other, and each sums what all have found in its share of the columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fusewright.core.enums import MemoryType, ParallelType, SchedulerType
from fusewright.core.hardware import (
    BULK_COPIES_SINCE,
    MAX_REGISTERS_PER_THREAD,
    MAX_VECTOR_BYTES,
    REGISTER_BYTES,
    WARP_SIZE,
    HardwareInfo,
)
from fusewright.core.once import cached_property
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Pointwise, Reduction
from fusewright.ir.value import TensorView
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.base import BuiltInScheduler, Facts, Planner, Proposal, Reject, accepted
from fusewright.schedulers.cost import GRID_REDUCTION_SECONDS, CostModel, busy_share
from fusewright.schedulers.held_length import HeldLength, is_one_size
from fusewright.schedulers.held_rows import held_tensors, recompute, times_computed
from fusewright.schedulers.inner_outer_persistent_space import (
    InnerOuterPersistentSpace,
    inner_outer_persistent_space,
)
from fusewright.schedulers.io import (
    Ports,
    VectorLimits,
    cache_inputs_and_outputs,
    find_loads,
    vectorize_ports,
)
from fusewright.schedulers.params import CompileParams, InnerOuterPersistentParams, LaunchParams
from fusewright.schedulers.reduction_loops import feeds, inline, merge_to_rows_and_reduction
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_least, power_of_two_at_most
from fusewright.sym import as_int

# Loop positions of the reference, and what they are bound to.
_BLOCKS, _THREADS_Z, _STEPS, _THREADS_Y, _THREADS_X, _BATCHES, _VECTOR = range(7)
_BINDINGS = {
    _BLOCKS: ParallelType.grid_x,
    _THREADS_Z: ParallelType.block_z,
    _THREADS_Y: ParallelType.block_y,
    _THREADS_X: ParallelType.block_x,
}

# The same of a reduction of columns in the end: [I steps, I blocks, I threads x, R threads y, R threads z,
# R steps, R unroll].
_LAST_STEPS = 5
_LAST_BINDINGS = {
    1: ParallelType.grid_x,
    2: ParallelType.block_x,
    3: ParallelType.block_y,
    4: ParallelType.block_z,
    6: ParallelType.unroll,
}
# Blocks whose partial results of a column a thread loads at once.
PARTIALS_IN_FLIGHT = 64

# A thread needs this many registers besides the row and its columns: addresses, results, work in flight.
REGISTERS_TO_WORK = 32
REGISTERS_TO_PREFETCH = 8
# An SM gives a thread registers in steps of so many, and to so many warps together.
REGISTER_STEP, WARPS_TOGETHER = 8, 4
# Partial results of a column that one thread finishes side by side: a vector of floats.
MAX_COLUMNS_A_THREAD = 4
# From so many bytes a column on, all rows of an SM are one block's, as each block passes on its partial
# results (an H200: layer norm backward of 16384 x 4096 takes 0.95 of the time, RMS norm backward more).
STATES_OF_ONE_BLOCK = 8
# Shared memory of the reductions of rows, and of what waits for copies.
SHARED_SLACK = 8 * 1024
# Threads of a block that handles several rows at a time.
BLOCK = 128
# Of a copy's speed, what such a kernel reaches.
SPEED = 0.85
# Beyond this growth by computing anew what is between reductions, several kernels are cheaper.
MAX_GROWTH = 4


@dataclass(frozen=True, slots=True)
class _Choice:
    """Elements that a thread has of a row, and where the next row is loaded meanwhile, if it is.

    prefetches: into registers, or, with `stages`, copied into shared memory that has room for so many rows.
    rank: the highest that fits is taken.
    """

    elements: int
    prefetches: bool
    rank: int
    stages: int = 0


_IN_REGISTERS, _IN_SHARED_MEMORY, _NOT_AHEAD, _AT_LEAST = 3, 2, 1, 0
# Many elements a thread make its part of a row's reductions cheap.
CHOICES = (
    _Choice(32, prefetches=True, rank=_IN_REGISTERS),
    _Choice(16, prefetches=True, rank=_IN_REGISTERS),
    _Choice(16, prefetches=True, rank=_IN_SHARED_MEMORY, stages=3),
    _Choice(32, prefetches=False, rank=_NOT_AHEAD),
    _Choice(16, prefetches=False, rank=_NOT_AHEAD),
    _Choice(64, prefetches=False, rank=_AT_LEAST),
)


@dataclass(frozen=True, slots=True)
class _Tile:
    """How a choice lies over rows: lanes * along threads of each with `batches` vectors, `at_once` rows a
    block, `resident` blocks an SM.
    """

    choice: _Choice
    lanes: int
    along: int
    batches: int
    at_once: int
    resident: int

    @property
    def threads(self) -> int:
        """Of one row."""
        return self.lanes * self.along

    @property
    def rows_an_sm(self) -> int:
        return self.at_once * self.resident


class InnerOuterPersistentScheduler(BuiltInScheduler):
    """Accepts reductions along memory whose results meet the row again, beside reductions of columns."""

    type = SchedulerType.inner_outer_persistent
    params_type = InnerOuterPersistentParams
    merges_last = True

    def prepare(self, fusion: Fusion) -> Planner | Reject:
        space = _space(fusion)
        return Reject(space) if isinstance(space, str) else _Planner(fusion, space)

    def apply(self, schedule: Schedule, params: InnerOuterPersistentParams) -> None:
        original = accepted(self, _space(schedule.fusion))
        length = _length_of(params)
        length.check(original.rows)
        ports = cache_inputs_and_outputs(schedule)
        space = accepted(self, inner_outer_persistent_space(schedule.fusion))
        rows = space.rows
        reference = merge_to_rows_and_reduction(schedule, rows)
        length.assume(schedule, rows)
        _cut_rows(schedule, reference, params)
        schedule.transform_like(reference)
        sums = [_exchange(schedule, tensor, space, params) for tensor in space.column_reductions]
        last = {*space.of_columns, *(read for each in sums for read in each.reads)}
        others = [tensor for tensor in schedule.fusion.tensors() if tensor not in last]
        loads = _loads_of_rows(schedule.fusion, space)
        streamed = [t for t in loads if rows.has_every_element(t)] if params.circular_stages else []
        ahead = [load for load in loads if params.prefetch_rows and load not in streamed]
        _cut_columns(schedule, reference, params)
        # What is loaded once a row stays one element of it.
        whole = {reference, *(load for load in ahead if not rows.has_every_element(load))}
        schedule.transform_like(reference, [tensor for tensor in others if tensor not in whole])
        partials = [schedule.rfactor(tensor, [_BATCHES, _VECTOR]) for tensor in rows.reductions]
        lead = partials[0]
        for position, kind in _BINDINGS.items():
            if position != _THREADS_Z or params.lparams.bdimz > 1:
                schedule.parallelize(lead, position, kind)
        bound = [tensor for tensor in schedule.fusion.tensors() if tensor not in last]
        schedule.parallelize_like(lead, selected=[tensor for tensor in bound if tensor is not lead])
        width = params.vectorization_factor
        points = (tuple(port for port in each if port not in last) for each in (ports.loads, ports.stores))
        vectorize_ports(schedule, Ports(*points), width)
        recompute(schedule, rows, everything=params.project_persistent_buffers, loads=False)
        targets = {*partials, *(each.partial for each in sums)}
        rings = [_through_ring(schedule, load, targets, params) for load in streamed]
        held = []
        if params.columns_in_shared_memory:
            held = [_hold_columns(schedule, source, space, width) for source in space.column_inputs]
        for each in sums:
            each.store(schedule, width)
        reduced = {state for each in sums for state in _siblings(each.total)}
        results = [tensor for tensor in space.of_columns if tensor not in reduced]
        for each in sums:
            end = each.finish(schedule, params)
            following = [*each.reads, *_siblings(end), *_siblings(each.total), *results]
            following = [tensor for tensor in following if tensor is not end]
            schedule.transform_like(end, selected=following)
            schedule.parallelize_like(end, selected=following)
            if params.columns_a_thread > 1:
                for tensor in _siblings(each.total):  # one exchange for all of them
                    schedule.parallelize(tensor, -1, ParallelType.unroll)
                for read in each.reads:
                    schedule.parallelize(read, -1, ParallelType.vectorize)
            schedule.inline_at(end, _LAST_STEPS + 1, best_effort=True, selected=each.reads)
        placed = [*held, *(read for each in sums for read in each.reads)]
        if rings:
            schedule.inline_at(lead, _STEPS + 1, best_effort=True, selected=rings)
            placed += rings
        if ahead:
            schedule.inline_at(lead, _BATCHES, best_effort=True, selected=ahead)
        for load in ahead:
            schedule.prefetch(load)
            placed.append(load)
        inline(schedule, rows, partials, width, _BATCHES, [each.partial for each in sums], placed)


def _through_ring(
    schedule: Schedule, load: TensorView, targets: set[TensorView], params: InnerOuterPersistentParams
) -> TensorView:
    """Has a load read a row from shared memory, once for the reductions of it and once for what follows from
    these, and copies that row ahead. Returns what the row is copied to.
    """
    assert load.definition is not None
    (source,) = load.definition.tensor_inputs
    ring = schedule.cache_after(source, cached_uses=[load])
    uses = [use.output for use in load.uses]
    early = [tensor for tensor in uses if feeds(tensor, targets)]
    late = [tensor for tensor in uses if tensor not in early]
    if early and late:
        for group in (early, late):
            schedule.cache_after(load, cached_uses=group)
        schedule.recompute(load)
    # [.., R threads y, R threads x, R batches, R vector] -> [.., R]
    schedule.reorder(ring, {_BATCHES: _THREADS_Y})
    for _ in range(_VECTOR - _THREADS_Y):
        schedule.merge(ring, _THREADS_Y)
    schedule.parallelize(ring, _BLOCKS, ParallelType.grid_x)
    schedule.set_memory_type(ring, MemoryType.shared)
    schedule.circular_buffer(ring, params.circular_stages)
    return ring


def _hold_columns(
    schedule: Schedule, source: TensorView, space: InnerOuterPersistentSpace, width: int
) -> TensorView:
    """Has an input that is the same for all rows read from shared memory. Returns what blocks copy it to."""
    loads = find_loads(schedule.fusion)
    uses = [use.output for use in source.uses if use.output in loads and use.output not in space.of_columns]
    held = schedule.cache_after(source, cached_uses=uses)
    # [R threads y, R threads x, R batches, R vector]
    schedule.parallelize(held, 0, ParallelType.block_y)
    schedule.parallelize(held, 1, ParallelType.block_x)
    vectorize_ports(schedule, Ports((held,), ()), width)
    schedule.set_memory_type(held, MemoryType.shared)
    schedule.store_along(held, [2, 0, 1, 3])
    return held


def _loads_of_rows(fusion: Fusion, space: InnerOuterPersistentSpace) -> list[TensorView]:
    """The loads of what is another for each row."""
    iteration = [axis for axis in space.rows.iteration if not axis.is_broadcast]

    def varies(load: TensorView) -> bool:
        own = [space.rows.maps.get(load, {}).get(axis) for axis in iteration]
        return any(axis is not None and not axis.is_broadcast for axis in own)

    return [load for load in find_loads(fusion) if load not in space.of_columns and varies(load)]


def _space(fusion: Fusion) -> InnerOuterPersistentSpace | str:
    """The space of a fusion that the scheduler takes, or why it does not."""
    space = inner_outer_persistent_space(fusion)
    if not isinstance(space, str) and times_computed(fusion) > MAX_GROWTH * len(fusion.nodes):
        return "what lies between its reductions would be computed anew for each of too many"
    return space


def _length_of(params: InnerOuterPersistentParams) -> HeldLength:
    """How the warps of a row cover it."""
    return HeldLength(
        what="rows",
        path="lparams.bdimy",
        threads=params.lparams.bdimy,
        elements=params.elements_a_warp,
        step=1,
        sizes=params.assumed_reduction_sizes,
    )


def _cut_rows(schedule: Schedule, tensor: TensorView, params: InnerOuterPersistentParams) -> None:
    """[I, R] -> [I blocks, I threads z, I steps, R]."""
    schedule.split(tensor, 0, params.lparams.bdimz)
    schedule.split(tensor, 0, params.lparams.gdimx)
    schedule.reorder(tensor, {0: _STEPS})


def _cut_columns(schedule: Schedule, tensor: TensorView, params: InnerOuterPersistentParams) -> None:
    """[.., R] -> [.., R threads y, R threads x, R batches, R vector]."""
    schedule.split(tensor, 3, params.vectorization_factor)
    schedule.split(tensor, 3, params.lparams.bdimx)
    schedule.split(tensor, 3, params.batches_per_block_inner_reduction, inner_split=False)
    schedule.reorder(tensor, {3: _BATCHES})


@dataclass(frozen=True, slots=True)
class _Exchange:
    """A reduction of columns, in the steps that it is made in.

    Attributes:
        partial: what a thread finds in the rows of its block. of_block: that of all threads z.
        stored: that of all blocks, in global memory, a tensor for each state. reads: copies of these in
            registers.
        total: the result.
    """

    partial: TensorView
    of_block: TensorView
    stored: tuple[TensorView, ...]
    reads: tuple[TensorView, ...]
    total: TensorView

    def store(self, schedule: Schedule, width: int) -> None:
        """Makes stores of vectors of what a thread has, whose columns come in runs of `width`."""
        if self.of_block is not self.partial:
            for tensor in _siblings(self.of_block):
                schedule.parallelize(tensor, -1, ParallelType.unroll)
        for tensor in self.stored:
            own = min(width, MAX_VECTOR_BYTES // tensor.dtype.size)
            if own > 1:
                schedule.split(tensor, -1, own)
                schedule.parallelize(tensor, -1, ParallelType.vectorize)

    def finish(self, schedule: Schedule, params: InnerOuterPersistentParams) -> TensorView:
        """Shares the columns out to the blocks, and what blocks have found of one to threads y and z.

        Returns what a thread finds.
        """
        total, extents = self.total, params.lparams
        if self.of_block is self.partial:
            schedule.merge(total, 0)
        down = max(1, extents.bdimy)
        each = ceil_div(extents.gdimx, down * extents.bdimz)
        # [blocks, columns] -> [columns: steps, blocks, threads x; blocks: y, z, steps, unroll; vector]
        schedule.split(total, 1, params.columns_a_thread)
        schedule.split(total, 1, extents.bdimx)
        schedule.split(total, 1, extents.gdimx)
        schedule.split(total, 0, extents.bdimz)
        schedule.split(total, 0, down)
        schedule.split(
            total, 0, ceil_div(each, ceil_div(each, PARTIALS_IN_FLIGHT // params.columns_a_thread))
        )
        schedule.reorder(total, dict(zip((4, 5, 6, 2, 3, 0, 1), range(7))))
        others = [tensor for tensor in _siblings(total) if tensor is not total]
        if others:
            schedule.transform_like(total, selected=others)
        of_thread = schedule.rfactor(total, [_LAST_STEPS, _LAST_STEPS + 1])
        for position, kind in _LAST_BINDINGS.items():
            schedule.parallelize(of_thread, position, kind)
        return of_thread


def _exchange(
    schedule: Schedule,
    tensor: TensorView,
    space: InnerOuterPersistentSpace,
    params: InnerOuterPersistentParams,
) -> _Exchange:
    """Makes a reduction [R blocks, R threads z, R steps, I columns] one of a thread, a block and the grid.

    Between blocks the columns lie in memory as those of the inputs, those that a block found side by side.
    """
    own = space.rows.maps[tensor]
    place = {own[axis]: i for i, axis in enumerate(space.rows.reduction)}
    places = [place[axis] for axis in tensor.logical if axis in place]
    partial = of_block = schedule.rfactor(tensor, [_STEPS])
    if params.lparams.bdimz > 1:
        of_block = schedule.rfactor(tensor, [1])
    of_rows = [dim for dim, axis in enumerate(of_block.shape) if axis.rfactor]
    of_columns = [dim for dim, axis in enumerate(of_block.shape) if not axis.rfactor]
    order = [*of_rows, *(dim for _, dim in sorted(zip(places, of_columns)))]
    stored = tuple(schedule.cache_after(state) for state in _siblings(of_block))
    for state in stored:
        schedule.set_memory_type(state, MemoryType.global_)
        schedule.store_along(state, order)
    return _Exchange(partial, of_block, stored, tuple(map(schedule.cache_after, stored)), tensor)


def _siblings(tensor: TensorView) -> list[TensorView]:
    """All outputs of the node that computes `tensor`."""
    assert tensor.definition is not None
    return [out for out in tensor.definition.outputs if isinstance(out, TensorView)]


@dataclass(frozen=True, slots=True)
class _Held:
    """The most bytes that are held for an element of a row across any one reduction.

    everything: where what is computed before it and needed after it is held. inputs: where inputs alone are.
    """

    everything: int
    inputs: int


@dataclass(frozen=True, eq=False)
class _Planner:
    """Derives params from the sizes of a call."""

    fusion: Fusion
    space: InnerOuterPersistentSpace

    @cached_property
    def _cost(self) -> CostModel:
        return CostModel(self.fusion, self.space.rows.sectors(self.fusion))

    @cached_property
    def _vectors(self) -> VectorLimits | None:
        return self.space.rows.vector_limits(self.fusion)

    @cached_property
    def _held(self) -> _Held:
        """As `apply` makes the buffers."""
        return _Held(self._bytes_held(everything=False), self._bytes_held(everything=True))

    def _bytes_held(self, everything: bool) -> int:
        schedule = Schedule(self.fusion)
        cache_inputs_and_outputs(schedule)
        space = inner_outer_persistent_space(schedule.fusion)
        assert isinstance(space, InnerOuterPersistentSpace), space
        recompute(schedule, space.rows, everything=everything, loads=False)
        across: dict[TensorView, int] = {}
        for tensor, reductions in held_tensors(schedule.fusion, space.rows).items():
            for reduction in reductions:
                across[reduction] = across.get(reduction, 0) + tensor.dtype.size
        return max(across.values(), default=0)

    @cached_property
    def _state_bytes(self) -> int:
        """Of what a column has come to, before it is complete."""
        nodes = {tensor.definition for tensor in self.space.column_reductions}
        return sum(out.dtype.size for node in nodes if node is not None for out in node.outputs)

    @cached_property
    def _column_bytes(self) -> int:
        """Of an element of each input that is the same for all rows."""
        return sum(tensor.dtype.size for tensor in self.space.column_inputs)

    @cached_property
    def _loaded_bytes(self) -> int:
        """Of all loads of an element of a row."""
        rows = self.space.rows
        return sum(access.tensor.dtype.size for access in rows.loads if rows.is_full(access))

    def __call__(self, facts: Facts, hardware: HardwareInfo) -> Proposal | Reject:
        space = self.space.rows
        width = self._vectors.width(facts) if self._vectors is not None else 1
        rows, length = space.iteration_size(facts), space.reduction_size(facts)
        if not rows or not length:
            return Reject("there is nothing to reduce")
        params = self._params(rows, length, width, hardware)
        if isinstance(params, Reject):
            return params
        blocks, passed = params.lparams.gdimx, params.lparams.gdimx * length * self._state_bytes
        steps = GRID_REDUCTION_SECONDS + 2 * passed / (hardware.memory_bandwidth_gbs * 1e9)
        estimate = self._cost.estimate(
            facts, hardware, speed=SPEED * busy_share(blocks, hardware), steps=steps
        )
        if self._is_stable(facts):
            sizes = tuple(facts.value(axis.extent) for axis in space.reduction)
            reason = f"{params.reason}; for rows of this length only"
            return Proposal(replace(params, assumed_reduction_sizes=sizes, reason=reason), estimate)
        if not is_one_size(space):
            params = replace(params, lparams=replace(params.lparams, bdimy=-1))
        return Proposal(params, estimate)

    def _is_stable(self, facts: Facts) -> bool:
        """Whether a kernel for rows of this length alone serves, which has no guards along them.

        It is 1.2 times as fast (layer norm backward, 16384 x 4096 bfloat16 on an H200).
        """
        sizes = [axis.extent for axis in self.space.rows.reduction if as_int(axis.extent) is None]
        return bool(sizes) and facts.stable.issuperset(sizes)

    def _params(
        self, rows: int, length: int, width: int, hardware: HardwareInfo
    ) -> InnerOuterPersistentParams | Reject:
        tiles = [self._tile(rows, length, width, choice, hardware) for choice in CHOICES]
        fitting = [tile for tile in tiles if tile is not None]
        if not fitting:
            return Reject(f"a block cannot hold a row of {length} and what its columns have come to")
        # Of equal rank those with most rows in flight, then with most threads.
        chosen = max(fitting, key=lambda tile: (tile.choice.rank, tile.rows_an_sm, -tile.choice.elements))
        at_once, resident = chosen.at_once, chosen.resident
        if self._state_bytes >= STATES_OF_ONE_BLOCK and chosen.choice.rank == _IN_REGISTERS:
            # Few blocks pass on less.
            most = min(hardware.max_threads_per_block // chosen.threads, max(1, rows // hardware.sm_count))
            at_once, resident = min(chosen.rows_an_sm, most, hardware.max_block[2]), 1
        threads = chosen.threads * at_once
        # All blocks have to be resident at once, so that they can wait for each other.
        registers = _registers_of(threads, resident, hardware)
        blocks = min(hardware.sm_count * resident, ceil_div(rows, at_once))
        groups = ceil_div(length, chosen.lanes * blocks)
        ahead = chosen.choice.prefetches and rows > blocks * at_once
        stages = chosen.choice.stages if ahead else 0
        return InnerOuterPersistentParams(
            vectorization_factor=width,
            batches_per_block_inner_reduction=chosen.batches,
            project_persistent_buffers=self._projects or stages > 0,
            prefetch_rows=ahead,
            columns_a_thread=min(width, MAX_COLUMNS_A_THREAD, power_of_two_at_least(groups)),
            columns_in_shared_memory=rows > blocks * at_once
            and self._holds_columns(length, stages, threads, resident, hardware),
            circular_stages=stages,
            lparams=LaunchParams(gdimx=blocks, bdimx=chosen.lanes, bdimy=chosen.along, bdimz=at_once),
            cparams=CompileParams(maxrregcount=min(registers, hardware.max_registers_per_thread)),
            reason=f"{rows} rows of {length}: {blocks} blocks of {at_once} rows at a time, "
            f"{chosen.lanes} x {chosen.along} threads a row, {chosen.batches} vectors of {width} a thread"
            + (", the next row ahead" if ahead else ""),
        )

    @cached_property
    def _projects(self) -> bool:
        """Whether inputs alone are held."""
        return self._held.inputs < self._held.everything

    def _tile(
        self, rows: int, length: int, width: int, choice: _Choice, hardware: HardwareInfo
    ) -> _Tile | None:
        """How threads lie along a row by a choice, if a block has the registers and memory for it."""
        vectors = ceil_div(length, width)
        lanes = min(WARP_SIZE, power_of_two_at_least(vectors))
        batches = min(ceil_div(vectors, lanes), max(1, choice.elements // width))
        along = ceil_div(vectors, lanes * batches)
        threads = lanes * along
        if choice.stages and not self._may_be_streamed(length, width, choice.stages, threads, hardware):
            return None
        of_element = self._state_bytes
        if not choice.stages:
            of_element += self._held.inputs if self._projects else self._held.everything
            of_element += self._loaded_bytes if choice.prefetches else 0
        to_work = REGISTERS_TO_WORK + (REGISTERS_TO_PREFETCH if choice.prefetches else 0)
        registers = to_work + ceil_div(batches * width * of_element, REGISTER_BYTES)
        room = min(_registers_of(max(threads, BLOCK), 1, hardware), MAX_REGISTERS_PER_THREAD)
        if threads > hardware.max_threads_per_block or registers > room:
            return None
        most = min(BLOCK // threads, rows // hardware.sm_count, hardware.max_block[2])
        at_once = 1 if choice.stages else power_of_two_at_most(max(1, most))
        resident = 1 if choice.stages else _resident(threads * at_once, registers, hardware)
        return _Tile(choice, lanes, along, batches, at_once, resident)

    def _exchanged(self, threads: int) -> int:
        """Bytes of shared memory that reductions take in a block of so many threads."""
        nodes = {tensor.definition for tensor in self.space.column_reductions}
        kinds = {tuple(out.dtype for out in node.outputs) for node in nodes if node is not None}
        a_column = sum(dtype.size for kind in kinds for dtype in kind)
        return threads * MAX_COLUMNS_A_THREAD * a_column + SHARED_SLACK

    def _holds_columns(
        self, length: int, stages: int, threads: int, resident: int, hardware: HardwareInfo
    ) -> bool:
        """Whether what is the same for all rows fits into shared memory, beside so many rows."""
        needed = length * (self._column_bytes + stages * self._loaded_bytes) + self._exchanged(threads)
        room = hardware.shared_memory_per_sm // resident - hardware.shared_memory_reserved
        return self._column_bytes > 0 and needed <= min(room, hardware.shared_memory_per_block_optin)

    def _may_be_streamed(
        self, length: int, width: int, stages: int, threads: int, hardware: HardwareInfo
    ) -> bool:
        """Whether rows can be copied ahead into shared memory, with room for so many."""
        rows = self.space.rows
        full = [access for access in rows.loads if rows.is_full(access)]
        needed = stages * length * self._loaded_bytes + self._exchanged(threads)
        return (
            is_one_size(rows)
            and all(isinstance(access.node, (Pointwise, Reduction)) for access in full)
            and all(width * access.tensor.dtype.size % MAX_VECTOR_BYTES == 0 for access in full)
            and hardware.compute_capability >= BULK_COPIES_SINCE
            and needed <= hardware.shared_memory_per_block_optin
        )


def _registers_of(threads: int, resident: int, hardware: HardwareInfo) -> int:
    """What a thread may use, at most, of an SM that holds so many blocks of so many threads."""
    warps = ceil_div(ceil_div(threads, WARP_SIZE) * resident, WARPS_TOGETHER) * WARPS_TOGETHER
    return hardware.registers_per_sm // (warps * WARP_SIZE) // REGISTER_STEP * REGISTER_STEP


def _resident(threads: int, registers: int, hardware: HardwareInfo) -> int:
    """How many blocks of so many threads, which use so many registers each, an SM holds; one at least."""
    warps = ceil_div(threads, WARP_SIZE)
    of_warp = ceil_div(registers, REGISTER_STEP) * REGISTER_STEP * WARP_SIZE
    by_registers = hardware.registers_per_sm // of_warp // WARPS_TOGETHER * WARPS_TOGETHER // warps
    by_threads = hardware.max_threads_per_sm // (warps * WARP_SIZE)
    return max(1, min(by_registers, by_threads, hardware.max_blocks_per_sm))
