"""Replaces Welford's one-pass statistics by two sums. The proposing scheduler decides whether it pays."""

from __future__ import annotations

from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Node, Pointwise, Reduction
from fusewright.ir.value import TensorView
from fusewright.ops.build_reduction import reduce_states
from fusewright.ops.build_shape import broadcast
from fusewright.ops.elementwise import ELEMENTWISE
from fusewright.ops.reductions import SUM, WELFORD
from fusewright.sym import product


def is_plain_welford(fusion: Fusion, node: Node) -> bool:
    """Whether a node is a Welford reduction of one tensor whose count is not read."""
    if not isinstance(node, Reduction) or node.op is not WELFORD or len(node.inputs) > 1:
        return False
    count = node.outputs[2]
    return not count.uses and count not in fusion.output_tensors()


def two_pass(fusion: Fusion, node: Node) -> dict[TensorView, TensorView]:
    """avg, m2, n = welford(x) becomes avg = sum(x) / count, m2 = sum((x - broadcast(avg))^2).

    The two-pass form is also more accurate (Chan, Golub, LeVeque 1983). The function adds nodes without
    removing others.

    Returns:
        The replacements of avg and m2.
    """
    x = node.tensor_inputs[0]
    avg, m2 = node.outputs[0], node.outputs[1]
    assert isinstance(node, Reduction) and isinstance(avg, TensorView) and isinstance(m2, TensorView)
    dims = node.reduced_dims
    count = fusion.size_scalar(product(x.shape[dim].extent for dim in dims))
    total = _known_sum(x, dims) or reduce_states(fusion, SUM, [x], dims)[0]
    mean = fusion.new_like(total, avg.dtype)
    fusion.add_node(Pointwise(ELEMENTWISE["truediv"], (total, count), mean))
    wide = broadcast(fusion, mean, [axis.is_reduction for axis in avg.logical])
    deviation = fusion.new_like(x, avg.dtype)
    fusion.add_node(Pointwise(ELEMENTWISE["sub"], (x, wide), deviation))
    square = fusion.new_like(x, avg.dtype)
    fusion.add_node(Pointwise(ELEMENTWISE["mul"], (deviation, deviation), square))
    return {avg: mean, m2: reduce_states(fusion, SUM, [square], dims)[0]}


def _known_sum(x: TensorView, dims: tuple[int, ...]) -> TensorView | None:
    """An existing sum of `x` over the same dimensions, or None."""
    sums = (node for node in x.uses if isinstance(node, Reduction) and node.op is SUM)
    return next((node.output for node in sums if node.reduced_dims == dims), None)
