"""The scan scheduler: scans along one dimension, and elementwise operations before and after them.

Inner (the scanned dimension is contiguous): threads go through a row in steps, and a carry runs along,

    [I, S] -> [I blocks, I threads y, S serial, unroll, S threads x, vector]

Outer: threads x lie along the contiguous dimension, threads y down the scanned one,

    [I, S] -> [I blocks, I threads x, S serial, S threads y, unroll, I vector]

A kernel takes rows of any length. If there are too few rows for the GPU, blocks y share a row: they take each
step together and exchange their totals before the next one,

    [I, S] -> [I blocks, I threads y, S serial, S blocks y, unroll, S threads x, vector]
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod

from fusewright.analyze.kinds import foreign_node
from fusewright.analyze.parameters import too_many_parameters
from fusewright.analyze.scan_axes import scanned_root
from fusewright.core.enums import ParallelType, SchedulerType
from fusewright.core.hardware import MAX_THREADS_PER_BLOCK, WARP_SIZE, HardwareInfo
from fusewright.core.once import cached_property
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Copy, Scan
from fusewright.ir.value import TensorView
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.base import (
    BuiltInScheduler,
    Facts,
    Planner,
    Proposal,
    Reject,
    accepted,
    planner_of,
)
from fusewright.schedulers.cost import GRID_REDUCTION_SECONDS, CostModel, busy_share
from fusewright.schedulers.io import (
    VectorLimits,
    Vectors,
    cache_inputs_and_outputs,
    check_unaligned,
    inline_rest,
    vectorize_ports,
)
from fusewright.schedulers.params import CompileParams, LaunchParams, ScanParams
from fusewright.schedulers.pointwise.space import covering_space
from fusewright.schedulers.reference_map import Access, AxisMap, loads, stores
from fusewright.schedulers.sectors import Sectors
from fusewright.schedulers.shifted_rows import ENOUGH_TO_SCAN, LEAST_SCANNED, ShiftedRows, is_narrow
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_least, power_of_two_at_most, whole_warps

# Bytes of loads that a thread has in flight: as many as a reduction's. Down columns, where the steps of a
# block wait for each other, the next step's are loaded meanwhile, too (an H200: 4096 columns of 16384
# bfloat16 0.86 of a copy's speed, 0.61 without; 65536 columns of 2048 0.90 and 0.83).
BYTES_IN_FLIGHT = 64
# Accesses that they are at most: registers and code grow with them. Rows of 3001 float are scanned by 4 of
# each thread at 0.75 of a copy's speed on an H200, by 8 at 0.52.
MAX_INNER_UNROLL, MAX_OUTER_UNROLL = 4, 16
# Threads that scan a row in vectors, at most; of shorter rows as many as have two vectors of it each. (An
# H200, of a copy's speed: 65536 bfloat16 by 512 threads 0.93, by 128 0.87; 4096 by 256 threads 0.99, by 128
# with four vectors 0.97; 1024 by 64 1.00, by 128 0.97.)
ROW_THREADS, LEAST_VECTORS = 512, 2
# The same where vectors have few elements, so that threads pass fewer sums to each other (an H200: sums of
# bools as Int, 8192 rows of 2048 43.0 us by 256 threads with four vectors of two, 45.1 by 512; 2048 of 8192
# 47.2 and 56.3).
FEW_ELEMENTS, NARROW_ROW_THREADS, NARROW_LEAST_VECTORS = 2, 256, 4
# Lanes of a warp that scan a shifted row at least, and vectors of each at most; threads that scan a longer
# one in a single step, at most, and vectors of each. (An H200, us, bfloat16: 262144 rows of 65 by 8 lanes 28,
# by 4 38, by 32 one element at a time 51; 524288 of 33 by 8 34, by 4 39, so 84; 131072 of 129 by 8 lanes with
# three vectors 24, by 16 with two 28; 32768 of 1023 by a warp with five 37, with four 43, by 96 threads 48;
# 16384 of 2047 by 96 threads with three 37, by a warp 41, by 160 49; 4096 of 4097 by 192 22, by 288 with two
# 23.)
LEAST_LANES, MOST_OF_A_LANE, MOST_IN_A_STEP, EACH_IN_A_STEP = 8, 5, 256, 3
# Threads of the rows that share a block, where a warp or less scans one: four warps, of which an SM holds
# enough blocks to be full.
SMALL_BLOCK = 128
# Threads of an SM that have 48 KiB in flight together, which covers the latency of HBM (Little's law on an
# H200: 4.8 TB/s at about 800 ns take 29 KiB of each SM), with some to spare for those that wait for others.
OUTER_THREADS_A_SM = 768
# Threads down a column, each of which goes through what the others bring; and threads along the columns that
# make, with those, a block of half the size that a GPU takes.
MAX_THREADS_A_COLUMN, LEAST_THREADS_ALONG = 32, 16
# The least of neighbouring elements that a block should access: two sectors of memory. And the most that it
# needs: more blocks then share an SM (65536 columns of 2048 bfloat16 0.90 of a copy's speed, 0.84 with twice
# as many).
LEAST_ROW_BYTES, ROW_BYTES = 64, 256
# Of a copy's speed, what a scan reaches where blocks are enough (measured on an H200, 128 MB to 512 MB).
SCAN_SPEED = 0.93
# Where blocks share rows: those of an SM, and the threads of each along a contiguous row. A thread holds what
# it scans while blocks wait for each other, and the next step's loads: the bytes of these, in as many
# accesses at most. (An H200, 2 rows of 16777216 bfloat16, of a copy's speed: 0.76 so, 0.72 with one block of
# twice as many threads, 0.64 with 64 bytes. Twice as many threads of an SM have registers for 64 bytes
# without the next step's loads: 0.66.)
SHARING_BLOCKS_AN_SM, SHARING_THREADS, SHARING_BYTES, SHARING_UNROLL = 2, 256, 128, 8
# From so many slots a step on, threads scan runs as long as the vectors of what is read, though each takes
# two accesses of what is stored (an H200: logarithms of sums of exponentials of 8192 x 2048 bfloat16 in
# Float, 61.5 us in runs of 4, 41.9 of 8).
COSTLY_SLOTS = 8
# The fewest blocks that share one, and the steps that it takes one of them at least: blocks wait for each
# other after each step.
LEAST_SHARE, LEAST_STEPS = 2, 4


@dataclass(frozen=True, eq=False)
class ScanSpace:
    """The iteration space of all tensors of the fusion.

    Attributes:
        reference: a tensor that has all of their dimensions.
        scanned: the dimension that all scans run along.
        iteration: its other dimensions in the memory order of the main access; none if all have one point.
        points: its other dimensions if all of them have one point.
        accesses: the loads and stores.
        main: the access whose order counts: a load of all dimensions, or a store.
    """

    reference: TensorView
    scanned: IterDomain
    iteration: tuple[IterDomain, ...]
    points: tuple[IterDomain, ...]
    accesses: tuple[Access, ...]
    main: Access

    @property
    def is_inner(self) -> bool:
        """Whether the scanned dimension is the innermost in memory."""
        ordered = [axis for axis in self.main.tensor.allocation if not axis.is_broadcast]
        innermost = ordered[-1] if ordered else None
        # Read backward, the dimension goes along none of memory, and differs along one.
        ours = self.main.axes.get(self.scanned, self.main.strided.get(self.scanned))
        return not self.iteration or innermost is ours

    @property
    def aligned(self) -> Access | None:
        """At whose aligned addresses shifted vectors begin: an output of all points, else the main load."""
        wanted = {axis for axis in (*self.iteration, self.scanned) if not axis.is_broadcast}
        full = (access for access in self.accesses if access.node is None and access.concrete >= wanted)
        return next(full, self.main if self.main.node is not None else None)

    @property
    def goes_along(self) -> bool:
        """Whether an access goes along the innermost dimension, forward."""
        return any(self.inner_axis in access.axes for access in self.accesses)

    @property
    def inner_axis(self) -> IterDomain:
        """The dimension of the reference that vectors may lie along."""
        return self.scanned if self.is_inner else self.iteration[-1]


class ScanScheduler(BuiltInScheduler):
    """Accepts fusions of elementwise operations and scans along one dimension of all of their tensors."""

    type = SchedulerType.scan
    params_type = ScanParams

    def prepare(self, fusion: Fusion) -> Planner | Reject:
        return planner_of(_Planner, fusion, scan_space(fusion))

    def apply(self, schedule: Schedule, params: ScanParams) -> None:
        original = accepted(self, scan_space(schedule.fusion))
        if not original.iteration:
            _check_single_row(params)
        check_unaligned(schedule.fusion, params.unaligned_inputs)
        ports = cache_inputs_and_outputs(schedule)
        space = accepted(self, scan_space(schedule.fusion))
        reference = _merge_to_rows(schedule, space)
        cut = _cut_inner if params.fastest_dim else _cut_outer
        if params.shift_rows and space.aligned is not None:
            schedule.shifted_split(reference, -1, params.vectorization_factor, space.aligned.tensor)
        elif params.fastest_dim:
            schedule.split(reference, -1, params.vectorization_factor)
        unrolled = cut(schedule, reference, params, bool(space.iteration))
        schedule.transform_like(reference)
        schedule.parallelize_like(reference)
        vectorize_ports(schedule, ports, params.vectorization_factor, unaligned=params.unaligned_inputs)
        if ports.loads:
            schedule.inline_at(reference, unrolled, best_effort=True, selected=ports.loads)
        if params.prefetches_steps:
            for load in ports.loads:
                if load.inline_at == unrolled and isinstance(load.definition, Copy):
                    schedule.prefetch(load)
        inline_rest(schedule, ports.loads)


def _check_single_row(params: ScanParams) -> None:
    """Raises ParamsError for params that need rows where there is one dimension."""
    where = "where there is no other dimension than the scanned one"
    params.expect("fastest_dim", True, where)
    params.require(params.lparams.bdimy == 1, "lparams.bdimy", f"1 {where}")


def scan_space(fusion: Fusion) -> ScanSpace | str:
    """The space of a fusion all of whose scans run along one dimension, or the reason why there is none."""
    foreign = foreign_node(fusion, Scan) or too_many_parameters(fusion)
    if foreign is not None:
        return foreign
    nodes = fusion.tensor_nodes()
    scans = [node for node in nodes if isinstance(node, Scan)]
    if not scans:
        return "it has no scan"
    computed = (node.output for node in reversed(nodes) if not node.output.is_placed)
    reference = max(computed, key=_dimensions)
    space = covering_space(fusion, reference)
    if isinstance(space, str):
        return space
    scanned = _scanned_dimension(space.maps[scans[0].output], scans[0])
    for node in scans:
        if _scanned_dimension(space.maps[node.output], node) is not scanned:
            names = f"{scans[0].output.name} and {node.output.name}"
            return f"scans {names} run along different dimensions"
    for tensor in (node.output for node in nodes):
        if not set(tensor.iterated) <= set(space.maps[tensor].values()):
            return f"{tensor.name} has a dimension of one point that {reference.name} lacks"
    accesses = [*loads(fusion, space.maps), *stores(fusion, space.maps)]
    main = _main_access(accesses, reference)
    place = {axis: i for i, axis in enumerate(main.tensor.allocation) if not axis.is_broadcast}
    rows = [axis for axis in reference.shape if axis is not scanned]
    # Outside of those that it lies along are those that it is a broadcast along.
    rows.sort(key=lambda axis: _place(main.axes, place, axis))
    if all(axis.is_broadcast for axis in rows):
        return ScanSpace(reference, scanned, (), tuple(rows), tuple(accesses), main)
    return ScanSpace(reference, scanned, tuple(rows), (), tuple(accesses), main)


def _dimensions(tensor: TensorView) -> tuple[int, int]:
    """How many dimensions a tensor has, those of one point apart."""
    return sum(not axis.is_broadcast for axis in tensor.shape), tensor.ndim


def _scanned_dimension(covered: AxisMap, node: Scan) -> IterDomain:
    """The reference's dimension that a scan runs along."""
    return next(axis for axis, ours in covered.items() if ours is scanned_root(node))


