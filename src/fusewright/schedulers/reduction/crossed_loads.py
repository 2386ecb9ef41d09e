"""Sums over values computed from inputs that are contiguous along different dimensions.

An example is a sum down the columns of x + y, where x is contiguous along rows and y along columns. A thread
has a square of elements and reads vectors of x along the rows and vectors of y down the columns,

    [I, R] -> [I BIDx, I TIDx, (R BIDy,) R TIDy | R serial, R unroll, R down, I vector]
    of y                                        | R serial, R unroll, I, R vector]

Both are in registers, where a transpose only renames elements. So nothing passes through shared memory, and
each sector is used completely: neighbouring threads x are neighbours in a row of x, and threads y in a column
of y.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.analyze.vectorize import unit_stride_axis
from fusewright.core.enums import ParallelType
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.value import TensorView
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.base import Facts
from fusewright.schedulers.io import VectorLimits
from fusewright.schedulers.reduction.space import ReductionSpace
from fusewright.schedulers.reference_map import Access
from fusewright.schedulers.sectors import Sectors


def loads_down_columns(space: ReductionSpace) -> tuple[Access, ...]:
    """The loads of every element that are contiguous along the innermost reduced dimension, in a fusion in
    which others are along the innermost of those that are kept; none if there are not both, or if elements
    are stored as well.
    """
    if not space.iteration or not space.reduction or space.stores_all:
        return ()
    down = _along(space, space.reduction[-1])
    return down if down and _along(space, space.iteration[-1]) else ()


def _along(space: ReductionSpace, inner: IterDomain) -> tuple[Access, ...]:
    found = ((load, unit_stride_axis(load.tensor)) for load in space.full_loads)
    return tuple(load for load, unit in found if unit is not None and load.axes.get(inner) is unit)


def crossed_limits(fusion: Fusion, space: ReductionSpace) -> tuple[VectorLimits, VectorLimits] | None:
    """What bounds the vectors along rows and down columns; None where not both are there."""
    if not loads_down_columns(space):
        return None
    rows, columns = space.iteration[-1], space.reduction[-1]
    # A vector of results may be stored by several accesses; in an input it may lie anywhere.
    aliased = {output.tensor for output in fusion.outputs if output.alias is not None}
    accesses = (*space.loads, *(store for store in space.stores if store.tensor in aliased))
    return VectorLimits(fusion, rows, accesses), VectorLimits(fusion, columns, accesses)


def crossed_sectors(fusion: Fusion, space: ReductionSpace) -> Sectors:
    """Each access goes along its own contiguous dimension."""
    down = set(loads_down_columns(space))
    rows, columns = (*space.reduction, *space.iteration), (*space.iteration, *space.reduction)
    accesses = (*space.loads, *space.stores)
    return Sectors(fusion, tuple((each, columns if each in down else rows) for each in accesses))


def vectorize_down(schedule: Schedule, space: ReductionSpace, loads: Sequence[TensorView]) -> None:
    """[.., R down, I vector] -> [.., I, R vector] for those of `loads` that lie along the columns."""
    nodes = {access.node for access in loads_down_columns(space)}
    for load in loads:
        if load.definition in nodes:
            schedule.reorder(load, {-2: -1})
            schedule.parallelize(load, -2, ParallelType.unroll)
            schedule.parallelize(load, -1, ParallelType.vectorize)


def crossed_widths(limits: tuple[VectorLimits, VectorLimits], facts: Facts) -> tuple[int, int] | None:
    """Elements of the vectors along rows and down columns; None where one of them would be a single one."""
    along, down = (limit.width(facts) for limit in limits)
    return (along, down) if min(along, down) > 1 else None
