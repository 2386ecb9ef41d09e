"""A maximum, and the sum of exponentials of what is less than it, as one reduction that reads its input once.

Whoever computes them says that it pays: where the input is held anyway, two reductions cost less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fusewright.core.dtype import DataType
from fusewright.core.op import ElementwiseOp
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Broadcast, Node, Pointwise, Reduction
from fusewright.ir.value import TensorView, Val
from fusewright.ops.build_elementwise import constant
from fusewright.ops.build_reduction import reduce_states
from fusewright.ops.elementwise import ELEMENTWISE
from fusewright.ops.reductions import MAX, MAX_SUM_EXP, SUM
from fusewright.sym import as_int, product

_SUB, _EXP = ELEMENTWISE["sub"], ELEMENTWISE["exp"]


@dataclass(frozen=True)
class SoftmaxSums:
    """top = max(x), and total = sum(exp(x - broadcast(shift))) over the same dimensions.

    The shift is any tensor of a value a row, such as the maximum itself. inside: what is computed for each
    element between the two.
    """

    top: Reduction
    total: Reduction
    shift: TensorView
    inside: tuple[TensorView, ...]


def softmax_sums(nodes: Sequence[Node]) -> Iterator[SoftmaxSums]:
    """Those among nodes of one fusion."""
    tops = {
        (node.tensor_inputs[0], _reduced(node)): node
        for node in nodes
        if isinstance(node, Reduction) and node.op is MAX
    }
    known = set(nodes)
    for node in nodes:
        if not (isinstance(node, Reduction) and node.op is SUM):
            continue
        power = node.tensor_inputs[0]
        less = _operand(power, _EXP)
        inner = less.definition if less is not None and _operand(less, _SUB) is not None else None
        if less is None or inner is None or len(inner.tensor_inputs) != 2:
            continue
        x, wide = inner.tensor_inputs
        made = wide.definition
        top = tops.get((x, _reduced(node)))
        if top is None or not isinstance(made, Broadcast) or not {inner, power.definition, made} <= known:
            continue
        flags = tuple(i for i, inserted in enumerate(made.flags) if inserted)
        if flags == _reduced(node) and x.dtype is top.output.dtype:
            yield SoftmaxSums(top, node, made.tensor_inputs[0], (less, power))


def _operand(tensor: TensorView, op: ElementwiseOp) -> TensorView | None:
    """The first operand of the `op` that computes a tensor; None if none does."""
    made = tensor.definition
    if not isinstance(made, Pointwise) or made.op is not op or not made.tensor_inputs:
        return None
    return made.tensor_inputs[0]


def _reduced(node: Reduction) -> tuple[int, ...]:
    return tuple(i for i, axis in enumerate(node.output.logical) if axis.is_reduction)


def in_one_pass(fusion: Fusion, sums: SoftmaxSums) -> dict[TensorView, TensorView]:
    """top, total = max_sum_exp(x), where total is times exp(top - shift).

    Adds its nodes, beside those there are; returns what the maximum and the sum became. As before, an
    infinite maximum that is the shift too gives NaN, and the sum of nothing is 0.
    """
    x, dims = sums.top.tensor_inputs[0], _reduced(sums.top)
    top, total = reduce_states(fusion, MAX_SUM_EXP, [x], dims)
    shift = top if sums.shift is sums.top.output else sums.shift

    def of_a_row(op: str, *operands: Val, dtype: DataType = total.dtype) -> TensorView:
        result = fusion.new_tensor([fusion.copy_axis(axis) for axis in total.shape], dtype)
        fusion.add_node(Pointwise(ELEMENTWISE[op], operands, result))
        return result

    new = of_a_row("mul", total, of_a_row("exp", of_a_row("sub", top, shift)))
    extent = product(x.shape[dim].extent for dim in dims)
    if as_int(extent) is None:
        zero = constant(fusion, 0.0, total.dtype)
        # Compared with a value of the row, as the nodes of a kernel compute tensors: NaN is not empty.
        count, none = fusion.size_scalar(extent), of_a_row("mul", total, zero)
        new = of_a_row("where", of_a_row("ge", none, count, dtype=DataType.Bool), zero, new)
    return {sums.top.output: top, sums.total.output: new}
