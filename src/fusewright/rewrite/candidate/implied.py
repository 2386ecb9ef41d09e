"""Removes choices by position that a later choice implies.

    choose(p < 4, exp(choose(p < 4, a, 0)), b)    becomes    choose(p < 4, exp(a), b)

A concatenation of values that are computed from parts of one tensor has such choices: each part is a choice
between elements of the tensor and a fill, and the choice between the parts never selects the fill.
"""

from __future__ import annotations

from dataclasses import replace

from fusewright.ir.fusion import Fusion
from fusewright.ir.index_map import positions
from fusewright.ir.node import Choose, Indexed
from fusewright.ir.value import TensorView, Val
from fusewright.rewrite.conditions import conditions, conditions_read
from fusewright.rewrite.replacement import read_instead, remove_dead, shape_of
from fusewright.sym import TRUE, Expr, land, lnot


def simplify_choices(fusion: Fusion) -> Fusion:
    """Removes choices whose outcome later choices imply; returns `fusion`."""
    outputs = set(fusion.output_tensors())
    # For each value the conditions that hold at all positions at which it is used.
    used: dict[Val, frozenset[Expr]] = {}
    for node in reversed(fusion.ordered_nodes()):
        if node.is_scalar:
            continue
        where = frozenset() if outputs.intersection(node.outputs) else used.get(node.output, frozenset())
        taken: TensorView | None = None
        if isinstance(node, Choose):
            taken = _taken(node, where)
        elif isinstance(node, Indexed) and node.output not in outputs:
            taken = _read_whole(node, where)
        if taken is not None and read_instead(fusion, node.output, taken):
            remove_dead(fusion, node, outputs)
            used[taken] = used.get(taken, where) & where
            continue
        if isinstance(node, Indexed) and fusion.is_input(node.source):
            _read_where_used(fusion, node, where)
        for position, value in enumerate(node.inputs):
            found = conditions_read(node, position, where)
            used[value] = used.get(value, found) & found
    return fusion


def _taken(node: Choose, where: frozenset[Expr]) -> TensorView | None:
    """The operand that a choice takes wherever these conditions hold, if it has the same shape; else None."""
    if node.index_tensors:
        return None
    for value, pred in ((node.inputs[0], node.pred), (node.inputs[1], lnot(node.pred))):
        if where.issuperset(conditions(pred)) and isinstance(value, TensorView) and not value.is_cpu:
            return value if shape_of(value) == shape_of(node.output) else None
    return None


def _read_whole(node: Indexed, where: frozenset[Expr]) -> TensorView | None:
    """A tensor with all elements of the source, in order, that can replace a read, or None.

    If the read is partial, only its part is used. This is the source or another read of it. So the halves of
    a normalized row that are rotated by different angles and joined use the same read as the reduction of the
    row.
    """
    pred = node.map.pred
    if node.indices or not where.issuperset(conditions(pred)):
        return None
    source, whole = node.source, replace(node.map, pred=TRUE)
    in_order = whole.indices == tuple(positions(source.extents))
    if in_order and shape_of(source) == shape_of(node.output):
        return source if any(use.traits.pointwise for use in source.uses) else None
    if pred is TRUE:
        return None
    for use in source.uses:
        if not isinstance(use, Indexed) or use.indices or use.source is not source or use.map != whole:
            continue
        if shape_of(use.output) == shape_of(node.output):
            return use.output
    return None


def _read_where_used(fusion: Fusion, node: Indexed, where: frozenset[Expr]) -> None:
    """Restricts a read to the elements that are used, for example to one part of a join."""
    places = {s for e in node.map.indices for s in e.free_symbols}
    wanted = sorted((e for e in where if not e.free_symbols.isdisjoint(places)), key=lambda e: e.order)
    if node.map.pred is not TRUE or node.filled or not wanted:
        return
    dtype = node.source.dtype
    fill = fusion.new_scalar(dtype, dtype.zero)
    fusion.remove_node(node)
    read = Indexed(
        node.kind, node.source, node.output, node.map.where(land(*wanted)), node.index_tensors, fill
    )
    read.cache = node.cache
    fusion.add_node(read)
