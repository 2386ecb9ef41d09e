"""The iteration space of a fusion that reduces one domain along rows and along columns, or each matrix of a
batch by itself, and the side of each tensor.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import prod

from fusewright.analyze.axis_map import contradiction, is_own_load
from fusewright.analyze.kinds import foreign_node, reductions_by_output
from fusewright.analyze.persistent import Reachability
from fusewright.analyze.vectorize import unit_stride_axis
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Reduction
from fusewright.ir.value import TensorView
from fusewright.schedulers.base import Facts
from fusewright.schedulers.reduction.space import (
    computed_after,
    main_load,
    memory_order,
    reduced_axes,
    unrelated,
)
from fusewright.schedulers.reference_map import Access, AxisMap, loads, read_once, reference_maps, stores
from fusewright.schedulers.vector_limits import VectorLimits


class Side(Enum):
    """The loops that compute a tensor: over every point, or over the dimensions that a kind of reduction
    keeps.
    """

    points = "every point"
    rows = "the rows"
    columns = "the columns"
    one = "one point"


@dataclass(frozen=True, eq=False)
class InnerOuterSpace:
    """The iteration space of all tensors of the fusion.

    Attributes:
        reference: the reduction whose axes represent those of all others.
        batch: its axes that all reductions keep, in the memory order of the main load.
        rows, columns: its other axes, in that order; the columns are contiguous in memory.
        reductions: the first output of every reduction, by the side of its result, producers first.
        maps: for every computed tensor, its axis for each axis of the reference.
        sides: the side of every computed tensor.
        loads, stores: the accesses to global memory.
        inner: the axis that is contiguous in the main load, if there is one.
    """

    reference: TensorView
    batch: tuple[IterDomain, ...]
    rows: tuple[IterDomain, ...]
    columns: tuple[IterDomain, ...]
    reductions: dict[Side, tuple[TensorView, ...]]
    maps: dict[TensorView, AxisMap]
    sides: dict[TensorView, Side]
    loads: tuple[Access, ...]
    stores: tuple[Access, ...]
    inner: IterDomain | None

    @property
    def axes(self) -> tuple[IterDomain, ...]:
        """All axes of the space, the columns innermost."""
        return (*self.batch, *self.rows, *self.columns)

    @property
    def sized_axes(self) -> tuple[IterDomain, ...]:
        """The axes whose sizes a kernel may have as constants: those of one matrix."""
        return (*self.rows, *self.columns)

    def vector_limits(self, fusion: Fusion) -> VectorLimits | None:
        """Returns the limits on the vectors of points; None if the columns are not contiguous."""
        if self.inner is None:
            return None
        accesses = [each for each in (*self.loads, *self.stores) if self._is_of_points(each)]
        return VectorLimits(fusion, self.inner, accesses)

    def _is_of_points(self, access: Access) -> bool:
        reads_all = isinstance(access.node, Reduction)
        tensor = access.tensor if access.node is None else access.node.output
        return reads_all or self.sides[tensor] is Side.points

    def is_full(self, access: Access) -> bool:
        """Whether an access touches an element for each point of the space."""
        return access.concrete.issuperset(self.axes)

    @property
    def read_once(self) -> frozenset[TensorView]:
        """The inputs of which one load reads an element for each point of the space."""
        return read_once(self.loads, self.axes)

    def batch_count(self, facts: Facts) -> int:
        return prod(facts.value(a.extent) for a in self.batch)

    def row_count(self, facts: Facts) -> int:
        return prod(facts.value(a.extent) for a in self.rows)

    def column_count(self, facts: Facts) -> int:
        return prod(facts.value(a.extent) for a in self.columns)

    def on(self, side: Side) -> list[TensorView]:
        """The computed tensors of one side, producers first."""
        return [tensor for tensor, own in self.sides.items() if own is side]


def inner_outer_space(fusion: Fusion) -> InnerOuterSpace | str:
    """The space of a fusion whose reductions reduce its rows, its columns, or both, or the reason why there
    is none.
    """
    foreign = foreign_node(fusion, Reduction)
    if foreign is not None:
        return foreign
    reductions = reductions_by_output(fusion)
    if len(reductions) < 2:
        return "it has less than two reductions"
    # Of several that which reduces the first dimensions: caches change the order of nodes and who computes an
    # output, and rows must not become columns then.
    reference = min(reductions, key=_fewest_broadcasts_first)
    maps = reference_maps(reference, reference.logical)
    reduced = reduced_axes(reference, reductions, maps)
    if isinstance(reduced, str):
        return reduced
    kept = {tensor: frozenset(reference.logical) - axes for tensor, axes in reduced.items()}
    reads = loads(fusion, maps)
    main = main_load(fusion, reference, reads)
    order = memory_order(reference, main)
    unit = unit_stride_axis(main.tensor) if main is not None else None
    inner = next(
        (a for a in order if unit is not None and main is not None and main.axes.get(a) is unit), None
    )
    groups = _batch_rows_and_columns(order, inner or order[-1], list(kept.values()))
    if isinstance(groups, str):
        return groups
    batch, rows, columns = groups
    side_of = {batch | rows: Side.rows, batch | columns: Side.columns, batch: Side.one}
    result_sides = {tensor: side_of[axes] for tensor, axes in kept.items()}
    sides = _sides(fusion, reductions, result_sides)
    if isinstance(sides, str):
        return sides
    extents = {Side.points: batch | rows | columns, **{side: axes for axes, side in side_of.items()}}
    problem = _misfit(fusion, reference, maps, sides, extents) or contradiction(fusion, maps)
    problem = problem or _read_on_two_sides(fusion, sides)
    if problem is not None:
        return problem
    return InnerOuterSpace(
        reference,
        tuple(a for a in order if a in batch),
        tuple(a for a in order if a in rows),
        tuple(a for a in order if a in columns),
        {side: tuple(t for t in reductions if result_sides[t] is side) for side in Side},
        maps,
        sides,
        tuple(reads),
        tuple(stores(fusion, maps)),
        inner,
    )


def _fewest_broadcasts_first(tensor: TensorView) -> tuple[int, list[int]]:
    concrete = sum(not axis.is_broadcast for axis in tensor.logical)
    return -concrete, [i for i, axis in enumerate(tensor.logical) if axis.is_reduction]


def _batch_rows_and_columns(
    order: list[IterDomain], inner: IterDomain, kept: list[frozenset[IterDomain]]
) -> tuple[frozenset[IterDomain], frozenset[IterDomain], frozenset[IterDomain]] | str:
    """The axes that each reduction keeps, and the two groups of the others of which it keeps one or none;
    `inner` is in the last.
    """
    if len(set(kept)) == 1:
        return "all reductions reduce the same dimensions"
    batch = frozenset.intersection(*kept)
    matrix = frozenset(order) - batch
    groups = [axes - batch for axes in dict.fromkeys(kept) if axes != batch]
    if len(groups) > 2 or (len(groups) == 2 and (groups[0] & groups[1] or groups[0] | groups[1] != matrix)):
        return "the dimensions that its reductions reduce are not two groups that have none in common"
    if inner in batch:
        return "all reductions keep the dimension that is contiguous in memory"
    first = groups[0]
    return (batch, matrix - first, first) if inner in first else (batch, first, matrix - first)


def _sides(
    fusion: Fusion, reductions: tuple[TensorView, ...], result_sides: dict[TensorView, Side]
) -> dict[TensorView, Side] | str:
    """The side of every computed tensor, producers first, or why one has none."""
    after = computed_after(fusion, reductions)
    reachability = Reachability(fusion)
    nodes = fusion.tensor_nodes()
    outputs = set(fusion.output_tensors())
    sides: dict[TensorView, Side] = {}
    for node in nodes:
        if node.output in result_sides:
            if node.output in after:
                return f"the reduction {node.output.name} depends on another reduction"
            sides.update(dict.fromkeys(node.tensor_outputs, result_sides[node.output]))
        elif node.output in after:
            found = {
                sides[v] for v in node.tensor_inputs if v in after or v in result_sides or v.is_reduction
            }
            if len(found) > 1:
                return f"{node.output.name} depends on reductions of different dimensions"
            sides.update(dict.fromkeys(node.tensor_outputs, found.pop()))
    for node in reversed(nodes):
        tensor = node.output
        if tensor in sides:
            continue
        if tensor in outputs or any(reachability.reaches(tensor, reduction) for reduction in reductions):
            own = {Side.points}
        else:
            own = {sides[user.output] for out in node.outputs for user in out.uses if user.output in sides}
        if len(own) > 1:
            return f"{tensor.name} is needed along {' and along '.join(sorted(s.value for s in own))}"
        sides.update(dict.fromkeys(node.tensor_outputs, own.pop() if own else Side.points))
    return {out: sides[out] for node in nodes for out in node.tensor_outputs}


def _misfit(
    fusion: Fusion,
    reference: TensorView,
    maps: dict[TensorView, AxisMap],
    sides: dict[TensorView, Side],
    extents: dict[Side, frozenset[IterDomain]],
) -> str | None:
    """Why a tensor does not fit the loops of its side, or None."""
    outputs = set(fusion.output_tensors())
    for tensor, side in sides.items():
        covered = maps.get(tensor, {})
        problem = unrelated(tensor, reference, maps)
        if problem is not None:
            return problem
        own = {a for a, mine in covered.items() if not mine.is_broadcast and not mine.is_reduction}
        if not own <= extents[side]:
            return f"{tensor.name} uses a reduced dimension again after the reduction"
        if not tensor.is_reduction and any(axis not in covered for axis in extents[side]):
            return f"{tensor.name} lacks a dimension of the reduction {reference.name}"
        if tensor in outputs and own != extents[side]:
            return f"output {tensor.name} does not have all dimensions along {side.value}"
        for operand in tensor.definition.tensor_inputs if tensor.definition is not None else ():
            crosses = sides.get(operand, side) is not side and not tensor.is_reduction
            if crosses:
                return f"{operand.name} is needed before a reduction and along {side.value}"
    return None


def _read_on_two_sides(fusion: Fusion, sides: dict[TensorView, Side]) -> str | None:
    """Why no one load of an input serves all that read it, or None."""
    for value in fusion.inputs:
        if not isinstance(value, TensorView) or value.is_cpu:
            continue
        shared = [use for use in value.uses if not is_own_load(fusion, use) or use.inputs[0] is not value]
        # A reduction of an input reads it at every point.
        readers = {Side.points if isinstance(use, Reduction) else sides[use.output] for use in shared}
        if len(readers) > 1:
            return f"{value.name} is read along {' and along '.join(sorted(s.value for s in readers))}"
    return None
