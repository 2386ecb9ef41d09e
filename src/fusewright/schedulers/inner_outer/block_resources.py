"""The registers and the shared memory that a block needs to hold rows, to load the next ones meanwhile, and
to sum what its columns come to.
"""

from __future__ import annotations

from dataclasses import dataclass

from fusewright.core.hardware import (
    BULK_COPIES_SINCE,
    MAX_VECTOR_BYTES,
    REGISTER_BYTES,
    HardwareInfo,
)
from fusewright.core.once import cached_property
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Pointwise, Reduction
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.inner_outer.persistent_space import (
    InnerOuterPersistentSpace,
    inner_outer_persistent_space,
)
from fusewright.schedulers.inner_outer.row_tiles import Choice, Rank, Rows, RowTile
from fusewright.schedulers.io import cache_inputs_and_outputs
from fusewright.schedulers.persistent.held_length import is_one_size
from fusewright.schedulers.persistent.held_rows import held_tensors, most_held, recompute
from fusewright.schedulers.shifted_rows import ENOUGH_BYTES
from fusewright.schedulers.sizes import ceil_div

# ---- registers of a thread, besides the row and its columns ----

# For addresses, results and work in flight.
REGISTERS_TO_WORK = 32
# For loading the next row into registers, or for copying it into shared memory.
REGISTERS_TO_PREFETCH = 8  # into registers
REGISTERS_TO_STREAM = 16  # into shared memory
# For guards: of rows of any length, and where some threads have one vector less than others.
#   H200, layer norm backward, bf16: 16384x4096 of any length reaches 0.68 of a copy's speed with three rows a
#   block, which spill. 15857x1664, uneven: 54.1 us, 82.5 with six rows, which spill.
REGISTERS_TO_GUARD = 16

# ---- shared memory of a block ----

