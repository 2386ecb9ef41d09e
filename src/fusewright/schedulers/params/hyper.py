"""A user's settings for the choices of a heuristic."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fusewright.core.hardware import HardwareInfo
from fusewright.schedulers.params.decision import Decision, choice
from fusewright.schedulers.params.heuristic import UNROLLING, WIDTHS
from fusewright.schedulers.params.inner_outer import InnerOuterParams
from fusewright.schedulers.params.legal import counts


@dataclass(frozen=True, slots=True)
class SchedulerHyperParameters(Decision):
    """Bounds on the choices of the heuristic of the inner_outer_persistent scheduler.

    Attributes:
        vectorize_factor: elements per access.
        unroll_factor: accesses in flight per thread.
        threads_per_block_min, threads_per_block_max: limits on the threads of a block.
        is_warp_specialized: whether separate threads load.
    """

    vectorize_factor: int = choice(1, WIDTHS)
    unroll_factor: int = choice(1, UNROLLING)
    threads_per_block_min: int = choice(1, counts(1, lambda hardware: hardware.max_threads_per_block))
    threads_per_block_max: int = choice(1, counts(1, lambda hardware: hardware.max_threads_per_block))
    is_warp_specialized: bool = False

    def applied_to(self, params: InnerOuterParams) -> InnerOuterParams:
        """Params with these settings, if they are not defaults.

        Raises:
            ParamsError: a value that no kernel can have.
        """
        launch = params.lparams
        across, rows = launch.bdimx * launch.bdimz, launch.bdimy
        if self.threads_per_block_max != 1:
            rows = max(1, min(rows, self.threads_per_block_max // across))
        if self.threads_per_block_min != 1:
            rows = max(rows, -(-self.threads_per_block_min // across))
        unroll = params.unroll_factor if self.unroll_factor == 1 else self.unroll_factor
        step = rows * unroll
        return replace(
            params,
            lparams=replace(launch, bdimy=rows),
            vectorization_factor=(
                params.vectorization_factor if self.vectorize_factor == 1 else self.vectorize_factor
            ),
            unroll_factor=unroll,
            rows_per_block=-(-params.rows_per_block // step) * step,
        )

    def validate(self, hardware: HardwareInfo) -> None:
        Decision.validate(self, hardware)
        self.expect("is_warp_specialized", False, "as there are no warps that only load yet")
        least, most = self.threads_per_block_min, self.threads_per_block_max
        fits = most == 1 or most >= least
        self.require(fits, "threads_per_block_max", f"at least threads_per_block_min ({least})")
