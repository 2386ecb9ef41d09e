"""Reductions of columns in tiles, where some inputs or outputs are contiguous along rows and others along
columns.

A block goes down its columns in steps. What is contiguous along the columns passes through a tile in shared
memory: threads load it along the columns, wait for each other, and then read it along the rows, as they read
the other inputs. An output takes the opposite way. So every access to global memory goes along memory,

    [I, R] -> [I BIDx, (R BIDy,) R steps | I TIDx, R TIDy | R unroll, I vector]
    of loads into tiles, and of stores from them
                                         | (I, R) unroll, (I, R) TIDy, (I, R) TIDx, R vector]

Squares in registers (`crossed_loads`) take fewer instructions, but need vectors along both dimensions.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from fusewright.core.enums import MemoryType, ParallelType
from fusewright.core.hardware import MAX_VECTOR_BYTES
from fusewright.ir.value import TensorView
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.io import (
    Ports,
    cache_inputs_and_outputs,
    input_hint,
    is_read_by_index,
    vectorize_ports,
)
from fusewright.schedulers.params import ReductionParams
from fusewright.schedulers.reduction.crossed_loads import tiled_accesses
from fusewright.schedulers.reduction.loops import distribute, inline, merge_to_rows_and_reduction
from fusewright.schedulers.reduction.space import ReductionSpace, reduction_space
from fusewright.schedulers.reference_map import Access
from fusewright.schedulers.transpose.banks import padding


@dataclass(frozen=True, slots=True)
class _Staged:
    """What passes through tiles.

    Attributes:
        pairs: tensors whose loops go along the columns: each load and its tile, each store and what it stores
            of a tile.
        tiles: the tensors in shared memory.
        loads, stores: those of `pairs`.
    """

    pairs: tuple[tuple[TensorView, TensorView], ...]
    tiles: tuple[TensorView, ...]
    loads: tuple[TensorView, ...]
    stores: tuple[TensorView, ...]


def reduce_tiles(schedule: Schedule, params: ReductionParams, hinted: Collection[TensorView]) -> None:
    """Schedules a kernel of tiles. `hinted`: the inputs whose loads have the cache hint of the params."""
    ports = cache_inputs_and_outputs(schedule, hinted, input_hint(params))
    staged = _stage(schedule, ports, tiled_accesses(_space(schedule)))
    space = _space(schedule)
    reference, first = _tile(schedule, space, params)
    _pad(schedule, staged, params, first)
    schedule.transform_like(reference)
    for pair in staged.pairs:
        _bind_along_columns(schedule, pair, params, first)
    _bind(schedule, reference, params, first)
    apart = {tensor for pair in staged.pairs for tensor in pair}
    rows = Ports(
        tuple(load for load in ports.loads if load not in apart),
        tuple(store for store in ports.stores if store not in apart),
    )
    width = params.vector_widths[1]
    partials = distribute(schedule, space, reference, rows, [first - 1, first + 2], width, apart=apart)
    _vectorize(schedule, staged, params)
    schedule.inline_at(partials[0], first, best_effort=True, selected=staged.loads)
    step = (first + 1, first + 2)
    inline(schedule, space, partials, width, load_position=first + 2, placed=staged.loads, serial=step)
    if params.prefetches_steps:
        _prefetch(schedule, ports.loads, first)


def _space(schedule: Schedule) -> ReductionSpace:
    space = reduction_space(schedule.fusion)
    assert not isinstance(space, str), space  # the scheduler has accepted it
    return space


def _stage(schedule: Schedule, ports: Ports, down: Collection[Access]) -> _Staged:
    """load -> use  becomes  load -> tile -> element -> use;  value -> store  value -> tile -> element ->
    store.
    """
    nodes = {access.node for access in down if access.node is not None}
    stored = {access.tensor for access in down if access.node is None}
    loads = tuple(load for load in ports.loads if load.definition in nodes)
    stores = tuple(store for store in ports.stores if store in stored)
    pairs, tiles = [], []
    for load in loads:
        tile = schedule.cache_after(load)
        schedule.set_memory_type(tile, MemoryType.shared)
        schedule.cache_after(tile)
        pairs.append((load, tile))
        tiles.append(tile)
    for store in stores:
        tile = schedule.cache_before(store)
        schedule.set_memory_type(tile, MemoryType.shared)
        pairs.append((schedule.cache_before(store), store))
        tiles.append(tile)
    return _Staged(tuple(pairs), tuple(tiles), loads, stores)


def _tile(schedule: Schedule, space: ReductionSpace, params: ReductionParams) -> tuple[TensorView, int]:
    """[..] -> [I, (R blocks,) R steps | tile of I, tile of R] on all tensors; returns the reference and the
    position of the bar.
    """
    reference = merge_to_rows_and_reduction(schedule, space)
    columns, rows = params.tile
    schedule.split(reference, 1, rows)
    schedule.split(reference, 0, columns)
    schedule.reorder(reference, {2: 1})
    blocks = max(params.lparams.gdimy, params.blocks_per_cluster)
    if blocks > 1:
        schedule.split(reference, 1, blocks)
        schedule.reorder(reference, {2: 1})
    schedule.transform_like(reference)
    return reference, 3 if blocks > 1 else 2


def _pad(schedule: Schedule, staged: _Staged, params: ReductionParams, first: int) -> None:
    """Stores tiles by columns, with a few elements after those of each thread's columns."""
    a_thread, rows = params.unroll_factor_iter_dom, params.tile[1]
    for tile in staged.tiles:
        added = padding(params.lparams.bdimx, a_thread * rows, tile.dtype.size, params.vector_down_columns)
        schedule.split(tile, first, a_thread)
        schedule.store_along(tile, [first, first + 1, first + 2], added)


