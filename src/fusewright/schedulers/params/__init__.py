"""Params: what a scheduler decides for one kernel, as frozen dataclasses of plain fields.

What lives here: one file for each family of classes (`pointwise`, `transpose`, `reduction`, `inner_outer`,
`inner_outer_persistent`, `scan`, `matmul`, and `hyper`, a user's settings for a heuristic), `launch` (extents
and compiler settings), `heuristic` (the base class), `decision` (how a class declares and checks its fields),
`legal` (the legal values of a field) and `space` (the points that sweeps and tuning try). Names and defaults
are those of nvFuser's parameter objects, so that scripts that edit them run.

A class declares fields with `choice`, derived attributes with `derived`, and attributes that only nvFuser has
with `unavailable`. The declaration gives the checks of constructors, the conversions from and to dicts and
JSON (`core.serialization`), `validate`, `space`, and the assignable attributes of the front end's editable
copy. A user's class gets the same if it declares its fields this way.

ResizeParams is another name of PointwiseParams: pads, slices and other changes of size are loads with an
index here, which the pointwise scheduler accepts.
"""

from __future__ import annotations

from fusewright.core.declaration import derived, unavailable
from fusewright.schedulers.params.decision import Choice, Decision, Field, When, choice, fields_of
from fusewright.schedulers.params.heuristic import HeuristicParams
from fusewright.schedulers.params.hyper import SchedulerHyperParameters
from fusewright.schedulers.params.inner_outer import InnerOuterParams
from fusewright.schedulers.params.inner_outer_persistent import InnerOuterPersistentParams
from fusewright.schedulers.params.launch import CompileParams, Extent, LaunchParams, launch, threads_to_hold
from fusewright.schedulers.params.legal import GIVEN, Legal, among, counts, each, powers_of_two
from fusewright.schedulers.params.matmul import (
    CircularBufferOptions,
    ClusterDims,
    GemmTile,
    MatmulParams,
    MatMulTileOptions,
    MmaMacro,
    MmaMacroEncode,
    SupportedVectorization,
)
from fusewright.schedulers.params.pointwise import PointwiseParams, ResizeParams
from fusewright.schedulers.params.reduction import ReductionParams
from fusewright.schedulers.params.scan import ScanParams
from fusewright.schedulers.params.transpose import TRANSPOSE_THREADS, TransposeParams

__all__ = [
    "GIVEN",
    "TRANSPOSE_THREADS",
    "Choice",
    "CircularBufferOptions",
    "ClusterDims",
    "CompileParams",
    "Decision",
    "Extent",
    "Field",
    "GemmTile",
    "HeuristicParams",
    "InnerOuterParams",
    "InnerOuterPersistentParams",
    "LaunchParams",
    "Legal",
    "MatMulTileOptions",
    "MatmulParams",
    "MmaMacro",
    "MmaMacroEncode",
    "PointwiseParams",
    "ReductionParams",
    "ResizeParams",
    "ScanParams",
    "SchedulerHyperParameters",
    "SupportedVectorization",
    "TransposeParams",
    "When",
    "among",
    "choice",
    "counts",
    "derived",
    "each",
    "fields_of",
    "launch",
    "powers_of_two",
    "unavailable",
    "threads_to_hold",
]
