"""The outer persistent scheduler: normalizations along dimensions that are not contiguous.

One pass over memory: a block holds a tile of columns while reductions down them complete, and uses it again,

    [I, R] -> [I blocks, R threads y, I threads x | batches, I vector]

I is what is kept, the contiguous dimension innermost. The tile is held in registers or in shared memory;
columns too long for both are left to other schedulers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, ClassVar

from fusewright.core.enums import ParallelType, SchedulerType
from fusewright.core.hardware import REGISTER_BYTES, WARP_SIZE, HardwareInfo
from fusewright.ir.fusion import Fusion
from fusewright.ir.value import TensorView
from fusewright.schedule.schedule import Schedule
from fusewright.schedulers.base import (
    BuiltInScheduler,
    Facts,
    Part,
    Planner,
    Proposal,
    Reject,
    Rewrite,
    accepted,
)
from fusewright.schedulers.cost import CostModel, busy_share, overlap
from fusewright.schedulers.held_length import HeldLength, is_one_size
from fusewright.schedulers.held_rows import (
    Held,
    held_bytes,
    held_tensors,
    hold_in_shared,
    recompute,
    state_bytes,
    times_computed,
    variance_in_two_passes,
)
from fusewright.schedulers.io import VectorLimits, cache_inputs_and_outputs
from fusewright.schedulers.params import LaunchParams, ReductionParams
from fusewright.schedulers.reduction_loops import distribute, inline, merge_to_rows_and_reduction
from fusewright.schedulers.reduction_space import ReductionSpace, reduction_space
from fusewright.schedulers.sizes import ceil_div
from fusewright.sym import Const, Expr, Symbol

# Bytes of a tile's row, of the narrowest tensor that is read: a sector at least, as the neighbours in the
# same line are then read by another block at about the same time.
TILE_ROW_BYTES = (128, 64, 32)
# Threads of a block: fewer leave each so many batches that their loads do not fit in registers together.
BLOCKS_OF_THREADS = (1024, 512, 256, 128)
# Batches that a thread holds at most.
MAX_BATCHES = 16
# A thread needs this many registers besides what it holds, and as many again for each column's results.
REGISTERS_TO_WORK = 40
# Bytes that the alignment of all buffers in shared memory may take together.
SHARED_SLACK = 1024
# What a block spends on each tile with no loads or stores in flight, while other blocks of the SM may have
# some.
TILE_SECONDS = 2e-6
# What that adds to a kernel, whose last blocks nothing overlaps with.
HELD_SECONDS = 0.5e-6
# Beyond this growth by what is computed anew for each reduction several kernels are cheaper.
MAX_GROWTH = 4


class OuterPersistentScheduler(BuiltInScheduler):
    """Accepts reductions across memory whose results meet the reduced dimension again."""

    type = SchedulerType.outer_persistent
    params_type = ReductionParams
    fixed_params: ClassVar[Mapping[str, Any]] = {"persistent_kernel": True, "fastest_dim": False}

    def prepare(self, fusion: Fusion) -> Planner | Reject:
        space = _space(fusion)
        return Reject(space) if isinstance(space, str) else _Planner(fusion, space)

    def apply(self, schedule: Schedule, params: ReductionParams) -> None:
        original = accepted(self, _space(schedule.fusion))
        length = _length_of(params)
        length.check(original)
        ports = cache_inputs_and_outputs(schedule, original.read_once if params.streams_inputs else ())
        space = accepted(self, reduction_space(schedule.fusion))
        reference = merge_to_rows_and_reduction(schedule, space)
        length.assume(schedule, space)
        batches = _cut(schedule, reference, params, length)
        width = params.unroll_factor_iter_dom if params.vectorize_iter_dom else 1
        partials = distribute(schedule, space, reference, ports, [batches], width)
        # Once loops are bound, what is computed anew takes those of what it stands for.
        recompute(schedule, space, everything=params.project_persistent_buffers, loads=False)
        if params.persistent_in_shared_memory:
            hold_in_shared(schedule, held_tensors(schedule.fusion, space))
        inline(schedule, space, partials, width, batches)

    def propose_redefinition(self, part: Part, facts: Facts, hardware: HardwareInfo) -> Rewrite | None:
        """Two sums in place of Welford's steps."""
        return variance_in_two_passes(part)


