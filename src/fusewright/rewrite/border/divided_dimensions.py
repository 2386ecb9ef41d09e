"""Splits a dimension where an input in another memory order is read by quotients of its positions.

    y[i, j * k] = x[p1 // k, p0, p1 % k] * 2      becomes      y[i, j, k] = x[p1, p0, p2] * 2

Here `x` is contiguous along another dimension than its last, so no assignment of threads both reads `x` and
writes `y` in vectors. A kernel that passes tiles through shared memory does. Its tiles are along dimensions,
and after the split each dimension of `x` is one of the kernel. Inputs and outputs whose dimensions change
must be dense, since their memory stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.index_map import position_of, positions
from fusewright.ir.node import Copy, Indexed, Node, Pointwise
from fusewright.ir.value import TensorView
from fusewright.rewrite.border.dense_views import is_dense, redefine
from fusewright.sym import ONE, TRUE, Expr, FloorDiv, Mod, Symbol, exact_quotient

#: Nodes whose results have the dimensions of the kernel.
_KINDS = (Pointwise, Copy, Indexed)


def split_divided_dimensions(fusion: Fusion) -> Fusion:
    """Splits the dimensions that reads of inputs in another order divide; returns `fusion`."""
    while (found := _divided(fusion)) is not None:
        _split(fusion, *found)
    return fusion


def _divided(fusion: Fusion) -> tuple[int, Expr, Expr] | None:
    """A dimension of the kernel to split, and the sizes of its outer and its inner part."""
    nodes = fusion.tensor_nodes()
    reads = [node for node in nodes if isinstance(node, Indexed) and _is_crossed(node)]
    if not reads or not all(type(node) in _KINDS and _is_of_the_kernel(fusion, node) for node in nodes):
        return None
    own = _of_the_kernel(nodes)
    if any(isinstance(node, Indexed) and node.source in own for node in nodes):
        return None
    for dim, inner in dict.fromkeys(split for node in reads for split in _divisions(node)):
        tensors = [tensor for tensor in own if not tensor.shape[dim].is_broadcast]
        sizes = {tensor.shape[dim].extent for tensor in tensors}
        outer = exact_quotient(sizes.pop(), inner) if len(sizes) == 1 else None
        border = [t for t in tensors if fusion.is_input(t) or t in fusion.output_tensors()]
        if outer is not None and outer is not ONE and all(map(is_dense, border)):
            return dim, outer, inner
    return None


def _is_of_the_kernel(fusion: Fusion, node: Node) -> bool:
    """Whether a node computes elements of the kernel's dimensions, from such or, by index, from an input."""
    rank = fusion.output_tensors()[0].ndim
    if len(node.outputs) > 1 or node.output.ndim != rank or node.output.shape != tuple(node.output.logical):
        return False
    if not isinstance(node, Indexed):
        return all(value.ndim == rank or value.is_cpu for value in node.tensor_inputs)
    return fusion.is_input(node.source) and not node.indices and not node.filled and node.map.pred is TRUE


def _of_the_kernel(nodes: Sequence[Node]) -> list[TensorView]:
    """The tensors that have the kernel's dimensions: all but those that are read by index."""
    found: dict[TensorView, None] = {}
    for node in nodes:
        own = () if isinstance(node, Indexed) else [value for value in node.tensor_inputs if not value.is_cpu]
        found.update(dict.fromkeys((*own, node.output)))
    return list(found)


def _is_crossed(node: Indexed) -> bool:
    """Whether the result's last dimension goes along another dimension of the source than its memory."""
    axes = [axis for axis in node.source.memory_axes if not axis.is_broadcast]
    last = max((dim for dim, axis in enumerate(node.output.shape) if not axis.is_broadcast), default=None)
    if not axes or last is None:
        return False

    def goes_along(index: Expr) -> bool:
        return any(position_of(s) == last for s in index.free_symbols)

    along = node.map.indices[node.source.shape.index(axes[-1])]
    others = [index for index in node.map.indices if index is not along]
    is_quotient = any(isinstance(e, FloorDiv) for e in _parts(along))
    return any(map(goes_along, others)) and (is_quotient or not goes_along(along))


def _divisions(node: Indexed) -> Iterator[tuple[int, Expr]]:
    """The dimensions of a read's result whose positions it divides, and the divisors."""
    for e in (part for index in node.map.indices for part in _parts(index)):
        if isinstance(e, (FloorDiv, Mod)) and isinstance(e.dividend, Symbol):
            dim = position_of(e.dividend)
            if dim is not None:
                yield dim, e.divisor


def _parts(e: Expr) -> Iterator[Expr]:
    yield e
    for operand in e.args:
        yield from _parts(operand)


def _split(fusion: Fusion, dim: int, outer: Expr, inner: Expr) -> None:
    """Splits dimension `dim` of the kernel into two of these sizes."""
    nodes = fusion.tensor_nodes()
    tensors = _of_the_kernel(nodes)
    for tensor in tensors:
        redefine(tensor, _split_axes(fusion, tensor, dim, outer, inner))
    for node in nodes:
        if isinstance(node, Indexed):
            places = positions(node.output.extents)
            places[dim : dim + 2] = [places[dim] * inner + places[dim + 1]]
            node.map, node.inverse = node.map.at(places), None
    fusion.edits += 1


def _split_axes(fusion: Fusion, tensor: TensorView, dim: int, outer: Expr, inner: Expr) -> list[IterDomain]:
    axes = [fusion.copy_axis(axis) for axis in tensor.logical]
    kind, is_one = axes[dim].kind, axes[dim].is_broadcast
    axes[dim : dim + 1] = [fusion.new_axis(ONE if is_one else size, kind) for size in (outer, inner)]
    return axes
