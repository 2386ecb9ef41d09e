"""Params: what a scheduler decides for one kernel, as frozen dataclasses of plain fields.

What lives here: one class family a file (`pointwise`, `transpose`, `reduction`, `inner_outer`,
`inner_outer_persistent`, `scan`, `matmul`, and `hyper`, what a user tells a heuristic), `launch` (extents,
and what the compiler is told), `heuristic` (their base), `decision` (how a class declares its fields, and
what is checked by that), `legal` (the legal values of a field) and `space` (the points that sweeps and tuning
try). Names and defaults are those of nvFuser's parameter objects, so that scripts which
edit them run.

A class declares fields with `choice`, attributes that follow from fields with `derived`, and attributes that
the reference has and nothing here reads with `unavailable`. From that come the check of what the constructor
is given, the conversions from and to dicts and JSON (`core.serialization`), `validate`, `space`, and what may
be assigned to the front end's editable copy. A class that a user declares so gets the same.

ResizeParams is another name of PointwiseParams: pads, slices and other changes of size are loads with an
index here, which the pointwise scheduler takes.
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
