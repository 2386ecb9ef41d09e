"""The decisions of the automatic schedulers: frozen dataclasses of plain fields.

Names and defaults are those of nvFuser's parameter objects (api.md section 7), so that scripts which edit them run.
`reason` says why a heuristic chose what it did; it takes no part in equality.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fusewright.core.dtype import DataType


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
