"""Sums over values computed from inputs that are contiguous along different dimensions.

An example is a sum down the columns of x + y, where x is contiguous along rows and y along columns. A thread
has a square of elements and reads vectors of x along the rows and vectors of y down the columns,

    [I, R] -> [I BIDx, I TIDx, (R BIDy,) R TIDy | R serial, R unroll, R down, I vector]
    of y                                        | R serial, R unroll, I, R vector]

Both are in registers, where a transpose only renames elements. So nothing passes through shared memory, and
each sector is used completely: neighbouring threads x are neighbours in a row of x, and threads y in a column
of y. If a vector has all of what is contiguous along a row, threads x go down the columns instead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from fusewright.analyze.vectorize import unit_stride_axis
from fusewright.core.enums import ParallelType
from fusewright.core.hardware import HardwareInfo
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.value import TensorView
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.base import Facts
from fusewright.schedulers.params import LaunchParams, ReductionParams
from fusewright.schedulers.reduction.grid_reduction import blocks_of_column, partials_read_at_once
from fusewright.schedulers.reduction.space import ReductionSpace
from fusewright.schedulers.reference_map import Access
from fusewright.schedulers.sectors import Sectors
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_least
from fusewright.schedulers.vector_limits import VectorLimits

# Threads of a block.
THREADS = 512
# Threads of a block along rows at most, which read a line of memory together.
MAX_THREADS_ALONG = 16
# Elements of a thread's square along a row at most: larger squares take registers that more threads use
# better.
#   H200, bf16: sums of 4096 columns of 8192 from two inputs 48.6 us, in squares of 8 x 8 58.5.
MAX_ALONG = 4
# Bytes that a thread has in flight. The number of blocks is chosen as if they were half as many.
BYTES_IN_FLIGHT = 128


def loads_down_columns(space: ReductionSpace) -> tuple[Access, ...]:
    """Returns the loads of every element that are contiguous along the innermost reduced dimension, if others
    are contiguous along the innermost kept one, and no element is stored; else none.
    """
    return () if space.stores_all else crossed_accesses(space)


def crossed_accesses(space: ReductionSpace) -> tuple[Access, ...]:
    """Returns the loads and stores of every element that are contiguous along the innermost reduced
    dimension, if there are such loads, and others along the innermost kept one; else none.
    """
    if not space.iteration or not space.reduction:
        return ()
    rows, columns = space.iteration[-1], space.reduction[-1]
    if not _along(space, space.loads, rows) or not _along(space, space.loads, columns):
        return ()
    return _along(space, (*space.loads, *space.stores), columns)


def _along(space: ReductionSpace, accesses: Iterable[Access], inner: IterDomain) -> tuple[Access, ...]:
    found = ((access, unit_stride_axis(access.tensor)) for access in filter(space.is_full, accesses))
    return tuple(access for access, unit in found if unit is not None and access.axes.get(inner) is unit)


def tiled_accesses(space: ReductionSpace) -> tuple[Access, ...]:
    """Returns the crossed accesses, if all of them may pass through tiles; else none.

    Threads that load into a tile go through it in another order than those that compute what a load by index
    tensors would read there. And all reductions and results have the loops of one reduction, which go from
    tensor to tensor, but not through tiles.
    """
    found = crossed_accesses(space)
    if any(access.is_gathered for access in found):
        return ()
    tensors = [*space.reductions, *(access.tensor for access in space.stores)]
    return found if _are_connected(tensors, {access.tensor for access in found}) else ()


def _are_connected(tensors: Sequence[TensorView], apart: Collection[TensorView]) -> bool:
    """Whether there is a way between any two of these tensors, except through those that are `apart`."""
    reached, left = {tensors[0]}, [tensors[0]]
    while left:
        tensor = left.pop()
        beside = {*tensor.producers, *tensor.consumers} - reached
        reached |= beside
        left += [each for each in beside if each not in apart]
    return reached.issuperset(tensors)


def columns_side_by_side(space: ReductionSpace, facts: Facts) -> int:
    """Returns the number of columns whose elements follow one another in what is contiguous along rows."""
    along = _along(space, space.loads, space.iteration[-1])
    return min(space.side_by_side(facts, load) for load in along)


def crossed_limits(fusion: Fusion, space: ReductionSpace) -> tuple[VectorLimits, VectorLimits] | None:
    """Returns the limits on vectors along rows and down columns; None where not both are there."""
    if not loads_down_columns(space):
        return None
    rows, columns = space.iteration[-1], space.reduction[-1]
    # A vector of results may be stored by several accesses; in an input it may lie anywhere.
    aliased = {output.tensor for output in fusion.outputs if output.alias is not None}
    accesses = (*space.loads, *(store for store in space.stores if store.tensor in aliased))
    return VectorLimits(fusion, rows, accesses), VectorLimits(fusion, columns, accesses)


def crossed_sectors(
    fusion: Fusion, space: ReductionSpace, down: Collection[Access], short: bool = False
) -> Sectors:
    """Returns the sectors of a kernel in which accesses go along rows, but those of `down` along columns.

    Args:
        short: whether the threads along a row have all of its last dimension, and neighbours of these go down
            the columns.
    """
    columns = *space.iteration, *space.reduction
    rows = (*space.reduction, *space.iteration)
    if short:
        rows = *space.iteration[:-1], *space.reduction, space.iteration[-1]
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
    """Returns the elements of vectors along rows and down columns; None if either would be a single one."""
    along, down = (limit.width(facts) for limit in limits)
    return (along, down) if min(along, down) > 1 else None


def is_short(run: int, along: int) -> bool:
    """Whether a block's threads along rows have all of a run of neighbours, in vectors of `along`."""
    return run <= MAX_THREADS_ALONG * min(along, MAX_ALONG)


