"""Reshapes by sizes that are known to be equal only once the definition is complete.

    x[n, c] -> reshape [m, g, c / g], where x + y says that n is m
        read at [(p0 * g * (c / g) + ...) // c, ...]      becomes      read at [p0, ...]

A reshape is defined when less is known: afterwards, elementwise work may give its tensor the sizes of
another. Dimensions that it keeps are then dimensions of its result, and need no index of the whole.
"""

from __future__ import annotations

from fusewright.ir.fusion import Fusion
from fusewright.ir.index_map import IndexMap, positions
from fusewright.ir.node import Indexed
from fusewright.ops.build_indexed import own_positions, reshape_map
from fusewright.sym import TRUE, ZERO

_KINDS = frozenset({"Reshape", "Flatten"})


def regroup_reshapes(fusion: Fusion) -> Fusion:
    """`fusion` itself, in which reshapes compute as little of the index as sizes allow."""
    for node in fusion.nodes:
        if not isinstance(node, Indexed) or node.kind not in _KINDS or node.map.pred is not TRUE:
            continue
        if node.indices or node.filled:
            continue
        source, target = node.source, node.output
        found = reshape_map(source.extents, target.extents, positions(target.extents)).indices
        forth = IndexMap(tuple(ZERO if axis.is_broadcast else e for axis, e in zip(source.shape, found)))
        if forth == node.map:
            continue
        node.map = forth
        if node.inverse is not None:
            node.inverse = reshape_map(target.extents, source.extents, own_positions(source))
        fusion.edits += 1
    return fusion
