"""Joins of planes: dimensions with a few positions, each of which computes something else from the same
elements.

    stack([0.3 * r + 0.6 * g, r - g], 1)   for   r, g = x.unbind(1)

A thread that has all planes of an element loads their common inputs once and computes common subexpressions
once. In any other thread the position is known only at run time, and the thread computes every plane.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from fusewright.analyze.vectorize import unit_stride_axis
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.index_map import position_of
from fusewright.ir.node import Choose
from fusewright.schedulers.pointwise.space import PointwiseSpace
from fusewright.schedulers.reference_map import Access
from fusewright.sym import as_int

# Planes of a thread at most: each of its vectors takes registers in each plane.
MAX_PLANES = 8


@dataclass(frozen=True, slots=True)
class Planes:
    """The planes of a join.

    Attributes:
        at: the number of dimensions that are rows, the last of which are the planes.
        count: the number of planes.
    """

    at: int
    count: int


def find_planes(fusion: Fusion, space: PointwiseSpace, accesses: Collection[Access]) -> Planes | None:
    """Returns the innermost dimension of few places by which a join chooses what it computes of common
    elements; None if there is none, or it is the innermost of all, along which vectors run.
    """
    chosen = _chosen(fusion, space)
    loads = [access for access in accesses if fusion.is_input(access.tensor)]
    for at in range(len(space.axes) - 1, 0, -1):
        axis, inside = space.axes[at - 1], [axis for axis in space.axes[at:] if not axis.is_broadcast]
        count = as_int(axis.extent)
        if axis not in chosen or not inside or count is None or not 1 < count <= MAX_PLANES:
            continue
        whole = [access for access in loads if access.concrete.issuperset(inside)]
        if any(axis not in access.concrete for access in whole):
            return Planes(at, count)
    return None


def goes_along(access: Access, planes: IterDomain) -> bool:
    """Whether planes are neighbours in an input's memory, such as the channels of pixels."""
    along = access.axes.get(planes)
    return planes in access.stepped or (along is not None and along is unit_stride_axis(access.tensor))


def _chosen(fusion: Fusion, space: PointwiseSpace) -> set[IterDomain]:
    """Returns the dimensions by whose positions joins choose between what is computed."""
    found: set[IterDomain] = set()
    for node in fusion.nodes:
        if not isinstance(node, Choose) or node.output not in space.maps:
            continue
        dims = {position_of(symbol) for symbol in node.pred.free_symbols}
        axes = [axis for dim, axis in enumerate(node.output.shape) if dim in dims]
        found |= {ours for ours, theirs in space.maps[node.output].items() if theirs in axes}
    return found