def crossed_params(
    rows: int, run: int, length: int, along: int, down: int, element_bytes: int, hardware: HardwareInfo
) -> ReductionParams:
    """Returns params that reduce `rows` columns of `length`, of which some inputs are read in vectors of
    `along` elements of a row, and others in vectors of `down` elements of a column.

    Args:
        run: the columns whose elements are neighbours in memory.
    """
    along = min(along, MAX_ALONG)
    vectors = ceil_div(run, along) if is_short(run, along) else ceil_div(rows, along)
    threads_x = min(MAX_THREADS_ALONG, power_of_two_at_least(vectors))
    threads_y = max(1, min(THREADS // threads_x, power_of_two_at_least(length // down)))
    lanes_down = threads_x == 1
    if lanes_down:
        threads_x = min(THREADS // threads_y, power_of_two_at_least(ceil_div(rows, along)))
    square_bytes = along * down * element_bytes
    unroll = max(1, min(BYTES_IN_FLIGHT // square_bytes, length // (down * threads_y)))
    grid = blocks_of_column(
        blocks=ceil_div(rows, along * threads_x),
        steps=length // (down * threads_y * unroll),
        bytes_in_flight=unroll * square_bytes // 2,
        read_at_once=partials_read_at_once(threads_y, along),
        hardware=hardware,
    )
    bdimx, bdimy = (threads_y, threads_x) if lanes_down else (threads_x, threads_y)
    return ReductionParams(
        fastest_dim=False,
        lanes_down_columns=lanes_down,
        unroll_factor_inner_reduction=unroll,
        vector_down_columns=down,
        vectorize_iter_dom=True,
        unroll_factor_iter_dom=along,
        lparams=LaunchParams(bdimx=bdimx, bdimy=bdimy, gdimy=grid),
        reason=f"{rows} columns of {length}, of which inputs are contiguous along rows and along columns: "
        f"{threads_x} x {threads_y} threads with {along} x {down} elements, {grid} blocks a column",
    )
