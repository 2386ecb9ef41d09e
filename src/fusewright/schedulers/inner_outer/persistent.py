"""The inner-outer persistent scheduler: rows are reduced and read again, and columns are reduced meanwhile.

[I, R], where I is the rows and R the contiguous dimension, becomes

    [I blocks, I threads z, I steps, (R blocks of a cluster,) R threads y, R threads x | R batches, R vector]

As many blocks as fit the GPU walk down the rows. A block holds its row until the reductions along it are
complete, and then uses it again. The partial column results of its threads stay in registers until the last
row. Then the blocks store these and wait for each other, and each block sums the partial results of all
blocks for its share of the columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fusewright.core.enums import MemoryType, ParallelType, SchedulerType
from fusewright.core.hardware import MAX_VECTOR_BYTES, HardwareInfo
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.value import TensorView
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.base import (
    BuiltInScheduler,
    Facts,
    Part,
    Planner,
    Reject,
    Rewrite,
    accepted,
    planner_of,
)
from fusewright.schedulers.inner_outer.block_resources import EXCHANGED_BYTES
from fusewright.schedulers.inner_outer.persistent_heuristic import (
    InnerOuterPersistentPlanner,
)
from fusewright.schedulers.inner_outer.persistent_space import (
    InnerOuterPersistentSpace,
    inner_outer_persistent_space,
)
from fusewright.schedulers.io import (
    Ports,
    cache_inputs_and_outputs,
    check_inputs,
    find_loads,
    input_hint,
    is_read_by_index,
    vectorize_ports,
)
from fusewright.schedulers.params import InnerOuterPersistentParams
from fusewright.schedulers.persistent.held_length import HeldLength
from fusewright.schedulers.persistent.held_rows import grows_too_much, recompute
from fusewright.schedulers.reduction.loops import feeds, inline, merge_to_rows_and_reduction
from fusewright.schedulers.reduction.space import ReductionSpace
from fusewright.schedulers.reduction.variances import variance_in_two_passes
from fusewright.schedulers.reduction.wider_vectors import aligned_rows
from fusewright.schedulers.sizes import ceil_div

# Loop positions of the reference, and what they are bound to.
_BLOCKS, _THREADS_Z, _STEPS, _COLUMNS = range(4)

# Blocks whose partial results of a column a thread loads at once.
PARTIALS_IN_FLIGHT = 64


@dataclass(frozen=True, slots=True)
class _Loops:
    """Positions of the reference's loops over the columns; before the threads' that of a cluster's blocks."""

    cluster: int

    @property
    def threads_y(self) -> int:
        return _COLUMNS + (self.cluster > 1)

    @property
    def batches(self) -> int:
        return self.threads_y + 2

    @property
    def vector(self) -> int:
        return self.batches + 1

    @property
    def bound(self) -> dict[int, ParallelType]:
        """What positions are bound to."""
        found = {_BLOCKS: ParallelType.grid_x, _THREADS_Z: ParallelType.block_z}
        if self.cluster > 1:
            found[_COLUMNS] = ParallelType.cluster_x
        return found | {self.threads_y: ParallelType.block_y, self.threads_y + 1: ParallelType.block_x}


