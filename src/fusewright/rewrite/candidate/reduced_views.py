"""Stores outputs from the iteration space of a view that is reduced.

    y = f(x) -> output;  max(reshape(y))      becomes      y' = f(reshape(x)) -> store;  max(y')

A kernel has one iteration space, which is that of its reductions: for example, blocks of a row that each get
a scale. An output in the shape of the row would need a second space. But if the view is a reshape, each
element has a position in both spaces. So do values that are computed with results of the reduction, such as
those of a group norm, which are indexed by channel.
"""

from __future__ import annotations

from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Indexed, Stored
from fusewright.ir.value import TensorView
from fusewright.rewrite.candidate.lift import depends_on_more
from fusewright.rewrite.candidate.lift_indexed import is_in_order
from fusewright.sym import TRUE


def store_beside_views(fusion: Fusion) -> Fusion:
    """Stores outputs from the space of a view that is reduced, if there is one; returns `fusion`."""
    views = [n for n in fusion.ordered_nodes() if isinstance(n, Indexed) and _shows_all(n)]
    if not views:
        return fusion
    more = depends_on_more(fusion)
    for view in views:
        if view.source in more or not _is_reduced(view.output) or _is_reduced(view.source, view):
            continue
        extents = [axis.extent for axis in view.source.shape]
        if extents == [axis.extent for axis in view.output.shape]:
            continue  # a flip or roll: an output may well have the order of what is reduced
        for output in list(fusion.outputs):
            tensor = output.tensor
            above = tensor.definition
            has_shape = [axis.extent for axis in tensor.shape] == extents
            if above is None or not above.traits.pointwise or not has_shape or output.alias is not None:
                continue
            if is_in_order(tensor, view, more) and not any(axis.is_broadcast for axis in tensor.shape):
                _store(fusion, tensor, view)
    return fusion


def _shows_all(node: Indexed) -> bool:
    inverse = node.inverse
    is_whole = inverse is not None and node.map.pred is TRUE and inverse.pred is TRUE
    return is_whole and not node.indices and not any(axis.is_broadcast for axis in node.source.shape)


def _is_reduced(tensor: TensorView, leave_out: Indexed | None = None) -> bool:
    """Whether a reduction reads values that are computed elementwise from a tensor.

    Args:
        leave_out: a view whose readers do not count.
    """
    stack, seen = [tensor], {tensor}
    while stack:
        for use in stack.pop().uses:
            if use.output.is_reduction:
                return True
            if use is leave_out or not (use.traits.pointwise or use.traits.view):
                continue
            more = [out for out in use.outputs if isinstance(out, TensorView) and out not in seen]
            seen.update(more)
            stack += more
    return False


def _store(fusion: Fusion, tensor: TensorView, view: Indexed) -> None:
    """Makes an output a store from the view's space."""
    inside, twin = fusion.new_like(tensor), fusion.new_like(view.output, tensor.dtype)
    for use in list(tensor.uses):
        fusion.replace_inputs(use, {tensor: inside})
    above = tensor.definition
    assert above is not None
    fusion.remove_node(above)
    fusion.add_node(above.copy({tensor: inside}))
    fusion.add_node(Indexed(view.kind, inside, twin, view.map, inverse=view.inverse))
    root = [fusion.copy_axis(axis) for axis in twin.shape]
    tensor.redefine(tensor.logical, root)
    tensor.loop = root
    fusion.add_node(Stored(twin, tensor, view.map))
