"""Merges dimensions that are reduced together if no node distinguishes them.

    s[n] = sum(x[n, h, w]);  x - s      becomes      s[n] = sum(x[n, h * w]);  x - s

Each tensor must have all of these dimensions, adjacent, or none of them. Inputs and outputs must have them
adjacent in memory without gaps. A row is then one dimension. Its length can be assumed to be constant, and
vectors run along it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Node, Reduction
from fusewright.ir.value import TensorView
from fusewright.ir.view import Broadcast, Permute, Relabel, Squeeze
from fusewright.rewrite.border.corresponding_axes import SAME_WORK_EVERYWHERE, AxisClasses, axis_classes
from fusewright.rewrite.border.product_sizes import name_products
from fusewright.sym import ONE, product

#: The runs of a tensor's dimensions that become one dimension each, in order. Most runs are single
#: dimensions.
_Runs = list[list[int]]


def merge_reduced_dimensions(fusion: Fusion) -> Fusion:
    """Merges adjacent dimensions that are reduced together; returns `fusion`."""
    nodes = fusion.tensor_nodes()
    if not any(_reduces_neighbours(node) for node in nodes):
        return fusion
    if len(nodes) < sum(not node.is_scalar for node in fusion.nodes):
        return fusion
    if not all(type(node) in SAME_WORK_EVERYWHERE for node in nodes):
        return fusion
    tensors = fusion.tensors()
    links = _links(fusion, tensors, axis_classes(fusion, nodes))
    if not links:
        return fusion
    runs = {tensor: _runs(tensor.logical, links) for tensor in tensors}
    for node in nodes:
        _renumber(node, runs)
    for tensor in tensors:
        _merge(fusion, tensor, runs[tensor])
    fusion.edits += 1
    name_products(fusion)
    return fusion


def _reduces_neighbours(node: Node) -> bool:
    if not isinstance(node, Reduction):
        return False
    dims = [i for i, axis in enumerate(node.output.logical) if axis.is_reduction]
    return any(b - a == 1 for a, b in pairwise(dims))


def _links(
    fusion: Fusion, tensors: Sequence[TensorView], classes: AxisClasses
) -> dict[IterDomain, IterDomain]:
    """Maps each axis that is merged with the next axis of its tensor to that axis."""
    beside: dict[IterDomain, set[IterDomain | None]] = {}
    before: dict[IterDomain, set[IterDomain | None]] = {}
    reduced: set[IterDomain] = set()
    border = {*fusion.inputs, *fusion.output_tensors()}
    for tensor in tensors:
        own = [classes.of(axis) for axis in tensor.logical]
        together = [*map(_are_alike, tensor.logical, tensor.logical[1:]), False]
        if tensor in border and not _lies_in_order(tensor):
            together = [False] * len(own)
        repeated = len(set(own)) < len(own)
        for i, axis in enumerate(tensor.logical):
            is_one = together[i] and not repeated
            beside.setdefault(own[i], set()).add(own[i + 1] if is_one else None)
            after = i > 0 and together[i - 1] and not repeated
            before.setdefault(own[i], set()).add(own[i - 1] if after else None)
            if axis.is_reduction:
                reduced.add(own[i])
    joined = {
        a: b
        for a, found in beside.items()
        if len(found) == 1 and (b := next(iter(found))) is not None and a in reduced and before[b] == {a}
    }
    return {
        axis: after
        for tensor in tensors
        for axis, after in pairwise(tensor.logical)
        if joined.get(classes.of(axis)) is classes.of(after)
    }


def _are_alike(a: IterDomain, b: IterDomain) -> bool:
    """Whether neighbouring axes are of the same kind and not expanded."""
    return a.kind is b.kind and a.expanded is None and b.expanded is None


def _lies_in_order(tensor: TensorView) -> bool:
    """Whether the dimensions are in memory in order, without gaps."""
    return False not in tensor.contiguity and tensor.is_row_major


def _runs(axes: Sequence[IterDomain], links: Mapping[IterDomain, IterDomain]) -> _Runs:
    runs: _Runs = []
    for dim, axis in enumerate(axes):
        if dim and links.get(axes[dim - 1]) is axis:
            runs[-1].append(dim)
        else:
            runs.append([dim])
    return runs


def _renumber(node: Node, runs: Mapping[TensorView, _Runs]) -> None:
    """Updates the dimension numbers that a node states, for dimensions that are to be merged."""
    if not node.traits.relabel:
        return
    of_source = _seen(node.source, runs[node.source])
    place = {dim: number for number, run in enumerate(of_source) for dim in run}
    firsts = [run[0] for run in runs[node.output]]
    if isinstance(node, Broadcast):
        node.flags = tuple(node.flags[dim] for dim in firsts)
    elif isinstance(node, Squeeze):
        node.dims = tuple(dict.fromkeys(place[dim] for dim in node.dims))
    elif isinstance(node, Permute):
        node.dims = tuple(place[node.dims[dim]] for dim in firsts)
    elif isinstance(node, Relabel):
        sources = [node.dims[dim] for dim in firsts]
        node.dims = tuple(None if dim is None else place[dim] for dim in sources)


def _seen(tensor: TensorView, runs: _Runs) -> _Runs:
    """The runs of the dimensions that consumers see, as numbers of these dimensions."""
    number = {axis: i for i, axis in enumerate(tensor.shape)}
    axes = [[tensor.logical[dim] for dim in run] for run in runs]
    return [[number[axis] for axis in run] for run in axes if run[0] in number]


def _merge(fusion: Fusion, tensor: TensorView, runs: _Runs) -> None:
    if len(runs) == len(tensor.logical):
        return
    dense = dict(zip(tensor.memory_axes, tensor.contiguity))
    place = {axis: i for i, axis in enumerate(tensor.allocation)}
    merged: list[IterDomain] = []
    order: list[tuple[int, IterDomain, bool | None]] = []
    for run in runs:
        axes = [tensor.logical[dim] for dim in run]
        axis = axes[0]
        if len(axes) > 1:
            extent = ONE if axis.is_broadcast else product([each.extent for each in axes])
            axis = fusion.new_axis(extent, axis.kind)
        merged.append(axis)
        if axes[0] in place:
            order.append((place[axes[0]], axis, dense.get(axes[0])))
    tensor.redefine(merged)
    tensor.loop = list(merged)
    order.sort(key=lambda each: each[0])
    tensor.allocation = tuple([axis for _, axis, _ in order])
    tensor.contiguity = tuple([flag for _, axis, flag in order if not axis.is_reduction])
