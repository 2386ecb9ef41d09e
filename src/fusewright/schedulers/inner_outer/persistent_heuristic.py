"""Chooses params of the inner-outer persistent scheduler, from the arrangement of threads along rows that
`tile_choice` finds: how many rows a block processes at a time, where the next row is buffered meanwhile, and
the estimated cost of the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fusewright.core.hardware import HardwareInfo
from fusewright.core.once import cached_property
from fusewright.ir.fusion import Fusion
from fusewright.schedulers.base import Facts, Proposal, Reject
from fusewright.schedulers.cost import GRID_REDUCTION_SECONDS, CostModel, busy_share
from fusewright.schedulers.inner_outer.block_resources import MAX_COLUMNS_A_THREAD, BlockResources
from fusewright.schedulers.inner_outer.persistent_space import InnerOuterPersistentSpace
from fusewright.schedulers.inner_outer.row_tiles import Rank, Rows, RowTile, blocks_text, groups_of, in_turns
from fusewright.schedulers.inner_outer.tile_choice import SHIFTED_STAGES, TileChoice
from fusewright.schedulers.params import CompileParams, InnerOuterPersistentParams, LaunchParams
from fusewright.schedulers.persistent.held_length import are_stable, for_any_length, for_this_length
from fusewright.schedulers.reduction.variances import has_welford, with_welford
from fusewright.schedulers.reduction.wider_vectors import LEAST_SHIFTED, rows_of_reductions
from fusewright.schedulers.shifted_rows import ShiftedRows, is_narrow
from fusewright.schedulers.sizes import among_few, ceil_div, power_of_two_at_least, whole_warps
from fusewright.schedulers.vector_limits import VectorLimits

# Loads of an element up to which one block of an SM takes several rows of several warps at once.
#   H200, gradients of normalizations within those of GPT-2 and LLaMA, 16384x4096, of more loads: two blocks
#   take 0.8 to 0.9 of the time of one.
MAX_LOADS_TOGETHER = 2
# Rows of a block from which on shifted rows are known to be faster than those that are read by element.
SHIFTED_ROWS_A_BLOCK = 5
# Share of a copy's speed that such a kernel reaches.
SPEED = 0.85


@dataclass(frozen=True, eq=False)
class InnerOuterPersistentPlanner:
    """Derives params from the sizes of a call."""

    fusion: Fusion
    space: InnerOuterPersistentSpace

    @cached_property
    def _cost(self) -> CostModel:
        return CostModel(self.fusion, self.space.rows.sectors(self.fusion))

    @cached_property
    def _vectors(self) -> VectorLimits | None:
        return self.space.rows.vector_limits(self.fusion)

    @cached_property
    def _shifted(self) -> ShiftedRows:
        return rows_of_reductions(self.fusion, self.space.of_rows)

    @cached_property
    def _resources(self) -> BlockResources:
        return BlockResources(self.fusion, self.space)

    @cached_property
    def _tiles(self) -> TileChoice:
        return TileChoice(self._resources)

    @cached_property
    def _has_welford(self) -> bool:
        return has_welford(self.fusion)

    def __call__(self, facts: Facts, hardware: HardwareInfo) -> Proposal | Reject:
        space = self.space.rows
        width = self._vectors.width(facts) if self._vectors is not None else 1
        count, length = space.iteration_size(facts), space.reduction_size(facts)
        if not count or not length:
            return Reject("there is nothing to reduce")
        is_stable = are_stable(space, facts)
        knows_length = is_stable or space.is_constant
        rows = Rows(count, length, width, knows_length, projects=self._resources.inputs_take_less(width))
        params = self._params(rows, facts, hardware)
        if params is None:
            return Reject(f"no block or cluster holds a row of {length} and what its columns come to")
        if self._cost.keeps(facts, hardware):
            params = replace(params, keeps_inputs=True)
        groups, passed = params.lparams.gdimx, params.lparams.gdimx * length * self._resources.state_bytes
        steps = GRID_REDUCTION_SECONDS + 2 * passed / (hardware.memory_bandwidth_gbs * 1e9)
        speed = SPEED * busy_share(groups * params.blocks_per_cluster, hardware)
        if self._has_welford:
            speed, steps = with_welford(speed, steps)
        estimate = self._cost.estimate(facts, hardware, speed=speed, steps=steps)
        if is_stable:
            # There are no guards along the rows then.
            #   H200, layer norm backward of 16384x4096 bf16: 1.2 times as fast.
            return Proposal(for_this_length(params, space, facts, "rows"), estimate)
        return Proposal(for_any_length(params, space, threads="bdimy"), estimate)

    def _params(self, rows: Rows, facts: Facts, hardware: HardwareInfo) -> InnerOuterPersistentParams | None:
        """Returns params for the rows, shifted if that is faster; None where nothing holds them."""
        tile = self._tiles.best(rows, hardware)
        if tile is None or not self._tiles.is_faster_than_shifted(tile, hardware):
            shifted = self._shifted_params(rows, facts, hardware)
            if shifted is not None:
                return shifted
        return None if tile is None else self._tile_params(rows, tile, hardware)

    def _shifted_params(
        self, rows: Rows, facts: Facts, hardware: HardwareInfo
    ) -> InnerOuterPersistentParams | None:
        """Returns params for rows whose vectors begin at an aligned address of each row, if aligned ones of
        all are narrow; else None.

        Blocks take such rows in turns and copy them ahead. What all rows read is chosen from vectors once.
        """
        found = self._shifted.vectors(facts) if rows.length >= LEAST_SHIFTED and rows.knows_length else None
        if found is None or not is_narrow(rows.width, found):
            return None
        unaligned = {self.fusion.inputs[position] for position in found.unaligned}
        if not unaligned <= set(self.space.column_inputs):
            return None
        places = rows.length + found.width - 1
        to_hold = replace(rows, length=places, width=found.width, shifts=True)
        tile = self._tiles.of_shifted_rows(to_hold, hardware)
        if tile is None:
            return None
        blocks = in_turns(tile, hardware)
        if rows.count < SHIFTED_ROWS_A_BLOCK * blocks:
            return None
        return InnerOuterPersistentParams(
            vectorization_factor=found.width,
            batches_per_block_inner_reduction=tile.batches,
            project_persistent_buffers=True,
            prefetch_rows=True,
            circular_stages=self._shifted_stages(tile, hardware),
            shift_rows=True,
            unaligned_inputs=found.unaligned,
            blocks_per_cluster=tile.cluster,
            lparams=LaunchParams(gdimx=blocks, bdimx=tile.lanes, bdimy=tile.along, bdimz=1),
            cparams=CompileParams(
                maxrregcount=hardware.registers_a_thread(whole_warps(tile.threads) * tile.resident)
            ),
            reason=f"{rows.count} rows of {rows.length}: {blocks} {blocks_text(tile)} take them in turns "
            f"and copy the next ones ahead, {tile.lanes} x {tile.along} threads a row, "
            f"{tile.batches} vectors of {found.width} a thread; aligned by the start of each row",
        )

    def _shifted_stages(self, tile: RowTile, hardware: HardwareInfo) -> int:
        """Returns the rows of the ring of blocks that take shifted rows."""
        if tile.cluster == 1:
            return tile.choice.stages
        return min(SHIFTED_STAGES, self._resources.most_stages(tile, hardware))

    def _tile_params(self, rows: Rows, tile: RowTile, hardware: HardwareInfo) -> InnerOuterPersistentParams:
        """Returns params for rows of which a block, or a cluster, holds such a tile."""
        width, count = tile.rows.width, rows.count
        at_once, resident = tile.at_once, tile.resident
        if self._is_alone_on_sm(tile):
            most = min(hardware.max_threads_per_block // tile.threads, ceil_div(count, hardware.sm_count))
            at_once, resident = min(tile.rows_an_sm, most, hardware.max_block[2]), 1
        threads = tile.threads * at_once
        # All blocks have to be resident at once, so that they can wait for each other.
        registers = hardware.registers_a_thread(whole_warps(threads) * resident)
        together = groups_of(replace(tile, resident=resident), hardware)
        blocks = min(together, among_few(ceil_div(count, at_once)))
        groups = ceil_div(tile.rows.length, tile.lanes * blocks)
        ahead = tile.choice.prefetches and count > blocks * at_once
        stages = self._resources.stages(tile, hardware) if ahead and tile.choice.stages else 0
        holds_columns = ahead and self._resources.holds_columns(tile, at_once, resident, stages, hardware)
        return InnerOuterPersistentParams(
            vectorization_factor=width,
            batches_per_block_inner_reduction=tile.batches,
            project_persistent_buffers=tile.rows.projects or stages > 0,
            prefetch_rows=ahead,
            columns_a_thread=min(width, MAX_COLUMNS_A_THREAD, power_of_two_at_least(groups)),
            columns_in_shared_memory=holds_columns,
            circular_stages=stages,
            blocks_per_cluster=tile.cluster,
            lparams=LaunchParams(gdimx=blocks, bdimx=tile.lanes, bdimy=tile.along, bdimz=at_once),
            cparams=CompileParams(maxrregcount=registers),
            reason=f"{count} rows of {rows.length}: {blocks} {blocks_text(tile)} of {at_once} rows at a "
            f"time, {tile.lanes} x {tile.along} threads a row, {tile.batches} vectors of {width} a "
            "thread" + (", the next row ahead" if ahead else ""),
        )

    def _is_alone_on_sm(self, tile: RowTile) -> bool:
        """Whether one block of an SM takes the rows of all, so that there are fewer results to pass on.

        H200, both gradients of 16384x4096: 0.95 to 0.97 of the time.
        """
        alone = tile.choice.rank == Rank.IN_REGISTERS or self._resources.is_by_element(tile.rows)
        few_loads = len(self.space.rows.full_loads) <= MAX_LOADS_TOGETHER
        return alone and (tile.along == 1 or few_loads)
