"""The partition of a fusion for the sizes of a call: all planners accept it, and it is cheap.

The search by structure (`partition`) merges whatever a scheduler accepts, which moves the fewest bytes. For
given sizes a planner may reject a segment, or estimate that it reaches only a small part of the memory's
speed. A scheduler may also know another way to compute a segment. Each of these leads to a trial change of
the partition: the segment and its neighbours are partitioned again, and the change is kept if the estimated
seconds of all kernels decrease.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from fusewright.core.errors import NoSchedulerError, RejectedError
from fusewright.ir import Node, Reduction, Scan, Update
from fusewright.schedulers.base import Cost, Proposal, Reject, naming, type_name
from fusewright.schedulers.cost import KERNEL_SECONDS
from fusewright.segment.bundles import MAX_PARTS, launches
from fusewright.segment.draft import Change, Draft
from fusewright.segment.exclusions import Exclusions
from fusewright.segment.ideas import Ideas, without_scheduler
from fusewright.segment.order import (
    across_memory,
    independent_parts,
    launch_order,
    reductions_apart,
    surroundings,
)
from fusewright.segment.partition import excluded_windows, made_within_bounds, merged_groups
from fusewright.segment.rejection import without_rejected
from fusewright.segment.segmented import Segment, SegmentedFusion, Trial
from fusewright.segment.state import (
    LEAST_GAIN,
    LEAST_GAIN_OF_MORE_KERNELS,
    Call,
    Idea,
    State,
    estimated,
    is_better,
    may_be_split,
    neighbourhood,
    repeated_slowly,
)

# The most changes that are tried for one call. This bounds the time; graphs of hundreds of segments need far
# fewer.
MAX_TRIALS = 256
# The most nodes that are partitioned again for one call to see whether a reduction is better in another
# kernel. This bounds the time; the slowest kernels are tried first.
MAX_SURROUNDINGS = 256


@dataclass(frozen=True, slots=True)
class Planned:
    """A partition with a proposal for each segment."""

    partition: SegmentedFusion
    proposals: tuple[Proposal, ...]


def accepted(call: Call, segments: Sequence[Segment]) -> tuple[Proposal, ...] | None:
    proposals = []
    for segment in segments:
        answer = call.plan(segment)
        if isinstance(answer, Reject):
            return None
        proposals.append(answer)
    return tuple(proposals)


class Decision:
    """Finds the partition for one call."""

    def __init__(self, draft: Draft, call: Call, required: Exclusions) -> None:
        self.draft = draft
        self.call = call
        self.required = required
        self.trials: list[Trial] = []
        self._changes: list[Change] = []
        self._ideas = Ideas(draft, call)
        self._surroundings_left = MAX_SURROUNDINGS
        # Reductions that gained nothing in another kernel: the text of the group, and the reduction's
        # position in the group.
        self._stays: set[tuple[str, int]] = set()
        self._planned: dict[Segment, Proposal | Reject] = {}
        self._costs: dict[Segment, Cost] = {}
        self._planned_states = 0

    def run(self) -> Planned:
        with self.made() as planned:
            return planned

    @contextmanager
    def made(self) -> Iterator[Planned]:
        """Yields the partition. Its rewrites stay in the graph until the context ends."""
        first = self._accepted_state()
        try:
            state = self._improved(first)
            proposals = first.proposals
            if self._planned_states > 1:
                # A tensor's layout may depend on the other segments, and proposals depend on layouts.
                again = self._answers(state.segments) or self._answers((state := first).segments)
                assert again is not None, "what was accepted is accepted again"
                proposals = again
            bundles = self._launches(state) if self.call.horizontal else ()
            yield Planned(self.draft.result(state.segments, tuple(self.trials), bundles), proposals)
        finally:
            self._undo_all_but(0)

    def _answers(self, segments: Sequence[Segment]) -> tuple[Proposal, ...] | None:
        self.call.start(segments)
        return accepted(self.call, segments)

    # ---- states

    def _accepted_state(self) -> State:
        """The partition by structure that planners accept at these sizes, if possible without kernels that
        compute results far too often.
        """
        self.required, state = made_within_bounds(
            self.draft, self.required, lambda excluded: (excluded, self._accepted_with(excluded))
        )
        return state

    def _accepted_with(self, excluded: Exclusions) -> State:
        """The partition by structure, repeated until planners accept all its segments at these sizes."""
        draft = self.draft
        while True:
            groups = merged_groups(draft, draft.nodes, excluded)
            state = self._state(groups, excluded)
            if isinstance(state, State):
                return state
            segment, reject = state
            is_accepted = partial(self._is_accepted, excluded)
            sizes = self.call.facts(segment).sizes
            further = without_rejected(draft, segment, excluded, sizes, is_accepted)
            if further is None:
                raise RejectedError(scheduler=type_name(segment.scheduler.type), reason=reject.reason)
            excluded = further

    def _state(
        self, groups: Sequence[Sequence[Node]], excluded: Exclusions
    ) -> State | tuple[Segment, Reject]:
        """The partition into these groups, or a segment that its planner rejects.

        Groups recompute work at their borders if that moves fewer bytes. If a kernel that recomputes is
        estimated slow, the state is compared with one in which kernels read these results instead.

        Raises:
            NoSchedulerError: no scheduler accepts one of the groups.
        """
        state = self._state_of(groups, excluded)
        repeated = repeated_slowly(state) if isinstance(state, State) else ()
        if not repeated:
            return state
        try:
            other = self._state_of(groups, excluded.without_repeats(repeated))
        except NoSchedulerError:
            return state
        assert isinstance(state, State)
        return other if isinstance(other, State) and other.seconds < state.seconds else state

    def _state_of(
        self, groups: Sequence[Sequence[Node]], excluded: Exclusions
    ) -> State | tuple[Segment, Reject]:
        segments = self.draft.segments(groups, excluded)
        self._planned_states += 1
        self.call.start(segments)
        proposals: list[Proposal] = []
        for segment in segments:
            answer = self._plan(segment)
            if isinstance(answer, Reject):
                return segment, answer
            proposals.append(answer)
        costs = tuple(self._cost(segment, answer) for segment, answer in zip(segments, proposals))
        return State(tuple(groups), excluded, segments, tuple(proposals), costs)

    def _plan(self, segment: Segment) -> Proposal | Reject:
        answer = self._planned.get(segment)
        if answer is None:
            answer = self._planned[segment] = self.call.plan(segment)
        return answer

    def _cost(self, segment: Segment, proposal: Proposal) -> Cost:
        cost = self._costs.get(segment)
        if cost is None:
            cost = self._costs[segment] = estimated(self.call, segment, proposal)
        return cost

    # ---- changes

    def _improved(self, state: State) -> State:
        """Tries changes until none is left; each is tried once."""
        while len(self.trials) < MAX_TRIALS:
            idea = next(self._ideas.of(state), None)
            if idea is None:
                moved = self._apart(state)
                if moved is None:
                    break
                state = moved
            elif idea.together or idea.stored:
                state = self._with_best((idea, *idea.others), state)
            elif idea.rewrites:
                state = self._redefined_or_split(idea, state)
            elif idea.is_split:
                state = self._split_or_apart(idea, state)
            else:
                state = self._with_all(idea, state)
        return self._spread(state) if self.call.horizontal else state

    def _spread(self, state: State) -> State:
        """The state with independent parts of a kernel as separate kernels of one launch, if that is faster.

        Each part then has its own registers, and equal parts share their code.
        """
        excluded = state.excluded
        groups: list[Sequence[Node]] = []
        for group in state.groups:
            parts = self._cheaper_parts(group, state)
            groups += parts or [group]
            if parts:
                for scheduler in self.draft.registry:
                    excluded = excluded.without_merges(type_name(scheduler.type), *parts)
        ordered = launch_order(groups, self.draft.position) if len(groups) > len(state.groups) else None
        try:
            after = self._state(ordered, excluded) if ordered is not None else None
        except NoSchedulerError:
            return state
        is_better = isinstance(after, State) and self._launched_seconds(after) < self._launched_seconds(state)
        return after if isinstance(after, State) and is_better else state

    def _cheaper_parts(self, group: Sequence[Node], state: State) -> list[tuple[Node, ...]]:
        """Parts of a group that take less time in one launch than the group as one kernel, if any do."""
        parts = independent_parts(group)
        whole = self._group_cost(group, state) if 1 < len(parts) <= MAX_PARTS else None
        if whole is None or any(isinstance(node, Update) for node in group):  # updates share no launch
            return []
        costs = [self._group_cost(part, state) for part in parts]
        seconds = sum(cost.seconds - KERNEL_SECONDS for cost in costs if cost is not None)
        gain = whole.seconds - seconds - KERNEL_SECONDS
        return [] if None in costs or gain <= LEAST_GAIN * whole.seconds else parts

    def _launched_seconds(self, state: State) -> float:
        """The estimated seconds of all kernels, less what shared launches save."""
        return state.seconds - self._saved_seconds(state)

    def _saved_seconds(self, state: State) -> float:
        """The seconds that shared launches save, if the call may have such."""
        shared = len(state.segments) - len(self._launches(state)) if self.call.horizontal else 0
        return KERNEL_SECONDS * shared

    def _launches(self, state: State) -> tuple[tuple[int, ...], ...]:
        return launches(self.draft.whole, state.segments, state.costs)

    def _split_or_apart(self, idea: Idea, state: State) -> State:
        """The best of the state, the state without the segments' scheduler for them, and the state with a
        reduction of a segment in another kernel.

        Once it is split, no kernel of that scheduler has its nodes again, not even without their operands.
        """
        split = self._with_all(idea, state)
        if split is state:
            return state
        nodes = frozenset([node for segment in idea.segments for node in segment.nodes])
        return self._apart(state, split, nodes) or split

    def _apart(
        self, state: State, best: State | None = None, among: frozenset[Node] | None = None
    ) -> State | None:
        """A better state with a reduction and its dependents in another kernel; None if there is none.

        Args:
            best: the state that it has to be better than. None: the given one.
            among: the nodes of the kernels whose reductions are tried. None: those of all kernels.

        The search is greedy, so it may have merged the reduction with its operands before a better merge was
        possible. The kernel and its neighbours are partitioned again without the reduction. The reduction
        then becomes a separate kernel or joins the kernel in which it costs least.
        """
        position = self.draft.position
        seconds = [self._group_seconds(group, state) or 0.0 for group in state.groups]
        owners = {node: i for i, group in enumerate(state.groups) for node in group}
        for i in sorted(range(len(state.groups)), key=lambda i: -seconds[i]):
            group = state.groups[i]
            if among is not None and among.isdisjoint(group):
                continue
            segment = self.draft.segment_of(group, state.excluded)
            if segment is None:
                continue
            for part in reductions_apart(group):
                key = segment.text, list(group).index(part[0])
                if key in self._stays:
                    continue
                region = surroundings(state.groups, i, owners)
                inside = [node for j in region for node in state.groups[j]]
                if len(region) < 2 and not self._is_slow(group, state):
                    continue
                if len(inside) > self._surroundings_left:
                    return None
                self._surroundings_left -= len(inside)
                inside.sort(key=position.__getitem__)
                new = merged_groups(self.draft, inside, state.excluded, apart=part)
                new = self._placed(part, [other for other in new if other[0] not in part], state)
                rest = [other for j, other in enumerate(state.groups) if j not in region]
                moved = self._tried_move(part, [*rest, *new], state, best or state)
                if moved is not None:
                    return moved
                self._stays.add(key)
        return None

    def _placed(self, part: Sequence[Node], groups: Sequence[list[Node]], state: State) -> list[list[Node]]:
        """The groups with `part` in the group in which it costs least, or as a separate group."""
        best: tuple[float, list[list[Node]]] | None = None
        alone = self._group_seconds(part, state)
        if alone is not None:
            best = alone, [*groups, list(part)]
        for i, group in enumerate(groups):
            if group[0].traits.whole:
                continue
            before = self._group_seconds(group, state)
            joined = sorted([*group, *part], key=self.draft.position.__getitem__)
            after = self._group_seconds(joined, state) if before is not None else None
            if after is None or before is None or (best is not None and after - before >= best[0]):
                continue
            candidate = [*groups[:i], joined, *groups[i + 1 :]]
            if launch_order(candidate, self.draft.position) is not None:
                best = after - before, candidate
        return best[1] if best is not None else [*groups, list(part)]

    def _tried_move(
        self, part: Sequence[Node], groups: Sequence[Sequence[Node]], state: State, best: State
    ) -> State | None:
        """The state with these groups if it is better than `best`; `part` names the nodes that moved to
        another group.
        """
        ordered = launch_order(groups, self.draft.position)
        try:
            moved = self._state(ordered, state.excluded) if ordered is not None else None
        except NoSchedulerError:
            moved = None
        after = moved if isinstance(moved, State) else None
        kept = after is not None and is_better(best, after)
        names = ", ".join(node.output.name for node in part)
        self._note(f"{names} in another kernel", best, after, kept)
        return after if kept else None

    def _is_slow(self, group: Sequence[Node], state: State) -> bool:
        cost = self._group_cost(group, state)
        return cost is not None and may_be_split(cost)

    def _group_seconds(self, group: Sequence[Node], state: State) -> float | None:
        cost = self._group_cost(group, state)
        return None if cost is None else cost.seconds

    def _group_cost(self, group: Sequence[Node], state: State) -> Cost | None:
        """The cost of a group without recomputation at its borders; None if no scheduler accepts it."""
        answer = self._answer(group, state.excluded)
        return None if answer is None else self._cost(*answer)

    def _is_accepted(self, excluded: Exclusions, group: Sequence[Node]) -> bool:
        return self._answer(group, excluded) is not None

    def _answer(self, group: Sequence[Node], excluded: Exclusions) -> tuple[Segment, Proposal] | None:
        """The segment of a group and its proposal; None if no scheduler or no planner accepts the group."""
        segment = self.draft.segment_of(group, excluded)
        if segment is None:
            return None
        answer = self._plan(segment)
        return None if isinstance(answer, Reject) else (segment, answer)

    def _redefined_or_split(self, idea: Idea, state: State) -> State:
        """The best of the state, the state with the redefinition, and the state with slow segments split.

        The split is tried before the redefinition. Split afterwards, the parts would keep a redefinition that
        pays only for the whole segment.
        """
        costs = dict(zip(state.segments, state.costs))
        slow = self._ideas.untried(
            "split", [segment for segment in idea.segments if may_be_split(costs[segment])]
        )
        split = self._split_or_apart(without_scheduler(slow), state) if slow else state
        before = len(self._changes)
        redefined = self._with_all(idea, state)
        more = len(split.segments) > len(redefined.segments)
        least_gain = LEAST_GAIN_OF_MORE_KERNELS if more else LEAST_GAIN
        if redefined is not state and not is_better(redefined, split, least_gain):
            return redefined
        self._undo_all_but(before)
        return split

    def _with_all(self, idea: Idea, state: State) -> State:
        """The best of the state, the state with one of the equal segments changed, and that with all changed.

        If the change does not pay for one segment, it is not tried for the others.
        """
        middle = len(idea.segments) // 2
        after = self._with(idea.of([middle]), state)
        if after is state:
            return state
        there = {segment.nodes for segment in after.segments}
        rest = [i for i, each in enumerate(idea.segments) if i != middle and each.nodes in there]
        return self._with(idea.of(rest), after) if rest else after

    def _with_best(self, ideas: Sequence[Idea], state: State) -> State:
        """The best of the state and the states with one of the changes; the others are noted as not kept."""
        if len(ideas) == 1:
            return self._with(ideas[0], state)
        best: tuple[float, Idea] | None = None
        tried = []
        for idea in ideas[: max(1, MAX_TRIALS - len(self.trials))]:
            before = len(self._changes)
            after, is_kept = self._tried(idea, state)
            tried.append((idea, after))
            if is_kept and after is not None:
                seconds = self._launched_seconds(after)
                best = (seconds, idea) if best is None or seconds < best[0] else best
            self._undo_all_but(before)
        for idea, result in tried:
            if best is None or idea is not best[1]:
                self._note(idea.text, state, result, False)
        return self._with(best[1], state) if best is not None else state

    def _with(self, idea: Idea, state: State) -> State:
        """The better one of the state and the state with the change."""
        after, is_kept = self._tried(idea, state)
        self._note(idea.text, state, after, is_kept)
        return after if is_kept and after is not None else state

    def _tried(self, idea: Idea, state: State) -> tuple[State | None, bool]:
        """The state with the change, if there is one, and whether it is better; the change is undone unless
        it is.
        """
        nodes = tuple(dict.fromkeys(node for segment in idea.segments for node in segment.nodes))
        region = neighbourhood(state.groups, nodes, around=not idea.alone)
        before = len(self._changes)
        for rewrite, segment in zip(idea.rewrites, idea.segments):
            replaced = nodes if idea.together else segment.nodes
            with naming(segment.scheduler, "propose_redefinition"):
                change = self.draft.apply(rewrite, replaced, segment.scheduler, idea.together)
                self._changes.append(change)
        changes = self._changes[before:]
        after = self._changed(idea, changes, region, state)
        saved = 0.0
        if after is not None and idea.together:  # copies of inputs share a launch
            saved = self._saved_seconds(after) - self._saved_seconds(state)
        is_kept = after is not None and is_better(state, after, idea.least_gain, saved)
        if not is_kept:
            self._undo_all_but(before)
        return after, is_kept

    def _note(self, change: str, before: State, after: State | None, kept: bool) -> None:
        trial = Trial(change, before.seconds, None if after is None else after.seconds, kept)
        self.trials.append(trial)
        if self.call.watch is not None and after is not None:
            self.call.watch(trial, before, after)

    def _undo_all_but(self, count: int) -> None:
        """Undoes changes, the latest first, until `count` are left."""
        while len(self._changes) > count:
            self.draft.undo(self._changes.pop())

    def _changed(
        self, idea: Idea, changes: Sequence[Change], region: Sequence[int], state: State
    ) -> State | None:
        """The state after the groups of `region` have been partitioned again; None if planners reject it."""
        draft = self.draft
        nodes = {node for i in region for node in state.groups[i] if node in draft.position}
        excluded = state.excluded
        for change in changes:
            new = (*change.made, *change.revived)
            nodes.update(node for node in new if node in draft.position and not node.is_scalar)
        ordered = sorted(nodes, key=draft.position.__getitem__)
        if idea.together:  # what was excluded of these nodes was so because of their inputs
            excluded = excluded.forgetting(ordered, self.required)
        elif idea.across is not None:
            excluded = self._across_apart(idea.segments, idea.across, ordered, excluded)
        elif idea.once is not None:
            excluded = self._computed_once(idea.segments, idea.once, excluded)
        elif idea.stored:
            excluded = excluded_windows(draft, idea.stored, excluded)
        elif not changes:
            for segment in idea.segments:
                excluded = excluded.without_nodes(type_name(segment.scheduler.type), segment.nodes)
        inside = set(region)
        rest = [
            [node for node in group if node in draft.position]
            for i, group in enumerate(state.groups)
            if i not in inside
        ]
        merged = merged_groups(draft, ordered, excluded)
        groups = launch_order([*merged, *(group for group in rest if group)], draft.position)
        if groups is None:
            return None
        try:
            after = self._state(groups, excluded)
        except NoSchedulerError:
            return None
        return after if isinstance(after, State) else None

    def _across_apart(
        self, segments: Sequence[Segment], across: int, region: Sequence[Node], excluded: Exclusions
    ) -> Exclusions:
        """Excludes kernels that compute part `across` of a segment and reductions of the region; of a segment
        without a reduction, those that compute another of its parts.
        """
        reductions = [node for node in region if isinstance(node, (Reduction, Scan))]
        for segment in segments:
            parts = across_memory(segment.nodes)
            others = [node for i, part in enumerate(parts) if i != across for node in part]
            apart = reductions if not set(reductions).isdisjoint(segment.nodes) else [*reductions, *others]
            for scheduler in self.draft.registry:
                excluded = excluded.without_merges(type_name(scheduler.type), parts[across], apart)
        return excluded

    def _computed_once(self, segments: Sequence[Segment], once: int, excluded: Exclusions) -> Exclusions:
        """Excludes kernels that compute a segment's repeated work with the rest of the segment."""
        for segment in segments:
            part = self._ideas.repeated_work(segment)[once].nodes
            rest = set(segment.nodes).difference(part)
            excluded = excluded.without_repeats(part)
            for scheduler in self.draft.registry:
                excluded = excluded.without_merges(type_name(scheduler.type), part, rest)
        return excluded