class InnerOuterPersistentScheduler(BuiltInScheduler):
    """Accepts reductions along memory whose results meet the row again, beside reductions of columns."""

    type = SchedulerType.inner_outer_persistent
    params_type = InnerOuterPersistentParams
    merges_last = True

    def prepare(self, fusion: Fusion) -> Planner | Reject:
        return planner_of(InnerOuterPersistentPlanner, fusion, _space(fusion))

    def propose_redefinition(self, part: Part, facts: Facts, hardware: HardwareInfo) -> Rewrite | None:
        """Two sums in place of Welford's steps, of rows that are held."""
        return variance_in_two_passes(part)

    def apply(self, schedule: Schedule, params: InnerOuterPersistentParams) -> None:
        original = accepted(self, _space(schedule.fusion))
        length = _length_of(params)
        length.check(original.rows)
        check_inputs(schedule.fusion, params.unaligned_inputs, "unaligned_inputs")
        once = () if params.circular_stages else original.rows.read_once  # else rings have the hint
        ports = cache_inputs_and_outputs(schedule, once, input_hint(params))
        space = accepted(self, inner_outer_persistent_space(schedule.fusion))
        rows = space.rows
        reference = merge_to_rows_and_reduction(schedule, rows)
        length.assume(schedule, rows)
        loops = _Loops(params.blocks_per_cluster)
        _cut_rows(schedule, reference, params)
        schedule.transform_like(reference)
        sums = [_exchange(schedule, tensor, space, params) for tensor in space.column_reductions]
        last = {*space.of_columns, *(read for each in sums for read in each.reads)}
        others = [tensor for tensor in schedule.fusion.tensors() if tensor not in last]
        loads = _loads_of_rows(schedule.fusion, space)
        may_be_ahead = [load for load in loads if not is_read_by_index(load)]
        streamed = [t for t in may_be_ahead if rows.has_every_element(t)] if params.circular_stages else []
        ahead = [load for load in may_be_ahead if params.prefetch_rows and load not in streamed]
        _cut_columns(schedule, reference, params, aligned_rows(rows) if params.shift_rows else None)
        # What is loaded once a row stays one element of it.
        whole = {reference, *(load for load in ahead if not _varies(rows, load, rows.reduction))}
        schedule.transform_like(reference, [tensor for tensor in others if tensor not in whole])
        partials = [schedule.rfactor(tensor, [loops.batches, loops.vector]) for tensor in rows.reductions]
        lead = partials[0]
        for position, kind in loops.bound.items():
            if position != _THREADS_Z or params.lparams.bdimz > 1:
                schedule.parallelize(lead, position, kind)
        if streamed:  # no registers hold the row, whose loops would stay
            schedule.parallelize(lead, loops.batches, ParallelType.unroll)
        bound = [tensor for tensor in schedule.fusion.tensors() if tensor not in last]
        schedule.parallelize_like(lead, selected=[tensor for tensor in bound if tensor is not lead])
        width = params.vectorization_factor
        points = (tuple(port for port in each if port not in last) for each in (ports.loads, ports.stores))
        vectorize_ports(schedule, Ports(*points), width, unaligned=params.unaligned_inputs)
        recompute(schedule, rows, everything=params.project_persistent_buffers)
        targets = {*partials, *(each.partial for each in sums)}
        rings = [_through_ring(schedule, load, targets, params) for load in streamed]
        held = []
        if params.columns_in_shared_memory:
            held = [_hold_columns(schedule, source, space, params) for source in space.column_inputs]
        _finish_columns(schedule, sums, space, params)
        placed = [*held, *(read for each in sums for read in each.reads)]
        if rings:
            schedule.inline_at(lead, _STEPS + 1, best_effort=True, selected=rings)
            placed += rings
        if ahead:
            schedule.inline_at(lead, loops.batches, best_effort=True, selected=ahead)
        for load in ahead:
            schedule.prefetch(load)
            placed.append(load)
        inline(schedule, rows, partials, width, loops.batches, [each.partial for each in sums], placed)


def _finish_columns(
    schedule: Schedule,
    sums: Sequence[_Exchange],
    space: InnerOuterPersistentSpace,
    params: InnerOuterPersistentParams,
) -> None:
    """Has blocks store what they found in their columns, and each sum its share of what all found."""
    for each in sums:
        each.store(schedule, params)
    reduced = {state for each in sums for state in each.total.siblings}
    results = [tensor for tensor in space.of_columns if tensor not in reduced]
    for each in sums:
        end = each.finish(schedule, params)
        following = [*each.reads, *end.siblings, *each.total.siblings, *results]
        following = [tensor for tensor in following if tensor is not end]
        schedule.transform_like(end, selected=following)
        schedule.parallelize_like(end, selected=following)
        if params.columns_a_thread > 1:
            for tensor in each.total.siblings:  # one exchange for all of them
                schedule.parallelize(tensor, -1, ParallelType.unroll)
            for read in each.reads:
                width = MAX_VECTOR_BYTES // read.dtype.size
                if width < params.columns_a_thread:
                    schedule.split(read, -1, width)
                schedule.parallelize(read, -1, ParallelType.vectorize)
        schedule.inline_at(end, len(end.loop) - 2, best_effort=True, selected=each.reads)


