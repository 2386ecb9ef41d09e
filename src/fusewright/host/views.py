"""Outputs that are views of inputs: torch makes them, and no kernel."""

from __future__ import annotations

from collections.abc import Mapping

from fusewright.host.binding import Binding
from fusewright.host.layout import size_value
from fusewright.ir import Fusion, Node, Placement, TensorView
from fusewright.sym import Symbol

#: An output that is a view -> the input that it views, and where it lies in that input's memory.
Views = Mapping[TensorView, tuple[TensorView, Placement]]


class OutputViews:
    """The outputs of a fusion that may be views of inputs.

    Those are computed from one input by nodes that only look at it in another way, and are not written into
    an input. An input that an output is written into is not viewed: its old values would be lost.
    """

    def __init__(self, fusion: Fusion) -> None:
        written = {o.alias for o in fusion.outputs}
        self._chains: dict[TensorView, tuple[int, list[Node]]] = {}
        for output in fusion.outputs:
            chain = _chain(fusion, output.tensor)
            if chain is None or output.alias is not None or chain[0] in written:
                continue
            if not all(use.traits.view or use.traits.indexed for use in output.tensor.uses):
                continue  # a kernel may hand it on to others, in memory of its own
            self._chains[output.tensor] = fusion.inputs.index(chain[0]), chain[1]
        self._inputs = fusion.inputs

    def find(self, binding: Binding) -> Views:
        """Those of a call."""
        found: dict[TensorView, tuple[TensorView, Placement]] = {}
        for output, (index, chain) in self._chains.items():
            source = self._inputs[index]
            place = _placed(binding.shapes[index], binding.strides[index])
            for node in chain:
                shape = _shape(node.output, binding.sizes)
                # Without elements there is nothing to share, and no stride of a part.
                place = node.placement(place, shape, binding.sizes) if place and 0 not in shape else None
            if place is not None and isinstance(source, TensorView):
                found[output] = source, place
        return found


def _chain(fusion: Fusion, tensor: TensorView) -> tuple[TensorView, list[Node]] | None:
    """The input that a tensor may be a view of, and the nodes from there on; None if there is none."""
    nodes: list[Node] = []
    node = tensor.definition
    while node is not None and (node.traits.view or node.traits.indexed):
        nodes.append(node)
        source = node.inputs[0]
        if not isinstance(source, TensorView):
            return None
        if fusion.is_input(source):
            return None if source.is_cpu else (source, nodes[::-1])
        node = source.definition
    return None


def _shape(tensor: TensorView, sizes: Mapping[Symbol, int]) -> tuple[int, ...]:
    return tuple(size_value(extent, sizes) for extent in tensor.extents)


def _placed(shape: tuple[int, ...], strides: tuple[int, ...]) -> Placement | None:
    """An input as torch would have it: a dimension of one element has the stride that goes past those inside.

    None for one without elements, which has no memory to share.
    """
    if 0 in shape:
        return None
    own = list(strides)
    inside = 1
    for dim in reversed(range(len(shape))):
        if shape[dim] == 1:
            own[dim] = inside
        inside = own[dim] * shape[dim]
    return Placement(shape, tuple(own))
