"""How many blocks of a kernel an SM holds at once, from what one takes.

The arithmetic is that of the CUDA occupancy calculator (CUDA C++ Programming Guide, "Occupancy calculator"),
with the units of allocation that sm_80 and later have.
"""

from __future__ import annotations

from dataclasses import dataclass

from fusewright.core.hardware import MAX_REGISTERS_PER_THREAD, HardwareInfo
from fusewright.cuda.nvrtc import Resources

# Units in which an SM gives registers to a warp and shared memory to a block, and the warps that it gives
# registers to together: one for each of its four parts.
REGISTER_UNIT, SHARED_UNIT, WARP_UNIT = 256, 128, 4


@dataclass(frozen=True)
class Occupancy:
    """What an SM holds of one kernel.

    Attributes:
        blocks: resident at once. warps: of these blocks. share: of the most warps that an SM holds.
        limited_by: what there is no more of for another block: threads, blocks, registers or shared memory.
    """

    blocks: int
    warps: int
    share: float
    limited_by: str

    def __str__(self) -> str:
        return f"{self.blocks} blocks an SM ({self.share:.0%} of its warps), limited by {self.limited_by}"


def occupancy(resources: Resources, threads: int, shared_bytes: int, hardware: HardwareInfo) -> Occupancy:
    """Of blocks of `threads` threads with `shared_bytes` of dynamic shared memory."""
    warps = -(-threads // hardware.warp_size)
    most_warps = hardware.max_threads_per_sm // hardware.warp_size
    limits = {"threads": most_warps // warps, "blocks": hardware.max_blocks_per_sm}
    of_warp = _rounded(resources.registers * hardware.warp_size, REGISTER_UNIT)
    if of_warp:
        with_registers = hardware.registers_per_sm // of_warp
        limits["registers"] = with_registers // WARP_UNIT * WARP_UNIT // warps
    used = resources.static_shared + shared_bytes
    if used:
        of_block = _rounded(used + hardware.shared_memory_reserved, SHARED_UNIT)
        limits["shared memory"] = hardware.shared_memory_per_sm // of_block
    limited_by = min(limits, key=limits.__getitem__)
    blocks = limits[limited_by]
    return Occupancy(blocks, blocks * warps, blocks * warps / most_warps, limited_by)


def most_registers(threads: int, hardware: HardwareInfo) -> int:
    """Registers that a thread may use where blocks have so many threads: one block has to fit."""
    of_warp = hardware.registers_per_block // -(-threads // hardware.warp_size)
    return min(MAX_REGISTERS_PER_THREAD, of_warp // REGISTER_UNIT * REGISTER_UNIT // hardware.warp_size)


def _rounded(amount: int, unit: int) -> int:
    return -(-amount // unit) * unit
