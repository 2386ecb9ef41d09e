"""Chooses params of the reduction scheduler: asks the heuristic for the way in which the elements of a
reduction lie in memory.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from fusewright.analyze.vectorize import unit_stride_axis
from fusewright.core.hardware import MAX_GRID_REDUCES, HardwareInfo
from fusewright.core.once import cached_property
from fusewright.ir.node import Reduction
from fusewright.schedulers.base import Cost, Facts, Proposal
from fusewright.schedulers.cost import (
    GRID_REDUCTION_SECONDS,
    LATENCY_SECONDS,
    CostModel,
    busy_share,
    overlap,
)
from fusewright.schedulers.merged_vectors import MergedVectorLimits
from fusewright.schedulers.params import CompileParams, ReductionParams
from fusewright.schedulers.reduction.arithmetic import RowArithmetic
from fusewright.schedulers.reduction.column_heuristic import (
    Columns,
    anywhere_params,
    outer_params,
    with_words_in_flight,
)
from fusewright.schedulers.reduction.crossed_loads import (
    columns_side_by_side,
    crossed_limits,
    crossed_params,
    crossed_sectors,
    crossed_widths,
    is_short,
    loads_down_columns,
)
from fusewright.schedulers.reduction.joined_rows import (
    Batches,
    accessing_seconds,
    joined_params,
    joins_rows,
    loads_of_rows,
)
from fusewright.schedulers.reduction.planner import ReductionPlanner
from fusewright.schedulers.reduction.row_heuristic import RowAccesses, inner_params
from fusewright.schedulers.reduction.shared_elements import rows_share_elements, sharing_rows
from fusewright.schedulers.reduction.split_rows import (
    MAX_INNERMOST,
    MAX_VECTORS_OF_A_THREAD,
    is_split,
    short_split_params,
    split_params,
)
from fusewright.schedulers.reduction.tile_heuristic import TileChoice
from fusewright.schedulers.reduction.variances import has_welford, speed_of_steps
from fusewright.schedulers.reduction.whole_rows import ShortRows, whole_row_params
from fusewright.schedulers.reduction.wider_vectors import (
    wider_vectors,
    with_wider_vectors,
)
from fusewright.schedulers.shifted_rows import enough_bytes, is_narrow
from fusewright.schedulers.sizes import ceil_div
from fusewright.schedulers.vector_limits import VectorLimits
from fusewright.sym import as_int

# Bytes of vectors up to which they read memory slower than wider ones.
NARROW_VECTOR_BYTES = 4
# Blocks on an SM for which registers are left if they share rows of floats.
#   H200, 16384x4096, us, so and as the compiler chooses: binary cross entropy 135 and 167, a norm 72.5 and
#   78.2, a mean of squares of differences 130.9 and 134.1, a sum 73.1 and 72.4.
BLOCKS_OF_FLOATS_AN_SM = 2
# Whole rows of a thread from which on their loads are not marked as read once: so many are in flight anyway.
MANY_ROWS = 4


def _seconds(proposal: Proposal) -> float:
    assert proposal.estimate is not None
    return proposal.estimate().seconds


def _threads_along(params: ReductionParams) -> int:
    """Returns the threads of a block along rows, where it reduces columns."""
    return params.lparams.bdimy if params.lanes_down_columns else params.lparams.bdimx


class IndependentReductionPlanner(ReductionPlanner):
    """Derives params from the sizes of a call."""

    def __call__(self, facts: Facts, hardware: HardwareInfo) -> Proposal:
        space = self.space
        rows, length = space.iteration_size(facts), space.reduction_size(facts)
        squares = self._squares(rows, length, facts, hardware)
        if squares is not None:
            return squares
        if space.is_inner or not space.iteration:
            plain = self._rows(rows, length, facts, hardware)
        else:
            plain = self._columns(rows, length, facts, hardware)
        tiles = self._tiles(rows, length, facts, hardware)
        return plain if tiles is None else min(plain, tiles, key=_seconds)

    def _rows(self, rows: int, length: int, facts: Facts, hardware: HardwareInfo) -> Proposal:
        """Returns a proposal for rows along the contiguous dimension."""
        space, width = self.space, self._width(facts)
        inner, several = space.reduced_inside(facts), self._through_several(facts)
        if is_split(space) and width == 1 and inner <= MAX_INNERMOST and several is None:
            outer = length // max(1, inner)
            params = split_params(rows, outer, inner, width, space.element_bytes, hardware)
        elif self._is_short_split(rows, length, width, hardware):
            params = short_split_params(rows, ceil_div(length, width), width, space.element_bytes)
        else:
            params = self._inner(rows, length, width, facts, hardware)
        blocks = ceil_div(rows, params.lparams.bdimy * params.rows_in_flight) * params.lparams.gdimy
        return self._proposal(params, blocks, facts, hardware)

    def _columns(self, count: int, length: int, facts: Facts, hardware: HardwareInfo) -> Proposal:
        """Returns a proposal for `count` columns, of which neighbours are contiguous."""
        space, width = self.space, self._width(facts)
        is_narrow = width * space.element_bytes <= NARROW_VECTOR_BYTES
        whole = self._whole_rows(facts, hardware) if is_narrow else None
        if whole is not None:
            return whole
        joined = self._joined_rows(facts, width, hardware)
        if joined is not None and is_narrow and joined.params.vectorize_iter_dom:
            # Blocks that share one result, and those of many batches, were faster wherever they were timed.
            shares_one = joined.params.cross_grid_inner_reduction and self._states == 1
            if shares_one or count >= 2 * hardware.sm_count * joined.params.lparams.bdimx:
                return joined
        columns = Columns(
            count,
            length,
            space.side_by_side(facts),
            width,
            space.element_bytes,
            space.stores_all,
            self._states,
            innermost=facts.value(space.iteration[-1].extent),
            reductions=self.reductions,
        )
        params = self._columns_from_anywhere(columns, facts, hardware) or outer_params(columns, hardware)
        blocks = (
            ceil_div(count, _threads_along(params) * params.unroll_factor_iter_dom) * params.lparams.gdimy
        )
        has_rows = _threads_along(params) * params.unroll_factor_iter_dom == columns.side_by_side
        along_memory = params.lanes_down_columns or has_rows
        cost = self._cost_along_memory if along_memory else self._cost
        plain = self._proposal(params, blocks, facts, hardware, cost)
        return plain if joined is None else min(plain, joined, key=_seconds)

    @cached_property
    def _column_loads(self) -> VectorLimits | None:
        """The limits on vectors along rows of what is reduced down columns; None where elements are stored,
        or where other inputs are read along rows.
        """
        space = self.space
        inner = space.inner_axis
        others = [load for load in space.loads if load not in space.full_loads and inner in load.concrete]
        if inner is None or space.is_inner or space.stores_all or others:
            return None
        return VectorLimits(self.fusion, inner, space.full_loads)

    def _columns_from_anywhere(
        self, columns: Columns, facts: Facts, hardware: HardwareInfo
    ) -> ReductionParams | None:
        """Returns params of vectors that start at any element, where aligned ones are narrow; else None."""
        limits = self._column_loads if self._states == 1 else None  # the registers of more would spill
        found = None if limits is None else limits.vectors(facts, columns.width)
        if found is None or not found.unaligned or not is_narrow(columns.width, found):
            return None
        return anywhere_params(replace(columns, width=found.width), found.unaligned, hardware)

    def reads_few(self, facts: Facts) -> bool:
        """Whether many results share the elements that are reduced, and these are not read in vectors along
        the reduced dimensions.
        """
        is_along = self.space.is_inner or not self.space.iteration
        return not self.space.full_loads and not (is_along and self._width(facts) > 1)

    @cached_property
    def _crossed_limits(self) -> tuple[VectorLimits, VectorLimits] | None:
        return crossed_limits(self.fusion, self.space)

    @cached_property
    def _crossed_costs(self) -> tuple[CostModel, CostModel]:
        """Of long rows, and of short ones."""
        down = loads_down_columns(self.space)
        long, short = (crossed_sectors(self.fusion, self.space, down, each) for each in (False, True))
        return CostModel(self.fusion, long), CostModel(self.fusion, short)

    def _squares(self, rows: int, length: int, facts: Facts, hardware: HardwareInfo) -> Proposal | None:
        """Returns a proposal of squares of elements for each thread, where inputs are contiguous along rows
        and down columns; else None.
        """
        widths = crossed_widths(self._crossed_limits, facts) if self._crossed_limits is not None else None
        if widths is None:
            return None
        run = columns_side_by_side(self.space, facts)
        params = crossed_params(rows, run, length, *widths, self.space.element_bytes, hardware)
        blocks = ceil_div(rows, _threads_along(params) * params.unroll_factor_iter_dom) * params.lparams.gdimy
        cost = self._crossed_costs[is_short(run, widths[0])]
        return self._proposal(params, blocks, facts, hardware, cost)

    @cached_property
    def _tile_choice(self) -> TileChoice:
        return TileChoice(self.fusion, self.space)

    def _tiles(self, rows: int, length: int, facts: Facts, hardware: HardwareInfo) -> Proposal | None:
        """Returns a proposal of tiles in shared memory, where these are of use; else None."""
        found = self._tile_choice.params(rows, length, facts, hardware)
        if found is None:
            return None
        params, blocks = found
        accessing = self._tile_choice.accessing_seconds(params, rows, length, hardware)
        return self._proposal(params, blocks, facts, hardware, self._tile_choice.cost, accessing)

    @cached_property
    def _runs(self) -> MergedVectorLimits | None:
        """The limits on vectors through several rows of memory; None if rows are not read as one."""
        space = self.space
        if not joins_rows(self.fusion, space):
            return None
        return MergedVectorLimits(self.fusion, space.order, space.loads)

    def _joined_rows(self, facts: Facts, width: int, hardware: HardwareInfo) -> Proposal | None:
        """Returns a proposal that reads several rows as one, if it has wider vectors than rows have, or
        several batches of short rows; else None.
        """
        if self._runs is None:
            return None
        space = self.space
        length, row = space.reduction_size(facts), space.side_by_side(facts)
        if not row or (row == width > 1):  # neighbouring threads go down the columns
            return None
        wide = self._width_across_rows(facts)
        count = space.iteration_size(facts) // row
        results = self._results
        batches = Batches(
            count=count,
            length=length,
            row=row,
            width=wide,
            element_bytes=space.element_bytes,
            reductions=self.reductions,
            results=len(results),
            result_bytes=sum(results),
        )
        params = joined_params(batches, hardware)
        if params is None or params.joined_rows < width or (params.joined_rows == width > 1):
            return None
        launch = params.lparams
        blocks = ceil_div(count, max(1, launch.bdimz)) * launch.gdimy
        points = space.iteration_size(facts) * length
        accessing = accessing_seconds(space, points, hardware) if params.joined_rows > 1 else 0.0
        return self._proposal(params, blocks, facts, hardware, self._cost_along_memory, accessing)

    def _width_across_rows(self, facts: Facts) -> int:
        """Returns the elements of the widest aligned vector through several rows of memory."""
        outer = max(0, len(self.space.iteration) - 1)
        runs = self._runs.vectors(outer, facts) if self._runs is not None else []
        found = next((each.vectors for each in runs if each.dim == outer), None)
        return 1 if found is None or found.unaligned else found.width

    def _whole_rows(self, facts: Facts, hardware: HardwareInfo) -> Proposal | None:
        """Returns a proposal of threads with whole rows of memory, if something is loaded in vectors that
        rows have one element of each; else None.
        """
        space, of_rows = self.space, self._row_vectors
        row = space.side_by_side(facts) if of_rows is not None else 0
        if of_rows is None or not row:
            return None
        rows = ShortRows(
            count=space.iteration_size(facts) // row,
            length=space.reduction_size(facts),
            row=row,
            width=min(self._width_across_rows(facts), of_rows.width(facts)),
            row_bytes=row * space.element_bytes + sum(a.tensor.dtype.size for a in loads_of_rows(space)),
            result_bytes=sum(self._results),
        )
        params = whole_row_params(rows, hardware)
        if params is None:
            return None
        blocks = ceil_div(rows.count, params.lparams.bdimy) * params.lparams.gdimy
        return self._proposal(params, blocks, facts, hardware, self._cost_along_memory)

    @cached_property
    def _row_vectors(self) -> VectorLimits | None:
        """The limits on vectors of what short rows have one element of each; None if nothing is, or if only a
        call determines how long they are.
        """
        loads = loads_of_rows(self.space) if self._runs is not None else []
        if not loads or as_int(self.space.iteration[-1].extent) is None:
            return None
        return VectorLimits(self.fusion, self.space.reduction[0], loads, split=loads)

    @cached_property
    def _results(self) -> tuple[int, ...]:
        """The bytes of each state of all reductions."""
        nodes = [node for node in self.fusion.nodes if isinstance(node, Reduction)]
        return tuple(out.dtype.size for node in nodes for out in node.outputs)

    def _is_short_split(self, rows: int, length: int, width: int, hardware: HardwareInfo) -> bool:
        """Whether rows in two stretches of memory are so short, and so many, that a thread reduces each."""
        if not is_split(self.space) or self._states > 1:
            return False
        is_short = ceil_div(length, width) <= MAX_VECTORS_OF_A_THREAD
        return is_short and rows >= hardware.sm_count * hardware.max_threads_per_sm

    def _inner(
        self, rows: int, length: int, width: int, facts: Facts, hardware: HardwareInfo
    ) -> ReductionParams:
        """Returns params for contiguous rows, in vectors that are `width` wide, or in wider ones that go
        through several dimensions or start at any element.
        """
        sharing = rows_share_elements(self.space) and width == 1
        shared = sharing_rows(rows, length, self._states, hardware) if sharing else None
        if shared is not None:
            return shared
        accesses = self._row_accesses
        several = self._through_several(facts)
        width = width if several is None else several.width
        plain = inner_params(rows, length, width, hardware, accesses)
        plain = plain if several is None else several.of(plain)
        enough = enough_bytes(length * self.space.element_bytes)
        found = wider_vectors(
            self.fusion, self.space, self._vectors, self._shifted, width, length, facts, enough
        )
        # Only blocks with rows of their own have shifted vectors.
        #   H200, sum of 67 million misaligned bf16: 57.9 us one by one, 41.3 by vectors that start anywhere.
        if found is None or (found[1] and plain.cross_grid_inner_reduction):
            return plain
        vectors, shifts = found
        before = vectors.width - 1 if shifts else 0
        accesses = replace(accesses, scattered=False)
        wide = inner_params(rows, length + before, vectors.width, hardware, accesses)
        return with_wider_vectors(wide, vectors, shifts)

    @cached_property
    def _row_accesses(self) -> RowAccesses:
        space = self.space
        loads = len(space.full_loads)
        return RowAccesses(self._states, loads, space.element_bytes, space.stores_all, self._is_scattered)

    @cached_property
    def _is_scattered(self) -> bool:
        """Whether neighbours along the reduced dimension lie apart in a load by index."""
        inner = self.space.inner_axis
        by_index = (access for access in self.space.full_loads if access.by_index)
        return any(inner is None or a.axes.get(inner) is not unit_stride_axis(a.tensor) for a in by_index)

    def _proposal(
        self,
        params: ReductionParams,
        blocks: int,
        facts: Facts,
        hardware: HardwareInfo,
        cost: CostModel | None = None,
        accessing: float = 0.0,
    ) -> Proposal:
        cost = cost or self._cost
        params = self.step_loads.fitting(params, hardware)
        exchanges = ceil_div(self.reductions, MAX_GRID_REDUCES)
        steps = exchanges * GRID_REDUCTION_SECONDS if params.cross_grid_inner_reduction else 0.0
        speed = busy_share(blocks, hardware)
        threads = params.lparams.threads
        resident = min(hardware.max_blocks_per_sm, max(1, hardware.max_threads_per_sm // threads))
        moving = cost.seconds_an_sm(facts, hardware) / max(1, blocks)
        started = cost.started_share(facts, hardware, blocks)
        kept = min(speed * overlap(resident, moving, LATENCY_SECONDS), started)
        if self._has_welford:
            kept *= speed_of_steps(self.space, params, facts)
        if not self.space.stores_all and self._is_narrow(params):
            held = self.step_loads.held(params)
            # With either hint, all loads are issued before the first is used.
            again = cost.is_read_later(facts)
            hinted = replace(params, streams_inputs=not again, keeps_inputs=again)
            params = with_words_in_flight(hinted, held, blocks, hardware)
        elif self._may_stream(params) and cost.streams(facts, hardware):
            params = replace(params, streams_inputs=True)
        elif cost.keeps(facts, hardware):
            params = replace(params, keeps_inputs=True)
        if self._has_steps_of_floats(params):
            computing, memory = cost.computing_seconds(facts, hardware), cost.moving_seconds(facts, hardware)
            if computing < memory:
                registers = hardware.registers_a_thread(BLOCKS_OF_FLOATS_AN_SM * threads)
                params = replace(params, cparams=CompileParams(maxrregcount=registers))
        estimated = partial(self._estimated, cost, params, facts, hardware, kept, steps, accessing)
        return Proposal(params, estimated)

    def _estimated(
        self,
        cost: CostModel,
        params: ReductionParams,
        facts: Facts,
        hardware: HardwareInfo,
        speed: float,
        steps: float,
        accessing: float,
    ) -> Cost:
        slots = cost.slots(facts) + self._row_arithmetic.repeated_slots(params, facts)
        return cost.estimate(facts, hardware, speed=speed, steps=steps, accessing=accessing, slots=slots)()

    @cached_property
    def _row_arithmetic(self) -> RowArithmetic:
        return RowArithmetic(self.fusion, self.space)

    def _may_stream(self, params: ReductionParams) -> bool:
        """Whether large inputs may be marked as read once: unless elements are stored, or a thread has many
        whole rows.

        H200, us, not marked and marked: eight pairs of floats of 16384x4096 98.9 and 106.2, four rows of four
        floats of 16777216 84.2 and 88.6, two of eight bools of 8388608 42.3 and 38.8.
        """
        has_rows = params.fastest_dim and params.lparams.bdimx == 1
        return not (self.space.stores_all or (has_rows and params.rows_in_flight >= MANY_ROWS))

    def _is_narrow(self, params: ReductionParams) -> bool:
        """Whether columns are read by narrow vectors.

        Loads that are marked are all issued before the first is used, and it takes many of these to keep
        memory busy: 50000 x 257 bfloat16 are summed in 0.46 of the time on an H200. Sums of two float inputs,
        the middle of 128x256x515, take 42 us instead of 61.
        """
        width = params.unroll_factor_iter_dom
        is_outer = not (params.fastest_dim or params.tiles_in_shared_memory)
        widest = max((access.tensor.dtype.size for access in self.space.full_loads), default=0)
        return is_outer and not params.has_whole_rows and width * widest <= NARROW_VECTOR_BYTES

    def _has_steps_of_floats(self, params: ReductionParams) -> bool:
        """Whether blocks share rows that are loaded in vectors of floats, for one state.

        Left alone, the CUDA compiler spares registers and waits for each of these vectors. Of bfloat16, or
        where computing takes longer than memory, more blocks are faster: binary cross entropy of 16384x4096
        bfloat16 99 us, with half as many threads on an SM 116.
        """
        shares_rows = params.fastest_dim and params.cross_grid_inner_reduction
        of_floats = params.vectorize_inner_reduction and self.space.loads_words
        return shares_rows and of_floats and self._states == 1 and not self.space.stores_all

    @cached_property
    def _has_welford(self) -> bool:
        return has_welford(self.fusion)

    @cached_property
    def _states(self) -> int:
        """The most states of a reduction."""
        return max(len(node.outputs) for node in self.fusion.nodes if isinstance(node, Reduction))
