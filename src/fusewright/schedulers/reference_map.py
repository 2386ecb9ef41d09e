"""Which axis of every tensor corresponds to each axis of the one that a scheduler takes its loops from."""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.ir.axis import IterDomain
from fusewright.ir.value import TensorView
from fusewright.schedule.propagate import spanning_walk

#: The reference's axis -> a tensor's.
AxisMap = dict[IterDomain, IterDomain]


def reference_maps(reference: TensorView, axes: Sequence[IterDomain]) -> dict[TensorView, AxisMap]:
    """For each tensor that is connected with `reference`, its axis for those of `axes` that it has."""
    maps: dict[TensorView, AxisMap] = {reference: {axis: axis for axis in axes}}
    for source, target, mapping in spanning_walk(reference):
        maps[target] = {ours: mapping[axis] for ours, axis in maps[source].items() if axis in mapping}
    return maps
