"""The inner persistent scheduler: normalizations along the contiguous dimension, one pass over memory.

A block holds its row (or rows) while reductions over it complete, and then uses it again:

    [I, R] -> [I blocks, I threads y, R threads x | batches, vector]

What is held are the tensors read before and after a reduction (analyze.persistent): in registers, in shared
memory, or, for rows too long for both, nowhere: the row is loaded again for each use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import prod
from typing import Any, ClassVar

from fusewright.analyze.persistent import persistent_tensors
from fusewright.core.dtype import DataType
from fusewright.core.enums import MemoryType, ParallelType, SchedulerType
from fusewright.core.errors import ParamsError
from fusewright.core.hardware import REGISTER_BYTES, WARP_SIZE, HardwareInfo
from fusewright.core.op import Rule
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Node, Pointwise, Reduction
from fusewright.ir.value import TensorView
from fusewright.ops.reductions import WELFORD
from fusewright.rewrite.two_pass import is_plain_welford, two_pass
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.base import (
    Cost,
    Facts,
    Part,
    Planner,
    Proposal,
    Reject,
    Rewrite,
    accepted,
)
from fusewright.schedulers.cost import CostModel, busy_share, overlap
from fusewright.schedulers.io import VectorLimits, Vectors, cache_inputs_and_outputs, check_unaligned
from fusewright.schedulers.params import LaunchParams, ReductionParams
from fusewright.schedulers.reduction_loops import (
    bind_rows,
    check_rows,
    distribute,
    inline,
    merge_to_rows_and_reduction,
)
from fusewright.schedulers.reduction_space import ReductionSpace, reduction_space
from fusewright.schedulers.shifted_rows import ShiftedRows, aligned_rows
from fusewright.schedulers.sizes import ceil_div
from fusewright.sym import Const, Symbol, as_int, product

# Threads of the widest block: more leave fewer than 64 registers each.
WIDEST_BLOCK = 1024
# Bytes that the alignment of all buffers in shared memory may take together.
SHARED_SLACK = 1024
# A thread needs this many registers besides the row: addresses, partial results, work in flight.
REGISTERS_TO_WORK = 32
# More than this for the row leaves room for too few blocks on an SM.
REGISTERS_TO_HOLD = 64
# Vectors that a thread holds of a row: enough loads in flight, few enough registers.
BATCHES = 4
# Fewer where the threads of all rows are less than a quarter of those that the GPU holds at once.
BUSY_SHARE = 4
# Up to twice as many as BATCHES while that keeps a block at this size: its barriers are cheaper.
COMFORTABLE_BLOCK = 256
# What reading a row again costs that is still in L2, of reading it from memory.
L2_READ_COST = 0.3
# What a block spends on each row with no loads or stores in flight, while other blocks of the SM may have
# some: between the last load and the first store (an H200: 0.7 of a copy's speed for rows of 65536 bfloat16,
# one block an SM, and 0.8 for rows of 16384 float).
ROW_SECONDS = 2e-6
# What that adds to a kernel, whose last blocks nothing overlaps with; and Welford's chain of divisions.
HELD_SECONDS, WELFORD_SECONDS = 0.3e-6, 0.4e-6
# Of a copy's speed, what is left where a block reads its row again and again, a barrier after each.
RELOADED_SPEED = 0.85
# What is left of it where Welford's steps, with a division each, take the place of two sums of a held row.
WELFORD_SPEED = 0.93
# Bytes in flight a thread of a row that is not held, which one block as large as there are then reads at the
# speed of memory (measured on an H200 for rows of 65536 bfloat16 of one input and of two).
RELOADED_BYTES_IN_FLIGHT = 128
# Elements of a row below which its two edges cost more than vectors save.
LEAST_SHIFTED = 4096
# Threads of a block that handles several short rows.
SHORT_ROW_BLOCK = 128
# Of a row too long to hold only the inputs are, and the rest is computed anew for each use: in a chain of n
# reductions about n / 2 times. Beyond this growth several kernels are cheaper, and far quicker to compile.
MAX_GROWTH = 4


@dataclass(frozen=True)
class _Held:
    """Bytes to hold for each element of a row.

    Attributes:
        at_once: the most that is held across any one reduction.
        in_all: of all tensors that are held across some reduction.
    """

    at_once: int
    in_all: int


class InnerPersistentScheduler:
    """Accepts reductions along memory whose results meet the reduced dimension again."""

    type = SchedulerType.inner_persistent
    params_type = ReductionParams
    fixed_params: ClassVar[Mapping[str, Any]] = {"persistent_kernel": True}

    def prepare(self, fusion: Fusion) -> Planner | Reject:
        space = _space(fusion)
        return Reject(space) if isinstance(space, str) else _Planner(fusion, space)

    def apply(self, schedule: Schedule, params: ReductionParams) -> None:
        original = accepted(self, _space(schedule.fusion))
        check_rows(original, params)
        check_unaligned(schedule.fusion, params.unaligned_inputs)
        _check_threads(original, params)
        holds = params.batches_per_block_inner_reduction > 0
        ports = cache_inputs_and_outputs(schedule)
        space = accepted(self, reduction_space(schedule.fusion))
        reference = merge_to_rows_and_reduction(schedule, space)
        _assume_row_length(schedule, space, params)
        aligned = aligned_rows(space) if params.shift_rows else None
        moved = _cut(schedule, reference, params, bool(space.iteration), aligned)
        position = moved[0] if holds else moved[0] + 1
        width = params.unroll_factor_inner_reduction if params.vectorize_inner_reduction else 1
        partials = distribute(schedule, space, reference, ports, moved, width, params.unaligned_inputs)
        # Once loops are bound, what is computed anew takes those of what it stands for.
        _recompute(schedule, space, everything=params.project_persistent_buffers, loads=not holds)
        if params.persistent_in_shared_memory:
            _hold_in_shared(schedule, _held_tensors(schedule.fusion, space))
        inline(schedule, space, partials, width, position)

    def propose_redefinition(self, part: Part, facts: Facts, hardware: HardwareInfo) -> Rewrite | None:
        """Two sums in place of Welford's steps: cheaper for a row that is held, dearer for one read again."""
        nodes = [node for node in part.nodes if is_plain_welford(part.graph, node)]
        if not nodes:
            return None

        def replace_all(graph: Fusion) -> dict[TensorView, TensorView]:
            return {old: new for node in nodes for old, new in two_pass(graph, node).items()}

        reason = "two sums of a row that is held cost less than Welford's steps"
        return Rewrite("variance in two passes", replace_all, reason)


