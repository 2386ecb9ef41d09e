"""Params of kernels that reduce one domain along its rows and along its columns."""

from __future__ import annotations

from dataclasses import dataclass

from fusewright.core.hardware import HardwareInfo
from fusewright.schedulers.params.decision import choice
from fusewright.schedulers.params.heuristic import UNROLLING, WIDTHS, HeuristicParams
from fusewright.schedulers.params.launch import REQUIRED, LaunchParams, launch
from fusewright.schedulers.params.legal import SIZE, counts, each

# Rows whose results a block holds in shared memory, of the widest states there are.
MAX_ROWS_PER_BLOCK = 4096


@dataclass(frozen=True, slots=True)
class InnerOuterParams(HeuristicParams):
    """How a domain is split that is reduced along its rows and along its columns.

    Attributes:
        lparams: bdimx * bdimz threads lie along a row, bdimy down the columns. Shuffles combine the partial
            results of threads x in a row, and shared memory those of threads z.
        vectorization_factor: contiguous columns per thread.
        unroll_factor: rows in flight per thread.
        streams_inputs: inputs that are read at every point are marked to leave the caches first.
        prefetch_rows: the next rows are loaded into separate registers while the current ones are processed.
        rows_per_block: a multiple of the rows that a block has in flight.
        assumed_sizes: the sizes of the rows' dimensions, then of the columns', that the kernel has as
            constants: it serves no others. (): it serves all.
    """

    lparams: LaunchParams = launch(
        from_sizes=("gdimx", "gdimy", "gdimz"), bdimx=REQUIRED, bdimy=REQUIRED, bdimz=REQUIRED
    )
    vectorization_factor: int = choice(1, WIDTHS)
    unroll_factor: int = choice(1, UNROLLING)
    streams_inputs: bool = choice(False)
    prefetch_rows: bool = False
    rows_per_block: int = choice(1, counts(1, MAX_ROWS_PER_BLOCK))
    assumed_sizes: tuple[int, ...] = choice((), each(SIZE))

    @property
    def rows_in_flight(self) -> int:
        """The rows of a block that its threads load at once."""
        return self.lparams.bdimy * self.unroll_factor

    @property
    def rows_per_thread(self) -> int:
        """The number of rows whose results a thread combines across blocks."""
        return -(-self.rows_per_block // (self.lparams.bdimx * self.lparams.bdimy))

    @property
    def vector_widths(self) -> tuple[int, ...]:
        """Elements of the accesses that it makes."""
        return (self.vectorization_factor,)

    @property
    def elements_held(self) -> int:
        """The elements of one input that a thread has in registers at once."""
        return self.vectorization_factor * self.unroll_factor

    @property
    def copies(self) -> int:
        """The copies of an access, or of a row's result, in the code of a thread."""
        return max(self.unroll_factor, self.rows_per_thread)

    @property
    def columns_per_block(self) -> int:
        return self.lparams.bdimx * self.lparams.bdimz * self.vectorization_factor

    def validate(self, hardware: HardwareInfo) -> None:
        HeuristicParams.validate(self, hardware)
        step = self.rows_in_flight
        is_whole = self.rows_per_block % step == 0
        self.require(is_whole, "rows_per_block", f"a multiple of lparams.bdimy * unroll_factor ({step})")
        if self.rows_per_block == step:
            self.expect("prefetch_rows", False, f"where rows_per_block is {step}")
