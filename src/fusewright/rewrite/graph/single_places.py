"""Replaces an update of one position along a dimension by a choice by position.

    scatter(x, 1, index, v), where index has one column    becomes    where(iota == index, v, x)

So the base is read where it is needed, and readers of the result may be in the same kernel. An update would
be a separate kernel between the kernel that writes its base and those that read the result. No two elements
go to the same position, so the result is deterministic.
"""

from __future__ import annotations

from fusewright.ir.fusion import Fusion
from fusewright.ir.index_map import index_value, positions
from fusewright.ir.node import Copy, Pointwise, Update
from fusewright.ir.value import TensorView
from fusewright.ops.build_elementwise import apply_to_tensor
from fusewright.ops.elementwise import ELEMENTWISE
from fusewright.ops.reductions import SUM
from fusewright.rewrite.replacement import drop_reduced_axes, positions_along
from fusewright.sym import ONE, ZERO, le


def choose_single_places(fusion: Fusion) -> Fusion:
    """Replaces updates of one position along a dimension by choices; returns `fusion`.

    An update that is written into an input stays: it stores a few elements, while a choice stores all.
    """
    written = {output.tensor for output in fusion.outputs if output.alias is not None}
    for node in fusion.ordered_nodes():
        if isinstance(node, Update) and not _is_written(node.output, written):
            along = _single_dimension(fusion, node)
            if along is not None:
                _choose(fusion, node, along)
    return fusion


def _is_written(tensor: TensorView, written: set[TensorView]) -> bool:
    copies = (use.output for use in tensor.uses if isinstance(use, Copy))
    return tensor in written or not written.isdisjoint(copies)


def _single_dimension(fusion: Fusion, node: Update) -> int | None:
    """The dimension along which a loaded index selects one position, if the update covers all others."""
    out, base = node.output, node.base
    if base is None or node.indices != 1 or node.op not in (None, SUM):
        return None
    space, shape = out.maybe_root, out.shape
    if len(space) != len(shape) or any(axis.expanded is not None for axis in (*space, *shape)):
        return None
    same = positions([axis.extent for axis in shape])
    along = [dim for dim, place in enumerate(node.map.indices) if place is not same[dim]]
    if len(along) != 1:
        return None
    [dim] = along
    value = index_value(0, shape[dim].extent)
    if node.map.indices[dim] is not value or node.map.pred is not le(ZERO, value):
        return None
    whole = all(fusion.same_size(space[i].extent, axis.extent) for i, axis in enumerate(shape) if i != dim)
    return dim if whole and space[dim].extent is ONE and not shape[dim].is_broadcast else None


def _choose(fusion: Fusion, node: Update, dim: int) -> None:
    out, base, [index] = node.output, node.base, node.index_tensors
    assert base is not None
    here = apply_to_tensor(fusion, "eq", positions_along(fusion, out, dim), index)
    source = node.source if node.op is None else apply_to_tensor(fusion, "add", base, node.source)
    fusion.remove_node(node)
    drop_reduced_axes(out)
    fusion.add_node(Pointwise(ELEMENTWISE["where"], (here, source, base), out))
