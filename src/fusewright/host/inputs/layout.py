"""Shapes and strides of the tensors that the host allocates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusewright.ir import Fusion, TensorView
from fusewright.sym import Expr, Symbol, evaluate


def size_value(extent: Expr, sizes: Mapping[Symbol, int]) -> int:
    """The value of an extent."""
    if isinstance(extent, Symbol):  # the most frequent case
        return sizes[extent]
    return evaluate(extent, sizes)


class Layout:
    """The layout of a tensor in separate memory: dense, in its allocation order.

    An expanded dimension has one element in memory, and stride 0.

    Args:
        order: the dimensions, outermost first, which replace the allocation order.
    """

    __slots__ = ("_extents", "_order", "_expanded")

    def __init__(self, tensor: TensorView, order: Sequence[int] | None = None) -> None:
        shape = tensor.shape
        position = {axis: i for i, axis in enumerate(shape)}
        self._extents = tensor.extents
        if order is None:
            order = [position[axis] for axis in tensor.allocation if axis in position]
        self._order = order[::-1]
        self._expanded = [axis.expanded is not None for axis in shape]

    def at(self, sizes: Mapping[Symbol, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shape and strides for these sizes."""
        shape = tuple([size_value(extent, sizes) for extent in self._extents])
        strides = [0] * len(shape)
        step = 1
        for dim in self._order:
            if not self._expanded[dim]:
                strides[dim] = step
                step *= max(shape[dim], 1)
        return shape, tuple(strides)


class Layouts:
    """The layouts of the tensors of one fusion, made on demand.

    Attributes:
        open_inputs: the inputs whose layout the definition leaves open, by position.
    """

    __slots__ = ("open_inputs", "_made")

    def __init__(self, fusion: Fusion) -> None:
        inputs = [(i, v) for i, v in enumerate(fusion.inputs) if isinstance(v, TensorView)]
        self.open_inputs = [(i, tensor) for i, tensor in inputs if False in tensor.contiguity]
        self._made: dict[TensorView, Layout] = {}

    def of(self, tensor: TensorView) -> Layout:
        """The layout of a tensor in separate memory."""
        found = self._made.get(tensor)
        if found is None:
            found = self._made[tensor] = Layout(tensor)
        return found


def fresh_outputs(fusion: Fusion) -> list[TensorView]:
    """The visible outputs that need new memory, each once: neither inputs nor written into an input."""
    return list(
        dict.fromkeys(
            o.tensor
            for o in fusion.outputs
            if not o.hidden and o.alias is None and not fusion.is_input(o.tensor)
        )
    )
