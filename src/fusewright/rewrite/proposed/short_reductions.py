"""Replaces reductions of a few elements by elementwise operations.

    sum(x, [-1])  of x of [N, 3]    becomes    x[:, 0] + x[:, 1] + x[:, 2]

A kernel with a reduction iterates over the reduced data. A reader that needs the result at each element of a
larger tensor, or that reduces it further, is then another kernel, and the result passes through memory.
Elements that are read by index are ordinary loads in every kernel that needs them. The proposing scheduler
decides whether it pays.
"""

from __future__ import annotations

from itertools import product

from fusewright.ir.fusion import Fusion
from fusewright.ir.index_map import IndexMap, positions
from fusewright.ir.node import Node, Pointwise, Reduction
from fusewright.ir.value import TensorView
from fusewright.ops.build_indexed import indexed
from fusewright.ops.build_scan import COMBINING
from fusewright.ops.elementwise import ELEMENTWISE
from fusewright.rewrite.replacement import combines_elements
from fusewright.sym import ZERO, Expr, as_int, const

# The most elements of a reduction that is unrolled. Each is a load and an operation in every kernel that
# reads the result.
MAX_ELEMENTS = 16


def can_be_unrolled(node: Node) -> bool:
    """Whether a node reduces few elements of known number that an elementwise operation can combine."""
    if not isinstance(node, Reduction) or not combines_elements(node) or node.op not in COMBINING:
        return False
    x = node.tensor_inputs[0]
    if (
        x.is_cpu
        or node.output.dtype is not x.dtype
        or any(x.shape[d].is_broadcast for d in node.reduced_dims)
    ):
        return False
    count = 1
    for dim in node.reduced_dims:
        size = as_int(x.shape[dim].extent)
        if not size:
            return False
        count *= size
    return count <= MAX_ELEMENTS


def unrolled_reduction(fusion: Fusion, node: Reduction) -> dict[TensorView, TensorView]:
    """Adds elementwise operations that combine the elements of a reduction in order.

    Returns:
        The replacement of the reduction's output.
    """
    x, reduced = node.tensor_inputs[0], node.reduced_dims
    ranges = [range(as_int(x.shape[dim].extent) or 0) for dim in reduced]
    result: TensorView | None = None
    for place in product(*ranges):
        element = _element(fusion, x, dict(zip(reduced, map(const, place))))
        if result is None:
            result = element
            continue
        both = fusion.new_like(element, x.dtype)
        fusion.add_node(Pointwise(ELEMENTWISE[COMBINING[node.op]], (result, element), both))
        result = both
    assert result is not None
    return {node.output: result}


def _element(fusion: Fusion, x: TensorView, at: dict[int, Expr]) -> TensorView:
    """Adds a read of the elements at one position along some dimensions, which the result lacks."""
    axes = [fusion.copy_axis(axis) for dim, axis in enumerate(x.shape) if dim not in at]
    kept = iter(positions([axis.extent for axis in axes]))
    places = [at[dim] if dim in at else next(kept) for dim in range(x.ndim)]
    indices = tuple(ZERO if axis.is_broadcast else place for axis, place in zip(x.shape, places))
    return indexed(fusion, "Select", x, axes, IndexMap(indices))
