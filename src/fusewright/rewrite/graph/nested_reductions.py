"""Merges reductions of reductions.

    sum(sum(x, [3]), [0, 2])              becomes    sum(x, [0, 2, 3])
    max(max(x, [1], keepdim), [0])        becomes    max(x, [0, 1]), broadcast

This holds for all operations that combine elements in any order. It is exact for extrema and integers. For
sums and products of floats it changes the order of operations, which no reduction specifies. The reductions
stay separate if

* there is a cast between them, which rounds,
* the first result has other uses, since the second reduction then reads less data, or
* the second one reduces dimensions along which the operand of the first was reduced before (`rows_first`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Node, Reduction
from fusewright.ir.value import TensorView
from fusewright.ir.view import Relabel
from fusewright.ops.build_reduction import reduce_states
from fusewright.rewrite.graph.rows_first import reduced_before
from fusewright.rewrite.replacement import combines_elements, return_instead


def join_nested_reductions(fusion: Fusion) -> Fusion:
    """Merges reductions with the only reduction that reads their result; returns `fusion`."""
    outputs = set(fusion.output_tensors())
    before: Mapping[TensorView, frozenset[int]] | None = None
    for node in fusion.ordered_nodes():
        found = _nested(node, outputs) if isinstance(node, Reduction) else None
        if found is None:
            continue
        if before is None:
            before = reduced_before(fusion)
        if _follows_rows(found.inner, before):
            continue
        old, new = node.output, found.joined(fusion)
        return_instead(fusion, old, new, outputs)
        fusion.remove_node(node)
        for between in found.chain:
            fusion.remove_node(between)
    return fusion


@dataclass(frozen=True)
class _Nested:
    """A reduction, and the earlier reduction whose result it reduces.

    Attributes:
        outer, inner: the later and the earlier reduction.
        chain: the nodes before the outer reduction up to the inner one, the last first.
        table: for each dimension of the outer operand, the dimension of the inner operand, or None.
    """

    outer: Reduction
    inner: Reduction
    chain: tuple[Node, ...]
    table: tuple[int | None, ...]

    def joined(self, fusion: Fusion) -> TensorView:
        """Adds one reduction for both; returns its result."""
        reduced = set(self.inner.reduced_dims)
        kept: list[int | None] = []
        for dim, axis in zip(self.table, self.outer.output.logical):
            if not axis.is_reduction:
                kept.append(dim)
            elif dim is not None:
                reduced.add(dim)
        (total,) = reduce_states(fusion, self.outer.op, self.inner.tensor_inputs, sorted(reduced))
        place = {dim: i for i, dim in enumerate(d for d in range(len(total.logical)) if d not in reduced)}
        dims = [None if dim is None else place[dim] for dim in kept]
        if dims == list(range(total.ndim)):
            return total
        out = fusion.new_like(self.outer.output, total.dtype)
        fusion.add_node(Relabel(total, out, dims))
        return out


def _nested(outer: Reduction, outputs: set[TensorView]) -> _Nested | None:
    if not combines_elements(outer):
        return None
    (source,) = outer.tensor_inputs
    table: tuple[int | None, ...] = tuple(range(source.ndim))
    chain: list[Node] = []
    while source not in outputs and len(source.uses) == 1 and not source.is_cpu:
        node = source.definition
        if isinstance(node, Reduction):
            if node.op is not outer.op or not combines_elements(node):
                return None
            kept = [dim for dim, axis in enumerate(node.output.logical) if not axis.is_reduction]
            found = tuple(None if dim is None else kept[dim] for dim in table)
            axes = zip(found, outer.output.logical)
            if any(dim is None and axis.is_reduction for dim, axis in axes):
                return None
            return _Nested(outer, node, (*chain, node), found)
        if node is None or not node.traits.relabel:
            return None
        places = node.axis_map(0)
        table = tuple(None if dim is None else places[dim] for dim in table)
        chain.append(node)
        (source,) = node.tensor_inputs
    return None


def _follows_rows(node: Reduction, before: Mapping[TensorView, frozenset[int]]) -> bool:
    """Whether a reduction is along all dimensions along which results were broadcast to its operand.

    Args:
        before: the result of `reduced_before`.
    """
    rows = before.get(node.tensor_inputs[0])
    return rows is not None and rows.issubset(node.reduced_dims)