def _space(fusion: Fusion) -> ReductionSpace | str:
    """The space of a fusion that the scheduler takes, or why it does not."""
    space = reduction_space(fusion)
    if isinstance(space, str):
        return space
    if space.is_inner or not space.iteration:
        main = space.main.tensor if space.main is not None else space.reference
        return f"the contiguous dimension of {main.name} is reduced"
    if not space.after:
        return "nothing uses the result of the reduction"
    if times_computed(fusion) > MAX_GROWTH * len(fusion.nodes):
        return "what follows from the inputs would be computed anew for each of too many reductions"
    return space


@dataclass(frozen=True, slots=True)
class _Tile:
    """A way to hold tiles of columns.

    Attributes:
        threads_x, threads_y: along the columns and down them. batches: rows of a thread.
        project: only inputs are held. shared: in shared memory.
        resident: blocks on an SM at a time.
    """

    threads_x: int
    threads_y: int
    batches: int
    project: bool
    shared: bool
    resident: int


@dataclass(frozen=True, eq=False)
class _Planner:
    """Derives params from the sizes of a call."""

    fusion: Fusion
    space: ReductionSpace

    @cached_property
    def _vectors(self) -> VectorLimits | None:
        return self.space.vector_limits(self.fusion)

    @cached_property
    def _held(self) -> tuple[Held, Held]:
        """What is held: all that is needed again, or inputs alone."""
        return held_bytes(self.fusion, project=False), held_bytes(self.fusion, project=True)

    @cached_property
    def _state_bytes(self) -> int:
        return state_bytes(self.fusion)

    @cached_property
    def _element_bytes(self) -> int:
        """Of the narrowest tensor that is read at every point."""
        space = self.space
        return min((a.tensor.dtype.size for a in space.loads if space.is_full(a)), default=REGISTER_BYTES)

    @cached_property
    def _cost(self) -> CostModel:
        return CostModel(self.fusion, self.space.sectors(self.fusion))

    def __call__(self, facts: Facts, hardware: HardwareInfo) -> Proposal | Reject:
        space = self.space
        width = self._vectors.width(facts) if self._vectors is not None else 1
        columns, length = space.iteration_size(facts), space.reduction_size(facts)
        if not columns or not length:
            return Reject("there is nothing to hold")
        choices = [
            (self._speed(tile, columns, width, facts, hardware), tile)
            for tile in self._tiles(columns, length, width, hardware)
        ]
        if not choices:
            return Reject(f"columns of {length} do not fit in a block")
        speed, tile = max(choices, key=lambda choice: choice[0])
        where = "shared memory" if tile.shared else "registers"
        params = ReductionParams(
            fastest_dim=False,
            persistent_kernel=True,
            project_persistent_buffers=tile.project,
            persistent_in_shared_memory=tile.shared,
            batches_per_block_inner_reduction=tile.batches,
            vectorize_iter_dom=width > 1,
            unroll_factor_iter_dom=width,
            lparams=LaunchParams(bdimx=tile.threads_x, bdimy=tile.threads_y),
            reason=f"{columns} contiguous columns of {length}: {tile.threads_x} threads of {width} columns, "
            f"{tile.threads_y} down the columns hold {tile.batches} rows each in {where}"
            f"{', inputs only' if tile.project else ''}",
        )
        if self._are_stable(facts):
            params = replace(params, assumed_reduction_sizes=tuple(map(facts.value, self._sizes)))
        elif not is_one_size(space):
            params = replace(params, lparams=replace(params.lparams, bdimy=-1))
        return Proposal(params, self._cost.estimate(facts, hardware, speed=speed, steps=HELD_SECONDS))

    @cached_property
    def _sizes(self) -> tuple[Expr, ...]:
        return tuple(axis.extent for axis in self.space.reduction)

    def _are_stable(self, facts: Facts) -> bool:
        """Whether to take the length of a column as a constant: guards of all batches but the last go."""
        unknown = [size for size in self._sizes if not isinstance(size, Const)]
        return bool(unknown) and all(isinstance(size, Symbol) and size in facts.stable for size in unknown)

    def _tiles(self, columns: int, length: int, width: int, hardware: HardwareInfo) -> Iterator[_Tile]:
        """The tiles that fit in a block."""
        for row_bytes in TILE_ROW_BYTES:
            threads_x = max(1, row_bytes // (width * self._element_bytes))
            if threads_x > 1 and threads_x // 2 * width >= columns:
                continue
            for block in BLOCKS_OF_THREADS:
                down = block // threads_x
                batches = ceil_div(length, down)
                step = max(1, WARP_SIZE // threads_x)
                threads_y = ceil_div(ceil_div(length, batches), step) * step
                if batches <= MAX_BATCHES and threads_x * threads_y <= hardware.max_threads_per_block:
                    yield from self._places(threads_x, threads_y, batches, width, hardware)

    def _places(
        self, threads_x: int, threads_y: int, batches: int, width: int, hardware: HardwareInfo
    ) -> Iterator[_Tile]:
        """Where a tile of so many threads and batches may be held."""
        threads = threads_x * threads_y
        most = hardware.registers_per_block // threads
        by_threads = hardware.max_threads_per_sm // threads
        exchanged = threads * width * self._state_bytes + SHARED_SLACK
        for project, held in enumerate(self._held):
            registers = REGISTERS_TO_WORK + 2 * width + batches * width * held.at_once // REGISTER_BYTES
            if registers <= min(most, hardware.max_registers_per_thread):
                resident = min(
                    hardware.registers_per_sm // (threads * registers),
                    hardware.shared_memory_per_sm // exchanged,
                    by_threads,
                )
                yield _Tile(threads_x, threads_y, batches, bool(project), False, max(1, resident))
        held = self._held[True]
        bytes_a_block = threads * batches * width * held.in_all + exchanged
        if bytes_a_block <= hardware.shared_memory_per_block_optin and REGISTERS_TO_WORK + 2 * width <= most:
            resident = min(
                hardware.shared_memory_per_sm // bytes_a_block,
                hardware.registers_per_sm // (threads * (REGISTERS_TO_WORK + 2 * width)),
                by_threads,
            )
            yield _Tile(threads_x, threads_y, batches, True, True, max(1, resident))

    def _speed(self, tile: _Tile, columns: int, width: int, facts: Facts, hardware: HardwareInfo) -> float:
        """The share of a copy's speed that is kept."""
        blocks = ceil_div(columns, tile.threads_x * width)
        moving = self._cost.seconds_an_sm(facts, hardware) / blocks
        kept = overlap(tile.resident, moving, TILE_SECONDS)
        return busy_share(blocks, hardware) * kept


def _length_of(params: ReductionParams) -> HeldLength:
    """How the threads down the columns cover them: blocks are whole warps."""
    return HeldLength(
        what="columns",
        path="lparams.bdimy",
        threads=params.lparams.bdimy,
        elements=params.batches_per_block_inner_reduction,
        step=max(1, WARP_SIZE // params.lparams.bdimx),
        sizes=params.assumed_reduction_sizes,
    )


def _cut(schedule: Schedule, tensor: TensorView, params: ReductionParams, length: HeldLength) -> int:
    """[I, R] -> [I BIDx, R TIDy, I TIDx | R batches | I vector]; returns the position of the batches."""
    if length.sizes:
        # All threads have a row of all batches but the last, which alone has a guard.
        schedule.split(tensor, 1, length.threads_needed(prod(length.sizes)))
    else:
        # batches is constant, so that registers hold them; the threads follow from the size of the column
        schedule.split(tensor, 1, params.batches_per_block_inner_reduction, inner_split=False)
    schedule.split(tensor, 0, params.unroll_factor_iter_dom)
    schedule.split(tensor, 0, params.lparams.bdimx)
    # now [I blocks, I threads, I vector, R batches, R threads]
    schedule.reorder(tensor, {1: 2, 2: 4, 3: 3, 4: 1})
    schedule.parallelize(tensor, 0, ParallelType.grid_x)
    schedule.parallelize(tensor, 1, ParallelType.block_y, length.step)
    schedule.parallelize(tensor, 2, ParallelType.block_x)
    if params.unroll_factor_iter_dom > 1:
        schedule.parallelize(tensor, 4, ParallelType.unroll)
    return 3
