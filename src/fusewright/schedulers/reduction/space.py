"""The iteration space of a fusion with reductions, and the tensors that depend on them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from fusewright.analyze.axis_map import contradiction, sizes_differ, stays_one_point
from fusewright.analyze.inputs import nodes_before
from fusewright.analyze.kept import kept
from fusewright.analyze.kinds import foreign_node, reductions_by_output
from fusewright.analyze.parameters import too_many_parameters
from fusewright.analyze.scan_axes import scanned_root
from fusewright.analyze.vectorize import unit_stride_axis
from fusewright.core.hardware import REGISTER_BYTES
from fusewright.core.once import cached_property
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Node, Pointwise, Reduction, Scan
from fusewright.ir.value import TensorView, Val
from fusewright.schedulers.base import Facts
from fusewright.schedulers.reference_map import Access, AxisMap, loads, read_once, reference_maps, stores
from fusewright.schedulers.sectors import Sectors
from fusewright.schedulers.slots import LONG_SLOTS, slots_of
from fusewright.schedulers.vector_limits import VectorLimits
from fusewright.sym import Expr, Mul, Symbol, as_int, const

# The size of a dimension of results at most, all of which a thread computes for what it shares along it.
MOST_SHARING = 4


@dataclass(frozen=True, eq=False)
class ReductionSpace:
    """The iteration space of all tensors of the fusion.

    Attributes:
        reference: the reduction of the most dimensions.
        reductions: the first output of every reduction, producers first.
        order: the reference's axes in the memory order of the main load; those that it lacks come first, or
            inside of others (`_with_shared_loads`).
        maps: for every computed tensor, its axis for each axis of the reference.
        after: tensors computed from a reduction.
        loads, stores: the accesses to global memory.
        main: the load that has most of the reference's dimensions, if one has any.
        scans: the results of scans along the only reduced dimension, each with an element for each point.
    """

    reference: TensorView
    reductions: tuple[TensorView, ...]
    order: tuple[IterDomain, ...]
    maps: dict[TensorView, AxisMap]
    after: frozenset[TensorView]
    loads: tuple[Access, ...]
    stores: tuple[Access, ...]
    main: Access | None
    scans: tuple[TensorView, ...] = ()

    @cached_property
    def iteration(self) -> tuple[IterDomain, ...]:
        """The axes that are kept, in order."""
        return tuple(axis for axis in self.order if not axis.is_reduction)

    @cached_property
    def reduction(self) -> tuple[IterDomain, ...]:
        """The axes that are reduced, in order."""
        return tuple(axis for axis in self.order if axis.is_reduction)

    @cached_property
    def is_inner(self) -> bool:
        """Whether the innermost dimension of the main load's memory is reduced, contiguous or not: a sector
        has several elements of it, if every second one is read, and one alone of another dimension.
        """
        inner = self.inner_axis or self._strided_axis
        return inner.is_reduction if inner is not None else True

    @cached_property
    def _strided_axis(self) -> IterDomain | None:
        """The reference's axis that is innermost in the main load's memory, whatever its stride."""
        if self.main is None:
            return None
        axes = self.main.axes
        own = next((axis for axis in reversed(self.main.tensor.memory_axes) if not axis.is_broadcast), None)
        return next((a for a in (*self.iteration, *self.reduction) if axes.get(a) is own), None)

    @cached_property
    def inner_axis(self) -> IterDomain | None:
        """The reference's axis that is contiguous in the main load; without one, in the reference, if loops
        go along it innermost.
        """
        if self.main is None:
            unit, axes = unit_stride_axis(self.reference), {a: a for a in self.reference.logical}
            innermost = [axis for axis in memory_order(self.reference, None) if not axis.is_broadcast][-1:]
            if innermost != [unit]:
                return None
        else:
            unit, axes = unit_stride_axis(self.main.tensor), self.main.axes
        if unit is None:
            return None
        return next((a for a in (*self.iteration, *self.reduction) if axes.get(a) is unit), None)

    def vector_limits(self, fusion: Fusion) -> VectorLimits | None:
        """Returns the limits on vectors along the dimension that is contiguous in the main load; None if
        there is none.
        """
        inner = self.inner_axis
        if inner is None:
            return None
        return VectorLimits(fusion, inner, (*self.loads, *self.stores))

    def sectors(self, fusion: Fusion) -> Sectors:
        """The sectors that threads touch, which go along the reduced dimensions if these are contiguous."""
        slow, fast = self.iteration, self.reduction
        if not self.is_inner:
            slow, fast = fast, slow
        return Sectors.along(fusion, (*self.loads, *self.stores), (*slow, *fast))

    def sectors_along_memory(self, fusion: Fusion) -> Sectors:
        """The sectors that threads touch, which go along memory in `order`."""
        return Sectors.along(fusion, (*self.loads, *self.stores), self.order)

    def is_full(self, access: Access) -> bool:
        """Whether an access touches an element for each point of the space."""
        return access.concrete.issuperset(self.concrete)

    @cached_property
    def full_loads(self) -> tuple[Access, ...]:
        """The loads of an element for each point of the space."""
        return tuple(access for access in self.loads if self.is_full(access))

    @cached_property
    def element_bytes(self) -> int:
        """The bytes that are loaded for each point of the space."""
        return sum(access.tensor.dtype.size for access in self.full_loads)

    @cached_property
    def loads_words(self) -> bool:
        """Whether all that is loaded for each point is as large as a register, such as floats."""
        return bool(self.full_loads) and all(a.tensor.dtype.size == REGISTER_BYTES for a in self.full_loads)

    @cached_property
    def stores_all(self) -> bool:
        """Whether an element is stored for each point of the space."""
        return any(map(self.is_full, self.stores))

    def are_read_in_full(self, tensors: Collection[Val]) -> bool:
        """Whether all loads of these along the reduced dimensions touch an element for each point."""
        along = (load for load in self.loads if not load.concrete.isdisjoint(self.reduction))
        return all(self.is_full(load) for load in along if load.tensor in tensors)

    @cached_property
    def read_late(self) -> frozenset[TensorView]:
        """The inputs with an element for each point that no reduction follows from."""
        needed = {value for node in nodes_before(self.reductions) for value in node.inputs}
        return frozenset(load.tensor for load in self.full_loads if load.tensor not in needed)

    @cached_property
    def read_once(self) -> frozenset[TensorView]:
        """The inputs of which one load reads an element for each point of the space."""
        return read_once(self.loads, self.concrete)

    def has_every_element(self, tensor: TensorView) -> bool:
        """Whether a computed tensor has an element for each point of the space."""
        return self._has_elements(tensor, self.concrete)

    def has_every_element_of_a_row(self, tensor: TensorView) -> bool:
        """Whether a computed tensor has an element for each point of a row: rows may share it."""
        return self._has_elements(tensor, [axis for axis in self.reduction if not axis.is_broadcast])

    def _has_elements(self, tensor: TensorView, along: Iterable[IterDomain]) -> bool:
        covered = self.maps.get(tensor, {})
        own = (covered.get(axis) for axis in along)
        return all(axis is not None and not axis.is_broadcast and not axis.is_reduction for axis in own)

    @cached_property
    def concrete(self) -> tuple[IterDomain, ...]:
        """The reference's axes that are no broadcasts."""
        return tuple(a for a in (*self.iteration, *self.reduction) if not a.is_broadcast)

    def side_by_side(self, facts: Facts, of: Access | None = None) -> int:
        """Returns the number of columns whose elements follow one another in memory: of the main load, or of
        another one.
        """
        count = 1
        order = self.order if of is None else memory_order(self.reference, of)
        for axis in reversed(order):
            if axis.is_reduction:
                break
            count *= facts.value(axis.extent)
        return count

    @property
    def reduced_axes_inside(self) -> tuple[IterDomain, ...]:
        """The reduced axes without other axes inside of them, in the memory order of the main load."""
        kept = [i for i, axis in enumerate(self.order) if not axis.is_reduction]
        return self.order[kept[-1] + 1 :] if kept else self.order

    def reduced_inside(self, facts: Facts) -> int:
        """Elements that follow one another in memory and are reduced together."""
        return prod(facts.value(axis.extent) for axis in self.reduced_axes_inside)

    def iteration_size(self, facts: Facts) -> int:
        return prod(facts.value(a.extent) for a in self.iteration)

    def reduction_size(self, facts: Facts) -> int:
        return prod(self.reduction_sizes(facts))

    @cached_property
    def reduced_extents(self) -> tuple[Expr, ...]:
        """The sizes of the reduced dimensions, each of them separately if a reshape has merged them."""
        return tuple(factor for axis in self.reduction for factor in factors_of(axis.extent))

    @property
    def is_constant(self) -> bool:
        """Whether the definition states the sizes of the reduced dimensions."""
        return not self.unknown_extents

    @cached_property
    def unknown_extents(self) -> frozenset[Expr]:
        """The sizes in `reduced_extents` that only a call determines."""
        return frozenset(extent for extent in self.reduced_extents if as_int(extent) is None)

    @cached_property
    def dimensions(self) -> Mapping[Expr, tuple[TensorView, int]]:
        """One dimension, as tensor and position, for each size that the reference or an input has."""
        tensors = [*(access.tensor for access in self.loads), self.reference]
        return {axis.extent: (tensor, dim) for tensor in tensors for dim, axis in enumerate(tensor.logical)}

    @cached_property
    def may_be_assumed(self) -> bool:
        """Whether the reduced sizes are those of dimensions, except for at most one of each product."""
        unknown = [self.unknown_extents.intersection(factors_of(axis.extent)) for axis in self.reduction]
        return all(len(each - self.dimensions.keys()) <= (len(each) > 1) for each in unknown)

    def reduction_sizes(self, facts: Facts) -> tuple[int, ...]:
        """The value of each of `reduced_extents`."""
        return tuple(map(facts.value, self.reduced_extents))


