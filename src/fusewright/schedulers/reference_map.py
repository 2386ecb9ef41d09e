"""The correspondence of the axes of each use of a tensor to the axes of the scheduler's reference.

The maps are those that `transform_like` follows once every input has its loads (see
`io.cache_inputs_and_outputs`). A computed tensor has one map. An input has one map for each of its loads: a
node that relabels it has a separate load, and all other uses share one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from fusewright.analyze.axis_map import is_own_load, operand_map
from fusewright.analyze.kinds import is_gather
from fusewright.analyze.runs import expression_run, indexed_run, stored_run, straight_pieces
from fusewright.analyze.stepped_runs import SteppedRun, stepped_run
from fusewright.analyze.vectorize import unit_stride_axis
from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.index_map import position_of
from fusewright.ir.node import Indexed, Node, Stored
from fusewright.ir.value import TensorView
from fusewright.schedule.propagate import spanning_walk
from fusewright.sym import Expr

#: The reference's axis -> a tensor's.
AxisMap = dict[IterDomain, IterDomain]


def reference_maps(reference: TensorView, axes: Sequence[IterDomain]) -> dict[TensorView, AxisMap]:
    """For each tensor that is connected with `reference`, its axis for each of `axes` that it has.

    The map of an input is that of one of its uses; `loads` has those of all uses.
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
        node: the node that reads the input (the first of those that share a load); None for a store.
        axes: maps an axis of the reference to the corresponding axis of the tensor.
        varying: the reference's axes along which other elements are read, although no axis corresponds.
        sizes: for each axis of the reference, the numbers besides the size that a vector along it must
            divide.
        joined: for each of these, the tensor's dimensions that correspond to it together, if more than one.
        by_index: whether `node` reads the input by index, or the output is stored by index; not for the loads
            of the indices.
        dims: for an access by index, the dimension of its map's positions for each axis of the reference.
        strided: for a load by index, the innermost in memory of the tensor's axes whose index varies along
            each axis of the reference.
        shared: for a load by index, the numbers that a vector along each axis of the reference must divide
            for all of its elements to be one element of the tensor.
        stepped: for a load by index, how vectors along an axis of the reference go backward or take every
            n-th element of the tensor's contiguous dimension.
    """

    tensor: TensorView
    node: Node | None
    axes: AxisMap
    varying: frozenset[IterDomain] = frozenset()
    sizes: Mapping[IterDomain, tuple[Expr, ...]] = field(default_factory=dict)
    joined: Mapping[IterDomain, tuple[IterDomain, ...]] = field(default_factory=dict)
    by_index: bool = False
    dims: Mapping[IterDomain, int] = field(default_factory=dict)
    strided: AxisMap = field(default_factory=dict)
    shared: Mapping[IterDomain, tuple[Expr, ...]] = field(default_factory=dict)
    stepped: Mapping[IterDomain, SteppedRun] = field(default_factory=dict)

    def pieces_along(self, axis: IterDomain) -> tuple[Expr, ...] | None:
        """The sizes at whose multiples neighbours along the reference's axis are none in memory; None if they
        are none elsewhere, either.
        """
        if not self.by_index:
            return ()
        if not isinstance(self.node, Indexed):
            return None
        return straight_pieces(self.node, self.dims[axis], unit_stride_axis(self.tensor))

    @property
    def is_gathered(self) -> bool:
        """Whether the values of index tensors say where elements lie."""
        return is_gather(self.node)

    @property
    def concrete(self) -> frozenset[IterDomain]:
        """The reference's axes along which the tensor has elements."""
        kept = (axis for axis, ours in self.axes.items() if not (ours.is_broadcast or ours.is_reduction))
        return self.varying.union(kept)


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
            key = value, node if own and not position else None
            if key not in found and isinstance(node, Indexed) and not position:
                found[key] = _indexed_load(node, maps[node.output])
            elif key not in found:
                to_tensor = {theirs: ours for ours, theirs in operand_map(node, position).items()}
                of_reader = maps[node.output].items()
                axes = {axis: to_tensor[theirs] for axis, theirs in of_reader if theirs in to_tensor}
                found[key] = Access(value, node, axes)
    return list(found.values())


