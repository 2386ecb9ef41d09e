"""The iteration space of a fusion with reductions, and what depends on them."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from fusewright.analyze.axis_map import contradiction, sizes_differ
from fusewright.analyze.kinds import foreign_node
from fusewright.analyze.persistent import Reach
from fusewright.analyze.vectorize import unit_stride_axis
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Reduction
from fusewright.ir.value import TensorView
from fusewright.ops.reductions import WELFORD
from fusewright.schedulers.base import Facts
from fusewright.schedulers.io import VectorLimits
from fusewright.schedulers.reference_map import AxisMap, reference_maps


@dataclass(frozen=True)
class ReductionSpace:
    """reference: the reduction of most dimensions. iteration, reduction: its axes in the memory order of the
    main input.

    maps: for every tensor, its axis for each of the reference's. after: tensors computed from a reduction.
    """

    reference: TensorView
    reductions: tuple[TensorView, ...]
    main_input: TensorView
    iteration: tuple[IterDomain, ...]
    reduction: tuple[IterDomain, ...]
    maps: dict[TensorView, AxisMap]
    after: frozenset[TensorView]

    @property
    def is_inner(self) -> bool:
        """Whether the dimension that is contiguous in the main input is reduced."""
        unit = unit_stride_axis(self.main_input)
        mapped = self.maps[self.main_input]
        return any(mapped.get(axis) is unit for axis in self.reduction) if unit is not None else True

    @property
    def inner_axis(self) -> IterDomain | None:
        """The reference's axis that is contiguous in the main input."""
        unit = unit_stride_axis(self.main_input)
        mapped = self.maps[self.main_input]
        return next((a for a in (*self.iteration, *self.reduction) if mapped.get(a) is unit), None)

    def vector_limits(self, fusion: Fusion) -> VectorLimits | None:
        """What bounds vectors along the dimension that is contiguous in the main input, if there is one."""
        inner = self.inner_axis
        if inner is None:
            return None
        return VectorLimits(fusion, inner, {t: m.get(inner) for t, m in self.maps.items()})

    def has_every_element(self, tensor: TensorView) -> bool:
        """Whether `tensor` is a broadcast along none of the dimensions."""
        covered = self.maps.get(tensor, {})
        axes = [a for a in (*self.iteration, *self.reduction) if not a.is_broadcast]
        return all(a in covered and not covered[a].is_broadcast for a in axes)

    def iteration_size(self, facts: Facts) -> int:
        return prod(facts.value(a.extent) for a in self.iteration)

    def reduction_size(self, facts: Facts) -> int:
        return prod(facts.value(a.extent) for a in self.reduction)


def reduction_space(fusion: Fusion) -> ReductionSpace | str:
    """The space of a fusion all of whose reductions reduce the same axes, or why there is none."""
    foreign = foreign_node(fusion)
    if foreign is not None:
        return foreign
    reductions = tuple(t for n in fusion.ordered_nodes() if not n.is_scalar and (t := n.output).is_reduction)
    if not reductions:
        return "it has no reduction"
    # That of most dimensions, as for a broadcast of fewer the others would lack some.
    reference = max(reductions, key=lambda t: sum(not a.is_broadcast for a in t.logical))
    maps = reference_maps(reference, reference.logical)
    for other in reductions:
        mapped = maps.get(other, {})
        if len(mapped) != len(reference.logical) or len(other.logical) != len(mapped):
            return f"reductions {reference.name} and {other.name} have different dimensions"
        if any(a.is_broadcast != mapped[a].is_broadcast for a in reference.logical):
            return f"reduction {other.name} is of a broadcast along a dimension of {reference.name}"
        if any(a.is_reduction != mapped[a].is_reduction for a in reference.logical):
            return f"reductions {reference.name} and {other.name} reduce different dimensions"
    after = _after(fusion, reductions)
    inputs = [v for v in fusion.inputs if isinstance(v, TensorView) and not v.is_cpu and v in maps]
    before = [v for v in inputs if len([a for a in maps[v].values() if not a.is_broadcast]) > 0]
    main = max(before, key=lambda v: sum(not a.is_broadcast for a in maps[v].values()), default=None)
    several = len(reductions) > 1 or _is_welford(reference)  # which a scheduler may compute in two passes
    if several and any(a.is_broadcast and all(a not in maps[v] for v in before) for a in reference.logical):
        # Nothing but the results of one reduction would tell the next which of its dimensions that is.
        return f"the reduced inputs lack a dimension that {reference.name} is expanded along"
    order = list(reference.logical)
    if main is not None:
        place = {axis: i for i, axis in enumerate(main.allocation)}
        mapped = maps[main]
        order.sort(key=lambda a: place.get(mapped.get(a), -1))  # type: ignore[arg-type]
    problem = _uncovered(fusion, reference, maps, after) or contradiction(fusion, maps)
    if problem is not None:
        return problem
    return ReductionSpace(
        reference,
        reductions,
        main if main is not None else reference,
        tuple(a for a in order if not a.is_reduction),
        tuple(a for a in order if a.is_reduction),
        maps,
        frozenset(after),
    )


def _is_welford(tensor: TensorView) -> bool:
    return isinstance(tensor.definition, Reduction) and tensor.definition.op is WELFORD


def _after(fusion: Fusion, reductions: tuple[TensorView, ...]) -> set[TensorView]:
    found: set[TensorView] = set()
    for node in fusion.ordered_nodes():
        for out in node.outputs:
            if isinstance(out, TensorView) and any(
                v in found or (v in reductions) or _is_reduced(v)
                for v in node.inputs
                if isinstance(v, TensorView)
            ):
                found.add(out)
    return found


def _is_reduced(tensor: TensorView) -> bool:
    return tensor.definition is not None and tensor.is_reduction


def _uncovered(
    fusion: Fusion, reference: TensorView, maps: dict[TensorView, AxisMap], after: set[TensorView]
) -> str | None:
    """Why a tensor does not fit the reference's loops, or None."""
    iteration = [a for a in reference.logical if not a.is_reduction and not a.is_broadcast]
    concrete = [a for a in reference.logical if not a.is_broadcast]
    outputs = set(fusion.output_tensors())
    reach = Reach(fusion)
    reductions = [n.output for n in fusion.ordered_nodes() if not n.is_scalar and n.output.is_reduction]
    for node in fusion.ordered_nodes():
        for tensor in node.outputs:
            if not isinstance(tensor, TensorView):
                continue
            covered = maps.get(tensor)
            if covered is None:
                return f"{tensor.name} is not connected with the reduction {reference.name}"
            is_reduced = tensor not in after and any(reach.reaches(tensor, r) for r in reductions)
            wanted = concrete if is_reduced else iteration
            if any(a not in covered for a in wanted):
                return f"{tensor.name} lacks a dimension of the reduction {reference.name}"
            if any(not a.is_broadcast and a not in covered.values() for a in tensor.logical):
                return f"{tensor.name} has a dimension that the reduction {reference.name} lacks"
            if sizes_differ(covered):
                return f"{tensor.name} has other sizes than the reduction {reference.name}"
            if tensor in outputs and any(covered[a].is_broadcast for a in wanted):
                return (
                    f"output {tensor.name} is a broadcast along a dimension of the reduction {reference.name}"
                )
    return None
