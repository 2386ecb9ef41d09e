"""Finds the tensors that must outlive a reduction: those that are read again after its result is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fusewright.analyze.scan_axes import is_spread_scan
from fusewright.core.once import cached_property
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Node, Scan
from fusewright.ir.value import TensorView


@dataclass(frozen=True, slots=True)
class _Sets:
    """For each tensor, sets of tensors as integers with one bit per tensor.

    Attributes:
        bit: the tensor itself.
        descendants: the tensor and the tensors computed from it.
        same_loop_candidates: the descendants up to reductions, which can share a loop with the tensor.
    """

    bit: dict[TensorView, int]
    descendants: dict[TensorView, int]
    same_loop_candidates: dict[TensorView, int]


class Reachability:
    """Reachability between the tensors of a fusion. The outputs of a node count as one tensor.

    Args:
        of_scans: whether consumers of a scan must be outside some of its loops, like those of a reduction.
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
                for user in out.uses:
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
        """The reductions between two consumers of `tensor`.

        One consumer feeds the reduction. The other one, or a value computed from it, is in a loop with
        consumers of the reduction. So the two consumers cannot share a loop of the reduction.
        """
        if not self._reductions:
            return []
        sets = self._sets
        consumers = [c for c in tensor.consumers if c in sets.bit]
        if len(consumers) < 2:
            return []
        found: list[TensorView] = []
        for reduction in self._reductions:
            others = [c for c in consumers if not self.reaches(c, reduction)]
            is_fed = len(others) < len(consumers)
            if is_fed and any(sets.same_loop_candidates[c] & sets.descendants[reduction] for c in others):
                found.append(reduction)
        return found


def persistent_tensors(fusion: Fusion, across_scans: bool = True) -> Mapping[TensorView, list[TensorView]]:
    """The computed tensors that are needed both before and after a reduction, with these reductions.

    Args:
        across_scans: whether scans count, too, since threads may scan a row together.
    """
    reachability = Reachability(fusion, lambda node: across_scans and isinstance(node, Scan))
    found: dict[TensorView, list[TensorView]] = {}
    for node in fusion.ordered_nodes():
        for out in node.outputs:
            if isinstance(out, TensorView) and (between := reachability.reductions_between(out)):
                found[out] = between
    return found
