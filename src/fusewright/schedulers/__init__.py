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
    check_start,
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
    CompileParams,
    HeuristicParams,
    InnerOuterParams,
    LaunchParams,
    PointwiseParams,
    ReductionParams,
    ScanParams,
    TransposeParams,
)
from fusewright.schedulers.pointwise import PointwiseScheduler
from fusewright.schedulers.reduction import ReductionScheduler
from fusewright.schedulers.scan import ScanScheduler
from fusewright.schedulers.transpose import TransposeScheduler

__all__ = [
    "CompileParams",
    "Cost",
    "ExprEvalScheduler",
    "Facts",
    "HeuristicParams",
    "InnerOuterParams",
    "InnerOuterScheduler",
    "InnerPersistentScheduler",
    "LaunchParams",
    "Part",
    "Planner",
    "PointwiseParams",
    "PointwiseScheduler",
    "Proposal",
    "ReductionParams",
    "ReductionScheduler",
    "Registry",
    "Reject",
    "Rewrite",
    "ScanParams",
    "ScanScheduler",
    "Scheduler",
    "TransposeParams",
    "TransposeScheduler",
    "accepted",
    "check_start",
    "default_registry",
    "first_accepting",
    "is_built_in",
    "naming",
    "plan",
    "prepare",
    "propose",
    "rejection_text",
    "type_name",
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
