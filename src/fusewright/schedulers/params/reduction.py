"""Params of kernels that reduce rows, with or without holding the row meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from fusewright.core.declaration import derived, unavailable
from fusewright.core.enums import ParallelType
from fusewright.core.hardware import BULK_COPIES_SINCE, WARP_SIZE, HardwareInfo
from fusewright.schedulers.params.decision import When, check_hardware, choice
from fusewright.schedulers.params.heuristic import (
    MAX_UNROLL,
    SHIFTED_WIDTH,
    TRIED_UNROLL,
    UNROLLING,
    WIDTHS,
    HeuristicParams,
)
from fusewright.schedulers.params.launch import (
    TRIED_EXTENTS,
    UNSET,
    Extent,
    LaunchParams,
    launch,
    threads_to_hold,
)
from fusewright.schedulers.params.legal import GIVEN, SIZE, counts, each

_PERSISTENT = When(lambda params: params.persistent_kernel, "in a kernel that is not persistent")
_INNER = When(lambda params: params.fastest_dim, "with fastest_dim False")
_OUTER = When(lambda params: not params.fastest_dim, "with fastest_dim True")
_EACH_ROW = When(
    lambda params: not (params.fastest_dim or params.persistent_kernel or params.joins_rows),
    "unless a kernel that is not persistent reads columns, each row by itself",
)
_TILES = When(
    lambda params: _EACH_ROW.holds(params) and not params.lanes_down_columns,
    "unless a kernel that is not persistent reads columns along rows, each row by itself",
)
_CROSSED = When(
    lambda params: _EACH_ROW.holds(params) and (params.vectorize_iter_dom or params.tiles_in_shared_memory),
    "unless a kernel that is not persistent reads vectors along rows, each by itself, or has tiles",
)
_WHOLE_ROWS = When(
    lambda params: params.fastest_dim and not params.schedule_3d,
    "with fastest_dim False, or with schedule_3d",
)
_SPLIT = When(
    lambda params: params.fastest_dim and not params.persistent_kernel,
    "in a persistent kernel, and with fastest_dim False",
)
_HOLDS_ROWS = When(
    lambda params: params.holds_batches and params.fastest_dim, "in a kernel that does not hold its rows"
)
_HOLDS = When(
    lambda params: params.holds_batches and not params.circular_stages,
    "in a kernel that does not hold what it reduces, or with circular_stages",
)
_READS_VECTORS = When(
    lambda params: _WHOLE_ROWS.holds(params) and params.vectorize_inner_reduction,
    "without vectors along rows",
)
_READS_ANYWHERE = When(
    lambda params: (
        _READS_VECTORS.holds(params)
        or (_CROSSED.holds(params) and params.vector_down_columns == 1 and not params.tiles_in_shared_memory)
    ),
    "without vectors along rows, and beside vectors down columns",
)
_READS_ALIGNED = When(
    lambda params: params.reads_aligned_vectors,
    "unless vectors that are aligned in all rows are read from where these lie",
)
_DOES_NOT_STREAM = When(lambda params: not params.streams_inputs, "with streams_inputs")
_STREAMS_ROWS = When(lambda params: params.circular_stages > 0, "with circular_stages 0")
_SEVERAL_ROWS = When(
    lambda params: params.staged_vector > 0 or (_HOLDS_ROWS.holds(params) and params.rows_in_flight > 1),
    "with staged_vector 0, unless threads hold several rows",
)
_ROWS_OR_OUTER = When(
    lambda params: params.holds_batches or not params.fastest_dim,
    "in an inner kernel that does not hold its rows",
)
_ROWS_SIDE_BY_SIDE = When(
    lambda params: _ROWS_OR_OUTER.holds(params) or not (params.persistent_kernel or params.schedule_3d),
    "in an inner kernel that reads its rows again, or with schedule_3d",
)
_IN_TURNS = When(
    lambda params: params.persistent_kernel and params.fastest_dim, "unless a persistent kernel reduces rows"
)
_READS_AGAIN = When(
    lambda params: params.persistent_kernel and not params.holds_batches,
    "unless a persistent kernel holds no batches",
)
_IN_STEPS = When(
    lambda params: _READS_AGAIN.holds(params) or params.tiles_in_shared_memory,
    "unless a persistent kernel holds no batches, or there are tiles in shared memory",
)
_NO_SCHEDULER = "as no scheduler does that yet"
_OF_INNER_OUTER = "as kernels that reduce both rows and columns have InnerOuterParams"
_THREADS = ("lparams.bdimx", "lparams.bdimy", "fastest_dim", "lanes_down_columns")


@dataclass(frozen=True, slots=True)
class ReductionParams(HeuristicParams):
    """How a reduction, or a normalization, is split.

    With fastest_dim ("inner") the reduced dimensions include the contiguous one: a block reduces
    lparams.bdimy rows with lparams.bdimx threads each, and lparams.gdimy blocks share one reduction. Without
    it ("outer") lparams.bdimx threads lie along the rows, lparams.bdimy go down the columns, and
    lparams.gdimy blocks share columns. A block that holds columns, or goes on from a row of memory to the
    next, has lparams.bdimz such groups of threads, each with columns of its own. The binding of each axis
    (block_dim_*, grid_dim_*, cross_*, multiple_reds_per_blk) follows from that.

    A persistent kernel reads rows, or columns, again with the results. With batches, it holds them meanwhile.
    Without batches, it sweeps them once for each reduction and once more, in the loops of other reductions.

    Attributes:
        fastest_dim: whether rows are reduced along memory.
        persistent_kernel: whether the reduced data is used again with the results.
        project_persistent_buffers: only inputs are held, and values computed from them are recomputed.
        persistent_in_shared_memory: data is held there instead of in registers.
        unroll_factor_inner_reduction: inner: elements of a vector along the row (if
            vectorize_inner_reduction). Outer: the rows in flight per thread.
        unroll_factor_top_of_vectorization: inner: the vectors in flight per thread.
        vectorize_inner_reduction: whether accesses along rows are vectors.
        pad_inner_reduction_to_warp: bdimx threads are whole warps, or, if fewer than a warp, a part of a warp
            that has its own row.
        batches_per_block_inner_reduction: inner: the vectors of a row that each thread holds. Outer: the rows
            of its columns. 0: nothing is held. With circular_stages: the vectors of a chunk.
        blocks_per_cluster: the number of blocks of a cluster that share a row, or a column.
        assumed_reduction_sizes: the size of each reduced dimension, outermost in memory first, or of those
            that a reshape has merged to one, which the kernel has as constants: it serves no others. (): it
            serves all that its threads can hold.
        shift_rows: the vectors of each row start at aligned addresses, whatever its length and position.
        unaligned_inputs: positions of the inputs whose vectors may start at any element.
        vectorized_dims: vectors cross this many of the innermost reduced dimensions. The size of each is a
            multiple of its number here, and the vectors divide the product of these numbers.
        streams_inputs: inputs that are read at every point are marked to leave the caches first. Copies to
            shared memory that threads start themselves have neither this mark nor the next; the copies of a
            ring have.
        keeps_inputs: inputs leave the L2 cache last instead, so that stored data is written to memory early.
        loads_ahead: with batches: inputs that are read at every point, and from which no reduction
            follows, are loaded before the reductions as well, and held until their results are known.
        held_steps: without batches: the number of first steps of the loop whose loads stay in shared memory;
            the loads of one more step, the last, stay in registers.
        sweeps_backward: without batches: every other sweep goes from the last step to the first.
        streams_last_sweep: without batches: the loads and stores of the last sweep leave the caches first.
        prefetches_steps: without batches: the first sweep loads the next step while it processes one. With
            tiles, so does the only one.
        circular_stages: rows are copied ahead into shared memory, in chunks of bdimx threads with their
            batches. A ring has this many chunks and continues from one row into the next. 0: rows are not
            copied ahead.
        warp_specialized: a separate warp starts the copies of the ring, instead of one of the threads.
        weights_in_shared_memory: vectors of unaligned_inputs that all rows share are selected once and kept
            there.
        persistent_blocks: the number of blocks (or clusters, or groups of lparams.gdimy blocks) that take the
            rows in turns. 0: each row has its own blocks.
        staged_vector: the rows of a block, a multiple of this, are adjacent in memory and pass through shared
            memory as one run, in vectors of this many elements. 0: each row is loaded by itself.
        whole_blocks: the number of rows is a multiple of the rows of a block, and of the rows in flight per
            thread.
        schedule_3d: inner: rows are reduced along two stretches of memory. Threads lie along the inner one;
            each goes along the outer one, with unroll_factor_top_of_vectorization vectors in flight.
        lanes_down_columns: outer: bdimx threads go down the columns, whose elements are neighbours in memory,
            and bdimy along the rows.
        joined_rows: outer: this many rows of memory, each of bdimx elements, are read as one by vectors that
            do not divide them (`reduction.joined_rows`). With lanes_down_columns a thread has as many rows,
            each of unroll_factor_iter_dom elements (`reduction.whole_rows`).
        vector_down_columns: outer: inputs whose columns are contiguous are read in vectors of this many
            elements down these. Each thread has as many neighbouring rows (`reduction.crossed_loads`), unless
            there are tiles.
        tiles_in_shared_memory: outer: what is contiguous down the columns passes through shared memory
            (`reduction.crossed_tiles`). The tile of a step has the columns and rows of the block's threads.
        unroll_factor_iter_dom: inner: the rows that a thread holds, or reduces, at a time. Outer: the columns
            of a thread.
        vectorize_iter_dom: outer: whether its accesses along rows are vectors.
    """

    lparams: LaunchParams = launch(
        from_sizes=(),
        bdimx=Extent(
            required=lambda params: (
                not (params.holds_batches and params.fastest_dim) or params.circular_stages > 0
            ),
            tried=(UNSET, *TRIED_EXTENTS),
        ),
        bdimy=Extent(
            required=lambda params: not (params.holds_batches or params.fastest_dim),
            tried=(UNSET, *TRIED_EXTENTS),
        ),
        bdimz=Extent(
            read=lambda params: (
                not params.fastest_dim
                and (params.holds_batches or (params.joins_rows and not params.has_whole_rows))
            )
        ),
        gdimy=Extent(
            read=lambda params: (
                params.blocks_per_cluster == 1
                and (not params.holds_batches or (params.fastest_dim and not params.circular_stages))
            )
        ),
    )
    fastest_dim: bool = choice(False, GIVEN)
    persistent_kernel: bool = choice(False, GIVEN)
    project_persistent_buffers: bool = choice(False, when=_PERSISTENT)
    persistent_in_shared_memory: bool = choice(False, when=_PERSISTENT)
    unroll_factor_inner_reduction: int = choice(1, UNROLLING)
    unroll_factor_top_of_vectorization: int = choice(1, UNROLLING, _INNER)
    vectorize_inner_reduction: bool = choice(False, when=_INNER)
    pad_inner_reduction_to_warp: bool = choice(False, when=_WHOLE_ROWS)
    batches_per_block_inner_reduction: int = choice(1, counts(0, MAX_UNROLL, (0, *TRIED_UNROLL)), _PERSISTENT)
    blocks_per_cluster: int = choice(1, counts(1, lambda hardware: hardware.max_cluster), _ROWS_OR_OUTER)
    assumed_reduction_sizes: tuple[int, ...] = choice((), each(SIZE), _PERSISTENT)
    shift_rows: bool = choice(False, when=_WHOLE_ROWS)
    unaligned_inputs: tuple[int, ...] = choice((), each(counts(0)), _READS_ANYWHERE)
    vectorized_dims: tuple[int, ...] = choice((), each(counts(1)), _READS_ALIGNED)
    streams_inputs: bool = choice(False)
    keeps_inputs: bool = choice(False, when=_DOES_NOT_STREAM)
    loads_ahead: bool = choice(False, when=_HOLDS)
    held_steps: int = choice(0, counts(0, tried=(0,)), _READS_AGAIN)
    sweeps_backward: bool = choice(False, when=_READS_AGAIN)
    streams_last_sweep: bool = choice(False, when=_READS_AGAIN)
    prefetches_steps: bool = choice(False, when=_IN_STEPS)
    circular_stages: int = choice(0, counts(0, tried=(0,)), _HOLDS_ROWS)
    warp_specialized: bool = choice(False, when=_STREAMS_ROWS)
    weights_in_shared_memory: bool = choice(False, when=_STREAMS_ROWS)
    persistent_blocks: int = choice(0, counts(0, tried=(0,)), _IN_TURNS)
    staged_vector: int = choice(0, counts(0, tried=(0,)), _HOLDS_ROWS)
    whole_blocks: bool = choice(False, when=_SEVERAL_ROWS)
    schedule_3d: bool = choice(False, when=_SPLIT)
    lanes_down_columns: bool = choice(False, when=_OUTER)
    joined_rows: int = choice(1, UNROLLING, _OUTER)
    vector_down_columns: int = choice(1, WIDTHS, _CROSSED)
    tiles_in_shared_memory: bool = choice(False, when=_TILES)
    unroll_factor_iter_dom: int = choice(1, UNROLLING, _ROWS_SIDE_BY_SIDE)
    vectorize_iter_dom: bool = choice(False, when=_OUTER)

    # ---- what follows

    @property
    def holds_batches(self) -> bool:
        """Whether threads hold a row, so that its length determines their number."""
        return self.persistent_kernel and self.batches_per_block_inner_reduction > 0

    @property
    def joins_rows(self) -> bool:
        """Whether threads go along memory through several rows: those that are read as one, or those of a
        block's batches (`reduction.joined_rows`).
        """
        several = not (self.fastest_dim or self.persistent_kernel) and self.lparams.bdimz > 1
        return self.joined_rows > 1 or (several and not self.lanes_down_columns)

    @property
    def has_whole_rows(self) -> bool:
        """Whether a thread has several whole rows of memory, side by side."""
        return self.joined_rows > 1 and self.lanes_down_columns

    @property
    def _reduces_x(self) -> bool:
        return self.fastest_dim or self.lanes_down_columns

    @property
    def rows_in_flight(self) -> int:
        """The rows that a thread of an inner kernel loads before it reduces the first."""
        return self.unroll_factor_iter_dom if self.fastest_dim else 1

    @property
    def rows_side_by_side(self) -> int:
        """The neighbouring rows of a thread, of which each input has a vector."""
        return 1 if self.tiles_in_shared_memory else self.vector_down_columns

    @property
    def vector_widths(self) -> tuple[int, ...]:
        """Elements of the accesses that it makes."""
        inner = self.unroll_factor_inner_reduction if self.vectorize_inner_reduction else 1
        return inner, self.unroll_factor_iter_dom if self.vectorize_iter_dom else 1

    @property
    def reads_aligned_vectors(self) -> bool:
        """Whether vectors that are aligned in all rows are read directly."""
        elsewhere = self.shift_rows or self.staged_vector or self.circular_stages
        return _READS_VECTORS.holds(self) and not elsewhere and not self.unaligned_inputs

    @property
    def elements_held(self) -> int:
        """The elements of one input that a thread has in registers at once."""
        held = self.unroll_factor_inner_reduction * self.unroll_factor_top_of_vectorization
        held *= self.rows_side_by_side * (self.joined_rows if self.has_whole_rows else 1)
        if self.holds_batches and not self.persistent_in_shared_memory:
            held *= self.batches_per_block_inner_reduction
        return held * self.unroll_factor_iter_dom

    @property
    def copies(self) -> int:
        """The copies of an access in the code of a thread."""
        accesses = self.unroll_factor_inner_reduction * self.unroll_factor_top_of_vectorization
        accesses *= max(1, self.batches_per_block_inner_reduction) * self.unroll_factor_iter_dom
        accesses *= self.rows_side_by_side
        return accesses // prod(self.vector_widths) if not self.shift_rows else accesses // SHIFTED_WIDTH

    @property
    def padded_threads(self) -> int:
        """The number that the threads of a row are a multiple of: a warp, or the part of one that has the
        row.
        """
        if not self.pad_inner_reduction_to_warp:
            return 1
        threads = self.lparams.bdimx
        is_part = 0 < threads < WARP_SIZE and threads & (threads - 1) == 0
        return threads if is_part else WARP_SIZE

    @property
    def elements_a_thread(self) -> int:
        """The elements of a row, or a column, that a thread holds; if several blocks hold it, one thread in
        each of them.
        """
        vector = self.unroll_factor_inner_reduction if self.fastest_dim else 1
        blocks = max(self.blocks_per_cluster, self.lparams.gdimy)
        return vector * self.batches_per_block_inner_reduction * blocks

    @property
    def threads_step(self) -> int:
        """The number that the threads that hold a row, or a column, are a multiple of: blocks are whole
        warps.
        """
        if self.fastest_dim:
            return self.padded_threads
        return max(1, WARP_SIZE // (self.lparams.bdimx * max(1, self.lparams.bdimz)))

    @property
    def places_before(self) -> int:
        """The positions that the first vector of a row may have before the row."""
        return self.unroll_factor_inner_reduction - 1 if self.shift_rows else 0

    def for_length(self, length: int) -> ReductionParams:
        name = "bdimx" if self.fastest_dim else "bdimy"
        if not self.holds_batches or self.circular_stages or getattr(self.lparams, name) < 1:
            return self
        needed = threads_to_hold(length + self.places_before, self.elements_a_thread, self.threads_step)
        return replace(self, lparams=replace(self.lparams, **{name: needed}))

    @property
    def _is_bound(self) -> bool:
        """Whether there are threads. Params that say nothing read as the reference's: all is serial."""
        return self.persistent_kernel or self.lparams.bdimx != UNSET

    @derived(*_THREADS)
    def cross_block_inner_reduction(self) -> bool:
        """Whether the threads of a block share a reduction."""
        threads = self.lparams.bdimx if self._reduces_x else self.lparams.bdimy
        return self._is_bound and threads != 1

    @derived("lparams.gdimy")
    def cross_grid_inner_reduction(self) -> bool:
        """Whether several blocks share a reduction."""
        return self.lparams.gdimy > 1

    @derived("lparams.bdimy", "fastest_dim")
    def multiple_reds_per_blk(self) -> bool:
        """Whether a block reduces several rows."""
        return self.fastest_dim and self.lparams.bdimy > 1

    @derived(*_THREADS)
    def block_dim_inner_reduction(self) -> ParallelType:
        if not self._is_bound:
            return ParallelType.serial
        return ParallelType.block_x if self._reduces_x else ParallelType.block_y

    @derived("lparams.gdimy")
    def grid_dim_inner_reduction(self) -> ParallelType:
        return ParallelType.grid_y if self.cross_grid_inner_reduction else ParallelType.serial

    @derived(*_THREADS)
    def block_dim_iter_dom(self) -> ParallelType:
        if not self._is_bound:
            return ParallelType.serial
        if self.fastest_dim:
            return ParallelType.block_y if self.multiple_reds_per_blk else ParallelType.serial
        return ParallelType.block_y if self.lanes_down_columns else ParallelType.block_x

    @derived("lparams.bdimx")
    def grid_dim_iter_dom(self) -> ParallelType:
        return ParallelType.grid_x if self._is_bound else ParallelType.serial

    # ---- what the reference has and no scheduler reads

    flip_grid = unavailable(False, _NO_SCHEDULER)
    split_grid_dim_inner_reduction = unavailable(False, _NO_SCHEDULER)
    split_grid_dim_iter_dom_inner = unavailable(False, _NO_SCHEDULER)
    split_grid_dim_iter_dom_outer = unavailable(False, _NO_SCHEDULER)
    cross_block_outer_reduction = unavailable(False, _OF_INNER_OUTER)
    cross_grid_outer_reduction = unavailable(False, _OF_INNER_OUTER)
    batches_per_block_outer_reduction = unavailable(1, _OF_INNER_OUTER)
    unroll_factor_outer_reduction = unavailable(1, _OF_INNER_OUTER)
    block_dim_outer_reduction = unavailable(ParallelType.serial, _OF_INNER_OUTER)
    grid_dim_outer_reduction = unavailable(ParallelType.serial, _OF_INNER_OUTER)
    compute_persistent_buffer_with_first_consumer = unavailable(False, _NO_SCHEDULER)
    static_bdimx = unavailable(False, "as lowering sees by itself whether an extent is constant")
    static_bdimy = unavailable(False, "as lowering sees by itself whether an extent is constant")
    combined_inner_outer = unavailable(False, _OF_INNER_OUTER)
    tidx_for_outer_reduction = unavailable(False, _OF_INNER_OUTER)
    pad_outer_reduction_to_warp = unavailable(False, _OF_INNER_OUTER)
    combined_split_grid_inner_dim = unavailable(False, _OF_INNER_OUTER)
    vectorization_factor_outer = unavailable(1, _OF_INNER_OUTER)
    vectorization_factor_tmp_gmem_write = unavailable(1, _OF_INNER_OUTER)
    block_dim_inner_reduction_extra = unavailable(ParallelType.serial, _OF_INNER_OUTER)

    def validate(self, hardware: HardwareInfo) -> None:
        check_hardware(hardware)
        cluster = self.blocks_per_cluster
        fits = cluster <= hardware.max_cluster or hardware.max_cluster > 1
        self.require(fits, "blocks_per_cluster", f"1, as {hardware.name} has no clusters")
        apart = cluster == 1 or not self.cross_grid_inner_reduction
        self.require(apart, "lparams.gdimy", "1 where a cluster shares a reduction")
        HeuristicParams.validate(self, hardware)
        if self.persistent_kernel:
            self._validate_persistent()
        if self.circular_stages:
            self._validate_stages(hardware)
        if self.vectorize_inner_reduction:
            WIDTHS.check("unroll_factor_inner_reduction", self.unroll_factor_inner_reduction, hardware)
        if self.vectorize_iter_dom:
            WIDTHS.check("unroll_factor_iter_dom", self.unroll_factor_iter_dom, hardware)
        if self.tiles_in_shared_memory:
            self._validate_tiles(hardware)
        threads = self.lparams.bdimx
        self.require(
            not self.pad_inner_reduction_to_warp or threads < 1 or threads % self.padded_threads == 0,
            "lparams.bdimx",
            f"a multiple of {WARP_SIZE} or a power of two below, with pad_inner_reduction_to_warp",
        )

    def _validate_persistent(self) -> None:
        if not self.fastest_dim:
            self.expect("lanes_down_columns", False, "where columns are read again")
        if self.holds_batches:
            self.expect("unroll_factor_top_of_vectorization", 1, "where batches are held")
        else:
            self.expect("project_persistent_buffers", True, "where no batches are held")
            self.expect("persistent_in_shared_memory", False, "where no batches are held")
            self.expect("streams_inputs", False, "where no batches are held")
            self.expect("keeps_inputs", False, "where no batches are held")
        if self.shift_rows:
            self.expect("held_steps", 0, "where rows are shifted")
            self.expect("prefetches_steps", False, "where rows are shifted")

    @property
    def tile(self) -> tuple[int, int]:
        """The columns and the rows that a block has in flight."""
        columns = self.lparams.bdimx * self.unroll_factor_iter_dom
        return columns, self.lparams.bdimy * self.unroll_factor_inner_reduction

    def _validate_tiles(self, hardware: HardwareInfo) -> None:
        columns, rows = self.tile
        width = self.vector_down_columns
        self.require(rows % width == 0, "vector_down_columns", f"a divisor of {rows}, the rows of a tile")
        # Of the smallest elements. Of wider ones and several tensors, lowering counts the bytes.
        fits = columns * rows <= hardware.shared_memory_per_block_optin
        self.require(fits, "unroll_factor_inner_reduction", "less: a tile is larger than shared memory")

    def _validate_stages(self, hardware: HardwareInfo) -> None:
        where = "with circular_stages"
        can_copy = hardware.compute_capability >= BULK_COPIES_SINCE
        self.require(can_copy, "circular_stages", f"0, as {hardware.name} has no bulk copies")
        self.expect("project_persistent_buffers", True, where)
        self.expect("persistent_in_shared_memory", True, where)
        self.expect("vectorize_inner_reduction", True, where)
        self.expect("unroll_factor_iter_dom", 1, where)
        if self.blocks_per_cluster > 1:
            self.expect("warp_specialized", False, "where clusters hold rows")
        threads = self.lparams.bdimx
        self.require(self.lparams.bdimy <= 1, "lparams.bdimy", f"1 {where}")
        self.require(self.circular_stages >= 2, "circular_stages", "0, or 2 or more")
        most = hardware.max_threads_per_block - WARP_SIZE * self.warp_specialized
        fits = threads % WARP_SIZE == 0 and threads <= most
        self.require(fits, "lparams.bdimx", f"a multiple of {WARP_SIZE} up to {most} {where}")
        self.require(self.persistent_blocks >= 1, "persistent_blocks", f"1 or more {where}")
