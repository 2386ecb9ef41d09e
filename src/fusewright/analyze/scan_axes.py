"""Determines which loops of a scan run along the scanned dimension, and where threads exchange results.

A scan across threads is computed in three steps: each thread scans the elements that it holds, the threads
exchange their totals, and each thread adds the total of the elements before its own. So the loop over a
thread's elements ends before a result is known; the loops around it (the steps along a long row) do not.
"""

from __future__ import annotations

from collections.abc import Callable

from fusewright.core.enums import ParallelType
from fusewright.ir.axis import IterDomain, Merge, Split, ancestors, transforms_between
from fusewright.ir.node import Node, Scan
from fusewright.sym import as_int


def scanned_root(node: Scan) -> IterDomain:
    """The dimension that is scanned."""
    return node.output.maybe_root[node.dim]


def scanned_positions(node: Scan) -> list[int]:
    """The positions of the loops that run along the scanned dimension."""
    tensor, root = node.output, scanned_root(node)
    return [i for i, axis in enumerate(tensor.loop) if root in ancestors(axis, tensor.maybe_root)]


def collective_position(node: Scan) -> int | None:
    """The number of loops around the exchange between threads or blocks; None if there is no exchange."""
    loop, scanned = node.output.loop, scanned_positions(node)
    across = [i for i in scanned if loop[i].parallel.is_block or loop[i].parallel.is_grid]
    if not across:
        return None
    if loop[across[0]].parallel.is_block:
        steps = unrolled_steps(node)
        if steps is not None:
            return steps
    return next((i for i in scanned if i > across[0]), len(loop))


def unrolled_steps(node: Scan) -> int | None:
    """The position of a loop over steps for which threads exchange results together, or None.

    It is an unrolled loop directly around the axis of threads, and all loops inside it are scanned.
    """
    loop, scanned = node.output.loop, scanned_positions(node)
    threads = next((i for i in scanned if loop[i].parallel.is_block), 0)
    steps = threads - 1
    if steps not in scanned or loop[steps].parallel is not ParallelType.unroll:
        return None
    inside = range(steps, len(loop))
    is_constant = (as_int(loop[steps].extent) or 0) > 1
    return steps if is_constant and all(i in scanned or loop[i].parallel.is_thread for i in inside) else None


def nesting_order(node: Scan, is_one_point: Callable[[IterDomain], bool]) -> list[IterDomain] | None:
    """The loops along the scanned dimension in the order in which they traverse it, outermost first.

    None if other transforms made them than splits of that dimension and merges with dimensions of one point.
    """
    tensor = node.output
    order = [scanned_root(node)]
    for transform in transforms_between(tensor.maybe_root, tensor.loop):
        along = [axis for axis in transform.inputs if axis in order]
        if not along:
            continue
        others = [axis for axis in transform.inputs if axis not in along]
        merges = isinstance(transform, Merge) and all(map(is_one_point, others))
        if len(along) > 1 or not (merges or isinstance(transform, Split)):
            return None
        at = order.index(along[0])
        order[at : at + 1] = transform.outputs
    return order


def is_spread_scan(node: Node | None) -> bool:
    """Whether consumers of the node's result cannot be in all of its loops, although none is reduced."""
    return isinstance(node, Scan) and collective_position(node) is not None
