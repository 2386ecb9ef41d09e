"""Schedulers' view of a GPU: a frozen `HardwareInfo`, and a table of described GPUs.

Schedulers read this and never a device, so they run anywhere. `fusewright.runtime.hardware` fills one from a
present device, and a CPU target takes one from the table.

Sources of the table. Per-architecture limits: CUDA C++ Programming Guide, "Technical Specifications per
Compute Capability". Sizes, clocks and bandwidths: NVIDIA's data sheets of H200 SXM, H100 SXM5, A100 SXM4 80
GB, L4, B200 (HGX). Arithmetic is without sparsity, although some of them state it with sparsity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fusewright.core.errors import OptionError

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

# CUDA C++ Programming Guide, technical specifications: the same on every architecture. Extents along x, y, z.
MAX_REGISTERS_PER_THREAD = 255
REGISTER_BYTES = 4
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_BLOCK = (1024, 1024, 64)
MAX_THREADS_PER_BLOCK = 1024
WARP_SIZE = 32
#: The most grid reductions that a kernel makes together, which is no limit of the GPU: each takes registers.
MAX_GRID_REDUCES = 4
# An SM gives a thread registers in steps of so many, to so many warps together, one for each of its four
# parts (CUDA occupancy calculator, since sm_80).
REGISTER_STEP, WARPS_TOGETHER = 8, 4
# Threads whose registers are moved together (PTX ISA, setmaxnreg).
WARP_GROUP = 128
# The widest access of one thread, in bytes, before sm_100 (PTX ISA, ld: .v4.b32).
MAX_VECTOR_BYTES = 16
# Addresses and sizes of a bulk copy are multiples of this (PTX ISA, cp.async.bulk).
BULK_BYTES = 16
#: Bytes that a thread copies asynchronously at once (PTX ISA, cp.async).
ASYNC_BYTES = (4, 8, 16)
# The compute capability from which on there are bulk copies and mbarriers that wait for them (PTX ISA).
BULK_COPIES_SINCE = (9, 0)
# The number of parts of a GPU (GPCs), and of neighbouring SMs. A cluster is within one part, and the smallest
# part may have few SMs. An H200 holds 66 clusters of 2 blocks, 39 of 3, 30 of 4, 15 of 8, 7 of 16.
PARTS, SM_PAIR = 8, 2
# Of one kernel: CUDA C++ Programming Guide, __global__ function parameters, since CUDA 12.1.
MAX_PARAMETER_BYTES = 32764
# Shared memory: words that lie this many apart are in one bank, which serves one at a time.
BANKS, BANK_BYTES = 32, 4


@dataclass(frozen=True)
class HardwareInfo:
    """A GPU's limits and speeds. Memory is in bytes, the clock in MHz, bandwidth in GB/s (1e9 bytes).

    Attributes:
        tensor_tflops: the speed of matrix instructions on 16-bit floats with sums in Float, in 1e12
            operations per second; a multiplication with an addition counts as two.
        float_tflops: the speed of Float arithmetic, in the same unit.
        shared_memory_per_block: the shared memory that every launch may use.
        shared_memory_per_block_optin: the most that a kernel may request (static and dynamic together).
        shared_memory_reserved: the part of an SM's shared memory that the system reserves per resident block.
        max_grid, max_block: extents along x, y, z.
    """

    name: str
    compute_capability: tuple[int, int]
    sm_count: int
    memory_bytes: int
    memory_bandwidth_gbs: float
    l2_bytes: int
    clock_mhz: int
    max_threads_per_sm: int
    max_blocks_per_sm: int
    shared_memory_per_sm: int
    shared_memory_per_block_optin: int
    tensor_tflops: float
    float_tflops: float
    shared_memory_per_block: int = 48 * KIB
    shared_memory_reserved: int = KIB
    max_threads_per_block: int = MAX_THREADS_PER_BLOCK
    warp_size: int = WARP_SIZE
    registers_per_sm: int = 65536
    registers_per_block: int = 65536
    max_registers_per_thread: int = MAX_REGISTERS_PER_THREAD
    max_grid: tuple[int, int, int] = MAX_GRID
    max_block: tuple[int, int, int] = MAX_BLOCK

    @property
    def max_cluster(self) -> int:
        """The largest number of blocks of a cluster, which share their memory; 1 if the GPU has no clusters.

        CUDA C++ Programming Guide, "Thread Block Clusters": 8 on every GPU since sm_90; the data-center chips
        allow 16 to a kernel that requests it.
        """
        if self.compute_capability < (9, 0):
            return 1
        return 16 if self.compute_capability[0] in (9, 10) else 8

    def resident_clusters(self, blocks: int, an_sm: int = 1) -> int:
        """The assumed number of resident clusters of so many blocks, with `an_sm` blocks on each SM.

        A cluster of two blocks has a pair of SMs. Larger clusters are within one part of the GPU, and the
        sizes of these parts vary between chips.
        """
        if blocks <= SM_PAIR:
            return self.sm_count // blocks * an_sm
        of_part = self.sm_count // PARTS * an_sm
        return (PARTS - 1) * (of_part // blocks)

    def resident_warps(self, registers: int) -> int:
        """The number of warps for which an SM has registers, if each thread uses so many; at least one."""
        of_warp = -(-registers // REGISTER_STEP) * REGISTER_STEP * self.warp_size
        return self.registers_per_sm // of_warp // WARPS_TOGETHER * WARPS_TOGETHER

    def registers_a_thread(self, threads: int) -> int:
        """The largest number of registers per thread with which an SM holds so many threads at once."""
        together = WARPS_TOGETHER * self.warp_size
        most = self.registers_per_sm // (-(-threads // together) * together)
        return min(most // REGISTER_STEP * REGISTER_STEP, self.max_registers_per_thread)

    @property
    def arch(self) -> str:
        """The architecture to compile for, as NVRTC names it.

        From Hopper on, the architecture-specific variant (`sm_90a`): warp-group matrix instructions and
        register reallocation exist only there, and a cubin is tied to its architecture anyway.
        """
        major, minor = self.compute_capability
        return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


_H100 = HardwareInfo(
    name="NVIDIA H100 80GB HBM3",
    compute_capability=(9, 0),
    sm_count=132,
    memory_bytes=80 * GIB,
    memory_bandwidth_gbs=3352.0,
    l2_bytes=50 * MIB,
    clock_mhz=1980,
    max_threads_per_sm=2048,
    max_blocks_per_sm=32,
    shared_memory_per_sm=228 * KIB,
    shared_memory_per_block_optin=227 * KIB,
    tensor_tflops=989.5,
    float_tflops=67.0,
)

DESCRIBED: Mapping[str, HardwareInfo] = {
    "h200": replace(
        _H100,
        name="NVIDIA H200",
        memory_bytes=141 * 10**9,
        memory_bandwidth_gbs=4800.0,
        l2_bytes=60 * MIB,  # as its driver says
    ),
    "h100": _H100,
    "a100": HardwareInfo(
        name="NVIDIA A100-SXM4-80GB",
        compute_capability=(8, 0),
        sm_count=108,
        memory_bytes=80 * GIB,
        memory_bandwidth_gbs=2039.0,
        l2_bytes=40 * MIB,
        clock_mhz=1410,
        max_threads_per_sm=2048,
        max_blocks_per_sm=32,
        shared_memory_per_sm=164 * KIB,
        shared_memory_per_block_optin=163 * KIB,
        tensor_tflops=312.0,
        float_tflops=19.5,
    ),
    "l4": HardwareInfo(
        name="NVIDIA L4",
        compute_capability=(8, 9),
        sm_count=58,
        memory_bytes=24 * GIB,
        memory_bandwidth_gbs=300.0,
        l2_bytes=48 * MIB,
        clock_mhz=2040,
        max_threads_per_sm=1536,
        max_blocks_per_sm=24,
        shared_memory_per_sm=100 * KIB,
        shared_memory_per_block_optin=99 * KIB,
        tensor_tflops=121.0,
        float_tflops=30.3,
    ),
    "b200": HardwareInfo(
        name="NVIDIA B200",
        compute_capability=(10, 0),
        sm_count=148,
        memory_bytes=180 * GIB,
        memory_bandwidth_gbs=8000.0,
        l2_bytes=126 * MIB,
        clock_mhz=1965,
        max_threads_per_sm=2048,
        max_blocks_per_sm=32,
        shared_memory_per_sm=228 * KIB,
        shared_memory_per_block_optin=227 * KIB,
        tensor_tflops=2250.0,
        float_tflops=75.0,
    ),
}


def described(name: str) -> HardwareInfo:
    """The described GPU `name` (any case).

    Raises:
        OptionError: no such description; the message lists the names.
    """
    info = DESCRIBED.get(name.lower()) if isinstance(name, str) else None
    if info is None:
        raise OptionError(option="described GPU", given=repr(name), expected=", ".join(DESCRIBED))
    return info
