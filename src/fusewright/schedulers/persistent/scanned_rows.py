"""Params for rows that are reduced and scanned: held rows, and sweeps over longer ones. See `held_scans`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from fusewright.core.hardware import REGISTER_BYTES, WARP_SIZE, HardwareInfo
from fusewright.schedulers.params import CompileParams, LaunchParams, ReductionParams
from fusewright.schedulers.persistent.row_threads import COMFORTABLE_BLOCK
from fusewright.schedulers.reduction.space import ReductionSpace
from fusewright.schedulers.sizes import ceil_div, whole_warps
from fusewright.schedulers.vector_limits import Vectors

# Elements that a thread scans at a time, and the registers that it needs for that: for what it adds to each,
# and for what is computed of the input beside it.
#   H200, masks of the most probable of 32000 bf16: 36 us, 38 with half or twice the elements; 53 and more
#   where registers spill.
ELEMENTS = 16  # of a thread at a time
REGISTERS = 64  # of a thread
# Threads of a block at least: more blocks of an SM have the same threads in all.
#   H200, the same masks: two blocks of 512 threads 36 us, four of 256, which hold less, 40; one of 1024 41.
#   One alone has room for rows of 128256.
MIN_THREADS = 512
# Lanes that hold a row, if a part of a warp does, and vectors of each at most.
#   H200, running sums of softmaxes of bf16, us: 65536 rows of 257 by 8 lanes with five vectors 23, by 16 with
#   three 29; 32768 of 513 by 16 with five 23, by 32 with three 29; 262144 of 65 by 4 with three 40, by 8 with
#   two 43; 524288 of 33 by 4 with two 42, by 8 55.
LANES = (4, 8, 16)  # that may hold a row
MAX_VECTORS_OF_A_LANE = 5  # vectors
# Warps of a block at least for that: blocks of fewer are those of few rows.
MIN_WARPS = 4
# Bytes of shared memory that the alignment of what a block holds and passes on may take.
SHARED_SLACK = 1024
# Share of its arithmetic that each sweep adds to the time of its memory: it waits for what it loads at each
# step, as long as threads take to scan it.
#   H200, us, estimated with it and measured: the masks above 36 and 36, of 128256 probabilities 74 and 79,
#   what is kept normalized 46 and 69.
EXPOSED_ARITHMETIC = 0.2


@dataclass(frozen=True, slots=True)
class Steps:
    """How blocks process rows that registers do not hold.

    Attributes:
        params: the kernel's params.
        resident: blocks per SM.
        again: the fraction of a row that shared memory does not hold for the next sweep.
    """

    params: ReductionParams
    resident: int
    again: float


def in_steps(
    rows: int, length: int, vectors: Vectors, anywhere: bool, space: ReductionSpace, hardware: HardwareInfo
) -> Steps:
    """Returns the steps of `rows` of `length` elements.

    anywhere: whether vectors of a row begin at its own aligned address, or are loaded from any element on.
        Such vectors are not held.
    """
    width = vectors.width
    in_flight = max(1, ELEMENTS // width)
    threads_an_sm = hardware.registers_per_sm // REGISTERS
    # Threads may pass on the sums of all their vectors.
    of_thread = in_flight * sum(scan.dtype.size for scan in space.scans)
    for resident in range(threads_an_sm // MIN_THREADS, 0, -1):
        threads = threads_an_sm // resident // WARP_SIZE * WARP_SIZE
        step = threads * in_flight * width
        steps, each = ceil_div(length + (width - 1) * anywhere, step), step * space.element_bytes
        of_block = hardware.shared_memory_per_sm // resident - hardware.shared_memory_reserved
        room = min(of_block, hardware.shared_memory_per_block_optin) - threads * of_thread - SHARED_SLACK
        kept = 0 if anywhere else max(0, min(steps, room // max(1, each)))
        if anywhere or kept == steps:
            break
    params = ReductionParams(
        fastest_dim=True,
        persistent_kernel=True,
        project_persistent_buffers=True,
        unroll_factor_inner_reduction=width,
        vectorize_inner_reduction=width > 1,
        unroll_factor_top_of_vectorization=in_flight,
        batches_per_block_inner_reduction=0,
        pad_inner_reduction_to_warp=True,
        held_steps=kept,
        lparams=LaunchParams(bdimx=threads, bdimy=1),
        cparams=CompileParams(maxrregcount=hardware.registers_a_thread(resident * threads)),
        reason=f"{rows} rows of {length}, scanned in {steps} steps of {threads} threads with {in_flight} "
        f"vectors of {width} each, {kept} of which are held",
    )
    return Steps(params, resident, 1 - kept / max(1, steps))


def for_scans(
    held: ReductionParams, vectors_a_row: int, shifts: bool, bytes_an_element: int, most_registers: int
) -> ReductionParams:
    """Returns params for rows that are scanned, too, from those by which rows that are reduced alone are
    held.

    Args:
        held: the latter.
        shifts: whether vectors of a row begin at its own aligned address.
        bytes_an_element: the bytes of all that may be held of an element.
        most_registers: the most registers in which a thread may hold it.
    """
    if shifts:
        held = _in_fewer_lanes(held, vectors_a_row)
    if not held.project_persistent_buffers:
        return held
    return _with_everything(held, vectors_a_row, bytes_an_element, most_registers)


def _in_fewer_lanes(held: ReductionParams, vectors_a_row: int) -> ReductionParams:
    """Returns params by which a part of a warp has as few places in vain as possible: a row has often one
    vector more than a power of two.
    """
    lanes, rows_a_block = held.lparams.bdimx, held.lparams.bdimy
    found = [(n, ceil_div(vectors_a_row, n)) for n in LANES]
    fit = [(n, each) for n, each in found if each <= MAX_VECTORS_OF_A_LANE]
    is_full = lanes <= WARP_SIZE <= lanes * rows_a_block // MIN_WARPS
    if not is_full or held.batches_per_block_inner_reduction < 2 or not fit:
        return held
    threads, batches = min(fit, key=prod)
    return replace(
        held,
        batches_per_block_inner_reduction=batches,
        lparams=replace(held.lparams, bdimx=threads, bdimy=max(1, rows_a_block * lanes // threads)),
        reason=f"{held.reason}; {threads} lanes have {batches} vectors of a row each",
    )


def _with_everything(
    held: ReductionParams, vectors_a_row: int, bytes_an_element: int, most_registers: int
) -> ReductionParams:
    """Returns params by which more threads hold all that is needed again in registers, where `held` computes
    it anew; `held` itself if there is no room.

    A scan's elements beside its input take registers anyway.
    H200, masks of the most probable of 4096 bf16: 29 us by 256 threads that hold 16 elements of three
    tensors, 32 by 128 that hold 32 of two.
    """
    batches, width = held.batches_per_block_inner_reduction // 2, held.unroll_factor_inner_reduction
    if not batches:
        return held
    threads = whole_warps(ceil_div(vectors_a_row, batches))
    registers = batches * width * bytes_an_element // REGISTER_BYTES
    if threads > COMFORTABLE_BLOCK or registers > most_registers:
        return held
    return replace(
        held,
        project_persistent_buffers=False,
        persistent_in_shared_memory=False,
        batches_per_block_inner_reduction=batches,
        lparams=replace(held.lparams, bdimx=threads, bdimy=1),
        reason=f"{threads} threads a row, {batches} vectors of {width} each, held in registers",
    )
