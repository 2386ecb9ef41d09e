"""Params by which one block, or a warp or a part of one, has each row: how many threads, and whether these
hold it in registers, in shared memory, or load it again for each reduction.
"""

from __future__ import annotations

from dataclasses import dataclass

from fusewright.core.hardware import MAX_VECTOR_BYTES, REGISTER_BYTES, HardwareInfo
from fusewright.schedulers.params import LaunchParams, ReductionParams
from fusewright.schedulers.params.heuristic import MAX_UNROLL
from fusewright.schedulers.persistent.row_buffers import RowBuffers
from fusewright.schedulers.persistent.row_threads import (
    BATCHES,
    BYTES_IN_FLIGHT,
    BYTES_OF_SEVERAL_WARPS,
    MAX_BATCHES_A_WARP,
    least_idle,
    makes_room,
    threads_and_batches,
)
from fusewright.schedulers.reduction.step_loads import REGISTERS_TO_WORK
from fusewright.schedulers.sectors import SECTOR_BYTES
from fusewright.schedulers.sizes import ceil_div

# Registers of a thread that hold a row at most: more leave room for too few blocks on an SM.
REGISTERS_TO_HOLD = 64
# Bytes of shared memory that the alignment of all buffers of a block may take together.
SHARED_SLACK = 1024
# Threads of a block that has several short rows, each by a warp or a part of it, or by two warps if vectors
# are narrow: blocks of fewer threads would start more slowly than memory moves their bytes. Otherwise, two
# warps a row would need barriers, at which they wait for another row.
#   H200, rows of 1024 float: softmax is 1.02 times as fast, layer norm and RMS norm 1.03 times.
SHORT_ROW_BLOCK = 128

# ---- rows that are not held ----

# Bytes that a thread has in flight: one block of the largest size then reads at the speed of memory.
#   Measured on an H200 for rows of 65536 bf16 of one input and of two.
RELOADED_BYTES_IN_FLIGHT = 128
# Registers that a narrow access takes at least: one for its address beside the one for its value.
#   A batch norm of rows of 57 by 57 bf16, one by one, spills 2.9 KB with 64 accesses in flight, none with 16.
REGISTERS_OF_NARROW_ACCESS = 2


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the threads of a block hold a row.

    Attributes:
        inputs_only: whether values computed from inputs are computed again instead of held.
        in_shared: whether shared memory holds the row instead of registers.
        is_held: whether it is held at all.
        text: the place in words.
    """

    inputs_only: bool
    in_shared: bool
    is_held: bool
    text: str


def block_params(
    rows: int,
    length: int,
    width: int,
    buffers: RowBuffers,
    state_bytes: int,
    cached: bool,
    loads_late: bool,
    fits: bool,
    hardware: HardwareInfo,
) -> ReductionParams:
    """Returns params for `rows` of `length` elements, read in vectors of `width`.

    Args:
        buffers: what is held of a row.
        state_bytes: the bytes that reductions across a block exchange for each of its threads.
        cached: whether rows share all of their inputs with others, so that these come from the caches.
        loads_late: whether results are used with inputs that no reduction follows from.
        fits: whether as few threads as possible are to be idle.
    """
    if length == 0:  # no loop over the row may remain: what it would enclose still has a result to store
        width = 1
    vectors = max(1, ceil_div(length, width))
    bytes_a_vector = max(1, width * buffers.inputs.at_once)
    most = min(MAX_BATCHES_A_WARP, max(BATCHES, BYTES_IN_FLIGHT // bytes_a_vector))
    of_warps = BATCHES if cached else min(most, max(BATCHES, BYTES_OF_SEVERAL_WARPS // bytes_a_vector))
    is_wide = width * buffers.inputs.at_once >= MAX_VECTOR_BYTES * buffers.inputs.tensors
    alone = SECTOR_BYTES // MAX_VECTOR_BYTES if is_wide else None
    threads, batches = threads_and_batches(
        rows, vectors, most, hardware, cached, loads_late, of_warps, most_alone=alone
    )
    if fits:
        threads, batches = least_idle(vectors, threads, batches)
    per_thread = hardware.registers_per_block // threads - REGISTERS_TO_WORK
    room = max(1, min(REGISTERS_TO_HOLD, per_thread))
    place = _place_of_row(threads, batches, width, room, buffers, state_bytes, hardware)
    unroll = 1
    if not place.is_held:
        batches, unroll = 0, _reloads_in_flight(vectors, width, threads, room, buffers)
    row_threads = 1  # threads of a block across rows
    are_narrow = of_warps > BATCHES
    share = SHORT_ROW_BLOCK // threads if threads <= hardware.warp_size or are_narrow else 1
    while row_threads * 2 <= share and rows > row_threads * hardware.sm_count:
        row_threads *= 2
    return ReductionParams(
        fastest_dim=True,
        persistent_kernel=True,
        project_persistent_buffers=place.inputs_only,
        persistent_in_shared_memory=place.in_shared,
        unroll_factor_inner_reduction=width,
        vectorize_inner_reduction=width > 1,
        unroll_factor_top_of_vectorization=unroll,
        batches_per_block_inner_reduction=batches,
        pad_inner_reduction_to_warp=True,
        lparams=LaunchParams(bdimx=threads if length else -1, bdimy=row_threads),
        reason=f"{rows} rows of {length}: {threads} threads a row, {batches} vectors of {width} each, "
        f"held in {place.text}; {row_threads} rows a block",
    )


def _place_of_row(
    threads: int,
    batches: int,
    width: int,
    room: int,
    buffers: RowBuffers,
    state_bytes: int,
    hardware: HardwareInfo,
) -> _Place:
    """Returns where `threads` hold a row, of which each has so many vectors of `width`, and `room` registers.

    More vectors than code is unrolled for are not held, however little each takes: bytes one by one, or what
    all rows have in common and nothing holds.
    """
    elements = batches * width
    swept = _Place(inputs_only=True, in_shared=False, is_held=False, text="not held, loaded again")
    if batches > MAX_UNROLL:
        return swept
    everything = elements * buffers.everything.at_once // REGISTER_BYTES
    inputs = elements * buffers.inputs.at_once // REGISTER_BYTES
    if everything <= room and not makes_room(threads, everything, inputs, hardware):
        return _Place(inputs_only=False, in_shared=False, is_held=True, text="registers")
    if inputs <= room:
        return _Place(inputs_only=True, in_shared=False, is_held=True, text="registers, inputs only")
    bytes_a_thread = elements * buffers.inputs.in_all + state_bytes
    if threads * bytes_a_thread <= hardware.shared_memory_per_block_optin - SHARED_SLACK:
        return _Place(inputs_only=True, in_shared=True, is_held=True, text="shared memory, inputs only")
    return swept


def _reloads_in_flight(vectors: int, width: int, threads: int, room: int, buffers: RowBuffers) -> int:
    """Returns the vectors that a thread has in flight of a row that is not held."""
    bytes_an_access = max(1, width * buffers.inputs.at_once)
    registers = max(REGISTERS_OF_NARROW_ACCESS, bytes_an_access // REGISTER_BYTES)
    in_flight = min(RELOADED_BYTES_IN_FLIGHT // bytes_an_access, room // registers)
    return max(1, min(vectors // threads, in_flight))
