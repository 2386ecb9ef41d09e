"""Welford's one-pass statistics as two plain sums."""

from __future__ import annotations

from fusewright.core.errors import ScheduleError
from fusewright.ir.axis import IterKind
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Broadcast, Pointwise, Reduction
from fusewright.ir.value import TensorView
from fusewright.ops.elementwise import ELEMENTWISE
from fusewright.ops.reductions import SUM, WELFORD
from fusewright.sym import const, product


def two_pass(fusion: Fusion, tensor: TensorView) -> list[TensorView]:
    """avg, m2, n = welford(x)  becomes  avg = sum(x) / count, m2 = sum((x - broadcast(avg))^2).

    `tensor` is an output of the Welford reduction, before any transform. The two-pass form is also the more
    accurate one (Chan, Golub, LeVeque 1983). Returns the two sums.
    """
    node = tensor.definition
    if not isinstance(node, Reduction) or node.op is not WELFORD or len(node.inputs) > 1:
        raise ScheduleError(f"two_pass: {tensor.name} is not computed by welford from one tensor")
    x = node.tensor_inputs[0]
    avg, m2, n = (t for t in node.outputs if isinstance(t, TensorView))
    if n.uses or n in fusion.output_tensors():
        raise ScheduleError(f"two_pass: the count {n.name} is used")
    if any(t.loop != list(t.logical) for t in (avg, m2, n)):
        raise ScheduleError("two_pass: call it before the reduction is transformed")
    reduced = [axis.is_reduction for axis in avg.logical]
    count = fusion.size_scalar(product(a.extent for a, r in zip(x.shape, reduced) if r))
    fusion.remove_node(node)
    total = _sum(fusion, x, reduced)
    _drop_reduced_axes(avg)
    fusion.add_node(Pointwise(ELEMENTWISE["truediv"], (total, count), avg))
    spread = [
        fusion.new_axis(const(1), IterKind.BROADCAST) if r else fusion.copy_axis(axis)
        for axis, r in zip(x.shape, reduced)
    ]
    wide = fusion.new_tensor(spread, avg.dtype)
    fusion.add_node(Broadcast(avg, wide, reduced))
    deviation = fusion.new_tensor([fusion.copy_axis(a) for a in x.shape], avg.dtype)
    fusion.add_node(Pointwise(ELEMENTWISE["sub"], (x, wide), deviation))
    square = fusion.new_tensor([fusion.copy_axis(a) for a in x.shape], avg.dtype)
    fusion.add_node(Pointwise(ELEMENTWISE["mul"], (deviation, deviation), square))
    fusion.add_node(Reduction(SUM, (square,), (m2,)))
    return [total, m2]


def _sum(fusion: Fusion, x: TensorView, reduced: list[bool]) -> TensorView:
    axes = [fusion.copy_axis(a, IterKind.REDUCTION if r else None) for a, r in zip(x.shape, reduced)]
    total = fusion.new_tensor(axes, x.dtype)
    fusion.add_node(Reduction(SUM, (x,), (total,)))
    return total


def _drop_reduced_axes(tensor: TensorView) -> None:
    tensor.logical = tensor.shape
    tensor.loop = list(tensor.logical)
    tensor.allocation = tuple(a for a in tensor.allocation if not a.is_reduction)
