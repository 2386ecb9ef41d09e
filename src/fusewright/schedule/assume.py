"""What a schedule takes to be true of sizes."""

from __future__ import annotations

from math import lcm

from fusewright.analyze.runs import divisors
from fusewright.core.errors import ScheduleError
from fusewright.ir.fusion import Fusion
from fusewright.ir.value import TensorView
from fusewright.schedule.transforms import wrap
from fusewright.sym import Symbol, as_int, divides


def assume(fusion: Fusion, tensor: TensorView, dim: int, low: int, high: int) -> None:
    """Narrows the range of the size of logical dimension `dim`. ScheduleError if nothing is left of it."""
    extent = tensor.logical[wrap(dim, len(tensor.logical))].extent
    if isinstance(extent, Symbol):
        old_low, old_high = fusion.ranges.get(extent, (0, high))
        low, high = max(low, old_low), min(high, old_high)
        size = None
    else:
        size = as_int(extent)
        if size is None:
            raise ScheduleError(
                f"assume: the size {extent} of {tensor.name} is no plain dimension of an input"
            )
    if low > high or (size is not None and not low <= size <= high):
        raise ScheduleError(
            f"assume: dimension {dim} of {tensor.name} cannot have that size",
            expected=f"{extent} in [{low}, {high}]",
            given=str(size) if size is not None else "an empty range",
        )
    if isinstance(extent, Symbol):
        fusion.ranges[extent] = (low, high)


def assume_multiple(fusion: Fusion, tensor: TensorView, dim: int, number: int) -> None:
    """The size of logical dimension `dim` is a multiple of `number`. ScheduleError if it cannot be."""
    if number < 1:
        raise ScheduleError(
            "assume_multiple: no size is a multiple of that", expected="1 or more", given=number
        )
    extent = tensor.logical[wrap(dim, len(tensor.logical))].extent
    if divides(number, extent):
        return
    parts = divisors(extent) or ()
    if not parts or any(not isinstance(part, Symbol) and not divides(number, part) for part in parts):
        raise ScheduleError(
            f"assume_multiple: dimension {dim} of {tensor.name} cannot be a multiple of {number}",
            expected="a size of inputs, or what is made from such sizes and multiples of the number",
            given=str(extent),
        )
    for part in parts:
        if isinstance(part, Symbol):
            fusion.multiples[part] = lcm(fusion.multiples.get(part, 1), number)
