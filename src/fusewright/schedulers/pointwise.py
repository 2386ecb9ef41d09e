"""The pointwise scheduler: every output element is computed by itself.

One output is the reference; its dimensions, in memory order, are merged to one axis (or to rows and columns)
and cut as

    [N] -> [blocks, unroll, threads, vector]

and every other tensor is transformed alike. Loads are inlined left of the unrolled axis, so that all of a
thread's loads are in flight before the first use; the rest is inlined to where it is used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fusewright.analyze.axis_map import contradiction
from fusewright.analyze.vectorize import unit_stride_axis
from fusewright.core.enums import CacheOp, ParallelType, SchedulerType
from fusewright.core.hardware import HardwareInfo
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Reduction
from fusewright.ir.value import TensorView
from fusewright.schedule.propagate import spanning_walk
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.base import Accept, Facts, Reject, Verdict
from fusewright.schedulers.io import cache_inputs_and_outputs, vector_width, vectorize_ports
from fusewright.schedulers.params import LaunchParams, PointwiseParams

# Enough threads to hide latency with few blocks' tails; a multiple of the warp that divides an SM's 2048.
THREADS = 128
# Bytes of loads that a thread should have in flight: Little's law on an H200 (4.8 TB/s at about 800 ns, 132
# SMs of 2048 threads) asks for 14 bytes a resident thread; twice a 16-byte load covers uneven progress.
BYTES_IN_FLIGHT = 32
MAX_UNROLL = 4


@dataclass(frozen=True)
class _Space:
    """The iteration space: the reference and, for every other input and output, its axis for each of the
    reference's.
    """

    reference: TensorView
    axes: tuple[IterDomain, ...]
    maps: dict[TensorView, dict[IterDomain, IterDomain]]


def _concrete(tensor: TensorView) -> int:
    return sum(not axis.is_broadcast for axis in tensor.shape)


def _reference(fusion: Fusion) -> TensorView | None:
    """The first output of most dimensions."""
    candidates = [t for t in fusion.output_tensors() if t.definition is not None]
    return max(candidates, key=_concrete, default=None)


def _space(fusion: Fusion) -> _Space | str:
    """The iteration space, or why there is none."""
    reference = _reference(fusion)
    if reference is None or any(isinstance(n, Reduction) for n in fusion.nodes):
        return "cannot find reference tensor"
    axes = tuple(a for a in reference.allocation)
    maps: dict[TensorView, dict[IterDomain, IterDomain]] = {reference: {a: a for a in axes}}
    for source, target, mapping in spanning_walk(reference):
        known = maps[source]
        maps[target] = {ref: mapping[axis] for ref, axis in known.items() if axis in mapping}
    wanted = {a for a in axes if not a.is_broadcast}
    for tensor in fusion.tensors():
        if fusion.is_input(tensor) or tensor.is_cpu:
            continue
        if tensor not in maps:
            return f"{tensor.name} is not connected with the reference tensor {reference.name}"
        covered = maps[tensor]
        if any(a not in covered for a in wanted):
            return f"{tensor.name} lacks a dimension of the reference tensor {reference.name}"
        if tensor in fusion.output_tensors() and any(covered[a].is_broadcast for a in wanted):
            return f"output {tensor.name} is a broadcast along a dimension of the reference {reference.name}"
        if len(covered) < len(tensor.shape):
            return f"{tensor.name} has a dimension that the reference tensor {reference.name} lacks"
    problem = contradiction(fusion, maps)
    return problem if problem is not None else _Space(reference, axes, maps)


class PointwiseScheduler:
    """Accepts fusions without reductions in which all tensors have the dimensions of one output."""

    type = SchedulerType.pointwise
    params_type = PointwiseParams

    def can_schedule(self, fusion: Fusion) -> Verdict:
        space = _space(fusion)
        return Reject(space) if isinstance(space, str) else Accept()

    def heuristic(self, fusion: Fusion, facts: Facts, hardware: HardwareInfo) -> PointwiseParams:
        space = _space(fusion)
        assert isinstance(space, _Space)
        inner = unit_stride_axis(space.reference)
        width = 1
        if inner is not None:
            mapped = {t: m.get(inner) for t, m in space.maps.items()}
            width = vector_width(fusion, facts, inner, mapped)
        sizes = [facts.value(a.extent) for a in space.axes]
        total = 1
        for size in sizes:
            total *= size
        break_point, why = _break_point(fusion, space, sizes)
        unroll = _unroll(fusion, space, width, total, hardware)
        params = PointwiseParams(
            break_point=break_point,
            vectorization_factor=width,
            unroll_factor_inner=1 if break_point else unroll,
            unroll_factor_outer=unroll if break_point else 1,
            lparams=LaunchParams(bdimx=THREADS),
            reason=f"{total} elements; vectors of {width}; {why}; {unroll} accesses in flight",
        )
        if break_point:
            params = _fit_rows(params, sizes, width)
        return params

    def apply(self, schedule: Schedule, params: PointwiseParams) -> None:
        ports = cache_inputs_and_outputs(schedule, CacheOp.unspecified)
        reference = _reference(schedule.fusion)
        assert reference is not None
        unrolled = _transform(schedule, reference, params)
        schedule.transform_like(reference)
        schedule.parallelize_like(reference)
        vectorize_ports(schedule, ports, params.vectorization_factor)
        if ports.loads:
            schedule.inline_at(reference, unrolled, best_effort=True, selected=ports.loads)
        rest = [
            t
            for t in schedule.fusion.tensors()
            if t.definition is not None and t.consumers and t not in ports.loads
        ]
        if rest:
            schedule.inline_most(rest)


def _transform(schedule: Schedule, reference: TensorView, params: PointwiseParams) -> int:
    """Cuts and binds the reference's loops; returns the position of the first unrolled one."""
    order = {reference.loop.index(axis): i for i, axis in enumerate(reference.allocation)}
    if any(old != new for old, new in order.items()):
        schedule.reorder(reference, order)
    rank = len(reference.loop)
    left = min(params.break_point, rank)
    for _ in range(rank - left - 1):
        schedule.merge(reference, left)
    for _ in range(left - 1):
        schedule.merge(reference, 0)
    if rank == left:  # nothing is left for the columns
        left = 0
    threads = params.lparams.bdimx if params.lparams.bdimx > 0 else THREADS
    if rank == 0:
        return 0
    # columns: [.., C] -> [.., blocks, unroll, threads, vector]
    schedule.split(reference, -1, params.vectorization_factor)
    schedule.split(reference, -2, threads)
    schedule.split(reference, -3, params.unroll_factor_inner)
    if not left:
        schedule.parallelize(reference, 0, ParallelType.grid_x)
        schedule.parallelize(reference, 1, ParallelType.unroll)
        schedule.parallelize(reference, 2, ParallelType.block_x)
        return 1
    # rows: [R, blocks, ..] -> [row blocks, column blocks, row unroll, unroll, threads, vector]
    schedule.split(reference, 0, params.unroll_factor_outer)
    schedule.reorder(reference, {1: 2})
    rows, columns = ParallelType.grid_y, ParallelType.grid_x
    if params.flip_grid_binding:
        rows, columns = columns, rows
    first = 0
    if params.split_grid_y_dim and not params.flip_grid_binding:
        schedule.split(reference, 0, MAX_GRID_Y)
        schedule.parallelize(reference, 0, ParallelType.grid_z)
        first = 1
    schedule.parallelize(reference, first, rows)
    schedule.parallelize(reference, first + 1, columns)
    schedule.parallelize(reference, first + 2, ParallelType.unroll)
    schedule.parallelize(reference, first + 3, ParallelType.unroll)
    schedule.parallelize(reference, first + 4, ParallelType.block_x)
    return first + 2


