"""Vectors along several dimensions that are merged to one loop.

A tensor of 16384 x 4095 elements without gaps is one run of memory, so that vectors of 8 go through it though
8 does not divide its rows. What does not go through these dimensions as one run, such as the other side of a
pad, is read or stored element by element within the vector's loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusewright.analyze.runs import divisors
from fusewright.analyze.vectorize import are_one_run, power_of_two_divisor, widest_access
from fusewright.core.hardware import MAX_VECTOR_BYTES
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.schedulers.base import Facts
from fusewright.schedulers.io import FRESH_ALIGNMENT
from fusewright.schedulers.reference_map import Access
from fusewright.sym import Const, Symbol

# Accesses by element lie a vector apart in neighbouring threads: with 8 bytes, those of a warp span two cache
# lines of 128 bytes, twice as many as elements of 4 bytes need.
MIXED_VECTOR_BYTES = 8


@dataclass(frozen=True, slots=True)
class MergedVectors:
    """The vectors that can go through the dimensions from `dim` on of a fusion's iteration space.

    Attributes:
        dim: the outermost of these dimensions, whose size the vectors divide.
        width: elements.
        cost: accesses an element, of all loads and stores together.
    """

    dim: int
    width: int
    cost: float


def merged_vectors(
    fusion: Fusion, axes: Sequence[IterDomain], first: int, accesses: Sequence[Access], facts: Facts
) -> list[MergedVectors]:
    """What vectors there can be through several dimensions, none of them left of `first`.

    None through broadcasts, sizes that are products or sums of sizes, or in the memory of an input that an
    output may be written into: the lowering proves no more of them yet.
    """
    if any(facts.value(axis.extent) == 0 for axis in axes):
        return []
    if any(output.alias is not None for output in fusion.outputs):
        return []
    found = []
    for dim in range(len(axes) - 2, first - 1, -1):
        lanes = axes[dim:]
        if all(not axis.is_broadcast and isinstance(axis.extent, (Symbol, Const)) for axis in lanes):
            width, runs = _width(fusion, lanes, accesses, facts)
            found.append(MergedVectors(dim, width, runs / width + len(accesses) - runs))
    return found


def _width(
    fusion: Fusion, lanes: Sequence[IterDomain], accesses: Sequence[Access], facts: Facts
) -> tuple[int, int]:
    """The widest vector through these dimensions, and the number of accesses that can be one."""
    runs = [access for access in accesses if _is_run(access, lanes)]
    sizes = divisors(lanes[0].extent)
    if not runs or sizes is None:
        return 1, 0
    limit = MAX_VECTOR_BYTES if len(runs) == len(accesses) else MIXED_VECTOR_BYTES
    width = MAX_VECTOR_BYTES
    for each in sizes:
        width = power_of_two_divisor(facts.value(each), width)
    for access in runs:
        alignment, strides = _memory(fusion, access, lanes, facts)
        bytes_ = access.tensor.dtype.size
        width = widest_access(bytes_, width, strides, alignment, max(1, limit // bytes_))
    return width, len(runs)


def _is_run(access: Access, lanes: Sequence[IterDomain]) -> bool:
    """Whether an access goes through these dimensions as through one run of memory."""
    if access.by_index:
        return False
    ours = [access.axes.get(axis) for axis in lanes]
    present = [axis for axis in ours if axis is not None]
    return len(present) == len(lanes) and are_one_run(access.tensor, present)


def _memory(
    fusion: Fusion, access: Access, lanes: Sequence[IterDomain], facts: Facts
) -> tuple[int, list[int]]:
    """The alignment of the memory that is accessed, and its strides along the other dimensions."""
    tensor = access.tensor
    aliases = {output.tensor: output.alias for output in fusion.outputs if output.alias is not None}
    home = aliases.get(tensor, tensor)
    inside = {access.axes[axis] for axis in lanes}
    strides, step = [], 1
    for axis in reversed(tensor.allocation):
        if axis.is_broadcast or axis.is_reduction:
            continue
        size = facts.value(axis.extent)
        if axis not in inside and size > 1:
            strides.append(step)  # of memory of its own
        step *= size
    if not fusion.is_input(home):
        return FRESH_ALIGNMENT, strides
    position = fusion.inputs.index(home)
    own = [
        facts.strides[position][dim]
        for dim, axis in enumerate(tensor.shape)
        if not axis.is_broadcast and axis not in inside and facts.value(axis.extent) > 1
    ]
    return facts.alignment[position], own if home is tensor else [*own, *strides]