def factors_of(extent: Expr) -> tuple[Expr, ...]:
    """The symbols whose product a size is; itself, if it is none."""
    if not isinstance(extent, Mul) or not all(isinstance(factor, Symbol) for factor in extent.factors):
        return (extent,)
    return extent.factors if extent.coefficient == 1 else (const(extent.coefficient), *extent.factors)


@kept
def reduction_space(fusion: Fusion, *, with_scans: bool = False) -> ReductionSpace | str:
    """The space of a fusion all of whose reductions reduce the same axes, or the reason why there is none.

    Args:
        with_scans: whether scans along the reduced dimension are allowed.
    """
    kinds: tuple[type[Node], ...] = (Reduction, Scan) if with_scans else (Reduction,)
    foreign = foreign_node(fusion, *kinds) or too_many_parameters(fusion)
    if foreign is not None:
        return foreign
    reductions = reductions_by_output(fusion)
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
    after = computed_after(fusion, reductions)
    problem = uncovered(fusion, reference, maps, after) or contradiction(fusion, maps)
    problem = problem or _misplaced(fusion, reference, maps) or _narrower(fusion, reference, maps, after)
    if problem is not None:
        return problem
    reads = loads(fusion, maps)
    several = len(reductions) > 1
    expanded = [a for a in reference.logical if a.is_broadcast and not stays_one_point(reference, a)]
    if several and any(all(a not in read.axes for read in reads) for a in expanded):
        # Nothing but the results of one reduction would tell the next which of its dimensions that is.
        return f"the reduced inputs lack a dimension that {reference.name} is expanded along"
    space = space_of(fusion, reference, reductions, maps, after)
    scans = [node for node in fusion.tensor_nodes() if isinstance(node, Scan)]
    if not scans:
        return space
    return _scan_elsewhere(space, scans) or replace(space, scans=tuple(node.output for node in scans))


