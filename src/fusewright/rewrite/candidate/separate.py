"""Separates reads of a small tensor before a reduction from its other reads.

    sum(x * w) over rows, then + w      becomes      sum(x * w) over rows, then + w', which is w loaded again

A tensor with fewer dimensions than the reduced tensor is computed in the loops of the reduction, as if it
were broadcast. Uses that read it once per row, or store it, have other loops. If the tensor has a reduced
dimension, all uses outside the reduction have other loops. These uses get a separate load or a separate
computation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusewright.analyze.axis_map import is_own_load, operand_map
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Node, Reduction
from fusewright.ir.value import TensorView, Val
from fusewright.ir.view import Relabel


@dataclass(slots=True)
class _Reduced:
    """The reductions that a tensor feeds.

    Attributes:
        axes: the dimensions of the tensor that are reduced.
        rank: the largest number of dimensions, without broadcasts, of the operands of these reductions.
    """

    axes: set[IterDomain]
    rank: int


def separate_small_tensors(fusion: Fusion) -> Fusion:
    """Separates small tensors that are read both inside and outside a reduction's loops; returns `fusion`."""
    nodes = fusion.tensor_nodes()
    if any(isinstance(node, Reduction) for node in nodes):
        _Separator(fusion, nodes).run()
    return fusion


class _Separator:
    """The facts about the tensors of one fusion, consumers first.

    Attributes:
        after: the tensors that depend on a reduction.
        rank: the largest number of dimensions, without broadcasts, of the operands of reductions.
        feeding: the tensors that reductions depend on.
        widest: for each tensor the largest number of dimensions of the tensor and the values computed from
            it.
    """

    def __init__(self, fusion: Fusion, nodes: Sequence[Node]) -> None:
        self.fusion = fusion
        self.nodes = nodes
        self.after: set[Val] = set()
        for node in nodes:
            if isinstance(node, Reduction) or not self.after.isdisjoint(node.inputs):
                self.after.update(node.outputs)
        self.rank = max(_reduced_rank(node) for node in nodes if isinstance(node, Reduction))
        self.feeding: dict[TensorView, _Reduced] = {}
        self.widest: dict[TensorView, int] = {}

    def run(self) -> None:
        outputs = set(self.fusion.output_tensors())
        for node in reversed(self.nodes):
            self._add_operands(node)
            for out in node.outputs:
                assert isinstance(out, TensorView)
                self.widest[out] = self._width(out)
            if node.output not in self.after:
                self._separate(node.output, node.output in outputs)
        for value in self.fusion.inputs:
            if isinstance(value, TensorView) and not value.is_cpu:
                self._separate(value, False)

    def _add_operands(self, node: Node) -> None:
        """Adds the operands of a node to `feeding`, if it is a reduction or feeds one."""
        if isinstance(node, Reduction):
            root = node.output.maybe_root
            later, rank = {axis for axis in root if axis.is_reduction}, _reduced_rank(node)
        elif node.output in self.feeding and node.output not in self.after:
            later, rank = self.feeding[node.output].axes, self.feeding[node.output].rank
        else:
            return
        for position, value in enumerate(node.inputs):
            if isinstance(value, TensorView) and value not in self.after and not value.is_cpu:
                known = self.feeding.setdefault(value, _Reduced(set(), 0))
                table = operand_map(node, position)
                known.axes.update(ours for ours, theirs in table.items() if theirs in later)
                known.rank = max(known.rank, rank)

    def _width(self, tensor: TensorView) -> int:
        return max([_rank(tensor), *(self.widest.get(use.output, 0) for use in tensor.uses)])

    def _separate(self, tensor: TensorView, is_output: bool) -> None:
        """Gives the uses of `tensor` outside the reduction's loops a copy of it.

        If `tensor` is an output, the uses inside the loops get the copy.
        """
        known = self.feeding.get(tensor)
        rank = known.rank if known is not None else self.rank
        if _rank(tensor) >= rank:
            return
        inside = [use for use in tensor.uses if isinstance(use, Reduction) or use.output in self.feeding]
        if known is None or all(axis.is_broadcast for axis in known.axes):  # it has one value per row
            inside += [u for u in tensor.uses if u not in inside and self.widest.get(u.output, 0) >= rank]
        outside = [use for use in tensor.uses if use not in inside]
        node = tensor.definition
        if node is not None and node.traits.placed:
            return  # it is stored to memory, once
        if node is None:
            outside = [use for use in outside if not is_own_load(self.fusion, use)]
        if not inside or not (outside or is_output):
            return
        twin = self.fusion.new_like(tensor)
        for use in inside if is_output else outside:
            self.fusion.replace_inputs(use, {tensor: twin})
        # An identity relabeling is a separate load.
        load = Relabel(tensor, twin, range(tensor.ndim))
        self.fusion.add_node(load if node is None else node.copy({tensor: twin}))
        self.widest[tensor], self.widest[twin] = self._width(tensor), self._width(twin)
        if is_output and known is not None:
            self.feeding[twin] = self.feeding.pop(tensor)


def _rank(tensor: TensorView) -> int:
    """The number of dimensions along which a tensor is computed, without broadcasts."""
    axes = tensor.iterated
    return sum(not axis.is_broadcast for axis in axes)


def _reduced_rank(node: Node) -> int:
    """The number of dimensions of a reduction's operand, without broadcasts."""
    return sum(not axis.is_broadcast for axis in node.output.maybe_root)
