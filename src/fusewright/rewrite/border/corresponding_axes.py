"""Which axes of a candidate's tensors correspond, over all of its nodes."""

from __future__ import annotations

from collections.abc import Iterable

from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Copy, Full, Indexed, Node, Pointwise, Random, Reduction
from fusewright.ir.value import TensorView
from fusewright.ir.view import Broadcast, Expand, Permute, Relabel, Squeeze

#: Nodes whose results do not depend on the position along a dimension, so that their dimensions may change.
SAME_WORK_EVERYWHERE = (
    Pointwise,
    Reduction,
    Copy,
    Full,
    Random,
    Broadcast,
    Squeeze,
    Permute,
    Relabel,
    Expand,
)


class AxisClasses:
    """Classes of axes that correspond, over all tensors (a union-find structure)."""

    def __init__(self) -> None:
        self._above: dict[IterDomain, IterDomain] = {}

    def of(self, axis: IterDomain) -> IterDomain:
        while (above := self._above.get(axis, axis)) is not axis:
            axis = above
        return axis

    def join(self, a: IterDomain, b: IterDomain) -> None:
        self._above[self.of(a)] = self.of(b)


def axis_classes(fusion: Fusion, nodes: Iterable[Node]) -> AxisClasses:
    """Classes of the axes of all tensors that the nodes relate. What is read by index has axes of its own."""
    found = AxisClasses()
    for output in fusion.outputs:  # an output may be written into the memory of its alias
        for a, b in zip(output.tensor.shape, output.alias.shape if output.alias is not None else ()):
            found.join(a, b)
    for node in nodes:
        lead = node.output.maybe_root
        for other in node.tensor_outputs[1:]:
            for a, b in zip(lead, other.maybe_root):
                found.join(a, b)
        for operand, value in enumerate(node.inputs):
            if not isinstance(value, TensorView) or isinstance(node, Indexed):
                continue
            for axis, dim in zip(lead, node.axis_map(operand)):
                if dim is not None:
                    found.join(axis, value.shape[dim])
    return found
