"""Params of kernels that hold a row while it is reduced and sum columns over all rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fusewright.core.hardware import HardwareInfo
from fusewright.schedulers.params.decision import choice
from fusewright.schedulers.params.heuristic import MAX_UNROLL, TRIED_UNROLL, WIDTHS, HeuristicParams
from fusewright.schedulers.params.launch import REQUIRED, UNSET, Extent, LaunchParams, launch, threads_to_hold
from fusewright.schedulers.params.legal import SIZE, counts, each

# Threads x of a row: a warp or a part of it.
LANES = (8, 16, 32)
# Numbers of blocks that a space tries: so many for each SM of GPUs that have 128 and more.
TRIED_BLOCKS = (128, 256, 512, 1024)


@dataclass(frozen=True, slots=True)
class InnerOuterPersistentParams(HeuristicParams):
    """How a domain is split whose rows are reduced and read again, and whose columns are also reduced.

    Attributes:
        lparams: gdimx blocks (or clusters) walk down the rows, each bdimz rows at a time. bdimx * bdimy
            threads lie along a row; bdimy -1: as many as it needs.
        vectorization_factor: columns per vector.
        batches_per_block_inner_reduction: the vectors that a thread holds until the row's results are known.
        project_persistent_buffers: only inputs are held, and values computed from them are recomputed.
        prefetch_rows: the next row is loaded into separate registers while the current one is processed.
        columns_a_thread: the number of columns whose sums a thread finishes at a time.
        columns_in_shared_memory: data that is the same for all rows is copied there once instead of loaded
            for each row.
        circular_stages: rows are copied ahead into shared memory, which has room for this many. 0: they are
            loaded into registers.
        shift_rows: the vectors of a row start at aligned addresses, whatever its length. Blocks then take
            rows in turns, so that all rows of a block have the same shift and a thread's columns stay the
            same.
        blocks_per_cluster: the number of blocks that each hold a part of every row.
        unaligned_inputs, assumed_reduction_sizes, keeps_inputs: as in ReductionParams.
    """

    lparams: LaunchParams = launch(
        from_sizes=(),
        gdimx=Extent(required=lambda params: True, tried=TRIED_BLOCKS),
        bdimx=Extent(required=lambda params: True, tried=LANES),
        bdimy=Extent(tried=(UNSET,)),
        bdimz=REQUIRED,
    )
    vectorization_factor: int = choice(1, WIDTHS)
    batches_per_block_inner_reduction: int = choice(1, counts(1, MAX_UNROLL, TRIED_UNROLL))
    project_persistent_buffers: bool = False
    prefetch_rows: bool = False
    columns_a_thread: int = choice(1, WIDTHS)
    columns_in_shared_memory: bool = False
    circular_stages: int = choice(0, counts(0, tried=(0,)))
    shift_rows: bool = False
    blocks_per_cluster: int = choice(1, counts(1, lambda hardware: hardware.max_cluster))
    unaligned_inputs: tuple[int, ...] = choice((), each(counts(0)))
    assumed_reduction_sizes: tuple[int, ...] = choice((), each(SIZE))
    keeps_inputs: bool = choice(False)

    @property
    def elements_a_warp(self) -> int:
        """The elements of a row that the threads x of all its blocks hold."""
        of_block = self.vectorization_factor * self.lparams.bdimx * self.batches_per_block_inner_reduction
        return of_block * self.blocks_per_cluster

    @property
    def places_before(self) -> int:
        """The positions that the first vector of a row may have before the row."""
        return self.vectorization_factor - 1 if self.shift_rows else 0

    @property
    def copies(self) -> int:
        """The copies of an access in the code of a thread."""
        return self.batches_per_block_inner_reduction * (1 + self.prefetch_rows)

    def for_length(self, length: int) -> InnerOuterPersistentParams:
        if self.lparams.bdimy < 1:
            return self
        needed = threads_to_hold(length + self.places_before, self.elements_a_warp, 1)
        return replace(self, lparams=replace(self.lparams, bdimy=needed))

    def validate(self, hardware: HardwareInfo) -> None:
        HeuristicParams.validate(self, hardware)
        if not self.shift_rows:
            return
        self.expect("columns_in_shared_memory", False, "where rows are shifted")
        self.expect("columns_a_thread", 1, "where rows are shifted")
        stages = bool(self.circular_stages) or not self.prefetch_rows
        self.require(stages, "circular_stages", "2 or more where shifted rows are loaded ahead")
        width = self.vectorization_factor
        alike = self.lparams.gdimx % width == 0
        self.require(alike, "lparams.gdimx", f"a multiple of {width} where rows are shifted")

    @property
    def vector_widths(self) -> tuple[int, ...]:
        """Elements of the accesses that it makes."""
        return (self.vectorization_factor,)

    @property
    def elements_held(self) -> int:
        """The elements of one input that a thread has in registers at once."""
        return self.vectorization_factor * self.batches_per_block_inner_reduction * (1 + self.prefetch_rows)
