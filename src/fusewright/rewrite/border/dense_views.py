"""Gives dense inputs and outputs that the kernel only uses through one reshape the dimensions of the reshape.

    x[i, j, k] -> reshape [i, j * k] -> mul      becomes      x[i, j * k] -> mul
    mul -> store, reshaped, y[i, j, k]           becomes      mul -> y[i, j * k]

The memory and the place of each element are the same. Afterwards dimensions state the rows, their length and
where they begin, however the definition was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fusewright.ir.axis import IterDomain
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Indexed, Node, Stored
from fusewright.ir.value import TensorView
from fusewright.ops.build_indexed import is_reshape, is_reshape_map
from fusewright.rewrite.border.product_sizes import name_products
from fusewright.rewrite.replacement import shape_of
from fusewright.sym import ZERO, Mul, Symbol


def view_dense_memory(fusion: Fusion) -> Fusion:
    """Removes reshapes at the border by changing the dimensions of inputs and outputs; returns `fusion`."""
    nodes = fusion.ordered_nodes()
    indexed = [node for node in nodes if isinstance(node, (Indexed, Stored))]
    shown = [node for node in indexed if type(node) is Stored and _is_view(fusion, node)]
    stores = list({node.source: node for node in shown}.values())  # one store for each source
    sources = dict.fromkeys([node.source for node in indexed if isinstance(node, Indexed)])
    viewed = [source for source in sources if fusion.is_input(source) and _is_seen_reshaped(fusion, source)]
    # A size that indices are computed with must stay the size of a dimension, so that schedulers can assume
    # that it is constant. So it must not become a factor of a merged dimension.
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
    """Whether all readers of an input read all of it through the same reshape."""
    outputs = fusion.output_tensors()
    if not is_dense(source) or any(output.alias is source for output in fusion.outputs):
        return False
    shape = shape_of(source.uses[0].output)
    return all(
        isinstance(node, Indexed)
        and node.source is source
        and not (node.indices or node.filled)
        and node.output not in outputs
        and shape_of(node.output) == shape
        and is_reshape(node)
        for node in source.uses
    )


def _view_input(fusion: Fusion, source: TensorView) -> None:
    """Gives an input the dimensions of the reshape through which all nodes read it."""
    axes = [fusion.copy_axis(axis) for axis in source.uses[0].output.shape]
    for node in list(source.uses):
        for use in list(node.output.uses):
            fusion.replace_inputs(use, {node.output: source})
        fusion.remove_node(node)
    redefine(source, axes)


def _is_view(fusion: Fusion, node: Stored) -> bool:
    """Whether an output only stores a computed tensor, reshaped."""
    output, above = node.output, node.source.definition
    if above is None or above.traits.indexed or node.source in fusion.output_tensors():
        return False
    has_home = any(out.tensor is output and out.alias is not None for out in fusion.outputs)
    return (
        not (output.uses or has_home) and is_dense(output) and is_reshape_map(node.map, output, node.source)
    )


def _view_output(fusion: Fusion, node: Stored) -> None:
    """Gives an output the dimensions of the tensor that it stores."""
    output, stored = node.output, node.source
    above = stored.definition
    assert above is not None
    fusion.remove_node(node)
    redefine(output, [fusion.copy_axis(axis) for axis in stored.logical])
    for use in list(stored.uses):
        fusion.replace_inputs(use, {stored: output})
    fusion.remove_node(above)
    fusion.add_node(above.copy({stored: output}))


def is_dense(tensor: TensorView) -> bool:
    """Whether a tensor's elements are in memory in the order of the dimensions, without gaps."""
    if tensor.is_cpu or tensor.is_expanded or False in tensor.contiguity:
        return False
    return tensor.is_row_major and ZERO not in [axis.extent for axis in tensor.shape]


def _symbols(nodes: Iterable[Node]) -> set[Symbol]:
    return {symbol for node in nodes for e in node.index_expressions() for symbol in e.free_symbols}


def _factors(view: TensorView) -> set[Symbol]:
    """The factors of the sizes of a view that are products."""
    return {symbol for e in view.extents if isinstance(e, Mul) for symbol in e.free_symbols}


def redefine(tensor: TensorView, axes: Sequence[IterDomain]) -> None:
    """Gives a dense tensor these dimensions, in memory order."""
    tensor.redefine(axes)
    tensor.loop = list(axes)
    tensor.allocation = tuple(axes)
    kept = [axis for axis in axes if not axis.is_reduction]
    tensor.contiguity = tuple(None if axis.is_broadcast else True for axis in kept)
