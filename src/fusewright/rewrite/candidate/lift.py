"""Moves changes of shape and order up through elementwise operations to the loads.

    a[i] -> exp -> broadcast [i, b] -> add      becomes      a[i] -> broadcast [i, b] -> exp -> add
    a[i] -> exp -> slice [2:5] -> add           becomes      a[i] -> slice [2:5] -> exp -> add

Afterwards every tensor between the loads and the outputs of an elementwise region has the same dimensions in
the same order. So one loop nest serves all of them, and a broadcast, permutation, slice, reshape or gather
only determines how an input is indexed. Values computed only from a reduction's result are not changed: they
are computed once per row, not once per element.
"""

from __future__ import annotations

from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Copy, Indexed, Node
from fusewright.ir.value import TensorView, Val
from fusewright.rewrite.candidate.lift_indexed import as_relabel, lift_indexed, reads_in_order
from fusewright.rewrite.candidate.lift_relabel import lift_relabel
from fusewright.rewrite.replacement import remove_dead

# What is lifted above a tensor that several read in ways of their own is computed for each. A chain of joins
# of joins could double at each step: beyond this growth it stays, and is cut into kernels.
MAX_GROWTH = 8
LEAST_LIMIT = 512


def lift_views(fusion: Fusion, everything: bool = False) -> Fusion:
    """`fusion` itself, rewritten until no view can move further up.

    An invertible indexed read waits if its source is also needed unchanged: it may become a store (see
    sink.py). With `everything` it does not wait.
    """
    reduced = depends_on_more(fusion)
    outputs = set(fusion.output_tensors())
    limit = max(LEAST_LIMIT, MAX_GROWTH * len(fusion.nodes))
    work: list[Node] = [n for n in fusion.nodes if n.traits.own_load]
    lifted: dict[object, TensorView] = {}
    while work:
        node = work.pop()
        if node not in fusion.nodes:
            continue  # rewritten away meanwhile
        source = node.inputs[0]
        above = source.definition
        if not isinstance(source, TensorView) or above is None:
            continue
        if _is_step(node, above, outputs):
            pass  # a chain of views is one view, wherever it goes
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
            continue  # a store in another order costs less than to compute it again
        else:
            made = lift_relabel(fusion, node, above, lifted)
        if made is None:
            continue
        work += made
        if not source.uses and source not in outputs and above in fusion.nodes:
            remove_dead(fusion, above, outputs)
    return fusion


def _is_step(node: Node, above: Node, outputs: set[TensorView]) -> bool:
    """Whether a view that can be undone is made in two steps, of which nothing else needs the first."""
    source = above.output
    if source in outputs or len(source.uses) > 1:
        return False
    if isinstance(node, Indexed):
        is_copy = isinstance(above, Copy) and not above.segment
        return node.inverse is not None and (above.traits.relabel or is_copy)
    return isinstance(above, Indexed) and above.inverse is not None


def _is_along_more(node: Node, above: Node) -> bool:
    """Whether what follows from a reduction has further dimensions already, and gets more here.

    A factor of each channel of a group, say, as the group's elements need it: it is computed in their loops.
    """
    return not above.reduced and None in node.axis_map(0)


def _waits(node: Indexed, outputs: set[TensorView], reduced: set[Val]) -> bool:
    """Whether the source of a read that can be undone has its own place in the kernel."""
    source = node.source
    needed = source in outputs or source in reduced or len(source.uses) > 1
    return node.inverse is not None and not node.indices and needed


def depends_on_more(fusion: Fusion) -> set[Val]:
    """What is not computed element by element from inputs alone, but from reductions, say."""
    found: set[Val] = set()
    for node in fusion.ordered_nodes():
        is_elementwise = node.traits.pointwise or node.traits.indexed
        if not node.is_scalar and (not is_elementwise or any(v in found for v in node.inputs)):
            found.update(node.outputs)
    return found
