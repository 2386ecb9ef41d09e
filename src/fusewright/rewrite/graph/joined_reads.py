"""Replaces joins of parts of one tensor by one read, if the parts are in the tensor as they are in the join.

    cat(x[:, a:b], x[:, b:c])          becomes    x[:, a:c]
    cat(y[:, :-1], y[:, 1:, :4], 2)    becomes    windows of 12 every 8 elements of x

where y is x as rows of 8. So each element has one load without a condition, instead of one load for each part
of which only one is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fusewright.ir.fusion import Fusion
from fusewright.ir.index_map import IndexMap
from fusewright.ir.node import Choose, Indexed, Node
from fusewright.ir.value import TensorView, Val
from fusewright.rewrite.conditions import conditions_read
from fusewright.rewrite.graph.round_trips import MAX_CHAIN, identity, only_moves, read_through
from fusewright.rewrite.replacement import remove_dead, shape_of
from fusewright.sym import TRUE, Expr, land

#: A tensor, and the map to the elements that are read.
_Read = tuple[TensorView, IndexMap]


def join_reads(fusion: Fusion) -> Fusion:
    """Replaces choices whose two sides are the same element of a tensor by reads; returns `fusion`.

    A choice stays if an output is a view of the join: the caller gets the join in separate memory.
    """
    nodes = fusion.ordered_nodes()
    choices = [node for node in nodes if isinstance(node, Choose) and _chooses_moved(node)]
    if not choices:
        return fusion
    outputs = set(fusion.output_tensors())
    used = _conditions_of_use(nodes, outputs)
    for node in choices:
        where = used.get(node.output, frozenset())
        read = None if _is_shown(node.output, outputs) else _common_read(node, where)
        if read is not None:
            _read_once(fusion, node, read, where, outputs)
    return fusion


def _chooses_moved(node: Choose) -> bool:
    """Whether both sides are moved elements, or choices, so that they may be elements of one tensor."""
    above = [value.definition for value in node.inputs[:2]]
    return not node.index_tensors and all(
        n is not None and (isinstance(n, Choose) or only_moves(n)) for n in above
    )


def _conditions_of_use(nodes: Sequence[Node], outputs: set[TensorView]) -> dict[Val, frozenset[Expr]]:
    """The conditions that hold at all positions at which a value is used."""
    used: dict[Val, frozenset[Expr]] = {}
    for node in reversed(nodes):
        if node.is_scalar:
            continue
        is_output = not outputs.isdisjoint(node.outputs)
        known = frozenset[Expr]() if is_output else used.get(node.output, frozenset())
        for operand, value in enumerate(node.inputs):
            found = conditions_read(node, operand, known)
            used[value] = used.get(value, found) & found
    return used


def _is_shown(tensor: TensorView, outputs: set[TensorView]) -> bool:
    """Whether an output is a tensor or only moves elements of it."""
    return tensor in outputs or any(only_moves(use) and _is_shown(use.output, outputs) for use in tensor.uses)


def _common_read(node: Choose, where: frozenset[Expr]) -> _Read | None:
    """The nearest tensor in which both sides of a choice read the same element."""
    first, second = node.inputs[:2]
    shape = shape_of(node.output)
    if not (isinstance(first, TensorView) and isinstance(second, TensorView)):
        return None
    if shape_of(first) != shape or shape_of(second) != shape:
        return None
    others = list(_reads(second, conditions_read(node, 1, where)))
    return next((read for read in _reads(first, conditions_read(node, 0, where)) if read in others), None)


def _reads(value: TensorView, where: frozenset[Expr]) -> Iterator[_Read]:
    """Yields the tensors through which a value was moved, the nearest one first, and its elements of each.

    Args:
        where: the conditions where the value is used. Moves with further conditions have fills, so they end
            it.
    """
    places: IndexMap | None = identity(value)
    above = value.definition
    for _ in range(MAX_CHAIN):
        if above is None or places is None or not only_moves(above) or above.source.is_cpu:
            return
        places = read_through(above, places, where)
        if places is not None:
            yield above.source, places
        above = above.source.definition


def _read_once(
    fusion: Fusion, node: Choose, read: _Read, where: frozenset[Expr], outputs: set[TensorView]
) -> None:
    source, places = read
    out = node.output
    fusion.remove_node(node)
    # The element may not exist at other positions.
    pred = land(*sorted(where, key=lambda e: e.order))
    fill = None if pred is TRUE else fusion.new_scalar(out.dtype, out.dtype.zero)
    fusion.add_node(Indexed("Join", source, out, IndexMap(places.indices, pred), fill=fill))
    for value in node.inputs[:2]:
        if value.definition is not None:
            remove_dead(fusion, value.definition, outputs)
