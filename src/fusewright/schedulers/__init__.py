"""Schedulers: each turns fusions of one kind into one kernel.

What lives here: `base` (the protocol, what a scheduler is told, the registry), `cost` (estimates), `params`
(their decisions), `io` (caches of inputs and outputs, which all schedulers make alike), `reference_map`,
`pointwise_space`, `reduction_space` and `inner_outer_space` (the dimensions that one kernel iterates over),
`reduction_loops` (what schedulers of reductions do alike), `banks` (of shared memory), `contraction` (what a
matrix product costs), `sizes` (arithmetic), and one file a scheduler. Schedulers do not import each other.
`default_registry` lists them in the order in which they are asked. It may import core, sym, ir, ops,
analyze, rewrite and schedule.
"""

from __future__ import annotations

from fusewright.schedulers.base import (
    Cost,
    Facts,
    Part,
    Planner,
    Proposal,
    Registry,
    Reject,
    Rewrite,
    Scheduler,
    accepted,
    apply,
    first_accepting,
    is_built_in,
    naming,
    plan,
    prepare,
    propose,
    rejection_text,
    type_name,
)
from fusewright.schedulers.expr_eval import ExprEvalScheduler
from fusewright.schedulers.inner_outer import InnerOuterScheduler
from fusewright.schedulers.inner_persistent import InnerPersistentScheduler
from fusewright.schedulers.params import (
    GIVEN,
    CircularBufferOptions,
    ClusterDims,
    CompileParams,
    Extent,
    GemmTile,
    HeuristicParams,
    InnerOuterParams,
    LaunchParams,
    Legal,
    MatmulParams,
    MatMulTileOptions,
    MmaMacro,
    MmaMacroEncode,
    PointwiseParams,
    ReductionParams,
    ResizeParams,
    ScanParams,
    SchedulerHyperParameters,
    SupportedVectorization,
    TransposeParams,
    When,
    among,
    choice,
    counts,
    derived,
    each,
    launch,
    powers_of_two,
    unavailable,
)
from fusewright.schedulers.pointwise import PointwiseScheduler
from fusewright.schedulers.reduction import ReductionScheduler
from fusewright.schedulers.scan import ScanScheduler
from fusewright.schedulers.transpose import TransposeScheduler

__all__ = [
    "GIVEN",
    "CircularBufferOptions",
    "ClusterDims",
    "CompileParams",
    "Cost",
    "ExprEvalScheduler",
    "Extent",
    "Facts",
    "GemmTile",
    "HeuristicParams",
    "InnerOuterParams",
    "InnerOuterScheduler",
    "InnerPersistentScheduler",
    "LaunchParams",
    "Legal",
    "MatMulTileOptions",
    "MatmulParams",
    "MmaMacro",
    "MmaMacroEncode",
    "Part",
    "Planner",
    "PointwiseParams",
    "PointwiseScheduler",
    "Proposal",
    "ReductionParams",
    "ReductionScheduler",
    "Registry",
    "Reject",
    "ResizeParams",
    "Rewrite",
    "ScanParams",
    "ScanScheduler",
    "Scheduler",
    "SchedulerHyperParameters",
    "SupportedVectorization",
    "TransposeParams",
    "TransposeScheduler",
    "When",
    "accepted",
    "among",
    "apply",
    "choice",
    "counts",
    "default_registry",
    "derived",
    "each",
    "first_accepting",
    "is_built_in",
    "launch",
    "naming",
    "plan",
    "powers_of_two",
    "prepare",
    "propose",
    "rejection_text",
    "type_name",
    "unavailable",
]


def default_registry() -> Registry:
    """The built-in schedulers in order of priority (api.md 6.4)."""
    return Registry(
        [
            ReductionScheduler(),
            InnerOuterScheduler(),
            TransposeScheduler(),
            PointwiseScheduler(),
            InnerPersistentScheduler(),
            ExprEvalScheduler(),
            ScanScheduler(),
        ]
    )