def _bind_along_columns(
    schedule: Schedule, pair: tuple[TensorView, TensorView], params: ReductionParams, first: int
) -> None:
    """[.. | tile of I, tile of R] -> [.. | unroll, TIDy, TIDx, R vector] on both tensors."""
    lead, other = pair
    schedule.split(lead, first + 1, params.vector_down_columns)
    schedule.merge(lead, first)
    schedule.split(lead, first, params.lparams.bdimx)
    schedule.split(lead, first, params.lparams.bdimy)
    schedule.transform_like(lead, selected=[other])
    threads = (ParallelType.unroll, ParallelType.block_y, ParallelType.block_x)
    _parallelize(schedule, lead, params, first, threads)
    schedule.parallelize_like(lead, selected=[other])


def _bind(schedule: Schedule, tensor: TensorView, params: ReductionParams, first: int) -> None:
    """[.. | tile of I, tile of R] -> [.. | TIDx, TIDy, R unroll, I vector]."""
    schedule.split(tensor, first + 1, params.lparams.bdimy)
    schedule.split(tensor, first, params.unroll_factor_iter_dom)
    # [TIDx, vector, unroll, TIDy] -> [TIDx, TIDy, unroll, vector]
    schedule.reorder(tensor, {first + 3: first + 1, first + 1: first + 3})
    threads = [ParallelType.block_x, ParallelType.block_y, ParallelType.unroll]
    if params.unroll_factor_iter_dom > 1:
        threads.append(ParallelType.unroll)
    _parallelize(schedule, tensor, params, first, threads)


def _parallelize(
    schedule: Schedule,
    tensor: TensorView,
    params: ReductionParams,
    first: int,
    inside: Sequence[ParallelType],
) -> None:
    """Binds the blocks, and the loops from `first` on."""
    schedule.parallelize(tensor, 0, ParallelType.grid_x)
    if first == 3:
        across = ParallelType.grid_y if params.cross_grid_inner_reduction else ParallelType.cluster_x
        schedule.parallelize(tensor, 1, across)
    for position, kind in enumerate(inside, start=first):
        schedule.parallelize(tensor, position, kind)


def _vectorize(schedule: Schedule, staged: _Staged, params: ReductionParams) -> None:
    """Vectors of the accesses along columns, and of tiles as loads are written to them."""
    width = params.vector_down_columns
    vectorize_ports(schedule, Ports(staged.loads, staged.stores), width)
    for _, tile in staged.pairs[: len(staged.loads)]:
        if 1 < width <= MAX_VECTOR_BYTES // tile.dtype.size:
            schedule.parallelize(tile, -1, ParallelType.vectorize)


def _prefetch(schedule: Schedule, loads: Sequence[TensorView], first: int) -> None:
    """Loads the elements of the next step, where no other load says which they are."""
    for load in loads:
        is_in_steps = load.inline_at >= first and not load.loop[first - 1].is_broadcast
        if is_in_steps and not is_read_by_index(load):
            schedule.prefetch(load)
