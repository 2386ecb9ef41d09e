"""Which tensors must outlive a reduction: those that are read again once its result is known."""

from __future__ import annotations

from collections.abc import Mapping

from fusewright.ir.fusion import Fusion
from fusewright.ir.value import TensorView


class Reach:
    """Reachability between the tensors of a fusion, as bit sets over their positions."""

    def __init__(self, fusion: Fusion) -> None:
        self._bit: dict[TensorView, int] = {}
        for node in fusion.ordered_nodes():
            for out in node.outputs:
                if isinstance(out, TensorView):
                    self._bit[out] = 1 << len(self._bit)
        self._below: dict[TensorView, int] = {}
        for tensor in reversed(list(self._bit)):
            below = self._bit[tensor]
            for consumer in tensor.consumers:
                below |= self._below.get(consumer, 0)
            self._below[tensor] = below
        self._reductions = [t for t in self._bit if t.is_reduction]

    def reaches(self, above: TensorView, below: TensorView) -> bool:
        """Whether `below` is `above` or computed from it."""
        return bool(self._below.get(above, 0) & self._bit.get(below, 0))

    def reductions_between(self, tensor: TensorView) -> list[TensorView]:
        """Reductions on a way from one consumer of `tensor` to another consumer: their result is awaited."""
        consumers = [c for c in tensor.consumers if c in self._bit]
        if len(consumers) < 2:
            return []
        found: list[TensorView] = []
        for reduction in self._reductions:
            sources = [c for c in consumers if self.reaches(c, reduction)]
            if sources and any(c is not reduction and self.reaches(reduction, c) for c in consumers):
                found.append(reduction)
        return found


def persistent_tensors(fusion: Fusion) -> Mapping[TensorView, list[TensorView]]:
    """Each computed tensor that is read before and after a reduction, with those reductions."""
    reach = Reach(fusion)
    found: dict[TensorView, list[TensorView]] = {}
    for node in fusion.ordered_nodes():
        for out in node.outputs:
            if isinstance(out, TensorView) and (between := reach.reductions_between(out)):
                found[out] = between
    return found
