"""Sums down columns of short rows, of which a thread has several whole ones side by side in memory.

Sixteen pixels of three bytes are three vectors of sixteen, and what is said of each pixel, such as a mask,
is one. Neighbouring threads go down the columns:

    [I, R, S] -> [I BIDx, (I TIDy,) (R blocks y,) R TIDx | R serial, R unroll, R joined, S]

A load of every point has (R joined, S) in vectors, a load that S lacks has R joined. Each thread adds up its
rows in registers, so that threads exchange one row of results, not a vector of each as in `joined_rows`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from fusewright.core.enums import ParallelType
from fusewright.core.hardware import MAX_VECTOR_BYTES, HardwareInfo
from fusewright.ir.value import TensorView
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.io import (
    Ports,
    cache_inputs_and_outputs,
    find_loads,
    inline_rest,
    input_hint,
    vectorize_ports,
)
from fusewright.schedulers.params import CompileParams, LaunchParams, ReductionParams
from fusewright.schedulers.reduction.grid_reduction import blocks_of_column, partials_read_at_once
from fusewright.schedulers.reduction.joined_rows import APART, joins_rows
from fusewright.schedulers.reduction.loops import feeds
from fusewright.schedulers.reduction.space import ReductionSpace, reduction_space
from fusewright.schedulers.sizes import ceil_div, power_of_two_at_most
from fusewright.sym import as_int

# Bytes of a thread's partial results of a row at most, in registers.
MAX_PARTIAL_BYTES = 32
# Threads of a block.
THREADS = 256
# Threads of an SM for which registers are left. Left alone, the CUDA compiler spares registers for more, and
# waits for a few loads at a time.
THREADS_AN_SM = 1024
# Bytes that each thread has in flight, where registers hold these.
BYTES_IN_FLIGHT = 128
# Vectors of rows that each thread adds up at least.
MIN_STEPS = 2


@dataclass(frozen=True, slots=True)
class ShortRows:
    """Rows that are reduced, in several stretches of memory.

    Attributes:
        count: the number of stretches.
        length: the rows of a stretch.
        row: the elements of a row.
        width: the rows that vectors divide, of what rows have an element each.
        row_bytes: the bytes of all that is loaded for a row.
        result_bytes: the bytes of all results of an element of a row.
    """

    count: int
    length: int
    row: int
    width: int
    row_bytes: int
    result_bytes: int


def whole_row_params(rows: ShortRows, hardware: HardwareInfo) -> ReductionParams | None:
    """Returns params that reduce the rows; None where these are too long or too few."""
    steps = rows.length // rows.width
    if rows.width == 1 or steps < MIN_STEPS or rows.row * rows.result_bytes > MAX_PARTIAL_BYTES:
        return None
    down = min(THREADS, power_of_two_at_most(steps // MIN_STEPS))
    along = max(1, min(THREADS // down, rows.count // (2 * hardware.sm_count)))
    in_flight = rows.width * rows.row_bytes
    unroll = max(1, min(BYTES_IN_FLIGHT // in_flight, steps // down))
    blocks = blocks_of_column(
        blocks=ceil_div(rows.count, along),
        steps=steps // (down * unroll),
        bytes_in_flight=unroll * in_flight,
        read_at_once=partials_read_at_once(down, rows.row),
        hardware=hardware,
    )
    return ReductionParams(
        joined_rows=rows.width,
        lanes_down_columns=True,
        unroll_factor_inner_reduction=unroll,
        unroll_factor_iter_dom=rows.row,
        cparams=CompileParams(maxrregcount=hardware.registers_a_thread(THREADS_AN_SM)),
        lparams=LaunchParams(bdimx=down, bdimy=along, gdimy=blocks),
        reason=f"{rows.count} times {rows.row} columns of {rows.length}: {down} threads down the "
        f"columns, each with {unroll} times {rows.width} whole rows in flight, {along} times a block, "
        f"{blocks} blocks a column",
    )


def reduce_whole_rows(
    schedule: Schedule, params: ReductionParams, read_once: Collection[TensorView] = ()
) -> None:
    """Schedules a fusion that `reduction` takes, and whose rows `joined_rows.joins_rows`.

    Raises:
        ParamsError: a thread's columns are not those of a row.
    """
    cache_inputs_and_outputs(schedule, read_once, input_hint(params))
    space = reduction_space(schedule.fusion)
    assert isinstance(space, ReductionSpace), space
    if not joins_rows(schedule.fusion, space):
        params.expect("joined_rows", 1, APART)
    reference, launch, [reduced] = space.reference, params.lparams, space.reduction
    row = as_int(space.iteration[-1].extent)
    params.require(row is not None, "lanes_down_columns", "False where no definition states a row's size")
    params.expect("unroll_factor_iter_dom", row, "where a thread has whole rows")
    params.expect("vectorize_iter_dom", False, "where a thread has whole rows")
    schedule.assume_multiple(reference, reference.logical.index(reduced), params.joined_rows)
    schedule.order_loops(reference, [*space.iteration[:-1], reduced, space.iteration[-1]])
    stretches = len(space.iteration) - 1
    for _ in range(stretches - 1):
        schedule.merge(reference, 0)
    first = min(stretches, 1)
    for factor in (params.joined_rows, launch.bdimx, params.unroll_factor_inner_reduction):
        schedule.split(reference, first, factor)
    # [(I,) serial, unroll, threads, joined, S] -> [(I,) threads, serial, unroll, joined, S]
    schedule.reorder(reference, {first + 2: first})
    bound = [ParallelType.grid_x] if stretches else []
    shared_by = max(launch.gdimy, params.blocks_per_cluster)
    if shared_by > 1:
        schedule.split(reference, first + 1, shared_by)
        schedule.reorder(reference, {first + 2: first})
        bound.append(ParallelType.grid_y if params.cross_grid_inner_reduction else ParallelType.cluster_x)
    if launch.bdimy > 1:
        params.require(stretches > 0, "lparams.bdimy", "1 where all columns are side by side")
        schedule.split(reference, 0, launch.bdimy)
        bound.insert(1, ParallelType.block_y)
    bound.append(ParallelType.block_x)
    serial = len(bound)
    for position, kind in enumerate([*bound, ParallelType.serial, *[ParallelType.unroll] * 3]):
        if kind is not ParallelType.serial:
            schedule.parallelize(reference, position, kind)
    schedule.transform_like(reference)
    partials = [schedule.rfactor(tensor, [serial, serial + 1, serial + 2]) for tensor in space.reductions]
    schedule.transform_like(partials[0])
    schedule.parallelize_like(partials[0])
    loads = [load for load in find_loads(schedule.fusion) if feeds(load, {*partials})]
    for load in loads:
        _vectorize(schedule, load, params.joined_rows)
    schedule.inline_at(partials[0], serial + 1, best_effort=True, selected=loads)
    inline_rest(schedule, {*loads})


def _vectorize(schedule: Schedule, load: TensorView, width: int) -> None:
    """[.., joined, S] -> [.., (joined, S), vector], or [.., S, joined vector] where S is a broadcast."""
    joined, elements = load.loop[-2:]
    if joined.is_broadcast:
        return
    schedule.parallelize(load, -1, ParallelType.serial)
    schedule.parallelize(load, -2, ParallelType.serial)
    if elements.is_broadcast:
        schedule.reorder(load, {len(load.loop) - 2: len(load.loop) - 1})
        vectorize_ports(schedule, Ports((load,), ()), width)
        return
    own = min(width, MAX_VECTOR_BYTES // load.dtype.size)
    schedule.merge(load, -2)
    schedule.split(load, -1, own)
    schedule.parallelize(load, -2, ParallelType.unroll)
    vectorize_ports(schedule, Ports((load,), ()), own, merged=2)
