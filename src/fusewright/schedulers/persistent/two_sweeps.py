"""Rows and columns that are read again: blocks sweep them once for each reduction, and once more.

    [I, R] -> [BIDx, TIDy, BIDy, TIDx | steps, unroll, vector], or with threads along columns the same

Blocks y share a reduction, and all of them get its result (`Schedule.all_reduce`). A block holds in shared
memory the data that its first steps load, and later sweeps read it from there. The data of the last step
stays in registers. Every other sweep may go backward, since the data read last is still in the L2 cache. The
first sweep may load a step ahead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from fusewright.core.enums import CacheOp, ParallelType
from fusewright.ir.node import Copy
from fusewright.ir.value import TensorView, Val
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.io import cache_inputs_and_outputs, find_loads, inline_rest, is_read_by_index
from fusewright.schedulers.params import ReductionParams
from fusewright.schedulers.persistent.held_length import assume_sizes
from fusewright.schedulers.persistent.held_rows import recompute
from fusewright.schedulers.persistent.held_scans import cut_steps_in_order
from fusewright.schedulers.reduction.loops import (
    all_reduce,
    cut,
    dimensions_of_vectors,
    distribute,
    feeds,
    inline_row_results,
    inline_runs,
    merge_to_rows_and_reduction,
)
from fusewright.schedulers.reduction.space import ReductionSpace, reduction_space


def sweep(schedule: Schedule, params: ReductionParams) -> None:
    """Schedules a fusion that a persistent scheduler takes, by params that hold no batches."""
    ports = cache_inputs_and_outputs(schedule)
    space = reduction_space(schedule.fusion, with_scans=True)
    assert isinstance(space, ReductionSpace), space
    assume_sizes(schedule, space, [(size, size) for size in params.assumed_reduction_sizes])
    reference = merge_to_rows_and_reduction(schedule, space)
    if space.scans:
        moved, width = cut_steps_in_order(schedule, space, reference, params)
    else:
        moved, width = cut(schedule, space, reference, params)
    step = moved[0]
    through = dimensions_of_vectors(schedule, space, params)
    partials = distribute(
        schedule, space, reference, ports, moved, width, params.unaligned_inputs, through=through
    )
    if params.cross_grid_inner_reduction:
        all_reduce(schedule, space)
    recompute(schedule, space, everything=True, loads=True)
    sweeps = _sweeps(schedule, set(partials))
    loads = _loads_of_all(schedule, space)
    if params.held_steps:
        _hold(schedule, loads, sweeps, params.held_steps, step)
    if params.sweeps_backward:
        for tensor, number in sweeps.items():
            if number % 2 and len(tensor.loop) == len(partials[0].loop):
                schedule.reverse(tensor, step)
    if params.streams_last_sweep:
        last = max(sweeps.values())
        for tensor in (*(load for load in loads if sweeps[load] == last), *ports.stores):
            if isinstance(tensor.definition, Copy):
                schedule.set_cache_op(tensor, CacheOp.streaming)
    same = inline_row_results(schedule, partials[0], step)
    early = [load for load in find_loads(schedule.fusion) if load in loads or feeds(load, set(partials))]
    early = [load for load in early if load not in same]
    schedule.inline_at(partials[0], step + 1, best_effort=True, selected=early)
    for load in loads if params.prefetches_steps else ():
        is_in_turn = load.unaligned or is_read_by_index(load)
        if load in early and not sweeps[load] and not is_in_turn:
            schedule.prefetch(load)
    runs = inline_runs(schedule, partials, early, moved, width)
    inline_rest(schedule, {*same, *early, *runs})


def _sweeps(schedule: Schedule, partials: Collection[TensorView]) -> dict[TensorView, int]:
    """Returns the sweep in which each tensor is computed: the number of reductions before it, each of which
    depends on the last.
    """
    nodes = schedule.fusion.tensor_nodes()
    sweeps: dict[TensorView, int] = {}
    for node in nodes:
        before = [sweeps.get(tensor, 0) + (tensor in partials) for tensor in node.tensor_inputs]
        sweeps.update(dict.fromkeys(node.tensor_outputs, max(before, default=0)))
    for node in reversed(nodes):
        if node.output in partials:
            continue
        later = [sweeps[tensor] for out in node.tensor_outputs for tensor in out.consumers]
        sweeps.update((out, max(sweeps[out], min(later))) for out in node.tensor_outputs if later)
    return sweeps


def _loads_of_all(schedule: Schedule, space: ReductionSpace) -> list[TensorView]:
    """The loads of an element for each point of the space."""
    full = {access.tensor for access in space.full_loads}
    loads = find_loads(schedule.fusion)
    return [load for load in loads if load.definition is not None and load.definition.inputs[0] in full]


def _hold(
    schedule: Schedule, loads: Sequence[TensorView], sweeps: Mapping[TensorView, int], steps: int, step: int
) -> None:
    """Holds what the first sweep loads in its first steps, for the later ones."""
    by_source: dict[Val, list[TensorView]] = {}
    for load in sorted(loads, key=lambda load: sweeps[load]):
        if isinstance(load.definition, Copy) and load.dtype.in_memory is load.dtype:
            by_source.setdefault(load.definition.inputs[0], []).append(load)
    for first, *again in by_source.values():
        later = [load for load in again if sweeps[load] > sweeps[first]]
        if not later:
            continue
        held = schedule.hold_part(first, later, steps, step)
        # Neighbouring lanes access neighbours, in different banks.
        threads = [i for i, axis in enumerate(held.loop) if axis.parallel.is_block]
        threads.sort(key=lambda i: held.loop[i].parallel.value, reverse=True)
        serial = [i for i in range(step, len(held.loop)) if i not in threads]
        vector = [serial.pop()] if first.loop[-1].parallel is ParallelType.vectorize else []
        if vector:
            schedule.parallelize(held, -1, ParallelType.vectorize)
        schedule.store_along(held, [*serial, *threads, *vector])
