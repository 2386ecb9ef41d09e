"""Segmentation: cuts a fusion into groups of nodes that one kernel each can compute.

What lives here: `partition` (the greedy search, by structure), `decision` (the partition for the sizes of a
call, compared by cost), `state` (a partition with its proposals and costs), `selection` (decisions kept
for calls), `draft` (the graph that is cut up, what schedulers said of its parts, rewrites and their undoing),
`layouts` (where inputs lie in a call that may lie anywhere), `groups` (the graph of groups, kept free of
cycles), `order` (of launches), `bundles` (which segments are one launch), `exclusions` (what schedulers are
not asked about), `rejection` (what that is where a group cannot be made after all), `extract` (the small
fusion of a group), `canonical` (what equal groups share, and the way back to the definition's names),
`recompute` (work that is cheaper done twice than passed on), `regroup` (merges that this makes possible),
`segmented` (the result and its printed form) and `separation` (why two parts of it are not one kernel). It
may import core, sym, ir, ops, analyze, rewrite, schedule and schedulers.
Start reading at `partition.partition`.
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
