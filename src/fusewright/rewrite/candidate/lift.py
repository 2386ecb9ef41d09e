"""Moves changes of shape and order up through elementwise operations to the loads.

    a[i] -> exp -> broadcast [i, b] -> add      becomes      a[i] -> broadcast [i, b] -> exp -> add
    a[i] -> exp -> slice [2:5] -> add           becomes      a[i] -> slice [2:5] -> exp -> add

Afterwards all tensors between the loads and the outputs of an elementwise region have the same dimensions in
the same order. So one loop nest serves all of them, and a broadcast, permutation, slice, reshape or gather
only determines how an input is indexed. Values that depend only on a reduction's result stay unchanged: they
are computed once per row, not once per element.
"""

from __future__ import annotations

from fusewright.analyze.axis_map import stays_one_point
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Copy, Indexed, Node
from fusewright.ir.value import TensorView, Val
from fusewright.rewrite.candidate.lift_indexed import as_relabel, lift_indexed, reads_in_order
from fusewright.rewrite.candidate.lift_relabel import lift_relabel
from fusewright.rewrite.replacement import remove_dead

# The most nodes after lifting: this many times the number before, or LEAST_LIMIT. If a tensor has several
# different indexed reads, lifting computes it once for each. A chain of joins of joins could double at each
# step; beyond this limit it is not lifted and becomes several kernels.
MAX_GROWTH = 8
LEAST_LIMIT = 512


def lift_views(fusion: Fusion, everything: bool = False) -> Fusion:
    """Moves views up until none can move further; returns `fusion`.

    An invertible indexed read stays if its source is also needed unchanged, since it may become a store
    (sink.py).

    Args:
        everything: whether such reads move, too.
    """
    reduced = depends_on_more(fusion)
    outputs = set(fusion.output_tensors())
    limit = max(LEAST_LIMIT, MAX_GROWTH * len(fusion.nodes))
    work: list[Node] = [n for n in fusion.nodes if n.traits.own_load]
    lifted: dict[object, TensorView] = {}
    while work:
        node = work.pop()
        if node not in fusion.nodes:
            continue  # another rewrite has removed it
        source = node.inputs[0]
        above = source.definition
        if not isinstance(source, TensorView) or above is None:
            continue
        if _is_step(node, above, outputs):
            pass  # a chain of views becomes one view in any case
        elif isinstance(node, Indexed) and not isinstance(above, Indexed):
            if not everything and _waits(node, outputs, reduced):
                continue
            if source in reduced and not reads_in_order(node, reduced):
                continue
            if not above.traits.pointwise:  # a reduction, read in its own order
                work.append(as_relabel(fusion, node))
                continue
        elif source in reduced and not isinstance(node, Indexed) and not _is_along_more(node, above):
            continue
        if not (above.traits.carries_relabels or above.traits.own_load):
            continue
        if isinstance(above, Copy) and above.segment:
            continue
        if isinstance(node, Indexed):
            made = lift_indexed(fusion, node, above, lifted, reduced) if len(fusion.nodes) < limit else None
        elif source in outputs and not node.output.uses:
            continue  # a store in another order costs less than a second computation
        else:
            made = lift_relabel(fusion, node, above, lifted)
        if made is None:
            continue
        work += made
        if not source.uses and source not in outputs and above in fusion.nodes:
            remove_dead(fusion, above, outputs)
    return fusion


def _is_step(node: Node, above: Node, outputs: set[TensorView]) -> bool:
    """Whether two nodes are steps of one invertible view, and nothing else reads the result of the first."""
    source = above.output
    if source in outputs or len(source.uses) > 1:
        return False
    if isinstance(node, Indexed):
        is_copy = isinstance(above, Copy) and not above.segment
        return node.inverse is not None and (above.traits.relabel or is_copy)
    return isinstance(above, Indexed) and above.inverse is not None


def _is_along_more(node: Node, above: Node) -> bool:
    """Whether a view adds dimensions of several points to a value that depends on a reduction and on further
    dimensions.

    For example, a factor per channel of a group, which is computed in the loops of the group's elements. A
    normalized row with a dimension of one point more stays where the row is.
    """
    if above.reduced:
        return False
    out = node.output
    added = [axis for dim, axis in zip(node.axis_map(0), out.shape) if dim is None]
    return not all(stays_one_point(out, axis) for axis in added)


def _waits(node: Indexed, outputs: set[TensorView], reduced: set[Val]) -> bool:
    """Whether a read is invertible and its source is needed unchanged."""
    source = node.source
    needed = source in outputs or source in reduced or len(source.uses) > 1
    return node.inverse is not None and not node.indices and needed


def depends_on_more(fusion: Fusion) -> set[Val]:
    """The values that are not computed elementwise from inputs only, for example those of reductions."""
    found: set[Val] = set()
    for node in fusion.ordered_nodes():
        is_elementwise = node.traits.pointwise or node.traits.indexed
        if not node.is_scalar and (not is_elementwise or any(v in found for v in node.inputs)):
            found.update(node.outputs)
    return found
