"""Arithmetic on sizes in heuristics."""

from __future__ import annotations

from fusewright.core.hardware import WARP_SIZE


def ceil_div(size: int, parts: int) -> int:
    return -(-size // parts)


def whole_warps(threads: int) -> int:
    """As many threads, or more up to a multiple of a warp's."""
    return ceil_div(threads, WARP_SIZE) * WARP_SIZE


def power_of_two_at_least(size: int) -> int:
    """The least power of two that is not below `size`; 1 for no elements."""
    return 1 << max(0, size - 1).bit_length()


def power_of_two_at_most(size: int) -> int:
    """The greatest power of two that is not above `size`; 1 for no elements."""
    return 1 << max(0, size.bit_length() - 1)
