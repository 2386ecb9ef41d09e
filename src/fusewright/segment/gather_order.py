"""Copies an input into another memory order before it is gathered along its contiguous dimension.

    x[indices], where x lies column by column      becomes      c = x in rows  |  c[indices]

The bar marks the end of a kernel. Without this rewrite every gathered element costs a whole memory sector,
for any assignment of threads. Contiguous rows are gathered as whole sectors. The rewrite pays if copying all
elements takes less time than loading one sector per gathered element.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.ir import Fusion, Indexed, IterDomain, Node, Pointwise, TensorView
from fusewright.ir.index_map import position_of, value_of
from fusewright.schedulers.base import Rewrite
from fusewright.segment.input_order import copied_in_order
from fusewright.sym import Symbol


def in_order_of_gathers(nodes: Sequence[Node]) -> Rewrite | None:
    """Replaces gathers along the contiguous dimension of an input by gathers from a copy in another order.

    Args:
        nodes: the kernel's nodes, producers first.

    Returns:
        None if the kernel has no such gather.
    """
    inside = set(nodes)
    found = {node: chain for node in nodes if isinstance(node, Indexed) and (chain := _chain(node, inside))}
    if not found:
        return None

    def replace_all(graph: Fusion) -> dict[TensorView, TensorView]:
        copies: dict[tuple[TensorView, tuple[int, ...]], TensorView] = {}
        replaced = {}
        for node, (base, *between) in found.items():
            order = _order(node, base)
            if (base, order) not in copies:
                copies[base, order] = copied_in_order(graph, base, order)
            source = copies[base, order]
            for old, reader in zip([base, *between], [*(t.definition for t in between), node]):
                assert reader is not None
                new = graph.new_like(reader.output, reader.output.dtype)
                graph.add_node(reader.copy({old: source, reader.output: new}))
                source = new
            replaced[node.output] = source
        return replaced

    reason = "each element that it gathers along the contiguous dimension has a sector for itself"
    return Rewrite("gathers in memory order", replace_all, reason)


def _chain(node: Indexed, inside: set[Node]) -> list[TensorView]:
    """The tensors from the kernel's input, through casts, to the gather's source; empty if the gather's index
    does not select along the input's contiguous dimension.
    """
    chain = [node.tensor_inputs[0]]
    while (made := chain[0].definition) in inside:
        if not isinstance(made, Pointwise) or len(made.inputs) != 1:
            return []
        chain.insert(0, made.tensor_inputs[0])
    base = chain[0]
    inner = next((axis for axis in reversed(base.allocation) if not axis.is_broadcast), None)
    is_scattered = inner in _selected(node, base) and _has_rows(node, base)
    return chain if is_scattered else []


def _selected(node: Indexed, base: TensorView) -> list[IterDomain]:
    """The dimensions along which an index tensor selects."""
    own = zip(base.shape, node.map.indices)
    return [axis for axis, e in own if any(value_of(s) is not None for s in e.free_symbols)]


def _has_rows(node: Indexed, base: TensorView) -> bool:
    """Whether neighbours along some dimension of the source are also neighbours in the result."""
    own = zip(base.shape, node.map.indices)
    return any(
        isinstance(e, Symbol) and position_of(e) is not None for axis, e in own if not axis.is_broadcast
    )


def _order(node: Indexed, base: TensorView) -> tuple[int, ...]:
    """The dimensions in memory order, with those that an index tensor selects outermost."""
    outside = _selected(node, base)
    axes = sorted(base.allocation, key=lambda axis: axis not in outside)
    return tuple([base.shape.index(axis) for axis in axes])
