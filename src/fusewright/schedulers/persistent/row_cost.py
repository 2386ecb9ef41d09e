"""The estimated cost of kernels that hold rows, or go over them several times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from fusewright.core.hardware import HardwareInfo
from fusewright.core.once import cached_property
from fusewright.ir.fusion import Fusion
from fusewright.schedulers.base import Cost, Facts
from fusewright.schedulers.cost import CostModel, busy_share, overlap
from fusewright.schedulers.params import ReductionParams
from fusewright.schedulers.persistent import clustered_rows
from fusewright.schedulers.persistent.row_buffers import RowBuffers
from fusewright.schedulers.persistent.scanned_rows import EXPOSED_ARITHMETIC, Steps
from fusewright.schedulers.reduction.variances import has_welford, with_welford
from fusewright.schedulers.sizes import ceil_div

# Seconds that a block spends on each row with no loads or stores in flight, between the last load and the
# first store. Other blocks of the SM may have some meanwhile.
#   H200, of a copy's speed: rows of 65536 bf16, one block an SM, 0.7; rows of 16384 float 0.8.
ROW_SECONDS = 2e-6
# Seconds that this adds to a kernel, whose last blocks nothing overlaps with.
HELD_SECONDS = 0.3e-6
# Share of a copy's speed that is left where a block reads its row again and again, with a barrier after each
# time.
RELOADED_SPEED = 0.85
# The same where rows are copied ahead, or pass through shared memory as one run.
STREAMED_SPEED = 0.88
# Cost of reading a row again that is still in L2, as a share of the cost of reading it from memory.
L2_READ_COST = 0.3


@dataclass(frozen=True, eq=False)
class RowCost:
    """Estimates for kernels of one fusion.

    Attributes:
        model: the cost of the fusion's memory traffic and arithmetic.
        buffers: what is held of a row.
        chain: how often a row that is not held is read again.
    """

    fusion: Fusion
    model: CostModel
    buffers: RowBuffers
    chain: int

    def estimate(
        self, rows: int, length: int, params: ReductionParams, facts: Facts, hardware: HardwareInfo
    ) -> Callable[[], Cost]:
        """Returns the cost of a kernel with such params for `rows` of `length`.

        A row that is held is read once, and blocks that are few on an SM wait for each other's phases. A row
        that is not held is read again after each reduction.
        """
        if params.circular_stages or params.staged_vector:
            return partial(self._of_speed, facts, hardware, rows, STREAMED_SPEED)
        blocks = ceil_div(rows, params.lparams.bdimy * params.rows_in_flight)
        if not params.batches_per_block_inner_reduction:
            again = self._cost_of_reading_again(min(rows, hardware.sm_count), length, hardware)
            speed = busy_share(blocks, hardware) * RELOADED_SPEED
            return self.model.estimate(facts, hardware, reads=1 + self.chain * again, speed=speed)
        blocks *= params.blocks_per_cluster
        resident = max(1, self.buffers.resident_blocks(params, hardware))
        idle = ROW_SECONDS if params.blocks_per_cluster == 1 else clustered_rows.ROW_SECONDS
        most = clustered_rows.speed(params.blocks_per_cluster, hardware)
        return partial(self._of_held_rows, facts, hardware, blocks, resident, idle, most)

    def estimate_steps(
        self,
        rows: int,
        length: int,
        element_bytes: int,
        steps: Steps,
        facts: Facts,
        hardware: HardwareInfo,
    ) -> Callable[[], Cost]:
        """Returns the cost of going over `rows` of `length` in steps, of which shared memory holds some.

        element_bytes: the bytes of all loads of an element.
        """
        at_a_time = min(rows, steps.resident * hardware.sm_count)
        is_in_l2 = at_a_time * length * element_bytes <= hardware.l2_bytes
        again = steps.again * (L2_READ_COST if is_in_l2 else 1.0)
        moving = self.model.seconds_an_sm(facts, hardware) / max(1, rows)
        speed = overlap(steps.resident, moving, ROW_SECONDS) * RELOADED_SPEED * busy_share(rows, hardware)
        exposed = EXPOSED_ARITHMETIC * (1 + self.chain) * self.model.computing_seconds(facts, hardware)
        return self.model.estimate(facts, hardware, reads=1 + self.chain * again, speed=speed, steps=exposed)

    def _cost_of_reading_again(self, at_a_time: int, length: int, hardware: HardwareInfo) -> float:
        """Returns the cost of reading a row again, as a share of that of reading it from memory, if blocks
        work on so many rows at a time.
        """
        row_bytes = length * self.buffers.inputs.at_once
        return L2_READ_COST if at_a_time * row_bytes <= hardware.l2_bytes else 1.0

    def _of_held_rows(
        self, facts: Facts, hardware: HardwareInfo, blocks: int, resident: int, idle: float, most: float
    ) -> Cost:
        """Returns the cost of `blocks` that hold rows, `resident` on an SM at a time.

        Each moves nothing for `idle` seconds, and otherwise reaches the share `most` of a copy's speed.
        """
        moving = self.model.seconds_an_sm(facts, hardware) / max(1, blocks)
        return self._of_speed(facts, hardware, blocks, most * overlap(resident, moving, idle))

    def _of_speed(self, facts: Facts, hardware: HardwareInfo, blocks: int, kept: float) -> Cost:
        """Returns the cost of `blocks` that hold rows and keep such a share of a copy's speed."""
        speed, steps = busy_share(blocks, hardware) * kept, HELD_SECONDS
        if self._has_welford:
            speed, steps = with_welford(speed, steps)
        return self.model.estimate(facts, hardware, speed=speed, steps=steps)()

    @cached_property
    def _has_welford(self) -> bool:
        return has_welford(self.fusion)