def _scan_elsewhere(space: ReductionSpace, scans: Collection[Scan]) -> str | None:
    """Why a scan does not go through what is reduced, or None."""
    for node in scans:
        along = [axis for axis, ours in space.maps[node.output].items() if ours is scanned_root(node)]
        if along != list(space.reduction):
            return f"scan {node.output.name} runs along other dimensions than {space.reference.name} reduces"
        if not space.has_every_element(node.output):
            return f"scan {node.output.name} lacks a dimension of the reduction {space.reference.name}"
    return None


def space_of(
    fusion: Fusion,
    reference: TensorView,
    reductions: tuple[TensorView, ...],
    maps: dict[TensorView, AxisMap],
    after: Collection[TensorView],
) -> ReductionSpace:
    """The space of reductions that reduce the same axes; see its attributes."""
    reads, writes = loads(fusion, maps), stores(fusion, maps)
    main = main_load(fusion, reference, reads, _along_kept_rows(reference, reads, writes))
    if main is not None and _share_along_results(fusion, reference, main, maps, after):
        main = None
    order = memory_order(reference, main)
    return ReductionSpace(
        reference,
        reductions,
        tuple(order if main is None else _with_shared_loads(order, main, reads, writes)),
        maps,
        frozenset(after),
        tuple(reads),
        tuple(writes),
        main,
    )


