"""Finds outputs that are views of inputs or of other outputs. torch makes them without a kernel."""

from __future__ import annotations

from collections.abc import Mapping

from fusewright.host.inputs.binding import Binding
from fusewright.host.inputs.layout import Layout, size_value
from fusewright.ir import Fusion, Node, Placement, TensorView
from fusewright.rewrite.graph.aliases import alias_bases, only_looks, view_chain
from fusewright.sym import Symbol

#: An output that is a view -> (the input or output that it views, its placement in the memory of that
#: tensor).
Views = Mapping[TensorView, tuple[TensorView, Placement]]


class OutputViews:
    """The outputs of a fusion that may be views.

    Such an output is computed by view nodes alone from an input, or from an output that a kernel writes, and
    is not written into an input. A tensor that the call overwrites or updates in memory has no views, since
    they would lose its old values.
    """

    def __init__(self, fusion: Fusion) -> None:
        bases = alias_bases(fusion)
        self._positions = {value: i for i, value in enumerate(fusion.inputs)}
        self._layouts = {t: Layout(t) for t in bases if t not in self._positions}
        found = {
            tensor: chain
            for tensor in fusion.output_tensors()
            if (chain := view_chain(tensor, bases)) is not None
            # If other nodes use the output, a kernel may have to write it into separate memory for them.
            and all(only_looks(use) for use in tensor.uses)
        }
        self._chains: dict[TensorView, tuple[TensorView, list[Node]]] = {}
        for tensor in sorted(found, key=lambda tensor: _depth(tensor, found)):  # bases before their views
            self._chains[tensor] = found[tensor]

    def find(self, binding: Binding) -> Views:
        """The outputs that are views in a call."""
        found: dict[TensorView, tuple[TensorView, Placement]] = {}
        for output, (base, chain) in self._chains.items():
            source, place = found.get(base) or (base, self._placed(base, binding))
            for node in chain:
                shape = _shape(node.output, binding.sizes)
                # A tensor without elements has no memory to share, and its parts have no strides.
                place = node.placement(place, shape, binding.sizes) if place and 0 not in shape else None
            if place is not None:
                found[output] = source, place
        return found

    def _placed(self, base: TensorView, binding: Binding) -> Placement | None:
        position = self._positions.get(base)
        if position is None:
            return _placement(*self._layouts[base].at(binding.sizes))
        return _placement(binding.shapes[position], binding.strides[position])


def _depth(tensor: TensorView, found: Mapping[TensorView, tuple[TensorView, list[Node]]]) -> int:
    """The length of the chain of views that ends in `tensor`."""
    depth = 0
    while tensor in found:
        tensor, depth = found[tensor][0], depth + 1
    return depth


def _shape(tensor: TensorView, sizes: Mapping[Symbol, int]) -> tuple[int, ...]:
    return tuple(size_value(extent, sizes) for extent in tensor.extents)


def _placement(shape: tuple[int, ...], strides: tuple[int, ...]) -> Placement | None:
    """The placement of a tensor in its own memory; None without elements, since there is no memory to share.

    As in torch, a dimension of one element has the stride that skips the inner dimensions.
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