def _place(axes: AxisMap, place: dict[IterDomain, int], axis: IterDomain) -> int:
    ours = axes.get(axis)
    return -1 if ours is None else place.get(ours, -1)


def _main_access(accesses: Iterable[Access], reference: TensorView) -> Access:
    """The first load of every element, or else the first such store: every output is one."""
    wanted = {axis for axis in reference.shape if not axis.is_broadcast}
    return next(access for access in accesses if access.concrete.issuperset(wanted))


@dataclass(frozen=True, eq=False)
class _Planner:
    """Derives params from the sizes of a call."""

    fusion: Fusion
    space: ScanSpace

    @cached_property
    def _cost(self) -> CostModel:
        space = self.space
        slow, fast = space.iteration, (space.scanned,)
        axes = (*slow, *fast) if space.is_inner else (*fast, *slow)
        return CostModel(self.fusion, Sectors.along(self.fusion, space.accesses, axes))

    @cached_property
    def _vectors(self) -> VectorLimits:
        return VectorLimits(self.fusion, self.space.inner_axis, self.space.accesses)

    @cached_property
    def _of_loads(self) -> VectorLimits:
        loads = [access for access in self.space.accesses if access.node is not None]
        return VectorLimits(self.fusion, self.space.inner_axis, loads)

    @cached_property
    def _shifted(self) -> ShiftedRows:
        space = self.space
        return ShiftedRows(self.fusion, space.reference.shape, space.scanned, space.accesses, space.aligned)

    @cached_property
    def _is_costly(self) -> bool:
        """Whether the steps of scans along memory take long, and all stores are to rows of fresh memory."""
        steps = (node.op.slots for node in self.fusion.nodes if isinstance(node, Scan))
        moved = any(access.node is None and access.by_index for access in self.space.accesses)
        fresh = not moved and all(output.alias is None for output in self.fusion.outputs)
        return self.space.is_inner and fresh and any(slots >= COSTLY_SLOTS for slots in steps)

    @cached_property
    def _loaded_bytes(self) -> int:
        """Of one element of all loads that come from memory."""
        wanted = self.space.main.concrete
        read = (a.tensor for a in self.space.accesses if a.node is not None and a.concrete >= wanted)
        return max(1, sum(tensor.dtype.size for tensor in read))

    def __call__(self, facts: Facts, hardware: HardwareInfo) -> Proposal:
        params = self._params(facts, hardware)
        shared = params.lparams.gdimy > 1
        estimate = self._cost.estimate(
            facts,
            hardware,
            speed=SCAN_SPEED * busy_share(self._blocks(facts, params), hardware),
            steps=GRID_REDUCTION_SECONDS if shared else 0.0,
        )
        return Proposal(params, estimate)

    def _rows(self, facts: Facts) -> int:
        return max(1, prod(facts.value(axis.extent) for axis in self.space.iteration))

    def _params(self, facts: Facts, hardware: HardwareInfo) -> ScanParams:
        # Where nothing goes along, elements that a thread has side by side lie apart for its neighbours.
        vectors = self._of_loads if self._is_costly else self._vectors
        width = vectors.width(facts) if self.space.goes_along else 1
        length = max(1, facts.value(self.space.scanned.extent))
        rows = self._rows(facts)
        if self.space.is_inner:
            shared = _sharing_rows(rows, length, width, self._loaded_bytes, hardware)
            if shared is not None:
                return shared
            return self._inner(facts, rows, length, vectors.vectors(facts, width), hardware)
        params = _outer_params(rows, length, width, self._loaded_bytes, hardware)
        return _sharing_columns(params, self._blocks(facts, params), length, hardware)

    def _inner(
        self, facts: Facts, rows: int, length: int, plain: Vectors, hardware: HardwareInfo
    ) -> ScanParams:
        """`plain`: the vectors of rows that are not shifted."""
        goes_along, bytes_ = self.space.goes_along, self._loaded_bytes
        found = self._shifted.vectors(facts) if length >= LEAST_SCANNED and goes_along else None
        if found is None or not is_narrow(plain.width, found, ENOUGH_TO_SCAN):
            width = plain.width if goes_along else 1
            params = _inner_params(rows, length, width, bytes_, hardware)
            return replace(params, unaligned_inputs=plain.unaligned if width > 1 else ())
        places = length + found.width - 1
        params = _inner_params(rows, places, found.width, bytes_, hardware)
        params = _with_whole_steps(params, rows, ceil_div(places, found.width), hardware)
        return replace(params, unaligned_inputs=found.unaligned)

    def _blocks(self, facts: Facts, params: ScanParams) -> int:
        columns = params.lparams.bdimx * params.vectorization_factor
        groups = ceil_div(self._rows(facts), params.lparams.bdimy if self.space.is_inner else columns)
        return groups * max(1, params.lparams.gdimy)


