"""When a kernel that holds rows takes their length as a constant, and how many registers it then needs.

A kernel for any length has a comparison and an address for each access, in registers, or spilled, from its
load to its store. One for a constant length has neither, but then the compiler has more loads in flight than
pay, in up to twice the registers. So a constant length pays where a thread has many small accesses, or other
guards to lose.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fusewright.core.dtype import DataType
from fusewright.core.hardware import REGISTER_BYTES, HardwareInfo
from fusewright.core.once import cached_property
from fusewright.schedulers.base import Facts
from fusewright.schedulers.params import ReductionParams
from fusewright.schedulers.persistent import clustered_rows
from fusewright.schedulers.persistent.held_length import are_stable, is_one_size
from fusewright.schedulers.persistent.row_buffers import RowBuffers
from fusewright.schedulers.persistent.row_threads import BATCHES, with_room_for_another
from fusewright.schedulers.reduction.space import ReductionSpace

# Registers of a thread besides its row, in a kernel for rows of any length.
#   H200, layer norm of 8192x16384 float by 512 threads, of a copy's speed: 0.87 with 74 registers, 0.97 for a
#   constant length, with 64.
REGISTERS_OF_ANY_LENGTH = 44


@dataclass(frozen=True, eq=False)
class ConstantLength:
    """Decides for kernels of one fusion.

    Attributes:
        buffers: what is held of a row.
        shares_loads: whether all rows read something in common, such as weights.
    """

    space: ReductionSpace
    buffers: RowBuffers
    shares_loads: bool

    def is_known(self, facts: Facts) -> bool:
        """Whether the length is a constant, or may be taken as one."""
        return are_stable(self.space, facts) or self.space.is_constant

    def is_faster(
        self, params: ReductionParams, in_shared: bool, facts: Facts, hardware: HardwareInfo
    ) -> bool:
        """Whether to take the length of held rows as a constant, which may be done if it is stable.

        in_shared: whether one block holds a row in shared memory (`shared_rows`).
        """
        if not are_stable(self.space, facts):
            return False
        if in_shared:
            # H200: softmax and cross entropy faster by 1 to 3%; slower by 3% where rows are shifted.
            return not params.shift_rows
        if params.blocks_per_cluster > 1:
            return self._is_faster_in_clusters(params)
        if params.circular_stages:
            # H200: softmax up to 1.02 times as fast, layer norm 0.87 times; of shifted rows 0.98 and 1.02.
            return self.shares_loads == params.shift_rows
        # Rows of several dimensions have a block of constant size only with a constant length.
        #   H200: instance norm 1.07 times as fast, group norm 1.08 to 1.2 times.
        if not is_one_size(self.space) or _reads_many_elements(params):
            return True
        return params.batches_per_block_inner_reduction > 1 and self._loses_guards(params, hardware)

    def keeping_room(self, params: ReductionParams, hardware: HardwareInfo) -> ReductionParams:
        """Returns the params with a limit on registers, if only a constant length leaves room for a second
        block on an SM, so that this room is kept.

        The compiler took 65 registers in place of 64 for log-softmax of 32000 bf16: blocks were alone then.
        """
        if params.blocks_per_cluster > 1 or not self._makes_room(params, hardware):
            return params
        threads = max(1, params.lparams.bdimx) * params.lparams.bdimy
        threads *= self.buffers.resident_blocks(params, hardware)
        limit = replace(params.cparams, maxrregcount=hardware.registers_a_thread(threads))
        return replace(params, cparams=limit)

    def beside_another(
        self, params: ReductionParams, facts: Facts, hardware: HardwareInfo
    ) -> ReductionParams:
        """Returns the params with a limit on registers, if an SM would have room for one block only, and for
        two with this limit.
        """
        elements = params.elements_a_thread
        in_registers = elements and not params.persistent_in_shared_memory and self.is_known(facts)
        if not in_registers or self.buffers.resident_blocks(params, hardware) > 1:
            return params
        words = elements * self.buffers.of(params).at_once // REGISTER_BYTES
        return with_room_for_another(params, words, hardware)

    def _is_faster_in_clusters(self, params: ReductionParams) -> bool:
        """Whether it is faster for rows in shared memory, which takes no registers, or in many registers
        beside weights.

        H200, layer norm of four rows of 262144: 8.9 us, of any length 10.9.
        """
        has_many_vectors = params.batches_per_block_inner_reduction >= clustered_rows.FEW_BATCHES
        many_beside_weights = has_many_vectors and self.shares_loads
        return many_beside_weights or params.persistent_in_shared_memory or params.shift_rows

    def _loses_guards(self, params: ReductionParams, hardware: HardwareInfo) -> bool:
        """Whether a constant length spares a kernel guards or registers that count."""
        # Only the vectors at the ends of a shifted row have guards then (`lower.passes.iterations`).
        only_ends_have_guards = params.shift_rows and not params.unaligned_inputs
        # What is computed of a row and of weights, and held in registers, has guards of its own.
        #   H200, RMS norm to eight bits: 1.08 and 1.28 times as fast.
        holds_more = self.buffers.everything_takes_more and not params.project_persistent_buffers
        more_beside_weights = holds_more and self.shares_loads and not params.persistent_in_shared_memory
        makes_room = self._makes_room(params, hardware)
        return only_ends_have_guards or makes_room or self._is_masked or more_beside_weights

    def _makes_room(self, params: ReductionParams, hardware: HardwareInfo) -> bool:
        """Whether registers leave room for a second block on an SM only if the length is a constant."""
        resident = self.buffers.resident_blocks
        is_alone = resident(params, hardware, registers_to_work=REGISTERS_OF_ANY_LENGTH) == 1
        return is_alone and resident(params, hardware) > 1

    @cached_property
    def _is_masked(self) -> bool:
        """Whether a row is loaded with a mask of its own and nothing else.

        With a constant length both loads are in flight together: softmax is 1.17 times faster on an H200.
        Rows of several other inputs have loads in flight anyway.
        """
        full = [access.tensor for access in self.space.full_loads]
        return len(full) == 2 and sum(tensor.dtype is DataType.Bool for tensor in full) == 1


def _reads_many_elements(params: ReductionParams) -> bool:
    """Whether a thread has many small accesses.

    H200, rows of 50257 bf16, 50 accesses a thread: 2.6 times faster with a constant length (compare `./dev
    bench operations log_softmax` with FUSEWRIGHT_DISABLE=constant_sizes).
    """
    return not params.vectorize_inner_reduction and params.batches_per_block_inner_reduction > BATCHES
