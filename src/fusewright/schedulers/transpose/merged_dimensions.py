"""The dimensions that params of a transpose merge with the two sides of tiles, and those that they assume."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from fusewright.ir.axis import IterDomain
from fusewright.schedulers.params import TransposeParams
from fusewright.schedulers.transpose.access_groups import AccessGroups
from fusewright.sym import Symbol


def merged_dimensions(
    groups: AccessGroups, params: TransposeParams
) -> tuple[Sequence[IterDomain], Sequence[IterDomain]]:
    """Returns the dimensions to merge with the first tiled one and with the second.

    Raises:
        ParamsError: a position is that of no dimension, or of one that is tiled or merged already.
    """
    axes = groups.space.axes
    taken = {groups.inner1, groups.inner2}
    for name in ("dims_merged_with_1", "dims_merged_with_2"):
        positions = getattr(params, name)
        merged = [axes[p] for p in positions if 0 <= p < len(axes)]
        are_new = len(merged) == len(positions) and len({*taken, *merged}) == len(taken) + len(merged)
        params.require(are_new, name, "positions of dimensions that are not tiled")
        taken.update(merged)
    first, second = params.dims_merged_with_1, params.dims_merged_with_2
    return [axes[p] for p in first], [axes[p] for p in second]


def assumable(groups: AccessGroups, params: TransposeParams) -> tuple[IterDomain, ...]:
    """Returns the dimensions whose sizes the params may assume: all but the outermost, which only counts
    blocks.
    """
    tiled = {groups.inner1, groups.inner2, *chain(*merged_dimensions(groups, params))}
    axes = groups.space.axes
    others = [axis for axis in axes if axis not in tiled]
    return tuple(a for a in axes if isinstance(a.extent, Symbol) and a not in others[:1])
