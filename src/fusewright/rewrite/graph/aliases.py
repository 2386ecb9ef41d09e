"""Separates outputs that are views of an input or of another output from the computation that uses them.

    v = permute(x) is an output, and exp(v)    becomes    v' = permute(x), and exp(v')

The host returns such an output as a view, and no kernel computes it. So nodes that compute with it get a
separate view, which costs a kernel nothing, however the definition was written.
"""

from __future__ import annotations

from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Node
from fusewright.ir.value import TensorView


def separate_aliases(fusion: Fusion) -> Fusion:
    """Gives nodes that read an output that may be a view a separate view; returns `fusion`."""
    bases = alias_bases(fusion)
    for tensor in fusion.output_tensors():
        node = tensor.definition
        if node is None or view_chain(tensor, bases) is None:
            continue
        readers = [use for use in tensor.uses if not only_looks(use)]
        if readers:
            twin = fusion.new_like(tensor)
            fusion.add_node(node.copy({tensor: twin}))
            for use in readers:
                fusion.replace_inputs(use, {tensor: twin})
    return fusion


def alias_bases(fusion: Fusion) -> set[TensorView]:
    """The inputs and outputs whose memory outputs may view: nothing writes into it after they are made."""
    written = {output.alias for output in fusion.outputs} | {
        output.tensor for output in fusion.outputs if output.alias is not None
    }
    tensors = [v for v in fusion.inputs if isinstance(v, TensorView) and not v.is_cpu]
    return {tensor for tensor in (*tensors, *fusion.output_tensors()) if tensor not in written}


def only_looks(node: Node) -> bool:
    """Whether a node's output may be a view of the memory of its first input."""
    return node.traits.view or node.traits.indexed


def view_chain(tensor: TensorView, bases: set[TensorView]) -> tuple[TensorView, list[Node]] | None:
    """The nearest of `bases` that an output may be a view of, and the nodes from there to the output."""
    nodes: list[Node] = []
    node = tensor.definition if tensor in bases else None
    while node is not None and only_looks(node):
        nodes.append(node)
        source = node.inputs[0]
        if not isinstance(source, TensorView):
            return None
        if source in bases:
            return source, nodes[::-1]
        node = source.definition
    return None
