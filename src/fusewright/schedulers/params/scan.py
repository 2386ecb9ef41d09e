"""Params of kernels that scan rows."""

from __future__ import annotations

from dataclasses import dataclass

from fusewright.core.hardware import HardwareInfo
from fusewright.schedulers.params.decision import When, choice
from fusewright.schedulers.params.heuristic import UNROLLING, WIDTHS, HeuristicParams
from fusewright.schedulers.params.launch import REQUIRED, Extent, LaunchParams, launch
from fusewright.schedulers.params.legal import GIVEN, counts, each

_INNER = When(lambda params: params.fastest_dim, "with fastest_dim False")
_VECTORS = When(
    lambda params: params.fastest_dim and params.vectorization_factor > 1, "without vectors along rows"
)


@dataclass(frozen=True, slots=True)
class ScanParams(HeuristicParams):
    """How the rows of a scan are split.

    Inner: lparams.bdimx threads go through a row in steps, each with unroll_factor vectors of
    vectorization_factor elements in flight; lparams.bdimy rows per block.

    Outer: lparams.bdimx threads along the contiguous dimension, vectorization_factor columns each, and
    lparams.bdimy threads down the columns, each with unroll_factor rows in flight.

    lparams.gdimy blocks share rows, or columns, and take steps of them together.

    Attributes:
        fastest_dim: whether the scanned dimension is contiguous in memory ("inner"); else "outer".
        prefetches_steps: the data of the next step is loaded while a step is scanned and stored.
        shift_rows: the vectors of each row start at aligned addresses, whatever its length and position.
        unaligned_inputs: positions of the inputs whose vectors may start at any element.
    """

    lparams: LaunchParams = launch(
        bdimx=REQUIRED, bdimy=REQUIRED, gdimy=Extent(read=lambda params: params.threads_that_scan > 1)
    )
    fastest_dim: bool = choice(True, GIVEN)
    vectorization_factor: int = choice(1, WIDTHS)
    unroll_factor: int = choice(1, UNROLLING)
    prefetches_steps: bool = choice(False)
    shift_rows: bool = choice(False, when=_INNER)
    unaligned_inputs: tuple[int, ...] = choice((), each(counts(0)), _VECTORS)

    @property
    def threads_that_scan(self) -> int:
        """The number of threads that scan a row together."""
        return self.lparams.bdimx if self.fastest_dim else self.lparams.bdimy

    @property
    def vector_widths(self) -> tuple[int, ...]:
        """Elements of the accesses that it makes."""
        return (self.vectorization_factor,)

    @property
    def elements_held(self) -> int:
        """The elements of one input that a thread has in registers at once."""
        return self.vectorization_factor * self.unroll_factor

    def validate(self, hardware: HardwareInfo) -> None:
        HeuristicParams.validate(self, hardware)
        if self.shift_rows:
            self.expect("prefetches_steps", False, "where rows are shifted")
