"""Assumptions of a schedule about sizes."""

from __future__ import annotations

from math import lcm

from fusewright.analyze.runs import divisors
from fusewright.core.dtype import INT64_MAX
from fusewright.core.errors import ScheduleError
from fusewright.ir.fusion import Fusion
from fusewright.ir.value import TensorView
from fusewright.schedule.transforms import wrap
from fusewright.sym import Expr, Mul, Symbol, as_int, divides


def assume(fusion: Fusion, tensor: TensorView, dim: int, low: int, high: int) -> None:
    """Narrows the range of the size of logical dimension `dim`. ScheduleError if nothing is left of it.

    Of a product of sizes all but one are assumed to have one value before.
    """
    extent = tensor.logical[wrap(dim, len(tensor.logical))].extent
    if isinstance(extent, Mul):
        extent, others = _unknown_factor(fusion, extent)
        low, high = -(-low // others), high // others
    if isinstance(extent, Symbol):
        old_low, old_high = fusion.ranges.get(extent, (0, INT64_MAX))
        low, high = max(low, old_low), min(high, old_high)
        size = None
    else:
        size = as_int(extent)
        if size is None:
            raise ScheduleError(
                f"assume: the size {extent} of {tensor.name} is no plain dimension of an input",
                hint="of a product of sizes, assume all but one before",
            )
    if low > high or (size is not None and not low <= size <= high):
        raise ScheduleError(
            f"assume: dimension {dim} of {tensor.name} cannot have that size",
            expected=f"{extent} in [{low}, {high}]",
            given=str(size) if size is not None else "an empty range",
        )
    if isinstance(extent, Symbol):
        fusion.ranges[extent] = (low, high)


def _unknown_factor(fusion: Fusion, product: Mul) -> tuple[Expr, int]:
    """The factor that is not assumed to have one value, and what the others come to.

    The product itself, and 1, if there are several, or none.
    """
    unknown: list[Expr] = []
    others = product.coefficient
    for factor in product.factors:
        low, high = fusion.ranges.get(factor, (0, 1)) if isinstance(factor, Symbol) else (0, 1)
        if low == high > 0:
            others *= low
        else:
            unknown.append(factor)
    return (unknown[0], others) if len(unknown) == 1 and others > 0 else (product, 1)


def assume_multiple(fusion: Fusion, tensor: TensorView, dim: int, number: int) -> None:
    """The size of logical dimension `dim` is a multiple of `number`. ScheduleError if it cannot be."""
    if not 1 <= number <= INT64_MAX:
        raise ScheduleError(
            "assume_multiple: no size is a multiple of that", expected=f"1 to {INT64_MAX}", given=number
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
    known = {part: lcm(fusion.multiples.get(part, 1), number) for part in parts if isinstance(part, Symbol)}
    if any(multiple > INT64_MAX for multiple in known.values()):
        raise ScheduleError(
            f"assume_multiple: dimension {dim} of {tensor.name} cannot be a multiple of {number}",
            expected="what it shares a multiple of 64 bits with: it is assumed to be a multiple of others",
            given=", ".join(f"{part}, a multiple of {fusion.multiples.get(part, 1)}" for part in known),
        )
    fusion.multiples.update(known)
