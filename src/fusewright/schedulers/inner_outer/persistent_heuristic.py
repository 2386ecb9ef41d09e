"""Chooses params of the inner-outer persistent scheduler: how many elements of a row a thread holds, how many
rows a block processes at a time, and where the next row is buffered meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fusewright.core.hardware import (
    BULK_COPIES_SINCE,
    MAX_VECTOR_BYTES,
    REGISTER_BYTES,
    SM_PAIR,
    HardwareInfo,
)
from fusewright.core.once import cached_property
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Pointwise, Reduction
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.base import Facts, Proposal, Reject
from fusewright.schedulers.cost import GRID_REDUCTION_SECONDS, CostModel, busy_share
from fusewright.schedulers.inner_outer.persistent_space import (
    InnerOuterPersistentSpace,
    inner_outer_persistent_space,
)
from fusewright.schedulers.inner_outer.row_tiles import (
    CHOICES,
    NOT_AHEAD,
    SHIFTED,
    Choice,
    Rank,
    Rows,
    RowTile,
    blocks_text,
    clusters_of,
    groups_of,
    in_turns,
    lanes_of,
    part_of,
    resident_blocks,
)
from fusewright.schedulers.io import VectorLimits, cache_inputs_and_outputs
from fusewright.schedulers.params import CompileParams, InnerOuterPersistentParams, LaunchParams
from fusewright.schedulers.persistent.held_length import (
    are_stable,
    for_any_length,
    for_this_length,
    is_one_size,
)
from fusewright.schedulers.persistent.held_rows import (
    has_welford,
    held_tensors,
    most_held,
    recompute,
    with_welford,
)
from fusewright.schedulers.reduction.wider_vectors import LEAST_SHIFTED, rows_of_reductions
from fusewright.schedulers.shifted_rows import ENOUGH_BYTES, ShiftedRows, is_narrow
from fusewright.schedulers.sizes import (
    among_few,
    ceil_div,
    power_of_two_at_least,
    power_of_two_at_most,
    whole_warps,
)

# A thread needs this many registers besides the row and its columns: addresses, results, work in flight.
REGISTERS_TO_WORK = 32
REGISTERS_TO_PREFETCH = 8
REGISTERS_TO_STREAM = 16
# What a thread may spill where shifted rows are not held in fewer elements a thread.
REGISTERS_TO_SPILL = 8
# Rows in the ring of a cluster that takes shifted ones.
SHIFTED_STAGES = 3
# Of threads that read a ring, beside those of an estimate, where blocks share an SM and so its registers (an
# H200, layer norm backward of 16384 x 8192 bfloat16: two blocks of 256 threads that spill reach 0.81 of a
# copy's speed, one of 512 that do not 0.94).
REGISTERS_TO_SHARE_AN_SM = 24
# Of a kernel that takes rows of any length, beside those of one that knows theirs (an H200, layer norm
# backward of 16384 x 4096 bfloat16: three rows a block that spill reach 0.68 of a copy's speed), and where
# some threads have one vector less than others (15857 x 1664 54.1 us, 82.5 with six rows that spill).
REGISTERS_TO_GUARD = 16
# A thread takes so many elements more, one of so many, if a row needs fewer threads then.
MOST_OVER = 8
# Of rows of several warps that one block takes at once: of more, two blocks take 0.8 to 0.9 of the time (the
# gradients of normalizations within those of GPT-2 and LLaMA, 16384 x 4096, an H200).
MOST_LOADS_TOGETHER = 2
# Rows that a ring has room for at most where one block has an SM to itself.
MOST_STAGES = 4
# Partial results of a column that one thread finishes side by side: a vector of floats.
MAX_COLUMNS_A_THREAD = 4
# What an SM has to have on its way at once, where it works on one row at a time (layer norm backward of rows
# of 8192 bfloat16, an H200: 32 KB reach 0.64 of a copy's speed, 48 KB of rows of 12288 reach 0.89).
BYTES_IN_FLIGHT = 40 * 1024
# Bytes of what it has found in its columns that a thread shares with other rows of threads at once, at most.
EXCHANGED_BYTES = 128
# Shared memory of the reductions of rows, and of what waits for copies.
OTHER_BYTES = 8 * 1024
# Threads of a row, unless it needs more (an H200, RMS norm backward of 4096 x 32768 bfloat16, by clusters of
# two blocks of 1024 threads 0.91 of a copy's speed, of 512 threads 0.96).
MOST_THREADS = 512
# Threads of a block that handles several rows at a time.
BLOCK = 128
# Rows for each SM up to which a row has more threads, each with the last of these numbers of vectors at
# most; where a block has one row, with the fewest for which so many threads suffice (an H200, RMS norm
# backward of 33 x 4096 bfloat16 7.3 us, with twice the vectors 7.7; 200 x 1000 6.7 and 7.1; 33 x 1024 with
# one 7.2, with four 7.8).
FEW_ROWS_AN_SM, FEW_ROWS_THREADS, FEW_VECTORS = 2, 256, (1, 2, 4)
# Elements from which on rows of which there are no more than SMs are left to two kernels, which pass on
# nothing (an H200, RMS norm backward of 33 rows of 32768 bfloat16 11.6 us so, by clusters 15.9, of 65536
# 14.2 and 19.9, of 8192 9.1 and 9.2; 132 of 16384 14.5 and 18.0, of 8192 11.8 and 11.2; 200 of 32768 the
# same).
LONG_AMONG_FEW = 8192
# Turns of a block up to which rows by element are not loaded ahead, so that a block has more of them, and
# rows that it takes at once then at least (an H200, RMS norm backward of bfloat16: 7814 x 749 24.9 us, ahead
# 30.3; 16384 x 1025 52.9 and 56.6; of more turns, 131072 x 257 76.5 and 73.1; of three rows, 1024 x 4097 22.8
# and 19.0).
MOST_TURNS, LEAST_AT_ONCE = 12, 8
# Threads on an SM of rows by element from which on fewer elements a thread are faster (an H200, layer norm
# backward of 8191 x 4097 bfloat16 by 480 threads of 9 elements 88 us, by 256 of 33 95; RMS norm backward 84.5
# and 88.9, by 512 of 17, which spill, 127).
BUSY_BY_ELEMENT = 384
# Turns of a block up to which rows that are ahead in registers have more threads, of so many elements each
# (an H200, layer norm backward of bfloat16 with 16 elements a thread and with 32: 2048 x 4096, 5 turns, 22.9
# us and 25.1, 4096 x 2048 23.1 and 24.7; 4096 x 4096, 10 turns, 35.8 and 35.3).
FEW_TURNS, FEW_ELEMENTS = 6, 16
# Threads on an SM of rows that are shifted, of one sum of columns and of more, and rows a block, from which
# on that is known to be faster than by element (an H200, 8191 x 4097 bfloat16: RMS norm backward with 384
# threads 0.75 of a copy's speed, with 576 0.67, by element 0.66, with 320 threads 0.55; layer norm backward
# with 384 threads 101 us, by element 88). Of clusters the second is smaller, as two kernels are slower (layer
# norm backward of 2048 x 32769 289 us with 384 threads, 449 so; of 1024 x 50257 with 320 248 and 270).
SHIFTED_THREADS_AN_SM, SHIFTED_ROWS_A_BLOCK = (384, 448), 5
CLUSTER_THREADS_AN_SM = (384, 320)
# Of a copy's speed, what such a kernel reaches.
SPEED = 0.85


@dataclass(frozen=True, slots=True)
class _Held:
    """The largest number of bytes that are held per element of a row across any one reduction.

    Attributes:
        everything: if values computed before it and needed after it are held.
        inputs: if only inputs are held.
    """

    everything: int
    inputs: int


@dataclass(frozen=True, eq=False)
class InnerOuterPersistentPlanner:
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
    def _shifted(self) -> ShiftedRows:
        return rows_of_reductions(self.fusion, self.space.of_rows)

    @cached_property
    def _held(self) -> _Held:
        """As `apply` makes the buffers."""
        return _Held(self._bytes_held(everything=False), self._bytes_held(everything=True))

    def _bytes_held(self, everything: bool) -> int:
        schedule = Schedule(self.fusion)
        cache_inputs_and_outputs(schedule)
        space = inner_outer_persistent_space(schedule.fusion)
        assert isinstance(space, InnerOuterPersistentSpace), space
        recompute(schedule, space.rows, everything=everything)
        return most_held(schedule.fusion, held_tensors(schedule.fusion, space.rows))

    @cached_property
    def _has_welford(self) -> bool:
        return has_welford(self.fusion)

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
        return self.space.rows.element_bytes

    @cached_property
    def _shared_bytes(self) -> int:
        """Of an element of all loads that some rows share, as the angles of a position for all heads."""
        rows = self.space.rows
        partial = [load for load in rows.loads if not rows.is_full(load)]
        both = [
            load
            for load in partial
            if not (load.concrete.isdisjoint(rows.iteration) or load.concrete.isdisjoint(rows.reduction))
        ]
        return sum(load.tensor.dtype.size for load in both)

    def __call__(self, facts: Facts, hardware: HardwareInfo) -> Proposal | Reject:
        space = self.space.rows
        width = self._vectors.width(facts) if self._vectors is not None else 1
        rows, length = space.iteration_size(facts), space.reduction_size(facts)
        if not rows or not length:
            return Reject("there is nothing to reduce")
        is_stable = are_stable(space, facts)
        knows_length = is_stable or space.is_constant
        to_hold = Rows(rows, length, width, knows_length, projects=self._projects(width))
        chosen = self._chosen(to_hold, hardware)
        by_element = chosen is not None and self._is_faster_by_element(chosen, hardware)
        params = None if by_element else self._shifted_params(to_hold, facts, hardware)
        if chosen is not None and params is None:
            params = self._params(to_hold, chosen, hardware)
        if params is None:
            return Reject(f"no block or cluster holds a row of {length} and what its columns come to")
        if self._cost.keeps(facts, hardware):
            params = replace(params, keeps_inputs=True)
        groups, passed = params.lparams.gdimx, params.lparams.gdimx * length * self._state_bytes
        steps = GRID_REDUCTION_SECONDS + 2 * passed / (hardware.memory_bandwidth_gbs * 1e9)
        speed = SPEED * busy_share(groups * params.blocks_per_cluster, hardware)
        if self._has_welford:
            speed, steps = with_welford(speed, steps)
        estimate = self._cost.estimate(facts, hardware, speed=speed, steps=steps)
        if is_stable:
            # There are no guards along the rows then: 1.2 times as fast (an H200, layer norm backward of
            # 16384 x 4096 bfloat16).
            return Proposal(for_this_length(params, space, facts, "rows"), estimate)
        return Proposal(for_any_length(params, space, threads="bdimy"), estimate)

    def _is_faster_by_element(self, tile: RowTile, hardware: HardwareInfo) -> bool:
        """Than in vectors that are aligned by the start of each row: rows that registers load ahead, unless
        one at a time for many turns.

        An H200, layer norm backward of 12730 x 2107 bfloat16 70 us so and 102 us shifted, RMS norm backward
        62 and 80, of 1480 x 3187 21.4 and 22.8, of 8191 x 4097 84.5 and 82.5.
        """
        many_turns = tile.rows_an_sm == 1 and tile.turns(hardware) > MOST_TURNS
        return tile.cluster == 1 and self._rank(tile, hardware) >= Rank.IN_REGISTERS and not many_turns

    def _shifted_params(
        self, rows: Rows, facts: Facts, hardware: HardwareInfo
    ) -> InnerOuterPersistentParams | None:
        """For rows whose vectors begin at an aligned address of each row, if aligned ones of all are narrow.

        Blocks take such rows in turns and copy them ahead. What all rows read is chosen from vectors once.
        """
        found = self._shifted.vectors(facts) if rows.length >= LEAST_SHIFTED and rows.knows_length else None
        if found is None or not is_narrow(rows.width, found):
            return None
        own = {self.fusion.inputs[position] for position in found.unaligned}
        if not own <= set(self.space.column_inputs):
            return None
        places = rows.length + found.width - 1
        to_hold = replace(rows, length=places, width=found.width, shifts=True)
        chosen = self._shifted_tile(to_hold, hardware)
        if chosen is None:
            return None
        blocks = in_turns(chosen, hardware)
        if rows.count < SHIFTED_ROWS_A_BLOCK * blocks:
            return None
        return InnerOuterPersistentParams(
            vectorization_factor=found.width,
            batches_per_block_inner_reduction=chosen.batches,
            project_persistent_buffers=True,
            prefetch_rows=True,
            circular_stages=self._shifted_stages(chosen, hardware),
            shift_rows=True,
            unaligned_inputs=found.unaligned,
            blocks_per_cluster=chosen.cluster,
            lparams=LaunchParams(gdimx=blocks, bdimx=chosen.lanes, bdimy=chosen.along, bdimz=1),
            cparams=CompileParams(
                maxrregcount=hardware.registers_a_thread(whole_warps(chosen.threads) * chosen.resident)
            ),
            reason=f"{rows.count} rows of {rows.length}: {blocks} {blocks_text(chosen)} take them in turns "
            f"and copy the next ones ahead, {chosen.lanes} x {chosen.along} threads a row, "
            f"{chosen.batches} vectors of {found.width} a thread; aligned by the start of each row",
        )

    def _shifted_tile(self, rows: Rows, hardware: HardwareInfo) -> RowTile | None:
        """How threads of one block, or of a cluster's if one has no room for these, lie along shifted rows,
        which are copied ahead; None too where those that may take turns would leave many SMs idle.
        """
        threads = hardware.max_threads_per_block
        of_block = self._may_be_streamed(rows.length, rows.width, SHIFTED_STAGES, threads, hardware)
        for cluster in (1,) if of_block else clusters_of(hardware):
            tiles = [self._tile(part_of(rows, cluster), choice, hardware) for choice in SHIFTED]
            busy = [replace(tile, cluster=cluster) for tile in tiles if tile is not None]
            busy = [tile for tile in busy if tile.threads >= BLOCK and in_turns(tile, hardware)]
            at_least = SHIFTED_THREADS_AN_SM if cluster == 1 else CLUSTER_THREADS_AN_SM
            least = at_least[self._state_bytes > REGISTER_BYTES]
            busy = [tile for tile in busy if tile.threads * tile.resident >= least]
            if busy:
                best = max(busy, key=lambda tile: (tile.choice.rank, tile.rows_an_sm, tile.choice.elements))
                return self._in_twice_the_blocks(best, rows, hardware) or best
        return None

    def _in_twice_the_blocks(self, tile: RowTile, rows: Rows, hardware: HardwareInfo) -> RowTile | None:
        """The tile of clusters of twice the blocks, if two of these have room on an SM: it then has something
        to do while one of them waits for its cluster.
        """
        if not SM_PAIR < tile.cluster < hardware.max_cluster:
            return None
        larger = self._tile(part_of(rows, 2 * tile.cluster), tile.choice, hardware)
        if larger is None or larger.resident < 2:
            return None
        found = replace(larger, cluster=2 * tile.cluster, resident=2)
        return found if not rows.shifts or in_turns(found, hardware) else None

    def _shifted_stages(self, tile: RowTile, hardware: HardwareInfo) -> int:
        """How many rows a ring has room for."""
        most = self._most_stages(tile, hardware)
        return tile.choice.stages if tile.cluster == 1 else min(SHIFTED_STAGES, most)

    def _params(self, rows: Rows, chosen: RowTile, hardware: HardwareInfo) -> InnerOuterPersistentParams:
        width, count = chosen.rows.width, rows.count
        at_once, resident = chosen.at_once, chosen.resident
        loads = len(self.space.rows.full_loads)
        alone = chosen.choice.rank == Rank.IN_REGISTERS or self._is_by_element(chosen.rows)
        if alone and (chosen.along == 1 or loads <= MOST_LOADS_TOGETHER):
            # One block an SM passes on the least (both gradients of 16384 x 4096 on an H200: 0.95 to 0.97 of
            # the time).
            most = min(hardware.max_threads_per_block // chosen.threads, ceil_div(count, hardware.sm_count))
            at_once, resident = min(chosen.rows_an_sm, most, hardware.max_block[2]), 1
        threads = chosen.threads * at_once
        # All blocks have to be resident at once, so that they can wait for each other.
        registers = hardware.registers_a_thread(whole_warps(threads) * resident)
        together = groups_of(replace(chosen, resident=resident), hardware)
        blocks = min(together, among_few(ceil_div(count, at_once)))
        groups = ceil_div(chosen.rows.length, chosen.lanes * blocks)
        ahead = chosen.choice.prefetches and count > blocks * at_once
        stages = self._stages(chosen, hardware) if ahead and chosen.choice.stages else 0
        return InnerOuterPersistentParams(
            vectorization_factor=width,
            batches_per_block_inner_reduction=chosen.batches,
            project_persistent_buffers=chosen.rows.projects or stages > 0,
            prefetch_rows=ahead,
            columns_a_thread=min(width, MAX_COLUMNS_A_THREAD, power_of_two_at_least(groups)),
            columns_in_shared_memory=ahead
            and self._holds_columns(chosen, at_once, resident, stages, hardware),
            circular_stages=stages,
            blocks_per_cluster=chosen.cluster,
            lparams=LaunchParams(gdimx=blocks, bdimx=chosen.lanes, bdimy=chosen.along, bdimz=at_once),
            cparams=CompileParams(maxrregcount=registers),
            reason=f"{count} rows of {rows.length}: {blocks} {blocks_text(chosen)} of {at_once} rows at a "
            f"time, {chosen.lanes} x {chosen.along} threads a row, {chosen.batches} vectors of {width} a "
            "thread" + (", the next row ahead" if ahead else ""),
        )

    def _chosen(self, rows: Rows, hardware: HardwareInfo) -> RowTile | None:
        """How threads lie along rows: those of one block where it loads rows ahead, else those of a
        cluster whose blocks do that of their parts; None where neither holds a row.
        """
        if rows.length > LONG_AMONG_FEW and rows.count <= hardware.sm_count:
            return None
        few = self._few(rows, hardware)
        if few is not None:
            return few
        of_block = self._best(rows, hardware)
        if of_block is not None and of_block.choice.rank >= Rank.IN_SHARED_MEMORY:
            return of_block
        return self._of_cluster(rows, hardware) or of_block

    def _of_cluster(self, rows: Rows, hardware: HardwareInfo) -> RowTile | None:
        """How threads of the blocks of a cluster lie along rows that it loads ahead: of the smallest that
        does, or, of more than two blocks, of the next larger one if two of its blocks have room on an SM.
        """
        for cluster in clusters_of(hardware):
            if cluster > SM_PAIR and self._is_by_element(rows):
                return None
            tile = self._best(part_of(rows, cluster), hardware)
            if tile is None or tile.choice.rank < Rank.IN_SHARED_MEMORY:
                continue
            tile = replace(tile, cluster=cluster, resident=1)
            return self._in_twice_the_blocks(tile, rows, hardware) or tile
        return None

    def _best(self, rows: Rows, hardware: HardwareInfo) -> RowTile | None:
        """How threads of one block lie along rows, if it can hold them."""
        tiles = [self._tile(rows, choice, hardware) for choice in CHOICES]
        narrow = self._narrower(rows)
        if narrow is not None:
            tiles += [self._tile(narrow, choice, hardware) for choice in CHOICES if choice.in_registers]
        if self._is_by_element(rows):
            inputs = replace(rows, projects=True)
            tiles += [self._tile(inputs, choice, hardware) for choice in NOT_AHEAD]
        # Of equal rank those with most rows in flight, then with most threads that have registers enough.
        found = [tile for tile in tiles if tile is not None]
        best = max(
            found,
            key=lambda tile: (
                self._rank(tile, hardware),
                tile.rows_an_sm,
                tile.rows is narrow,
                tile.threads <= MOST_THREADS,
                -tile.choice.elements,
            ),
            default=None,
        )
        return best and self._of_more_threads(best, found, hardware)

    def _of_more_threads(self, best: RowTile, tiles: Sequence[RowTile], hardware: HardwareInfo) -> RowTile:
        """Another of these tiles in place of the best, whose rows have more threads, where that is faster: of
        blocks that take few turns, and of rows by element, the accesses of which have addresses of their own.
        """
        ahead = [tile for tile in tiles if self._rank(tile, hardware) == Rank.IN_REGISTERS]
        ahead = [tile for tile in ahead if tile.threads <= MOST_THREADS]
        if best not in ahead:
            return best
        if self._is_by_element(best.rows):
            busy = [tile for tile in ahead if tile.threads * tile.rows_an_sm >= BUSY_BY_ELEMENT]
            return min(busy, key=lambda tile: tile.choice.elements, default=best)
        fewer = [tile for tile in ahead if tile.choice.elements == FEW_ELEMENTS]
        if best.turns(hardware) > FEW_TURNS:
            return best
        return min(fewer, key=lambda tile: tile.rows.width, default=best)

    def _few(self, rows: Rows, hardware: HardwareInfo) -> RowTile | None:
        """Of so few rows that each block has one or two: many threads for each, of two blocks if need be;
        None of more rows.
        """
        if rows.count > FEW_ROWS_AN_SM * hardware.sm_count:
            return None
        rows = self._narrower(rows) or rows
        for vectors in FEW_VECTORS if rows.count <= hardware.sm_count else FEW_VECTORS[-1:]:
            choice = Choice(vectors * rows.width, prefetches=False, rank=Rank.NOT_AHEAD)
            tile = self._tile(rows, choice, hardware)
            if tile is not None and tile.threads <= FEW_ROWS_THREADS:
                break
        if tile is not None and tile.threads <= MOST_THREADS:
            at_once = ceil_div(rows.count, hardware.sm_count)
            fits = tile.threads * at_once <= MOST_THREADS
            return replace(tile, at_once=at_once, resident=1) if fits else tile
        for cluster in clusters_of(hardware):
            tile = self._tile(part_of(rows, cluster), choice, hardware)
            if tile is not None and rows.count <= hardware.resident_clusters(cluster):
                return replace(tile, cluster=cluster, resident=1)
        return None

    def _is_by_element(self, rows: Rows) -> bool:
        """Whether its accesses are so narrow that those of another row take many registers."""
        full = self.space.rows.full_loads
        return any(rows.width * access.tensor.dtype.size < ENOUGH_BYTES for access in full)

    def _narrower(self, rows: Rows) -> Rows | None:
        """The same in vectors of half the width, with all that follows from inputs held, in place of inputs
        alone: it is computed once, and loads and arithmetic are interleaved. (An H200, RMS norm backward of
        16384 x 4096 bfloat16: 104.5 us, 107.0 without; 4096 x 8192 60.3, in rings 63.1.)
        """
        if not rows.projects or rows.width < 2:
            return None
        return replace(rows, width=rows.width // 2, projects=False)

    def _rank(self, tile: RowTile, hardware: HardwareInfo) -> int:
        """Of a choice's tile: rows that are ahead in registers come after others where they are too few; rows
        by element that are not ahead come first where blocks take few turns.
        """
        rows, rank = tile.rows, tile.choice.rank
        if rank == Rank.NOT_AHEAD and rows.projects and self._is_by_element(rows):
            few = tile.turns(hardware) <= MOST_TURNS and tile.rows_an_sm >= LEAST_AT_ONCE
            return Rank.FEW_TURNS if few else Rank.NOT_AHEAD
        in_flight = tile.rows_an_sm * rows.length * self._loaded_bytes
        starved = rows.projects and tile.rows_an_sm == 1 and in_flight < BYTES_IN_FLIGHT
        return Rank.STARVED if rank == Rank.IN_REGISTERS and starved else rank

    def _loaded_in_registers(self, width: int) -> int:
        """Bytes of registers that loads of an element of a row take: narrow vectors leave some unused."""
        sizes = [access.tensor.dtype.size for access in self.space.rows.full_loads]
        return sum(ceil_div(width * size, REGISTER_BYTES) * REGISTER_BYTES // width for size in sizes)

    def _inputs_in_registers(self, width: int) -> int:
        """The same where inputs alone are held."""
        return ceil_div(self._held.inputs * self._loaded_in_registers(width), max(1, self._loaded_bytes))

    def _projects(self, width: int) -> bool:
        """Whether inputs alone are held."""
        return self._inputs_in_registers(width) < self._held.everything

    def _held_in_registers(self, rows: Rows) -> int:
        return self._inputs_in_registers(rows.width) if rows.projects else self._held.everything

    def _arriving_in_registers(self, rows: Rows) -> int:
        """Bytes of registers of an element of the next row, and of this one beside what is held of it.

        The next row is on its way before this one has been read. Where that was left out, threads with five
        inputs spilled, or loaded one after the other what they had no registers for: 0.76 of a copy's speed
        instead of 1.0 (the gradients of RMS norm within LLaMA's, 16384 x 4096, an H200).
        """
        loaded = self._loaded_in_registers(rows.width) + self._shared_bytes
        return loaded + max(0, loaded - self._held_in_registers(rows))

    def _tile(self, rows: Rows, choice: Choice, hardware: HardwareInfo) -> RowTile | None:
        """How threads lie along a row by a choice, if a block has the registers and memory for it."""
        length, width = rows.length, rows.width
        vectors = ceil_div(length, width)
        lanes = lanes_of(vectors, max(1, choice.elements // width))
        batches = min(ceil_div(vectors, lanes), max(1, choice.elements // width))
        along = ceil_div(vectors, lanes * batches)
        fewer = max(1, along - 1)
        if ceil_div(vectors, lanes * fewer) <= batches + batches // MOST_OVER:
            batches = ceil_div(vectors, lanes * fewer)
            along = ceil_div(vectors, lanes * batches)
        threads = lanes * along
        if choice.stages and not self._may_be_streamed(length, width, choice.stages, threads, hardware):
            return None
        of_element = self._state_bytes
        if rows.projects and self._is_by_element(rows):  # each access has an address of its own
            of_element += REGISTER_BYTES
        if rows.shifts:  # what all rows read stays in registers, as floats if there is room
            as_floats = REGISTER_BYTES * len(self.space.column_inputs)
            of_element += self._column_bytes if choice.rank == Rank.AT_LEAST else as_floats
            of_element += self._loaded_bytes
        if not choice.stages:
            of_element += self._held_in_registers(rows)
            of_element += self._arriving_in_registers(rows) if choice.prefetches else 0
        may_spill = choice.in_registers and rows.projects and not self._is_by_element(rows)
        is_guarded = not rows.knows_length or (may_spill and vectors % threads > 0)
        to_work = REGISTERS_TO_WORK + (REGISTERS_TO_GUARD if is_guarded else 0)
        if choice.prefetches and choice.rank > Rank.AT_LEAST:
            to_work += REGISTERS_TO_STREAM if choice.stages else REGISTERS_TO_PREFETCH
        registers = to_work + ceil_div(batches * width * of_element, REGISTER_BYTES)
        room = hardware.registers_a_thread(max(threads, BLOCK))
        if rows.shifts and choice.rank == Rank.AT_LEAST:
            room += REGISTERS_TO_SPILL
        if threads > hardware.max_threads_per_block or registers > room:
            return None
        most = min(BLOCK // threads, rows.count // hardware.sm_count, hardware.max_block[2])
        at_once = 1 if choice.stages else power_of_two_at_most(max(1, most))
        beside = REGISTERS_TO_SHARE_AN_SM if choice.stages and not rows.shifts else 0
        resident = resident_blocks(threads * at_once, registers + beside, hardware)
        if choice.stages:
            shared = self._streamed(length, choice.stages, threads) + hardware.shared_memory_reserved
            resident = max(1, min(resident, hardware.shared_memory_per_sm // shared))
        return RowTile(choice, rows, lanes, along, batches, at_once, resident)

    def _exchanged(self, threads: int, at_once: int) -> int:
        """Bytes of shared memory that reductions take at most in a block of so many threads and rows."""
        nodes = {tensor.definition for tensor in self.space.column_reductions}
        kinds = {tuple(out.dtype for out in node.outputs) for node in nodes if node is not None}
        a_column = sum(dtype.size for kind in kinds for dtype in kind)
        of_rows = len(kinds) * EXCHANGED_BYTES if at_once > 1 else 0
        return threads * (MAX_COLUMNS_A_THREAD * a_column + of_rows) + OTHER_BYTES

    def _holds_columns(
        self, tile: RowTile, at_once: int, resident: int, stages: int, hardware: HardwareInfo
    ) -> bool:
        """Whether what is the same for all rows fits into shared memory, beside a ring of so many rows."""
        needed = tile.rows.length * (self._column_bytes + stages * self._loaded_bytes)
        needed += self._exchanged(tile.threads * at_once, at_once)
        room = hardware.shared_memory_per_sm // resident - hardware.shared_memory_reserved
        return self._column_bytes > 0 and needed <= min(room, hardware.shared_memory_per_block_optin)

    def _stages(self, tile: RowTile, hardware: HardwareInfo) -> int:
        """How many rows a ring has room for: more than the choice says where a block is alone."""
        if tile.resident > 1 or tile.choice.rank == Rank.AT_LEAST:
            return tile.choice.stages
        return self._most_stages(tile, hardware, self._column_bytes)

    def _most_stages(self, tile: RowTile, hardware: HardwareInfo, beside: int = 0) -> int:
        """The same, `beside` bytes for each element of a row."""
        stages = tile.choice.stages
        room = hardware.shared_memory_per_sm // tile.resident - hardware.shared_memory_reserved
        room = min(room, hardware.shared_memory_per_block_optin) - tile.rows.length * beside
        while stages < MOST_STAGES and self._streamed(tile.rows.length, stages + 1, tile.threads) <= room:
            stages += 1
        return stages

    def _streamed(self, length: int, stages: int, threads: int) -> int:
        """Bytes of shared memory of a block that has room for so many rows."""
        return stages * length * self._loaded_bytes + self._exchanged(threads, at_once=1)

    def _may_be_streamed(
        self, length: int, width: int, stages: int, threads: int, hardware: HardwareInfo
    ) -> bool:
        """Whether rows can be copied ahead into shared memory, with room for so many."""
        rows = self.space.rows
        full = rows.full_loads
        needed = self._streamed(length, stages, threads)
        return (
            is_one_size(rows)
            and all(isinstance(access.node, (Pointwise, Reduction)) for access in full)
            and all(width * access.tensor.dtype.size % MAX_VECTOR_BYTES == 0 for access in full)
            and hardware.compute_capability >= BULK_COPIES_SINCE
            and needed <= hardware.shared_memory_per_block_optin
        )
