"""The scan scheduler: scans along one dimension, and elementwise work before and after them.

Inner (the scanned dimension is contiguous): threads go through a row in steps, and a carry runs along,

    [I, S] -> [I blocks, I threads y, S serial, unroll, S threads x, vector]

Outer: threads x lie along the contiguous dimension, threads y down the scanned one,

    [I, S] -> [I blocks, I threads x, S serial, S threads y, unroll, I vector]

A kernel takes rows of any length. Blocks do not share one, so a few very long rows leave most of a GPU idle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from fusewright.analyze.kinds import foreign_node
from fusewright.analyze.scan_axes import scanned_root
from fusewright.core.enums import ParallelType, SchedulerType
from fusewright.core.errors import ParamsError
from fusewright.core.hardware import MAX_THREADS_PER_BLOCK, WARP_SIZE, HardwareInfo
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Scan
from fusewright.ir.value import TensorView
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.base import Facts, Planner, Proposal, Reject, accepted, check_start
from fusewright.schedulers.io import VectorLimits, cache_inputs_and_outputs, inline_rest, vectorize_ports
from fusewright.schedulers.params import LaunchParams, ScanParams
from fusewright.schedulers.pointwise_space import covering_space
from fusewright.schedulers.reference_map import Access, AxisMap, loads, stores
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_least

# Bytes of loads that a thread has in flight: as many as a reduction's.
INNER_BYTES_IN_FLIGHT = 64
OUTER_BYTES_IN_FLIGHT = 32
# Elements that they are at most: registers and code grow with them.
MAX_INNER_UNROLL, MAX_OUTER_UNROLL = 8, 16
# Threads of the rows that share a block, where a warp or less scans one: four warps, of which an SM holds
# enough blocks to be full.
SMALL_BLOCK = 128
# Threads down a column, each of which goes through what the others bring.
MAX_THREADS_A_COLUMN = 32
# The least of neighbouring elements that a warp should access: two sectors of memory.
LEAST_ROW_BYTES = 64


@dataclass(frozen=True, eq=False)
class ScanSpace:
    """What all tensors of the fusion are iterated over.

    Attributes:
        reference: the scan of most dimensions.
        scanned: its dimension that all scans run along.
        iteration: its other dimensions in the memory order of the main access.
        maps: of every computed tensor.
        main: the access to global memory whose order counts: a load of all dimensions, or a store.
    """

    reference: TensorView
    scanned: IterDomain
    iteration: tuple[IterDomain, ...]
    accesses: tuple[Access, ...]
    main: Access

    @property
    def is_inner(self) -> bool:
        """Whether the scanned dimension is the innermost in memory."""
        ordered = [axis for axis in self.main.tensor.allocation if not axis.is_broadcast]
        innermost = ordered[-1] if ordered else None
        return innermost is self.main.axes.get(self.scanned) or all(a.is_broadcast for a in self.iteration)

    @property
    def inner_axis(self) -> IterDomain:
        """The dimension of the reference that vectors may lie along."""
        return self.scanned if self.is_inner else self.iteration[-1]


class ScanScheduler:
    """Accepts fusions of elementwise work and scans along one dimension of all of their tensors."""

    type = SchedulerType.scan
    params_type = ScanParams

    def prepare(self, fusion: Fusion) -> Planner | Reject:
        space = scan_space(fusion)
        return Reject(space) if isinstance(space, str) else _Planner(fusion, space)

    def apply(self, schedule: Schedule, params: ScanParams) -> None:
        check_start(self, schedule, params)
        original = accepted(self, scan_space(schedule.fusion))
        params.validate()
        if not original.iteration:
            _check_single_row(params)
        ports = cache_inputs_and_outputs(schedule)
        space = accepted(self, scan_space(schedule.fusion))
        reference = _merge_to_rows(schedule, space)
        cut = _cut_inner if params.fastest_dim else _cut_outer
        unrolled = cut(schedule, reference, params, bool(space.iteration))
        schedule.transform_like(reference)
        schedule.parallelize_like(reference)
        vectorize_ports(schedule, ports, params.vectorization_factor)
        if ports.loads:
            schedule.inline_at(reference, unrolled, best_effort=True, selected=ports.loads)
        inline_rest(schedule, ports.loads)


def _check_single_row(params: ScanParams) -> None:
    """Raises ParamsError for params that need rows where there is one dimension."""
    where = "where there is no other dimension than the scanned one"
    params.expect("fastest_dim", True, where)
    if params.lparams.bdimy != 1:
        raise ParamsError(path="lparams.bdimy", expected=f"1 {where}", given=params.lparams.bdimy)


def scan_space(fusion: Fusion) -> ScanSpace | str:
    """The space of a fusion all of whose scans run along one dimension, or why there is none."""
    foreign = foreign_node(fusion, Scan)
    if foreign is not None:
        return foreign
    scans = [node for node in fusion.ordered_nodes() if isinstance(node, Scan)]
    if not scans:
        return "it has no scan"
    lead = max(scans, key=lambda node: _rank(node.output))
    reference, scanned = lead.output, scanned_root(lead)
    space = covering_space(fusion, reference)
    if isinstance(space, str):
        return space
    for node in scans:
        if space.maps[node.output].get(scanned) is not scanned_root(node):
            return f"scans {reference.name} and {node.output.name} run along different dimensions"
    rows = [axis for axis in reference.logical if axis is not scanned]
    misplaced = _misplaced(fusion, rows, space.maps)
    if misplaced is not None:
        return f"{misplaced.name} lacks the dimensions of one point of the scan {reference.name}"
    accesses = [*loads(fusion, space.maps), *stores(fusion, space.maps)]
    main = _main_access(accesses, reference)
    place = {axis: i for i, axis in enumerate(main.tensor.allocation) if not axis.is_broadcast}
    # Outside of those that it lies along are those that it is a broadcast along.
    rows.sort(key=lambda axis: _place(main.axes, place, axis))
    return ScanSpace(reference, scanned, tuple(rows), tuple(accesses), main)


def _misplaced(
    fusion: Fusion, rows: Sequence[IterDomain], maps: Mapping[TensorView, AxisMap]
) -> TensorView | None:
    """A tensor whose loops do not stand where the reference's do.

    Rows of one point are loops around the scanned ones all the same, for those tensors that have them.
    """
    if not rows or not all(axis.is_broadcast for axis in rows):
        return None
    computed = (t for node in fusion.ordered_nodes() for t in node.outputs if isinstance(t, TensorView))
    return next((tensor for tensor in computed if maps[tensor].keys().isdisjoint(rows)), None)


def _place(axes: AxisMap, place: dict[IterDomain, int], axis: IterDomain) -> int:
    ours = axes.get(axis)
    return -1 if ours is None else place.get(ours, -1)


def _rank(tensor: TensorView) -> int:
    return sum(not axis.is_broadcast for axis in tensor.logical)


def _main_access(accesses: Iterable[Access], reference: TensorView) -> Access:
    """The first load of every element, or else the first such store: a scan has one, or is stored itself."""
    wanted = {axis for axis in reference.logical if not axis.is_broadcast}
    return next(access for access in accesses if access.concrete.issuperset(wanted))


@dataclass(frozen=True, eq=False)
class _Planner:
    """Derives params from the sizes of a call."""

    fusion: Fusion
    space: ScanSpace

    @cached_property
    def _vectors(self) -> VectorLimits:
        return VectorLimits(self.fusion, self.space.inner_axis, self.space.accesses)

    @cached_property
    def _loaded_bytes(self) -> int:
        """Of one element of all loads that come from memory."""
        wanted = self.space.main.concrete
        read = (a.tensor for a in self.space.accesses if a.node is not None and a.concrete >= wanted)
        return max(1, sum(tensor.dtype.size for tensor in read))

    def __call__(self, facts: Facts, hardware: HardwareInfo) -> Proposal:
        space = self.space
        width = self._vectors.width(facts)
        rows = max(1, prod(facts.value(axis.extent) for axis in space.iteration))
        length = max(1, facts.value(space.scanned.extent))
        make = _inner_params if space.is_inner else _outer_params
        return Proposal(make(rows, length, width, self._loaded_bytes, hardware))


# ---- inner ------------------------------------------------------------------------------------


def _inner_params(
    rows: int, length: int, width: int, element_bytes: int, hardware: HardwareInfo
) -> ScanParams:
    vectors = ceil_div(length, width)
    # A warp scans a row by shuffles alone, so more threads share one only where rows are few.
    full = hardware.sm_count * hardware.max_threads_per_sm
    wanted = max(WARP_SIZE, power_of_two_at_least(ceil_div(full, rows)))
    threads = min(wanted, power_of_two_at_least(vectors), MAX_THREADS_PER_BLOCK)
    in_flight = max(1, INNER_BYTES_IN_FLIGHT // (width * element_bytes))
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


def _cut_inner(schedule: Schedule, tensor: TensorView, params: ScanParams, has_rows: bool) -> int:
    """[I, S] -> [BIDx, TIDy, serial, unroll, TIDx, vector]; returns the position of the unrolled axis."""
    schedule.split(tensor, -1, params.vectorization_factor)
    schedule.split(tensor, -2, params.lparams.bdimx)
    schedule.split(tensor, -3, params.unroll_factor)
    schedule.parallelize(tensor, -2, ParallelType.block_x)
    schedule.parallelize(tensor, -3, ParallelType.unroll)
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
    # Narrower vectors where wider ones would leave SMs without a block, and then narrower blocks.
    while width > 1 and ceil_div(rows, width * WARP_SIZE) < hardware.sm_count:
        width //= 2
    columns = ceil_div(rows, width)
    threads_x = min(WARP_SIZE, power_of_two_at_least(columns))
    while ceil_div(columns, threads_x) < hardware.sm_count and (
        threads_x * width * element_bytes > LEAST_ROW_BYTES
    ):
        threads_x //= 2
    unroll = max(1, min(OUTER_BYTES_IN_FLIGHT // (width * element_bytes), MAX_OUTER_UNROLL, length))
    # As many threads down a column as fill the GPU, while each has elements.
    wanted = ceil_div(hardware.sm_count * hardware.max_threads_per_sm, columns)
    threads_y = min(power_of_two_at_least(wanted), power_of_two_at_least(ceil_div(length, unroll)))
    threads_y = max(1, min(threads_y, MAX_THREADS_A_COLUMN))
    if threads_y == 1:
        threads_x = min(SMALL_BLOCK, max(threads_x, power_of_two_at_least(columns)))
    return ScanParams(
        fastest_dim=False,
        vectorization_factor=width,
        unroll_factor=unroll,
        lparams=LaunchParams(bdimx=threads_x, bdimy=threads_y),
        reason=f"{rows} contiguous columns of {length}: {threads_x} threads of {width} columns, "
        f"{threads_y} down the columns with {unroll} rows in flight",
    )


def _cut_outer(schedule: Schedule, tensor: TensorView, params: ScanParams, has_rows: bool) -> int:
    """[I, S] -> [BIDx, TIDx, serial, (TIDy,) unroll, vector]; returns the position of the unrolled axis."""
    schedule.split(tensor, 1, params.unroll_factor)
    schedule.parallelize(tensor, 2, ParallelType.unroll)
    if params.lparams.bdimy > 1:
        schedule.split(tensor, 1, params.lparams.bdimy)
        schedule.parallelize(tensor, 2, ParallelType.block_y)
    schedule.split(tensor, 0, params.vectorization_factor)
    schedule.split(tensor, 0, params.lparams.bdimx)
    schedule.reorder(tensor, {2: len(tensor.loop) - 1})
    schedule.parallelize(tensor, 0, ParallelType.grid_x)
    schedule.parallelize(tensor, 1, ParallelType.block_x)
    if params.vectorization_factor > 1:
        schedule.parallelize(tensor, -1, ParallelType.unroll)
    return len(tensor.loop) - 2


def _merge_to_rows(schedule: Schedule, space: ScanSpace) -> TensorView:
    """[..] -> [I, S] on the reference, the rows merged in memory order; S alone if there are none."""
    reference = space.reference
    order = [*space.iteration, space.scanned]
    positions = {reference.loop.index(axis): i for i, axis in enumerate(order)}
    if any(old != new for old, new in positions.items()):
        schedule.reorder(reference, positions)
    for _ in range(len(space.iteration) - 1):
        schedule.merge(reference, 0)
    return reference
