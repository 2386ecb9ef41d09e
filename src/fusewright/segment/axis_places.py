"""Where the dimensions of tensors would lie if the tensors lay in memory as one of them does.

Dimensions correspond from node to node, those of slices and joins too, whose sizes differ.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence

from fusewright.analyze.axis_map import operand_map
from fusewright.ir import IterDomain, Node, Stored, TensorView
from fusewright.ir.index_map import position_of
from fusewright.ir.node import Indexed
from fusewright.sym import Expr

#: The places of some dimensions of a tensor; the innermost has the largest.
Places = Mapping[IterDomain, int]


def places_beside(nodes: Sequence[Node], start: TensorView) -> dict[TensorView, Places]:
    """Returns the places of dimensions of all tensors that these nodes connect with `start`.

    A tensor that is reached in several ways has the places of a neighbour that knows the most.
    """
    around: dict[TensorView, list[Node]] = {}
    for node in nodes:
        for tensor in dict.fromkeys((*node.tensor_inputs, *node.tensor_outputs)):
            around.setdefault(tensor, []).append(node)
    first: Places = {axis: place for place, axis in enumerate(start.memory_axes)}
    found: dict[TensorView, Places] = {}
    waiting: list[tuple[int, int, TensorView, Places]] = [(0, 0, start, first)]
    count = 0
    while waiting:
        _, _, tensor, places = heapq.heappop(waiting)
        if tensor in found:
            continue
        found[tensor] = places
        for node in around.get(tensor, ()):
            for other, theirs in _of_neighbours(node, tensor, places):
                if other not in found:
                    count += 1
                    heapq.heappush(waiting, (-len(theirs), count, other, theirs))
    return found


def _of_neighbours(node: Node, tensor: TensorView, places: Places) -> Iterator[tuple[TensorView, Places]]:
    """Yields the other tensors of a node with the places that follow from those of one of its tensors."""
    maps = {
        value: _to_root(node, position)
        for position, value in reversed(list(enumerate(node.inputs)))
        if isinstance(value, TensorView)
    }
    maps |= {out: _own_roots(node, out) for out in node.tensor_outputs}
    root = {theirs: places[ours] for ours, theirs in maps[tensor].items() if ours in places}
    for value, mapped in maps.items():
        yield value, {ours: root[theirs] for ours, theirs in mapped.items() if theirs in root}


def _to_root(node: Node, position: int) -> dict[IterDomain, IterDomain]:
    """Maps dimensions of an operand to the root dimensions of the node's first output."""
    if isinstance(node, Indexed) and not position:
        return _along(node.source.shape, node.map.indices, node.output.maybe_root)
    return operand_map(node, position)


def _own_roots(node: Node, out: TensorView) -> dict[IterDomain, IterDomain]:
    """Maps dimensions of one of the node's outputs to root dimensions of its first output."""
    if isinstance(node, Stored):
        return _along(out.shape, node.map.indices, out.maybe_root)
    return dict(zip(out.maybe_root, node.output.maybe_root))


def _along(
    axes: Sequence[IterDomain], indices: Sequence[Expr], root: Sequence[IterDomain]
) -> dict[IterDomain, IterDomain]:
    """Maps each axis whose index follows from one position to the dimension of that."""
    found = {}
    for axis, index in zip(axes, indices):
        dims = {position_of(symbol) for symbol in index.free_symbols} - {None}
        if len(dims) == 1:
            found[axis] = root[dims.pop() or 0]
    return found
