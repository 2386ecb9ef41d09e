"""Reduces some dimensions first where a kernel that reduces all at once would read memory in short runs.

    sum(x, [1, 3])       becomes        sum(sum(x, [1]), [2])

Of x of [N, pixels, groups, channels], where the channels of one group are contiguous, a kernel that reduces
the columns reads whole lines of memory, and little data remains. Of x + y of [rows, columns], where y lies
column by column, a kernel that reduces rows reads both in tiles. The proposing scheduler decides whether it
pays.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Pointwise, Reduction
from fusewright.ir.value import TensorView, Val
from fusewright.ops.build_reduction import reduce_states
from fusewright.ops.build_shape import broadcast
from fusewright.ops.elementwise import ELEMENTWISE
from fusewright.ops.reductions import SUM
from fusewright.rewrite.proposed.two_pass import is_plain_welford
from fusewright.rewrite.replacement import combines_elements
from fusewright.sym import product


def dims_across(x: TensorView, reduced: Sequence[int]) -> list[int]:
    """The dimensions among `reduced` of `x` inside which, in memory, there are dimensions that are kept."""
    order = x.memory_dims
    kept = [place for place, dim in enumerate(order) if dim not in reduced]
    return sorted(dim for dim in order[: kept[-1] if kept else 0] if dim in reduced)


def can_be_cut(fusion: Fusion, node: Reduction, first: Sequence[int]) -> bool:
    """Whether `reduced_in_steps` can reduce these dimensions before others that the node reduces."""
    if not (combines_elements(node) or is_plain_welford(fusion, node)):
        return False
    x, reduced = node.tensor_inputs[0], node.reduced_dims
    return not any(x.shape[dim].is_broadcast for dim in reduced) and 0 < len(first) < len(reduced)


def reduced_in_steps(fusion: Fusion, node: Reduction, across: Sequence[int]) -> dict[TensorView, TensorView]:
    """Adds a reduction in two steps: of the dimensions `across`, then of all others.

    For groups of equal size, the mean of all elements is the mean of the means. The sum of squared deviations
    is the sum over the groups plus the size of a group times the sum for the means (Chan, Golub and LeVeque
    1983).

    Returns:
        The replacements of the reduction's outputs.
    """
    x, reduced = node.tensor_inputs[0], node.reduced_dims
    kept = [dim for dim in range(x.ndim) if dim not in across]
    along = [place for place, dim in enumerate(kept) if dim in reduced]
    parts = reduce_states(fusion, node.op, [x], across)
    if combines_elements(node):
        return {node.output: reduce_states(fusion, node.op, parts, along)[0]}
    averages, squares = parts[0], parts[1]
    each, count = (
        fusion.size_scalar(product(x.shape[dim].extent for dim in dims))
        for dims in (across, [dim for dim in reduced if dim not in across])
    )
    (total,) = reduce_states(fusion, SUM, [averages], along)
    average = _pointwise(fusion, "truediv", total, count)
    wide = broadcast(fusion, average, [place in along for place in range(averages.ndim)])
    deviation = _pointwise(fusion, "sub", averages, wide)
    between = _pointwise(fusion, "mul", _pointwise(fusion, "mul", deviation, deviation), each)
    (square,) = reduce_states(fusion, SUM, [_pointwise(fusion, "add", squares, between)], along)
    return {node.outputs[0]: average, node.outputs[1]: square}  # type: ignore[dict-item]


def _pointwise(fusion: Fusion, name: str, a: TensorView, b: Val) -> TensorView:
    """Adds an operation on `a` and `b`, which has the shape of `a` or is a size. A kernel converts sizes."""
    out = fusion.new_like(a, a.dtype)
    fusion.add_node(Pointwise(ELEMENTWISE[name], (a, b), out))
    return out
