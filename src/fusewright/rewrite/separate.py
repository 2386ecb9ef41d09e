"""Separates what a small tensor is read for before a reduction from what it is read for otherwise.

    sum(x * w) over rows, then + w      becomes      sum(x * w) over rows, then + w', which is w loaded again

A tensor of fewer dimensions than what is reduced runs in the loops of the reduction, as if it were broadcast
to them. What reads it once a row, or stores it, has other loops, and so has whatever reads it elsewhere if it
lies along a reduced dimension: that gets a load, or a computation, of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from fusewright.analyze.axis_map import is_own_load, operand_map
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Node, Reduction, Relabel
from fusewright.ir.value import TensorView, Val


@dataclass(slots=True)
class _Reduced:
    """What becomes of a tensor that feeds reductions.

    Attributes:
        axes: its dimensions that are reduced.
        rank: the most dimensions, broadcasts aside, that a reduction it feeds has before it reduces.
    """

    axes: set[IterDomain]
    rank: int


def separate_small_tensors(fusion: Fusion) -> Fusion:
    """`fusion` itself, changed where a small tensor is read both before a reduction and elsewhere."""
    nodes = [node for node in fusion.ordered_nodes() if not node.is_scalar]
    if not any(isinstance(node, Reduction) for node in nodes):
        return fusion
    after = _after_reductions(nodes)
    outputs = set(fusion.output_tensors())
    feeding: dict[TensorView, _Reduced] = {}
    widest: dict[TensorView, int] = {}  # dimensions of a tensor, or of what is computed from it
    for node in reversed(nodes):  # consumers first
        _add_operands(node, after, feeding)
        widest[node.output] = max(_width(out, widest) for out in node.outputs)
        for out in node.outputs:
            if isinstance(out, TensorView) and out not in after and out in feeding:
                _separate(fusion, out, feeding, widest, out in outputs)
    for value in fusion.inputs:
        if isinstance(value, TensorView) and value in feeding and not value.is_cpu:
            _separate(fusion, value, feeding, widest, False)
    return fusion


def _after_reductions(nodes: list[Node]) -> set[Val]:
    found: set[Val] = set()
    for node in nodes:
        if isinstance(node, Reduction) or not found.isdisjoint(node.inputs):
            found.update(node.outputs)
    return found


def _add_operands(node: Node, after: set[Val], feeding: dict[TensorView, _Reduced]) -> None:
    """Adds to `feeding` the operands of a node that reduces, or computes what is reduced later."""
    is_reduction = isinstance(node, Reduction)
    if not is_reduction and (node.output in after or node.output not in feeding):
        return
    root = node.output.maybe_root
    if is_reduction:
        later = {axis for axis in root if axis.is_reduction}
        rank = sum(not axis.is_broadcast for axis in root)
    else:
        later, rank = feeding[node.output].axes, feeding[node.output].rank
    for position, value in enumerate(node.inputs):
        if isinstance(value, TensorView) and value not in after and not value.is_cpu:
            known = feeding.setdefault(value, _Reduced(set(), 0))
            known.axes.update(ours for ours, theirs in operand_map(node, position).items() if theirs in later)
            known.rank = max(known.rank, rank)


def _rank(tensor: TensorView) -> int:
    return sum(not axis.is_broadcast for axis in tensor.shape)


def _width(value: Val, widest: dict[TensorView, int]) -> int:
    """The most dimensions of a tensor or of what is computed from it."""
    assert isinstance(value, TensorView)
    return max([_rank(value), *(widest.get(use.output, 0) for use in value.uses)])


def _separate(
    fusion: Fusion,
    tensor: TensorView,
    feeding: dict[TensorView, _Reduced],
    widest: dict[TensorView, int],
    is_output: bool,
) -> None:
    """Gives a twin to the uses of `tensor` that have other loops than the reductions it feeds.

    The uses that feed them get it if `tensor` is an output.
    """
    known = feeding[tensor]
    if _rank(tensor) >= known.rank:
        return
    before = [use for use in tensor.uses if isinstance(use, Reduction) or use.output in feeding]
    others = [use for use in tensor.uses if use not in before]
    if all(axis.is_broadcast for axis in known.axes):  # once a row
        others = [use for use in others if widest.get(use.output, 0) < known.rank]
    node = tensor.definition
    if node is None:
        others = [use for use in others if not is_own_load(fusion, use)]
    if not before or not (others or is_output):
        return
    twin = fusion.new_tensor([fusion.copy_axis(axis) for axis in tensor.shape], tensor.dtype)
    for use in before if is_output else others:
        fusion.replace_inputs(use, {tensor: twin})
    # A relabeling that changes nothing is a load of its own.
    load = Relabel(tensor, twin, range(tensor.ndim))
    fusion.add_node(load if node is None else node.copy({tensor: twin}))
    widest[tensor], widest[twin] = _width(tensor, widest), _width(twin, widest)
    if is_output:
        feeding[twin] = feeding.pop(tensor)
