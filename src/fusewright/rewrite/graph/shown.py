"""Recognizes a tensor that another one shows in another shape: for example the value of each row, broadcast
along the row, as when `softmax` divides by a sum.
"""

from __future__ import annotations

from dataclasses import dataclass

from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Node
from fusewright.ir.value import TensorView
from fusewright.ir.view import Expand


@dataclass(frozen=True)
class Shown:
    """A tensor, and the relabels and expansions, the first one first, through which another one shows it."""

    tensor: TensorView
    views: tuple[Node, ...]

    @property
    def dims(self) -> tuple[int | None, ...]:
        """For each dimension of the shown tensor, the dimension of the original; None: it has none."""
        dims: tuple[int | None, ...] = tuple(range(self.tensor.ndim))
        for view in self.views:
            dims = tuple([None if dim is None else dims[dim] for dim in view.axis_map(0)])
        return dims

    def of(self, fusion: Fusion, tensor: TensorView) -> TensorView:
        """A tensor with the dimensions of `self.tensor`, shown in the same way."""
        for view in self.views:
            old = view.output
            out = fusion.new_like(old, tensor.dtype)
            fusion.add_node(view.copy({view.inputs[0]: tensor, old: out}))
            tensor = out
        return tensor


def shown_by(tensor: TensorView) -> Shown:
    """The tensor that this one shows; itself, if it is computed."""
    views: list[Node] = []
    while (node := tensor.definition) is not None and (node.traits.relabel or isinstance(node, Expand)):
        views.append(node)
        (tensor,) = node.tensor_inputs
    return Shown(tensor, tuple(reversed(views)))
