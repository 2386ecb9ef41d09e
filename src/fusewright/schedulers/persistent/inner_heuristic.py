"""Chooses params of the inner persistent scheduler: how many threads or blocks hold a row, where they hold
it, and the estimated cost of the kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from fusewright.core.dtype import DataType
from fusewright.core.hardware import REGISTER_BYTES, HardwareInfo
from fusewright.core.once import cached_property
from fusewright.schedulers.base import Cost, Facts, Proposal
from fusewright.schedulers.cost import busy_share, overlap
from fusewright.schedulers.io import Vectors
from fusewright.schedulers.params import LaunchParams, ReductionParams
from fusewright.schedulers.persistent import clustered_rows, staged_rows
from fusewright.schedulers.persistent.held_length import (
    are_stable,
    for_any_length,
    for_this_length,
    has_sizes,
    is_one_size,
)
from fusewright.schedulers.persistent.held_rows import (
    Held,
    has_welford,
    held_bytes,
    with_welford,
)
from fusewright.schedulers.persistent.row_threads import (
    BATCHES,
    BYTES_IN_FLIGHT,
    MAX_BATCHES_A_WARP,
    REGISTERS_TO_WORK,
    least_idle,
    makes_room,
    threads_and_batches,
    with_room_for_another,
)
from fusewright.schedulers.persistent.rows_in_turns import copied_in_turns, in_turns
from fusewright.schedulers.persistent.scanned_rows import EXPOSED_ARITHMETIC, for_scans, in_steps
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
    is_narrow,
)
from fusewright.schedulers.sizes import ceil_div

# Bytes that the alignment of all buffers in shared memory may take together.
SHARED_SLACK = 1024
# REGISTERS_TO_WORK of a kernel for rows of any length, which holds addresses and comparisons for each access.
# (An H200, layer norm of 8192 x 16384 floats, 512 threads of 74 registers: 0.87 of a copy's speed; of a
# constant length 64 registers and 0.97.)
REGISTERS_OF_ANY_LENGTH = 44
# More than this for the row leaves room for too few blocks on an SM.
REGISTERS_TO_HOLD = 64
# What reading a row again costs that is still in L2, of reading it from memory.
L2_READ_COST = 0.3
# What a block spends on each row with no loads or stores in flight, while other blocks of the SM may have
# some: between the last load and the first store (an H200: 0.7 of a copy's speed for rows of 65536 bfloat16,
# one block an SM, and 0.8 for rows of 16384 float).
ROW_SECONDS = 2e-6
# What that adds to a kernel, whose last blocks nothing overlaps with.
HELD_SECONDS = 0.3e-6
# Of a copy's speed, what is left where a block reads its row again and again, a barrier after each; and where
# rows are copied ahead, or pass through shared memory as one run.
RELOADED_SPEED, STREAMED_SPEED = 0.85, 0.88
# Bytes in flight a thread of a row that is not held, which one block as large as there are then reads at the
# speed of memory (measured on an H200 for rows of 65536 bfloat16 of one input and of two).
RELOADED_BYTES_IN_FLIGHT = 128
# A narrow access takes a register for its address beside the one for its value (a batch norm of rows of 57 by
# 57 bfloat16, one by one: 2.9 KB of spills with 64 accesses in flight, none with 16).
REGISTERS_OF_NARROW_ACCESS = 2
# Threads of a block that handles several short rows, each by a warp or a part of it: two warps a row need
# barriers, at which they would wait for another row (rows of 1024 float: softmax 1.02 times as fast, layer
# norm and RMS norm 1.03 times on an H200).
SHORT_ROW_BLOCK = 128


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
    def places(self) -> int:
        """The elements of a row, and those that its first vector may have before it."""
        return self.length + (self.vectors.width - 1 if self.shifts else 0)

    @property
    def vectors_a_row(self) -> int:
        return ceil_div(self.places, self.vectors.width)

    def shifted(self, params: ReductionParams | None) -> ReductionParams | None:
        """`params`, which say so if the rows are shifted."""
        if params is None or not self.shifts:
            return params
        return with_wider_vectors(params, self.vectors, shifts=True)


class InnerPersistentPlanner(ReductionPlanner):
    """Derives params from the sizes of a call."""

    @cached_property
    def everything(self) -> Held:
        """What is held if what is computed before a reduction and needed after it is."""
        return held_bytes(self.fusion, project=False)

    @cached_property
    def projected(self) -> Held:
        """What is held if inputs alone are."""
        return held_bytes(self.fusion, project=True)

    def __call__(self, facts: Facts, hardware: HardwareInfo) -> Proposal:
        proposal = (self._scanned if self.space.scans else self._proposal)(facts, hardware)
        params = proposal.params
        # Rows that are staged do not gain by it (an H200: softmax of 131072 x 513 bfloat16 the same); copies
        # to shared memory have no hint, but for those of a ring.
        is_copied = params.persistent_in_shared_memory and not params.circular_stages
        takes_hint = params.holds_batches and not (is_copied or params.staged_vector)
        if takes_hint and self._cost.keeps(facts, hardware):
            return replace(proposal, params=replace(params, keeps_inputs=True))
        return proposal

    def _scanned(self, facts: Facts, hardware: HardwareInfo) -> Proposal:
        """Of rows that are scanned, too, which registers hold, or which are gone over in steps."""
        space = self.space
        rows, length = space.iteration_size(facts), space.reduction_size(facts)
        aligned = self._width(facts)
        vectors, shifts = Vectors(aligned, (), 1 / aligned), False
        if length >= LEAST_SCANNED:
            wider = wider_vectors(
                self.fusion, space, self._vectors, self._shifted, aligned, facts, ENOUGH_TO_SCAN
            )
            vectors, shifts = wider or (vectors, shifts)
        to_hold = _Rows(rows, length, vectors, shifts)
        held = self._held(to_hold, hardware)
        held = for_scans(held, to_hold.vectors_a_row, shifts, self.everything.at_once, REGISTERS_TO_HOLD)
        if held.persistent_in_shared_memory or not held.holds_batches:
            return self._scanned_in_steps(to_hold, facts, hardware)
        params = with_wider_vectors(held, vectors, shifts) if shifts or vectors.unaligned else held
        estimate = self._estimate(rows, length, params, facts, hardware)
        if self._constant_row_is_faster(facts, params, hardware, in_shared=False):
            return Proposal(for_this_length(params, space, facts, "rows"), estimate)
        return Proposal(for_any_length(params, space, threads="bdimx"), estimate)

    def _scanned_in_steps(self, to_hold: _Rows, facts: Facts, hardware: HardwareInfo) -> Proposal:
        """Of rows that registers do not hold."""
        space, vectors = self.space, to_hold.vectors
        rows, length = to_hold.count, to_hold.length
        anywhere = to_hold.shifts or bool(vectors.unaligned)
        steps = in_steps(rows, length, vectors, anywhere, space, hardware)
        params = with_wider_vectors(steps.params, vectors, to_hold.shifts) if anywhere else steps.params
        in_l2 = (
            min(rows, steps.resident * hardware.sm_count) * length * space.element_bytes <= hardware.l2_bytes
        )
        again = steps.again * (L2_READ_COST if in_l2 else 1.0)
        moving = self._cost.seconds_an_sm(facts, hardware) / max(1, rows)
        kept = overlap(steps.resident, moving, ROW_SECONDS) * RELOADED_SPEED * busy_share(rows, hardware)
        if are_stable(space, facts):
            params = for_this_length(params, space, facts, "rows")
        exposed = EXPOSED_ARITHMETIC * (1 + self.chain) * self._cost.computing_seconds(facts, hardware)
        reads = 1 + self.chain * again
        return Proposal(params, self._cost.estimate(facts, hardware, reads=reads, speed=kept, steps=exposed))

    def _proposal(self, facts: Facts, hardware: HardwareInfo) -> Proposal:
        several = self._through_several(facts)
        if several is not None:
            proposal = self._proposal_by(several.width, facts, hardware)
            params = proposal.params
            if params.reads_aligned_vectors and params.vector_widths[0] == several.width:
                return replace(proposal, params=several.of(params))
        return self._proposal_by(self._width(facts), facts, hardware)

    def _proposal_by(self, aligned: int, facts: Facts, hardware: HardwareInfo) -> Proposal:
        """aligned: elements of vectors that are aligned in every row."""
        space = self.space
        rows, length = space.iteration_size(facts), space.reduction_size(facts)
        vectors, shifts = self._vectors_of(rows, length, aligned, facts)
        to_hold = _Rows(rows, length, vectors, shifts)
        staged = self._staged(rows, length, aligned, facts, hardware)
        if staged is not None:
            estimate = self._estimate(rows, length, staged, facts, hardware)
            return Proposal(for_this_length(staged, space, facts, "rows"), estimate)
        held = self._held(to_hold, hardware)
        if shifts or vectors.unaligned:
            params, turns = with_wider_vectors(held, vectors, shifts), None
        else:
            params, turns = held, self._in_turns(rows, length, vectors.width, facts, hardware)
        clustered, beside = self._of_clusters(to_hold, facts, hardware), self._beside_weights(to_hold, facts)
        constant, shared = self._has_constant_length(facts), None
        if clustered is None or (self._shares_loads and not constant):
            shared = self._in_shared(params, length, hardware)
            ahead = self._copied_ahead(to_hold, held, facts, hardware)
            clustered = shared or turns or ahead or clustered or self._of_clusters(beside, facts, hardware)
        spread = self._spread(beside, hardware)
        params = spread or clustered or self._beside_another(params, facts, hardware)
        estimate = self._estimate(rows, length, params, facts, hardware)
        few = 2 * rows <= hardware.sm_count or clustered_rows.is_crowded(params, hardware)
        if few and not (spread or shifts or vectors.unaligned or params.circular_stages):
            what = swept(self, vectors.width, are_stable(space, facts), facts)
            sweeps = None if what is None else sweep_rows(what, self._cost, facts, hardware)
            if sweeps is not None and sweeps.estimate().seconds < estimate().seconds:
                return Proposal(sweeps.params, sweeps.estimate)
        if not params.batches_per_block_inner_reduction:
            return Proposal(params, estimate)
        if self._constant_row_is_faster(facts, params, hardware, shared is not None):
            constant_row = for_this_length(params, space, facts, "rows")
            return Proposal(self._keeping_room(constant_row, hardware), estimate)
        return Proposal(for_any_length(params, space, threads="bdimx"), estimate)

    def _staged(
        self, rows: int, length: int, aligned: int, facts: Facts, hardware: HardwareInfo
    ) -> ReductionParams | None:
        """How the rows of a block pass through shared memory as one run, if they are to.

        aligned: elements of the widest vector that is aligned in every row.
        """
        space, shares = self.space, self._shares_loads
        if not space.iteration or not has_sizes(space) or not self._has_constant_length(facts):
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
        return staged_rows.staged(rows, side_by_side, length, width, bytes_, shares, hardware)

    def _vectors_of(self, rows: int, length: int, aligned: int, facts: Facts) -> tuple[Vectors, bool]:
        """The vectors of a row, and whether those of each row begin at an aligned address of its own.

        aligned: elements of the widest vector that is aligned in every row.
        """
        plain = Vectors(aligned, (), 1 / aligned)
        if length < LEAST_SHIFTED:
            return plain, False
        is_long = length * self.projected.at_once >= LONG_ROW and rows >= clustered_rows.LEAST_ROWS
        enough = ENOUGH_OF_LONG_ROWS if is_long else ENOUGH_BYTES
        found = wider_vectors(self.fusion, self.space, self._vectors, self._shifted, aligned, facts, enough)
        return found or (plain, False)

    def _held(self, rows: _Rows, hardware: HardwareInfo) -> ReductionParams:
        """How threads hold rows."""
        fits = rows.shifts or bool(rows.vectors.unaligned)
        return _params(rows.count, rows.places, rows.vectors.width, self, hardware, fits=fits)

    def _in_turns(
        self, rows: int, length: int, width: int, facts: Facts, hardware: HardwareInfo
    ) -> ReductionParams | None:
        """How blocks take rows of one input in turns, shifted alike, if they are to: for weights alone."""
        found = self._shifted.vectors(facts) if length >= LEAST_SHIFTED else None
        is_long = length * self.projected.at_once >= clustered_rows.ROW_OF_A_BLOCK
        enough = ENOUGH_OF_LONG_ROWS if is_long else ENOUGH_BYTES
        if found is None or not found.unaligned or not is_narrow(width, found, enough):
            return None
        weights = [self.fusion.inputs[position] for position in found.unaligned]
        full = [load.tensor for load in self.space.full_loads]
        if len(full) != 1 or full[0] in weights:
            return None
        if not is_one_size(self.space) or not are_stable(self.space, facts):
            return None
        of_weights = sum(weight.dtype.size for weight in weights)
        held = self.everything.at_once + of_weights
        return copied_in_turns(rows, length, found, self.projected, of_weights, hardware) or in_turns(
            rows, length, found, held, hardware
        )

    def _copied_ahead(
        self, rows: _Rows, held: ReductionParams, facts: Facts, hardware: HardwareInfo
    ) -> ReductionParams | None:
        """How rows are copied ahead, if they are to: by the vectors that others use, which would hold them as
        `held` says, else by shifted ones.
        """
        found = self._streamed(rows, held, hardware)
        shifted = None if rows.shifts or rows.length < LEAST_SHIFTED else self._shifted.vectors(facts)
        if found is None and shifted is not None and is_narrow(rows.vectors.width, shifted):
            rows = replace(rows, vectors=shifted, shifts=True)
            return self._streamed(rows, self._held(rows, hardware), hardware)
        return found

    def row_bytes(self, facts: Facts) -> int:
        """Bytes that are loaded for a row."""
        return self.space.reduction_size(facts) * self.space.element_bytes

    def _streamed(self, rows: _Rows, held: ReductionParams, hardware: HardwareInfo) -> ReductionParams | None:
        """That of rows by their vectors, of which registers would hold one on an SM at a time."""
        vectors, shifts = rows.vectors, rows.shifts
        full = [access.tensor for access in self.space.full_loads]
        if len(full) != 1 or not self.space.iteration or not is_one_size(self.space):
            return None
        if vectors.unaligned and (not shifts or self.fusion.inputs.index(full[0]) in vectors.unaligned):
            return None
        if self._resident(held, hardware) > 1:
            return None
        in_flight = self._shares_loads and not shifts  # vectors that start anywhere are not loaded ahead
        return rows.shifted(
            streamed(rows.count, rows.places, vectors.width, self.projected, in_flight, hardware)
        )

    @cached_property
    def _holds_more(self) -> bool:
        """Whether what is computed of a row and held takes more than its inputs."""
        return self.everything.at_once > self.projected.at_once

    @cached_property
    def _shared_bytes(self) -> int:
        """Of an element of all that the rows read in common."""
        shared = (access for access in self.space.loads if not self.space.is_full(access))
        along = (load for load in shared if any(axis in load.concrete for axis in self.space.reduction))
        return sum(load.tensor.dtype.size for load in along)

    @cached_property
    def _shares_loads(self) -> bool:
        """Whether all rows read something in common, such as weights, besides their own elements."""
        return not all(map(self.space.is_full, self.space.loads))

    def _beside_weights(self, rows: _Rows, facts: Facts) -> _Rows:
        """The same rows, or, if these have narrow vectors, shifted ones: those of weights start at any
        element then.
        """
        found = self._shifted.vectors(facts) if rows.length >= LEAST_SHIFTED and not rows.shifts else None
        if found is None or not is_narrow(rows.vectors.width, found) or not self._has_constant_length(facts):
            return rows
        shifted = replace(rows, vectors=found, shifts=True)
        return rows if self._reads_unaligned(shifted) else shifted

    def _reads_unaligned(self, rows: _Rows) -> bool:
        """Whether vectors of the rows themselves start at any element."""
        unaligned = [self.fusion.inputs[position] for position in rows.vectors.unaligned]
        return any(access.tensor in unaligned for access in self.space.full_loads)

    def _of_clusters(self, rows: _Rows, facts: Facts, hardware: HardwareInfo) -> ReductionParams | None:
        """How clusters hold the rows, if they are to."""
        if self._reads_unaligned(rows) or (rows.shifts and not self._has_constant_length(facts)):
            return None
        needed, width = rows.vectors_a_row, rows.vectors.width
        if not rows.shifts and self._shared_bytes > self.projected.at_once and are_stable(self.space, facts):
            pairs = clustered_rows.in_pairs(rows.count, needed, width, self.projected, hardware)
            if pairs is not None:
                return pairs
        return rows.shifted(
            clustered_rows.clustered(rows.count, needed, width, self.projected, rows.shifts, hardware)
        )

    def _spread(self, rows: _Rows, hardware: HardwareInfo) -> ReductionParams | None:
        """How clusters hold the rows, if these are few."""
        if self._reads_unaligned(rows) or not self.space.iteration:
            return None
        how = clustered_rows.spread_beside_weights if rows.vectors.unaligned else clustered_rows.spread
        return rows.shifted(how(rows.count, rows.vectors_a_row, rows.vectors.width, self.projected, hardware))

    def _has_constant_length(self, facts: Facts) -> bool:
        return are_stable(self.space, facts) or self.space.is_constant

    def _in_shared(
        self, params: ReductionParams, length: int, hardware: HardwareInfo
    ) -> ReductionParams | None:
        """How one block holds rows in shared memory, if it is to: those of which registers hold one on an SM
        at a time, as what is computed of their inputs.
        """
        if not self._holds_more or params.persistent_in_shared_memory or params.unaligned_inputs:
            return None
        if self._resident(params, hardware, project=False) > 1:
            return None
        width = params.unroll_factor_inner_reduction
        vectors = ceil_div(length + params.places_before, width)
        return in_shared(params, vectors, self.projected, self.state_bytes, hardware)

    def _estimate(
        self, rows: int, length: int, params: ReductionParams, facts: Facts, hardware: HardwareInfo
    ) -> Callable[[], Cost]:
        """The cost, with what is known of it by how rows are held.

        A row that is held is read once, and blocks that are few on an SM wait for each other's phases. One
        that is not is read again after each reduction: from L2, if all rows that are worked on fit there.
        """
        if params.circular_stages or params.staged_vector:
            return partial(self._cost_kept, facts, hardware, rows, STREAMED_SPEED)
        blocks = ceil_div(rows, params.lparams.bdimy * params.rows_in_flight)
        if not params.batches_per_block_inner_reduction:
            row_bytes = length * self.projected.at_once
            in_l2 = min(rows, hardware.sm_count) * row_bytes <= hardware.l2_bytes
            again = self.chain * (L2_READ_COST if in_l2 else 1.0)
            speed = busy_share(blocks, hardware) * RELOADED_SPEED
            return self._cost.estimate(facts, hardware, reads=1 + again, speed=speed)
        blocks *= params.blocks_per_cluster
        resident = max(1, self._resident(params, hardware))
        idle = ROW_SECONDS if params.blocks_per_cluster == 1 else clustered_rows.ROW_SECONDS
        most = clustered_rows.speed(params.blocks_per_cluster, hardware)
        return partial(self._cost_held, facts, hardware, blocks, resident, idle, most)

    def _resident(
        self,
        params: ReductionParams,
        hardware: HardwareInfo,
        project: bool | None = None,
        besides: int = REGISTERS_TO_WORK,
    ) -> int:
        """Blocks that an SM has room for, of those that hold rows; 0: where none are held.

        project: in place of what the params say. besides: registers of a thread besides the row.
        """
        threads = max(1, params.lparams.bdimx) * params.lparams.bdimy
        held = params.elements_a_thread // params.blocks_per_cluster * params.rows_in_flight
        if params.persistent_in_shared_memory:
            bytes_a_block = threads * held * self.projected.in_all
            return hardware.shared_memory_per_sm // max(1, bytes_a_block)
        projects = params.project_persistent_buffers if project is None else project
        buffers = self.projected if projects else self.everything
        registers = besides + held * buffers.at_once // REGISTER_BYTES
        registers = min(registers, params.cparams.maxrregcount)
        return hardware.registers_per_sm // (threads * registers) if held else 0

    def _cost_held(
        self, facts: Facts, hardware: HardwareInfo, blocks: int, resident: int, idle: float, most: float
    ) -> Cost:
        """Of rows that are held by `blocks` in all, `resident` on an SM at a time, which move nothing for
        `idle` seconds each; at `most` that share of a copy's speed otherwise.
        """
        moving = self._cost.seconds_an_sm(facts, hardware) / max(1, blocks)
        return self._cost_kept(facts, hardware, blocks, most * overlap(resident, moving, idle))

    def _cost_kept(self, facts: Facts, hardware: HardwareInfo, blocks: int, kept: float) -> Cost:
        """Of rows that are held by blocks that keep so much of the memory's speed."""
        speed, steps = busy_share(blocks, hardware) * kept, HELD_SECONDS
        if self._has_welford:
            speed, steps = with_welford(speed, steps)
        return self._cost.estimate(facts, hardware, speed=speed, steps=steps)()

    @cached_property
    def _has_welford(self) -> bool:
        return has_welford(self.fusion)

    def _constant_row_is_faster(
        self, facts: Facts, params: ReductionParams, hardware: HardwareInfo, in_shared: bool
    ) -> bool:
        """Whether to take the length of a row that is held as a constant, which may be done if it is stable.

        Otherwise each access has a comparison and an address of its own, which are held in registers, or
        spilled, from its load to its store. That counts where a thread has many small accesses: rows of
        50,257 bfloat16, 50 accesses a thread, are 2.6 times faster with a constant length on an H200 (compare
        `./dev bench operations log_softmax` with FUSEWRIGHT_DISABLE=constant_sizes). With few wide ones the
        compiler then has more loads in flight than pay, in up to twice the registers (layer norm). Masked
        rows are faster all the same, and those that clusters hold in shared memory, which takes no registers,
        or in registers beside weights (layer norm of four rows of 262,144 8.9 us, of any length 10.9).
        So are those that one block holds there (`in_shared`; softmax, cross entropy by 1 to 3%), unless their
        vectors are aligned by themselves (3% slower), and what is computed of a row and of weights and held
        in registers: each has guards of its own (RMS norm to eight bits, 1.08 and 1.28 times as fast).
        Of rows that are copied ahead, a constant length makes softmax up to 1.02 times as fast and layer norm
        0.87 times, or, where rows are shifted, 0.98 and 1.02 times. Rows of several dimensions have a block
        of constant size by it (instance norm 1.07, group norm 1.08 to 1.2 times as fast). Where rows are
        shifted, only the vectors at their ends have guards then (`lower.passes.iterations`), and a second
        block of many threads may have room on an SM.
        """
        if not are_stable(self.space, facts):
            return False
        if in_shared:
            return not params.shift_rows
        if params.blocks_per_cluster > 1:
            many = params.batches_per_block_inner_reduction >= clustered_rows.FEW_BATCHES
            return (many and self._shares_loads) or params.persistent_in_shared_memory or params.shift_rows
        if params.circular_stages:
            return self._shares_loads == params.shift_rows
        batches = params.batches_per_block_inner_reduction
        one_by_one = not params.vectorize_inner_reduction and batches > BATCHES
        computes = self._holds_more and not params.project_persistent_buffers
        beside_weights = computes and self._shares_loads and not params.persistent_in_shared_memory
        several = not is_one_size(self.space)
        has_ends = params.shift_rows and not params.unaligned_inputs
        makes_room = self._makes_room(params, hardware)
        few_guards = has_ends or makes_room or self._is_masked or beside_weights
        return one_by_one or several or (few_guards and batches > 1)

    def _makes_room(self, params: ReductionParams, hardware: HardwareInfo) -> bool:
        """Whether registers hold a second block on an SM where rows are of a constant length only."""
        is_alone = self._resident(params, hardware, besides=REGISTERS_OF_ANY_LENGTH) == 1
        return is_alone and self._resident(params, hardware) > 1

    def _beside_another(
        self, params: ReductionParams, facts: Facts, hardware: HardwareInfo
    ) -> ReductionParams:
        """The same, if an SM would have room for one block only, with registers for two, where these do."""
        held = params.elements_a_thread
        in_registers = held and not params.persistent_in_shared_memory and self._has_constant_length(facts)
        if not in_registers or self._resident(params, hardware) > 1:
            return params
        buffers = self.projected if params.project_persistent_buffers else self.everything
        return with_room_for_another(params, held * buffers.at_once // REGISTER_BYTES, hardware)

    def _keeping_room(self, params: ReductionParams, hardware: HardwareInfo) -> ReductionParams:
        """The same with no more registers than leave that room: the compiler took 65 of 64 for log-softmax of
        32,000 bfloat16, so that blocks were alone.
        """
        if params.blocks_per_cluster > 1 or not self._makes_room(params, hardware):
            return params
        threads = max(1, params.lparams.bdimx) * params.lparams.bdimy * self._resident(params, hardware)
        limit = replace(params.cparams, maxrregcount=hardware.registers_a_thread(threads))
        return replace(params, cparams=limit)

    @cached_property
    def _is_masked(self) -> bool:
        """Whether a row is loaded with a mask of its own and nothing else.

        With a constant length both loads are in flight together: 1.17 times faster (softmax, H200). Rows of
        several inputs have loads in flight anyway.
        """
        full = [access.tensor for access in self.space.full_loads]
        return len(full) == 2 and sum(tensor.dtype is DataType.Bool for tensor in full) == 1


def _params(
    rows: int,
    length: int,
    width: int,
    planner: InnerPersistentPlanner,
    hardware: HardwareInfo,
    fits: bool = False,
) -> ReductionParams:
    """How to cut up `rows` of `length` elements, read in vectors of `width`; `fits`: in as few idle threads
    as there can be.
    """
    if length == 0:  # no loop over the row may remain: what it would enclose still has a result to store
        width = 1
    vectors = max(1, ceil_div(length, width))
    in_flight = BYTES_IN_FLIGHT // max(1, width * planner.projected.at_once)
    most = min(MAX_BATCHES_A_WARP, max(BATCHES, in_flight))
    cached = not planner.space.full_loads
    threads, batches = threads_and_batches(rows, vectors, most, hardware, cached)
    if fits:
        threads, batches = least_idle(vectors, threads, batches)
    per_thread = hardware.registers_per_block // threads - REGISTERS_TO_WORK
    room = max(1, min(REGISTERS_TO_HOLD, per_thread))
    project = False
    shared = False
    unroll = 1
    where = "registers"
    words = batches * width * planner.everything.at_once // REGISTER_BYTES
    inputs = batches * width * planner.projected.at_once // REGISTER_BYTES
    if words > room or makes_room(threads, words, inputs, hardware):
        project = True
        words = inputs
        where = "registers, inputs only"
    if words > room:
        bytes_a_thread = batches * width * planner.projected.in_all + planner.state_bytes
        most = hardware.shared_memory_per_block_optin - SHARED_SLACK
        shared = threads * bytes_a_thread <= most
        where = "shared memory, inputs only" if shared else "not held, loaded again"
    if words > room and not shared:
        batches = 0
        bytes_an_access = max(1, width * planner.projected.at_once)
        registers = max(REGISTERS_OF_NARROW_ACCESS, bytes_an_access // REGISTER_BYTES)
        in_flight = min(RELOADED_BYTES_IN_FLIGHT // bytes_an_access, room // registers)
        unroll = max(1, min(vectors // threads, in_flight))
    row_threads = 1
    share = SHORT_ROW_BLOCK // threads if threads <= hardware.warp_size else 1
    while row_threads * 2 <= share and rows > row_threads * hardware.sm_count:
        row_threads *= 2
    return ReductionParams(
        fastest_dim=True,
        persistent_kernel=True,
        project_persistent_buffers=project,
        persistent_in_shared_memory=shared,
        unroll_factor_inner_reduction=width,
        vectorize_inner_reduction=width > 1,
        unroll_factor_top_of_vectorization=unroll,
        batches_per_block_inner_reduction=batches,
        pad_inner_reduction_to_warp=True,
        lparams=LaunchParams(bdimx=threads if length else -1, bdimy=row_threads),
        reason=f"{rows} rows of {length}: {threads} threads a row, {batches} vectors of {width} each, "
        f"held in {where}; {row_threads} rows a block",
    )
