"""Drops dimensions of one element where reductions of rows and of columns meet.

    s[1, n] = sum(x[1, n, m]);  t[1, m] = sum(x[1, n, m])      becomes      s[n] = sum(x[n, m]);  t[m] = ...

Schedulers divide the dimensions of such a kernel into rows and columns. One of a single element, such as a
batch of one, is reduced with the rows here and with the columns there, or by neither, and is in no one's way
where it is gone. Inputs and outputs that lose a dimension must be dense, since their memory stays as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.index_map import positions
from fusewright.ir.node import Copy, Indexed, Node, Random, Reduction
from fusewright.ir.value import TensorView
from fusewright.ir.view import Broadcast, Permute, Relabel, Squeeze
from fusewright.rewrite.border.corresponding_axes import SAME_WORK_EVERYWHERE, AxisClasses, axis_classes
from fusewright.rewrite.border.dense_views import is_dense
from fusewright.rewrite.replacement import read_instead
from fusewright.sym import ONE, ZERO

_Single = Collection[IterDomain]


def drop_single_dimensions(fusion: Fusion) -> Fusion:
    """Drops dimensions of one element if reductions reduce different dimensions; returns `fusion`."""
    nodes = fusion.tensor_nodes()
    reductions = [node for node in nodes if isinstance(node, Reduction)]
    if len(reductions) < 2 or not any(_is_single(a) for node in reductions for a in node.output.logical):
        return fusion
    if not all(_may_have_fewer(fusion, node) for node in nodes):
        return fusion
    classes = axis_classes(fusion, nodes)
    dropped = _single_axes(fusion, classes, reductions)
    reduced = {
        frozenset(classes.of(a) for a in node.output.logical if a.is_reduction and a not in dropped)
        for node in reductions
    }
    if not dropped or len(reduced) < 2:
        return fusion
    for node in nodes:
        _renumber(node, dropped)
    for tensor in _of_the_kernel(fusion):
        _drop(tensor, dropped)
    for node in nodes:
        _forget_identity(fusion, node)
    fusion.edits += 1
    return fusion


def _may_have_fewer(fusion: Fusion, node: Node) -> bool:
    """Whether a node's dimensions may be dropped: its work is the same at each position, or it is a read of
    an input that nothing reads otherwise.
    """
    if isinstance(node, Indexed):
        is_own = fusion.is_input(node.source) and all(isinstance(use, Indexed) for use in node.source.uses)
        return is_own and not node.indices and not node.filled
    return type(node) in SAME_WORK_EVERYWHERE and not isinstance(node, Random)


def _of_the_kernel(fusion: Fusion) -> list[TensorView]:
    """The tensors that have the kernel's dimensions: all but those that are read by index."""
    return [t for t in fusion.tensors() if not any(isinstance(use, Indexed) for use in t.uses)]


def _is_single(axis: IterDomain) -> bool:
    return axis.extent is ONE and axis.expanded is None


def _single_axes(
    fusion: Fusion, classes: AxisClasses, reductions: Sequence[Reduction]
) -> frozenset[IterDomain]:
    """The axes of one element that no tensor has more of, at a border whose memory stays as it is."""
    tensors = _of_the_kernel(fusion)
    kept = {classes.of(axis) for tensor in tensors for axis in tensor.logical if not _is_single(axis)}
    border = {*fusion.inputs, *fusion.output_tensors()}
    for tensor in tensors:
        own = {classes.of(axis) for axis in tensor.logical}
        if tensor in border and (not is_dense(tensor) or own.isdisjoint(kept)):
            kept |= own
    for node in reductions:  # each reduces at least one dimension
        own = {classes.of(axis) for axis in node.output.logical if axis.is_reduction}
        if own.isdisjoint(kept):
            kept |= own
    return frozenset(axis for tensor in tensors for axis in tensor.logical if classes.of(axis) not in kept)


def _renumber(node: Node, dropped: _Single) -> None:
    """Updates the dimension numbers that a node states, for dimensions that are to be dropped."""
    if isinstance(node, Indexed):
        shape = node.output.shape
        left = iter(positions([axis.extent for axis in shape if axis not in dropped]))
        node.map = node.map.at([ZERO if axis in dropped else next(left) for axis in shape])
        node.inverse = None
    if not node.traits.relabel:
        return
    seen = [axis for axis in node.source.shape if axis not in dropped]
    place = {dim: seen.index(axis) for dim, axis in enumerate(node.source.shape) if axis not in dropped}
    kept = [dim for dim, axis in enumerate(node.output.logical) if axis not in dropped]
    if isinstance(node, Broadcast):
        node.flags = tuple([node.flags[dim] for dim in kept])
    elif isinstance(node, Squeeze):
        node.dims = tuple([place[dim] for dim in node.dims if dim in place])
    elif isinstance(node, Permute):
        node.dims = tuple([place[node.dims[dim]] for dim in kept])
    elif isinstance(node, Relabel):
        sources = [node.dims[dim] for dim in kept]
        node.dims = tuple([None if dim is None else place[dim] for dim in sources])


def _drop(tensor: TensorView, dropped: _Single) -> None:
    left = [axis for axis in tensor.logical if axis not in dropped]
    if len(left) == len(tensor.logical):
        return
    dense = dict(zip(tensor.memory_axes, tensor.contiguity))
    order = [axis for axis in tensor.allocation if axis not in dropped]
    tensor.redefine(left)
    tensor.loop = list(left)
    tensor.allocation = tuple(order)
    tensor.contiguity = tuple([dense[axis] for axis in order if not axis.is_reduction])


def _forget_identity(fusion: Fusion, node: Node) -> None:
    """Removes a node that only inserted or removed what is gone."""
    if not node.traits.relabel or node.axis_map(0) != tuple(range(node.source.ndim)):
        return
    source, output = node.source, node.output
    if output in fusion.output_tensors() or not read_instead(fusion, output, source):
        fusion.remove_node(node)
        fusion.add_node(Copy(source, output))
    else:
        fusion.remove_node(node)
