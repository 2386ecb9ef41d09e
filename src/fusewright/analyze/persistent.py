"""The tensors that must outlive a reduction: those that are read again once its result is known."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from fusewright.analyze.scan_axes import is_spread_scan
from fusewright.core.once import cached_property
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Node, Scan
from fusewright.ir.value import TensorView


@dataclass(frozen=True, slots=True)
class _Sets:
    """Sets of tensors, with one bit each, by tensor.

    Attributes:
        bit: the tensor itself.
        descendants: itself and the tensors computed from it.
        same_loop_candidates: descendants, but not beyond a reduction: the tensors that can share a loop with
            it.
    """

    bit: dict[TensorView, int]
    descendants: dict[TensorView, int]
    same_loop_candidates: dict[TensorView, int]


class Reachability:
    """Reachability between the tensors of a fusion, as bit sets; the outputs of one node are treated as one.

    Attributes:
        of_scans: whether consumers of a scan must be outside of some of its loops, like those of a reduction.
    """

    def __init__(self, fusion: Fusion, of_scans: Callable[[Node], bool] = is_spread_scan) -> None:
        self._nodes = fusion.tensor_nodes()
        self._reductions = [n.output for n in self._nodes if n.output.is_reduction or of_scans(n)]

    @cached_property
    def _sets(self) -> _Sets:
        sets = _Sets({}, {}, {})
        reductions = set(self._reductions)
        for position in reversed(range(len(self._nodes))):
            node = self._nodes[position]
            descendants = candidates = bit = 1 << position
            for out in node.outputs:
                for user in out.uses:  # all outputs of a node count as one
                    descendants |= sets.descendants.get(user.output, 0)
                    candidates |= sets.same_loop_candidates.get(user.output, 0)
            if node.output in reductions or node.output.part is not None:
                candidates = bit
            for out in node.outputs:
                assert isinstance(out, TensorView)
                sets.bit[out] = bit
                sets.descendants[out] = descendants
                sets.same_loop_candidates[out] = candidates
        return sets

    def reaches(self, tensor: TensorView, other: TensorView) -> bool:
        """Whether `other` is `tensor` or computed from it."""
        return bool(self._sets.descendants.get(tensor, 0) & self._sets.bit.get(other, 0))

    def reductions_between(self, tensor: TensorView) -> list[TensorView]:
        """Reductions that one consumer of `tensor` feeds and whose results another consumer meets later.

        The second consumer, or a value computed from it, is in one loop with consumers of the reduction. So
        the two consumers cannot share a loop that the reduction reduces.
        """
        if not self._reductions:
            return []
        sets = self._sets
        consumers = [c for c in tensor.consumers if c in sets.bit]
        if len(consumers) < 2:
            return []
        found: list[TensorView] = []
        for reduction in self._reductions:
            feeding = [self.reaches(c, reduction) for c in consumers]
            if any(feeding) and any(
                sets.same_loop_candidates[c] & sets.descendants[reduction]
                for c, feeds in zip(consumers, feeding)
                if not feeds
            ):
                found.append(reduction)
        return found


def persistent_tensors(fusion: Fusion, across_scans: bool = True) -> Mapping[TensorView, list[TensorView]]:
    """Each computed tensor that is needed before a reduction and after it, with those reductions.

    across_scans: or a scan of a whole row, which threads share.
    """
    reachability = Reachability(fusion, lambda node: across_scans and isinstance(node, Scan))
    found: dict[TensorView, list[TensorView]] = {}
    for node in fusion.ordered_nodes():
        for out in node.outputs:
            if isinstance(out, TensorView) and (between := reachability.reductions_between(out)):
                found[out] = between
    return found


def most_held(fusion: Fusion, held: Mapping[TensorView, Sequence[TensorView]]) -> int:
    """The most bytes for each element that are held at once, of `held`: across any one reduction, or
    for what is computed with results of several that do not depend on each other. A scan has all of its
    elements at once.
    """
    scans = [node.output for node in fusion.tensor_nodes() if isinstance(node, Scan)]
    across = {tensor: tensor.dtype.size for tensor in scans}
    for tensor, reductions in held.items():
        for reduction in reductions:
            across[reduction] = across.get(reduction, 0) + tensor.dtype.size
    read: dict[TensorView, int] = {}
    if len(held) > 1:
        reachability = Reachability(fusion)
        for tensor, reductions in held.items():
            for user in _computed_with(tensor, held):
                if any(reachability.reaches(reduction, user) for reduction in reductions):
                    read[user] = read.get(user, 0) + tensor.dtype.size
    return max((*across.values(), *read.values()), default=0)


def _computed_with(tensor: TensorView, held: Collection[TensorView]) -> set[TensorView]:
    """What is computed in one loop with a tensor, but for what follows from others that are held."""
    found: set[TensorView] = set()
    stack = [tensor]
    while stack:
        for user in stack.pop().consumers:
            if user not in found:
                found.add(user)
                if user not in held and not user.is_reduction:
                    stack.append(user)
    return found
