"""Moves broadcasts, squeezes and permutations up through elementwise work to the loads.

    a[i] -> exp -> broadcast [i, b] -> add      becomes      a[i] -> broadcast [i, b] -> exp -> add

Afterwards every tensor between the loads and the outputs of an elementwise region has the same dimensions in
the same order, so that one loop nest serves all, and a broadcast or permutation is nothing but how an input
is indexed. What depends on a reduction stays: it is computed once a row, not once an element.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.ir.axis import IterDomain, IterKind
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Copy, Node, Relabel
from fusewright.ir.value import TensorView, Val
from fusewright.sym import const

#: A tensor that was relabeled, by what was relabeled and how.
Lifted = dict[tuple[TensorView, tuple[int | None, ...]], TensorView]


def lift_relabels(fusion: Fusion) -> Fusion:
    """`fusion` itself, rewritten until none can move further up."""
    reduced = _depends_on_more(fusion)
    outputs = set(fusion.output_tensors())
    work: list[Node] = [n for n in fusion.nodes if n.traits.relabel]
    lifted: Lifted = {}
    while work:
        node = work.pop()
        if node.output.definition is not node:
            continue  # rewritten away meanwhile
        source = node.tensor_inputs[0]
        above = source.definition
        if above is None or source in reduced or not above.traits.carries_relabels:
            continue
        if source in outputs and not node.output.uses:
            continue  # a store in another order costs less than to compute it again
        if isinstance(above, Copy) and above.segment:
            continue
        work += _lift(fusion, node, above, lifted)
        if not source.uses and source not in outputs and above in fusion.nodes:
            _remove_dead(fusion, above, outputs)
    return fusion


def _depends_on_more(fusion: Fusion) -> set[Val]:
    """What is not computed element by element from inputs alone, but from reductions, say."""
    found: set[Val] = set()
    for node in fusion.ordered_nodes():
        if not node.is_scalar and (not node.traits.pointwise or any(v in found for v in node.inputs)):
            found.update(node.outputs)
    return found


def _remove_dead(fusion: Fusion, node: Node, outputs: set[TensorView]) -> None:
    stack = [node]
    while stack:
        dead = stack.pop()
        if dead in fusion.nodes and not any(out.uses or out in outputs for out in dead.outputs):
            above = [v.definition for v in dead.inputs]
            fusion.remove_node(dead)
            stack += [n for n in above if n is not None]


def _lift(fusion: Fusion, node: Node, above: Node, lifted: Lifted) -> list[Node]:
    """relabel(above(x, y)) -> above'(relabel(x), relabel(y)); returns the new relabels.

    A tensor is relabeled in the same way once: what is shared above stays shared.
    """
    out, dims = node.output, node.axis_map(0)
    fusion.remove_node(node)
    if above.traits.relabel:
        inner = above.axis_map(0)
        source = above.tensor_inputs[0]
        merged = Relabel(source, out, [None if d is None else inner[d] for d in dims])
        fusion.add_node(merged)
        return [merged]
    values: dict[Val, Val] = {above.outputs[0]: out}
    made: list[Node] = []
    for value in dict.fromkeys(above.inputs):
        if isinstance(value, TensorView) and not value.is_cpu:
            known = lifted.get((value, tuple(dims)))
            if known is not None and known.definition is not None:
                values[value] = known
                continue
            twin = fusion.new_tensor(_relabeled(fusion, value.shape, dims), value.dtype)
            made.append(fusion.add_node(Relabel(value, twin, dims)))
            values[value] = lifted[value, tuple(dims)] = twin
    fusion.add_node(above.copy(values))
    return made


def _relabeled(fusion: Fusion, shape: Sequence[IterDomain], dims: Sequence[int | None]) -> list[IterDomain]:
    return [
        fusion.new_axis(const(1), IterKind.BROADCAST) if d is None else fusion.copy_axis(shape[d])
        for d in dims
    ]