# ---- inner ------------------------------------------------------------------------------------


def _inner_params(
    rows: int, length: int, width: int, element_bytes: int, hardware: HardwareInfo
) -> ScanParams:
    vectors = ceil_div(length, width)
    # A warp scans a row by shuffles alone, so more threads share one where rows are few, or where each of
    # them has vectors: then a row takes few steps.
    full = hardware.sm_count * hardware.max_threads_per_sm
    most = ROW_THREADS if width > 1 else MAX_THREADS_PER_BLOCK
    usual, each = ROW_THREADS, LEAST_VECTORS
    if width <= FEW_ELEMENTS:
        usual, each = NARROW_ROW_THREADS, NARROW_LEAST_VECTORS
    least = min(usual, power_of_two_at_most(vectors // each)) if width > 1 else WARP_SIZE
    wanted = max(WARP_SIZE, least, power_of_two_at_most(ceil_div(full, rows)))
    threads = min(wanted, power_of_two_at_least(vectors), most)
    in_flight = max(1, BYTES_IN_FLIGHT // (width * element_bytes))
    unroll = max(1, min(in_flight, MAX_INNER_UNROLL, vectors // threads))
    rows_a_block = max(1, min(SMALL_BLOCK // threads, power_of_two_at_least(rows)))
    return ScanParams(
        fastest_dim=True,
        vectorization_factor=width,
        unroll_factor=unroll,
        lparams=LaunchParams(bdimx=threads, bdimy=rows_a_block),
        reason=f"{rows} rows of {length}, contiguous: {threads} threads a row with {unroll} vectors "
        f"of {width} in flight, {rows_a_block} rows a block",
    )


def _with_whole_steps(params: ScanParams, rows: int, vectors: int, hardware: HardwareInfo) -> ScanParams:
    """`params` for shifted rows of so many vectors, often one more than a power of two. For that one a warp
    takes one more a lane, and a block more threads, since a step would take as long as others.
    """
    threads, unroll = params.lparams.bdimx, params.unroll_factor
    rows_a_block = params.lparams.bdimy
    are_many = 4 * WARP_SIZE * rows >= hardware.sm_count * hardware.max_threads_per_sm
    if threads <= WARP_SIZE or (are_many and vectors <= WARP_SIZE * MOST_OF_A_LANE):
        threads = min(WARP_SIZE, max(LEAST_LANES, power_of_two_at_most(vectors // LEAST_VECTORS)))
        unroll = max(1, min(MOST_OF_A_LANE, ceil_div(vectors, threads)))
        rows_a_block = min(power_of_two_at_least(rows), SMALL_BLOCK // threads)
    elif are_many and vectors <= MOST_IN_A_STEP * EACH_IN_A_STEP:
        threads, unroll = whole_warps(ceil_div(vectors, EACH_IN_A_STEP)), EACH_IN_A_STEP
        rows_a_block = 1
    else:
        steps = max(1, vectors // (threads * unroll))
        threads = min(MAX_THREADS_PER_BLOCK, whole_warps(ceil_div(vectors, steps * unroll)))
    return replace(
        params,
        shift_rows=True,
        unroll_factor=unroll,
        lparams=replace(params.lparams, bdimx=threads, bdimy=rows_a_block),
        reason=f"{params.reason}; aligned by the start of each row, {threads} threads with {unroll}",
    )


def _sharing_rows(
    rows: int, length: int, width: int, element_bytes: int, hardware: HardwareInfo
) -> ScanParams | None:
    """Blocks that share rows; None where there are enough rows."""
    most = max(1, min(SHARING_BYTES // (width * element_bytes), SHARING_UNROLL))
    available = SHARING_BLOCKS_AN_SM * hardware.sm_count // rows
    # As few steps as can be, of all blocks.
    needed = power_of_two_at_least(ceil_div(length, SHARING_THREADS * width * max(1, available)))
    unroll = min(power_of_two_at_most(most), needed)
    step = SHARING_THREADS * unroll * width
    share = _share(available, length, step)
    if share < LEAST_SHARE:
        return None
    return ScanParams(
        fastest_dim=True,
        vectorization_factor=width,
        unroll_factor=unroll,
        prefetches_steps=length > share * step,
        lparams=LaunchParams(gdimy=share, bdimx=SHARING_THREADS, bdimy=1),
        cparams=CompileParams(
            maxrregcount=hardware.registers_a_thread(SHARING_BLOCKS_AN_SM * SHARING_THREADS)
        ),
        reason=f"{rows} rows of {length}, contiguous: {share} blocks of {SHARING_THREADS} threads a row "
        f"with {unroll} vectors of {width} in flight",
    )


def _share(available: int, length: int, step: int) -> int:
    """How many blocks share rows, which go through `step` elements at a time; of `available` for each, as
    many as have all of the same steps.

    The same for all lengths of a class, which so have one kernel.
    """
    least = power_of_two_at_most(length)
    if available < LEAST_SHARE or least < LEAST_STEPS * step:
        return 1
    return ceil_div(least, ceil_div(least, available * step) * step)


def _cut_inner(schedule: Schedule, tensor: TensorView, params: ScanParams, has_rows: bool) -> int:
    """[I, S, vector] -> [BIDx, TIDy, serial, (BIDy,) unroll, TIDx, vector]; returns the position of the
    unrolled axis.
    """
    schedule.split(tensor, -2, params.lparams.bdimx)
    schedule.split(tensor, -3, params.unroll_factor)
    schedule.parallelize(tensor, -2, ParallelType.block_x)
    schedule.parallelize(tensor, -3, ParallelType.unroll)
    if params.lparams.gdimy > 1:
        schedule.split(tensor, -4, params.lparams.gdimy)
        schedule.parallelize(tensor, -4, ParallelType.grid_y)
    if has_rows:
        schedule.split(tensor, 0, params.lparams.bdimy)
        schedule.parallelize(tensor, 0, ParallelType.grid_x)
        schedule.parallelize(tensor, 1, ParallelType.block_y)
    return len(tensor.loop) - 3


# ---- outer ------------------------------------------------------------------------------------


def _outer_params(
    rows: int, length: int, width: int, element_bytes: int, hardware: HardwareInfo
) -> ScanParams:
    """`rows` columns, of which neighbours are contiguous."""
    # Narrower blocks where wider ones would leave SMs without any, down to whole sectors of a row.
    block = min(width * WARP_SIZE, max(width, ROW_BYTES // element_bytes))
    while ceil_div(rows, block) < hardware.sm_count and block * element_bytes > LEAST_ROW_BYTES:
        block //= 2
    width = min(width, max(1, block // LEAST_THREADS_ALONG))
    columns = ceil_div(rows, width)
    threads_x = min(max(1, block // width), power_of_two_at_least(columns))
    unroll = max(1, min(BYTES_IN_FLIGHT // (width * element_bytes), MAX_OUTER_UNROLL, length))
    # As many threads down a column as fill the GPU, while each has elements.
    wanted = power_of_two_at_least(hardware.sm_count * OUTER_THREADS_A_SM // columns + 1) // 2
    threads_y = min(wanted, power_of_two_at_least(ceil_div(length, unroll)), MAX_THREADS_A_COLUMN)
    threads_y = max(1, threads_y)
    if threads_y == 1:
        threads_x = min(SMALL_BLOCK, max(threads_x, power_of_two_at_least(columns)))
    return ScanParams(
        fastest_dim=False,
        vectorization_factor=width,
        unroll_factor=unroll,
        prefetches_steps=length > threads_y * unroll,
        lparams=LaunchParams(bdimx=threads_x, bdimy=threads_y),
        reason=f"{rows} contiguous columns of {length}: {threads_x} threads of {width} columns, "
        f"{threads_y} down the columns with {unroll} rows in flight",
    )


def _sharing_columns(params: ScanParams, blocks: int, length: int, hardware: HardwareInfo) -> ScanParams:
    """`params` with several blocks down the columns where `blocks` leave half of the GPU idle."""
    down = params.lparams.bdimy
    step = down * params.unroll_factor
    share = _share(hardware.sm_count // max(1, blocks), length, step)
    if share < LEAST_SHARE or down == 1:
        return params
    return replace(
        params,
        prefetches_steps=length > share * step,
        lparams=replace(params.lparams, gdimy=share),
        cparams=CompileParams(maxrregcount=hardware.registers_a_thread(params.lparams.bdimx * down)),
        reason=f"{params.reason}; {share} blocks share them",
    )


def _cut_outer(schedule: Schedule, tensor: TensorView, params: ScanParams, has_rows: bool) -> int:
    """[I, S] -> [BIDx, TIDx, serial, (BIDy,) (TIDy,) unroll, vector]; returns the unrolled axis' position."""
    schedule.split(tensor, 1, params.unroll_factor)
    schedule.parallelize(tensor, 2, ParallelType.unroll)
    if params.lparams.bdimy > 1:
        schedule.split(tensor, 1, params.lparams.bdimy)
        schedule.parallelize(tensor, 2, ParallelType.block_y)
    if params.lparams.gdimy > 1:
        schedule.split(tensor, 1, params.lparams.gdimy)
        schedule.parallelize(tensor, 2, ParallelType.grid_y)
    schedule.split(tensor, 0, params.vectorization_factor)
    schedule.split(tensor, 0, params.lparams.bdimx)
    schedule.reorder(tensor, {2: len(tensor.loop) - 1})
    schedule.parallelize(tensor, 0, ParallelType.grid_x)
    schedule.parallelize(tensor, 1, ParallelType.block_x)
    if params.vectorization_factor > 1:
        schedule.parallelize(tensor, -1, ParallelType.unroll)
    return len(tensor.loop) - 2


def _merge_to_rows(schedule: Schedule, space: ScanSpace) -> TensorView:
    """[..] -> [I, S] on the reference, the rows merged in memory order; S alone if they have one point."""
    reference = space.reference
    schedule.order_loops(reference, [*space.iteration, space.scanned, *space.points])
    # Not all tensors have the dimensions of one point; those that do loop like the others.
    for _ in space.points:
        schedule.merge(reference, 0)
    for _ in range(len(space.iteration) - 1):
        schedule.merge(reference, 0)
    return reference
