"""What a user tells a heuristic before it chooses params."""

from __future__ import annotations

from dataclasses import dataclass

from fusewright.core.errors import ParamsError
from fusewright.core.hardware import HardwareInfo
from fusewright.schedulers.params.decision import Decision, choice
from fusewright.schedulers.params.heuristic import UNROLLING, WIDTHS
from fusewright.schedulers.params.legal import counts


@dataclass(frozen=True, slots=True)
class SchedulerHyperParameters(Decision):
    """Bounds on what the heuristic of the inner_outer_persistent scheduler chooses.

    Attributes:
        vectorize_factor: elements of one access. unroll_factor: accesses that a thread has in flight.
        threads_per_block_min, threads_per_block_max: of a block.
        is_warp_specialized: other threads load than those that compute.
    """

    vectorize_factor: int = choice(1, WIDTHS)
    unroll_factor: int = choice(1, UNROLLING)
    threads_per_block_min: int = choice(1, counts(1, lambda hardware: hardware.max_threads_per_block))
    threads_per_block_max: int = choice(1, counts(1, lambda hardware: hardware.max_threads_per_block))
    is_warp_specialized: bool = False

    def validate(self, hardware: HardwareInfo) -> None:
        Decision.validate(self, hardware)
        if self.threads_per_block_max < self.threads_per_block_min:
            raise ParamsError(
                path="threads_per_block_max",
                expected=f"at least threads_per_block_min ({self.threads_per_block_min})",
                given=self.threads_per_block_max,
            )
