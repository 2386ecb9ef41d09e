"""Removes copies that change nothing, and changes of shape and order that cancel each other.

    broadcast, then squeeze; permute, and back; reshape, and back; slices of what was padded around them

In one kernel they cost nothing, but if a library, another kernel or the user reads the result, it is a copy.
"""

from __future__ import annotations

from collections.abc import Collection

from fusewright.core.enums import CacheOp, LoadStoreOpType
from fusewright.ir.fusion import Fusion
from fusewright.ir.index_map import IndexMap, positions
from fusewright.ir.node import Copy, Indexed, Node
from fusewright.ir.value import TensorView
from fusewright.ir.view import Expand
from fusewright.rewrite.conditions import conditions
from fusewright.rewrite.replacement import is_in_memory_of_its_own, read_instead, shape_of
from fusewright.sym import ONE, ZERO, Expr

# The most views of a chain that are followed. Definitions have shorter chains.
MAX_CHAIN = 8


def cancel_round_trips(fusion: Fusion) -> Fusion:
    """Replaces tensors by earlier tensors with the same elements in the same places; returns `fusion`."""
    outputs = set(fusion.output_tensors())
    for node in fusion.ordered_nodes():
        if node not in fusion.nodes or not _may_lead_back(node) or not node.output.uses:
            continue
        if is_in_memory_of_its_own(node.output, outputs):
            continue
        origin = _same_elements(node)
        if origin is not None:
            read_instead(fusion, node.output, origin)
    return fusion


def _may_lead_back(node: Node) -> bool:
    """Whether a node may have the same elements in the same places as an earlier tensor.

    A view always changes the dimensions, so only a second move can restore them.
    """
    if not only_moves(node):
        return False
    above = node.inputs[0].definition
    return not node.traits.view or (above is not None and only_moves(above))


def only_moves(node: Node) -> bool:
    """Whether a node only moves elements of its operand by position."""
    if isinstance(node, Copy):
        is_plain = node.kind is LoadStoreOpType.set and node.cache is CacheOp.unspecified
        return is_plain and not (node.segment or node.ordered)
    return node.traits.view or (isinstance(node, Indexed) and not node.indices)


def _same_elements(node: Node) -> TensorView | None:
    """The earliest tensor with the same elements in the same places as the node's output, or None.

    Only moves lead from it to the node.
    """
    found, shape = None, shape_of(node.output)
    places: IndexMap | None = identity(node.output)
    above: Node | None = node
    for _ in range(MAX_CHAIN):
        if above is None or places is None or not only_moves(above):
            break
        places = read_through(above, places)
        source = above.source
        if source.is_cpu:
            break
        if places == identity(source) and shape_of(source) == shape:
            found = source
        above = source.definition
    return found


def identity(tensor: TensorView) -> IndexMap:
    """The index map that leads from each position to itself."""
    own = positions([ONE if axis.is_broadcast else axis.extent for axis in tensor.shape])
    return IndexMap(tuple(own))


def read_through(node: Node, places: IndexMap, where: Collection[Expr] = frozenset()) -> IndexMap | None:
    """The places in the node's operand of the elements at `places` in its output.

    None if there may be a fill at some positions, which is not an element of the operand.

    Args:
        where: the conditions at the positions at which the output is used. If they imply the node's
            predicate, there is no fill.
    """
    source = node.source
    if isinstance(node, Indexed):
        inner = node.map.at(places.indices)
        return IndexMap(inner.indices) if conditions(inner.pred).issubset(where) else None
    if isinstance(node, (Copy, Expand)):
        own = [ZERO if axis.is_broadcast else e for axis, e in zip(source.shape, places.indices)]
        return IndexMap(tuple(own))
    indices: list[Expr] = [ZERO] * source.ndim
    for place, dim in zip(places.indices, node.axis_map(0)):
        if dim is not None and not source.shape[dim].is_broadcast:
            indices[dim] = place
    return IndexMap(tuple(indices))
