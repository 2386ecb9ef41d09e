"""Functions that rewrites share: they replace tensors, add tensors of positions and remove unneeded nodes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from fusewright.core.dtype import DataType
from fusewright.core.enums import MemoryType
from fusewright.ir.axis import IterKind
from fusewright.ir.fusion import Fusion
from fusewright.ir.node import Copy, Iota, Node, Pointwise, Reduction
from fusewright.ir.value import TensorView
from fusewright.ops.build_elementwise import constant
from fusewright.ops.elementwise import CAST
from fusewright.sym import ONE, Expr


def shape_of(tensor: TensorView) -> tuple[tuple[Expr, bool, Expr | None], ...]:
    """The properties of a tensor's dimensions that consumers see."""
    return tuple([(axis.extent, axis.is_broadcast, axis.expanded) for axis in tensor.shape])


def is_cast(node: Node | None) -> bool:
    """Whether a node converts a tensor to another type."""
    return isinstance(node, Pointwise) and node.op is CAST and isinstance(node.inputs[0], TensorView)


def is_in_memory_of_its_own(tensor: TensorView, outputs: Collection[TensorView]) -> bool:
    """Whether a tensor must not be replaced by another one with the same values.

    It is an output, is updated in memory, ends a kernel, or is a copy in a memory order that the definition
    states.
    """
    node = tensor.definition
    return (
        tensor in outputs
        or any(use.traits.updates for use in tensor.uses)
        or (isinstance(node, Copy) and (node.segment or node.ordered))
    )


def read_instead(fusion: Fusion, old: TensorView, new: TensorView) -> bool:
    """Replaces `old` by `new`, which has the same values, in all its readers.

    Returns False and changes nothing if a reader would read one tensor by index and as the index.
    """
    if any(use.traits.indexed and new in use.inputs for use in old.uses):
        return False
    for use in list(old.uses):
        fusion.replace_inputs(use, {old: new})
    return True


def remove_dead(fusion: Fusion, node: Node, outputs: set[TensorView]) -> None:
    """Removes a node and all nodes that only it uses, if nothing uses the node."""
    stack = [node]
    while stack:
        dead = stack.pop()
        if dead in fusion.nodes and not any(out.uses or out in outputs for out in dead.outputs):
            above = [v.definition for v in dead.inputs]
            fusion.remove_node(dead)
            stack += [n for n in above if n is not None]


def replace_node(fusion: Fusion, old: Node, new: Node, outputs: set[TensorView]) -> None:
    """Makes `new` compute the outputs of `old`, and removes nodes that only `old` used."""
    fusion.remove_node(old)
    fusion.add_node(new)
    for value in old.inputs:
        if value.definition is not None:
            remove_dead(fusion, value.definition, outputs)


def drop_reduced_axes(tensor: TensorView) -> None:
    """Removes the reduced axes of a tensor, before a node that is not a reduction defines it."""
    tensor.redefine(tensor.shape)
    tensor.loop = list(tensor.shape)
    tensor.allocation = tuple(tensor.memory_axes)


def combines_elements(node: Reduction) -> bool:
    """Whether results of the reduction can be reduced further like elements."""
    return len(node.outputs) == 1 and len(node.inputs) == 1 and node.op.lift == ("{x}",)


def return_instead(fusion: Fusion, old: TensorView, new: TensorView, outputs: set[TensorView]) -> None:
    """Replaces `old` by `new` in all its readers.

    If `old` is one of `outputs`, `new` becomes the output and gets the memory layout of `old`.
    """
    for use in list(old.uses):
        fusion.replace_inputs(use, {old: new})
    if old not in outputs:
        return
    outputs.add(new)
    new.lie_as(old)
    new.memory = MemoryType.global_
    fusion.outputs[:] = [replace(out, tensor=new) if out.tensor is old else out for out in fusion.outputs]


def positions_along(fusion: Fusion, like: TensorView, dim: int) -> TensorView:
    """Adds a tensor of the positions 0, 1, ... along dimension `dim` of `like`, broadcast along others."""
    axes = [
        fusion.copy_axis(axis) if i == dim else fusion.new_axis(ONE, IterKind.BROADCAST)
        for i, axis in enumerate(like.shape)
    ]
    out = fusion.new_tensor(axes, DataType.Int)
    fusion.add_node(Iota(constant(fusion, 0), constant(fusion, 1), out))
    return out
