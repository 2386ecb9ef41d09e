"""Wider vectors for reductions whose aligned vectors are narrow: shifted by each row's start, or starting at
any element.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fusewright.analyze.vectorize import power_of_two_divisor
from fusewright.ir.fusion import Fusion
from fusewright.ir.value import TensorView
from fusewright.schedulers.base import Facts
from fusewright.schedulers.merged_vectors import MergedVectorLimits
from fusewright.schedulers.params import ReductionParams
from fusewright.schedulers.reduction.space import ReductionSpace
from fusewright.schedulers.reference_map import Access
from fusewright.schedulers.shifted_rows import ENOUGH_BYTES, ShiftedRows, is_narrow, memory_order
from fusewright.schedulers.vector_limits import VectorLimits, Vectors
from fusewright.sym import Expr

# Elements of a row below which its two edges cost more than vectors save.
LEAST_SHIFTED = 512
# Elements of the shortest rows whose vectors may start at any element: they have no edges.
#   H200, misaligned bf16, us by element and by such vectors: softmax backward 8192x160 9.2 and 6.6,
#   131072x96 44.9 and 25.2, softmax 262144x64 24.4 and 21.2, logsumexp 131072x128 28.1 and 16.1, variance
#   262144x48 19.0 and 14.0, sum 262144x64 15.3 and 13.9, maximum with its place 65536x256 19.8 and 20.2.
LEAST_UNALIGNED = 32


def is_narrow_to_stage(width: int, other: Vectors, shares_loads: bool) -> bool:
    """Whether vectors of `width` elements are so narrow that rows pay that are staged in `other` ones.

    Vectors of 4 bytes are narrow, too, unless rows read something in common.
    H200, of a copy's speed, staged and by vectors of 4 bytes: softmax of 258 bf16 0.90 and 0.82, of 1002 0.96
    and 0.88, of 257 float 0.99 and 0.87; layer norm of 514 0.75 and 0.78.
    """
    return is_narrow(width, other, ENOUGH_BYTES if shares_loads else ENOUGH_BYTES + 1)


def wider_vectors(
    fusion: Fusion,
    space: ReductionSpace,
    limits: VectorLimits | None,
    shifted: ShiftedRows,
    aligned: int,
    length: int,
    facts: Facts,
    enough: int = ENOUGH_BYTES,
    weights: bool = False,
    shortest: int = LEAST_SHIFTED,
) -> tuple[Vectors, bool] | None:
    """Returns vectors of rows that pay where aligned ones are narrow, and whether those of each row begin at
    its own aligned address; None where there are none, or aligned vectors are wide enough.

    Inputs with unaligned vectors along rows have an element for each point, unless `weights`: those of
    weights take the registers of two each, too.

    Args:
        aligned: elements of the aligned vectors.
        length: elements of a row.
        enough: bytes from which on aligned vectors are wide enough. Where some of the others would start at
            any element, ENOUGH_BYTES are.
        weights: whether vectors of inputs that several points read may start at any element, too.
        shortest: elements of the shortest rows that are shifted.
    """
    anywhere = limits.vectors(facts, aligned) if limits is not None and length >= LEAST_UNALIGNED else None
    from_each_start = shifted.vectors(facts) if length >= shortest else None
    # Beside wider elements, as float weights, vectors of the rows' own are half as wide.
    element = min((load.tensor.dtype.size for load in space.full_loads), default=ENOUGH_BYTES)
    for found, shifts in ((anywhere, False), (from_each_start, True)):
        if found is None:
            continue
        are_narrow = not shifts and found.width > aligned and aligned * element < ENOUGH_BYTES
        if not (are_narrow or is_narrow(aligned, found, ENOUGH_BYTES if found.unaligned else enough)):
            continue
        if weights or space.are_read_in_full([fusion.inputs[i] for i in found.unaligned]):
            return found, shifts
    return None


@dataclass(frozen=True, slots=True)
class SeveralDimensions:
    """Vectors that cross several of the innermost reduced dimensions.

    Attributes:
        width: elements per vector.
        multiples: for each of the dimensions, outermost in memory first, a number that its size is a multiple
            of.
    """

    width: int
    multiples: tuple[int, ...]

    def of(self, params: ReductionParams) -> ReductionParams:
        """`params` of this width, which say so."""
        how = f"vectors through {len(self.multiples)} dimensions as one"
        return replace(params, vectorized_dims=self.multiples, reason=f"{params.reason}; {how}")


@dataclass(frozen=True, eq=False)
class DimensionsInside:
    """The innermost reduced dimensions of rows, which vectors can cross.

    Attributes:
        sizes: their sizes, outermost in memory first.
        accesses: the number of accesses along them.
        limits: the limits on the vectors.
    """

    sizes: tuple[Expr, ...]
    accesses: int
    limits: MergedVectorLimits

    def through_several(self, width: int, facts: Facts) -> SeveralDimensions | None:
        """Aligned vectors that take fewer accesses than those along the innermost dimension, of `width`, if
        there are such.
        """
        found = [each for each in self.limits.vectors(0, facts) if each.vectors.width > width]
        best = min(found, key=lambda each: (each.vectors.cost, -each.dim), default=None)
        if best is None or best.vectors.unaligned or best.vectors.cost >= self.accesses / width:
            return None
        left, multiples = best.vectors.width, []
        for size in reversed(self.sizes[best.dim :]):
            multiples.append(power_of_two_divisor(facts.value(size), left))
            left //= multiples[-1]
        return SeveralDimensions(best.vectors.width, tuple(reversed(multiples)))


def dimensions_inside(fusion: Fusion, space: ReductionSpace) -> DimensionsInside | None:
    """Returns the innermost reduced dimensions of a fusion; None where there are not several."""
    inside = space.reduced_axes_inside
    if not space.is_inner or len(inside) < 2:
        return None
    accesses = [access for access in (*space.loads, *space.stores) if inside[-1] in access.concrete]
    limits = MergedVectorLimits(fusion, inside, accesses, divide_product=True)
    return DimensionsInside(tuple([axis.extent for axis in inside]), len(accesses), limits)


def with_wider_vectors(params: ReductionParams, vectors: Vectors, shifts: bool) -> ReductionParams:
    """Returns the params with vectors that `wider_vectors` found."""
    how = "aligned by the start of each row" if shifts else "loaded from any element on"
    return replace(
        params, shift_rows=shifts, unaligned_inputs=vectors.unaligned, reason=f"{params.reason}; {how}"
    )


def aligned_rows(space: ReductionSpace) -> TensorView | None:
    """At whose aligned addresses vectors begin: an output of all dimensions, else the main load."""
    access = _aligned(space)
    return access.tensor if access is not None else None


def _aligned(space: ReductionSpace) -> Access | None:
    full = [access for access in space.stores if space.has_every_element(access.tensor)]
    if full:
        return full[0]
    return space.main if space.main is not None and space.is_full(space.main) else None


def rows_of_reductions(fusion: Fusion, space: ReductionSpace) -> ShiftedRows:
    """The shifted vectors along reduced rows, which are one run of memory each."""
    inner = space.inner_axis if space.is_inner else None
    accesses, axes = (*space.loads, *space.stores), space.reference.logical
    aligned = _aligned(space)
    if aligned is not None:
        order = memory_order(aligned, axes) or []
        if set(order[len(order) - len(space.reduction) :]) != set(space.reduction):
            aligned = None
    return ShiftedRows(fusion, axes, inner, accesses, aligned)
