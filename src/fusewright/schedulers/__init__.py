"""Schedulers: each turns fusions of one kind into one kernel.

Asking them: `base` (the protocol, what a scheduler is told, and how it is asked), `registry` (which are
asked), `heuristics` (a user's, in the place of a scheduler's own), `plugins` (the default registry, and how
users extend it), `params` (their decisions).

The dimensions that one kernel iterates over: `reference_map` (how tensors relate to one of them), from
which come `pointwise_space`, `reduction_space`, `inner_outer_space`, `inner_outer_persistent_space`, and
`access_groups` of what turns.

What several do alike: `io` (caches of inputs and outputs), `reduction_loops`, `reduction_planner`,
`held_length` (how many threads hold a row), `held_rows` (what they hold of it, and where),
`merged_vectors`, `divided_sizes`, `cost` with `sectors` and `contraction` (estimates), `banks` (of shared
memory), `sizes` (arithmetic).

One file a scheduler, with one of its heuristic (`transpose_heuristic`) where that is long. What heuristics
choose among has files of its own: rows that are held or shared (`clustered_rows`, `streamed_rows`,
`shared_rows`, `staged_rows`, `shifted_rows`, `rows_in_turns`), short ones (`row_tiles`, `row_threads`,
`joined_rows`, `short_runs`), columns (`column_tiles`, `crossed_loads`), what nothing holds (`two_sweeps`,
`sweep_heuristic`), tiles of transposes (`single_tiles`, `narrow_borders`).

Schedulers do not import each other. It may import core, sym, ir, ops, analyze, rewrite and schedule.
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
from fusewright.schedulers.inner_outer import InnerOuterScheduler
from fusewright.schedulers.inner_outer_persistent import InnerOuterPersistentScheduler
from fusewright.schedulers.inner_persistent import InnerPersistentScheduler
from fusewright.schedulers.outer_persistent import OuterPersistentScheduler
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
from fusewright.schedulers.plugins import (
    default_registry,
    heuristic,
    heuristics,
    register_scheduler,
    registered_scheduler,
    remove_heuristic,
    unregister_scheduler,
)
from fusewright.schedulers.pointwise import PointwiseScheduler
from fusewright.schedulers.reduction import ReductionScheduler
from fusewright.schedulers.registry import Registry
from fusewright.schedulers.scan import ScanScheduler
from fusewright.schedulers.transpose import TransposeScheduler

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