def _misplaced(fusion: Fusion, reference: TensorView, maps: dict[TensorView, AxisMap]) -> str | None:
    """Why the loops of a tensor do not stand where the reference's do, or None.

    Rows of one point are loops around the reduced ones all the same, for those tensors that have them.
    """
    rows = [axis for axis in reference.logical if not axis.is_reduction]
    if not rows or not all(axis.is_broadcast for axis in rows):
        return None
    for node in fusion.ordered_nodes():
        for tensor in node.outputs:
            own = maps[tensor] if isinstance(tensor, TensorView) else {}
            if any(axis.is_reduction for axis in own) and own.keys().isdisjoint(rows):
                return f"{tensor.name} lacks the dimensions of one point of the reduction {reference.name}"
    return None


def all_outputs(tensors: Iterable[TensorView]) -> list[TensorView]:
    """All outputs of the nodes that compute these tensors, one of each node."""
    return [sibling for tensor in tensors for sibling in tensor.siblings]


def _narrower(
    fusion: Fusion,
    reference: TensorView,
    maps: Mapping[TensorView, AxisMap],
    after: Collection[TensorView],
) -> str | None:
    """Why a result of reductions cannot have the loops of the row, or None.

    The reduced dimensions are merged to one loop. A tensor that varies along one of them and lacks another
    has no such loop, and what threads have of it cannot be read along the one that it lacks.
    """
    reduced = [axis for axis in reference.logical if axis.is_reduction]
    for tensor in (out for node in fusion.ordered_nodes() for out in node.tensor_outputs if out in after):
        own = maps.get(tensor, {})
        lacking = [axis for axis in reduced if axis not in own]
        if lacking and any(axis in own and not own[axis].is_broadcast for axis in reduced):
            return f"{tensor.name} lacks a dimension of the reduction {reference.name}"
    return None


def _along_kept_rows(
    reference: TensorView, reads: Sequence[Access], writes: Sequence[Access]
) -> list[Access]:
    """The loads of every point that are contiguous along a kept dimension, if they are half of all or more.

    Squares of elements serve these and others (`crossed_loads`), in the order of these, whichever input comes
    first. None where an element is stored for each point, as there are no squares then.
    """
    points = {axis for axis in reference.logical if not axis.is_broadcast}
    if any(write.concrete >= points for write in writes):
        return []
    kept = [axis for axis in points if not axis.is_reduction]
    full = [read for read in reads if read.concrete >= points]
    along = [
        read for read in full if any(read.axes.get(axis) is unit_stride_axis(read.tensor) for axis in kept)
    ]
    return along if 2 * len(along) >= len(full) else []


