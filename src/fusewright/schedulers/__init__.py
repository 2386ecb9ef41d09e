"""Schedulers: each turns fusions of one kind into one kernel.

The interface: `base` (the protocol and its arguments), `registry` (ordered lists of schedulers), `heuristics`
(a user's heuristics, which replace a scheduler's choice), `plugins` (the default registry, and how users
extend it), `params` (the decisions).

The schedulers, a package for each subject: `pointwise`, `transpose`, `reduction`, `persistent`
(normalizations), `inner_outer` (their gradients), `scan`; `expr_eval` is one file. In a package,
`scheduler` applies what a heuristic chooses.

Heuristics are measured. The comment of a constant says what it limits, in which unit and why. Below it,
indented, is the evidence: the GPU, the element type, then shapes with times in microseconds, or with
fractions of the speed of a copy of as many bytes ("of a copy's speed"). Of two numbers, the first is with the
constant as it is, and the second with what the text names instead.

Shared parts: `reference_map` (how tensors relate to the dimensions that a kernel iterates over), `io` (caches
of inputs and outputs), `vector_limits` (vectors along one dimension), `merged_vectors` and `shifted_rows`
(vectors that cross or are shifted against single dimensions), `cost` with `sectors` and `contraction`
(estimates), `sizes` (arithmetic).

Schedulers do not import each other, and packages import each other in one direction only (a contract in
pyproject.toml). All may import core, sym, ir, ops, analyze, rewrite and schedule.
"""

from __future__ import annotations

from fusewright.schedulers.base import (
    Cost,
    Facts,
    Part,
    Planner,
    Proposal,
    Reject,
    Rewrite,
    Scheduler,
    accepted,
    apply,
    heuristics_of,
    is_built_in,
    naming,
    plan,
    prepare,
    propose,
    rejection_text,
    type_name,
)
from fusewright.schedulers.expr_eval import ExprEvalScheduler
from fusewright.schedulers.heuristics import Default, Heuristic, TunedScheduler, key_of, untuned
from fusewright.schedulers.inner_outer.persistent import InnerOuterPersistentScheduler
from fusewright.schedulers.inner_outer.scheduler import InnerOuterScheduler
from fusewright.schedulers.params import (
    GIVEN,
    CircularBufferOptions,
    ClusterDims,
    CompileParams,
    Extent,
    GemmTile,
    HeuristicParams,
    InnerOuterParams,
    InnerOuterPersistentParams,
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
from fusewright.schedulers.persistent.inner import InnerPersistentScheduler
from fusewright.schedulers.persistent.outer import OuterPersistentScheduler
from fusewright.schedulers.plugins import (
    default_registry,
    heuristic,
    heuristics,
    register_scheduler,
    registered_scheduler,
    remove_heuristic,
    unregister_scheduler,
)
from fusewright.schedulers.pointwise.scheduler import PointwiseScheduler
from fusewright.schedulers.reduction.scheduler import ReductionScheduler
from fusewright.schedulers.registry import Registry
from fusewright.schedulers.scan.scheduler import ScanScheduler
from fusewright.schedulers.transpose.scheduler import TransposeScheduler

__all__ = [
    "CircularBufferOptions",
    "ClusterDims",
    "CompileParams",
    "Cost",
    "Default",
    "ExprEvalScheduler",
    "Extent",
    "Facts",
    "GIVEN",
    "GemmTile",
    "Heuristic",
    "HeuristicParams",
    "InnerOuterParams",
    "InnerOuterPersistentParams",
    "InnerOuterPersistentScheduler",
    "InnerOuterScheduler",
    "InnerPersistentScheduler",
    "LaunchParams",
    "Legal",
    "MatMulTileOptions",
    "MatmulParams",
    "MmaMacro",
    "MmaMacroEncode",
    "OuterPersistentScheduler",
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
    "TunedScheduler",
    "When",
    "accepted",
    "among",
    "apply",
    "choice",
    "counts",
    "default_registry",
    "derived",
    "each",
    "heuristic",
    "heuristics",
    "heuristics_of",
    "is_built_in",
    "key_of",
    "launch",
    "naming",
    "plan",
    "powers_of_two",
    "prepare",
    "propose",
    "register_scheduler",
    "registered_scheduler",
    "rejection_text",
    "remove_heuristic",
    "type_name",
    "unavailable",
    "unregister_scheduler",
    "untuned",
]