# CUDA C++ Programming Guide, technical specifications: grids have at most 65535 blocks along y and z.
MAX_GRID_Y = 65535


def _fit_rows(params: PointwiseParams, sizes: list[int], width: int) -> PointwiseParams:
    """Rows beyond the limit of grid_y go to grid_z; where there are more of them than columns, they take
    grid_x.
    """
    rows = columns = 1
    for size in sizes[: params.break_point]:
        rows *= size
    for size in sizes[params.break_point :]:
        columns *= size
    row_blocks = -(-rows // params.unroll_factor_outer)
    column_blocks = -(-columns // (THREADS * width))
    if row_blocks <= MAX_GRID_Y:
        return params
    if column_blocks <= MAX_GRID_Y:
        return replace(params, flip_grid_binding=True)
    return replace(params, split_grid_y_dim=True)


def _break_point(fusion: Fusion, space: _Space, sizes: list[int]) -> tuple[int, str]:
    """Where to cut the dimensions into rows and columns.

    In one dimension every access to a broadcast input divides its index; in two, an input that is a broadcast
    along all rows or all columns does not, and one read serves all of a thread's rows.
    """
    broadcasts = []
    for tensor in fusion.inputs:
        if isinstance(tensor, TensorView) and not tensor.is_cpu and tensor in space.maps:
            covered = space.maps[tensor]
            present = [a in covered and not covered[a].is_broadcast for a in space.axes]
            if not all(present) and any(present):
                broadcasts.append(present)
    if not broadcasts:
        return 0, "one dimension, as no input is a broadcast"
    best, best_score = 0, 0
    for cut in range(1, len(sizes)):
        columns = 1
        for size in sizes[cut:]:
            columns *= size
        if columns < THREADS:
            continue  # rows this short leave threads idle
        served = sum(not any(p[:cut]) or not any(p[cut:]) for p in broadcasts)
        if served > best_score:
            best, best_score = cut, served
    if not best:
        return 0, "one dimension, as no cut serves the broadcast inputs"
    return best, f"rows and columns cut at {best}, which serves {best_score} broadcast inputs"


def _unroll(fusion: Fusion, space: _Space, width: int, total: int, hardware: HardwareInfo) -> int:
    """Accesses a thread has in flight along the unrolled axis: enough bytes, yet a full wave of blocks.

    Inputs that are broadcasts come from the caches and do not count.
    """
    loaded = 0
    for tensor in fusion.inputs:
        if isinstance(tensor, TensorView) and not tensor.is_cpu and tensor.uses:
            covered = space.maps.get(tensor, {})
            if all(a in covered and not covered[a].is_broadcast for a in space.axes if not a.is_broadcast):
                loaded += tensor.dtype.size * width
    unroll = 1
    while unroll < MAX_UNROLL and 2 * unroll * max(loaded, 1) <= BYTES_IN_FLIGHT:
        unroll *= 2
    wave = hardware.sm_count * hardware.max_threads_per_sm * width
    while unroll > 1 and total < wave * unroll:
        unroll //= 2
    return unroll