# Rows that a ring has room for at most, where one block has an SM to itself.
MAX_STAGES = 4
# Columns whose partial results one thread finishes side by side: a vector of floats.
MAX_COLUMNS_A_THREAD = 4
# Bytes of its columns' results that a thread shares at once with the threads of other rows, at most.
EXCHANGED_BYTES = 128
# Bytes for the reductions of rows, and for what waits for copies.
OTHER_BYTES = 8 * 1024


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
class BlockResources:
    """What blocks of one fusion need."""

    fusion: Fusion
    space: InnerOuterPersistentSpace

    # ---- bytes of an element of a row ----

    @cached_property
    def _held(self) -> _Held:
        """The bytes that are held in the buffers that `apply` makes."""
        return _Held(self._bytes_held(everything=False), self._bytes_held(everything=True))

    def _bytes_held(self, everything: bool) -> int:
        schedule = Schedule(self.fusion)
        cache_inputs_and_outputs(schedule)
        space = inner_outer_persistent_space(schedule.fusion)
        assert isinstance(space, InnerOuterPersistentSpace), space
        recompute(schedule, space.rows, everything=everything)
        return most_held(schedule.fusion, held_tensors(schedule.fusion, space.rows))

    @cached_property
    def state_bytes(self) -> int:
        """The bytes that a column has come to before it is complete."""
        nodes = {tensor.definition for tensor in self.space.column_reductions}
        return sum(out.dtype.size for node in nodes if node is not None for out in node.outputs)

    @property
    def has_one_sum(self) -> bool:
        """Whether a column comes to one sum of Float, or less."""
        return self.state_bytes <= REGISTER_BYTES

    @cached_property
    def column_bytes(self) -> int:
        """The bytes of each input that is the same for all rows."""
        return sum(tensor.dtype.size for tensor in self.space.column_inputs)

    @cached_property
    def loaded_bytes(self) -> int:
        """The bytes of all loads of a row's own elements."""
        return self.space.rows.element_bytes

    @cached_property
    def _shared_bytes(self) -> int:
        """The bytes of all loads that some rows share, as the angles of a position for all heads."""
        rows = self.space.rows
        partial = [load for load in rows.loads if not rows.is_full(load)]
        both = [
            load
            for load in partial
            if not (load.concrete.isdisjoint(rows.iteration) or load.concrete.isdisjoint(rows.reduction))
        ]
        return sum(load.tensor.dtype.size for load in both)

    def is_by_element(self, rows: Rows) -> bool:
        """Whether accesses are so narrow that those of another row take many registers."""
        full = self.space.rows.full_loads
        return any(rows.width * access.tensor.dtype.size < ENOUGH_BYTES for access in full)

    # ---- registers ----

    def inputs_take_less(self, width: int) -> bool:
        """Whether registers that hold only inputs, in vectors of `width`, are fewer than for everything."""
        return self._inputs_in_registers(width) < self._held.everything

    def registers(self, rows: Rows, choice: Choice, batches: int, threads: int) -> int:
        """Returns the registers of a thread, if a row has `threads`, each with `batches` vectors."""
        may_spill = choice.in_registers and rows.projects and not self.is_by_element(rows)
        is_uneven = ceil_div(rows.length, rows.width) % threads > 0
        is_guarded = not rows.knows_length or (may_spill and is_uneven)
        to_work = REGISTERS_TO_WORK + (REGISTERS_TO_GUARD if is_guarded else 0)
        if choice.prefetches and choice.rank > Rank.AT_LEAST:
            to_work += REGISTERS_TO_STREAM if choice.stages else REGISTERS_TO_PREFETCH
        of_elements = batches * rows.width * self._element_in_registers(rows, choice)
        return to_work + ceil_div(of_elements, REGISTER_BYTES)

    def _element_in_registers(self, rows: Rows, choice: Choice) -> int:
        """Returns the bytes of registers for an element of a row, of its column, and of the next row."""
        bytes_ = self.state_bytes
        if rows.projects and self.is_by_element(rows):  # each access has an address of its own
            bytes_ += REGISTER_BYTES
        if rows.shifts:  # what all rows read stays in registers, as floats if there is room
            as_floats = REGISTER_BYTES * len(self.space.column_inputs)
            bytes_ += self.column_bytes if choice.rank == Rank.AT_LEAST else as_floats
            bytes_ += self.loaded_bytes
        if not choice.stages:
            bytes_ += self._held_in_registers(rows)
            bytes_ += self._arriving_in_registers(rows) if choice.prefetches else 0
        return bytes_

    def _loaded_in_registers(self, width: int) -> int:
        """Returns the bytes of registers for the loads of an element: narrow vectors leave some unused."""
        sizes = [access.tensor.dtype.size for access in self.space.rows.full_loads]
        return sum(ceil_div(width * size, REGISTER_BYTES) * REGISTER_BYTES // width for size in sizes)

    def _inputs_in_registers(self, width: int) -> int:
        """Returns the bytes of registers that hold an element, if only inputs are held."""
        return ceil_div(self._held.inputs * self._loaded_in_registers(width), max(1, self.loaded_bytes))

    def _held_in_registers(self, rows: Rows) -> int:
        return self._inputs_in_registers(rows.width) if rows.projects else self._held.everything

    def _arriving_in_registers(self, rows: Rows) -> int:
        """Returns the bytes of registers for an element of the next row, and for this row's loads beyond what
        is held of it: the next row is on its way before this one has been read.

        H200, gradients of RMS norm within LLaMA's, 16384x4096: 1.0 of a copy's speed, 0.76 without this, as
        threads with five inputs spilled, or loaded one after the other what they had no registers for.
        """
        loaded = self._loaded_in_registers(rows.width) + self._shared_bytes
        return loaded + max(0, loaded - self._held_in_registers(rows))

    # ---- shared memory ----

    def may_be_streamed(
        self, length: int, width: int, stages: int, threads: int, hardware: HardwareInfo
    ) -> bool:
        """Whether rows can be copied ahead into a ring with room for `stages` of them."""
        rows = self.space.rows
        full = rows.full_loads
        needed = self.streamed_bytes(length, stages, threads)
        return (
            is_one_size(rows)
            and all(isinstance(access.node, (Pointwise, Reduction)) for access in full)
            and all(width * access.tensor.dtype.size % MAX_VECTOR_BYTES == 0 for access in full)
            and hardware.compute_capability >= BULK_COPIES_SINCE
            and needed <= hardware.shared_memory_per_block_optin
        )

    def streamed_bytes(self, length: int, stages: int, threads: int) -> int:
        """Returns the bytes of a block with a ring of so many rows."""
        return stages * length * self.loaded_bytes + self._exchanged_bytes(threads, at_once=1)

    def stages(self, tile: RowTile, hardware: HardwareInfo) -> int:
        """Returns the rows of a block's ring: more than the choice says where a block has an SM to itself."""
        if tile.resident > 1 or tile.choice.rank == Rank.AT_LEAST:
            return tile.choice.stages
        return self.most_stages(tile, hardware, self.column_bytes)

    def most_stages(self, tile: RowTile, hardware: HardwareInfo, beside: int = 0) -> int:
        """Returns the most rows of a ring, beside which a block has `beside` bytes for each element."""
        stages = tile.choice.stages
        room = hardware.shared_memory_per_sm // tile.resident - hardware.shared_memory_reserved
        room = min(room, hardware.shared_memory_per_block_optin) - tile.rows.length * beside
        while stages < MAX_STAGES and self.streamed_bytes(tile.rows.length, stages + 1, tile.threads) <= room:
            stages += 1
        return stages

    def holds_columns(
        self, tile: RowTile, at_once: int, resident: int, stages: int, hardware: HardwareInfo
    ) -> bool:
        """Whether what is the same for all rows fits into shared memory, beside a ring of so many rows."""
        needed = tile.rows.length * (self.column_bytes + stages * self.loaded_bytes)
        needed += self._exchanged_bytes(tile.threads * at_once, at_once)
        room = hardware.shared_memory_per_sm // resident - hardware.shared_memory_reserved
        return self.column_bytes > 0 and needed <= min(room, hardware.shared_memory_per_block_optin)

    def _exchanged_bytes(self, threads: int, at_once: int) -> int:
        """Returns the bytes that reductions take at most in a block of so many threads and rows."""
        nodes = {tensor.definition for tensor in self.space.column_reductions}
        kinds = {tuple(out.dtype for out in node.outputs) for node in nodes if node is not None}
        a_column = sum(dtype.size for kind in kinds for dtype in kind)
        of_rows = len(kinds) * EXCHANGED_BYTES if at_once > 1 else 0
        return threads * (MAX_COLUMNS_A_THREAD * a_column + of_rows) + OTHER_BYTES