def read_once(reads: Sequence[Access], axes: Collection[IterDomain]) -> frozenset[TensorView]:
    """The inputs of which one load alone reads, an element for each point of these axes of the reference."""
    tensors = [read.tensor for read in reads]
    full = (read for read in reads if read.concrete.issuperset(axes) and not read.by_index)
    return frozenset(read.tensor for read in full if tensors.count(read.tensor) == 1)


def _indexed_load(node: Indexed, reader: AxisMap) -> Access:
    """The load of what is read by index; `reader` leads from the reference's axes to those of its output."""
    source, root = node.source, node.output.maybe_root
    unit = unit_stride_axis(source)
    axes: AxisMap = {}
    strided: AxisMap = {}
    varying: set[IterDomain] = set()
    sizes: dict[IterDomain, tuple[Expr, ...]] = {}
    joined: dict[IterDomain, tuple[IterDomain, ...]] = {}
    shared: dict[IterDomain, tuple[Expr, ...]] = {}
    stepped: dict[IterDomain, SteppedRun] = {}
    position = {axis: dim for dim, axis in enumerate(root)}
    dims = {axis: position[theirs] for axis, theirs in reader.items()}
    for axis, dim in dims.items():
        by_value = (node.index_tensors[n].shape[dim] for n in node.map.index_numbers)
        if not node.map.depends_on(dim) and all(each.is_broadcast for each in by_value):
            continue
        varying.add(axis)
        touched = {ours for ours, e in zip(source.shape, node.map.indices) if _differs_along(e, dim)}
        strided.update((axis, ours) for ours in source.allocation if ours in touched)
        along = indexed_run(node, dim, unit)
        if along is not None and along.moves and unit is not None:
            axes[axis], sizes[axis], joined[axis] = unit, along.sizes, along.joined
            continue
        if along is not None and not along.moves:
            shared[axis] = along.sizes
        if along is None and (run := stepped_run(node, dim)) is not None:
            stepped[axis] = run
        moved = (ours for ours, e in zip(source.shape, node.map.indices) if _goes_along(e, dim))
        ours = next((each for each in moved if not each.is_broadcast and each is not unit), None)
        if ours is not None:
            axes[axis] = ours
    return Access(source, node, axes, frozenset(varying), sizes, joined, True, dims, strided, shared, stepped)


def _differs_along(index: Expr, dim: int) -> bool:
    return any(position_of(symbol) == dim for symbol in index.free_symbols)


def _goes_along(index: Expr, dim: int) -> bool:
    run = expression_run(index, dim)
    return run is not None and run.moves


def stores(fusion: Fusion, maps: Mapping[TensorView, AxisMap]) -> list[Access]:
    """The stores of a fusion, one for each output that it computes."""
    outputs = (tensor for tensor in fusion.output_tensors() if tensor.definition is not None)
    return [_store(tensor, maps[tensor]) for tensor in outputs if tensor in maps]


def _store(tensor: TensorView, axes: AxisMap) -> Access:
    node = tensor.definition
    if not isinstance(node, Stored):
        return Access(tensor, None, axes)
    unit = unit_stride_axis(tensor)
    position = {axis: dim for dim, axis in enumerate(tensor.maybe_root)}
    dims = {axis: position[ours] for axis, ours in axes.items()}
    runs = {axis: stored_run(node, dim, unit) for axis, dim in dims.items()}
    moved = {axis: run for axis, run in runs.items() if run is not None and run.moves}
    along = dict.fromkeys(moved, unit) if unit is not None else {}
    varying = frozenset(axis for axis, ours in axes.items() if not ours.is_broadcast)
    sizes = {axis: run.sizes for axis, run in moved.items()}
    joined = {axis: run.joined for axis, run in moved.items()}
    return Access(tensor, None, along, varying, sizes, joined, True, dims)