def main_load(
    fusion: Fusion, reference: TensorView, reads: Sequence[Access], preferred: Collection[Access] = ()
) -> Access | None:
    """The load with the most dimensions, if one has any.

    Among several, it is one whose indices are known, as elements that are gathered may lie anywhere. Among
    these, it is one whose own dimensions are the most: a column that is used next to a matrix has one
    element along the dimension that both are read along. Among these, it is one of those `preferred`, then
    one that has the last kept dimension, along which results are contiguous; then the first by input and
    memory order, whatever the order of nodes, which caches change.
    """
    rows = [axis for axis in reference.logical if not axis.is_reduction and not axis.is_broadcast]

    def rank(read: Access) -> tuple[int, bool, int, bool, bool, int, list[int]]:
        own = sum(not axis.is_broadcast for axis in read.tensor.allocation)
        order = {ours: i for i, axis in enumerate(reference.logical) if (ours := read.axes.get(axis))}
        memory = [order[axis] for axis in read.tensor.allocation if axis in order]
        lacks_last = bool(rows) and rows[-1] not in read.concrete
        is_other = read not in preferred
        position = fusion.inputs.index(read.tensor)
        return -len(read.concrete), read.is_gathered, -own, is_other, lacks_last, position, memory

    return min((read for read in reads if read.concrete), key=rank, default=None)


def _share_along_results(
    fusion: Fusion,
    reference: TensorView,
    main: Access,
    maps: Mapping[TensorView, AxisMap],
    after: Collection[TensorView],
) -> bool:
    """Whether threads should go along results as these lie in memory, and not along the main load.

    All loads come from the caches, as none has all dimensions, and the last dimension of the results is a
    vector of a thread, which computes what lacks this dimension once: the forces between all pairs of points
    take as long whichever way the coordinates lie in memory (an H200, 4096 points: 48 us by components of a
    point, 85 by points).
    """
    points = [axis for axis in reference.logical if not axis.is_broadcast]
    rows = [axis for axis in points if not axis.is_reduction]
    if not rows or main.concrete.issuperset(points):
        return False
    last = rows[-1]
    size = as_int(last.extent)
    if size is None or not 1 < size <= MOST_SHARING or unit_stride_axis(reference) is not last:
        return False
    if main.axes.get(last) is unit_stride_axis(main.tensor):
        return False
    for node in fusion.nodes:
        own = maps.get(node.output) if isinstance(node, Pointwise) and not node.is_scalar else None
        if own is not None and node.output not in after and slots_of(node) >= LONG_SLOTS:
            lacks = [axis for axis in points if axis not in own or own[axis].is_broadcast]
            if lacks == [last]:
                return True
    return False


def memory_order(reference: TensorView, main: Access | None) -> list[IterDomain]:
    """The reference's axes in the order of the main load's memory, outermost first.

    Axes along which it is a broadcast come before the others. If an index is made of several axes, such as
    those that a reshape splits, the one along which it is contiguous is the innermost.
    """
    order = list(reference.logical)
    if main is None:
        return order
    place = {axis: i for i, axis in enumerate(main.tensor.allocation) if not axis.is_broadcast}

    def rank(axis: IterDomain) -> tuple[int, bool]:
        own = main.axes.get(axis)
        lies = own if own in place else main.strided.get(axis)
        return (-1, False) if lies is None else (place.get(lies, -1), own is not None)

    return sorted(order, key=rank)


def _with_shared_loads(
    order: list[IterDomain], main: Access, reads: Sequence[Access], writes: Sequence[Access]
) -> list[IterDomain]:
    """The same order with kept axes that the main load lacks inside of others: blocks that run at one time
    read the same elements of it then, so that memory is asked for them once.

    These axes stay outside of what is reduced and of an axis along which an access is contiguous. None moves
    if another load of as many dimensions would be read again in turn.

      H200, streams of 1x4096x4x3072 half mixed by a 4x4 matrix a token, with the kernels
      for the matrices: 90 us, with the new streams outermost 165.
    """
    lacking = [a for a in order if not (a.is_reduction or a.is_broadcast or a in main.concrete)]
    contiguous = {unit for each in (*reads, *writes) if (unit := _contiguous_axis(each)) is not None}
    others = [axis for axis in order if axis not in lacking]
    ends = (i for i, axis in enumerate(others) if axis.is_reduction or axis in contiguous)
    outside = others[: next(ends, len(others))]
    passed = {axis for axis in outside if not axis.is_broadcast}
    for each in reads:
        if len(each.concrete) < len(main.concrete) or each.concrete.isdisjoint(lacking):
            continue
        if not each.concrete.issuperset(passed):
            return order
    return [*outside, *lacking, *others[len(outside) :]]