def _through_ring(
    schedule: Schedule, load: TensorView, targets: set[TensorView], params: InnerOuterPersistentParams
) -> TensorView:
    """Has a load read a row from shared memory, once for the reductions of it and once for what follows from
    these, and copies that row ahead. Returns what the row is copied to.
    """
    assert load.definition is not None
    (source,) = load.definition.tensor_inputs
    ring = schedule.cache_after(source, cached_uses=[load], cache_op=input_hint(params))
    uses = [use.output for use in load.uses]
    early = [tensor for tensor in uses if feeds(tensor, targets)]
    late = [tensor for tensor in uses if tensor not in early]
    if early and late:
        for group in (early, late):
            schedule.cache_after(load, cached_uses=group)
        schedule.recompute(load)
    # [.., R threads y, R threads x, R batches, R vector] -> [.., R]
    loops = _Loops(params.blocks_per_cluster)
    schedule.reorder(ring, {loops.batches: loops.threads_y})
    for _ in range(loops.vector - loops.threads_y):
        schedule.merge(ring, loops.threads_y)
    schedule.parallelize(ring, _BLOCKS, ParallelType.grid_x)
    if params.blocks_per_cluster > 1:
        schedule.parallelize(ring, _COLUMNS, ParallelType.cluster_x)
    schedule.set_memory_type(ring, MemoryType.shared)
    schedule.circular_buffer(ring, params.circular_stages)
    return ring


def _hold_columns(
    schedule: Schedule,
    source: TensorView,
    space: InnerOuterPersistentSpace,
    params: InnerOuterPersistentParams,
) -> TensorView:
    """Has an input that is the same for all rows read from shared memory. Returns what blocks copy it to."""
    loads = find_loads(schedule.fusion)
    uses = [use.output for use in source.uses if use.output in loads and use.output not in space.of_columns]
    held = schedule.cache_after(source, cached_uses=uses)
    # [.., (R blocks of a cluster,) R threads y, R threads x, R batches, R vector], behind the loops of one
    # iteration that an input which is expanded along the rows has.
    kinds = [ParallelType.block_y, ParallelType.block_x]
    if params.blocks_per_cluster > 1:
        kinds.insert(0, ParallelType.cluster_x)
    first = len(held.loop) - len(kinds) - 2
    for position, kind in enumerate(kinds, first):
        schedule.parallelize(held, position, kind)
    vectorize_ports(schedule, Ports((held,), ()), params.vectorization_factor)
    schedule.set_memory_type(held, MemoryType.shared)
    first += len(kinds) - 2  # each block of a cluster holds its part alone
    schedule.store_along(held, [first + axis for axis in (2, 0, 1, 3)])
    return held


def _loads_of_rows(fusion: Fusion, space: InnerOuterPersistentSpace) -> list[TensorView]:
    """The loads of what is another for each row."""
    rows = space.rows
    loads = [load for load in find_loads(fusion) if load not in space.of_columns]
    return [load for load in loads if _varies(rows, load, rows.iteration)]


def _varies(rows: ReductionSpace, load: TensorView, axes: Iterable[IterDomain]) -> bool:
    """Whether the load has several elements along some of the axes."""
    own = [rows.maps.get(load, {}).get(axis) for axis in axes if not axis.is_broadcast]
    return any(axis is not None and not axis.is_broadcast for axis in own)


def _space(fusion: Fusion) -> InnerOuterPersistentSpace | str:
    """The space of a fusion that the scheduler takes, or why it does not."""
    space = inner_outer_persistent_space(fusion)
    if not isinstance(space, str) and grows_too_much(fusion):
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
        before=params.places_before,
    )


def _cut_rows(schedule: Schedule, tensor: TensorView, params: InnerOuterPersistentParams) -> None:
    """[I, R] -> [I blocks, I threads z, I steps, R].

    Where rows are shifted, blocks take them in turns, so that all rows of a block begin alike.
    """
    if params.shift_rows:
        schedule.split(tensor, 0, params.lparams.gdimx)
        schedule.split(tensor, 0, params.lparams.bdimz)
        schedule.reorder(tensor, {0: _STEPS, 2: _BLOCKS})
        return
    schedule.split(tensor, 0, params.lparams.bdimz)
    schedule.split(tensor, 0, params.lparams.gdimx)
    schedule.reorder(tensor, {0: _STEPS})


