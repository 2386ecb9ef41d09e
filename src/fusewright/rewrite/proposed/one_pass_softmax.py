"""Computes a maximum and the sum of exp(x - maximum) as one reduction that reads its input once.

The proposing scheduler decides whether it pays: if the input is held anyway, two reductions cost less.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from fusewright.core.dtype import DataType
from fusewright.core.op import ElementwiseOp
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Node, Pointwise, Reduction
from fusewright.ir.value import TensorView, Val
from fusewright.ir.view import Broadcast
from fusewright.ops.build_elementwise import constant
from fusewright.ops.build_reduction import reduce_states
from fusewright.ops.elementwise import ELEMENTWISE
from fusewright.ops.reductions import MAX, MAX_SUM_EXP, SUM
from fusewright.sym import as_int, product

_SUB, _EXP = ELEMENTWISE["sub"], ELEMENTWISE["exp"]


@dataclass(frozen=True)
class SoftmaxSums:
    """top = max(x), and total = sum(exp(x - broadcast(shift))) over the same dimensions.

    Attributes:
        shift: any tensor with one value per row, such as the maximum itself.
        inside: the values computed for each element between the two.
    """

    top: Reduction
    total: Reduction
    shift: TensorView
    inside: tuple[TensorView, ...]


def softmax_sums(nodes: Sequence[Node]) -> Iterator[SoftmaxSums]:
    """Yields the pairs of a maximum and a sum of exponentials among the nodes of a fusion."""
    known = set(nodes)
    tops = {
        (node.tensor_inputs[0], node.reduced_dims): node
        for node in nodes
        if isinstance(node, Reduction) and node.op is MAX
    }
    for node in nodes:
        if not (isinstance(node, Reduction) and node.op is SUM):
            continue
        power = _computed_by(_EXP, node.tensor_inputs[0], known)
        difference = power and _computed_by(_SUB, power.tensor_inputs[0], known)
        if power is None or difference is None or len(difference.tensor_inputs) != 2:
            continue
        x, wide = difference.tensor_inputs
        top, made = tops.get((x, node.reduced_dims)), wide.definition
        if top is None or not isinstance(made, Broadcast) or made not in known:
            continue
        inserted = tuple(i for i, is_inserted in enumerate(made.flags) if is_inserted)
        if inserted == node.reduced_dims and x.dtype is top.output.dtype:
            yield SoftmaxSums(top, node, made.tensor_inputs[0], (difference.output, power.output))


def _computed_by(op: ElementwiseOp, tensor: TensorView, nodes: Collection[Node]) -> Pointwise | None:
    """The node that computes a tensor, if it is one of `nodes`, applies `op` and has a tensor operand."""
    made = tensor.definition
    if not isinstance(made, Pointwise) or made.op is not op or made not in nodes or not made.tensor_inputs:
        return None
    return made


def in_one_pass(fusion: Fusion, sums: SoftmaxSums) -> dict[TensorView, TensorView]:
    """Adds top, total = max_sum_exp(x), and multiplies total by exp(top - shift).

    As before, an infinite maximum that is also the shift gives NaN, and the sum of an empty row is 0.

    Returns:
        The replacements of the maximum and the sum.
    """
    x, dims = sums.top.tensor_inputs[0], sums.top.reduced_dims
    top, total = reduce_states(fusion, MAX_SUM_EXP, [x], dims)
    shift = top if sums.shift is sums.top.output else sums.shift

    def of_a_row(op: str, *operands: Val, dtype: DataType = total.dtype) -> TensorView:
        result = fusion.new_like(total, dtype)
        fusion.add_node(Pointwise(ELEMENTWISE[op], operands, result))
        return result

    new = of_a_row("mul", total, of_a_row("exp", of_a_row("sub", top, shift)))
    extent = product(x.shape[dim].extent for dim in dims)
    if as_int(extent) is None:
        # total * 0 >= count holds only for empty rows: inf and NaN times 0 are NaN.
        zero = constant(fusion, 0.0, total.dtype)
        count = fusion.size_scalar(extent)
        is_empty = of_a_row("ge", of_a_row("mul", total, zero), count, dtype=DataType.Bool)
        new = of_a_row("where", is_empty, zero, new)
    return {sums.top.output: top, sums.total.output: new}
