"""Inlining: how many outer loops a tensor shares with its consumers."""

from __future__ import annotations

from collections.abc import Collection

from fusewright.analyze.axis_map import LoopKeys, sibling_keys
from fusewright.analyze.persistent import Reachability
from fusewright.analyze.scan_axes import collective_position
from fusewright.core.enums import ParallelType
from fusewright.core.errors import ScheduleError
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Scan
from fusewright.ir.value import TensorView
from fusewright.schedule.ordering import cut_cycles

# A vector access must complete before its elements are used, so a loop is not shared from there on.
_STOPS_INLINING = {ParallelType.vectorize, ParallelType.tma}


def max_inline_position(fusion: Fusion, tensor: TensorView) -> int:
    """See `InlineLimits.of`."""
    return InlineLimits(fusion).of(tensor)


class InlineLimits:
    """How far the tensors of a fusion can be inlined, by loops and parallel types that do not change
    meanwhile.
    """

    def __init__(self, fusion: Fusion) -> None:
        self.reachability = Reachability(fusion)
        self._keys = LoopKeys()

    def of(self, tensor: TensorView) -> int:
        """The most loops that `tensor` can share with every consumer.

        A loop can be shared if its axes correspond in the tensor and every consumer, and none is reduced or
        vectorized. A loop that computes a reduction must close before the reduction's consumers; consumers
        inside it limit the position. So does the step of a scan in which threads meet.
        """
        if tensor.definition is None or not tensor.consumers:
            return 0
        limit = len(tensor.loop)
        for position, axis in enumerate(tensor.loop):
            if axis.is_reduction or axis.parallel in _STOPS_INLINING:
                limit = position
                break
        if tensor.part is not None:  # not all of its loop computes it
            limit = min(limit, tensor.part.position)
        if (
            isinstance(tensor.definition, Scan)
            and (meeting := collective_position(tensor.definition)) is not None
        ):
            limit = min(limit, meeting)
        for consumer in tensor.consumers:
            limit = self._shared_with(tensor, consumer, limit)
        for reduction in self.reachability.reductions_between(tensor):
            limit = min(limit, self._shared_with_users(reduction))
        # Outputs of one node share one loop nest.
        for sibling in (other for other in tensor.siblings if other is not tensor):
            ours, theirs = sibling_keys(tensor, sibling)
            same = next(
                (i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs))
            )
            limit = min(limit, same)
        return limit

    def _shared_with(self, tensor: TensorView, consumer: TensorView, limit: int) -> int:
        """How many of the first `limit` loops the tensor can share with this consumer."""
        ours, theirs = self._keys.between(tensor, consumer)
        for shared, (axis, user) in enumerate(zip(tensor.loop[:limit], consumer.loop)):
            if ours[shared] is None or ours[shared] != theirs[shared]:
                return shared
            if axis.parallel is not user.parallel or user.parallel in _STOPS_INLINING:
                return shared
        return min(limit, len(theirs))

    def _shared_with_users(self, reduction: TensorView) -> int:
        """The position of the first loop of a reduction that its consumers cannot stand in.

        Axes of threads and blocks are no loops: everybody stands in them.
        """
        used = [result for result in reduction.siblings if result.consumers]
        shared = min(map(self.of, used), default=0)
        later = (i for i, axis in enumerate(reduction.loop) if i >= shared and _is_loop(axis))
        return next(later, len(reduction.loop))


def _is_loop(axis: IterDomain) -> bool:
    return not axis.parallel.is_thread


def inline_at(
    fusion: Fusion,
    tensor: TensorView,
    pos: int = -1,
    best_effort: bool = False,
    selected: Collection[TensorView] = (),
) -> None:
    """Inlines the selected tensors (none: all) at `pos` of `tensor`'s loops, or as far as possible.

    Consumers are visited before their producers. Raises ScheduleError if `pos` cannot be reached, unless
    best_effort.
    """
    rank = len(tensor.loop)
    target = pos + rank + 1 if pos < 0 else pos
    if not 0 <= target <= rank:
        raise ScheduleError(f"inline_at: position {pos} is outside [{-rank - 1}, {rank}] of {tensor.name}")
    limits = InlineLimits(fusion)
    positions: dict[TensorView, int] = {}
    for candidate in _inlinable(fusion, selected):
        reached = limits.of(candidate)
        wanted = min(target, len(candidate.loop))
        if reached < wanted and not best_effort and candidate in (selected or [tensor]):
            raise ScheduleError(
                f"inline_at: {candidate.name} can be inlined at {reached} at most, not at {wanted}",
                hint="transform and parallelize it and its consumers alike, or pass best_effort=True",
            )
        positions[candidate] = min(reached, wanted)
    for candidate, position in positions.items():
        candidate.inline_at = max(candidate.inline_at, position)
    _place_unused(fusion, positions)


def inline_most(fusion: Fusion, selected: Collection[TensorView] = ()) -> None:
    """Inlines every tensor (or the selected ones) as far as it can be."""
    limits = InlineLimits(fusion)
    candidates = _inlinable(fusion, selected)
    for candidate in candidates:
        candidate.inline_at = max(candidate.inline_at, limits.of(candidate))
    cut_cycles(fusion, candidates, limits.reachability)
    _place_unused(fusion, candidates)


def _place_unused(fusion: Fusion, inlined: Collection[TensorView]) -> None:
    """Results that nothing uses stand where another of their node does, as all are computed together."""
    outputs = set(fusion.output_tensors())
    for tensor in inlined:
        for sibling in tensor.siblings:
            if not sibling.consumers and sibling not in outputs:
                sibling.inline_at = tensor.inline_at


def _inlinable(fusion: Fusion, selected: Collection[TensorView]) -> list[TensorView]:
    chosen = set(selected)
    return [
        t
        for t in reversed(fusion.tensors())
        if t.definition is not None and t.consumers and (not chosen or t in chosen)
    ]
