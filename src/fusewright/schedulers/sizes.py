"""Arithmetic on sizes in heuristics."""

from __future__ import annotations

from fusewright.core.hardware import WARP_SIZE, HardwareInfo

# An SM gives a thread registers in steps of so many, to so many warps together (CUDA occupancy calculator).
REGISTER_STEP, WARPS_TOGETHER = 8, 4


def ceil_div(size: int, parts: int) -> int:
    return -(-size // parts)


def whole_warps(threads: int) -> int:
    """As many threads, or more up to a multiple of a warp's."""
    return ceil_div(threads, WARP_SIZE) * WARP_SIZE


def registers_a_thread(threads: int, hardware: HardwareInfo) -> int:
    """What each of so many threads may use, at most, for an SM to hold all of them at once."""
    together = WARPS_TOGETHER * WARP_SIZE
    most = hardware.registers_per_sm // (ceil_div(threads, together) * together)
    return min(most // REGISTER_STEP * REGISTER_STEP, hardware.max_registers_per_thread)


def power_of_two_at_least(size: int) -> int:
    """The least power of two that is not below `size`; 1 for no elements."""
    return 1 << max(0, size - 1).bit_length()


def power_of_two_at_most(size: int) -> int:
    """The greatest power of two that is not above `size`; 1 for no elements."""
    return 1 << max(0, size.bit_length() - 1)
