"""Which tensors must outlive a reduction: those that are read again once its result is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusewright.ir.fusion import Fusion
from fusewright.ir.value import TensorView


class Reach:
    """Reachability between the tensors of a fusion, as bit sets; the outputs of one node are as one."""

    def __init__(self, fusion: Fusion) -> None:
        nodes = [node for node in fusion.ordered_nodes() if not node.is_scalar]
        self._bit: dict[TensorView, int] = {}
        self._below: dict[TensorView, int] = {}
        #: as below, but not beyond a reduction: what can stand in one loop with the tensor
        self._beside: dict[TensorView, int] = {}
        self._reductions = [node.output for node in nodes if node.output.is_reduction]
        reductions = set(self._reductions)
        for position in reversed(range(len(nodes))):
            node = nodes[position]
            below = beside = bit = 1 << position
            for out in node.outputs:
                for user in out.uses:  # all that one computes reach the same
                    below |= self._below.get(user.output, 0)
                    beside |= self._beside.get(user.output, 0)
            if node.output in reductions:
                beside = bit
            for out in node.outputs:
                assert isinstance(out, TensorView)
                self._bit[out], self._below[out], self._beside[out] = bit, below, beside

    def reaches(self, above: TensorView, below: TensorView) -> bool:
        """Whether `below` is `above` or computed from it."""
        return bool(self._below.get(above, 0) & self._bit.get(below, 0))

    @property
    def reductions(self) -> Sequence[TensorView]:
        """One output of every reduction, producers first."""
        return self._reductions

    def reductions_between(self, tensor: TensorView) -> list[TensorView]:
        """Reductions that one consumer of `tensor` feeds and that another's results meet later.

        The second consumer, or what follows from it, stands in one loop with what awaits the reduction, so
        the two consumers cannot share a loop that the reduction reduces.
        """
        consumers = [c for c in tensor.consumers if c in self._bit]
        if len(consumers) < 2:
            return []
        found: list[TensorView] = []
        for reduction in self._reductions:
            feeding = [self.reaches(c, reduction) for c in consumers]
            if any(feeding) and any(
                self._beside[c] & self._below[reduction] for c, feeds in zip(consumers, feeding) if not feeds
            ):
                found.append(reduction)
        return found


def persistent_tensors(fusion: Fusion) -> Mapping[TensorView, list[TensorView]]:
    """Each computed tensor that is needed before a reduction and after it, with those reductions."""
    reach = Reach(fusion)
    found: dict[TensorView, list[TensorView]] = {}
    for node in fusion.ordered_nodes():
        for out in node.outputs:
            if isinstance(out, TensorView) and (between := reach.reductions_between(out)):
                found[out] = between
    return found
