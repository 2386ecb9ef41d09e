"""The reduction scheduler: reductions, and elementwise work before and after them.

Inner (the contiguous dimension is reduced): a block reduces one or several rows,

    [I, R] -> [I blocks, I threads y, (R blocks y,) R threads x | serial, unroll, vector]

Outer: threads x lie along the rows that are contiguous, threads y down the columns,

    [I, R] -> [I blocks, I threads x, (R blocks y,) R threads y | serial, unroll, I vector]

The serial part is factored into partial results of each thread, which one collective then combines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from fusewright.core.enums import ParallelType, SchedulerType
from fusewright.core.hardware import WARP_SIZE, HardwareInfo
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Reduction
from fusewright.ir.value import TensorView
from fusewright.rewrite.chunks import can_be_chunked, chunked_reduction
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.base import (
    BuiltInScheduler,
    Facts,
    Part,
    Planner,
    Proposal,
    Reject,
    Rewrite,
    accepted,
)
from fusewright.schedulers.cost import GRID_REDUCTION_SECONDS, KERNEL_SECONDS, CostModel, busy_share
from fusewright.schedulers.io import VectorLimits, cache_inputs_and_outputs
from fusewright.schedulers.params import LaunchParams, ReductionParams
from fusewright.schedulers.reduction_loops import (
    bind_rows,
    check_rows,
    distribute,
    inline,
    merge_to_rows_and_reduction,
)
from fusewright.schedulers.reduction_space import ReductionSpace, reduction_space
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_least, power_of_two_at_most

# Loads that a thread has in flight; with 16-byte vectors, 64 bytes a thread cover the latency of HBM at half
# occupancy.
LOADS_IN_FLIGHT = 4
# More threads for a row than this gain nothing once every SM has work, and make a block's barriers slower.
MAX_THREADS_A_ROW = 512
# Rows of one warp each that share a block: four warps, of which an SM holds enough blocks to be full.
MAX_ROWS_A_BLOCK = 4
# A grid reduction costs one round trip through L2; a block should have at least this many loads to hide it.
MIN_LOADS_PER_THREAD = 4

# Columns a thread sums side by side unless it writes them as well, and bytes of them that it has in flight,
# in as many rows: more columns take registers that more rows use better, but only 16-byte stores reach the
# full bandwidth. Measured on an H200 for 16384 x 4096 bfloat16 with one input (a sum), two (column sums of
# a backward pass), and two with an output.
COLUMNS = 4
OUTER_BYTES_IN_FLIGHT = 64
MAX_ROWS_IN_FLIGHT = 8
# Threads of a block that sums columns; twice as many where all columns fit in one block along x, for the work
# lies down the columns then.
OUTER_BLOCK, OUTER_BLOCK_OF_FEW_COLUMNS = 256, 512
# Blocks for each SM that columns are shared out to by a grid reduction, and what makes that worth its round
# trip: at least so many times that all of a block's loads in flight are issued.
OUTER_BLOCKS_A_SM = 4
MIN_OUTER_STEPS = 2
# Chunks that two kernels cut what a block reduces into for each time that one could take less, of how many
# elements at least: a block of any width has work for them.
CHUNKS_A_BLOCK, LEAST_CHUNK = 8, 1024


class ReductionScheduler(BuiltInScheduler):
    """Accepts reductions that do not depend on each other, of which nothing is broadcast back."""

    type = SchedulerType.reduction
    params_type = ReductionParams
    fixed_params: ClassVar[Mapping[str, Any]] = {"persistent_kernel": False}

    def prepare(self, fusion: Fusion) -> Planner | Reject:
        space = _space(fusion)
        return Reject(space) if isinstance(space, str) else _Planner(fusion, space)

    def apply(self, schedule: Schedule, params: ReductionParams) -> None:
        original = accepted(self, _space(schedule.fusion))
        check_rows(original, params)
        ports = cache_inputs_and_outputs(schedule, original.read_once if params.streams_inputs else ())
        space = accepted(self, reduction_space(schedule.fusion))
        reference = merge_to_rows_and_reduction(schedule, space)
        if params.fastest_dim:
            moved = _cut_inner(schedule, reference, params, bool(space.iteration))
            width = params.unroll_factor_inner_reduction if params.vectorize_inner_reduction else 1
        else:
            moved = _cut_outer(schedule, reference, params, bool(space.iteration))
            width = params.unroll_factor_iter_dom if params.vectorize_iter_dom else 1
        partials = distribute(schedule, space, reference, ports, moved, width)
        inline(schedule, space, partials, width, load_position=moved[0] + 1)

    def propose_redefinition(self, part: Part, facts: Facts, hardware: HardwareInfo) -> Rewrite | None:
        """Two kernels in place of one that is estimated to leave most of the memory's speed unused."""
        nodes = [node for node in part.nodes if isinstance(node, Reduction) and can_be_chunked(node)]
        planner = part.planner
        if not nodes or not isinstance(planner, _Planner):
            return None
        space = planner.space
        speed, proposal = planner.at_speed(facts, hardware)
        assert proposal.estimate is not None
        cost = proposal.estimate()
        slower = power_of_two_at_most(int(min(1 / speed, cost.seconds / cost.least_seconds)))
        if slower < 2 or cost.seconds <= cost.least_seconds + KERNEL_SECONDS:
            return None
        size = power_of_two_at_most(space.reduction_size(facts))
        length = max(LEAST_CHUNK, size // (CHUNKS_A_BLOCK * slower))
        if size <= length:
            return None

        def replace(graph: Fusion) -> dict[TensorView, TensorView]:
            return {old: new for node in nodes for old, new in chunked_reduction(graph, node, length).items()}

        reason = f"one kernel takes {slower} times as long as its bytes: chunks of {length}"
        return Rewrite("reduction in two kernels", replace, reason)


@dataclass(frozen=True, eq=False)
class _Planner:
    """Derives params from the sizes of a call."""

    fusion: Fusion
    space: ReductionSpace

    @cached_property
    def _cost(self) -> CostModel:
        return CostModel(self.fusion, self.space.sectors(self.fusion))

    @cached_property
    def _vectors(self) -> VectorLimits | None:
        return self.space.vector_limits(self.fusion)

    @cached_property
    def _element_bytes(self) -> int:
        """Of all loads of every point."""
        return sum(a.tensor.dtype.size for a in self.space.loads if self.space.is_full(a))

    def __call__(self, facts: Facts, hardware: HardwareInfo) -> Proposal:
        return self.at_speed(facts, hardware)[1]

    def at_speed(self, facts: Facts, hardware: HardwareInfo) -> tuple[float, Proposal]:
        """The proposal, and the share of the memory's speed that its blocks are enough for."""
        space = self.space
        width = self._vectors.width(facts) if self._vectors is not None else 1
        rows, length = space.iteration_size(facts), space.reduction_size(facts)
        if space.is_inner or not space.iteration:
            params = _inner_params(rows, length, width, hardware)
            blocks = ceil_div(rows, params.lparams.bdimy) * params.lparams.gdimy
            return self._proposal(params, blocks, facts, hardware)
        stores_all = any(space.is_full(access) for access in space.stores)
        columns = width if stores_all else min(width, COLUMNS)
        params = _outer_params(rows, length, columns, columns * self._element_bytes, hardware)
        blocks = ceil_div(rows, params.lparams.bdimx * columns) * params.lparams.gdimy
        return self._proposal(params, blocks, facts, hardware)

    def _proposal(
        self, params: ReductionParams, blocks: int, facts: Facts, hardware: HardwareInfo
    ) -> tuple[float, Proposal]:
        steps = self._reductions * GRID_REDUCTION_SECONDS if params.cross_grid_inner_reduction else 0.0
        speed = busy_share(blocks, hardware)
        return speed, Proposal(params, self._cost.estimate(facts, hardware, speed=speed, steps=steps))

    @cached_property
    def _reductions(self) -> int:
        return sum(isinstance(node, Reduction) for node in self.fusion.nodes)


def _space(fusion: Fusion) -> ReductionSpace | str:
    """The space of a fusion that the scheduler takes, or why it does not."""
    space = reduction_space(fusion)
    if isinstance(space, str):
        return space
    for tensor in space.reductions:
        if tensor in space.after:
            return f"the reduction {tensor.name} depends on another reduction"
    for tensor, mapped in space.maps.items():
        if tensor not in space.after:
            continue
        for axis in space.reduction:
            if axis in mapped and not mapped[axis].is_broadcast and not mapped[axis].is_reduction:
                return f"{tensor.name} uses a reduced dimension again after the reduction"
    return space


# ---- inner ------------------------------------------------------------------------------------


def _inner_params(rows: int, length: int, width: int, hardware: HardwareInfo) -> ReductionParams:
    vectors = max(1, ceil_div(length, width))
    wanted = power_of_two_at_least(ceil_div(vectors, LOADS_IN_FLIGHT))
    threads = min(MAX_THREADS_A_ROW, max(WARP_SIZE, wanted))
    unroll = max(1, min(LOADS_IN_FLIGHT, vectors // threads))
    row_threads = 1
    if threads == WARP_SIZE:
        # Twice the rows a block, while that leaves a block for each SM.
        while row_threads < MAX_ROWS_A_BLOCK and rows >= 2 * row_threads * hardware.sm_count:
            row_threads *= 2
    blocks = max(1, ceil_div(rows, row_threads))
    grid = 1
    if blocks < hardware.sm_count and threads == MAX_THREADS_A_ROW:
        # Rows too few to fill the GPU: several blocks share one.
        resident = hardware.sm_count * hardware.max_threads_per_sm // threads
        grid = min(max(1, resident // blocks), max(1, vectors // (threads * MIN_LOADS_PER_THREAD)))
    return ReductionParams(
        fastest_dim=True,
        unroll_factor_inner_reduction=width,
        vectorize_inner_reduction=width > 1,
        unroll_factor_top_of_vectorization=unroll,
        pad_inner_reduction_to_warp=True,
        lparams=LaunchParams(bdimx=threads, bdimy=row_threads, gdimy=grid),
        reason=f"{rows} rows of {length}, contiguous: {threads} threads a row with {unroll} vectors "
        f"of {width} in flight, {row_threads} rows a block, {grid} blocks a row",
    )


def _cut_inner(schedule: Schedule, tensor: TensorView, params: ReductionParams, has_rows: bool) -> list[int]:
    """[I, R] -> [BIDx, TIDy, (BIDy,) TIDx | serial, unroll, vector]; returns the positions after the bar."""
    width = params.unroll_factor_inner_reduction
    schedule.split(tensor, -1, width)
    schedule.split(tensor, -2, params.lparams.bdimx)
    schedule.split(tensor, -3, params.unroll_factor_top_of_vectorization)
    # now [.., serial, unroll, threads, vector]
    end = len(tensor.loop)
    schedule.reorder(tensor, {end - 2: end - 4})
    if params.cross_grid_inner_reduction:
        schedule.split(tensor, -3, params.lparams.gdimy, inner_split=False)
        end = len(tensor.loop)
        schedule.reorder(tensor, {end - 4: end - 5})
        schedule.parallelize(tensor, end - 5, ParallelType.grid_y)
    end = len(tensor.loop)
    pad = WARP_SIZE if params.pad_inner_reduction_to_warp else 1
    schedule.parallelize(tensor, end - 4, ParallelType.block_x, pad)
    schedule.parallelize(tensor, end - 2, ParallelType.unroll)
    moved = 3
    if has_rows:
        bind_rows(schedule, tensor, params)
    end = len(tensor.loop)
    return list(range(end - moved, end))


# ---- outer ------------------------------------------------------------------------------------


def _outer_params(
    rows: int, length: int, width: int, row_bytes: int, hardware: HardwareInfo
) -> ReductionParams:
    """`width` columns a thread, of which each row takes `row_bytes` to load."""
    columns = max(1, ceil_div(rows, width))
    threads_x = min(WARP_SIZE, power_of_two_at_least(columns))
    block = OUTER_BLOCK if columns > WARP_SIZE else OUTER_BLOCK_OF_FEW_COLUMNS
    # At least two elements of a column for each thread, as long as it has as many.
    threads_y = max(1, min(block // threads_x, power_of_two_at_least(length) // 2))
    in_flight = min(MAX_ROWS_IN_FLIGHT, OUTER_BYTES_IN_FLIGHT // max(1, row_bytes))
    unroll = max(1, min(in_flight, length // threads_y))
    blocks = ceil_div(columns, threads_x)
    wanted = OUTER_BLOCKS_A_SM * hardware.sm_count
    grid = 1
    if blocks < wanted:
        grid = min(max(1, wanted // blocks), max(1, length // (threads_y * unroll * MIN_OUTER_STEPS)))
    return ReductionParams(
        fastest_dim=False,
        unroll_factor_inner_reduction=unroll,
        vectorize_iter_dom=width > 1,
        unroll_factor_iter_dom=width,
        lparams=LaunchParams(bdimx=threads_x, bdimy=threads_y, gdimy=grid),
        reason=f"{rows} contiguous columns of {length}: {threads_x} threads of {width} columns, "
        f"{threads_y} down the columns with {unroll} rows in flight, {grid} blocks a column",
    )


def _cut_outer(schedule: Schedule, tensor: TensorView, params: ReductionParams, has_rows: bool) -> list[int]:
    """[I, R] -> [BIDx, TIDx, (BIDy,) TIDy | serial, unroll | vector]; returns what is between the bars."""
    reduction = 1 if has_rows else 0
    schedule.split(tensor, reduction, params.lparams.bdimy)
    schedule.split(tensor, reduction, params.unroll_factor_inner_reduction)
    # [I, serial, unroll, TIDy] -> [I, TIDy, serial, unroll]
    schedule.reorder(tensor, {reduction + 2: reduction})
    schedule.parallelize(tensor, reduction, ParallelType.block_y)
    schedule.parallelize(tensor, reduction + 2, ParallelType.unroll)
    first = reduction + 1
    if params.cross_grid_inner_reduction:
        schedule.split(tensor, reduction + 1, params.lparams.gdimy, inner_split=False)
        schedule.reorder(tensor, {reduction + 1: reduction})
        schedule.parallelize(tensor, reduction, ParallelType.grid_y)
        first += 1
    if has_rows:
        schedule.split(tensor, 0, params.unroll_factor_iter_dom)
        schedule.split(tensor, 0, params.lparams.bdimx)
        schedule.reorder(tensor, {2: len(tensor.loop) - 1})
        schedule.parallelize(tensor, 0, ParallelType.grid_x)
        schedule.parallelize(tensor, 1, ParallelType.block_x)
        if params.unroll_factor_iter_dom > 1:
            schedule.parallelize(tensor, -1, ParallelType.unroll)
        first += 1
    return [first, first + 1]
