"""Reduces the dimensions before a reshape or permute instead of the dimensions that it made.

    sum(reshape(x, [b * s, h]), [0])         becomes    sum(x, [0, 1])
    sum(cast(reshape(x, [b * s, h])), [0])   becomes    sum(cast(x), [0, 1])
    sum(permute(x, [2, 0, 1]), [1, 2])       becomes    sum(x, [0, 1])
    sum(permute(x, [2, 1, 0]), [2])          becomes    permute(sum(x, [0]), [1, 0])

So the reduction has the same dimensions as other readers of x. The pass does not apply if elementwise work
continues in the dimensions after the reshape or permute. It changes the order of elements, which no reduction
specifies. A reduction that returns positions has these as a second operand and is not changed.
"""

from __future__ import annotations

from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Indexed, Node, Pointwise, Reduction
from fusewright.ir.value import TensorView
from fusewright.ir.view import Permute
from fusewright.ops import build_shape
from fusewright.ops.build_indexed import is_reshape, regrouped
from fusewright.ops.build_reduction import reduce_states
from fusewright.rewrite.replacement import remove_dead, return_instead
from fusewright.sym import ONE


def reduce_before_reshapes(fusion: Fusion) -> Fusion:
    """Moves reductions in front of reshapes and permutes; returns `fusion`."""
    outputs = set(fusion.output_tensors())
    for node in fusion.ordered_nodes():
        if not isinstance(node, Reduction) or len(node.inputs) != 1:
            continue
        chain = _to_view(node, outputs)
        if chain is None:
            continue
        view, *between = chain
        dims = _permuted_dims(view, node) if isinstance(view, Permute) else _dims_before(view, node)
        if dims is None:
            continue
        value = view.tensor_inputs[0]
        for step in between:
            value = _computed(fusion, step, value)
        results = reduce_states(fusion, node.op, [value], dims)
        for old, new in zip(node.outputs, results):
            assert isinstance(old, TensorView)
            in_order = _in_the_order_of(fusion, view, node, new) if isinstance(view, Permute) else new
            return_instead(fusion, old, in_order, outputs)
            outputs.discard(old)
        remove_dead(fusion, node, outputs)  # other passes count the readers
    return fusion


def _to_view(node: Reduction, outputs: set[TensorView]) -> list[Node] | None:
    """The reshape or permute that a reduction reads, and the elementwise nodes between the two, in order.

    None if there is no such reshape or permute, or if it has other readers.
    """
    chain: list[Node] = []
    (tensor,) = node.tensor_inputs
    while True:
        above = tensor.definition
        if above is None or len(above.tensor_inputs) != 1:
            return None
        chain.insert(0, above)
        if isinstance(above, (Indexed, Permute)):
            is_alone = all(_is_reduced(use) or _is_of_library(use) for use in tensor.uses)
            return chain if is_alone and (isinstance(above, Permute) or _is_of_whole_dims(above)) else None
        if not isinstance(above, Pointwise) or tensor in outputs or len(tensor.uses) > 1:
            return None
        (tensor,) = above.tensor_inputs


def _is_reduced(node: Node) -> bool:
    """Whether a node reduces one tensor, or computes a tensor that is only reduced."""
    if isinstance(node, Reduction):
        return len(node.inputs) == 1
    one = isinstance(node, Pointwise) and len(node.tensor_inputs) == 1
    return one and bool(node.output.uses) and all(map(_is_reduced, node.output.uses))


def _is_of_library(node: Node) -> bool:
    """Whether a node is a library call or a view that only library calls read.

    These read the viewed tensor.
    """
    if node.traits.whole:
        return True
    shows = (node.traits.view or node.traits.indexed) and len(node.inputs) == 1
    return shows and bool(node.output.uses) and all(map(_is_of_library, node.output.uses))


def _is_of_whole_dims(node: Indexed) -> bool:
    """Whether a read is a reshape, of and to dimensions that are all reduced or kept."""
    return is_reshape(node) and not any(a.is_broadcast for a in (*node.source.shape, *node.output.shape))


def _dims_before(reshape: Node, node: Reduction) -> list[int] | None:
    """The dimensions before a reshape that the reduction reduces; None if the reshape changes others."""
    (source,), reduced = reshape.tensor_inputs, [axis.is_reduction for axis in node.output.logical]
    target = reshape.output.extents
    found: list[int] = []
    for ours, theirs in regrouped(source.extents, target):
        if all(reduced[dim] for dim in theirs):
            found += ours
        elif len(ours) != 1 or len(theirs) != 1 or source.extents[ours[0]] is not target[theirs[0]]:
            return None
    sizes_of_one = [dim for dim, size in enumerate(target) if size is ONE]
    if any(not reduced[dim] for dim in sizes_of_one):
        return None
    return sorted((*found, *(dim for dim, size in enumerate(source.extents) if size is ONE)))


def _permuted_dims(permute: Permute, node: Reduction) -> list[int]:
    """The dimensions before a permute that the reduction reduces."""
    return sorted(permute.dims[dim] for dim in node.reduced_dims)


def _in_the_order_of(fusion: Fusion, permute: Permute, node: Reduction, result: TensorView) -> TensorView:
    """The result of a reduction before a permute, with the remaining dimensions in the order after it."""
    kept = [dim for i, dim in enumerate(permute.dims) if not node.output.logical[i].is_reduction]
    before = sorted(kept)
    return (
        build_shape.permute(fusion, result, [before.index(dim) for dim in kept]) if kept != before else result
    )


def _computed(fusion: Fusion, node: Node, value: TensorView) -> TensorView:
    """Applies an elementwise node of one operand to another operand."""
    out = fusion.new_like(value, node.output.dtype)
    twin = node.copy({node.output: out})
    fusion.add_node(twin)
    fusion.replace_inputs(twin, {node.tensor_inputs[0]: value})
    return out
