"""The `HardwareInfo` of a device's target: a GPU that is present, or a simulated one."""

from __future__ import annotations

import functools

import torch

from fusewright.core.errors import DeviceError, UnsupportedDeviceError
from fusewright.core.hardware import DESCRIBED, HardwareInfo, described
from fusewright.core.options import Options
from fusewright.cuda import driver

KILO = 1000
BITS_PER_BYTE = 8
# Memory transfers twice a clock on every type that the driver reports a clock for.
TRANSFERS_PER_CLOCK = 2
# Of an SM that no table describes, operations a clock: 128 lanes that multiply and add (CUDA C++ Programming
# Guide, arithmetic instructions), and matrix instructions, which are 4 (L4) to 30 times (B200) as fast.
FLOAT_OPERATIONS_PER_CLOCK, TENSOR_SPEEDUP = 256, 8


def hardware_of(device: torch.device, options: Options) -> HardwareInfo:
    """What schedulers read for tensors on `device`.

    A CUDA device is described by its driver; a CPU stands for the GPU that `options.sim_device` names.

    Raises:
        OptionError: no GPU of that name is described.
        UnsupportedDeviceError: neither a CPU nor a CUDA device.
        DriverError: the driver is missing or refuses.
    """
    if device.type == "cuda":
        return from_device(device.index if device.index is not None else torch.cuda.current_device())
    if device.type == "cpu":
        return described(options.sim_device)
    raise UnsupportedDeviceError(given=device)


def default_device() -> torch.device:
    """Where a call runs that names no device, by its inputs or otherwise: a GPU, or the simulator."""
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


def present(device: torch.device) -> torch.device:
    """The device that stands for one that may not be here: itself, or without any GPU the simulator.

    DeviceError for a GPU that is not among those here.
    """
    if device.type != "cuda":
        return device
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        return torch.device("cpu")
    index = torch.cuda.current_device() if device.index is None else device.index
    if index >= count:
        raise DeviceError(what="a call", expected=f"one of {count} GPUs here", given=device)
    return torch.device("cuda", index)


@functools.cache
def from_device(index: int) -> HardwareInfo:
    """The description of CUDA device `index`, read from the driver once."""
    name = driver.device_name(index)

    def attribute(suffix: str) -> int:
        return driver.device_attribute(index, suffix)

    sm_count, clock_mhz = attribute("MULTIPROCESSOR_COUNT"), attribute("CLOCK_RATE") // KILO
    tensor_tflops, float_tflops = _speeds(name, sm_count, clock_mhz)
    return HardwareInfo(
        name=name,
        compute_capability=(attribute("COMPUTE_CAPABILITY_MAJOR"), attribute("COMPUTE_CAPABILITY_MINOR")),
        sm_count=sm_count,
        memory_bytes=driver.device_memory(index),
        memory_bandwidth_gbs=_bandwidth(
            name, attribute("MEMORY_CLOCK_RATE"), attribute("GLOBAL_MEMORY_BUS_WIDTH")
        ),
        l2_bytes=attribute("L2_CACHE_SIZE"),
        clock_mhz=clock_mhz,
        max_threads_per_sm=attribute("MAX_THREADS_PER_MULTIPROCESSOR"),
        max_blocks_per_sm=attribute("MAX_BLOCKS_PER_MULTIPROCESSOR"),
        shared_memory_per_sm=attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        shared_memory_per_block_optin=attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        tensor_tflops=tensor_tflops,
        float_tflops=float_tflops,
        shared_memory_per_block=attribute("MAX_SHARED_MEMORY_PER_BLOCK"),
        shared_memory_reserved=attribute("RESERVED_SHARED_MEMORY_PER_BLOCK"),
        max_threads_per_block=attribute("MAX_THREADS_PER_BLOCK"),
        warp_size=attribute("WARP_SIZE"),
        registers_per_sm=attribute("MAX_REGISTERS_PER_MULTIPROCESSOR"),
        registers_per_block=attribute("MAX_REGISTERS_PER_BLOCK"),
    )


def _bandwidth(name: str, memory_clock_khz: int, bus_bits: int) -> float:
    """GB/s of device memory: the data sheet's for a described GPU, else from clock and bus width."""
    for info in DESCRIBED.values():
        if info.name == name:
            return info.memory_bandwidth_gbs
    return memory_clock_khz * KILO * TRANSFERS_PER_CLOCK * bus_bits / BITS_PER_BYTE / 1e9


def _speeds(name: str, sm_count: int, clock_mhz: int) -> tuple[float, float]:
    """(tensor, float) operations, in 1e12 a second: the data sheet's, else from SMs and clock."""
    for info in DESCRIBED.values():
        if info.name == name:
            return info.tensor_tflops, info.float_tflops
    speed = FLOAT_OPERATIONS_PER_CLOCK * sm_count * clock_mhz * 1e6 / 1e12
    return TENSOR_SPEEDUP * speed, speed
