"""Short rows that vectors do not divide: those of a block lie side by side in memory, as one run.

    [I, R] -> [BIDx, rows x R -> batches, TIDy, TIDx, vector]    what is loaded and stored
    [I, R] -> [BIDx, TIDy, TIDx | batches]                       what is computed

Whole vectors go between memory and shared memory; threads take the elements of their row from there.
"""

from __future__ import annotations

from collections.abc import Collection

from fusewright.core.enums import MemoryType, ParallelType
from fusewright.ir.value import TensorView
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.io import Ports
from fusewright.schedulers.params import ReductionParams
from fusewright.schedulers.reduction_space import ReductionSpace


def stage(schedule: Schedule, ports: Ports, space: ReductionSpace) -> list[TensorView]:
    """load -> use  becomes  load -> tile -> element -> use;  value -> store  value -> tile -> element ->
    store.

    Returns what goes along memory.
    """
    full = {access.node for access in space.loads if space.is_full(access)}
    along: list[TensorView] = []
    for load in ports.loads:
        if load.definition in full:
            tile = schedule.cache_after(load)
            schedule.set_memory_type(tile, MemoryType.shared)
            schedule.cache_after(tile)
            along += [load, tile]
    for store in ports.stores:
        if space.has_every_element(store):
            tile = schedule.cache_before(store)
            schedule.set_memory_type(tile, MemoryType.shared)
            along += [schedule.cache_before(store), store]
    return along


def lay_side_by_side(
    schedule: Schedule, reference: TensorView, along: Collection[TensorView], params: ReductionParams
) -> None:
    """[I, R] -> [BIDx, rows, TIDy, R], along which what is computed lies in shared memory."""
    sources = [t.definition.inputs[0] for t in along]
    tiles = [t for t in sources if t.memory is MemoryType.shared and t not in along]
    for tensor in (reference, *tiles):
        schedule.split(tensor, 0, params.lparams.bdimy)
        schedule.split(tensor, 0, params.rows_in_flight)
    for tile in tiles:
        schedule.store_along(tile, [1, 2, 3])


def cut_along(
    schedule: Schedule, along: Collection[TensorView], space: ReductionSpace, params: ReductionParams, width: int
) -> None:
    """The loops of what goes along memory."""
    for tensor in along:
        ours = space.maps[tensor]
        order = [ours[axis] for axis in (*space.iteration, *space.reduction)]
        moves = {tensor.loop.index(axis): i for i, axis in enumerate(order)}
        if any(old != new for old, new in moves.items()):
            schedule.reorder(tensor, moves)
        for _ in range(len(space.reduction) - 1):
            schedule.merge(tensor, len(space.iteration))
        for _ in range(len(space.iteration) - 1):
            schedule.merge(tensor, 0)
        schedule.split(tensor, 0, params.lparams.bdimy * params.rows_in_flight)
        schedule.merge(tensor, 1)
        schedule.split(tensor, 1, width)
        schedule.split(tensor, 1, params.lparams.bdimx)
        schedule.split(tensor, 1, params.lparams.bdimy)
        kinds = (ParallelType.grid_x, ParallelType.unroll, ParallelType.block_y, ParallelType.block_x)
        for position, kind in enumerate((*kinds, ParallelType.vectorize)):
            schedule.parallelize(tensor, position, kind)
