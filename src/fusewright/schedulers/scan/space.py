"""The iteration space of fusions with scans along one dimension."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fusewright.analyze.kinds import foreign_node
from fusewright.analyze.parameters import too_many_parameters
from fusewright.analyze.scan_axes import scanned_root
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Scan
from fusewright.ir.value import TensorView
from fusewright.schedulers.pointwise.space import covering_space
from fusewright.schedulers.reference_map import Access, AxisMap, loads, stores


@dataclass(frozen=True, eq=False)
class ScanSpace:
    """The iteration space of all tensors of the fusion.

    Attributes:
        reference: a tensor that has all of their dimensions.
        scanned: the dimension that all scans run along.
        iteration: its other dimensions in the memory order of the main access; none if all have one point.
        points: its other dimensions if all of them have one point.
        accesses: the loads and stores.
        main: the access whose order counts: a load of all dimensions, or a store.
    """

    reference: TensorView
    scanned: IterDomain
    iteration: tuple[IterDomain, ...]
    points: tuple[IterDomain, ...]
    accesses: tuple[Access, ...]
    main: Access

    @property
    def is_inner(self) -> bool:
        """Whether the scanned dimension is the innermost in memory."""
        ordered = [axis for axis in self.main.tensor.allocation if not axis.is_broadcast]
        innermost = ordered[-1] if ordered else None
        # Read backward, the dimension goes along none of memory, and differs along one.
        ours = self.main.axes.get(self.scanned, self.main.strided.get(self.scanned))
        return not self.iteration or innermost is ours

    @property
    def aligned(self) -> Access | None:
        """At whose aligned addresses shifted vectors begin: an output of all points, else the main load."""
        wanted = {axis for axis in (*self.iteration, self.scanned) if not axis.is_broadcast}
        full = (access for access in self.accesses if access.node is None and access.concrete >= wanted)
        return next(full, self.main if self.main.node is not None else None)

    @property
    def goes_along(self) -> bool:
        """Whether an access goes along the innermost dimension, forward."""
        return any(self.inner_axis in access.axes for access in self.accesses)

    @property
    def inner_axis(self) -> IterDomain:
        """The dimension of the reference that vectors may lie along."""
        return self.scanned if self.is_inner else self.iteration[-1]


def scan_space(fusion: Fusion) -> ScanSpace | str:
    """The space of a fusion all of whose scans run along one dimension, or the reason why there is none."""
    foreign = foreign_node(fusion, Scan) or too_many_parameters(fusion)
    if foreign is not None:
        return foreign
    nodes = fusion.tensor_nodes()
    scans = [node for node in nodes if isinstance(node, Scan)]
    if not scans:
        return "it has no scan"
    computed = (node.output for node in reversed(nodes) if not node.output.is_placed)
    reference = max(computed, key=_dimensions)
    space = covering_space(fusion, reference)
    if isinstance(space, str):
        return space
    scanned = _scanned_dimension(space.maps[scans[0].output], scans[0])
    for node in scans:
        if _scanned_dimension(space.maps[node.output], node) is not scanned:
            names = f"{scans[0].output.name} and {node.output.name}"
            return f"scans {names} run along different dimensions"
    for tensor in (node.output for node in nodes):
        if not set(tensor.iterated) <= set(space.maps[tensor].values()):
            return f"{tensor.name} has a dimension of one point that {reference.name} lacks"
    accesses = [*loads(fusion, space.maps), *stores(fusion, space.maps)]
    main = _main_access(accesses, reference)
    place = {axis: i for i, axis in enumerate(main.tensor.allocation) if not axis.is_broadcast}
    rows = [axis for axis in reference.shape if axis is not scanned]
    # Outside of those that it lies along are those that it is a broadcast along.
    rows.sort(key=lambda axis: _place(main.axes, place, axis))
    if all(axis.is_broadcast for axis in rows):
        return ScanSpace(reference, scanned, (), tuple(rows), tuple(accesses), main)
    return ScanSpace(reference, scanned, tuple(rows), (), tuple(accesses), main)


def _dimensions(tensor: TensorView) -> tuple[int, int]:
    """Returns a tensor's number of dimensions of more than one point, and of all."""
    return sum(not axis.is_broadcast for axis in tensor.shape), tensor.ndim


def _scanned_dimension(covered: AxisMap, node: Scan) -> IterDomain:
    """The reference's dimension that a scan runs along."""
    return next(axis for axis, ours in covered.items() if ours is scanned_root(node))


def _place(axes: AxisMap, place: dict[IterDomain, int], axis: IterDomain) -> int:
    ours = axes.get(axis)
    return -1 if ours is None else place.get(ours, -1)


def _main_access(accesses: Iterable[Access], reference: TensorView) -> Access:
    """The first load of every element, or else the first such store: every output is one."""
    wanted = {axis for axis in reference.shape if not axis.is_broadcast}
    return next(access for access in accesses if access.concrete.issuperset(wanted))
