"""The layouts of inputs in a call, for inputs whose layout the definition leaves open.

A tensor that is defined with `contiguity=False` may have any strides. The strides of a call show which
dimension is innermost and which dimensions are contiguous with each other. Vectorization, and schedulers that
look for rows and columns in memory, use this layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from fusewright.ir import Fusion, TensorView
from fusewright.ops.memory_format import lay_out


@dataclass(frozen=True, slots=True)
class InputLayout:
    """The memory layout of one input of a fusion.

    Attributes:
        position: the position of the input.
        order: its dimensions, the outermost first.
        contiguity: the contiguity of these dimensions, as in `TensorView.contiguity`.
    """

    position: int
    order: tuple[int, ...]
    contiguity: tuple[bool | None, ...]


def input_layout(
    position: int, tensor: TensorView, shape: Sequence[int], strides: Sequence[int]
) -> InputLayout | None:
    """The layout that the strides of a call show, or None if the definition already states it.

    A dimension of one element may have any stride, so it keeps its place in the definition's order. A
    dimension that the definition broadcasts keeps its place, too.
    """
    if False not in tensor.contiguity or 0 in shape:
        return None
    place = {axis: dim for dim, axis in enumerate(tensor.shape)}
    defined = [place[axis] for axis in tensor.allocation if axis in place]
    flags = dict(zip(defined, tensor.contiguity))
    moving = [dim for dim in defined if shape[dim] > 1 and flags[dim] is not None]
    # Expanded dimensions (stride 0) go outermost, so that another dimension can be innermost.
    by_stride = iter(sorted(moving, key=lambda dim: -strides[dim] or -inf))
    moving_dims = set(moving)
    order = [next(by_stride) if dim in moving_dims else dim for dim in defined]
    expected = 1
    for dim in reversed(order):
        if flags[dim] is None:
            continue
        if dim not in moving_dims:
            flags[dim] = True
            continue
        flags[dim] = strides[dim] == expected
        expected = strides[dim] * shape[dim]
    found = InputLayout(position, tuple(order), tuple([flags[dim] for dim in order]))
    contradicts = any(flag and not flags[dim] for dim, flag in zip(defined, tensor.contiguity))
    return None if contradicts or (order, found.contiguity) == (defined, tensor.contiguity) else found


def lay_out_inputs(graph: Fusion, layouts: Iterable[InputLayout]) -> None:
    """Sets the layouts of inputs, and of the outputs that kernels write into them."""
    for layout in layouts:
        tensor = graph.inputs[layout.position]
        assert isinstance(tensor, TensorView)
        for each in (tensor, *written_alike(graph, layout)):
            lay_out(each, layout.order, layout.contiguity)


def written_alike(fusion: Fusion, layout: InputLayout) -> list[TensorView]:
    """The outputs that have the layout of an input because kernels write them into it.

    This excludes outputs that torch computes, which have the definition's layout, and updates of existing
    memory.
    """
    alias = fusion.inputs[layout.position]
    written = dict.fromkeys(output.tensor for output in fusion.outputs if output.alias is alias)
    return [t for t in written if (node := t.definition) and not (node.traits.whole or node.traits.updates)]