@dataclass(frozen=True, eq=False)
class _Planner:
    """Derives params from the sizes of a call."""

    fusion: Fusion
    space: ReductionSpace

    @cached_property
    def _vectors(self) -> VectorLimits | None:
        return self.space.vector_limits(self.fusion)

    @cached_property
    def _shifted(self) -> ShiftedRows:
        return ShiftedRows(self.fusion, self.space)

    @cached_property
    def everything(self) -> _Held:
        """What is held if what is computed before a reduction and needed after it is."""
        return self._held(everything=False)

    @cached_property
    def projected(self) -> _Held:
        """What is held if inputs alone are."""
        return self._held(everything=True)

    @cached_property
    def partial_bytes(self) -> int:
        """Shared memory of the reductions across a block, for each of its threads."""
        states = {
            tuple(out.dtype for out in n.outputs) for n in self.fusion.nodes if isinstance(n, Reduction)
        }
        return sum(dtype.size for dtypes in states for dtype in dtypes)

    def _held(self, everything: bool) -> _Held:
        """As `apply` makes the buffers, so that a proposal counts what is there."""
        schedule = Schedule(self.fusion)
        cache_inputs_and_outputs(schedule)
        space = reduction_space(schedule.fusion)
        assert isinstance(space, ReductionSpace), space
        _recompute(schedule, space, everything=everything, loads=False)
        held = _held_tensors(schedule.fusion, space)
        across: dict[TensorView, int] = {}
        for tensor, reductions in held.items():
            for reduction in reductions:
                across[reduction] = across.get(reduction, 0) + tensor.dtype.size
        return _Held(max(across.values(), default=0), sum(tensor.dtype.size for tensor in held))

    def __call__(self, facts: Facts, hardware: HardwareInfo) -> Proposal:
        space = self.space
        width = self._vectors.width(facts) if self._vectors is not None else 1
        rows, length = space.iteration_size(facts), space.reduction_size(facts)
        shifted = self._shifted.vectors(facts) if length else None
        if shifted is not None and _shifts(shifted, width, length):
            params = _params(rows, length + shifted.width - 1, shifted.width, self, hardware, shifted=True)
            reason = f"{params.reason}; aligned by the start of each row"
            params = replace(params, shift_rows=True, unaligned_inputs=shifted.unaligned, reason=reason)
        else:
            params = _params(rows, length, width, self, hardware)
        estimate = self._estimate(rows, length, params, facts, hardware)
        if not params.batches_per_block_inner_reduction:
            return Proposal(params, estimate)
        if self._constant_row_is_faster(facts, params):
            sizes = tuple(facts.value(axis.extent) for axis in space.reduction)
            reason = f"{params.reason}; for rows of this length only"
            return Proposal(replace(params, assumed_reduction_sizes=sizes, reason=reason), estimate)
        if not _is_one_size(space):
            params = replace(params, lparams=replace(params.lparams, bdimx=-1))
        return Proposal(params, estimate)

    def _estimate(
        self, rows: int, length: int, params: ReductionParams, facts: Facts, hardware: HardwareInfo
    ) -> Callable[[], Cost]:
        """The cost, with what is known of it by how rows are held.

        A row that is held is read once, and blocks that are few on an SM wait for each other's phases. One
        that is not is read again after each reduction: from L2, if all rows that are worked on fit there.
        """
        blocks = ceil_div(rows, params.lparams.bdimy)
        if not params.batches_per_block_inner_reduction:
            row_bytes = length * self.projected.at_once
            in_l2 = min(rows, hardware.sm_count) * row_bytes <= hardware.l2_bytes
            again = self._passes * (L2_READ_COST if in_l2 else 1.0)
            speed = busy_share(blocks, hardware) * RELOADED_SPEED
            return self._cost.estimate(facts, hardware, reads=1 + again, speed=speed)
        threads = max(1, params.lparams.bdimx) * params.lparams.bdimy
        held = params.batches_per_block_inner_reduction * params.unroll_factor_inner_reduction
        if params.persistent_in_shared_memory:
            bytes_a_block = threads * held * self.projected.in_all
            resident = hardware.shared_memory_per_sm // max(1, bytes_a_block)
        else:
            buffers = self.projected if params.project_persistent_buffers else self.everything
            registers = REGISTERS_TO_WORK + held * buffers.at_once // REGISTER_BYTES
            resident = hardware.registers_per_sm // (threads * registers)
        return partial(self._cost_held, facts, hardware, blocks, max(1, resident))

    def _cost_held(self, facts: Facts, hardware: HardwareInfo, blocks: int, resident: int) -> Cost:
        """Of rows that are held by `blocks` in all, `resident` on an SM at a time."""
        moving = self._cost.seconds_an_sm(facts, hardware) / max(1, blocks)
        kept = overlap(resident, moving, ROW_SECONDS)
        speed, steps = busy_share(blocks, hardware) * kept, HELD_SECONDS
        if self._has_welford:
            speed, steps = speed * WELFORD_SPEED, steps + WELFORD_SECONDS
        return self._cost.estimate(facts, hardware, speed=speed, steps=steps)()

    @cached_property
    def _cost(self) -> CostModel:
        return CostModel(self.fusion, self.space.sectors(self.fusion))

    @cached_property
    def _passes(self) -> int:
        """How often a row is read again that is not held."""
        return _longest_chain(self.fusion)

    @cached_property
    def _has_welford(self) -> bool:
        return any(isinstance(node, Reduction) and node.op is WELFORD for node in self.fusion.nodes)

    def _constant_row_is_faster(self, facts: Facts, params: ReductionParams) -> bool:
        """Whether to take the length of a row that is held as a constant, which may be done if it is stable.

        Otherwise each access has a comparison and an address of its own, which are held in registers, or
        spilled, from its load to its store. That counts where a thread has many small accesses: rows of
        50,257 bfloat16, 50 accesses a thread, are 2.6 times faster with a constant length on an H200 (compare
        `./dev bench operations log_softmax` with FUSEWRIGHT_DISABLE=constant_sizes). With few wide ones the
        compiler then has more loads in flight than pay, in up to twice the registers (layer norm). Masked
        rows are faster all the same.
        """
        if not facts.stable:
            return False
        sizes = [axis.extent for axis in self.space.reduction if as_int(axis.extent) is None]
        if not sizes or not facts.stable.issuperset(sizes) or any(facts.value(size) == 0 for size in sizes):
            return False
        batches = params.batches_per_block_inner_reduction
        one_by_one = not params.vectorize_inner_reduction and batches > BATCHES
        return one_by_one or (self._is_masked and batches > 1)

    @cached_property
    def _is_masked(self) -> bool:
        """Whether a row is loaded with a mask of its own and nothing else.

        With a constant length both loads are in flight together: 1.17 times faster (softmax, H200). Rows of
        several inputs have loads in flight anyway.
        """
        full = [access.tensor for access in self.space.loads if self.space.is_full(access)]
        return len(full) == 2 and sum(tensor.dtype is DataType.Bool for tensor in full) == 1


