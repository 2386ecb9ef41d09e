"""A partition at the sizes of a call, with what it costs, and when another is better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusewright.ir import Node
from fusewright.schedulers.base import Cost, Proposal, Rewrite
from fusewright.schedulers.cost import KERNEL_SECONDS
from fusewright.segment.exclusions import Exclusions
from fusewright.segment.recompute import border_inputs
from fusewright.segment.segmented import Segment

# A segment that is estimated to take this much longer than its bytes at the speed of a copy may be cut up.
SLOW = 1.15
# A change has to save this share of all kernels' seconds, or of those of the kernels that it concerns, since
# an estimate is no better.
LEAST_GAIN = 0.02


@dataclass(frozen=True)
class State:
    """A partition that all planners accept. `groups`: before work at the borders is repeated."""

    groups: tuple[Sequence[Node], ...]
    excluded: Exclusions
    segments: tuple[Segment, ...]
    proposals: tuple[Proposal, ...]
    costs: tuple[Cost, ...]

    @property
    def seconds(self) -> float:
        return sum(cost.seconds for cost in self.costs)


@dataclass(frozen=True)
class Idea:
    """A change to try with all segments that are equal: without their scheduler, or a rewrite of each."""

    segments: tuple[Segment, ...]
    text: str
    rewrites: tuple[Rewrite, ...] = ()


def may_be_split(cost: Cost) -> bool:
    """Whether two kernels might take less time, which move each byte once at least."""
    least = cost.least_seconds
    return cost.seconds > SLOW * least and cost.seconds > least + KERNEL_SECONDS


def repeated_slowly(state: State) -> set[Node]:
    """The nodes of other groups that segments compute again and are estimated slow."""
    owner = {node: i for i, group in enumerate(state.groups) for node in group}
    return {
        node
        for segment, cost in zip(state.segments, state.costs)
        if may_be_split(cost)
        for node in segment.nodes[:-1]
        if owner[node] != owner[segment.nodes[-1]]
    }


def is_better(before: State, after: State) -> bool:
    kept = set(after.segments)
    concerned = sum(
        cost.seconds for segment, cost in zip(before.segments, before.costs) if segment not in kept
    )
    return before.seconds - after.seconds > LEAST_GAIN * concerned


def concerned(groups: Sequence[Sequence[Node]], nodes: Sequence[Node]) -> list[int]:
    """The groups that have some of the nodes, and those kernels that one edge leads to, in order."""
    owner = {out: i for i, group in enumerate(groups) for node in group for out in node.outputs}
    wanted = set(nodes)
    inside = {i for i, group in enumerate(groups) if not wanted.isdisjoint(group)}
    found = set(inside)
    for i, group in enumerate(groups):
        for tensor in border_inputs(group):
            producer = owner.get(tensor)
            if producer is not None and (i in inside or producer in inside):
                found.update((i, producer))
    return sorted(i for i in found if i in inside or not groups[i][0].traits.whole)


def results(segments: Sequence[Segment]) -> str:
    return "; ".join(", ".join(tensor.name for tensor in segment.outputs) for segment in segments)
