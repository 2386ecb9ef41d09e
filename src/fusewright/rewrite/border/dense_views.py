"""Inputs and outputs without gaps that the kernel sees through one reshape alone have its dimensions.

    x[i, j, k] -> reshape [i, j * k] -> mul      becomes      x[i, j * k] -> mul
    mul -> store, reshaped, y[i, j, k]           becomes      mul -> y[i, j * k]

The memory is the same, and so is where an element lies in it. What rows there are, how long they are and
where they begin is then said by dimensions, however the definition came to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.index_map import IndexMap, positions
from fusewright.ir.node import Indexed, Node, Stored
from fusewright.ir.value import TensorView
from fusewright.ops.build_indexed import reshape_map
from fusewright.rewrite.border.product_sizes import name_products
from fusewright.rewrite.replacement import shape_of
from fusewright.sym import TRUE, ZERO, Mul, Symbol, product


def view_dense_memory(fusion: Fusion) -> Fusion:
    """`fusion` itself, in which reshapes at the border are dimensions of inputs and outputs."""
    nodes = fusion.ordered_nodes()
    indexed = [node for node in nodes if isinstance(node, (Indexed, Stored))]
    shown = [node for node in indexed if type(node) is Stored and _is_view(fusion, node)]
    stores = list({node.source: node for node in shown}.values())  # others store what an output has
    sources = dict.fromkeys([node.source for node in indexed if isinstance(node, Indexed)])
    viewed = [source for source in sources if fusion.is_input(source) and _is_seen_reshaped(fusion, source)]
    # A size that an index is computed by stays one of a dimension, so that it may be assumed to be constant.
    while True:
        views = {*stores, *(use for source in viewed for use in source.uses)}
        used = _symbols(node for node in nodes if node not in views)
        kept = [source for source in viewed if used.isdisjoint(_factors(source.uses[0].output))]
        if len(kept) == len(viewed):
            break
        viewed = kept
    for store in stores:
        _view_output(fusion, store)
    for source in viewed:
        _view_input(fusion, source)
    if stores or viewed:
        name_products(fusion)
    return fusion


def _is_seen_reshaped(fusion: Fusion, source: TensorView) -> bool:
    """Whether all that reads an input sees all of it through the same reshape."""
    outputs = fusion.output_tensors()
    if not _is_dense(source) or any(output.alias is source for output in fusion.outputs):
        return False
    shape = shape_of(source.uses[0].output)
    return all(
        isinstance(node, Indexed)
        and node.source is source
        and not (node.indices or node.filled)
        and node.output not in outputs
        and shape_of(node.output) == shape
        and _shows_all(node)
        for node in source.uses
    )


def _view_input(fusion: Fusion, source: TensorView) -> None:
    """Gives an input the dimensions that all its readers see."""
    axes = [fusion.copy_axis(axis) for axis in source.uses[0].output.shape]
    for node in list(source.uses):
        for use in list(node.output.uses):
            fusion.replace_inputs(use, {node.output: source})
        fusion.remove_node(node)
    _redefine(source, axes)


def _is_view(fusion: Fusion, node: Stored) -> bool:
    """Whether an output is what is stored, reshaped, and nothing else."""
    output, above = node.output, node.source.definition
    if above is None or above.traits.indexed or node.source in fusion.output_tensors():
        return False
    has_home = any(out.tensor is output and out.alias is not None for out in fusion.outputs)
    return not (output.uses or has_home) and _is_dense(output) and _is_reshape(node.map, output, node.source)


def _view_output(fusion: Fusion, node: Stored) -> None:
    """Gives an output the dimensions that it is computed along."""
    output, stored = node.output, node.source
    above = stored.definition
    assert above is not None
    fusion.remove_node(node)
    _redefine(output, [fusion.copy_axis(axis) for axis in stored.logical])
    for use in list(stored.uses):
        fusion.replace_inputs(use, {stored: output})
    fusion.remove_node(above)
    fusion.add_node(above.copy({stored: output}))


def _is_dense(tensor: TensorView) -> bool:
    """Whether elements lie in the order of the dimensions, without gaps."""
    if tensor.is_cpu or tensor.is_expanded or False in tensor.contiguity:
        return False
    return tuple(tensor.memory_axes) == tensor.shape and ZERO not in [axis.extent for axis in tensor.shape]


def _shows_all(node: Indexed) -> bool:
    """Whether a read has all elements of its source, in their order: a slice from 0 on has the same map."""
    source, view = node.source, node.output
    is_whole = node.inverse is not None and node.inverse.pred is TRUE
    is_whole |= product(source.extents) is product(view.extents)
    return is_whole and _is_reshape(node.map, source, view)


def _is_reshape(index_map: IndexMap, memory: TensorView, view: TensorView) -> bool:
    """Whether a map leads from each position in `view` to its element in `memory`, in the same order."""
    if view.is_expanded or index_map.pred is not TRUE:
        return False
    target = view.extents
    return index_map == reshape_map(memory.extents, target, positions(target))


def _symbols(nodes: Iterable[Node]) -> set[Symbol]:
    return {symbol for node in nodes for e in node.index_expressions() for symbol in e.free_symbols}


def _factors(view: TensorView) -> set[Symbol]:
    """The sizes that are merged in those of a view."""
    return {symbol for e in view.extents if isinstance(e, Mul) for symbol in e.free_symbols}


def _redefine(tensor: TensorView, axes: Sequence[IterDomain]) -> None:
    tensor.redefine(axes)
    tensor.loop = list(axes)
    tensor.allocation = tuple(axes)
    kept = [axis for axis in axes if not axis.is_reduction]
    tensor.contiguity = tuple(None if axis.is_broadcast else True for axis in kept)
