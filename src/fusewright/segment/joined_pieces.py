"""Stores the pieces of a joined tensor where they are computed, instead of joining them in another kernel.

    r = norm(x)  |  cat(r, y)      becomes      store r as a piece  |  store y as a piece

The bar marks the end of a kernel. The rows of a join are no rows of a reduction, so no kernel computes both:
results pass through memory to the kernel that joins them. A store by index has the dimensions of its source,
so each kernel can store its results where they belong, as can several for one tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusewright.ir import (
    Choose,
    Copy,
    Full,
    Fusion,
    Indexed,
    IndexMap,
    Join,
    Node,
    Piece,
    Pointwise,
    Scalar,
    TensorView,
    position_of,
)
from fusewright.ops.build_indexed import own_positions, sized_axis, within
from fusewright.rewrite.conditions import conditions
from fusewright.schedulers.base import Rewrite
from fusewright.sym import TRUE, ZERO, Expr, is_nonneg, land, lnot, product

# The most pieces of a tensor. Each may be a kernel of its own, and conditions are compared with those of all
# pieces before.
MAX_PIECES = 64


@dataclass(frozen=True)
class _Box:
    """Elements of the whole that lie together: those of a tensor, or copies of a scalar.

    Attributes:
        source: what they are.
        extents: how many there are along each dimension.
        begin: the position of the first one in the whole, along each dimension.
    """

    source: TensorView | Scalar
    extents: tuple[Expr, ...]
    begin: tuple[Expr, ...]


def stored_in_pieces(nodes: Sequence[Node], outputs: Sequence[TensorView]) -> Rewrite | None:
    """Replaces the joins and padded tensors among a kernel's outputs by pieces.

    Args:
        nodes: the kernel's nodes, producers first.
        outputs: the tensors that it stores.

    Returns:
        None if it stores none, or if it reads only inputs of the graph.
    """
    inside = set(nodes)
    reads = (value for node in nodes for value in node.tensor_inputs)
    if all(value.definition is None or value.definition in inside for value in reads):
        return None
    found = {out: joined for out in outputs if (joined := _joined(out, inside)) is not None}
    if not found:
        return None

    def replace_all(graph: Fusion) -> dict[TensorView, TensorView]:
        return {out: _stored(graph, out, boxes, after) for out, (boxes, after) in found.items()}

    return Rewrite("joins in pieces", replace_all, "what it joins is computed by other kernels")


def _joined(out: TensorView, inside: set[Node]) -> tuple[list[_Box], list[Node]] | None:
    """What an output joins, and the nodes that compute with the joined tensor alone, the first one first."""
    after: list[Node] = []
    tensor = out
    while (node := tensor.definition) is not None and len(node.tensor_inputs) == 1:
        if isinstance(node, Pointwise):
            after.insert(0, node)
        elif not isinstance(node, Copy) or node.segment:
            break
        tensor = node.tensor_inputs[0]
    if node not in inside or len(out.shape) != len(tensor.shape):
        return None
    boxes = _boxes(tensor) or []
    elements: Expr = ZERO
    for box in boxes:
        elements = elements + product(box.extents)
    return (boxes, after) if len(boxes) > 1 and elements is product(tensor.extents) else None


def _boxes(whole: TensorView) -> list[_Box] | None:
    """Boxes with the elements of a tensor that choices by position take from pads; None if these are in none.

    A box has all elements of its source, so boxes may have more elements than the tensor.
    """
    found: list[_Box] = []
    left: list[tuple[TensorView, Expr]] = [(whole, TRUE)]
    while left:
        tensor, where = left.pop()
        node = tensor.definition
        if isinstance(node, Choose) and not node.index_tensors:
            first, second = node.inputs[:2]
            if not (isinstance(first, TensorView) and isinstance(second, TensorView)):
                return None
            left += [(second, land(where, lnot(node.pred))), (first, land(where, node.pred))]
            continue
        if not isinstance(node, Indexed) or node.indices or node.fill is None:
            return None
        begin = _begin(node)
        if begin is None:
            return None
        box = _Box(node.source, tuple([axis.visible_extent for axis in node.source.shape]), begin)
        found.append(box)
        if tensor is whole:
            found += _around(box, whole.extents, node.fill)
        elif not conditions(where) >= conditions(node.map.pred):
            return None
        if len(found) > MAX_PIECES:
            return None
    return found


def _begin(node: Indexed) -> tuple[Expr, ...] | None:
    """Where in the result of a pad its source begins; None if it is read in another way, or cut off."""
    source, out = node.source, node.output
    if source.ndim != out.ndim:
        return None
    begin: list[Expr] = []
    told = conditions(node.map.pred)
    needed: set[Expr] = set()
    for dim, (axis, index) in enumerate(zip(source.shape, node.map.indices)):
        place = own_positions(out)[dim]
        size = axis.visible_extent
        first = _first_place(told, place, size) if axis.is_broadcast else place - index
        if first is None or any(position_of(s) is not None for s in first.free_symbols):
            return None
        if not (is_nonneg(first) and is_nonneg(out.extents[dim] - first - size)):
            return None
        needed |= conditions(within(place - first, size))
        begin.append(first)
    return tuple(begin) if needed == told else None


def _first_place(told: frozenset[Expr], place: Expr, size: Expr) -> Expr | None:
    """The first of the `size` positions that these conditions leave along a dimension."""
    own = {condition for condition in told if place in condition.free_symbols}
    if not own:
        return ZERO
    for condition in own:
        if len(condition.args) == 2:
            first, second = condition.args
            bound = second + place - first if place in first.free_symbols else first + place - second
            for found in (bound, bound + 1, bound - size, bound - size + 1):
                if conditions(within(place - found, size)) == own:
                    return found
    return None


def _around(box: _Box, extents: Sequence[Expr], fill: Scalar) -> list[_Box]:
    """The boxes of the elements around a box, in a tensor of these sizes, which all are `fill`."""
    found = []
    for dim, (first, size) in enumerate(zip(box.begin, box.extents)):
        end = first + size
        for begin, count in ((ZERO, first), (end, extents[dim] - end)):
            if count is ZERO:
                continue
            # Along the dimensions before, what is outside the box has been covered.
            begins = (*box.begin[:dim], begin, *([ZERO] * (len(extents) - dim - 1)))
            found.append(_Box(fill, (*box.extents[:dim], count, *extents[dim + 1 :]), begins))
    return found


def _stored(graph: Fusion, out: TensorView, boxes: Sequence[_Box], after: Sequence[Node]) -> TensorView:
    """Adds the pieces of a whole, and what joins them."""
    pieces = []
    for box in boxes:
        source = _filled(graph, box) if isinstance(box.source, Scalar) else box.source
        for node in after:
            twin = graph.new_like(source, node.output.dtype)
            graph.add_node(node.copy({node.tensor_inputs[0]: source, node.output: twin}))
            source = twin
        if source.is_expanded:  # each element that it shows is stored
            shown = graph.new_tensor([sized_axis(graph, extent) for extent in box.extents], source.dtype)
            graph.add_node(Copy(source, shown))
            source = shown
        pieces.append(_piece(graph, out, source, box.begin))
    whole = graph.new_like(out)
    whole.lie_as(out)
    graph.add_node(Join(pieces, (whole,)))
    return whole


def _filled(graph: Fusion, box: _Box) -> TensorView:
    """A tensor of copies of the pad's own scalar.

    `build_factory.filled` would add a conversion of it, but the host computes the definition's scalars alone.
    """
    assert isinstance(box.source, Scalar)
    source = graph.new_tensor([sized_axis(graph, extent) for extent in box.extents], box.source.dtype)
    graph.add_node(Full(box.source, source))
    return source


def _piece(graph: Fusion, out: TensorView, source: TensorView, begin: Sequence[Expr]) -> TensorView:
    root = [graph.copy_axis(axis) for axis in source.shape]
    piece = graph.new_tensor([graph.copy_axis(axis) for axis in out.shape], out.dtype, root=root)
    piece.loop = list(root)
    piece.lie_as(out)
    places = [first + place for first, place in zip(begin, own_positions(source))]
    indices = tuple([ZERO if axis.is_broadcast else place for axis, place in zip(out.shape, places)])
    graph.add_node(Piece(source, piece, IndexMap(indices)))
    return piece
