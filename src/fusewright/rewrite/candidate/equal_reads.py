"""Merges reads of one tensor at the same positions.

    sum(reshape(x) * reshape(y)), sum(reshape(x))     have one    reshape(x)

Changes of shape that were lifted from different places meet at the loads. A merged load also shows that the
values computed from it have the same dimensions, so their reductions share loops. Reads that differ only in
dimensions that stay of one point, in everything computed from them, are relabelings of each other.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from fusewright.analyze.axis_map import stays_one_point
from fusewright.ir.fusion import Fusion
from fusewright.ir.index_map import position
from fusewright.ir.node import Indexed
from fusewright.ir.view import Relabel
from fusewright.rewrite.replacement import read_instead, shape_of
from fusewright.sym import ZERO, Expr


def share_equal_reads(fusion: Fusion) -> Fusion:
    """Merges equal indexed reads of inputs; returns `fusion`."""
    outputs = set(fusion.output_tensors())
    first: dict[Hashable, Indexed] = {}
    for node in fusion.ordered_nodes():
        if not isinstance(node, Indexed) or not fusion.is_input(node.source) or node.output in outputs:
            continue
        dims = _dims(node)
        known = first.setdefault(_read(node, dims), node)
        if known is node:
            continue
        if shape_of(known.output) == shape_of(node.output):
            if read_instead(fusion, node.output, known.output):
                fusion.remove_node(node)
        elif not any(use.traits.indexed for use in node.output.uses):
            places = dict(zip(dims, _dims(known)))
            fusion.remove_node(node)
            table = [places.get(dim) for dim in range(node.output.ndim)]
            fusion.add_node(Relabel(known.output, node.output, table))
    return fusion


def _dims(node: Indexed) -> list[int]:
    """The dimensions of a read without those that stay of one point; all of them if it has index tensors."""
    shape = node.output.shape
    return [
        dim
        for dim, axis in enumerate(shape)
        if node.indices or axis.expanded is not None or not stays_one_point(node.output, axis)
    ]


def _read(node: Indexed, dims: Sequence[int]) -> Hashable:
    """A key that is equal for reads that are equal along these dimensions."""
    fill: Hashable = node.fill
    if node.fill is not None and node.fill.value is not None:
        fill = node.fill.dtype, repr(node.fill.value)
    shape = shape_of(node.output)
    places: list[Expr] = [ZERO] * len(shape)
    for new, dim in enumerate(dims):
        places[dim] = position(new, shape[dim][0])
    kept = tuple([shape[dim] for dim in dims])
    # The inverse does not matter: no rewrite moves over reads any more.
    return node.source, node.map.at(places), tuple(node.index_tensors), fill, kept
