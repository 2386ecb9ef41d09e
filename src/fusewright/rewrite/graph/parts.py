"""Reads one part of a join directly.

    cat(a, b)[:n], where a has n rows    becomes    a

A join chooses by position. If all positions that a slice, or another indexed read, accesses are in one part,
it reads that part. So the other parts need not be computed for it.
"""

from __future__ import annotations

from fusewright.ir.fusion import Fusion
from fusewright.ir.index_map import IndexMap
from fusewright.ir.node import Choose, Indexed
from fusewright.ir.value import TensorView
from fusewright.sym import ZERO, as_int


def read_parts(fusion: Fusion) -> Fusion:
    """Makes indexed reads that need only one part of a join read that part; returns `fusion`."""
    for node in fusion.ordered_nodes():
        if isinstance(node, Indexed) and not node.indices:
            while (part := part_read(node)) is not None:
                read_part(fusion, node, part)
    return fusion


def part_read(node: Indexed) -> TensorView | None:
    """The part of a join that contains all positions that a read accesses, or None."""
    choice = node.source.definition
    if not isinstance(choice, Choose) or choice.index_tensors:
        return None
    taken = as_int(IndexMap((), choice.pred).at(node.map.indices).pred)
    part = None if taken is None else choice.inputs[0 if taken else 1]
    return part if isinstance(part, TensorView) and not part.is_cpu else None


def read_part(fusion: Fusion, node: Indexed, part: TensorView) -> None:
    """Makes an indexed read of a join read this part of it."""
    old = node.source
    fusion.replace_inputs(node, {old: part})
    copies = [axis.is_broadcast for axis in part.shape]
    if copies != [axis.is_broadcast for axis in old.shape]:
        indices = tuple(ZERO if copy else index for copy, index in zip(copies, node.map.indices))
        node.map, node.inverse = IndexMap(indices, node.map.pred), None