def _held_tensors(fusion: Fusion, space: ReductionSpace) -> dict[TensorView, list[TensorView]]:
    """What is read before and after a reduction and has an element for each point, with those reductions."""
    return {t: reds for t, reds in persistent_tensors(fusion).items() if space.has_every_element(t)}


def _space(fusion: Fusion) -> ReductionSpace | str:
    """The space of a fusion that the scheduler takes, or why it does not."""
    space = reduction_space(fusion)
    if isinstance(space, str):
        return space
    if not space.is_inner:
        main = space.main.tensor if space.main is not None else space.reference
        return f"the contiguous dimension of {main.name} is not reduced"
    if not space.after:
        return "nothing uses the result of the reduction"
    if _times_computed(fusion) > MAX_GROWTH * len(fusion.nodes):
        return "a row that is not held would be computed anew for each of too many reductions"
    return space


def _params(
    rows: int, length: int, width: int, planner: _Planner, hardware: HardwareInfo, shifted: bool = False
) -> ReductionParams:
    """How to cut up `rows` of `length` elements, read in vectors of `width`; `shifted`: aligned in each row."""
    if length == 0:  # no loop over the row may remain: what it would enclose still has a result to store
        width = 1
    vectors = max(1, ceil_div(length, width))
    threads, batches = _threads_and_batches(rows, vectors, hardware)
    if shifted:
        threads, batches = _least_idle(vectors, threads, batches)
    per_thread = hardware.registers_per_block // threads - REGISTERS_TO_WORK
    room = max(1, min(REGISTERS_TO_HOLD, per_thread))
    project = False
    shared = False
    unroll = 1
    where = "registers"
    words = batches * width * planner.everything.at_once // REGISTER_BYTES
    if words > room:
        project = True
        words = batches * width * planner.projected.at_once // REGISTER_BYTES
        where = "registers, inputs only"
    if words > room:
        bytes_a_thread = batches * width * planner.projected.in_all + planner.partial_bytes
        most = hardware.shared_memory_per_block_optin - SHARED_SLACK
        shared = threads * bytes_a_thread <= most
        where = "shared memory, inputs only" if shared else "not held, loaded again"
    if words > room and not shared:
        batches = 0
        unroll = max(
            1, min(vectors // threads, RELOADED_BYTES_IN_FLIGHT // max(1, width * planner.projected.at_once))
        )
    row_threads = 1
    while row_threads * 2 * threads <= SHORT_ROW_BLOCK and rows > row_threads * hardware.sm_count:
        row_threads *= 2
    return ReductionParams(
        fastest_dim=True,
        persistent_kernel=True,
        project_persistent_buffers=project,
        persistent_in_shared_memory=shared,
        unroll_factor_inner_reduction=width,
        vectorize_inner_reduction=width > 1,
        unroll_factor_top_of_vectorization=unroll,
        batches_per_block_inner_reduction=batches,
        pad_inner_reduction_to_warp=True,
        lparams=LaunchParams(bdimx=threads if length else -1, bdimy=row_threads),
        reason=f"{rows} rows of {length}: {threads} threads a row, {batches} vectors of {width} each, "
        f"held in {where}; {row_threads} rows a block",
    )


def _longest_chain(fusion: Fusion) -> int:
    """The most reductions of which each depends on the one before."""
    depth: dict[TensorView, int] = {}
    for node in fusion.ordered_nodes():
        before = max((depth[t] for t in node.tensor_inputs if t in depth), default=0)
        for out in node.outputs:
            if isinstance(out, TensorView):
                depth[out] = before + isinstance(node, Reduction)
    return max(depth.values(), default=0)


def _threads_and_batches(rows: int, vectors: int, hardware: HardwareInfo) -> tuple[int, int]:
    """Threads for each of `rows` of `vectors`, whole warps, and the vectors that each thread holds.

    Up to BATCHES vectors each before there are more than one warp, as a warp needs no barrier and loads in
    flight are what the memory is kept busy with; fewer where the rows leave most of the GPU idle.
    """
    batches = min(BATCHES, max(1, ceil_div(vectors, WARP_SIZE)))
    while ceil_div(vectors, batches) > (COMFORTABLE_BLOCK if batches < 2 * BATCHES else WIDEST_BLOCK):
        batches += 1
    busy = hardware.sm_count * hardware.max_threads_per_sm // BUSY_SHARE
    while (
        batches > 1
        and ceil_div(vectors, batches - 1) <= COMFORTABLE_BLOCK
        and rows * vectors < busy * batches
    ):
        batches -= 1
    return _whole_warps(ceil_div(vectors, batches)), batches


def _shifts(shifted: Vectors, width: int, length: int) -> bool:
    """Whether to begin the vectors of each row at an aligned address, where those of others are `width` wide."""
    return shifted.width > width and not shifted.unaligned and length >= LEAST_SHIFTED


def _least_idle(vectors: int, threads: int, batches: int) -> tuple[int, int]:
    """Threads and vectors of each that leave the fewest threads idle, near to those given.

    A row of a power of two and some elements more has one vector more than fits: in 4 batches of 128 threads,
    say, whose place would take a fifth warp.
    """
    best, least = (threads, batches), threads * batches
    for count in sorted(range(1, 2 * BATCHES + 1), key=lambda count: (abs(count - batches), -count)):
        needed = _whole_warps(ceil_div(vectors, count))
        if needed * count < least and needed <= max(threads, COMFORTABLE_BLOCK):
            best, least = (needed, count), needed * count
    return best


def _whole_warps(threads: int) -> int:
    return ceil_div(threads, WARP_SIZE) * WARP_SIZE


def _times_computed(fusion: Fusion) -> int:
    """How many nodes there are if what lies between reductions is computed anew for each use."""
    times: dict[Node, int] = {}
    for node in reversed(fusion.ordered_nodes()):
        users = sum(times.get(user, 0) for out in node.outputs for user in out.uses)
        times[node] = 1 if isinstance(node, Reduction) else max(1, users)
    return sum(times.values())


def _is_cheap(fusion: Fusion, tensor: TensorView, space: ReductionSpace) -> bool:
    """Whether it is cheaper to do again than to hold.

    That is so of a cast to a wider type, of a broadcast of what was computed, and of a load that is the
    same for all rows, which comes from the caches.
    """
    node = tensor.definition
    assert node is not None
    if isinstance(node, Pointwise):
        return node.op.rule is Rule.CAST and node.inputs[0].dtype.size < tensor.dtype.size
    if fusion.is_input(node.inputs[0]):
        return _is_same_for_all_rows(tensor, space)
    return node.traits.view


def _is_same_for_all_rows(tensor: TensorView, space: ReductionSpace) -> bool:
    """Whether `tensor` is a broadcast along the rows, of which there are several."""
    covered = space.maps.get(tensor, {})
    rows = [axis for axis in space.iteration if not axis.is_broadcast]
    return bool(rows) and all(axis in covered and covered[axis].is_broadcast for axis in rows)


def _recompute(schedule: Schedule, space: ReductionSpace, *, everything: bool, loads: bool) -> None:
    """Recomputes what persists and is cheap.

    `everything`: whatever else follows from inputs, too. `loads`: even the inputs are loaded again.
    """
    fusion = schedule.fusion
    persistent = set(persistent_tensors(fusion))
    outputs = set(fusion.output_tensors())
    # Consumers first: what a recomputed tensor is made from is then needed wherever that one was.
    for node in reversed(fusion.ordered_nodes()):
        tensor = node.outputs[0]
        if tensor not in persistent or tensor in outputs or tensor.is_reduction:
            continue
        wanted = loads if fusion.is_input(node.inputs[0]) else everything
        if wanted or _is_cheap(fusion, tensor, space):
            schedule.recompute(tensor)
            persistent.update(tensor.producers)


def _hold_in_shared(schedule: Schedule, held: Iterable[TensorView]) -> None:
    """Places rows in shared memory so that a warp accesses neighbours, in vectors where they are loaded so.

    Along the loops, [threads, batches, vector], each thread would have a stretch of its own, and those of a
    warp would meet in a few banks.
    """
    for tensor in held:
        schedule.set_memory_type(tensor, MemoryType.shared)
        threads = [i for i, axis in enumerate(tensor.loop) if axis.parallel.is_block]
        serial = [i for i, axis in enumerate(tensor.loop) if not axis.parallel.is_thread]
        if tensor.loop[-1].parallel is not ParallelType.vectorize:
            schedule.store_along(tensor, [*serial, *threads])
            continue
        schedule.store_along(tensor, [*serial[:-1], *threads, serial[-1]])
        for use in list(tensor.uses):
            read = schedule.cache_after(tensor, cached_uses=[use.output])
            schedule.parallelize(read, -1, ParallelType.vectorize)


def _check_threads(space: ReductionSpace, params: ReductionParams) -> None:
    """Raises ParamsError unless lparams.bdimx threads are what a row that is held needs, as far as its length
    is known.
    """
    threads = params.lparams.bdimx
    length = _row_length(space, params)
    if threads < 1 or not params.batches_per_block_inner_reduction:
        return
    if length is not None:
        needed = _threads_needed(length, params)
        if threads != needed:
            raise ParamsError(
                path="lparams.bdimx", expected=f"-1 or {needed}, for rows of {length}", given=threads
            )
    elif not _is_one_size(space):
        row = product(axis.extent for axis in space.reduction)
        raise ParamsError(path="lparams.bdimx", expected=f"-1, as it follows from {row}", given=threads)


def _is_one_size(space: ReductionSpace) -> bool:
    """Whether a row is as long as one dimension of an input, of which something may be assumed."""
    return len(space.reduction) == 1 and isinstance(space.reduction[0].extent, (Symbol, Const))


def _elements_a_thread(params: ReductionParams) -> int:
    """Of a row that is held; 0 of one that is not."""
    return params.unroll_factor_inner_reduction * params.batches_per_block_inner_reduction


def _threads_needed(length: int, params: ReductionParams) -> int:
    """To hold a row of this length."""
    step = _thread_step(params)
    return max(1, ceil_div(length + _elements_before(params), _elements_a_thread(params) * step)) * step


def _elements_before(params: ReductionParams) -> int:
    """The most places that the first vector of a row has before the row."""
    return params.unroll_factor_inner_reduction - 1 if params.shift_rows else 0


def _thread_step(params: ReductionParams) -> int:
    """The number of a block's threads is a multiple of this."""
    return WARP_SIZE if params.pad_inner_reduction_to_warp else 1


def _row_length(space: ReductionSpace, params: ReductionParams) -> int | None:
    """The elements of a row, if the fusion or the params say how many.

    Raises:
        ParamsError: the params assume sizes that the dimensions cannot have.
    """
    sizes, known = params.assumed_reduction_sizes, [as_int(axis.extent) for axis in space.reduction]
    if sizes:
        fits = len(sizes) == len(known) and all(b in (None, a) for a, b in zip(sizes, known))
        if not fits or not all(isinstance(axis.extent, (Symbol, Const)) for axis in space.reduction):
            expected = ", ".join(str(axis.extent) for axis in space.reduction)
            raise ParamsError(path="assumed_reduction_sizes", expected=f"() or ({expected})", given=sizes)
        return prod(sizes)
    return as_int(product(axis.extent for axis in space.reduction))


def _assume_row_length(schedule: Schedule, space: ReductionSpace, params: ReductionParams) -> None:
    """The sizes that the params assume, or those that lparams.bdimx threads just cover.

    The block is constant then, if the row is not anyway.
    """
    threads, each = params.lparams.bdimx, _elements_a_thread(params)
    if params.assumed_reduction_sizes:
        ranges = [(size, size) for size in params.assumed_reduction_sizes]
    elif each and threads > 0 and _is_one_size(space):
        before = _elements_before(params)
        ranges = [(max(1, each * (threads - _thread_step(params)) + 1 - before), each * threads - before)]
    else:
        return
    tensor = space.reference
    for axis, (low, high) in zip(space.reduction, ranges):
        if as_int(axis.extent) is None:
            schedule.assume(tensor, tensor.logical.index(axis), low, high)


def _cut(
    schedule: Schedule,
    tensor: TensorView,
    params: ReductionParams,
    has_rows: bool,
    aligned: TensorView | None,
) -> list[int]:
    """[I, R] -> [BIDx, TIDy, TIDx | batches, vector], or [.. | serial, unroll, vector] if none is held.

    `aligned`: vectors begin as those of its rows do. Returns the positions after the bar.
    """
    if aligned is None:
        schedule.split(tensor, -1, params.unroll_factor_inner_reduction)
    else:
        schedule.shifted_split(tensor, -1, params.unroll_factor_inner_reduction, aligned)
    batches = params.batches_per_block_inner_reduction
    serial = 2
    if batches and params.assumed_reduction_sizes:
        # All threads have an element of all batches but the last, which alone has a guard.
        schedule.split(tensor, -2, _threads_needed(prod(params.assumed_reduction_sizes), params))
        schedule.reorder(tensor, {-2: -3})
    elif batches:
        # batches is constant, so that registers hold them; the threads follow from the size of the row
        schedule.split(tensor, -2, batches, inner_split=False)
        schedule.reorder(tensor, {-2: -3})
    else:
        schedule.split(tensor, -2, params.lparams.bdimx)
        schedule.reorder(tensor, {-2: -3})
        schedule.split(tensor, -2, params.unroll_factor_top_of_vectorization)
        schedule.parallelize(tensor, -2, ParallelType.unroll)
        serial = 3
    schedule.parallelize(tensor, -1 - serial, ParallelType.block_x, _thread_step(params))
    if has_rows:
        bind_rows(schedule, tensor, params)
    end = len(tensor.loop)
    return list(range(end - serial, end))
