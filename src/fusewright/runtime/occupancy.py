"""The number of blocks of a kernel that an SM holds at once, from the resources of a block.

The arithmetic is that of the CUDA occupancy calculator (CUDA C++ Programming Guide, "Occupancy calculator"),
with the allocation units of sm_80 and later.
"""

from __future__ import annotations

from dataclasses import dataclass

from fusewright.core.hardware import HardwareInfo
from fusewright.cuda.nvrtc import Resources

# The unit in which an SM gives shared memory to a block.
SHARED_UNIT = 128


@dataclass(frozen=True)
class Occupancy:
    """The number of blocks of one kernel per SM.

    Attributes:
        blocks: resident at once.
        warps: the warps of these blocks.
        share: the fraction of the most warps that an SM can hold.
        limited_by: the resource that limits the number of blocks: threads, blocks, registers or shared
            memory.
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
    if resources.registers:
        limits["registers"] = hardware.resident_warps(resources.registers) // warps
    used = resources.static_shared + shared_bytes
    if used:
        of_block = -(-(used + hardware.shared_memory_reserved) // SHARED_UNIT) * SHARED_UNIT
        limits["shared memory"] = hardware.shared_memory_per_sm // of_block
    limited_by = min(limits, key=limits.__getitem__)
    blocks = limits[limited_by]
    return Occupancy(blocks, blocks * warps, blocks * warps / most_warps, limited_by)
