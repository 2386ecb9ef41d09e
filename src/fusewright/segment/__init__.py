"""Segmentation: partitions a fusion into groups of nodes, each of which one kernel can compute.

What lives here: `partition` (the greedy search, by structure), `decision` (the partition for the sizes of a
call, compared by cost), `state` (a partition with its proposals and costs), `selection` (decisions cached for
calls), `draft` (the graph being partitioned, schedulers' verdicts on its parts, rewrites and their undoing),
`ideas` (the changes that are worth a trial, of which `gather_order`, `input_order` and `joined_pieces`
rewrite the graph, and `repeated_work`, `window_results` and `row_results` move work to other kernels),
`layouts` (the layouts of inputs in a call if the definition leaves them open), `groups` (the acyclic graph of
groups), `order` (of launches), `bundles` (segments that share a launch), `exclusions` (nodes that schedulers
are not asked about), `rejection` (the exclusions after a failed group), `extract` (the small fusion of a
group), `canonical` (what equal groups share, and the map to the definition's names), `recompute` (work that
is cheaper to repeat than to store), `regroup` (merges that recomputation makes possible), `segmented` (the
result and its printed form) and `separation` (why two parts are not one kernel). It may import core, sym, ir,
ops, analyze, rewrite, schedule and schedulers. Start reading at `partition.partition`.
"""

from fusewright.segment.decision import Planned
from fusewright.segment.exclusions import NO_EXCLUSIONS, Exclusions
from fusewright.segment.extract import extract
from fusewright.segment.layouts import InputLayout, input_layout, written_alike
from fusewright.segment.partition import partition
from fusewright.segment.segmented import Segment, SegmentedFusion, Trial
from fusewright.segment.selection import Partitions
from fusewright.segment.separation import Separation, separation
from fusewright.segment.state import Call, State, estimated

__all__ = [
    "NO_EXCLUSIONS",
    "Call",
    "Exclusions",
    "InputLayout",
    "Partitions",
    "Planned",
    "Segment",
    "SegmentedFusion",
    "Separation",
    "State",
    "Trial",
    "estimated",
    "extract",
    "input_layout",
    "partition",
    "separation",
    "written_alike",
]
