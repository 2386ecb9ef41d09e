"""A call, a partition at its sizes with its cost, and when another partition is better."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

from fusewright.core.errors import FusewrightError
from fusewright.core.hardware import HardwareInfo
from fusewright.ir import Node
from fusewright.schedulers.base import Cost, Facts, Proposal, Reject, Rewrite, naming, plan, wrong_answer
from fusewright.schedulers.cost import KERNEL_SECONDS, CostModel
from fusewright.segment.exclusions import Exclusions
from fusewright.segment.recompute import border_inputs
from fusewright.segment.segmented import Segment, Trial
from fusewright.segment.window_results import WindowResults

# A segment may be split if it is estimated to take this many times as long as a copy of its bytes.
SLOW = 1.15
# A change has to save this share of the seconds of the kernels that it replaces. Smaller differences are
# within the error of the estimates.
LEAST_GAIN = 0.02
# The share that a change to more kernels has to save. Such kernels read more bytes, and estimates of kernels
# that differ this much are less exact: norms of patches that were estimated 8% faster as two kernels took 1.6
# times as long.
LEAST_GAIN_OF_MORE_KERNELS = 0.1


@dataclass(frozen=True, slots=True)
class Call:
    """The facts about a call that the partition uses.

    Attributes:
        size_class: calls of one class share a partition, if all planners accept their sizes.
        start: called with the segments of each partition before they are planned.
        facts: returns the facts of a segment.
        horizontal: whether several segments may share a launch.
        watch: called with each change that was tried: its result, the state before, and the state with the
            change.
    """

    size_class: Hashable
    start: Callable[[Sequence[Segment]], None]
    facts: Callable[[Segment], Facts]
    hardware: HardwareInfo
    horizontal: bool = True
    watch: Callable[[Trial, State, State], None] | None = None

    def plan(self, segment: Segment) -> Proposal | Reject:
        try:
            answer = plan(segment.scheduler, segment.planner, self.facts(segment), self.hardware)
        except FusewrightError as error:
            error.reword(segment.names.translated)
            raise
        return answer if isinstance(answer, Proposal) else Reject(segment.names.translated(answer.reason))


def estimated(call: Call, segment: Segment, proposal: Proposal) -> Cost:
    """The estimated cost of the kernel that the proposal describes."""
    estimate = proposal.estimate
    if estimate is None:
        estimate = CostModel(segment.fusion).estimate(call.facts(segment), call.hardware)
    with naming(segment.scheduler, "estimate"):
        cost = estimate()
    if not isinstance(cost, Cost):
        raise wrong_answer(segment.scheduler, "estimate", "a Cost", cost)
    return cost


@dataclass(frozen=True)
class State:
    """A partition that all planners accept.

    Attributes:
        groups: the groups of nodes before recomputation at their borders.
        excluded: the exclusions that the partition respects.
        segments, proposals, costs: the segments, and for each its proposal and its cost.
    """

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
    """A change to try for equal segments.

    Attributes:
        segments: the segments.
        change: the change, as text for the user.
        rewrites: a rewrite of each segment, or of all `together`; empty if the change excludes schedulers.
        across: the index of the part (`across_memory`) of each segment that gets a separate kernel without
            reductions, or None.
        once: the index of the repeated work (`repeated_work`) that gets a separate kernel, or None.
        stored: of each segment the results that another kernel stores (`window_results`), if any.
        alone: whether the kernels around the segments stay unchanged.
        together: whether one rewrite replaces what all segments compute.
        others: changes that may be made instead: of all, the best one is kept.
    """

    segments: tuple[Segment, ...]
    change: str
    rewrites: tuple[Rewrite, ...] = ()
    across: int | None = None
    once: int | None = None
    stored: tuple[WindowResults, ...] = ()
    alone: bool = False
    together: bool = False
    others: tuple[Idea, ...] = ()

    @property
    def text(self) -> str:
        return f"{results(self.segments)}{self.change}"

    @property
    def is_split(self) -> bool:
        """Whether it only excludes the schedulers that have the segments."""
        return not self.rewrites and self.across is None and self.once is None and not self.stored

    @property
    def least_gain(self) -> float:
        """The share of the replaced kernels' seconds that the change has to save."""
        adds_kernels = self.alone or self.together or self.once is not None or bool(self.stored)
        return LEAST_GAIN_OF_MORE_KERNELS if adds_kernels else LEAST_GAIN

    def of(self, indices: Sequence[int]) -> Idea:
        """The same change for the segments at these indices only."""
        rewrites = tuple([self.rewrites[i] for i in indices]) if self.rewrites else ()
        stored = tuple([self.stored[i] for i in indices]) if self.stored else ()
        segments = tuple([self.segments[i] for i in indices])
        return replace(self, segments=segments, rewrites=rewrites, stored=stored)


def may_be_split(cost: Cost) -> bool:
    """Whether two kernels might take less time. Together they move each byte at least once."""
    least = cost.least_seconds
    return cost.seconds > SLOW * least and cost.seconds > least + KERNEL_SECONDS


def repeated_slowly(state: State) -> set[Node]:
    """The nodes that segments which are estimated slow recompute from other groups."""
    owner = {node: i for i, group in enumerate(state.groups) for node in group}
    return {
        node
        for segment, cost in zip(state.segments, state.costs)
        if may_be_split(cost)
        for node in segment.nodes[:-1]
        if owner[node] != owner[segment.nodes[-1]]
    }


def is_better(before: State, after: State, least_gain: float = LEAST_GAIN, saved: float = 0.0) -> bool:
    """Whether `after` saves more than `least_gain` of the seconds of the kernels that it replaces.

    saved: the seconds that it saves besides, as more of its kernels share launches.
    """
    kept = set(after.segments)
    concerned = sum(
        cost.seconds for segment, cost in zip(before.segments, before.costs) if segment not in kept
    )
    return before.seconds - after.seconds + saved > least_gain * concerned


def neighbourhood(groups: Sequence[Sequence[Node]], nodes: Sequence[Node], around: bool = True) -> list[int]:
    """The groups that have some of the nodes and, if `around`, the kernels one edge away, in order."""
    owner = {out: i for i, group in enumerate(groups) for node in group for out in node.outputs}
    concerned = set(nodes)
    inside = {i for i, group in enumerate(groups) if not concerned.isdisjoint(group)}
    found = set(inside)
    for i, group in enumerate(groups if around else ()):
        for tensor in border_inputs(group):
            producer = owner.get(tensor)
            if producer is not None and (i in inside or producer in inside):
                found.update((i, producer))
    return sorted(i for i in found if i in inside or not groups[i][0].traits.whole)


def results(segments: Sequence[Segment]) -> str:
    return "; ".join(", ".join(tensor.name for tensor in segment.outputs) for segment in segments)