def _contiguous_axis(access: Access) -> IterDomain | None:
    """The reference's axis along which an access is contiguous, or None."""
    unit = unit_stride_axis(access.tensor)
    return None if unit is None else next((a for a, own in access.axes.items() if own is unit), None)


def reduced_axes(
    reference: TensorView, reductions: Sequence[TensorView], maps: dict[TensorView, AxisMap]
) -> dict[TensorView, frozenset[IterDomain]] | str:
    """The reference's axes that each reduction reduces, or why they have no domain in common."""
    found: dict[TensorView, frozenset[IterDomain]] = {}
    for tensor in reductions:
        mapped = maps.get(tensor, {})
        if len(mapped) != len(reference.logical) or len(tensor.logical) != len(mapped):
            return f"reductions {reference.name} and {tensor.name} have different dimensions"
        if any(axis.is_broadcast for axis in tensor.logical):
            return f"reduction {tensor.name} is of a broadcast"
        found[tensor] = frozenset(axis for axis, own in mapped.items() if own.is_reduction)
    return found


def computed_after(fusion: Fusion, reductions: tuple[TensorView, ...]) -> set[TensorView]:
    """The tensors that follow from a reduction."""
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


def unrelated(tensor: TensorView, reference: TensorView, maps: Mapping[TensorView, AxisMap]) -> str | None:
    """Why no loops of the reference go over the elements of a tensor, or None."""
    covered = maps.get(tensor)
    if covered is None:
        return f"{tensor.name} is not connected with the reduction {reference.name}"
    if any(not axis.is_broadcast and axis not in covered.values() for axis in tensor.maybe_root):
        return f"{tensor.name} has a dimension that the reduction {reference.name} lacks"
    if sizes_differ(covered):
        return f"{tensor.name} has other sizes than the reduction {reference.name}"
    return None


def _reduced_elements(fusion: Fusion, after: Collection[TensorView]) -> set[TensorView]:
    """Returns the tensors that reductions go over and that do not themselves follow from a reduction.

    What meets a reduction's result, and is reduced again with that, may have one value a row.
    """
    found: set[TensorView] = set()
    for node in reversed(fusion.tensor_nodes()):
        if node.output.is_reduction or not found.isdisjoint(node.outputs):
            both = (*node.outputs, *node.inputs)
            found.update(t for t in both if isinstance(t, TensorView) and t not in after)
    return found


def uncovered(
    fusion: Fusion,
    reference: TensorView,
    maps: dict[TensorView, AxisMap],
    after: set[TensorView],
    leave_out: Collection[TensorView] = (),
) -> str | None:
    """Why a tensor does not fit the reference's loops, or None. Those of `leave_out` have others."""
    iteration = [a for a in reference.logical if not a.is_reduction and not a.is_broadcast]
    concrete = [a for a in reference.logical if not a.is_broadcast]
    outputs = set(fusion.output_tensors())
    reduced = _reduced_elements(fusion, after)
    for node in fusion.ordered_nodes():
        for tensor in node.outputs:
            if not isinstance(tensor, TensorView) or tensor in leave_out:
                continue
            covered = maps.get(tensor, {})
            problem = unrelated(tensor, reference, maps)
            if problem is not None:
                return problem
            wanted = concrete if tensor in reduced else iteration
            if any(a not in covered for a in wanted):
                return f"{tensor.name} lacks a dimension of the reduction {reference.name}"
            # The loops of an output go over every point, or once over each row.
            stored = {a for a in concrete if a in covered and not covered[a].is_broadcast}
            if tensor in outputs and stored not in (set(concrete), set(iteration)):
                return (
                    f"output {tensor.name} has neither all dimensions of {reference.name} nor just those "
                    "that it keeps"
                )
    return None
