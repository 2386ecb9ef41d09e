"""Chooses params of the inner persistent scheduler: which of the ways to hold rows is used, with which
vectors.

Each way is a module that proposes params or None: `block_rows` (one block a row, always possible),
`staged_rows`, `shared_rows`, `rows_in_turns`, `streamed_rows`, `clustered_rows`, and for rows that are swept
instead `sweep_heuristic` and `scanned_rows`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fusewright.core.hardware import MAX_REGISTERS_PER_THREAD, HardwareInfo
from fusewright.core.once import cached_property
from fusewright.schedulers.base import Facts, Proposal
from fusewright.schedulers.params import ReductionParams
from fusewright.schedulers.persistent import clustered_rows, staged_rows
from fusewright.schedulers.persistent.block_rows import REGISTERS_TO_HOLD, block_params
from fusewright.schedulers.persistent.cache_hints import with_cache_hint
from fusewright.schedulers.persistent.constant_length import ConstantLength
from fusewright.schedulers.persistent.held_length import (
    are_stable,
    for_any_length,
    for_this_length,
    has_sizes,
    is_one_size,
)
from fusewright.schedulers.persistent.loads_ahead import may_load_ahead
from fusewright.schedulers.persistent.row_buffers import RowBuffers
from fusewright.schedulers.persistent.row_cost import RowCost
from fusewright.schedulers.persistent.row_threads import with_room_for_floats
from fusewright.schedulers.persistent.rows_in_turns import copied_in_turns, in_turns
from fusewright.schedulers.persistent.scanned_rows import for_scans, in_steps
from fusewright.schedulers.persistent.shared_rows import in_shared
from fusewright.schedulers.persistent.streamed_rows import streamed
from fusewright.schedulers.persistent.sweep_heuristic import sweep_rows, swept
from fusewright.schedulers.reduction.planner import ReductionPlanner
from fusewright.schedulers.reduction.wider_vectors import (
    LEAST_SHIFTED,
    is_narrow_to_stage,
    wider_vectors,
    with_wider_vectors,
)
from fusewright.schedulers.shifted_rows import (
    ENOUGH_BYTES,
    ENOUGH_OF_LONG_ROWS,
    ENOUGH_TO_SCAN,
    LEAST_SCANNED,
    LONG_ROW,
    enough_bytes,
    is_narrow,
)
from fusewright.schedulers.sizes import ceil_div
from fusewright.schedulers.vector_limits import Vectors

# Times the bytes of what is held that its inputs take, from which on it is held in place of them: several
# elements of an input make one of the row.
#   H200, sums and differences of eight floats, rows of 4096: 50 us by a block, 430 by clusters that hold all.
MANY_ELEMENTS_OF_ONE = 4
# Where rows whose elements are loaded one by one are estimated to take so many times as long as their bytes,
# vectors of weights start at any element, too, though each takes the registers of two. Beside one such input,
# rows shorter than LONG_ROW have these vectors, whatever they are estimated to take.
#   H200, misaligned bf16, us one by one and by such vectors: RMS norm 131072x64 22.0 and 14.3, 32768x768 33.1
#   and 32.8, 16384x2048 42.1 and 40.6, 8192x4097 48.1 and 40.0, 8192x8192 78.1 and 89.3; gradient of a layer
#   norm 16384x1024 35.7 and 38.3, 16384x4096 198 and 135. Beside two: layer norm 65536x256 24.9 and 27.4,
#   32768x768 35.0 and 33.3, 16384x1024 27.3 and 30.1, 16384x2048 45.9 and 43.1, 16384x4096 81.0 and 90.8,
#   8192x8192 84.4 and 135; after a residual 16384x1024 35.3 and 46.5, 16384x4096 111 and 150.
MOST_BY_ELEMENT = 1.6


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows to be held.

    Attributes:
        count, length: their number, and their number of elements.
        vectors: the vectors by which they are read.
        shifts: whether the vectors of each row start at its own aligned address.
    """

    count: int
    length: int
    vectors: Vectors
    shifts: bool

    @property
    def has_wider_vectors(self) -> bool:
        """Whether vectors are shifted or start at any element, to be wider than those that all rows align."""
        return self.shifts or bool(self.vectors.unaligned)

    @property
    def places(self) -> int:
        """The elements of a row, and those that its first vector may have before it."""
        return self.length + (self.vectors.width - 1 if self.shifts else 0)

    @property
    def vectors_a_row(self) -> int:
        return ceil_div(self.places, self.vectors.width)

    def with_vectors(self, params: ReductionParams) -> ReductionParams:
        """Returns the params with these vectors, where they are wider ones."""
        return with_wider_vectors(params, self.vectors, self.shifts) if self.has_wider_vectors else params

    def shifted(self, params: ReductionParams | None) -> ReductionParams | None:
        """Returns the params with these vectors, where rows are shifted."""
        if params is None or not self.shifts:
            return params
        return with_wider_vectors(params, self.vectors, shifts=True)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Params of one of the ways to hold rows.

    Attributes:
        in_shared: whether `shared_rows` has params for them.
        spreads: whether clusters share the rows because these are few.
    """

    params: ReductionParams
    in_shared: bool
    spreads: bool


class InnerPersistentPlanner(ReductionPlanner):
    """Derives params from the sizes of a call."""

    @cached_property
    def _buffers(self) -> RowBuffers:
        return RowBuffers(self.fusion)

    @cached_property
    def _row_cost(self) -> RowCost:
        return RowCost(self.fusion, self._cost, self._buffers, self.chain)

    @cached_property
    def _constant_length(self) -> ConstantLength:
        return ConstantLength(self.space, self._buffers, self._shares_loads)

    def __call__(self, facts: Facts, hardware: HardwareInfo) -> Proposal:
        proposal = (self._scanned if self.space.scans else self._proposal)(facts, hardware)
        params = proposal.params
        if may_load_ahead(self.space, params, self._buffers.of(params), hardware):
            params = replace(params, loads_ahead=True)
            proposal = replace(proposal, params=params)
        if self._holds_floats(params):
            params = with_room_for_floats(params, self._buffers.of(params), hardware)
        return replace(proposal, params=with_cache_hint(params, self._cost, facts, hardware))

    def _holds_floats(self, params: ReductionParams) -> bool:
        """Whether registers hold rows of floats that are stored, too, and have no limit yet."""
        space, in_vectors = self.space, params.vectorize_inner_reduction and not params.shift_rows
        in_registers = params.holds_batches and not params.persistent_in_shared_memory
        is_free = params.cparams.maxrregcount == MAX_REGISTERS_PER_THREAD and params.blocks_per_cluster == 1
        of_floats = space.loads_words and space.stores_all and not space.scans
        return in_registers and in_vectors and is_free and of_floats

    def row_bytes(self, facts: Facts) -> int:
        """The bytes that are loaded for a row."""
        return self.space.reduction_size(facts) * self.space.element_bytes

    # ---- rows that are scanned, too ----

    def _scanned(self, facts: Facts, hardware: HardwareInfo) -> Proposal:
        """Returns params for rows that registers hold, or that are gone over in steps."""
        space = self.space
        count, length = space.iteration_size(facts), space.reduction_size(facts)
        aligned = self._width(facts)
        vectors, shifts = Vectors(aligned, (), 1 / aligned), False
        if length >= LEAST_SCANNED:
            wider = wider_vectors(
                self.fusion,
                space,
                self._vectors,
                self._shifted,
                aligned,
                length,
                facts,
                ENOUGH_TO_SCAN,
                shortest=LEAST_SCANNED,
            )
            vectors, shifts = wider or (vectors, shifts)
        rows = _Rows(count, length, vectors, shifts)
        held = for_scans(
            self._held(rows, hardware),
            rows.vectors_a_row,
            shifts,
            self._buffers.everything.at_once,
            REGISTERS_TO_HOLD,
        )
        if held.persistent_in_shared_memory or not held.holds_batches:
            return self._scanned_in_steps(rows, facts, hardware)
        params = rows.with_vectors(held)
        estimate = self._row_cost.estimate(count, length, params, facts, hardware)
        if self._constant_length.is_faster(params, False, facts, hardware):
            return Proposal(for_this_length(params, space, facts, "rows"), estimate)
        return Proposal(for_any_length(params, space, threads="bdimx"), estimate)

    def _scanned_in_steps(self, rows: _Rows, facts: Facts, hardware: HardwareInfo) -> Proposal:
        """Returns params for rows that registers do not hold."""
        space = self.space
        steps = in_steps(rows.count, rows.length, rows.vectors, rows.has_wider_vectors, space, hardware)
        params = rows.with_vectors(steps.params)
        if are_stable(space, facts):
            params = for_this_length(params, space, facts, "rows")
        bytes_ = space.element_bytes
        return Proposal(
            params, self._row_cost.estimate_steps(rows.count, rows.length, bytes_, steps, facts, hardware)
        )

    # ---- rows that are reduced alone ----

    def _proposal(self, facts: Facts, hardware: HardwareInfo) -> Proposal:
        several = self._through_several(facts)
        if several is not None:
            proposal = self._proposal_by(several.width, facts, hardware)
            params = proposal.params
            if params.reads_aligned_vectors and params.vector_widths[0] == several.width:
                return replace(proposal, params=several.of(params))
        return self._proposal_by(self._width(facts), facts, hardware)

    def _proposal_by(self, aligned: int, facts: Facts, hardware: HardwareInfo) -> Proposal:
        """Returns the proposal if `aligned` is the width of vectors that are aligned in every row."""
        space = self.space
        count, length = space.iteration_size(facts), space.reduction_size(facts)
        staged = self._staged(count, length, aligned, facts, hardware)
        if staged is not None:
            estimate = self._row_cost.estimate(count, length, staged, facts, hardware)
            return Proposal(for_this_length(staged, space, facts, "rows"), estimate)
        rows = self._rows(count, length, aligned, facts)
        proposal = self._of_rows(rows, facts, hardware)
        wide = rows if rows.has_wider_vectors else self._rows(count, length, aligned, facts, weights=True)
        if wide is rows or not wide.has_wider_vectors:
            return proposal
        if not proposal.params.vectorize_inner_reduction and self._has_one_weight_at_most(wide, facts):
            return self._of_rows(wide, facts, hardware)
        cost = None if proposal.estimate is None else proposal.estimate()
        if cost is not None and cost.seconds > MOST_BY_ELEMENT * cost.least_seconds:
            return self._of_rows(wide, facts, hardware)
        return proposal

    def _has_one_weight_at_most(self, rows: _Rows, facts: Facts) -> bool:
        """Whether rows are short, and vectors of at most one input that several of them read start at any
        element.
        """
        own = {load.tensor for load in self.space.full_loads}
        weights = [i for i in rows.vectors.unaligned if self.fusion.inputs[i] not in own]
        return len(weights) <= 1 and self.row_bytes(facts) < LONG_ROW

    def _of_rows(self, rows: _Rows, facts: Facts, hardware: HardwareInfo) -> Proposal:
        """Returns the proposal for rows with these vectors."""
        space, count, length, vectors = self.space, rows.count, rows.length, rows.vectors
        chosen = self._chosen(rows, facts, hardware)
        params = chosen.params
        estimate = self._row_cost.estimate(count, length, params, facts, hardware)
        if self._may_be_swept(rows, chosen, hardware):
            what = swept(self, vectors.width, are_stable(space, facts), facts)
            sweeps = None if what is None else sweep_rows(what, self._cost, facts, hardware)
            if sweeps is not None and sweeps.estimate().seconds < estimate().seconds:
                return Proposal(sweeps.params, sweeps.estimate)
        if not params.batches_per_block_inner_reduction:
            return Proposal(self.step_loads.fitting(params, hardware), estimate)
        if self._constant_length.is_faster(params, chosen.in_shared, facts, hardware):
            constant_row = for_this_length(params, space, facts, "rows")
            return Proposal(self._constant_length.keeping_room(constant_row, hardware), estimate)
        return Proposal(for_any_length(params, space, threads="bdimx"), estimate)

    def _chosen(self, rows: _Rows, facts: Facts, hardware: HardwareInfo) -> _Chosen:
        """Returns the params of the first of these ways that takes the rows: clusters of few rows, shared
        memory of a block, turns, copies ahead, clusters, and one block a row.

        Clusters come before the ways of single blocks where weights do not keep the length variable.
        """
        held = self._held(rows, hardware)
        params = rows.with_vectors(held)
        turns = None if rows.has_wider_vectors else self._in_turns(rows, facts, hardware)
        beside = self._beside_weights(rows, facts)
        other = self._of_clusters(rows, facts, hardware)
        shared = None
        if other is None or (self._shares_loads and not self._constant_length.is_known(facts)):
            shared = self._in_shared(params, rows.length, hardware)
            ahead = self._copied_ahead(rows, held, facts, hardware)
            other = shared or turns or ahead or other or self._of_clusters(beside, facts, hardware)
        spread = self._spread(beside, hardware)
        chosen = spread or other or self._constant_length.beside_another(params, facts, hardware)
        return _Chosen(chosen, in_shared=shared is not None, spreads=spread is not None)

    def _may_be_swept(self, rows: _Rows, chosen: _Chosen, hardware: HardwareInfo) -> bool:
        """Whether rows are so few, or so hard to hold, that sweeps by all blocks may be faster."""
        params = chosen.params
        few = 2 * rows.count <= hardware.sm_count or clustered_rows.is_crowded(params, hardware)
        return few and not (chosen.spreads or rows.has_wider_vectors or params.circular_stages)

    # ---- vectors ----

    def _rows(self, count: int, length: int, aligned: int, facts: Facts, weights: bool = False) -> _Rows:
        """Returns the rows with the vectors that pay.

        Args:
            aligned: elements of the widest vector that is aligned in every row.
            weights: whether vectors of weights may start at any element.
        """
        row_bytes = length * self._buffers.inputs.at_once
        enough = enough_bytes(row_bytes) if count >= clustered_rows.LEAST_ROWS else ENOUGH_BYTES
        found = wider_vectors(
            self.fusion, self.space, self._vectors, self._shifted, aligned, length, facts, enough, weights
        )
        vectors, shifts = found or (Vectors(aligned, (), 1 / aligned), False)
        return _Rows(count, length, vectors, shifts)

    def _shifted_vectors(self, length: int, facts: Facts) -> Vectors | None:
        """Returns the vectors of rows that are shifted; None where rows are short or cannot be."""
        return self._shifted.vectors(facts) if length >= LEAST_SHIFTED else None

    def _beside_weights(self, rows: _Rows, facts: Facts) -> _Rows:
        """Returns the rows, shifted if their vectors are narrow: those of weights start at any element
        then.
        """
        found = None if rows.shifts else self._shifted_vectors(rows.length, facts)
        if found is None or not is_narrow(rows.vectors.width, found):
            return rows
        if not self._constant_length.is_known(facts):
            return rows
        shifted = replace(rows, vectors=found, shifts=True)
        return rows if self._reads_unaligned(shifted) else shifted

    def _reads_unaligned(self, rows: _Rows) -> bool:
        """Whether vectors of the rows themselves start at any element."""
        unaligned = [self.fusion.inputs[position] for position in rows.vectors.unaligned]
        return any(access.tensor in unaligned for access in self.space.full_loads)

    # ---- the ways to hold rows: each returns params, or None where it does not take them ----

    def _held(self, rows: _Rows, hardware: HardwareInfo) -> ReductionParams:
        """Returns params by which one block has each row, whatever its size."""
        return block_params(
            rows.count,
            rows.places,
            rows.vectors.width,
            self._buffers,
            self.state_bytes,
            cached=not self.space.full_loads,
            loads_late=bool(self.space.read_late),
            fits=rows.has_wider_vectors,
            hardware=hardware,
        )

    def _staged(
        self, count: int, length: int, aligned: int, facts: Facts, hardware: HardwareInfo
    ) -> ReductionParams | None:
        """Returns params by which the rows of a block pass through shared memory as one run.

        aligned: elements of the widest vector that is aligned in every row.
        """
        space, shares = self.space, self._shares_loads
        if (
            not length
            or not space.iteration
            or not has_sizes(space)
            or not self._constant_length.is_known(facts)
        ):
            return None
        width = self._shifted.run((*space.iteration, *space.reduction), facts)
        if not width or not is_narrow_to_stage(aligned, Vectors(width, (), 1 / width), shares):
            return None
        stores = sum(store.tensor.dtype.size for store in space.stores if space.is_full(store))
        bytes_ = space.element_bytes + stores
        # Vectors go over dimensions that lie in memory in another order, but are not known to be whole there.
        in_memory = [axis for axis in space.iteration if not axis.is_broadcast]
        in_order = [axis for axis in space.reference.logical if axis in in_memory]
        side_by_side = facts.value(in_order[-1].extent) if in_order and in_order == in_memory else 1
        return staged_rows.staged(count, side_by_side, length, width, bytes_, shares, hardware)

    def _in_shared(
        self, params: ReductionParams, length: int, hardware: HardwareInfo
    ) -> ReductionParams | None:
        """Returns params by which one block holds a row in shared memory, where registers hold so much of it,
        as what is computed of its inputs, that an SM has room for one block.
        """
        buffers = self._buffers
        if params.persistent_in_shared_memory or params.unaligned_inputs or not buffers.everything_takes_more:
            return None
        if buffers.resident_blocks(params, hardware, held=buffers.everything) > 1:
            return None
        vectors = ceil_div(length + params.places_before, params.unroll_factor_inner_reduction)
        return in_shared(params, vectors, buffers.inputs, self.state_bytes, hardware)

    def _in_turns(self, rows: _Rows, facts: Facts, hardware: HardwareInfo) -> ReductionParams | None:
        """Returns params by which blocks take rows of one input in turns, all shifted alike, so that weights
        need not be loaded again.
        """
        count, length, inputs = rows.count, rows.length, self._buffers.inputs
        found = self._shifted_vectors(length, facts)
        is_long = length * inputs.at_once >= clustered_rows.ROW_OF_A_BLOCK
        enough = ENOUGH_OF_LONG_ROWS if is_long else ENOUGH_BYTES
        if found is None or not found.unaligned or not is_narrow(rows.vectors.width, found, enough):
            return None
        weights = [self.fusion.inputs[position] for position in found.unaligned]
        full = [load.tensor for load in self.space.full_loads]
        if len(full) != 1 or full[0] in weights:
            return None
        if not is_one_size(self.space) or not are_stable(self.space, facts):
            return None
        weight_bytes = sum(weight.dtype.size for weight in weights)
        held_bytes = self._buffers.everything.at_once + weight_bytes
        copied = copied_in_turns(count, length, found, inputs, weight_bytes, hardware)
        return copied or in_turns(count, length, found, held_bytes, hardware)

    def _copied_ahead(
        self, rows: _Rows, held: ReductionParams, facts: Facts, hardware: HardwareInfo
    ) -> ReductionParams | None:
        """Returns params by which rows are copied ahead, by their own vectors or else by shifted ones.

        held: the params by which one block would hold a row.
        """
        found = self._streamed(rows, held, hardware)
        shifted = None if rows.shifts else self._shifted_vectors(rows.length, facts)
        if found is None and shifted is not None and is_narrow(rows.vectors.width, shifted):
            rows = replace(rows, vectors=shifted, shifts=True)
            return self._streamed(rows, self._held(rows, hardware), hardware)
        return found

    def _streamed(self, rows: _Rows, held: ReductionParams, hardware: HardwareInfo) -> ReductionParams | None:
        """Returns params by which rows of one input are copied ahead by their own vectors, where registers
        would hold one row on an SM at a time.
        """
        vectors, shifts = rows.vectors, rows.shifts
        full = [access.tensor for access in self.space.full_loads]
        if len(full) != 1 or not self.space.iteration or not is_one_size(self.space):
            return None
        if vectors.unaligned and (not shifts or self.fusion.inputs.index(full[0]) in vectors.unaligned):
            return None
        if self._buffers.resident_blocks(held, hardware) > 1:
            return None
        # Vectors that start anywhere are not loaded ahead.
        loads_ahead = self._shares_loads and not shifts
        inputs = self._buffers.inputs
        return rows.shifted(streamed(rows.count, rows.places, vectors.width, inputs, loads_ahead, hardware))

    def _of_clusters(self, rows: _Rows, facts: Facts, hardware: HardwareInfo) -> ReductionParams | None:
        """Returns params by which clusters hold long rows."""
        if self._reads_unaligned(rows) or (rows.shifts and not self._constant_length.is_known(facts)):
            return None
        needed, width, inputs = rows.vectors_a_row, rows.vectors.width, self._buffers.inputs
        if not rows.shifts and self._shared_bytes > inputs.at_once and are_stable(self.space, facts):
            pairs = clustered_rows.in_pairs(rows.count, needed, width, inputs, hardware)
            if pairs is not None:
                return pairs
        everything = self._buffers.everything.at_once
        fits_a_block = rows.length * everything <= clustered_rows.ROW_OF_A_BLOCK
        if fits_a_block and inputs.at_once >= MANY_ELEMENTS_OF_ONE * everything:
            return None
        found = clustered_rows.clustered(rows.count, needed, width, inputs, rows.shifts, hardware)
        return rows.shifted(found)

    def _spread(self, rows: _Rows, hardware: HardwareInfo) -> ReductionParams | None:
        """Returns params by which clusters hold rows that are few."""
        if self._reads_unaligned(rows) or not self.space.iteration:
            return None
        how = clustered_rows.spread_beside_weights if rows.vectors.unaligned else clustered_rows.spread
        inputs = self._buffers.inputs
        return rows.shifted(how(rows.count, rows.vectors_a_row, rows.vectors.width, inputs, hardware))

    # ---- what rows read in common ----

    @cached_property
    def _shares_loads(self) -> bool:
        """Whether all rows read something in common, such as weights, besides their own elements."""
        return not all(map(self.space.is_full, self.space.loads))

    @cached_property
    def _shared_bytes(self) -> int:
        """The bytes of an element of all that the rows read in common along themselves."""
        shared = (access for access in self.space.loads if not self.space.is_full(access))
        along = (load for load in shared if any(axis in load.concrete for axis in self.space.reduction))
        return sum(load.tensor.dtype.size for load in along)
