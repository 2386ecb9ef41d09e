"""The decisions of the automatic schedulers: frozen dataclasses of plain fields.

Names and defaults are those of nvFuser's parameter objects (api.md section 7), so that scripts which edit
them run. `reason` says why a heuristic chose what it did; it takes no part in equality.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fusewright.core.dtype import DataType
from fusewright.core.enums import ParallelType


@dataclass(frozen=True, slots=True)
class LaunchParams:
    """Extents of the grid and the block; -1 where the kernel decides from sizes."""

    gdimx: int = -1
    gdimy: int = -1
    gdimz: int = -1
    bdimx: int = -1
    bdimy: int = -1
    bdimz: int = -1


@dataclass(frozen=True, slots=True)
class CompileParams:
    """index_type: Int32, Int, or None to choose by size. maxrregcount: registers a thread may use at most."""

    index_type: DataType | None = None
    maxrregcount: int = 255
    enable_magic_zero: bool = True
    enable_ptxas_verbose: bool = False


@dataclass(frozen=True, slots=True)
class HeuristicParams:
    """What all schedulers' params have."""

    lparams: LaunchParams = LaunchParams()
    cparams: CompileParams = CompileParams()
    reason: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class PointwiseParams(HeuristicParams):
    """One output element a thread times vector and unrolling.

    break_point: dimensions left of it form the rows of a 2-d iteration space, 0 for a 1-d one.
    vectorization_factor: elements of one memory access. unroll_factor_inner / _outer: accesses along the
    inner dimension, and rows, that a thread has in flight. split_grid_y_dim: rows beyond the grid limit go to
    grid_z. flip_grid_binding: rows on grid_x. split_block: block_y takes rows as well.
    """

    break_point: int = 0
    split_block: bool = False
    split_grid_y_dim: bool = False
    flip_grid_binding: bool = False
    vectorization_factor: int = 1
    unroll_factor_inner: int = 1
    unroll_factor_outer: int = 1


@dataclass(frozen=True, slots=True)
class ReductionParams(HeuristicParams):
    """How a reduction, or a normalization that holds its rows (`persistent_kernel`), is cut up.

    fastest_dim: the reduced dimensions include the one that is contiguous in memory ("inner"); else "outer".

    Inner: a block reduces a row (lparams.bdimy rows, if multiple_reds_per_blk) with lparams.bdimx threads.
    unroll_factor_inner_reduction is the vector width (if vectorize_inner_reduction) along the row and
    unroll_factor_top_of_vectorization the vectors a thread has in flight. A persistent kernel
    gives each thread batches_per_block_inner_reduction vectors to hold; 0 batches: it holds none and reads
    the row again. persistent_in_shared_memory: held there, not in registers. project_persistent_buffers: only
    inputs are held, what follows from them is computed again.

    Outer: lparams.bdimx threads along the rows, unroll_factor_iter_dom columns each (if vectorize_iter_dom),
    and lparams.bdimy threads down the columns with unroll_factor_inner_reduction rows in flight.

    cross_grid_inner_reduction: lparams.gdimy blocks share one reduction.
    """

    fastest_dim: bool = False
    persistent_kernel: bool = False
    project_persistent_buffers: bool = False
    persistent_in_shared_memory: bool = False
    schedule_3d: bool = False
    flip_grid: bool = False
    cross_block_inner_reduction: bool = False
    cross_grid_inner_reduction: bool = False
    unroll_factor_inner_reduction: int = 1
    unroll_factor_top_of_vectorization: int = 1
    vectorize_inner_reduction: bool = False
    split_grid_dim_inner_reduction: bool = False
    pad_inner_reduction_to_warp: bool = False
    batches_per_block_inner_reduction: int = 1
    block_dim_inner_reduction: ParallelType = ParallelType.serial
    grid_dim_inner_reduction: ParallelType = ParallelType.serial
    multiple_reds_per_blk: bool = False
    unroll_factor_iter_dom: int = 1
    vectorize_iter_dom: bool = False
    block_dim_iter_dom: ParallelType = ParallelType.serial
    grid_dim_iter_dom: ParallelType = ParallelType.serial
