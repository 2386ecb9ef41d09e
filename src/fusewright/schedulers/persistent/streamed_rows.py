"""Rows that are copied ahead: a persistent grid whose blocks hold rows in shared memory, as a ring of chunks.

    [I, R] -> [rows, BIDx, cluster, chunks, batches, TIDx, vector]

A row's chunks are reduced as they arrive and kept until the last use of the row. Then they make room for the
chunks of the next row, whose copies are already in flight. Values computed from the held inputs are
recomputed for each use. A row that vectors do not divide is copied from the aligned address before its start.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import prod

from fusewright.core.enums import MemoryType, ParallelType
from fusewright.core.hardware import BULK_BYTES, BULK_COPIES_SINCE, KIB, HardwareInfo
from fusewright.ir.node import Copy
from fusewright.ir.value import TensorView
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.io import (
    cache_inputs_and_outputs,
    find_loads,
    inline_rest,
    input_hint,
    is_read_by_index,
)
from fusewright.schedulers.params import LaunchParams, ReductionParams
from fusewright.schedulers.persistent.held_length import assume_sizes, is_one_size
from fusewright.schedulers.persistent.held_rows import Held, held_tensors, hold_in_shared, recompute
from fusewright.schedulers.reduction.loops import (
    combined_runs,
    distribute,
    merge_to_rows_and_reduction,
    split_into_vectors,
)
from fusewright.schedulers.reduction.space import ReductionSpace, reduction_space
from fusewright.schedulers.sizes import ceil_div

# Bytes of a row from which on copying ahead is faster than registers.
#   H200, bf16 rows of one input, of a copy's speed, and in registers or by clusters: softmax of 32768 to
#   98304 0.84 to 0.90, and 0.77 to 0.85; RMS norm of 65536 0.91 and 0.86; layer norm of 65536 0.86 and 0.77.
MIN_ROW_BYTES = 64 * KIB
# Rows for each SM at least: fewer leave little to copy ahead.
ROWS_AN_SM = 4
# Threads of a block beside the warp that copies.
THREADS = 512
# Vectors of each thread in a chunk; the second where rows read something in common, which comes from L2.
VECTORS = 2  # of a thread
VECTORS_BESIDE_OTHERS = 4  # of a thread, beside what rows read in common
# Bytes of shared memory besides the ring: what reductions exchange, mbarriers, and the alignment of all
# buffers.
OTHER_BYTES = 8 * KIB


def stream_rows(schedule: Schedule, params: ReductionParams, read_once: Collection[TensorView] = ()) -> None:
    """Schedules a fusion that `inner_persistent` takes. ParamsError where its rows cannot be copied ahead.

    `read_once`: inputs whose loads have the hint of the params.
    """
    ports = cache_inputs_and_outputs(schedule, read_once, input_hint(params))
    space = reduction_space(schedule.fusion)
    assert isinstance(space, ReductionSpace), space
    has_rows = bool(space.iteration) and is_one_size(space)
    params.require(has_rows, "circular_stages", "0, as a row is no dimension of its own")
    reference = merge_to_rows_and_reduction(schedule, space)
    _assume_length(schedule, space, params)
    width = params.unroll_factor_inner_reduction
    split_into_vectors(schedule, space, reference, params)
    schedule.split(reference, 1, params.lparams.bdimx)
    schedule.split(reference, 1, params.batches_per_block_inner_reduction)
    if params.blocks_per_cluster > 1:
        schedule.split(reference, 1, params.blocks_per_cluster, inner_split=False)
        schedule.parallelize(reference, 1, ParallelType.cluster_x)
    schedule.split(reference, 0, params.persistent_blocks)
    schedule.parallelize(reference, 1, ParallelType.grid_x)
    row = _row_position(params)
    schedule.parallelize(reference, row + 1, ParallelType.unroll)
    schedule.parallelize(reference, row + 2, ParallelType.block_x)
    partials = distribute(
        schedule, space, reference, ports, [row, row + 1, row + 3], width, params.unaligned_inputs
    )
    recompute(schedule, space, everything=True)
    rings = list(held_tensors(schedule.fusion, space))
    _check_copied(rings, params)
    reads = [read for ring in rings for read in _copy_ahead(schedule, ring, params)]
    schedule.inline_at(partials[0], row, best_effort=True, selected=rings)
    loads = [load for load in find_loads(schedule.fusion) if load not in rings]
    weights: list[TensorView] = []
    if params.weights_in_shared_memory:
        weights = _hold_weights(schedule, loads, partials[0], row)
        loads = [load for load in loads if load not in weights]
    # All vectors of a chunk are read before any is used: its stage is free then, in the last pass.
    early = [*reads, *loads]
    schedule.inline_at(partials[0], row + 1, best_effort=True, selected=early)
    for load in loads:  # these come from L2, where what all rows have in common stays
        if load.inline_at > row and not is_read_by_index(load) and not load.unaligned:
            schedule.prefetch(load)
    runs = combined_runs(partials, early)
    if runs:
        schedule.inline_at(partials[0], len(partials[0].loop) - 1, best_effort=True, selected=runs)
    inline_rest(schedule, {*rings, *early, *runs, *weights})


def _hold_weights(
    schedule: Schedule, loads: Iterable[TensorView], lead: TensorView, row: int
) -> list[TensorView]:
    """load -> use  becomes  load -> shared -> read -> use  for vectors that start at any element.

    Returns the loads, and what is held.
    """
    found = [load for load in loads if load.unaligned]
    held = [schedule.cache_after(load) for load in found]
    hold_in_shared(schedule, held, first=row)
    if held:
        schedule.inline_at(lead, row, best_effort=True, selected=[*found, *held])
    return [*found, *held]


def streamed(
    rows: int, length: int, width: int, held: Held, loads_ahead: bool, hardware: HardwareInfo
) -> ReductionParams | None:
    """Returns params for `rows` of `length` elements; None if rings do not hold them, or other ways are as
    fast.

    Args:
        held: the bytes to hold of each element.
        loads_ahead: whether rows read something in common. That comes from L2, with as many loads in flight
            as a chunk has vectors, so chunks are larger.
    """
    if hardware.compute_capability < BULK_COPIES_SINCE or held.copied * width != BULK_BYTES:
        return None
    if held.in_all != held.copied or length * held.in_all < MIN_ROW_BYTES:
        return None
    if rows < ROWS_AN_SM * hardware.sm_count:
        return None
    vectors = VECTORS_BESIDE_OTHERS if loads_ahead else VECTORS
    chunk = THREADS * vectors * width
    stages = (hardware.shared_memory_per_block_optin - OTHER_BYTES) // (chunk * held.in_all)
    if ceil_div(length, chunk) > stages or stages < 2:
        return None
    return ReductionParams(
        fastest_dim=True,
        persistent_kernel=True,
        project_persistent_buffers=True,
        persistent_in_shared_memory=True,
        unroll_factor_inner_reduction=width,
        vectorize_inner_reduction=True,
        batches_per_block_inner_reduction=vectors,
        pad_inner_reduction_to_warp=True,
        circular_stages=stages,
        warp_specialized=True,
        persistent_blocks=hardware.sm_count,
        lparams=LaunchParams(bdimx=THREADS),
        reason=f"{rows} rows of {length}: copied ahead by a warp, in {stages} chunks of {chunk}, "
        f"for {THREADS} threads of a block an SM",
    )


def _row_position(params: ReductionParams) -> int:
    """Returns where the loops of a row begin, inside those over rows and the axes of blocks."""
    return 3 if params.blocks_per_cluster > 1 else 2


def chunk_elements(params: ReductionParams) -> int:
    """Returns the elements of a row that lie in one stage."""
    return (
        params.lparams.bdimx * params.batches_per_block_inner_reduction * params.unroll_factor_inner_reduction
    )


def _is_one_chunk(params: ReductionParams) -> bool:
    """Whether a chunk has all that a block has of a row."""
    sizes = params.assumed_reduction_sizes
    chunks = chunk_elements(params) * params.blocks_per_cluster
    return bool(sizes) and prod(sizes) + params.places_before <= chunks


def _assume_length(schedule: Schedule, space: ReductionSpace, params: ReductionParams) -> None:
    """Assumes the length that the params state, or any that fits into the ring."""
    stages = params.circular_stages - (not params.warp_specialized)
    chunk = chunk_elements(params) * params.blocks_per_cluster
    low, high = 1, chunk * stages - params.places_before
    if params.assumed_reduction_sizes:
        [low] = [high] = params.assumed_reduction_sizes
    assume_sizes(schedule, space, [(low, high)])


def _check_copied(rings: Iterable[TensorView], params: ReductionParams) -> None:
    """Raises ParamsError unless what is held are plain copies of inputs."""
    for ring in rings:
        copies = isinstance(ring.definition, Copy) and ring.loop[-1].parallel is ParallelType.vectorize
        params.require(copies, "circular_stages", "0, as a row is not read from memory in vectors")


def _copy_ahead(schedule: Schedule, ring: TensorView, params: ReductionParams) -> list[TensorView]:
    """[.., chunks, batches, TIDx, vector] -> [.., chunks, run]; returns what reads the ring."""
    schedule.set_memory_type(ring, MemoryType.shared)
    if _is_one_chunk(params):  # which registers hold from its arrival on
        reads = [schedule.cache_after(ring)]
    else:
        reads = [schedule.cache_after(ring, cached_uses=[use.output]) for use in list(ring.uses)]
    row = _row_position(params)
    for position in range(row + 1, row + 4):
        schedule.parallelize(ring, position, ParallelType.serial)
    schedule.merge(ring, row + 1)
    schedule.merge(ring, row + 1)
    if params.warp_specialized:
        schedule.warp_specialize(ring, params.circular_stages, -1, ParallelType.block_x)
    else:
        schedule.circular_buffer(ring, params.circular_stages)
    return reads
