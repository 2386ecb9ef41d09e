"""Removes copies that change nothing, and changes of shape and order that cancel.

    broadcast, then squeeze; permute, and back; reshape, and back; slices of what was padded around them

In one kernel they cost nothing, but a library, another kernel or the user would get a copy.
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

# Longer chains of views than definitions have; what is above is not looked at.
MAX_CHAIN = 8


def cancel_round_trips(fusion: Fusion) -> Fusion:
    """`fusion` itself, in which a tensor with the elements of an earlier tensor, in the same places, is
    replaced by it.
    """
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
    """A change of dimensions, which is never one that changes nothing, does with another one before it."""
    if not only_moves(node):
        return False
    above = node.inputs[0].definition
    return not node.traits.view or (above is not None and only_moves(above))


def only_moves(node: Node) -> bool:
    """Whether it moves elements of its one operand, by position."""
    if isinstance(node, Copy):
        is_plain = node.kind is LoadStoreOpType.set and node.cache is CacheOp.unspecified
        return is_plain and not (node.segment or node.ordered)
    return node.traits.view or (isinstance(node, Indexed) and not node.indices)


def _same_elements(node: Node) -> TensorView | None:
    """The earliest tensor, through moves alone, that has the elements of the node's output in place."""
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
    """Each element where it is."""
    own = positions([ONE if axis.is_broadcast else axis.extent for axis in tensor.shape])
    return IndexMap(tuple(own))


def read_through(node: Node, places: IndexMap, where: Collection[Expr] = frozenset()) -> IndexMap | None:
    """Where in the node's operand the element stands that is at `places` of its output; None if nowhere.

    At some positions a fill may be there instead: that is no element of the operand. Not where the conditions
    `where` hold, if these are all that the node asks for.
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
