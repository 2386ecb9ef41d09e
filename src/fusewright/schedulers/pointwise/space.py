"""The iteration space of a fusion without reductions: the dimensions of one output."""

from __future__ import annotations

from dataclasses import dataclass

from fusewright.analyze.axis_map import contradiction, sizes_differ
from fusewright.analyze.kept import kept
from fusewright.analyze.kinds import foreign_node
from fusewright.analyze.parameters import too_many_parameters
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Indexed, Reduction
from fusewright.ir.value import TensorView
from fusewright.schedulers.reference_map import Access, AxisMap, loads, reference_maps, stores


@dataclass(frozen=True)
class PointwiseSpace:
    """The iteration space of all tensors of the fusion.

    Attributes:
        reference: the output that the loops are taken from.
        axes: its dimensions in memory order.
        maps: for every computed tensor, its map to the reference.
    """

    reference: TensorView
    axes: tuple[IterDomain, ...]
    maps: dict[TensorView, AxisMap]

    def accesses(self, fusion: Fusion) -> list[Access]:
        """All loads and stores."""
        return [*loads(fusion, self.maps), *stores(fusion, self.maps)]

    def read_in_full(self, fusion: Fusion) -> frozenset[TensorView]:
        """The inputs of which every load goes along all dimensions of the space, at places that no tensor
        names: what several threads gather is worth its room in the caches anyway.
        """
        concrete = [axis for axis in self.axes if not axis.is_broadcast]
        found = loads(fusion, self.maps)
        others = {
            access.tensor
            for access in found
            if not access.concrete.issuperset(concrete)
            or (isinstance(access.node, Indexed) and access.by_index and access.node.index_tensors)
        }
        return frozenset(access.tensor for access in found if access.tensor not in others)


def _concrete(tensor: TensorView) -> int:
    return sum(not axis.is_broadcast for axis in tensor.iterated)


def reference_tensor(fusion: Fusion) -> TensorView | None:
    """The first output of most dimensions, of those that are stored where they are computed, if any are."""
    computed = [t for t in fusion.output_tensors() if t.definition is not None]
    candidates = [t for t in computed if not t.is_placed] or computed
    return max(candidates, key=_concrete, default=None)


def iteration_order(tensor: TensorView) -> tuple[IterDomain, ...]:
    """The dimensions that a tensor is computed along, outermost in memory first."""
    return tuple(tensor.maybe_root if tensor.is_placed else tensor.allocation)


def pointwise_space(fusion: Fusion, reference: TensorView | None = None) -> PointwiseSpace | str:
    """The iteration space in terms of `reference` (`reference_tensor` if None), or why there is none."""
    foreign = foreign_node(fusion, Reduction) or too_many_parameters(fusion)
    if foreign is not None:
        return foreign
    reference = reference or reference_tensor(fusion)
    if reference is None or any(isinstance(n, Reduction) for n in fusion.nodes):
        return "cannot find reference tensor"
    return covering_space(fusion, reference)


@kept
def covering_space(fusion: Fusion, reference: TensorView) -> PointwiseSpace | str:
    """The space of the dimensions of `reference`, which is not reduced, or why another tensor lacks them."""
    axes = iteration_order(reference)
    maps = reference_maps(reference, axes)
    wanted = {a for a in axes if not a.is_broadcast}
    outputs = set(fusion.output_tensors())
    for tensor in fusion.tensors():
        if fusion.is_input(tensor) or tensor.is_cpu:
            continue
        if tensor not in maps:
            return f"{tensor.name} is not connected with the reference tensor {reference.name}"
        covered = maps[tensor]
        if any(a not in covered for a in wanted):
            return f"{tensor.name} lacks a dimension of the reference tensor {reference.name}"
        if tensor in outputs and any(covered[a].is_broadcast for a in wanted):
            return f"output {tensor.name} is a broadcast along a dimension of the reference {reference.name}"
        if any(not a.is_broadcast and a not in covered.values() for a in tensor.iterated):
            return f"{tensor.name} has a dimension that the reference tensor {reference.name} lacks"
        if sizes_differ(covered):
            return f"{tensor.name} has other sizes than the reference tensor {reference.name}"
    problem = contradiction(fusion, maps)
    return problem if problem is not None else PointwiseSpace(reference, axes, maps)
