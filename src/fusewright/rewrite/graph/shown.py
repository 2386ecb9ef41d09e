"""Recognizes a tensor that another one shows in another shape.

For example, `softmax` divides by the sum of each row, broadcast along the row.
"""

from __future__ import annotations

from dataclasses import dataclass

from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Node
from fusewright.ir.value import TensorView
from fusewright.ir.view import Expand


@dataclass(frozen=True)
class Shown:
    """A tensor, and the relabels and expansions through which another tensor shows it, in order."""

    tensor: TensorView
    views: tuple[Node, ...]

    @property
    def dims(self) -> tuple[int | None, ...]:
        """For each dimension of the view, the dimension of the original tensor, or None."""
        dims: tuple[int | None, ...] = tuple(range(self.tensor.ndim))
        for view in self.views:
            dims = tuple([None if dim is None else dims[dim] for dim in view.axis_map(0)])
        return dims

    def of(self, fusion: Fusion, tensor: TensorView) -> TensorView:
        """Adds the same views of another tensor with the dimensions of `self.tensor`."""
        for view in self.views:
            old = view.output
            out = fusion.new_like(old, tensor.dtype)
            fusion.add_node(view.copy({view.inputs[0]: tensor, old: out}))
            tensor = out
        return tensor


def shown_by(tensor: TensorView) -> Shown:
    """The tensor that this one shows, which is itself if it is no view."""
    views: list[Node] = []
    while (node := tensor.definition) is not None and (node.traits.relabel or isinstance(node, Expand)):
        views.append(node)
        (tensor,) = node.tensor_inputs
    return Shown(tensor, tuple(reversed(views)))