def _cut_columns(
    schedule: Schedule, tensor: TensorView, params: InnerOuterPersistentParams, aligned: TensorView | None
) -> None:
    """[.., R] -> [.., (R blocks of a cluster,) R threads y, R threads x, R batches, R vector].

    With `aligned`, vectors begin where those of its rows do.
    """
    if aligned is None:
        schedule.split(tensor, _COLUMNS, params.vectorization_factor)
    else:
        schedule.shifted_split(tensor, _COLUMNS, params.vectorization_factor, aligned, turn=_BLOCKS)
    loops = _Loops(params.blocks_per_cluster)
    schedule.split(tensor, _COLUMNS, params.lparams.bdimx)
    if params.blocks_per_cluster > 1:
        schedule.split(tensor, _COLUMNS, params.blocks_per_cluster, inner_split=False)
    schedule.split(tensor, loops.threads_y, params.batches_per_block_inner_reduction, inner_split=False)
    schedule.reorder(tensor, {loops.threads_y: loops.batches})


@dataclass(frozen=True, slots=True)
class _Exchange:
    """A reduction of columns, in its steps.

    Attributes:
        partial: a thread's sum over the rows of its block.
        of_block: the sum over all threads z.
        stored: the sums of all blocks, in global memory, one tensor per state.
        reads: copies of these in registers.
        total: the result.
    """

    partial: TensorView
    of_block: TensorView
    stored: tuple[TensorView, ...]
    reads: tuple[TensorView, ...]
    total: TensorView

    def store(self, schedule: Schedule, params: InnerOuterPersistentParams) -> None:
        """Makes stores of vectors of what a thread has, whose columns come in runs of the vectors' width."""
        width, states = params.vectorization_factor, self.of_block.siblings
        if self.of_block is not self.partial:
            elements = width * params.batches_per_block_inner_reduction
            for tensor in states:
                if elements * sum(state.dtype.size for state in states) <= EXCHANGED_BYTES:
                    schedule.merge(tensor, -2)
                schedule.parallelize(tensor, -1, ParallelType.unroll)
        for tensor in () if params.shift_rows else self.stored:
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
        # [blocks, columns] -> [columns: steps, blocks, blocks of a cluster, threads x; blocks: y, z, steps,
        # unroll; vector]
        shares = [extents.bdimx, extents.gdimx]
        kinds = [ParallelType.grid_x, ParallelType.block_x, ParallelType.block_y, ParallelType.block_z]
        if params.blocks_per_cluster > 1:
            shares.insert(1, params.blocks_per_cluster)
            kinds.insert(1, ParallelType.cluster_x)
        schedule.split(total, 1, params.columns_a_thread)
        for size in shares:
            schedule.split(total, 1, size)
        schedule.split(total, 0, extents.bdimz)
        schedule.split(total, 0, down)
        schedule.split(
            total, 0, ceil_div(each, ceil_div(each, PARTIALS_IN_FLIGHT // params.columns_a_thread))
        )
        of_columns = len(shares) + 1
        schedule.reorder(
            total,
            {4 + i: i for i in range(of_columns)}
            | dict(zip((2, 3, 0, 1), range(of_columns, of_columns + 4))),
        )
        others = [tensor for tensor in total.siblings if tensor is not total]
        if others:
            schedule.transform_like(total, selected=others)
        steps = of_columns + 2
        of_thread = schedule.rfactor(total, [steps, steps + 1])
        for position, kind in enumerate(kinds, 1):
            schedule.parallelize(of_thread, position, kind)
        schedule.parallelize(of_thread, steps + 1, ParallelType.unroll)
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
    stored = tuple(schedule.cache_after(state) for state in of_block.siblings)
    for state in stored:
        schedule.set_memory_type(state, MemoryType.global_)
        schedule.store_along(state, order)
    return _Exchange(partial, of_block, stored, tuple(map(schedule.cache_after, stored)), tensor)
