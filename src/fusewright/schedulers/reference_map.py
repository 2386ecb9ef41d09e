"""Which axis of every tensor, where it is used, corresponds to each axis of the scheduler's reference.

The maps are those that `transform_like` follows once every input has its loads (see
`io.cache_inputs_and_outputs`). A computed tensor has one. An input has one for each of its loads: what
relabels it is a load of its own, all other uses share one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fusewright.analyze.axis_map import is_own_load, operand_map
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Node
from fusewright.ir.value import TensorView
from fusewright.schedule.propagate import spanning_walk

#: The reference's axis -> a tensor's.
AxisMap = dict[IterDomain, IterDomain]


def reference_maps(reference: TensorView, axes: Sequence[IterDomain]) -> dict[TensorView, AxisMap]:
    """For each tensor that is connected with `reference`, its axis for those of `axes` that it has.

    That of an input is the one of some use; `loads` has those of all.
    """
    maps: dict[TensorView, AxisMap] = {reference: {axis: axis for axis in axes}}
    for source, target, mapping in spanning_walk(reference):
        maps[target] = {ours: mapping[axis] for ours, axis in maps[source].items() if axis in mapping}
    return maps


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """One load from an input, or the store of an output.

    Attributes:
        tensor: the input or output, in global memory.
        node: what reads the input, the first of those that share a load; None for a store.
        axes: the reference's axis -> the tensor's.
    """

    tensor: TensorView
    node: Node | None
    axes: AxisMap

    @property
    def concrete(self) -> frozenset[IterDomain]:
        """The reference's axes along which the tensor is no broadcast."""
        return frozenset(axis for axis, ours in self.axes.items() if not ours.is_broadcast)


def loads(fusion: Fusion, maps: Mapping[TensorView, AxisMap]) -> list[Access]:
    """The loads of a fusion, in the order of its nodes."""
    found: dict[tuple[TensorView, Node | None], Access] = {}
    for node in fusion.ordered_nodes():
        if node.is_scalar or node.output not in maps:
            continue
        own = is_own_load(fusion, node)
        for position, value in enumerate(node.inputs):
            if not isinstance(value, TensorView) or not fusion.is_input(value) or value.is_cpu:
                continue
            key = value, node if own else None
            if key not in found:
                to_tensor = {theirs: ours for ours, theirs in operand_map(node, position).items()}
                of_reader = maps[node.output].items()
                axes = {axis: to_tensor[theirs] for axis, theirs in of_reader if theirs in to_tensor}
                found[key] = Access(value, node, axes)
    return list(found.values())


def stores(fusion: Fusion, maps: Mapping[TensorView, AxisMap]) -> list[Access]:
    """The stores of a fusion, one for each output that it computes."""
    outputs = (tensor for tensor in fusion.output_tensors() if tensor.definition is not None)
    return [Access(tensor, None, maps[tensor]) for tensor in outputs if tensor in maps]
