"""The bytes that kernels hold of each row, and the blocks for which an SM has room then."""

from __future__ import annotations

from dataclasses import dataclass

from fusewright.core.hardware import REGISTER_BYTES, HardwareInfo
from fusewright.core.once import cached_property
from fusewright.ir.fusion import Fusion
from fusewright.schedulers.params import ReductionParams
from fusewright.schedulers.persistent.held_rows import Held, held_bytes
from fusewright.schedulers.reduction.step_loads import REGISTERS_TO_WORK


@dataclass(frozen=True, eq=False)
class RowBuffers:
    """What kernels of a fusion hold of a row until its reductions are complete."""

    fusion: Fusion

    @cached_property
    def everything(self) -> Held:
        """The bytes of an element if values computed before a reduction and needed after it are held."""
        return held_bytes(self.fusion, project=False)

    @cached_property
    def inputs(self) -> Held:
        """The bytes of an element if only inputs are held."""
        return held_bytes(self.fusion, project=True)

    @cached_property
    def everything_takes_more(self) -> bool:
        """Whether everything that may be held takes more than the inputs."""
        return self.everything.at_once > self.inputs.at_once

    def of(self, params: ReductionParams) -> Held:
        """The bytes of an element in a kernel with such params."""
        return self.inputs if params.project_persistent_buffers else self.everything

    def resident_blocks(
        self,
        params: ReductionParams,
        hardware: HardwareInfo,
        held: Held | None = None,
        registers_to_work: int = REGISTERS_TO_WORK,
    ) -> int:
        """Returns the number of blocks that hold rows for which an SM has room; 0 if none are held.

        Args:
            held: what registers hold, if not what the params say.
            registers_to_work: registers of a thread besides the row.
        """
        threads = max(1, params.lparams.bdimx) * params.lparams.bdimy
        elements = params.elements_a_thread // params.blocks_per_cluster * params.rows_in_flight
        if params.persistent_in_shared_memory:
            bytes_a_block = threads * elements * self.inputs.in_all
            return hardware.shared_memory_per_sm // max(1, bytes_a_block)
        held = self.of(params) if held is None else held
        registers = registers_to_work + elements * held.at_once // REGISTER_BYTES
        registers = min(registers, params.cparams.maxrregcount)
        return hardware.registers_per_sm // (threads * registers) if elements else 0
