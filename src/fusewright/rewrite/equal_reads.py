"""Reads of one tensor at the same positions are one read.

    sum(reshape(x) * reshape(y)), sum(reshape(x))     have one    reshape(x)

Where changes of shape were lifted from different places they meet at the loads. What is then loaded once also
says that the dimensions of what is computed from it are the same, so reductions of both share their loops.
"""

from __future__ import annotations

from collections.abc import Hashable

from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Indexed
from fusewright.ir.value import TensorView
from fusewright.rewrite.replacement import read_instead, shape_of


def share_equal_reads(fusion: Fusion) -> Fusion:
    """`fusion` itself, in which equal indexed reads of inputs are one."""
    outputs = set(fusion.output_tensors())
    first: dict[Hashable, TensorView] = {}
    for node in fusion.ordered_nodes():
        if not isinstance(node, Indexed) or not fusion.is_input(node.source) or node.output in outputs:
            continue
        known = first.setdefault(_read(node), node.output)
        if known is not node.output and read_instead(fusion, node.output, known):
            fusion.remove_node(node)
    return fusion


def _read(node: Indexed) -> Hashable:
    """Equal for reads that are equal."""
    fill: Hashable = node.fill
    if node.fill is not None and node.fill.value is not None:
        fill = node.fill.dtype, repr(node.fill.value)
    return node.source, node.map, node.inverse, tuple(node.index_tensors), fill, shape_of(node.output)
